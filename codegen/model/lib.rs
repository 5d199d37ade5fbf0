//! What all parts of Parbake agree on: targets and verdicts, identities, op definitions and dispatch spaces, and the
//! on-disk formats (bundle, fatbin, cubin, metadata). No template engine, no compiler, no driver, no network.
//!
//! Rules kept here:
//! - the environment is read in one place, [`settings::Config::from_env`], once, at start;
//! - every identity is SHA-256 over length-prefixed, domain-tagged fields and can be printed field by field;
//! - every reader bounds every length before it uses it.

pub mod blocklist;
pub mod bundle;
pub mod codes;
pub mod cubin;
pub mod digest;
pub mod dtype;
pub mod extent;
pub mod fatbin;
pub mod function;
pub mod glob;
pub mod gpu;
pub mod identity;
pub mod language;
pub mod lock;
pub mod metadata;
pub mod op;
pub mod owner;
pub mod record;
pub mod report;
pub mod settings;
pub mod shared_object;
pub mod snippet;
pub mod source;
pub mod space;
pub mod target;
pub mod trust;
pub mod tuned;
pub mod verdict;

pub use digest::{Digest, Key, KeyFields};
pub use language::Language;
pub use report::Report;
pub use target::{Arch, Suffix, Target, Toolkit};

/// The version of this library, from the workspace's `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The contract between launchers and compiled kernels: parameter passing, entry naming, host entry signature.
/// Raised whenever an image compiled before the change may no longer be launched by a launcher built after it.
pub const LAUNCH_ABI: u32 = 1;

/// The contract of `parbake.h`: raised whenever a program compiled with an earlier header can no longer use the library.
/// New functions do not raise it, except that those of ops follow `op.toml`.
pub const C_ABI: u32 = 1;
