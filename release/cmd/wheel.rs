//! `parbake wheel`: data wheels, in which bundles are installed with pip.

mod pack;
mod unpack;

pub(super) use unpack::{bundles, library};

use super::inspect;
use crate::output::{Failure, Output};
use crate::seal::Trust;
use crate::text;
use pack::{File, Metadata};
use parbake::{WHEEL_FOLDER, WHEEL_PREFIX, signature};
use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, Toolkit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Packs bundles into wheels: `pip install` puts them where the wheel `parbake` finds them.
///
/// A wheel is named after the toolkits and targets of its images, as in `parbake-bundle-cu129-sm90a`; bundles of the same
/// ones go into one wheel. Its version is that of the library which the bundle was made for, and it requires a `parbake`
/// that fits. A bundle is verified first, its signature goes with it, and the same bundles give the same bytes.
///
///   parbake wheel norm.pbk -o dist
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles
    #[arg(value_name = "BUNDLE", required = true)]
    bundles: Vec<PathBuf>,
    /// The folder that gets the wheels; it is made if it is not there
    #[arg(short, long, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
}

/// A wheel as it will be.
#[derive(Default)]
struct Plan {
    targets: BTreeSet<Target>,
    toolkits: BTreeSet<Toolkit>,
    /// The version that its bundles were made for.
    library: String,
    bundles: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Made {
    wheel: PathBuf,
    name: String,
    version: String,
    /// What pip compares with the machine.
    tag: String,
    targets: BTreeSet<Target>,
    bundles: Vec<PathBuf>,
    signed: usize,
    bytes: u64,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let trust = Trust::of(&config)?;
    let (mut plans, mut bad) = (BTreeMap::<String, Plan>::new(), Vec::new());
    for path in &args.bundles {
        match whole(path, &trust).and_then(|bundle| plan(&mut plans, path, &bundle).map_err(|e| vec![e])) {
            Ok(()) => {}
            Err(reports) => bad.extend(reports),
        }
    }
    if !bad.is_empty() {
        return Err(bad.into());
    }
    std::fs::create_dir_all(&args.output).map_err(|e| super::build::cannot_write(&args.output).caused_by(e))?;
    let made = plans.into_iter().map(|(label, plan)| make(&label, plan, &args.output));
    let made = made.collect::<Result<Vec<_>, Report>>()?;
    out.show(&serde_json::json!({ "wheels": made }), || {
        let line = |m: &Made| {
            let (size, bundles) = (text::bytes(m.bytes), text::count(m.bundles.len(), "bundle"));
            format!("{}: {bundles} for {}, {size}\n", m.wheel.display(), text::list(&m.targets))
        };
        made.iter().map(line).collect()
    });
    Ok(())
}

/// Opens a bundle and checks all of it: what is installed is used unseen.
fn whole(path: &Path, trust: &Trust) -> Result<Bundle, Vec<Report>> {
    let (bundle, _) = inspect::open_trusted(path, trust).map_err(|report| vec![report])?;
    match bundle.verify() {
        Ok(_) => Ok(bundle),
        Err(errors) => {
            let what = format!("{} is not packed: it is damaged", path.display());
            let report = Report::new("PB-3160", Class::Failed, what);
            let report = errors.iter().fold(report, |report, e| report.caused_by(format!("{}: {e}", e.code())));
            Err(vec![report.help(format!("parbake verify {}", path.display()))])
        }
    }
}

/// Adds a bundle to the wheel that it belongs to, which its toolkits and targets decide.
fn plan(plans: &mut BTreeMap<String, Plan>, path: &Path, bundle: &Bundle) -> Result<(), Report> {
    let targets: BTreeSet<Target> = bundle.entries().iter().map(|e| e.target).collect();
    let toolkits: BTreeSet<Toolkit> = bundle.entries().iter().filter_map(|e| e.toolkit).collect();
    if targets.is_empty() {
        let what = format!("{} holds no image, so there is nothing to install", path.display());
        return Err(Report::new("PB-3161", Class::Usage, what).help("`parbake inspect` shows what a bundle holds"));
    }
    // Before anything is written, as everything that can be wrong.
    versions(bundle.library())?;
    if !name(path)?.ends_with(".pbk") {
        let what = format!("{} would be installed and never found", path.display());
        let report = Report::new("PB-3165", Class::Usage, what).with("expected", "a file name that ends in `.pbk`");
        return Err(report.with("got", name(path)?).help("rename it; a signature names no file"));
    }
    let plan = plans.entry(label(&toolkits, &targets)).or_insert_with(|| Plan {
        targets,
        toolkits,
        library: bundle.library().to_owned(),
        bundles: Vec::new(),
    });
    let same = |other: &&PathBuf| other.file_name() == path.file_name();
    let together = |other: &Path, why: &str| {
        let what = format!("{} and {} belong into one wheel, but {why}", other.display(), path.display());
        Report::new("PB-3162", Class::Usage, what)
    };
    if let Some(other) = plan.bundles.iter().find(same) {
        return Err(together(other, "have the same name").help("rename one of them; a signature names no file"));
    }
    if plan.library != bundle.library() {
        let why = format!("are of the versions {} and {}", plan.library, bundle.library());
        return Err(together(&plan.bundles[0], &why).help("make a wheel of each, in folders of their own"));
    }
    plan.bundles.push(path.to_owned());
    Ok(())
}

/// The name of a file in a wheel.
fn name(path: &Path) -> Result<&str, Report> {
    path.file_name().unwrap_or_default().to_str().ok_or_else(|| {
        let what = format!("{} has a name that is not UTF-8", path.display());
        Report::new("PB-3163", Class::Usage, what).help("rename it")
    })
}

/// The end of a wheel's name, and the folder that its bundles lie in: `cu129-sm80-sm90a`, `cu129-host-sm90a`, `host`.
fn label(toolkits: &BTreeSet<Toolkit>, targets: &BTreeSet<Target>) -> String {
    let toolkits = toolkits.iter().map(|t| format!("cu{}{}", t.major, t.minor));
    let targets = targets.iter().map(|t| t.to_string().replace('_', ""));
    toolkits.chain(targets).collect::<Vec<_>>().join("-")
}

fn make(label: &str, plan: Plan, output: &Path) -> Result<Made, Report> {
    let (version, requires) = versions(&plan.library)?;
    let mut files = Vec::new();
    let mut signed = 0;
    for bundle in &plan.bundles {
        let signature = signature::beside(bundle);
        let parts = [Some(bundle), Some(&signature).filter(|s| s.is_file())];
        signed += usize::from(parts[1].is_some());
        for path in parts.into_iter().flatten() {
            let name = name(path)?;
            files.push(File { place: format!("{WHEEL_FOLDER}/{label}/{name}"), path: path.clone() });
        }
    }
    let on = text::list(&plan.targets);
    let by = plan.toolkits.iter().map(|t| format!("CUDA {t}")).collect::<Vec<_>>().join(", ");
    let by = if by.is_empty() { by } else { format!(" ({by})") };
    let metadata = Metadata {
        folder: WHEEL_FOLDER,
        label: label.to_owned(),
        name: format!("{WHEEL_PREFIX}{label}"),
        version,
        summary: format!("Kernels of parbake for {on}{by}"),
        requires: format!("parbake{requires}"),
        // Images for GPUs are data everywhere. Those for the host are code of this kind of machine.
        platform: if plan.targets.contains(&Target::Host) {
            format!("linux_{}", std::env::consts::ARCH)
        } else {
            "any".to_owned()
        },
    };
    let wheel = output.join(metadata.file_name());
    let bytes = pack::write(&wheel, &metadata, files)?;
    let Metadata { name, version, .. } = metadata;
    let tag = pack::tag(&metadata.platform);
    Ok(Made { wheel, name, version, tag, targets: plan.targets, bundles: plan.bundles, signed, bytes })
}

/// A version of the library as Python writes it, and the versions of the library that bundles of it fit.
fn versions(library: &str) -> Result<(String, String), Report> {
    let unknown = || {
        let what = format!("version {library} of the bundle cannot be the version of a wheel");
        Report::new("PB-3164", Class::Usage, what).with("expected", "`1.2.3`, or `1.2.3-rc.1` with alpha, beta or rc")
    };
    let (release, pre) = library.split_once('-').map_or((library, None), |(r, p)| (r, Some(p)));
    let parts: Option<Vec<u64>> = release.split('.').map(|p| p.parse().ok()).collect();
    let parts = parts.filter(|p| p.len() == 3).ok_or_else(unknown)?;
    if let Some(pre) = pre {
        let (word, number) = pre.split_once('.').unwrap_or((pre, "0"));
        let words = [("alpha", "a"), ("beta", "b"), ("rc", "rc")];
        let short = words.iter().find(|(long, _)| *long == word).map(|(_, short)| short);
        let (Some(short), Ok(number)) = (short, number.parse::<u64>()) else { return Err(unknown()) };
        let version = format!("{release}{short}{number}");
        // A pre-release fits itself only.
        return Ok((version.clone(), format!("=={version}")));
    }
    let first = parts.iter().position(|n| *n != 0).unwrap_or(2);
    let text = |parts: &[u64]| parts.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
    let mut next = parts[..=first].to_vec();
    next[first] += 1;
    Ok((release.to_owned(), format!(">={},<{}", text(&parts[..=first]), text(&next))))
}

#[cfg(test)]
mod tests {
    use super::{label, versions};
    use std::collections::BTreeSet;

