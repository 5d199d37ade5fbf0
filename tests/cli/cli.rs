//! The command line, as a person types it: the real program, in a workspace of its own.

mod answers;
mod bake;
mod bench;
mod bundles;
mod cache;
mod doctor;
mod edits;
mod errors;
mod help;
mod isolation;
mod machine;
mod prepare;
mod replay;
mod signatures;
mod triton;
mod wheel;
mod workspace;
