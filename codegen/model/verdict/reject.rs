//! Why an image does not run.

use crate::target::{Arch, Target, Toolkit};
use std::fmt;

/// Writes an architecture as a compute capability: `9.0`.
struct Capability(Arch);

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.major(), self.0.minor())
    }
}

/// Why an image does not run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reject {
    /// Machine code of another major version.
    #[error("{image} runs on compute capability {}.x; the device is {}", .image.arch().map_or(0, Arch::major), Capability(*.device))]
    OtherMajor {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// Compiled for a later minor version of the same major.
    #[error("{image} runs on compute capability {} and later minor versions; the device is {}", at(.image), Capability(*.device))]
    MinorTooNew {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// Suffix `a` and another chip.
    #[error("{image} runs on compute capability {} exactly; the device is {}", at(.image), Capability(*.device))]
    ArchSpecific {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// Suffix `f` and another family.
    #[error("{image} runs on the family {}.x only; the device is {}", .image.arch().map_or(0, Arch::major), Capability(*.device))]
    Family {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// PTX for a newer architecture.
    #[error("{image} runs on compute capability {} and newer; the device is {}", at(.image), Capability(*.device))]
    DeviceTooOld {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// One of the two is an integrated chip and they differ.
    #[error("{image} is not promised to run on compute capability {}: one of them is an integrated chip", Capability(*.device))]
    Integrated {
        /// The image's target.
        image: Target,
        /// The device.
        device: Arch,
    },
    /// The driver's compiler does not read this PTX.
    #[error("PTX of CUDA {toolkit} is version {}.{}; the driver supports CUDA {driver} and reads up to {}.{}",
        .toolkit.ptx_isa().0, .toolkit.ptx_isa().1, .driver.ptx_isa().0, .driver.ptx_isa().1)]
    PtxIsa {
        /// The toolkit that wrote the PTX.
        toolkit: Toolkit,
        /// The driver.
        driver: Toolkit,
    },
    /// Machine code of a toolkit of a newer major version.
    #[error("compiled by CUDA {toolkit}, which needs a driver for CUDA {}.0 or newer; the driver supports CUDA {driver}", .toolkit.major)]
    DriverMajor {
        /// The toolkit that compiled the image.
        toolkit: Toolkit,
        /// The driver.
        driver: Toolkit,
    },
    /// The driver is older than the chip.
    #[error("compute capability {} needs a driver for CUDA {needs} or newer; the driver supports CUDA {driver}", Capability(*.arch))]
    DriverTooOld {
        /// The architecture that it does not know.
        arch: Arch,
        /// The first driver that does.
        needs: Toolkit,
        /// The driver.
        driver: Toolkit,
    },
    /// PTX would run, but was not asked for.
    #[error("{image} would be compiled by the driver, which was not asked for (PARBAKE_PTX)")]
    PtxNotAllowed {
        /// The image's target.
        image: Target,
    },
    /// An image that serves some, but not all, of the devices that a target stands for.
    #[error("{image} runs on fewer devices than {wanted} stands for")]
    Narrower {
        /// The image's target.
        image: Target,
        /// The target that was asked for.
        wanted: Target,
    },
    /// A host image where a GPU is in use.
    #[error("compiled for the host; the device is compute capability {}", Capability(*.device))]
    HostOnGpu {
        /// The device.
        device: Arch,
    },
    /// A GPU image and no GPU.
    #[error("{image} needs a GPU; only the host is in use")]
    NoDevice {
        /// The image's target.
        image: Target,
    },
}

fn at(image: &Target) -> String {
    image.arch().map(|arch| Capability(arch).to_string()).unwrap_or_default()
}

impl Reject {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherMajor { .. } => "PB-1201",
            Self::MinorTooNew { .. } => "PB-1202",
            Self::ArchSpecific { .. } => "PB-1203",
            Self::Family { .. } => "PB-1204",
            Self::DeviceTooOld { .. } => "PB-1205",
            Self::Integrated { .. } => "PB-1206",
            Self::PtxIsa { .. } => "PB-1207",
            Self::DriverMajor { .. } => "PB-1208",
            Self::DriverTooOld { .. } => "PB-1209",
            Self::PtxNotAllowed { .. } => "PB-1210",
            Self::HostOnGpu { .. } => "PB-1211",
            Self::NoDevice { .. } => "PB-1212",
            Self::Narrower { .. } => "PB-1213",
        }
    }
}
