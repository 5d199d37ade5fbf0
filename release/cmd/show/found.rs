//! What workspace and bundles hold, by URI and state of the sources.

use crate::cmd::inspect;
use parbake::store::{Artifact, Store, StoreError};
use parbake::workspace::Workspace;
use parbake::{Library, OpId};
use parbake_codegen::registry::Entry;
use parbake_codegen::toolchain::CompileManifest;
use parbake_codegen::{layout, render};
use parbake_model::bundle::{Bundle, BundleError};
use parbake_model::cubin::{self, CubinFacts, Resources};
use parbake_model::identity::Profile;
use parbake_model::metadata::Metadata;
use parbake_model::{Digest, Language, Target, fatbin};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) use parbake_model::identity::Spec;

/// The text that is, or would be, compiled.
#[derive(Serialize)]
pub(super) struct Unit {
    /// The name of its file.
    pub(super) name: String,
    pub(super) text: String,
    /// Where it was found.
    pub(super) from: &'static str,
}

/// An entry of the store, or an image of a bundle.
#[derive(Serialize)]
pub(super) struct Image {
    /// The entry's folder, or the bundle.
    pub(super) place: PathBuf,
    pub(super) from_bundle: bool,
    pub(super) target: Target,
    pub(super) build_key: Digest,
    pub(super) spec: Spec,
    pub(super) toolchain: String,
    pub(super) library: String,
    /// Bundles hold release builds only, and do not say so.
    pub(super) profile: Profile,
    /// As the toolchain spelled them, or in a bundle as the op states them.
    pub(super) options: Vec<String>,
    /// What a person would type to repeat it.
    pub(super) command: Vec<String>,
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) sha256: Option<Digest>,
    pub(super) compile_ms: Option<u64>,
    pub(super) log: String,
    pub(super) resources: Option<Resources>,
    /// What is wrong with it.
    pub(super) damaged: Option<String>,
    /// Parts that are not there, and why.
    pub(super) missing: Vec<String>,
    #[serde(skip)]
    pub(super) facts: Option<CubinFacts>,
}

/// What was compiled at one state of the sources.
#[derive(Default, Serialize)]
pub(super) struct State {
    /// Whether these are the sources that the library has now, if that is known.
    pub(super) current: Option<bool>,
    /// The folder of the rendered unit and its headers.
    pub(super) folder: Option<PathBuf>,
    pub(super) unit: Option<Unit>,
    pub(super) images: Vec<Image>,
}

impl State {
    pub(super) fn spec(&self) -> Option<&Spec> {
        self.images.first().map(|i| &i.spec)
    }

    /// Renders the unit if nobody has kept it. Nothing is written.
    pub(super) fn render(&mut self, library: &Library, op: OpId, spec: &Spec) {
        if self.unit.is_none()
            && let Ok(sources) = library.sources(op)
            && let entry = (Entry { op: library.definition(op).clone(), sources: sources.clone() })
            && let Ok(text) = render::unit(&entry, spec, &layout::committed())
        {
            let name = format!("{}.{}", spec.uri, entry.op.language.extension());
            self.unit = Some(Unit { name, text, from: "rendered now" });
        }
    }
}

/// Twelve digits of the source key → what was made from it.
pub(super) type States = BTreeMap<String, State>;

/// Everything, by URI.
#[derive(Default)]
pub(super) struct Found {
    pub(super) all: BTreeMap<String, States>,
    pub(super) specs: BTreeMap<String, Spec>,
    /// What could not be looked at, and why.
    pub(super) unread: Vec<String>,
}

impl Found {
    fn state(&mut self, uri: &str, key: &str) -> &mut State {
        self.all.entry(uri.to_owned()).or_default().entry(key.to_owned()).or_default()
    }

    fn add(&mut self, source_key: Digest, image: Image) -> &mut State {
        let uri = image.spec.uri.clone();
        self.specs.entry(uri.clone()).or_insert_with(|| image.spec.clone());
        let state = self.state(&uri, &source_key.short(12));
        state.images.push(image);
        state
    }

    /// The folders of rendered sources: `<uri>@<source key>`.
    pub(super) fn read_generated(&mut self, workspace: &Workspace) {
        for entry in std::fs::read_dir(workspace.generated()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((uri, key)) = name.split_once('@') else { continue };
            // What a killed process left has a name with an `@` too.
            let names = [Language::Cuda, Language::Triton].map(|language| format!("{uri}.{}", language.extension()));
            let read = |name: String| Some((std::fs::read_to_string(entry.path().join(&name)).ok()?, name));
            if let Some((text, name)) = names.into_iter().find_map(read) {
                let state = self.state(uri, key);
                state.unit = Some(Unit { name, text, from: "in the workspace" });
                state.folder = Some(entry.path());
            }
        }
    }

    /// The store, entry by entry; damaged ones too, as long as their metadata can be read.
    pub(super) fn read_store(&mut self, workspace: &Workspace) {
        let store = Store::new(workspace.clone());
        let names = std::fs::read_dir(workspace.store()).into_iter().flatten().flatten();
        let keys: BTreeSet<Digest> = names.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        for key in keys {
            match store.targets(key) {
                Ok(targets) => {
                    for found in targets.into_iter().flat_map(|target| store.all(key, target)) {
                        self.read_entry(key, found);
                    }
                }
                Err(error) => self.unread.push(error.to_string()),
            }
        }
    }

