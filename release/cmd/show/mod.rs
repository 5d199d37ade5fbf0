//! `parbake show`: everything that workspace and bundles hold about a spec, together.

mod found;

use super::inspect::{cubin_rows, resources_text};
use crate::output::{Failure, Output};
use crate::select;
use crate::text::{self, Table};
use found::{Found, Image, Spec, State, States};
use parbake::workspace::Workspace;
use parbake::{Library, OpId};
use parbake_model::identity::Profile;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{identity, space};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Shows what workspace and bundles hold about a spec: source, compile command, metadata and image facts.
///
/// What a part lacks is said, with the reason.
///
///   parbake show rmsnorm-bf16-b256
///
///   parbake show rmsnorm dtype=bf16 block=256 --bundle norm.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A URI or the beginning of one, or an op
    #[arg(value_name = "URI|OP")]
    what: String,
    /// Values of an op's axes and tactics, as in `dtype=bf16`
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// A bundle to look in besides those of PARBAKE_BUNDLES; may be repeated
    #[arg(long = "bundle", value_name = "FILE")]
    bundles: Vec<PathBuf>,
    /// Only images of this profile: `release`, `lineinfo` or `debug`; those of bundles are release builds
    #[arg(long, value_parser = select::profile)]
    profile: Option<Profile>,
    /// Leaves out the rendered source
    #[arg(long)]
    no_source: bool,
}

const CANDIDATES: usize = 12;

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let config = select::with_bundles(config, &args.bundles)?;
    let workspace = Workspace::of(&config);
    let bundles: Vec<PathBuf> = config.bundles.iter().cloned().chain(installed(&config)).collect();
    // A bundle that cannot be used is no reason to show nothing; it is said below.
    let library = Library::open(config.without_bundles()).ok();
    let wanted = Wanted::new(&args, library.as_ref())?;
    let mut found = Found::default();
    found.read_generated(&workspace);
    found.read_store(&workspace);
    for path in &bundles {
        found.read_bundle(path, &|spec| wanted.fits(&spec.uri, Some(spec)));
    }
    let uri = choose(&wanted, &found, library.as_ref(), &workspace, &bundles)?;
    let mut states = found.all.remove(&uri).unwrap_or_default();
    if let Some(profile) = args.profile {
        states.values_mut().for_each(|state| state.images.retain(|image| image.profile == profile));
    }
    let now = library.as_ref().and_then(|library| now(library, &uri));
    if let (Some(library), Some((op, spec, key))) = (&library, &now) {
        for (state_key, state) in &mut states {
            state.current = Some(state_key == key);
        }
        // Its sources are at hand, whether or not anybody has compiled them.
        if let Some(state) = states.get_mut(key) {
            state.render(library, *op, spec);
        }
    }
    let unread = &found.unread;
    out.show(&serde_json::json!({ "uri": uri, "states": states, "unread": unread }), || {
        let mut text = describe(&uri, &states, !args.no_source);
        for line in unread {
            text += &format!("\nnot looked at: {line}\n");
        }
        text
    });
    Ok(())
}

/// The files of installed bundles.
fn installed(config: &Config) -> BTreeSet<PathBuf> {
    let entries = config.installed.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "pbk")).collect()
}

/// What was asked for.
struct Wanted {
    given: String,
    /// The op whose values were named, and those values.
    op: Option<(String, Vec<(String, String)>)>,
}

impl Wanted {
    fn new(args: &Args, library: Option<&Library>) -> Result<Self, Failure> {
        let given = args.what.clone();
        let pairs = select::pairs(&args.values)?;
        if pairs.is_empty() && !given.contains('/') {
            return Ok(Self { given, op: None });
        }
        let Some(library) = library else {
            return Err(Report::new("PB-3122", Class::Environment, "without op definitions only a URI can be shown")
                .with("got", args.what.clone())
                .help("`parbake doctor` says what is wrong with them")
                .into());
        };
        let def = library.definition(library.op(&given)?);
        for (name, value) in &pairs {
            let axis = def.axes.iter().any(|a| &a.name == name && a.values.iter().any(|v| &v.value == value));
            let tactic =
                def.tactics.iter().any(|t| &t.name == name && t.values.iter().any(|v| &v.to_string() == value));
            if !axis && !tactic {
                return Err(parbake::Error::UnknownValue {
                    op: def.name.clone(),
                    what: format!("there is no axis or tactic `{name}` with that value"),
                    expected: space_of(def),
                    got: format!("{name}={value}"),
                }
                .into());
            }
        }
        Ok(Self { given, op: Some((def.name.clone(), pairs)) })
    }

    fn fits(&self, uri: &str, spec: Option<&Spec>) -> bool {
        let Some((op, values)) = &self.op else { return uri.starts_with(&self.given) };
        let has = |spec: &Spec, (name, value): &(String, String)| {
            let axis = spec.axes.iter().any(|(n, v)| n == name && v == value);
            axis || spec.tactic.iter().any(|(n, v)| n == name && &v.to_string() == value)
        };
        spec.is_some_and(|spec| &spec.op == op && values.iter().all(|pair| has(spec, pair)))
    }
}

fn space_of(op: &parbake_model::op::Op) -> String {
    let axes = op.axes.iter().map(|a| {
        let values: Vec<&str> = a.values.iter().map(|v| v.value.as_str()).collect();
        format!("{} of {}", a.name, values.join(", "))
    });
    let tactics = op.tactics.iter().map(|t| format!("{} of {}", t.name, text::list(&t.values)));
    axes.chain(tactics).collect::<Vec<_>>().join("; ")
}

