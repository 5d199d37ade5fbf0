//! Baking: which artifacts a list of targets asks for, making them, and packing them into a bundle.

mod pack;
mod plan;
mod request;
mod threads;

pub use pack::{check_driver_floor, pack, provenance};
pub use plan::{Job, Only, Plan, plan};
pub use request::{Request, bake};
pub use threads::run;
