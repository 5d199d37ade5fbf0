//! A bake as a build script asks for it: by settings, without a store, in one process.

use super::pack::{Packing, pack};
use super::plan::{Job, Only, plan, plan_lock, specs_of_snippets};
use super::threads::run;
use crate::artifact;
use crate::registry::{Entry, Registry};
use crate::toolchain::{Search, Toolchain, TritonSettings, find_nvfatbin, find_nvrtc, find_triton};
use parbake_model::bundle::LEVEL;
use parbake_model::identity::Profile;
use parbake_model::lock::Lock;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Language, Target, source, space};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A bake without a store, as a build script does it.
#[derive(Debug)]
pub struct Request {
    registry: Registry,
    targets: Vec<Target>,
    lock: Option<Lock>,
    config: Config,
}

impl Request {
    /// What the environment asks for: the specs of `PARBAKE_AOT_LOCK`, else `PARBAKE_AOT_OPS`, for `PARBAKE_AOT_ARCHS`.
    ///
    /// # Errors
    /// A setting that is missing or cannot be used, or ops that cannot be read.
    pub fn from_env(kernels: &Path) -> Result<Self, Report> {
        let config = Config::from_env().map_err(|e| Report::new(e.code(), Class::Usage, e.to_string()))?;
        let lock = config.aot_lock.as_deref().map(read_lock).transpose()?;
        let of_lock = lock.as_ref().map(|lock| lock.targets.clone()).filter(|targets| !targets.is_empty());
        let targets = config.aot_archs.clone().or(of_lock).ok_or_else(|| {
            Report::new("PB-1114", Class::Usage, "the feature `aot` bakes for an explicit list of architectures")
                .with("expected", "PARBAKE_AOT_ARCHS=80,90a")
                .with("got", "PARBAKE_AOT_ARCHS is not set")
        })?;
        let registry = Registry::read(kernels).map_err(|e| Report::new(e.code(), Class::Failed, e.to_string()))?;
        Ok(Self { registry, targets, lock, config })
    }
}

fn read_lock(path: &Path) -> Result<Lock, Report> {
    let refuse = |code, why: String| {
        let what = format!("PARBAKE_AOT_LOCK={} cannot be used", path.display());
        Report::new(code, Class::Environment, what).caused_by(why)
    };
    let text = std::fs::read(path).map_err(|e| refuse("PB-3145", e.to_string()))?;
    Lock::from_json(&text).map_err(|e| refuse(e.code(), e.to_string()))
}

/// All specs of a lock must be of the registry.
fn check(lock: &Lock, registry: &Registry) -> Result<(), Report> {
    let all = registry.entries.iter().flat_map(|entry| space::specs(&entry.op)).map(|(spec, _)| spec.spec_id);
    let mut all: BTreeSet<Digest> = all.collect();
    for entry in &registry.entries {
        let own = specs_of_snippets(&entry.op, lock).map_err(|e| e.report())?;
        all.extend(own.iter().map(|spec| spec.spec_id));
    }
    let unknown = lock.specs.iter().filter(|locked| !all.contains(&locked.spec_id));
    let unknown: Vec<String> = unknown.map(ToString::to_string).collect();
    if !unknown.is_empty() {
        let what = format!("the lock names {} specs that these sources do not have", unknown.len());
        return Err(Report::new("PB-2006", Class::Failed, what)
            .with("specs", unknown.join("\n"))
            .help("write the lock again: parbake lock …"));
    }
    Ok(())
}

/// Bakes a request into a bundle's bytes.
///
/// # Errors
/// What is missing, or the first thing that failed.
pub fn bake(request: &Request) -> Result<Vec<u8>, Report> {
    let ops = request.registry.entries.iter().map(|e| &e.op);
    let plan = match &request.lock {
        None => plan(ops, &request.config.aot_ops, &Only::new(), &request.targets)?,
        Some(lock) => {
            check(lock, &request.registry)?;
            plan_lock(ops, lock, &request.targets)?
        }
    };
    let search = |target| Search {
        explicit: request.config.nvrtc.clone(),
        toolchains: request.config.toolchains.clone(),
        want: None,
        driver: None,
        target,
    };
    let make = |job: &Job<'_>| {
        let entry: &Entry = request.registry.op(&job.op.name).expect("bug: the plan is of this registry");
        let toolchain: Arc<dyn Toolchain> = match job.target {
            Target::Host => {
                return Err(Report::new("PB-1115", Class::Usage, "`host` is not embedded: bundles hold it"));
            }
            target if entry.op.language == Language::Triton => {
                let settings = TritonSettings { limit: request.config.compile_timeout, ..TritonSettings::default() };
                let search = Search { explicit: request.config.triton_python.clone(), ..search(target) };
                find_triton(&search, &settings).map_err(|e| e.report())?
            }
            target => find_nvrtc(&search(target)).map_err(|e| e.report())?,
        };
        let source_key = job.spec.source_key(&entry.op, entry.sources.digest).digest;
        let key = artifact::build_key(&*toolchain, &entry.op, source_key, job.target, Profile::Release);
        let manifest = artifact::plan(entry, &job.spec, job.target, &*toolchain, Profile::Release)
            .map_err(|e| Report::new(e.code(), Class::Failed, e.to_string()))?;
        artifact::compile(&job.spec, &manifest, &*toolchain, source_key, key.digest)
    };
    let made = run(&plan, request.config.jobs, &make, &|_, _| {})
        .map_err(|reports| reports.into_iter().next().expect("bug: failed without a report"))?;
    let nvfatbin = |target, toolkit| {
        let search = Search { want: Some(toolkit), explicit: None, ..search(target) };
        find_nvfatbin(&search).map_err(|e| e.report())
    };
    let params = |op: &Op| {
        let digest = source::params_digest(&request.registry.tree, op);
        digest.map_err(|e| Report::new("PB-1104", Class::Environment, e.to_string()))
    };
    let (params, nvfatbin, threads) = (&params, &nvfatbin, request.config.jobs);
    pack(&plan, made, &Packing { params, nvfatbin, level: LEVEL, threads, keep: None })
}