/// The one URI that is meant.
fn choose(
    wanted: &Wanted,
    found: &Found,
    library: Option<&Library>,
    workspace: &Workspace,
    bundles: &[PathBuf],
) -> Result<String, Report> {
    let spec = |uri: &str| found.specs.get(uri).cloned().or_else(|| library.and_then(|l| spec_of(l, uri)).map(|s| s.1));
    let fitting: Vec<&String> = found.all.keys().filter(|uri| wanted.fits(uri, spec(uri).as_ref())).collect();
    match fitting.as_slice() {
        [uri] => Ok((*uri).clone()),
        [] => Err(absent(wanted, found, library, workspace, bundles)),
        _ if found.all.contains_key(&wanted.given) => Ok(wanted.given.clone()),
        many => {
            let what = match &wanted.op {
                Some((op, _)) => format!("{} specs of `{op}` fit", many.len()),
                None => format!("`{}` is the beginning of {} URIs", wanted.given, many.len()),
            };
            let mut report = Report::new("PB-3121", Class::Usage, what);
            for uri in many.iter().take(CANDIDATES) {
                report = report.with("candidate", uri);
            }
            if many.len() > CANDIDATES {
                report = report.with("candidate", format!("… {} more", many.len() - CANDIDATES));
            }
            Err(report.help("give more of it"))
        }
    }
}

/// Nothing was compiled: if the spec exists, the command that compiles it.
fn absent(
    wanted: &Wanted,
    found: &Found,
    library: Option<&Library>,
    workspace: &Workspace,
    bundles: &[PathBuf],
) -> Report {
    let what = format!("nothing is known about `{}`", wanted.given);
    let mut report = Report::new("PB-3120", Class::Failed, what).with("workspace", workspace.root().display());
    for bundle in bundles {
        report = report.with("bundle", bundle.display());
    }
    for line in &found.unread {
        report = report.with("not looked at", line);
    }
    let ops = library.into_iter().flat_map(Library::ops);
    let mut specs = ops.flat_map(|(_, op)| space::specs(op).filter(|(_, legal)| legal.is_ok()));
    if let Some((spec, _)) = specs.find(|(spec, _)| wanted.fits(&spec.uri, Some(spec))) {
        let axes: Vec<String> = spec.axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return report.with("spec", &spec).help(format!(
            "parbake run {} {} compiles what its shape asks for",
            spec.op,
            axes.join(" ")
        ));
    }
    match library.and_then(|l| l.ops().next()) {
        Some((_, op)) => report.help(format!(
            "no spec has that URI; `parbake ops` lists the ops, and `parbake run {} {}` compiles one",
            op.name,
            select::example(op)
        )),
        None => report,
    }
}

fn spec_of(library: &Library, uri: &str) -> Option<(OpId, identity::Spec)> {
    // A URI begins with its op's name.
    let mut ops = library.ops().filter(|(_, op)| uri.starts_with(&op.name));
    ops.find_map(|(id, op)| space::specs(op).find(|(spec, _)| spec.uri == uri).map(|(spec, _)| (id, spec)))
}

/// The spec of a URI, and twelve digits of the source key that the library computes now.
fn now(library: &Library, uri: &str) -> Option<(OpId, identity::Spec, String)> {
    let (op, spec) = spec_of(library, uri)?;
    let key = spec.source_key(library.definition(op), library.sources_digest(op).ok()?).digest.short(12);
    Some((op, spec, key))
}

fn describe(uri: &str, states: &States, with_source: bool) -> String {
    let mut text = format!("{uri}\n");
    if let Some(spec) = states.values().find_map(State::spec) {
        text += &format!("{spec}\n");
    }
    for (key, state) in states {
        let current = match state.current {
            Some(true) => ", the library's own now",
            Some(false) => ", stale: the library has others now",
            None => "",
        };
        text += &format!("\nsources {key}{current}\n");
        match &state.folder {
            Some(folder) => text += &format!("  {}\n", folder.display()),
            None => text += "  generated sources: not in this workspace\n",
        }
        match &state.unit {
            Some(unit) if with_source => {
                text += &format!("  ┌─ {} ({})\n", unit.name, unit.from);
                for line in unit.text.lines() {
                    text += &format!("  │ {line}\n");
                }
                text += "  └─\n";
            }
            None => text += "  rendered source: missing; the sources of that state are not kept anywhere\n",
            Some(_) => {}
        }
        for image in &state.images {
            text += &image_text(image);
        }
        if state.images.is_empty() {
            text += "  image: missing; neither the store nor a bundle has one of these sources and that profile\n";
        }
    }
    text
}

fn image_text(image: &Image) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, value: &str| table.row([name, value]);
    let time = image.compile_ms.map_or(String::new(), |ms| format!(", in {ms} ms"));
    row("made by", &format!("{}, library {}, profile {}{time}", image.toolchain, image.library, image.profile));
    if !image.command.is_empty() {
        row("command", &image.command.join(" "));
    } else if !image.options.is_empty() {
        row("options", &image.options.join(" "));
    }
    let hash = image.sha256.map_or(String::new(), |digest| format!(", SHA-256 {}", digest.short(16)));
    row("image", &format!("{}, {}{hash}", image.file, text::bytes(image.size)));
    row("place", &image.place.display().to_string());
    if let Some(resources) = image.resources.as_ref().filter(|_| image.facts.is_none()) {
        row("uses", &resources_text(resources));
    }
    if !image.log.is_empty() {
        row("log", &image.log);
    }
    if let Some(why) = &image.damaged {
        row("DAMAGED", why);
    }
    for what in &image.missing {
        row("missing", what);
    }
    if let Some(facts) = &image.facts {
        cubin_rows(facts, &mut table);
    }
    let from = if image.from_bundle { "in a bundle" } else { "in the store" };
    format!("\n  image for {} {from}, build {}\n{}", image.target, image.build_key.short(16), table.text())
}
