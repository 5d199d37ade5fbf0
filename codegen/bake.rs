//! Baking: which artifacts a list of targets asks for, making them in parallel, and packing them into a bundle.

use crate::artifact::{self, Made};
use crate::registry::{Entry, Registry};
use crate::spill;
use crate::toolchain::{Nvfatbin, Search, Toolchain, find_nvfatbin, find_nvrtc};
use parbake_model::bundle::{BundleWriter, Details, ImageDetails, Item, LEVEL, Skipped, SpecDetails};
use parbake_model::glob::choose;
use parbake_model::identity::{Profile, Spec};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::source;
use parbake_model::target::known_targets;
use parbake_model::verdict::{self, Image};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION, space};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One artifact to make.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Its op.
    pub op: &'a Op,
    /// Its spec.
    pub spec: Spec,
    /// What it is compiled for.
    pub target: Target,
}

/// What a bake makes, and what it leaves out.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// To be made, in canonical order.
    pub jobs: Vec<Job<'a>>,
    /// Left out, with the reason.
    pub skipped: Vec<Skipped>,
    /// The targets asked for, sorted.
    pub targets: Vec<Target>,
}

impl Plan<'_> {
    /// Keeps what concerns some specs.
    pub fn keep<'s>(&mut self, specs: impl IntoIterator<Item = &'s Spec>) {
        let (mut ids, mut words) = (BTreeSet::new(), BTreeSet::new());
        for spec in specs {
            ids.insert(spec.spec_id);
            words.insert(spec.to_string());
        }
        self.jobs.retain(|job| ids.contains(&job.spec.spec_id));
        self.skipped.retain(|skipped| words.contains(&skipped.spec));
    }
}

/// Axis → the values wanted. An axis that is not named is baked whole; every tactic always is, so that a launcher that
/// may not compile finds whatever a shape asks for.
pub type Only = BTreeMap<String, Vec<String>>;

/// Expands ops that match a pattern for a list of targets.
///
/// # Errors
/// A pattern of which a part matches no op; an axis or value that none of them has; targets none of which any of them supports.
pub fn plan<'a>(
    ops: impl IntoIterator<Item = &'a Op>,
    pattern: &str,
    only: &Only,
    targets: &[Target],
) -> Result<Plan<'a>, Report> {
    let chosen = choose(pattern, ops.into_iter().map(|op| ((), op))).map_err(|unmatched| {
        let report = Report::new("PB-1111", Class::Usage, format!("`{}` matches no op", unmatched.part));
        let report = report.with("known", unmatched.known.join(", "));
        match unmatched.nearest {
            Some(name) => report.help(format!("did you mean `{name}`?")),
            None => report.help("patterns match `op` or `family/op`; `*` and `?` are wildcards"),
        }
    })?;
    let chosen: Vec<&Op> = chosen.into_iter().map(|((), op)| op).collect();
    for (axis, values) in only {
        let known: BTreeSet<&str> = chosen
            .iter()
            .flat_map(|op| op.axes.iter().filter(|a| &a.name == axis))
            .flat_map(|a| a.values.iter().map(|v| v.value.as_str()))
            .collect();
        if let Some(value) = values.iter().find(|v| !known.contains(v.as_str())) {
            return Err(Report::new("PB-1118", Class::Usage, format!("none of the ops has {axis}={value}"))
                .with(
                    "expected",
                    if known.is_empty() { format!("an axis, not `{axis}`") } else { format!("{known:?}") },
                )
                .with("got", value));
        }
    }
    let wanted = |spec: &Spec| {
        only.iter().all(|(axis, values)| spec.axis(axis).is_none_or(|v| values.iter().any(|wanted| wanted == v)))
    };
    if let Some(target) = targets.iter().find(|t| matches!(t, Target::Compute(..))) {
        return Err(Report::new("PB-1119", Class::Usage, "PTX is not packed yet: name sm_ targets")
            .with("expected", format!("sm_{}", target.digits()))
            .with("got", target.to_string()));
    }
    let mut plan = Plan { jobs: Vec::new(), skipped: Vec::new(), targets: targets.to_vec() };
    // Why a target lacks what others have.
    let mut reasons = BTreeSet::new();
    for op in &chosen {
        for combination in space::expand([*op], targets).into_iter().filter(|c| wanted(&c.spec)) {
            match combination.skipped {
                None => plan.jobs.push(Job { op, spec: combination.spec, target: combination.target }),
                Some(reason) => {
                    if space::check(op, &combination.spec, None).is_ok() {
                        reasons.insert(reason.clone());
                    }
                    plan.skipped.push(Skipped {
                        op: op.name.clone(),
                        spec: combination.spec.to_string(),
                        target: combination.target,
                        reason,
                    });
                }
            }
        }
    }
    if plan.jobs.is_empty() {
        let names: Vec<String> = targets.iter().map(Target::to_string).collect();
        if reasons.is_empty() {
            reasons.extend(plan.skipped.iter().map(|s| s.reason.clone()));
        }
        let chosen: Vec<&str> = chosen.iter().map(|op| op.name.as_str()).collect();
        return Err(Report::new(
            "PB-1112",
            Class::Usage,
            "none of the ops supports any of the targets; nothing was built",
        )
        .with("ops", chosen.join(", "))
        .with("targets", names.join(", "))
        .with("reasons", reasons.into_iter().collect::<Vec<_>>().join("; "))
        .help(format!("known architectures: {}", known_targets())));
    }
    Ok(plan)
}

