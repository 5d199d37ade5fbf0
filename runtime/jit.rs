//! Compiling what nothing covers. The order is always: look up, lock, look up again, compile, verify, publish.

use crate::cache;
use crate::decision::Origin;
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use crate::lock::BuildLock;
use crate::store::{Artifact, StoreError, publish_file};
use parbake_codegen::artifact::{self, Made};
use parbake_codegen::baking::costs::Costs;
use parbake_codegen::registry::Entry;
use parbake_codegen::render::RenderError;
use parbake_codegen::toolchain::{
    CompileManifest, Diagnosing, Diagnosis, Host, HostSettings, Search, Toolchain, TritonSettings, find_nvrtc,
    find_triton,
};
use parbake_model::identity::{Profile, Spec};
use parbake_model::report::{Class, Report};
use parbake_model::source::HOST;
use parbake_model::trust;
use parbake_model::{Digest, Language, Target, Toolkit};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

type Shared = Arc<dyn Toolchain>;

/// The texts of the host target's shim, by include name.
type Shim = BTreeMap<String, String>;

/// What an artifact is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// The identity of what is compiled.
    pub source_key: Digest,
    /// The identity of the artifact.
    pub build_key: Digest,
}

/// What decides a search: the language, the target, the driver, the toolkit that is asked for.
type Wanted = (Language, Target, Option<Toolkit>, Option<Toolkit>);

/// The compilers of this process. A search that failed is made again: a compiler may be installed meanwhile.
#[derive(Default)]
pub(crate) struct Jit {
    found: Mutex<HashMap<Wanted, Shared>>,
}

impl Jit {
    /// The toolchain for a language and a target, found once.
    fn toolchain(&self, library: &Library, wanted: Wanted) -> Result<Shared, Report> {
        let mut found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(toolchain) = found.get(&wanted) {
            return Ok(toolchain.clone());
        }
        let toolchain = search(library, wanted)?;
        found.insert(wanted, toolchain.clone());
        Ok(toolchain)
    }
}

impl Jit {
    /// The toolchain that compiles a language on demand for a goal, told to tell what the settings ask for. Bakes do not take it:
    /// what a bundle holds does not depend on a diagnosis.
    pub(crate) fn on_demand(&self, library: &Library, language: Language, goal: Goal) -> Result<Shared, Report> {
        let toolchain = self.toolchain(library, (language, goal.target(), goal.driver(), None))?;
        let diagnosis = Diagnosis { verbose: library.config.verbose_compiler, keep: library.config.keep };
        Ok(Diagnosing::of(toolchain, diagnosis))
    }
}

fn search(library: &Library, (language, target, driver, want): Wanted) -> Result<Shared, Report> {
    let config = &library.config;
    let search = |explicit: &Option<PathBuf>| Search {
        explicit: explicit.clone(),
        toolchains: config.toolchains.clone(),
        want,
        driver,
        target,
    };
    if language == Language::Triton {
        let settings = TritonSettings { scratch: scratch(library), limit: config.compile_timeout };
        return Ok(find_triton(&search(&config.triton_python), &settings).map_err(|e| e.report())?);
    }
    if target == Target::Host {
        return host(library, library.host_shim()?);
    }
    let search = search(&config.nvrtc);
    let nvrtc = find_nvrtc(&search).map_err(|e| e.report())?;
    nvrtc.supports(target).map_err(|why| Report::new("PB-1505", Class::Environment, why))?;
    Ok(nvrtc)
}

fn host(library: &Library, shim: Shim) -> Result<Shared, Report> {
    let workspace = &library.workspace;
    // The shim's runtime object is part of a toolchain: all workspaces share it, if it can be written there.
    let shared = library.config.toolchains.join("host");
    let trusted = [&library.config.toolchains, &shared].into_iter().all(|f| trust::check(f, false).is_ok());
    let own = workspace.trusted(&workspace.host()).is_ok().then(|| workspace.host());
    let kept = trusted.then_some(shared).into_iter().chain(own).collect();
    let settings = HostSettings { kept, scratch: scratch(library), limit: library.config.compile_timeout };
    let host = Host::open(shim, settings).map_err(|e| e.report())?;
    Ok(host)
}

