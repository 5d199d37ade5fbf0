//! What the build script of `parbake` needs to embed a bundle. A crate of its own, so that only the feature `aot`
//! builds the generator for build scripts too.

pub use parbake_codegen::baking::{Request, bake};
