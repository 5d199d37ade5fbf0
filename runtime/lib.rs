//! Parbake: GPU kernels baked ahead for the architectures you have, and finished on demand.
//!
//! A [`Library`] knows every op. A call is checked, served from a bundle, the store or, if that is allowed, by compiling
//! it in this process, and launched. Importing the library writes nothing, touches no device and starts no thread.
//!
//! # Calling an op
//!
//! Memory and streams are the caller's: a [`Tensor`] is a view, a [`Stream`] a handle of the driver. Work for a GPU is
//! queued on the stream; on the host target ([`Place::Host`], for tests rather than speed) it is done when the call
//! returns. Every op is a function of [`ops`], with its arguments by name.
//!
//! ```
//! use parbake::{Library, Place, Stream, Tensor, ops};
//! use parbake::model::{dtype::DType, settings::Config};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = |name: &str, path: &std::path::Path| (name.to_owned(), path.display().to_string());
//! # let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
//! let library = Library::open(Config::from_env()?)?;
//! # let settings = [folder("PARBAKE_WORKSPACE", scratch.path()), folder("PARBAKE_KERNELS", &kernels)];
//! # let library = Library::open(Config::from_settings(settings)?)?;
//! let (x, weight, mut out) = (vec![3f32; 2 * 64], vec![1f32; 64], vec![0f32; 2 * 64]);
//! let view = |data: *const f32, shape: &[i64]| Tensor::dense(data.cast_mut().cast(), DType::F32, shape).unwrap();
//! let (out_view, x_view) = (view(out.as_mut_ptr(), &[2, 64]), view(x.as_ptr(), &[2, 64]));
//! let weight_view = view(weight.as_ptr(), &[64]);
//! // SAFETY: the vectors outlive the call, which is synchronous on the host target.
//! unsafe { ops::rmsnorm(&library, Place::Host, Stream::DEFAULT, out_view, x_view, weight_view, 1e-6, 0.0)? };
//! assert!(out.iter().all(|v| (v - 1.0).abs() < 1e-6));
//! # Ok(()) }
//! ```
//!
//! `examples/rust/cudarc_buffers.rs` does the same with memory and a stream of cudarc. Ops that are known by name only go
//! through [`Library::op`] and [`Library::call`]; [`Library::prepare_call`] checks once for many launches on the same
//! memory.
//!
//! # Before the first call
//!
//! [`Library::supports`] says from where a spec would be served, [`Library::why`] why, and [`Library::prepare`] has specs
//! ready, so that no call waits for a compiler: before a server takes requests, before a graph is captured.
//!
//! ```no_run
//! use parbake::{Library, Place, Site};
//! # fn prepare(library: &Library) -> Result<(), parbake::Error> {
//! let dtype = [("dtype".to_owned(), "bf16".to_owned())];
//! let wanted = library.tactics(library.op("rmsnorm")?, &dtype, &[Site::Place(Place::Cuda(0))])?;
//! for ready in library.prepare(&wanted)? {
//!     println!("{}: {}", ready.uri, ready.from);
//! }
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! Arguments are checked before anything is launched; after an error nothing was written. [`Error::report`] has the code
//! that keeps its meaning for good, what was expected, what came, and what to do.
//!
//! ```
//! use parbake::{Error, Library, Place, Stream, Tensor, ops};
//! # use parbake::model::{dtype::DType, settings::Config};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").display().to_string();
//! # let library = Library::open(Config::from_settings([("PARBAKE_KERNELS".to_owned(), kernels)])?)?;
//! # let mut data = vec![0f32; 3 * 128];
//! # let mut view = |at: usize, shape: &[i64]| {
//! #     Tensor::dense(data[at * 128..].as_mut_ptr().cast(), DType::F32, shape).unwrap()
//! # };
//! # let (out, x, weight) = (view(0, &[2, 64]), view(1, &[2, 64]), view(2, &[63]));
//! // SAFETY: the memory outlives the call.
//! match unsafe { ops::rmsnorm(&library, Place::Host, Stream::DEFAULT, out, x, weight, -1.0, 0.0) } {
//!     Err(Error::Arguments(bad)) => {
//!         let wrong: Vec<&str> = bad.violations.iter().map(|v| v.argument.as_str()).collect();
//!         assert_eq!(wrong, ["weight", "eps"]); // 63 columns instead of 64, and a negative eps
//!         assert_eq!(bad.report().code, "PB-2001");
//!     }
//!     Err(Error::NotCovered(decision)) => println!("{}", decision.remedy()),
//!     other => println!("{other:?}"),
//! }
//! # Ok(()) }
//! ```

mod answer;
mod asan;
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
#[cfg(feature = "jit")]
pub mod frames;
mod goal;
pub mod group;
#[cfg(feature = "jit")]
mod jit;
mod leftovers;
mod library;
mod load;
#[cfg(feature = "jit")]
mod lock;
pub mod log;
mod lookup;
pub mod memory;
mod prepare;
mod random;
mod record;
mod shared;
pub mod signature;
mod slot;
mod snippet;
mod stats;
pub mod store;
pub mod tactic;
mod tensor;
mod tensor_map;
pub mod trial;
pub mod tune;
mod version;
pub mod workspace;

#[path = "../generated-manifest/modules.rs"]
mod modules;
#[allow(clippy::too_many_arguments, reason = "as many as the op has")]
#[path = "../generated-manifest/ops.rs"]
#[rustfmt::skip]
pub mod ops;
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
#[cfg(feature = "jit")]
pub use jit::Keys;
pub use leftovers::Collected;
pub use library::{Library, OpId, SpecId};
pub use parbake_model as model;
pub use prepare::{Readied, Site, Wanted};
pub use snippet::{MAX_SNIPPETS, Value};
pub use stats::Stats;
pub use tensor::{MAX_RANK, Tensor};
