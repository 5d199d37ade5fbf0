//! What an image is wanted for, and how a spec would be served.

use parbake_model::target::{Arch, Suffix};
use parbake_model::verdict::{self, Image, Trace};
use parbake_model::{Target, Toolkit};
use serde::Serialize;

/// What an image is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A device of this architecture, under a driver of this version.
    Device(Arch, Toolkit),
    /// The host target.
    Host,
    /// A target, whatever is in this machine.
    Target(Target),
}

impl Goal {
    pub(crate) fn arch(self) -> Option<Arch> {
        match self {
            Self::Device(arch, _) => Some(arch),
            Self::Host => None,
            Self::Target(target) => target.arch(),
        }
    }
    pub(crate) fn driver(self) -> Option<Toolkit> {
        match self {
            Self::Device(_, driver) => Some(driver),
            _ => None,
        }
    }
    /// What a compiler is asked for: exactly this chip.
    #[must_use]
    pub fn target(self) -> Target {
        match self {
            Self::Device(arch, _) if arch.facts().is_some_and(|f| f.specific) => Target::Sm(arch, Suffix::Specific),
            Self::Device(arch, _) => Target::Sm(arch, Suffix::Baseline),
            Self::Host => Target::Host,
            Self::Target(target) => target,
        }
    }
    /// The best of some images: one that runs on the device; for a target one that runs on every device it stands for.
    /// PTX runs on a device only if it is allowed.
    pub(crate) fn select<T>(self, candidates: impl Iterator<Item = (Image, T)>, ptx: bool) -> (Option<T>, Trace) {
        let (best, trace) = match self {
            Self::Target(wanted) => verdict::select_covering(candidates, wanted),
            _ => verdict::select(candidates, self.arch(), self.driver(), ptx),
        };
        (best.map(|(_, payload)| payload), trace)
    }
    pub(crate) fn words(self) -> String {
        match self {
            Self::Device(arch, driver) => format!("sm_{arch} (driver of CUDA {driver})"),
            Self::Host => "host".to_owned(),
            Self::Target(target) => target.to_string(),
        }
    }
}

/// How a spec would be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// From a bundle.
    Bundle,
    /// From the store.
    Store,
    /// By compiling it.
    Jit,
    /// It exists, but nothing covers it and it may not be compiled.
    NotCovered,
    /// A blocklist bars it.
    Blocked,
    /// It does not exist.
    Unsupported,
}
