//! Parts of a bake that are made apart, by other processes or on other machines, and put together by `parbake merge`.
//!
//! | part | made by | what decides it |
//! |---|---|---|
//! | shard | `parbake build --shard 2/5` | the plan and the recorded costs, and nothing else |
//! | one unit | `parbake compile UNIT.json` | that file |
//!
//! What decides the result is stated in one place, [`Statement`], and its digest names the plan: whoever merges states
//! what has come together, and compares.

mod label;
mod merge;
mod plan;
mod shard;
mod statement;
mod unit;

pub use label::Label;
pub use merge::{Merged, Part, merge};
pub use plan::{Action, Input, Last, MAX_PLAN, PLAN_FILE, PlanFile, places};
pub use shard::{Shard, divide};
pub use statement::{Statement, Unit};
pub use unit::{MAX_UNIT, Planned, UnitFile};

/// The level of compression of parts. They are packed once more when they are merged.
pub const PART_LEVEL: i32 = 3;
