//! What the driver refuses, and why there is no device: each with a stable code and what to do about it.

use super::kernel_module;
use crate::decision::Origin;
use parbake_model::report::{Class, Report};
use parbake_model::target::Arch;
use parbake_model::verdict::{self, Image};
use parbake_model::{Digest, Target, Toolkit};

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {name} ({code}): {text}")]
pub struct DriverError {
    /// The call.
    pub call: &'static str,
    /// Its result.
    pub code: i32,
    /// The result's name.
    pub name: String,
    /// What the driver says of it.
    pub text: String,
}

const OUT_OF_MEMORY: i32 = 2;
const NOT_INITIALIZED: i32 = 3;
const CAPTURE_UNSUPPORTED: i32 = 900;

impl DriverError {
    /// The driver was initialised before a fork.
    pub(super) fn forked() -> Self {
        Self {
            call: "fork",
            code: NOT_INITIALIZED,
            name: "forked process".to_owned(),
            text: "this process was forked from one that had initialised the driver, which does not survive that"
                .to_owned(),
        }
    }

    /// A call that would end the capture of a stream, and was therefore not made.
    pub(crate) fn during_capture(call: &'static str) -> Self {
        Self {
            call,
            code: CAPTURE_UNSUPPORTED,
            name: "not called".to_owned(),
            text: "a stream is being captured into a graph, which this call would break".to_owned(),
        }
    }

    /// Whether the driver says that an image is not for this device, or no image. After our own verdict that is never
    /// the user's fault.
    pub(crate) fn rejects_image(&self) -> bool {
        // Invalid function, image, no binary for this GPU, PTX and its compiler, a missing file, a missing kernel.
        matches!(self.code, 98 | 200 | 209 | 218 | 221..=223 | 301 | 500)
    }

    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let (code, help) = match self.code {
            NOT_INITIALIZED => ("PB-2118", "start workers by spawning (in Python: multiprocessing's `spawn`)"),
            OUT_OF_MEMORY => {
                ("PB-2121", "free memory of the device: other processes (nvidia-smi) or caches of a framework")
            }
            // Illegal access, timeout, and what a context does not recover from.
            700 | 702 | 710 | 714..=719 => (
                "PB-2122",
                "the context is unusable since a kernel failed, maybe not ours: end the process; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer finds the kernel",
            ),
            900..=908 => (
                "PB-2120",
                "do this before the capture begins; launches and loads are allowed during one, `prepare(…)` loads ahead",
            ),
            _ => ("PB-2102", "`parbake doctor` says what it finds of driver and devices"),
        };
        Report::new(code, Class::Environment, self.to_string()).help(help)
    }
}

/// Why there is no GPU to run on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoDevice {
    /// There is no driver library.
    #[error("there is no CUDA driver library")]
    Library {
        /// What opening each name said.
        searched: Vec<String>,
    },
    /// The driver is too old.
    #[error("the CUDA driver library has no {symbol}")]
    Symbol {
        /// What it lacks.
        symbol: &'static str,
    },
    /// It does not start.
    #[error(transparent)]
    Start(DriverError),
    /// It shows no device.
    #[error("the driver shows no GPU")]
    None,
    /// It shows others.
    #[error("there is no device {ordinal}")]
    Ordinal {
        /// What was asked for.
        ordinal: i32,
        /// What there is.
        found: Vec<i32>,
    },
    /// That one does not answer; others may work.
    #[error("device {ordinal} cannot be used")]
    Device {
        /// Its number.
        ordinal: i32,
        /// What it said.
        #[source]
        source: DriverError,
    },
    /// None of the devices is what a target names.
    #[error("there is no GPU to run {target} code on")]
    Target {
        /// What should have run.
        target: Target,
        /// What there is.
        found: Vec<Target>,
    },
    /// This process was forked from one that had initialised the driver.
    #[error(transparent)]
    Forked(DriverError),
}

