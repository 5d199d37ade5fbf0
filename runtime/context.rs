//! The target context: which targets this process is about, from the devices found and the targets requested.

use crate::driver::{self, Device};
use crate::goal::Goal;
use parbake_model::settings::Config;
use parbake_model::verdict::{self, Image};
use parbake_model::{Target, Toolkit};

/// Devices found, and targets requested by `PARBAKE_ARCHS`.
#[derive(Clone, Debug)]
pub struct TargetContext {
    /// The GPUs of this machine.
    pub devices: Vec<Device>,
    /// What the newest toolkit is that their driver supports.
    pub driver: Option<Toolkit>,
    /// Targets requested besides.
    pub requested: Vec<Target>,
}

impl TargetContext {
    /// Looks at this machine and at the settings.
    #[must_use]
    pub fn find(config: &Config) -> Self {
        let ready = driver::ready();
        Self {
            devices: ready.map(|r| r.devices.clone()).unwrap_or_default(),
            driver: ready.map(|r| r.version),
            requested: config.archs.clone().unwrap_or_default(),
        }
    }

    /// What a bake should be for: the requested targets, and an exact target for each device that none of them serves.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = self.requested.clone();
        for device in &self.devices {
            let toolkit = self.driver.unwrap_or(Toolkit { major: 0, minor: 0 });
            let served = |&target: &Target| {
                target != Target::Host
                    && verdict::verdict(&Image { target, toolkit }, Some(device.arch), self.driver).is_ok()
            };
            if !targets.iter().any(served) {
                targets.push(Goal::Device(device.arch, toolkit).target());
            }
        }
        targets.sort();
        targets.dedup();
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parbake_model::target::Arch;

    fn targets(devices: &[u16], requested: &str) -> String {
        let device = |(i, arch): (usize, &u16)| Device {
            ordinal: i as i32,
            name: String::new(),
            arch: Arch(*arch),
            memory: 0,
            cache: 0,
        };
        let context = TargetContext {
            devices: devices.iter().enumerate().map(device).collect(),
            driver: Some(Toolkit { major: 13, minor: 0 }),
            requested: if requested.is_empty() { Vec::new() } else { Target::parse_list(requested).unwrap() },
        };
        context.targets().iter().map(Target::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn devices_are_added_unless_a_requested_target_serves_them() {
        assert_eq!(targets(&[90, 90], ""), "sm_90a");
        assert_eq!(targets(&[86], "80"), "sm_80");
        assert_eq!(targets(&[103], "100f,host"), "host sm_100f");
        assert_eq!(targets(&[103], "100a"), "sm_100a sm_103a");
        assert_eq!(targets(&[90, 120], "80"), "sm_80 sm_90a sm_120a");
        assert_eq!(targets(&[], ""), "");
    }
}
