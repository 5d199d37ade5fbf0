//! The build side of Parbake: op definitions, the registry of all ops, rendering, and what is committed of it.
//!
//! Rules kept here:
//! - only this crate knows the template engine and compilers;
//! - the render context never contains the target;
//! - everything is rendered in memory before anything is written, and written only if it differs.

pub mod artifact;
pub mod baking;
pub mod bindings;
pub mod definition;
mod exports;
mod header;
pub mod layout;
pub mod manifest;
mod names;
mod ops_page;
pub mod parts;
mod peers;
mod python;
pub mod registry;
pub mod render;
mod signature;
pub mod spill;
pub mod toolchain;
mod trace;
mod typed;