impl NoDevice {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let new = |code| Report::new(code, Class::Environment, self.to_string());
        let on_the_cpu = "`--target host` runs on the CPU";
        match self {
            Self::Library { searched } => new("PB-2110")
                .with("tried", searched.join("\n"))
                .help(format!("install the NVIDIA driver, or give the container a GPU; {on_the_cpu}")),
            Self::Symbol { .. } => new("PB-2111")
                .with("expected", "a driver of CUDA 12.0 (525) or newer")
                .help(format!("install a newer NVIDIA driver; {on_the_cpu}")),
            Self::Start(e) => match e.code {
                NOT_INITIALIZED => DriverError { text: DriverError::forked().text, ..e.clone() }.report(),
                34 => new("PB-2112").help(
                    "a toolkit's stub library is found instead of a driver: remove its `stubs` folder from LD_LIBRARY_PATH",
                ),
                803 => new("PB-2113").help(
                    "driver library and kernel module are of different versions: restart after an update, or install one of them anew",
                ),
                804 => new("PB-2114").help(
                    "the CUDA compatibility package does not support this GPU: remove it from LD_LIBRARY_PATH, or install a newer driver",
                ),
                _ => new("PB-2115").help(format!("see what `nvidia-smi` and the kernel's log say; {on_the_cpu}")),
            },
            Self::None => {
                let visible = std::env::var("CUDA_VISIBLE_DEVICES").map_or("not set".to_owned(), |v| format!("`{v}`"));
                new("PB-2101").with("CUDA_VISIBLE_DEVICES", visible).help(format!(
                    "see CUDA_VISIBLE_DEVICES, and whether the container was given a GPU; {on_the_cpu}"
                ))
            }
            Self::Ordinal { ordinal, found } => new("PB-2116")
                .with("expected", format!("one of {found:?}"))
                .with("got", ordinal)
                .help("devices are counted from 0 among those that CUDA_VISIBLE_DEVICES shows; `parbake doctor` lists them"),
            Self::Device { source, .. } => {
                new("PB-2117").caused_by(source).help("see what `nvidia-smi` says of it; hide it with CUDA_VISIBLE_DEVICES")
            }
            Self::Target { found, .. } => {
                let found: Vec<String> = found.iter().map(Target::to_string).collect();
                new("PB-2123").with("devices", found.join(", ")).help(on_the_cpu)
            }
            Self::Forked(e) => e.report(),
        }
    }
}

/// An image that passed every check of ours and was refused by the driver all the same: a bug, ours or the driver's.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the driver refuses an image that every check passed: {uri} for {}", .image.target)]
pub struct Rejected {
    /// The spec.
    pub uri: String,
    /// What the image was judged by.
    pub image: Image,
    /// Where it came from.
    pub origin: Origin,
    /// Its size.
    pub bytes: usize,
    /// Its digest.
    pub digest: Digest,
    /// The device's number, name and architecture.
    pub device: (i32, String, Arch),
    /// The newest toolkit that the driver supports.
    pub driver: Toolkit,
    /// What the driver said.
    #[source]
    pub source: DriverError,
}

impl Rejected {
    /// For a person, with what a report of the bug needs.
    #[must_use]
    pub fn report(&self) -> Report {
        let (ordinal, name, arch) = &self.device;
        let verdict = match verdict::verdict(&self.image, Some(*arch), Some(self.driver)) {
            Ok(how) => how.to_string(),
            Err(why) => why.to_string(),
        };
        let module = kernel_module().map(|m| format!(", kernel module {m}")).unwrap_or_default();
        Report::new("PB-2103", Class::Environment, self.to_string())
            .with(
                "image",
                format!(
                    "{} by CUDA {}, {} bytes, sha256 {}",
                    self.image.target, self.image.toolkit, self.bytes, self.digest
                ),
            )
            .with("from", self.origin)
            .with("verdict", verdict)
            .with("device", format!("{ordinal}: {name}, sm_{arch}"))
            .with("driver", format!("CUDA {}{module}", self.driver))
            .caused_by(&self.source)
            .help("this is a bug worth reporting: send this text and `parbake doctor --json`")
    }
}
