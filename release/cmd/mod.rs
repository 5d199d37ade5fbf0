//! One module a command.

pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod cache;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod expand;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod lock;
pub(crate) mod ops;
pub(crate) mod prepare;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod sign;
pub(crate) mod supports;
pub(crate) mod test;
pub(crate) mod toolchain;
pub(crate) mod verify;
pub(crate) mod wheel;
pub(crate) mod why;
pub(crate) mod worker;
