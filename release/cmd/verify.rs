//! `parbake verify`: whether bundles are whole, fit this library, and were made from its sources.

use super::inspect;
use crate::output::{Failure, Output};
use crate::seal::{Seal, Trust};
use crate::text;
use parbake::Library;
use parbake_model::bundle::{Bundle, BundleError, SpecDetails, Summary};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, LAUNCH_ABI, VERSION, space};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Checks every byte and every image of bundles, and says whether this library can use them.
///
/// Ends with status 1 if anything is damaged, or if a signature is required and not right; with 3 if a file cannot be
/// read. All of it is listed, and so is each spec whose sources have changed since.
///
///   parbake verify norm.pbk --public-key release.pub
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Requires a signature by this minisign key, `RW…` or a file, instead of what the settings say; may be repeated
    #[arg(long, value_name = "KEY")]
    public_key: Vec<String>,
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
    /// Of those, the ones that the library has too: their URIs, sorted.
    changed: Vec<String>,
    /// Of those, the ones that the library does not have: their URIs, sorted.
    gone: Vec<String>,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    /// It could not be read, which says nothing of its bytes.
    unreadable: bool,
    #[serde(flatten)]
    seal: Option<Seal>,
    violations: Vec<Violation>,
    summary: Option<Summary>,
    fit: Option<Fit>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    config = config.without_bundles();
    let trust = if args.public_key.is_empty() { Trust::of(&config) } else { Trust::named(&args.public_key) }?;
    // Without readable sources the bytes can still be checked.
    let library = Library::open(config).ok();
    let keys = library.as_ref().and_then(keys);
    let checked: Vec<Checked> = args.files.iter().map(|file| check(file, &trust, keys.as_ref())).collect();
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

/// The source key of every spec that this library has.
struct SourceKeys<'a> {
    known: HashMap<Digest, Digest>,
    ops: HashMap<&'a str, (&'a Op, Digest)>,
}

impl SourceKeys<'_> {
    /// That of a spec in a bundle. What specs with snippets there are, bundles say themselves.
    fn of(&self, held: &SpecDetails) -> Option<Digest> {
        let Some(snippet) = &held.snippet else { return self.known.get(&held.spec_id).copied() };
        let (op, sources) = self.ops.get(held.op.as_str())?;
        let specs = space::of_snippet(op, snippet).ok()?;
        let spec = specs.into_iter().find(|spec| spec.spec_id == held.spec_id)?;
        Some(spec.source_key(op, *sources).digest)
    }
}

fn keys(library: &Library) -> Option<SourceKeys<'_>> {
    let (mut known, mut ops) = (HashMap::new(), HashMap::new());
    for (id, op) in library.ops() {
        let sources = library.sources_digest(id).ok()?;
        known.extend(space::specs(op).map(|(spec, _)| (spec.spec_id, spec.source_key(op, sources).digest)));
        ops.insert(op.name.as_str(), (op, sources));
    }
    Some(SourceKeys { known, ops })
}

fn check(path: &Path, trust: &Trust, keys: Option<&SourceKeys<'_>>) -> Checked {
    let file = path.display().to_string();
    let failed =
        Checked { file, ok: false, unreadable: false, seal: None, violations: vec![], summary: None, fit: None };
    let (bundle, seal) = match inspect::open_trusted(path, trust) {
        Ok(opened) => opened,
        Err(report) => {
            let unreadable = report.class == Class::Environment;
            return Checked { unreadable, violations: vec![report.into()], ..failed };
        }
    };
    let seal = Some(seal);
    match bundle.verify() {
        Ok(summary) => Checked { ok: true, seal, summary: Some(summary), fit: fit(&bundle, keys), ..failed },
        Err(errors) => {
            let unreadable = errors.iter().any(|e| matches!(e, BundleError::Io { .. }));
            let violation = |e: &BundleError| Violation { code: e.code(), error: e.to_string(), caused_by: causes(e) };
            Checked { unreadable, seal, violations: errors.iter().map(violation).collect(), ..failed }
        }
    }
}

impl From<Report> for Violation {
    fn from(report: Report) -> Self {
        let details = report.details.into_iter().map(|(label, text)| format!("{label}: {text}"));
        Self { code: report.code, error: report.what, caused_by: details.chain(report.causes).collect() }
    }
}

fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |e| e.source()).map(ToString::to_string).collect()
}

fn fit(bundle: &Bundle, keys: Option<&SourceKeys<'_>>) -> Option<Fit> {
    let details = bundle.details().ok()?;
    let (mut current, mut changed, mut gone) = (0, Vec::new(), Vec::new());
    for spec in keys.iter().flat_map(|_| &details.specs) {
        match keys.and_then(|keys| keys.of(spec)) {
            Some(key) if key == spec.source_key => current += 1,
            Some(_) => changed.push(spec.uri.clone()),
            None => gone.push(spec.uri.clone()),
        }
    }
    changed.sort();
    gone.sort();
    Some(Fit {
        library: details.library.clone(),
        launch_abi: details.launch_abi,
        accepted: Library::accepts(details),
        current: keys.map(|_| current),
        stale: keys.map(|_| changed.len() + gone.len()),
        changed,
        gone,
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
    if let Some(seal) = checked.seal.as_ref().filter(|s| !matches!(s, Seal::None)) {
        text += &format!("         signature: {}\n", seal.text());
    }
    for violation in &checked.violations {
        text += &format!("         {}: {}\n", violation.code, violation.error);
        for cause in &violation.caused_by {
            text += &format!("           caused by: {cause}\n");
        }
    }
    if let Some(fit) = &checked.fit {
        text += &format!("         {}\n", fit_text(fit));
        for (what, uris) in [("source changed", &fit.changed), ("unknown to this library", &fit.gone)] {
            text += &uris.iter().map(|uri| format!("         {what}: {uri}\n")).collect::<String>();
        }
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
