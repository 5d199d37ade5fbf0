//! `parbake verify`: whether bundles are whole, fit this library, and were made from its sources.

use super::inspect;
use crate::output::{Failure, Output};
use crate::text;
use parbake::Library;
use parbake::cache::source_keys;
use parbake_model::bundle::{Bundle, BundleError, Summary};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, LAUNCH_ABI, VERSION};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Checks every byte and every image of bundles, and says whether this library can use them.
///
/// Ends with status 1 if anything is damaged, with 3 if a file cannot be read; all of it is listed.
///
///   parbake verify norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Violation {
    code: &'static str,
    error: String,
    caused_by: Vec<String>,
}

/// How a bundle stands to this library.
#[derive(Serialize)]
struct Fit {
    library: String,
    launch_abi: u32,
    /// Whether this library may use it at all.
    accepted: bool,
    /// Specs made from the sources that this library has now; none if those cannot be read.
    current: Option<usize>,
    /// Specs made from other sources: they are never used.
    stale: Option<usize>,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    /// It could not be read, which says nothing of its bytes.
    unreadable: bool,
    violations: Vec<Violation>,
    summary: Option<Summary>,
    fit: Option<Fit>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    config.bundles.clear();
    // Without readable sources the bytes can still be checked.
    let keys = Library::open(config).ok().as_ref().and_then(source_keys);
    let checked: Vec<Checked> = args.files.iter().map(|file| check(file, keys.as_ref())).collect();
    out.show(&serde_json::json!({ "bundles": checked }), || checked.iter().map(describe).collect());
    if checked.iter().all(|c| c.ok) {
        return Ok(());
    }
    let unread: Vec<&str> = checked.iter().filter(|c| c.unreadable).map(|c| c.file.as_str()).collect();
    let unread = (!unread.is_empty()).then(|| {
        let report = Report::new("PB-3113", Class::Environment, "files that cannot be read are not verified");
        unread.iter().fold(report, |report, file| report.with("cannot read", *file))
    });
    Err(Failure::shown(unread.into_iter().collect()))
}

fn check(path: &Path, keys: Option<&HashSet<Digest>>) -> Checked {
    let file = path.display().to_string();
    let bundle = match inspect::open(path) {
        Ok(bundle) => bundle,
        Err(report) => {
            let unreadable = report.class == Class::Environment;
            return Checked { file, ok: false, unreadable, violations: vec![report.into()], summary: None, fit: None };
        }
    };
    match bundle.verify() {
        Ok(summary) => {
            let fit = fit(&bundle, keys);
            Checked { file, ok: true, unreadable: false, violations: Vec::new(), summary: Some(summary), fit }
        }
        Err(errors) => {
            let unreadable = errors.iter().any(|e| matches!(e, BundleError::Io { .. }));
            let violation = |e: &BundleError| Violation { code: e.code(), error: e.to_string(), caused_by: causes(e) };
            let violations = errors.iter().map(violation).collect();
            Checked { file, ok: false, unreadable, violations, summary: None, fit: None }
        }
    }
}

impl From<Report> for Violation {
    fn from(report: Report) -> Self {
        Self { code: report.code, error: report.what, caused_by: report.causes }
    }
}

fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |e| e.source()).map(ToString::to_string).collect()
}

fn fit(bundle: &Bundle, keys: Option<&HashSet<Digest>>) -> Option<Fit> {
    let details = bundle.details().ok()?;
    let current = keys.map(|keys| details.specs.iter().filter(|s| keys.contains(&s.source_key)).count());
    Some(Fit {
        library: details.library.clone(),
        launch_abi: details.launch_abi,
        accepted: Library::accepts(details),
        current,
        stale: current.map(|n| details.specs.len() - n),
    })
}

fn describe(checked: &Checked) -> String {
    let mut text = String::new();
    match &checked.summary {
        Some(s) => {
            let size = text::bytes(s.bytes);
            let targets = text::list(&s.targets);
            let (images, specs) = (text::count(s.images, "image"), text::count(s.specs, "spec"));
            text += &format!("ok       {}: {images} of {specs} for {targets}, {size}\n", checked.file);
        }
        None if checked.unreadable => text += &format!("UNREAD   {}: cannot read it\n", checked.file),
        None => {
            let violations = text::count(checked.violations.len(), "violation");
            text += &format!("FAILED   {}: {violations}\n", checked.file);
        }
    }
    for violation in &checked.violations {
        text += &format!("         {}: {}\n", violation.code, violation.error);
        for cause in &violation.caused_by {
            text += &format!("           caused by: {cause}\n");
        }
    }
    if let Some(fit) = &checked.fit {
        text += &format!("         {}\n", fit_text(fit));
    }
    text
}

fn fit_text(fit: &Fit) -> String {
    if !fit.accepted {
        return format!(
            "does not fit: it was made by version {} with launch ABI {}, this library is {VERSION} with {LAUNCH_ABI}",
            fit.library, fit.launch_abi
        );
    }
    match (fit.current, fit.stale) {
        (Some(_), Some(0)) => "fits this library, and every spec is of the present sources".to_owned(),
        (Some(0), Some(_)) => "fits this library, but no spec is of the present sources: build it again".to_owned(),
        (Some(current), Some(stale)) => {
            format!("fits this library; {current} specs are of the present sources, {stale} are stale and not used")
        }
        _ => "fits this library; the present sources cannot be read, so nothing is said of them".to_owned(),
    }
}