    #[test]
    fn a_version_requires_its_caret_range() {
        let of = |v: &str| versions(v).map(|(version, requires)| format!("{version} {requires}")).unwrap();
        assert_eq!(of("0.1.7"), "0.1.7 >=0.1,<0.2");
        assert_eq!(of("1.2.3"), "1.2.3 >=1,<2");
        assert_eq!(of("0.0.3"), "0.0.3 >=0.0.3,<0.0.4");
        assert_eq!(of("0.2.0-rc.1"), "0.2.0rc1 ==0.2.0rc1");
        assert_eq!(of("0.2.0-beta"), "0.2.0b0 ==0.2.0b0");
        for bad in ["1.2", "x", "1.2.3-nightly.4", "1.2.3-rc.x"] {
            assert_eq!(versions(bad).unwrap_err().code, "PB-3164", "{bad}");
        }
    }

    #[test]
    fn a_label_names_everything_that_is_inside() {
        let of = |toolkits: &[&str], targets: &[&str]| {
            let toolkits: BTreeSet<_> = toolkits.iter().map(|t| t.parse().unwrap()).collect();
            label(&toolkits, &targets.iter().map(|t| t.parse().unwrap()).collect())
        };
        assert_eq!(of(&["12.9"], &["sm_90a"]), "cu129-sm90a");
        assert_eq!(of(&["13.0", "12.9"], &["sm_110f", "sm_80"]), "cu129-cu130-sm80-sm110f");
        assert_eq!(of(&[], &["host"]), "host");
    }
}
