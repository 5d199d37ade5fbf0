//! Driver, devices and settings.

use super::{Finding, Section, Severity};
use crate::text;
use parbake::driver::{self, Driver};
use parbake_model::settings::{Config, SETTINGS};
use std::collections::BTreeSet;

pub(super) fn driver() -> Vec<Finding> {
    match driver::driver() {
        Driver::Absent { searched } => {
            // The others are names of another system.
            let names: BTreeSet<&String> = searched.iter().filter(|n| !n.starts_with("libcuda64")).collect();
            let what = format!("none; tried {}", text::list(names));
            let fix = "install the NVIDIA driver to run on a GPU; `--target host` runs without one";
            vec![Finding::not_ok(Section::Driver, Severity::Note, what, fix)]
        }
        Driver::Unusable { why } => {
            let fix = "see what `nvidia-smi` says; `--target host` runs without a driver";
            vec![Finding::not_ok(Section::Driver, Severity::Problem, why.clone(), fix)]
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
            if ready.devices.is_empty() {
                let fix = "see CUDA_VISIBLE_DEVICES, and whether the container was given a GPU";
                found.push(Finding::not_ok(Section::Device, Severity::Warning, "the driver shows no GPU", fix));
            }
            found
        }
    }
}

/// What is set, and what is set and means nothing.
pub(super) fn settings(config: &Config) -> Vec<Finding> {
    let set = SETTINGS.iter().filter_map(|s| config.set.get(s.name).map(|value| format!("{}={value}", s.name)));
    let mut found: Vec<Finding> = set.map(|what| Finding::ok(Section::Setting, what)).collect();
    let fix = "unset it, or correct its name; `parbake config` lists the settings";
    let unknown = config.warnings.iter();
    found.extend(unknown.map(|what| Finding::not_ok(Section::Setting, Severity::Warning, what, fix)));
    if !config.cache {
        let what = "the store is switched off: every kernel that no bundle covers is compiled in each process";
        found.push(Finding::not_ok(Section::Setting, Severity::Warning, what, "unset PARBAKE_CACHE"));
    }
    found
}
