//! `parbake show`: everything that the workspace holds about a spec, together.

use super::inspect::{cubin_rows, resources_text};
use crate::output::{Failure, Output};
use crate::select;
use crate::text::{self, Table};
use parbake::Library;
use parbake::store::{Store, StoreError};
use parbake::workspace::Workspace;
use parbake_codegen::toolchain::CompileManifest;
use parbake_model::cubin::{self, CubinFacts};
use parbake_model::metadata::Metadata;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Target, space};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Shows what the workspace holds about a spec: generated source, compile command, metadata and image facts.
///
///   parbake show rmsnorm-bf16-b256
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A URI, or the beginning of one
    uri: String,
    /// Leaves out the rendered source
    #[arg(long)]
    no_source: bool,
}

/// An entry of the store.
#[derive(Serialize)]
struct Image {
    folder: PathBuf,
    metadata: Metadata,
    /// What a person would type to repeat it.
    command: Vec<String>,
    /// What is wrong with it.
    damaged: Option<String>,
    /// The rendered unit, as it was compiled.
    #[serde(skip)]
    unit: Option<String>,
    #[serde(skip)]
    facts: Option<CubinFacts>,
}

/// What was compiled at one state of the sources.
#[derive(Default, Serialize)]
struct State {
    /// Whether these are the sources that the library has now, if that is known.
    current: Option<bool>,
    /// The folder of the rendered unit and its headers.
    folder: Option<PathBuf>,
    /// The rendered unit.
    unit: Option<String>,
    images: Vec<Image>,
}

/// Twelve digits of the source key → what was made from it.
type States = BTreeMap<String, State>;

const CANDIDATES: usize = 12;

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    config.bundles.clear();
    let workspace = Workspace::new(config.workspace.clone());
    let library = Library::open(config).ok();
    let mut all: BTreeMap<String, States> = BTreeMap::new();
    read_generated(&workspace, &mut all);
    read_store(&workspace, &mut all);
    let uri = choose(&args.uri, &all, library.as_ref(), &workspace)?;
    let mut states = all.remove(&uri).unwrap_or_default();
    let now = library.as_ref().and_then(|library| now(library, &uri));
    for (key, state) in &mut states {
        state.current = now.as_ref().map(|now| now == key);
    }
    out.show(&serde_json::json!({ "uri": uri, "states": states }), || describe(&uri, &states, !args.no_source));
    Ok(())
}

/// The folders of rendered sources: `<uri>@<source key>`.
fn read_generated(workspace: &Workspace, all: &mut BTreeMap<String, States>) {
    for entry in std::fs::read_dir(workspace.generated()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((uri, key)) = name.split_once('@') else { continue };
        let state = all.entry(uri.to_owned()).or_default().entry(key.to_owned()).or_default();
        state.unit = std::fs::read_to_string(entry.path().join(format!("{uri}.cu"))).ok();
        state.folder = Some(entry.path());
    }
}

/// The store, entry by entry; damaged ones too, as long as their metadata can be read.
fn read_store(workspace: &Workspace, all: &mut BTreeMap<String, States>) {
    let store = Store::new(workspace.clone());
    let names = std::fs::read_dir(workspace.store()).into_iter().flatten().flatten();
    let keys: BTreeSet<Digest> = names.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for key in keys {
        for target in store.targets(key) {
            for found in store.all(key, target) {
                let Some(mut image) = image(found) else { continue };
                let states = all.entry(image.metadata.uri.clone()).or_default();
                let state = states.entry(key.short(12)).or_default();
                state.unit = state.unit.take().or(image.unit.take());
                state.images.push(image);
            }
        }
    }
}

fn image(found: Result<parbake::store::Artifact, StoreError>) -> Option<Image> {
    let (folder, metadata, bytes, damaged) = match found {
        Ok(artifact) => (artifact.path?, artifact.metadata, artifact.bytes, None),
        Err(StoreError::Damaged { path, why }) => {
            let metadata = Metadata::from_json(&std::fs::read(path.join("meta.json")).ok()?).ok()?;
            (path, metadata, Vec::new(), Some(why))
        }
        Err(_) => return None,
    };
    let manifest = manifest(&folder);
    let gpu = metadata.target != Target::Host && damaged.is_none();
    let facts = gpu.then(|| cubin::read(&bytes)).transpose();
    let damaged = damaged.or(facts.as_ref().err().map(ToString::to_string));
    let facts = facts.ok().flatten();
    let (command, unit) = manifest.map(|m| (m.command, Some(m.unit.text))).unwrap_or_default();
    Some(Image { folder, metadata, command, damaged, unit, facts })
}

