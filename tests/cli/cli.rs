//! The command line, as a person types it: the real program, in a workspace of its own.

mod answers;
mod bake;
mod bench;
mod bundles;
mod cache;
mod coverage;
mod diff;
mod doctor;
mod edits;
mod errors;
mod fetch;
mod help;
mod isolation;
mod machine;
mod merge;
mod parts;
#[path = "../common/points.rs"]
mod points;
mod prepare;
mod publish;
mod replay;
mod report;
mod server;
mod signatures;
mod triton;
mod tune;
mod wheel;
mod workspace;