/// Makes all artifacts of a plan on some threads. The first failures stop it; artifacts come back in the plan's order.
///
/// # Errors
/// The reports of what failed, in the plan's order.
pub fn run(
    plan: &Plan<'_>,
    threads: usize,
    make: &(dyn Fn(&Job<'_>) -> Result<Made, Report> + Sync),
    done: &(dyn Fn(usize, &Job<'_>) + Sync),
) -> Result<Vec<Made>, Vec<Report>> {
    let (next, finished, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<Made, Report>>>> = plan.jobs.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, plan.jobs.len().max(1)) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = plan.jobs.get(i) else { return };
                    let result = make(job);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1, job);
                    *results[i].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    let (mut made, mut reports) = (Vec::new(), Vec::new());
    for result in results {
        match result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(Ok(artifact)) => made.push(artifact),
            Some(Err(report)) => reports.push(report),
            None => {}
        }
    }
    if reports.is_empty() { Ok(made) } else { Err(reports) }
}

/// Whether images of these targets and toolkits run on drivers from a floor on.
///
/// # Errors
/// The targets that do not, and why.
pub fn check_driver_floor(images: impl IntoIterator<Item = (Target, Toolkit)>, floor: Toolkit) -> Result<(), Report> {
    let mut report =
        Report::new("PB-1113", Class::Failed, format!("some images do not run on a driver of CUDA {floor}"));
    for (target, toolkit) in images {
        if let Err(why) = verdict::verdict(&Image { target, toolkit }, target.arch(), Some(floor)) {
            report = report.with(target.to_string(), why);
        }
    }
    if report.details.is_empty() {
        Ok(())
    } else {
        Err(report.help("compile with an older toolkit (--toolkit), or raise --min-driver"))
    }
}

/// What a bundle records of how it was packed: the level of compression, and the packers.
#[must_use]
pub fn provenance(level: i32, packers: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut provenance = BTreeMap::from([("level".to_owned(), level.to_string())]);
    if !packers.is_empty() {
        let packers: Vec<&str> = packers.iter().map(String::as_str).collect();
        provenance.insert("packer".to_owned(), packers.join(", "));
    }
    provenance
}

/// Packs artifacts into a bundle. GPU images become fatbins of one image each, by the packer of their own toolkit.
/// `params` gives the digest of an op's parameters ([`parbake_model::source::params_digest`]).
///
/// # Errors
/// A kernel that spills, a packer that is missing or fails, or an image that is not what its metadata says.
pub fn pack(
    plan: &Plan<'_>,
    made: Vec<Made>,
    params: &dyn Fn(&Op) -> Result<Digest, Report>,
    nvfatbin: &dyn Fn(Target, Toolkit) -> Result<Arc<Nvfatbin>, Report>,
    level: i32,
    threads: usize,
) -> Result<Vec<u8>, Report> {
    spill::refuse(made.iter().map(|m| &m.metadata))?;
    let failed = |e: &dyn std::error::Error, code| {
        let report = Report::new(code, Class::Failed, e.to_string());
        e.source().map_or(report.clone(), |s| report.caused_by_chain(s))
    };
    let images: BTreeSet<(Target, Toolkit)> =
        made.iter().filter_map(|m| Some((m.metadata.target, m.metadata.toolkit?))).collect();
    let packed = images.into_iter().filter(|(target, _)| *target != Target::Host);
    let packers = packed
        .map(|(target, toolkit)| Ok(nvfatbin(target, toolkit)?.id().to_owned()))
        .collect::<Result<BTreeSet<_>, Report>>()?;
    let details = Details {
        library: VERSION.to_owned(),
        launch_abi: LAUNCH_ABI,
        toolchains: Vec::new(),
        targets: plan.targets.clone(),
        specs: Vec::new(),
        skipped: plan.skipped.clone(),
        provenance: provenance(level, &packers),
    };
    let mut writer = BundleWriter::new(details, level).jobs(threads);
    for (job, Made { bytes, metadata }) in plan.jobs.iter().zip(made) {
        let bytes = match (metadata.target, metadata.toolkit) {
            (Target::Sm(..) | Target::Compute(..), Some(toolkit)) => {
                nvfatbin(metadata.target, toolkit)?.fatbin(&bytes, metadata.target).map_err(|e| e.report())?
            }
            _ => bytes,
        };
        let image = ImageDetails {
            target: metadata.target,
            toolkit: metadata.toolkit,
            toolchain: metadata.toolchain,
            build_key: metadata.build_key,
            size: 0,
            resources: metadata.resources,
        };
        let spec = SpecDetails::new(&job.spec, metadata.source_key, params(job.op)?, &job.op.options);
        writer.push(Item { spec, image, bytes }).map_err(|e| failed(&e, e.code()))?;
    }
    writer.finish().map_err(|e| failed(&e, e.code()))
}

/// A bake without a store, as a build script does it.
#[derive(Debug)]
pub struct Request {
    registry: Registry,
    targets: Vec<Target>,
    config: Config,
}

impl Request {
    /// What the environment asks for: `PARBAKE_AOT_OPS` for `PARBAKE_AOT_ARCHS`.
    ///
    /// # Errors
    /// A setting that is missing or cannot be used, or ops that cannot be read.
    pub fn from_env(kernels: &Path) -> Result<Self, Report> {
        let config = Config::from_env().map_err(|e| Report::new(e.code(), Class::Usage, e.to_string()))?;
        let targets = config.aot_archs.clone().ok_or_else(|| {
            Report::new("PB-1114", Class::Usage, "the feature `aot` bakes for an explicit list of architectures")
                .with("expected", "PARBAKE_AOT_ARCHS=80,90a")
                .with("got", "PARBAKE_AOT_ARCHS is not set")
        })?;
        let registry = Registry::read(kernels).map_err(|e| Report::new(e.code(), Class::Failed, e.to_string()))?;
        Ok(Self { registry, targets, config })
    }
}

/// Bakes a request into a bundle's bytes.
///
/// # Errors
/// What is missing, or the first thing that failed.
pub fn bake(request: &Request) -> Result<Vec<u8>, Report> {
    let ops = request.registry.entries.iter().map(|e| &e.op);
    let plan = plan(ops, &request.config.aot_ops, &Only::new(), &request.targets)?;
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
    pack(&plan, made, &params, &nvfatbin, LEVEL, request.config.jobs)
}
