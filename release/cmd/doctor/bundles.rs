//! Bundles: whether each fits, and what it covers.

use super::{Finding, Section, Severity, open};
use crate::cmd::inspect;
use crate::seal::{Seal, Trust};
use crate::text;
use parbake::cache::source_keys;
use parbake::{Error, Library, Unfit};
use parbake_model::bundle::Bundle;
use parbake_model::settings::Config;
use parbake_model::{Digest, Target};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Every bundle, and the targets that the usable ones hold images for.
pub(super) fn look(config: &Config, deep: bool) -> (Vec<Finding>, BTreeSet<Target>) {
    let (mut found, mut held) = (Vec::new(), BTreeSet::new());
    let library = open(config, Vec::new()).ok();
    let keys = library.as_ref().and_then(source_keys);
    for path in &config.bundles {
        let (finding, targets) = judge(config, path, keys.as_ref(), deep);
        found.push(finding);
        held.extend(targets);
    }
    // Installed and embedded ones, as look-ups take them.
    let installed = Library::open(Config { bundles: Vec::new(), ..config.clone() });
    if let Err(Error::Installed(unfit)) = &installed {
        let problem = |u: &Unfit| {
            let what = format!("installed {}: {} (PB-1391)", u.path.display(), u.why);
            Finding::not_ok(Section::Bundle, Severity::Problem, what, &u.fix)
        };
        found.extend(unfit.iter().map(problem));
    }
    if let Ok(library) = installed {
        for (name, targets) in library.bundle_targets() {
            let facts = json!({ "name": name, "targets": targets });
            found.push(Finding::ok(Section::Bundle, format!("{name}, for {}", text::list(&targets))).facts(facts));
            held.extend(targets);
        }
        for (place, why) in library.refused_bundles() {
            let fix = "`parbake verify` says more; see that it can be read and is signed, or remove it";
            found.push(Finding::not_ok(Section::Bundle, Severity::Warning, format!("{place}: {why}"), fix));
        }
    }
    if found.is_empty() {
        let what = "none: PARBAKE_BUNDLES is not set, none is installed, and none is embedded";
        // Not a gap where kernels may be compiled.
        found.push(if config.jit {
            Finding::ok(Section::Bundle, what)
        } else {
            let what = format!("{what}; with PARBAKE_JIT=off only the store is left");
            let fix = "parbake build --arch … -o kernels.pbk, then set PARBAKE_BUNDLES to its path";
            Finding::not_ok(Section::Bundle, Severity::Warning, what, fix)
        });
    }
    (found, held)
}

fn judge(config: &Config, path: &Path, keys: Option<&HashSet<Digest>>, deep: bool) -> (Finding, BTreeSet<Target>) {
    let (section, shown) = (Section::Bundle, path.display());
    let fix = format!("parbake verify {shown}");
    let refused = match open(config, vec![path.to_owned()]) {
        Err(error) => match *error {
            Error::Bundle { .. } | Error::BundleVersion { .. } | Error::Signature { .. } => Some(error.report()),
            _ => None,
        },
        // Other errors are findings of their own.
        _ => None,
    };
    if let Some(report) = refused {
        let why = report.causes.first().unwrap_or(&report.what).clone();
        let bad = Finding::reported(section, Severity::Problem, &report, &fix);
        return (Finding { what: format!("{shown}: {why} ({})", report.code), ..bad }, BTreeSet::new());
    }
    let opened = Trust::of(config).and_then(|trust| inspect::open_trusted(path, &trust));
    let (bundle, seal) = match opened {
        Ok(opened) => opened,
        Err(report) => return (Finding::reported(section, Severity::Problem, &report, &fix), BTreeSet::new()),
    };
    let targets: BTreeSet<Target> = bundle.entries().iter().map(|e| e.target).collect();
    if let Some(Err(errors)) = deep.then(|| bundle.verify()) {
        let what = format!("{shown}: {}", text::count(errors.len(), "violation"));
        let bad = Finding::not_ok(section, Severity::Problem, what, "fetch or build it again");
        let details = errors.iter().map(|e| format!("{}: {e}", e.code())).collect();
        return (Finding { details, ..bad }, targets);
    }
    let (specs, stale) = standing(&bundle, keys);
    let (library, list) = (bundle.library().to_owned(), text::list(&targets));
    let facts = json!({
        "path": path, "library": library, "launch_abi": bundle.launch_abi(), "targets": targets,
        "specs": specs, "stale": stale, "seal": seal,
    });
    let number = text::count(specs, "spec");
    let what = format!("{shown}: of version {library}, fits; {number} for {list}; signature: {}", seal.text());
    let finding = match stale {
        Some(stale) if stale > 0 => {
            let what = format!("{what}; {stale} of them are of other sources and are not used");
            let fix = format!("build it again: parbake build --arch … -o {shown}");
            Finding::not_ok(section, Severity::Warning, what, fix)
        }
        _ if matches!(seal, Seal::Invalid { .. }) => {
            let fix = "get it again from who signs it; PARBAKE_SIGNATURE=required would refuse it";
            Finding::not_ok(section, Severity::Warning, what, fix)
        }
        _ => Finding::ok(section, what),
    };
    (finding.facts(facts), targets)
}

/// How many specs a bundle holds, and how many of them the library's sources no longer make, if that is known.
fn standing(bundle: &Bundle, keys: Option<&HashSet<Digest>>) -> (usize, Option<usize>) {
    let held: BTreeSet<Digest> = bundle.entries().iter().map(|e| e.source_key).collect();
    (held.len(), keys.map(|keys| held.iter().filter(|key| !keys.contains(key)).count()))
}
