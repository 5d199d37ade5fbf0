//! The utility families against their references: on the host target, and on every GPU there is, with longer lists.

mod common;
#[path = "utilities/harness.rs"]
mod harness;
#[path = "utilities/sampling.rs"]
mod sampling;
