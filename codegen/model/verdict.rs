//! Whether an image runs on a device under a driver: decided from numbers alone, before the driver sees a byte.
//!
//! The driver cannot be asked: it loads a cubin of another architecture, PTX that it cannot read and even an empty file
//! with success, and only the missing kernel tells. So the rules are here, as one pure function:
//!
//! | image | runs on a device of compute capability X.Y if |
//! |---|---|
//! | `sm_XZ` | same major, Z ≤ Y, and neither chip is an integrated one unless they are the same |
//! | `sm_XZf` | same family (major), Z ≤ Y; integrated as above |
//! | `sm_XYa`, `compute_XYa` | X.Y exactly |
//! | `compute_VZ` | V.Z ≤ X.Y |
//! | `compute_XZf` | same family, Z ≤ Y |
//!
//! And the driver, described by the newest toolkit that it supports, must have at least the major version of the toolkit
//! that made a cubin (a 13.5 cubin runs on a 13.0 driver), must read the PTX version that the toolkit writes (a 13.0
//! driver does not read 13.5 PTX), and must know the architectures of image and device. An unknown driver is not
//! judged: that is for bakes, which ask about devices that are not there.

mod choice;
mod reject;

pub use choice::{Trace, select, select_covering};
pub use reject::Reject;

use crate::target::{Arch, Suffix, Target, Toolkit};
use std::fmt;

/// What has to be known of an image to judge it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// What it was compiled for.
    pub target: Target,
    /// The toolkit that compiled it; not looked at for the host.
    pub toolkit: Toolkit,
}

impl Image {
    /// An image for the host, which no toolkit compiled.
    pub const HOST: Self = Self { target: Target::Host, toolkit: Toolkit { major: 0, minor: 0 } };
}

/// How an image runs. Ordered from the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Accept {
    /// Compiled for exactly this chip, suffix `a`.
    Exact,
    /// Compiled for the family, suffix `f`.
    Family,
    /// Compiled for this minor version or an earlier one.
    Baseline,
    /// Finished by the driver's compiler.
    Ptx,
    /// Runs on the CPU.
    Host,
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "compiled for exactly this chip",
            Self::Family => "compiled for this family",
            Self::Baseline => "compiled for this major version",
            Self::Ptx => "PTX, which the driver compiles",
            Self::Host => "compiled for the host",
        })
    }
}

/// Whether an image runs on a device (without one: on the host only) under a driver (without one: not judged).
///
/// # Errors
/// The first rule that it breaks: device before driver.
pub fn verdict(image: &Image, device: Option<Arch>, driver: Option<Toolkit>) -> Result<Accept, Reject> {
    let target = image.target;
    match (target, device) {
        (Target::Host, None) => Ok(Accept::Host),
        (Target::Host, Some(device)) => Err(Reject::HostOnGpu { device }),
        (_, None) => Err(Reject::NoDevice { image: target }),
        (Target::Sm(arch, suffix), Some(device)) => {
            let accept = on_device(target, arch, suffix, device)?;
            let integrated = |arch: Arch| arch.facts().is_some_and(|f| f.integrated);
            if arch != device && (integrated(arch) || integrated(device)) {
                return Err(Reject::Integrated { image: target, device });
            }
            if let Some(driver) = driver {
                if image.toolkit.major > driver.major {
                    return Err(Reject::DriverMajor { toolkit: image.toolkit, driver });
                }
                known_to(driver, [arch, device])?;
            }
            Ok(accept)
        }
        (Target::Compute(arch, suffix), Some(device)) => {
            match suffix {
                Suffix::Baseline if arch > device => return Err(Reject::DeviceTooOld { image: target, device }),
                Suffix::Baseline => {}
                _ => drop(on_device(target, arch, suffix, device)?),
            }
            if let Some(driver) = driver {
                if image.toolkit.ptx_isa() > driver.ptx_isa() {
                    return Err(Reject::PtxIsa { toolkit: image.toolkit, driver });
                }
                known_to(driver, [arch, device])?;
            }
            Ok(Accept::Ptx)
        }
    }
}

/// Whether an image serves every device that a target stands for: `a` its chip, `f` its family from its minor version
/// on, no suffix its major version from its minor version on, PTX whatever the driver can compile it for.
///
/// # Errors
/// Why the image does not run on the first of these devices, or [`Reject::Narrower`] if it lacks some of the others.
pub fn covers(image: &Image, wanted: Target) -> Result<Accept, Reject> {
    let narrower = Err(Reject::Narrower { image: image.target, wanted });
    let (have, want) = (image.target.suffix(), wanted.suffix());
    let accept = match (image.target, wanted) {
        (Target::Host, Target::Host) => return Ok(Accept::Host),
        // Machine code does not reach the architectures that PTX stands for; PTX is not machine code.
        (Target::Sm(..), Target::Compute(..)) => return narrower,
        (Target::Compute(..), Target::Sm(..)) => {
            verdict(image, wanted.arch(), None)?;
            return Err(Reject::PtxNotAllowed { image: image.target });
        }
        _ => verdict(image, wanted.arch(), None)?,
    };
    // The verdict on the first device is in; the suffix says how far beyond it the image reaches.
    match want {
        Suffix::Baseline if have != Suffix::Baseline => narrower,
        Suffix::Family if have == Suffix::Specific => narrower,
        _ => Ok(accept),
    }
}

fn on_device(image: Target, arch: Arch, suffix: Suffix, device: Arch) -> Result<Accept, Reject> {
    let (same_major, minor_reached) = (arch.major() == device.major(), arch.minor() <= device.minor());
    match suffix {
        Suffix::Specific if arch == device => Ok(Accept::Exact),
        Suffix::Specific => Err(Reject::ArchSpecific { image, device }),
        Suffix::Family if !same_major => Err(Reject::Family { image, device }),
        Suffix::Baseline if !same_major => Err(Reject::OtherMajor { image, device }),
        _ if !minor_reached => Err(Reject::MinorTooNew { image, device }),
        Suffix::Family => Ok(Accept::Family),
        Suffix::Baseline => Ok(Accept::Baseline),
    }
}

fn known_to(driver: Toolkit, archs: [Arch; 2]) -> Result<(), Reject> {
    let unknown = archs.into_iter().filter_map(Arch::facts).find(|facts| facts.min_driver > driver);
    unknown.map_or(Ok(()), |f| Err(Reject::DriverTooOld { arch: f.arch, needs: f.min_driver, driver }))
}

#[cfg(test)]
mod tests;