    fn read_entry(&mut self, source_key: Digest, found: Result<Artifact, StoreError>) {
        let (folder, metadata, bytes, damaged) = match found {
            Ok(Artifact { path: Some(folder), metadata, bytes }) => (folder, metadata, Some(bytes), None),
            Ok(_) => return,
            Err(StoreError::Damaged { path, why } | StoreError::OtherVersion { path, why }) => {
                let text = std::fs::read(path.join("meta.json"));
                match text.ok().and_then(|text| Metadata::from_json(&text).ok()) {
                    Some(metadata) => (path, metadata, None, Some(why)),
                    None => {
                        self.unread.push(format!("{}: {why}", path.display()));
                        return;
                    }
                }
            }
            Err(error) => {
                self.unread.push(error.to_string());
                return;
            }
        };
        let mut missing = Vec::new();
        let manifest = std::fs::read(folder.join("build.json")).map_err(|e| e.to_string());
        let manifest: Result<CompileManifest, String> =
            manifest.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
        if let Err(why) = &manifest {
            missing.push(format!("command and source: build.json cannot be read: {why}"));
        }
        let facts = bytes.filter(|_| metadata.target != Target::Host).map(|bytes| cubin::read(&bytes)).transpose();
        let damaged = damaged.or(facts.as_ref().err().map(ToString::to_string));
        if metadata.target == Target::Host {
            missing.push("image facts: a shared object of the host has none".to_owned());
        }
        let (command, unit) = manifest.map(|m| (m.command, Some((m.unit.name, m.unit.text)))).unwrap_or_default();
        let state = self.add(
            source_key,
            Image {
                place: folder,
                from_bundle: false,
                target: metadata.target,
                build_key: metadata.build_key,
                spec: metadata.spec,
                toolchain: metadata.toolchain,
                library: metadata.library,
                profile: metadata.profile,
                options: metadata.options,
                command,
                file: metadata.file,
                size: metadata.size,
                sha256: Some(metadata.image),
                compile_ms: Some(metadata.compile_ms),
                log: metadata.log,
                resources: metadata.resources,
                damaged,
                missing,
                facts: facts.ok().flatten(),
            },
        );
        state.unit = state.unit.take().or(unit.map(|(name, text)| Unit { name, text, from: "as it was compiled" }));
    }

    /// The images of a bundle, of the specs that are wanted. A bundle that cannot be used is said, and no reason to show
    /// nothing.
    pub(super) fn read_bundle(&mut self, path: &Path, wanted: &dyn Fn(&Spec) -> bool) {
        let images = match inspect::open(path) {
            Ok(bundle) => images(&bundle, path, wanted).map_err(|e| e.to_string()),
            Err(report) => Err(report.causes.first().unwrap_or(&report.what).clone()),
        };
        match images {
            Ok(images) => images.into_iter().for_each(|(key, image)| {
                self.add(key, image);
            }),
            Err(why) => self.unread.push(format!("bundle {}: {why}", path.display())),
        }
    }
}

fn images(bundle: &Bundle, path: &Path, wanted: &dyn Fn(&Spec) -> bool) -> Result<Vec<(Digest, Image)>, BundleError> {
    let details = bundle.details()?;
    let mut found = Vec::new();
    // Only what may be shown is inflated.
    for spec in details.specs.iter().filter(|s| wanted(&s.spec())) {
        for held in &spec.images {
            let entry = bundle.find(spec.source_key, held.target);
            let host = held.target == Target::Host;
            let mut missing = vec!["command, log and source: a bundle does not hold them".to_owned()];
            if host {
                missing.push("image facts: a shared object of the host has none".to_owned());
            }
            let read = entry.map(|entry| bundle.image(entry).map_err(|e| e.to_string()).and_then(|b| facts(&b, host)));
            let (facts, damaged) = match read {
                Some(Ok(facts)) => (facts, None),
                Some(Err(why)) => (None, Some(why)),
                None => (None, Some("the index has no entry for it".to_owned())),
            };
            let image = Image {
                place: path.to_owned(),
                from_bundle: true,
                target: held.target,
                build_key: held.build_key,
                spec: spec.spec(),
                toolchain: held.toolchain.clone(),
                library: details.library.clone(),
                profile: Profile::Release,
                options: spec.options.iter().map(|(name, value)| format!("{name}={value}")).collect(),
                command: Vec::new(),
                file: if host { "shared object" } else { "fatbin" }.to_owned(),
                size: held.size,
                sha256: entry.map(|e| e.image),
                compile_ms: None,
                log: String::new(),
                resources: held.resources,
                damaged,
                missing,
                facts,
            };
            found.push((spec.source_key, image));
        }
    }
    Ok(found)
}

/// The facts of the cubin in a fatbin.
fn facts(image: &[u8], host: bool) -> Result<Option<CubinFacts>, String> {
    if host {
        return Ok(None);
    }
    let held = fatbin::read(image).map_err(|e| e.to_string())?;
    let cubin = held.first().ok_or("the fatbin is empty")?;
    cubin::read(&image[cubin.range.clone()]).map(Some).map_err(|e| e.to_string())
}
