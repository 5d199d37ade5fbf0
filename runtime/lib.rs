//! Parbake: GPU kernels baked ahead for the architectures you have, and finished on demand.
//!
//! A [`Library`] knows every op. A call is checked, served from a bundle, the store or, if that is allowed, by compiling
//! it in this process, and launched. Importing the library writes nothing, touches no device and starts no thread.
//!
//! ```no_run
//! use parbake::{Library, Place, Stream, Tensor};
//! use parbake::model::{dtype::DType, settings::Config};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let library = Library::open(Config::from_env()?)?;
//! let rmsnorm = library.op("rmsnorm")?;
//! let (mut x, mut weight, mut out) = (vec![0.5f32; 2 * 64], vec![1f32; 64], vec![0f32; 2 * 64]);
//! let tensor = |data: &mut [f32], shape: &[i64]| Tensor::dense(data.as_mut_ptr().cast(), DType::F32, shape).unwrap();
//! let arguments = [tensor(&mut out, &[2, 64]), tensor(&mut x, &[2, 64]), tensor(&mut weight, &[64])];
//! // SAFETY: the vectors outlive the call, which is synchronous on the host target.
//! unsafe { library.call(rmsnorm, &arguments, &[1e-6, 0.0], Place::Host, Stream::DEFAULT)? };
//! # Ok(()) }
//! ```

mod answer;
pub mod binding;
mod bundles;
pub mod cache;
mod call;
pub mod capability;
pub mod check;
mod code;
pub mod context;
pub mod decision;
pub mod door;
pub mod driver;
mod embedded;
mod error;
mod fault;
mod goal;
#[cfg(feature = "jit")]
mod jit;
mod leftovers;
mod library;
mod load;
#[cfg(feature = "jit")]
mod lock;
mod lookup;
pub mod memory;
mod prepare;
pub mod signature;
mod slot;
mod stats;
pub mod store;
mod tensor;
pub mod trial;
mod version;
pub mod workspace;

#[path = "../generated-manifest/modules.rs"]
mod modules;
#[allow(missing_docs, non_camel_case_types, unreachable_pub, clippy::undocumented_unsafe_blocks)]
#[path = "../generated-manifest/params.rs"]
#[rustfmt::skip]
mod params;

pub use answer::{Coverage, Explanation, Identities, Preparation};
pub use bundles::{Unfit, WHEEL_FOLDER, WHEEL_PREFIX};
pub use call::{Called, Prepared};
pub use code::{Kernel, Place, Stream};
pub use error::Error;
pub use goal::{Goal, Support};
pub use leftovers::Collected;
pub use library::{Library, OpId, SpecId};
pub use parbake_model as model;
pub use prepare::{Readied, Site, Wanted};
pub use stats::Stats;
pub use tensor::{MAX_RANK, Tensor};
