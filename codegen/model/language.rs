//! What kernels are written in. It decides how a unit is spelled, what compiles it, and for which targets.

use crate::target::{Arch, Suffix, Target};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The language of an op's kernels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// CUDA C++.
    #[default]
    Cuda,
    /// Triton: Python that a compiler of its own takes.
    Triton,
}

/// From here on Triton compiles for the chip itself (`sm_90a`), below for the baseline (`sm_89`).
const TRITON_SPECIFIC_SINCE: Arch = Arch(90);

impl Language {
    /// Whether it is the usual one.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        *self == Self::Cuda
    }

    /// The extension of a unit's file.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Cuda => "cu",
            Self::Triton => "py",
        }
    }

    /// The language of a unit, by the name of its file.
    #[must_use]
    pub fn of_unit(name: &str) -> Self {
        if name.ends_with(".py") { Self::Triton } else { Self::Cuda }
    }

    /// The extension of the file that holds an op's kernel.
    #[must_use]
    pub fn kernel_extension(self) -> &'static str {
        match self {
            Self::Cuda => "cuh",
            Self::Triton => "py",
        }
    }

    /// Whether its compilers know targets of that kind at all. Which architectures there are is known to a toolchain.
    ///
    /// # Errors
    /// The reason why they do not.
    pub fn supports(self, target: Target) -> Result<(), String> {
        let made = match (self, target) {
            (Self::Cuda, _) => return Ok(()),
            (Self::Triton, Target::Sm(arch, suffix)) => {
                let made = if arch < TRITON_SPECIFIC_SINCE { Suffix::Baseline } else { Suffix::Specific };
                if suffix == made {
                    return Ok(());
                }
                Target::Sm(arch, made).to_string()
            }
            (Self::Triton, Target::Compute(..) | Target::Host) => "GPUs".to_owned(),
        };
        Err(format!("Triton compiles for {made}, not for {target}"))
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "CUDA C++",
            Self::Triton => "Triton",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triton_takes_one_suffix_of_each_architecture() {
        for (target, expected) in [
            ("sm_80", Ok(())),
            ("sm_89", Ok(())),
            ("sm_90a", Ok(())),
            ("sm_120a", Ok(())),
            ("sm_90", Err("Triton compiles for sm_90a, not for sm_90")),
            ("sm_100f", Err("Triton compiles for sm_100a, not for sm_100f")),
            ("compute_90", Err("Triton compiles for GPUs, not for compute_90")),
            ("host", Err("Triton compiles for GPUs, not for host")),
        ] {
            let target: Target = target.parse().unwrap();
            assert_eq!(Language::Triton.supports(target), expected.map_err(str::to_owned));
            assert_eq!(Language::Cuda.supports(target), Ok(()));
        }
    }
}
