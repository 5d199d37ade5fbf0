//! What a test needs of a machine. The one place that decides whether a test runs or is skipped.
//!
//! A skip prints `skipped: needs …` with what is there instead, and is counted by `parbake test`. What a machine
//! supports is never skipped: a need is judged against every device, not against the first one only.

use crate::driver::{self, Driver};
use parbake_model::target::Suffix;
use parbake_model::verdict::{self, Image};
use parbake_model::{Target, Toolkit};

/// What a test needs; the default needs nothing.
#[derive(Clone, Debug)]
pub struct Needs {
    /// A device that runs this target: `sm_80` any from 8.0 on, `sm_90a` exactly 9.0, `sm_100f` that family.
    pub target: Target,
    /// How many such devices.
    pub gpus: usize,
    /// Bytes of memory on each.
    pub memory: u64,
}

impl Default for Needs {
    fn default() -> Self {
        Self { target: Target::Host, gpus: 1, memory: 0 }
    }
}

impl Needs {
    /// The ordinals of the devices that fit; what is missing, in words, if they are too few.
    ///
    /// # Errors
    /// `sm_90a with 80 GB, found sm_120 with 32 GB`.
    pub fn devices(&self) -> Result<Vec<i32>, String> {
        if self.target == Target::Host {
            return Ok(Vec::new());
        }
        let devices = match driver::driver() {
            Driver::Ready(ready) => ready.devices.as_slice(),
            _ => &[],
        };
        let fits = |arch| match self.target {
            Target::Sm(least, Suffix::Baseline) => arch >= least,
            target => {
                let toolkit = Toolkit { major: 0, minor: 0 };
                verdict::verdict(&Image { target, toolkit }, Some(arch), None).is_ok()
            }
        };
        let fitting: Vec<i32> =
            devices.iter().filter(|d| fits(d.arch) && d.memory >= self.memory).map(|d| d.ordinal).collect();
        if fitting.len() >= self.gpus {
            return Ok(fitting);
        }
        let gigabytes = |bytes: u64| format!("{} GB", bytes >> 30);
        let found: Vec<String> =
            devices.iter().map(|d| format!("sm_{} with {}", d.arch, gigabytes(d.memory))).collect();
        let memory = if self.memory > 0 { format!(" with {}", gigabytes(self.memory)) } else { String::new() };
        let found = if found.is_empty() { "no GPU".to_owned() } else { found.join(", ") };
        Err(format!("{} GPU of {}{memory}, found {found}", self.gpus, self.target))
    }
}

/// Skips the rest of a test, printing why, unless this machine has what it needs; gives the fitting devices.
///
/// ```
/// fn test() {
///     let devices = parbake::require!(target = "sm_80", gpus = 1, memory = 1 << 30);
///     println!("runs on {devices:?}");
/// }
/// # test();
/// ```
#[macro_export]
macro_rules! require {
    (target = $target:expr $(, $name:ident = $value:expr)*) => {{
        let needs = $crate::capability::Needs {
            target: $target.parse().expect("a target"),
            $($name: $value,)*
            ..Default::default()
        };
        match needs.devices() {
            Ok(devices) => devices,
            Err(what) => {
                println!("skipped: needs {what}");
                return;
            }
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_never_skipped() {
        assert_eq!(Needs::default().devices(), Ok(Vec::new()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let needs = Needs { target: "sm_121a".parse().unwrap(), gpus: 1000, memory: 1 << 40 };
        let what = needs.devices().unwrap_err();
        assert!(what.starts_with("1000 GPU of sm_121a with 1024 GB, found "), "{what}");
    }
}