/// Where compiler processes work. A folder that the settings name may be anybody's, because what is made in it is
/// private.
fn scratch(library: &Library) -> Vec<PathBuf> {
    let workspace = &library.workspace;
    let scratch = workspace.temporary();
    let named = library.config.temporary.is_some() || workspace.trusted(&scratch).is_ok();
    named.then_some(scratch).into_iter().chain([std::env::temp_dir()]).collect()
}

impl Library {
    /// The toolchain of CUDA C++ for a target: the one of a toolkit, if one is named.
    ///
    /// # Errors
    /// A report that says where it was searched, and what to install.
    pub fn toolchain(&self, target: Target, want: Option<Toolkit>) -> Result<Arc<dyn Toolchain>, Report> {
        self.toolchain_of(Language::Cuda, target, want)
    }

    /// The toolchain of a language for a target: the one of a toolkit, if one is named.
    ///
    /// # Errors
    /// As [`Library::toolchain`].
    pub fn toolchain_of(
        &self,
        language: Language,
        target: Target,
        want: Option<Toolkit>,
    ) -> Result<Arc<dyn Toolchain>, Report> {
        self.jit.toolchain(self, (language, target, None, want))
    }

    /// The texts of the host target's shim, by include name.
    ///
    /// # Errors
    /// Sources that are not there or cannot be read.
    pub fn host_shim(&self) -> Result<BTreeMap<String, String>, Report> {
        let none = || Error::NoSources { uri: "for the host target".into() }.report();
        let tree = self.tree.as_ref().ok_or_else(none)?;
        let mut shim = Shim::new();
        for name in ["pb_host.h", "pb_host.cpp"] {
            let path = format!("{HOST}{name}");
            let text = tree.read(&path).map_err(|e| Error::Source(e).report())?;
            shim.insert(path, text.text().to_owned());
        }
        Ok(shim)
    }

    /// The toolchain for the host target with the texts of a shim that come from elsewhere.
    ///
    /// # Errors
    /// If there is no compiler, or it does not say what it is.
    pub fn host_toolchain(&self, shim: BTreeMap<String, String>) -> Result<Arc<dyn Toolchain>, Report> {
        host(self, shim)
    }

    /// The keys of what a toolchain would make of a spec for a target. Nothing is rendered for them.
    ///
    /// # Errors
    /// Sources that cannot be read.
    pub fn build_key(
        &self,
        op: OpId,
        spec: &Spec,
        target: Target,
        toolchain: &dyn Toolchain,
        profile: Profile,
    ) -> Result<Keys, Error> {
        let def = self.definition(op);
        let source_key = spec.source_key(def, self.sources_digest(op)?).digest;
        let build_key = artifact::build_key(toolchain, def, source_key, target, profile).digest;
        Ok(Keys { source_key, build_key })
    }

    /// The artifact of a spec for a target by a toolchain: from the store if it holds this very build, else compiled,
    /// verified and published. May be called from many threads and processes at once.
    ///
    /// # Errors
    /// What the compiler said, or sources that cannot be read. A store that cannot be written is no error.
    pub fn obtain(
        &self,
        op: OpId,
        spec: &Spec,
        target: Target,
        toolchain: &dyn Toolchain,
        profile: Profile,
    ) -> Result<(Artifact, Origin), Error> {
        let Keys { source_key, build_key: key } = self.build_key(op, spec, target, toolchain, profile)?;
        let look_up = || self.stored(source_key, target, key);
        if let Some(artifact) = look_up() {
            return Ok((artifact, Origin::Store));
        }
        let _lock = self.config.cache.then(|| {
            BuildLock::take(&self.workspace, key, &format!("{} for {target}", spec.uri), self.config.lock_timeout)
        });
        if let Some(artifact) = look_up() {
            return Ok((artifact, Origin::Store));
        }
        // Another host may be at it. Always taken after the own lock, so nobody waits for each other.
        let what = format!("{} for {target}", spec.uri);
        let _shared = self.shared.as_ref().and_then(|shared| shared.lock(key, &what, self.config.lock_timeout));
        if _shared.is_some()
            && let Some(artifact) = self.in_shared(source_key, target, key)
        {
            return Ok((artifact, Origin::Store));
        }
        let manifest = self.plan(op, spec, target, toolchain, profile)?;
        self.write_generated(spec, source_key, &manifest);
        let refuse = |report: Report| Error::Compile {
            uri: spec.uri.clone(),
            target: target.to_string(),
            report: Box::new(report),
        };
        let Made { bytes, metadata } =
            artifact::compile(spec, &manifest, toolchain, source_key, key).map_err(refuse)?;
        if !metadata.log.is_empty() {
            tracing::info!(uri = spec.uri, %target, "the compiler said:\n{}", metadata.log);
        }
        if self.config.cache {
            let build = serde_json::to_string_pretty(&manifest).expect("bug: a manifest is plain data") + "\n";
            let published = self.store.publish(&metadata, &bytes, &build);
            if let Some(shared) = &self.shared {
                shared.publish(&metadata, &bytes, &build);
            }
            match published {
                Ok(artifact) => return Ok((artifact, Origin::Jit)),
                Err(error) => say_once(&error),
            }
        }
        Ok((Artifact { bytes, metadata, path: None }, Origin::Jit))
    }

