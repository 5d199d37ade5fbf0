//! x

pub mod toolchain;
