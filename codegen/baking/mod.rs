//! Baking: which artifacts a list of targets asks for, making them, and packing them into a bundle.

pub mod costs;
pub mod governor;
pub mod interrupt;
mod pack;
mod plan;
pub mod pool;
mod request;
mod threads;

pub use pack::{Keep, Packer, Packing, check_driver_floor, pack, pack_from, provenance};
pub use plan::{Job, Only, Plan, plan, plan_lock};
pub use request::{Request, bake};
pub use threads::{on_threads, run};