fn manifest(folder: &Path) -> Option<CompileManifest> {
    serde_json::from_slice(&std::fs::read(folder.join("build.json")).ok()?).ok()
}

/// The one URI that is meant.
fn choose(
    given: &str,
    all: &BTreeMap<String, States>,
    library: Option<&Library>,
    workspace: &Workspace,
) -> Result<String, Report> {
    let found: Vec<&String> = all.keys().filter(|uri| uri.starts_with(given)).collect();
    match found.as_slice() {
        [uri] => Ok((*uri).clone()),
        [] => Err(absent(given, library, workspace)),
        _ if all.contains_key(given) => Ok(given.to_owned()),
        many => {
            let what = format!("`{given}` is the beginning of {} URIs", many.len());
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
fn absent(given: &str, library: Option<&Library>, workspace: &Workspace) -> Report {
    let what = format!("the workspace holds nothing about `{given}`");
    let report = Report::new("PB-3120", Class::Failed, what).with("workspace", workspace.root().display());
    let ops = library.into_iter().flat_map(Library::ops);
    let mut specs = ops.flat_map(|(_, op)| space::specs(op).filter(|(_, legal)| legal.is_ok()));
    if let Some((spec, _)) = specs.find(|(spec, _)| spec.uri.starts_with(given)) {
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

/// Twelve digits of the source key that the library computes now.
fn now(library: &Library, uri: &str) -> Option<String> {
    for (id, op) in library.ops() {
        if let Some((spec, _)) = space::specs(op).find(|(spec, _)| spec.uri == uri) {
            return Some(spec.source_key(op, library.sources_digest(id).ok()?).digest.short(12));
        }
    }
    None
}

fn describe(uri: &str, states: &States, with_source: bool) -> String {
    let mut text = format!("{uri}\n");
    if let Some(image) = states.values().flat_map(|s| &s.images).next() {
        text += &format!("{}\n", image.metadata.spec);
    }
    for (key, state) in states {
        let current = match state.current {
            Some(true) => ", the library's own now",
            Some(false) => ", stale: the library has others now",
            None => "",
        };
        text += &format!("\nsources {key}{current}\n");
        if let Some(folder) = &state.folder {
            text += &format!("  {}\n", folder.display());
        }
        if let Some(unit) = state.unit.as_ref().filter(|_| with_source) {
            text += &format!("  ┌─ {uri}.cu\n");
            for line in unit.lines() {
                text += &format!("  │ {line}\n");
            }
            text += "  └─\n";
        }
        for image in &state.images {
            text += &image_text(image);
        }
        if state.images.is_empty() {
            text += "  the store has no image of these\n";
        }
    }
    text
}

fn image_text(image: &Image) -> String {
    let m = &image.metadata;
    let mut table = Table::plain();
    let mut row = |name: &str, value: &str| table.row([name, value]);
    row("made by", &format!("{}, library {}, profile {}, in {} ms", m.toolchain, m.library, m.profile, m.compile_ms));
    row("command", &image.command.join(" "));
    row("image", &format!("{}, {}, SHA-256 {}", m.file, text::bytes(m.size), m.image.short(16)));
    row("folder", &image.folder.display().to_string());
    if let Some(resources) = m.resources.as_ref().filter(|_| image.facts.is_none()) {
        row("uses", &resources_text(resources));
    }
    if !m.log.is_empty() {
        row("log", &m.log);
    }
    if let Some(why) = &image.damaged {
        row("DAMAGED", why);
    }
    if let Some(facts) = &image.facts {
        cubin_rows(facts, &mut table);
    }
    format!("\n  image for {}, build {}\n{}", m.target, m.build_key.short(16), table.text())
}