    /// The artifact that [`Library::obtain`] would find in the store; `None` if it would compile.
    ///
    /// # Errors
    /// Sources that cannot be read.
    pub fn held(
        &self,
        op: OpId,
        spec: &Spec,
        target: Target,
        toolchain: &dyn Toolchain,
        profile: Profile,
    ) -> Result<Option<Artifact>, Error> {
        let Keys { source_key, build_key } = self.build_key(op, spec, target, toolchain, profile)?;
        Ok(self.stored(source_key, target, build_key))
    }

    /// The entry of a build in the shared store, as the own store then has it too.
    fn in_shared(&self, source_key: Digest, target: Target, build_key: Digest) -> Option<Artifact> {
        let shared = self.shared.as_ref()?;
        let artifact = shared.get(source_key, target, build_key)?;
        if let Some(folder) = &artifact.path {
            cache::note_use(folder);
        }
        Some(shared.copy(&self.store, artifact))
    }

    /// The entry of a build, if the store may be used: the own one, else the shared one. A damaged one is put aside.
    fn stored(&self, source_key: Digest, target: Target, build_key: Digest) -> Option<Artifact> {
        let found = if self.config.cache { self.store.get(source_key, target, build_key) } else { Ok(None) };
        if let Err(StoreError::Damaged { .. }) = &found {
            self.store.quarantine(source_key, target, build_key);
        }
        let found = found.ok().flatten();
        if let Some(folder) = found.as_ref().and_then(|a| a.path.as_ref()) {
            cache::note_use(folder);
        }
        found.or_else(|| self.in_shared(source_key, target, build_key))
    }

    /// Keeps what compilations took, beside what is known of others. Not being able to is no error.
    pub fn keep_costs(&self, new: Costs) {
        let path = self.workspace.costs();
        let mut costs = Costs::read(&path).unwrap_or_default();
        costs.merge(new);
        if let Err(error) = publish_file(&self.workspace, &path, costs.to_json().as_bytes()) {
            tracing::debug!(path = %path.display(), %error, "what compilations took is not kept");
        }
    }

    /// What a toolchain would be given.
    ///
    /// # Errors
    /// Sources that cannot be read or rendered.
    pub fn plan(
        &self,
        op: OpId,
        spec: &Spec,
        target: Target,
        toolchain: &dyn Toolchain,
        profile: Profile,
    ) -> Result<CompileManifest, Error> {
        let entry = Entry { op: self.definition(op).clone(), sources: self.sources(op)?.clone() };
        let wrong = |e: RenderError| Error::Definitions { code: e.code(), message: e.to_string(), cause: None };
        artifact::plan(&entry, spec, target, toolchain, profile).map_err(wrong)
    }

    /// Leaves the rendered unit and its headers where a person finds them. Not being able to is no error.
    fn write_generated(&self, spec: &Spec, source_key: Digest, manifest: &CompileManifest) {
        let folder = self.workspace.generated().join(format!("{}@{}", spec.uri, source_key.short(12)));
        let files = manifest.unit.closure.headers.iter();
        for (name, text) in files.chain([(&manifest.unit.name, &manifest.unit.text)]) {
            if let Err(error) = self.workspace.write_if_different(&folder.join(name), text) {
                tracing::debug!(folder = %folder.display(), %error, "generated sources were not written");
                return;
            }
        }
    }
}

/// A store that cannot be written is said once; the kernels stay in memory.
fn say_once(error: &dyn std::error::Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    let why = error.source().map(|s| format!(": {s}")).unwrap_or_default();
    SAID.call_once(|| tracing::warn!("{error}{why}; compiled kernels are kept in memory only"));
}
