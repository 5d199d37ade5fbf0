//! Driver, devices and settings.

use super::{Finding, Section, Severity};
use crate::output::bad_settings;
use crate::text;
use parbake::driver::{self, Driver, NoDevice};
use parbake_model::settings::{BadSetting, Config, SETTINGS};

pub(super) fn driver() -> Vec<Finding> {
    let no_gpu = "install the NVIDIA driver to run on a GPU; `--target host` runs without one";
    match driver::driver() {
        Driver::Absent { searched } => {
            let none = NoDevice::Library { searched: searched.clone() };
            vec![Finding::reported(Section::Driver, Severity::Note, &none.report(), no_gpu)]
        }
        Driver::Unusable { why } => {
            let none = matches!(why, NoDevice::None);
            let severity = if none { Severity::Warning } else { Severity::Problem };
            vec![Finding::reported(Section::Driver, severity, &why.report(), no_gpu)]
        }
        Driver::Ready(ready) => {
            let facts = serde_json::json!({ "cuda": ready.version.to_string(), "devices": ready.devices.len() });
            let mut found = vec![Finding::ok(Section::Driver, format!("supports CUDA {}", ready.version)).facts(facts)];
            found.extend(ready.devices.iter().map(|d| {
                let what = format!("{}: {}, sm_{}, {}", d.ordinal, d.name, d.arch, text::bytes(d.memory));
                let facts = serde_json::json!({
                    "ordinal": d.ordinal, "name": d.name, "arch": d.arch.to_string(), "bytes": d.memory,
                });
                Finding::ok(Section::Device, what).facts(facts)
            }));
            found.extend(ready.broken.iter().map(|(ordinal, source)| {
                let broken = NoDevice::Device { ordinal: *ordinal, source: source.clone() };
                let fix = "see what `nvidia-smi` says of it; CUDA_VISIBLE_DEVICES leaves it out";
                Finding::reported(Section::Device, Severity::Problem, &broken.report(), fix)
            }));
            found
        }
    }
}

/// What is set, and what is set and means nothing.
pub(super) fn settings(config: &Config, bad: &[BadSetting]) -> Vec<Finding> {
    let set = SETTINGS.iter().filter_map(|s| config.set.get(s.name).map(|value| format!("{}={value}", s.name)));
    let mut found: Vec<Finding> = set.map(|what| Finding::ok(Section::Setting, what)).collect();
    let fix = "unset it, or correct its name; `parbake config` lists the settings";
    for report in bad_settings(bad) {
        found.push(Finding::reported(
            Section::Setting,
            Severity::Problem,
            &report,
            "correct or unset it: no other command runs",
        ));
    }
    let unknown = config.warnings.iter();
    found.extend(unknown.map(|what| Finding::not_ok(Section::Setting, Severity::Warning, what, fix)));
    if !config.cache {
        let what = "the store is switched off: every kernel that no bundle covers is compiled in each process";
        found.push(Finding::not_ok(Section::Setting, Severity::Warning, what, "unset PARBAKE_CACHE"));
    }
    found
}
