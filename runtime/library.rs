//! The library: all ops, the bundles and the store they are found in, and the kernels loaded so far.
//!
//! Look-up order: registry → bundles (explicit, then embedded) → store → JIT, if it is allowed → an error that names
//! everything that was searched. Nothing is written and no device is touched before something needs it.

use crate::binding::{Binding, Choices, MAX_TACTICS, Tactic};
use crate::bundles::OpenBundle;
use crate::check;
use crate::code::{Code, Kernel, Place, Stream};
use crate::decision::{Decision, Origin};
use crate::driver::{self, Driver};
use crate::error::Error;
use crate::store::{Artifact, Store};
use crate::tensor::Tensor;
use crate::workspace::Workspace;
use once_cell::sync::OnceCell;
use parbake_model::bundle::Entry;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::op::{Op, Role};
use parbake_model::settings::{Config, nearest};
use parbake_model::source::{KernelTree, OpSources};
use parbake_model::target::{Arch, Suffix};
use parbake_model::verdict::{self, Image};
use parbake_model::{Digest, Target, Toolkit, space};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// The number of an op in this library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpId(u16);

/// The number of a spec in this library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpecId {
    op: OpId,
    index: SpecIndex,
}

/// What an image is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A device of this architecture, under a driver of this version.
    Device(Arch, Toolkit),
    /// The host target.
    Host,
    /// A target, whatever is in this machine.
    Target(Target),
}

impl Goal {
    fn arch(self) -> Option<Arch> {
        match self {
            Self::Device(arch, _) => Some(arch),
            Self::Host => None,
            Self::Target(target) => target.arch(),
        }
    }
    fn driver(self) -> Option<Toolkit> {
        match self {
            Self::Device(_, driver) => Some(driver),
            _ => None,
        }
    }
    /// What a compiler is asked for: exactly this chip.
    #[must_use]
    pub fn target(self) -> Target {
        match self {
            Self::Device(arch, _) if arch.facts().is_some_and(|f| f.specific) => Target::Sm(arch, Suffix::Specific),
            Self::Device(arch, _) => Target::Sm(arch, Suffix::Baseline),
            Self::Host => Target::Host,
            Self::Target(target) => target,
        }
    }
    fn words(self) -> String {
        match self {
            Self::Device(arch, driver) => format!("sm_{arch} (driver of CUDA {driver})"),
            Self::Host => "host".to_owned(),
            Self::Target(target) => target.to_string(),
        }
    }
}

/// How a spec would be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Support {
    /// From a bundle.
    Bundle,
    /// From the store.
    Store,
    /// By compiling it.
    Jit,
    /// It exists, but nothing covers it and it may not be compiled.
    NotCovered,
    /// It does not exist, because of this.
    Unsupported(String),
}

pub(crate) struct LoadedOp {
    pub(crate) op: Op,
    binding: Option<&'static Binding>,
    committed: Option<Digest>,
    sources: OnceCell<OpSources>,
}

/// What a call used.
#[derive(Clone, Debug)]
pub struct Called {
    /// The kernel; none if there was nothing to do.
    pub kernel: Option<Arc<Kernel>>,
    /// Where it came from for this call.
    pub from: Origin,
}

/// All ops, and the kernels loaded so far.
pub struct Library {
    pub(crate) config: Config,
    pub(crate) tree: Option<KernelTree>,
    pub(crate) workspace: Workspace,
    pub(crate) store: Store,
    ops: Vec<LoadedOp>,
    bundles: Vec<OpenBundle>,
    kernels: RwLock<HashMap<u64, Arc<OnceCell<Arc<Kernel>>>>>,
    uncovered: RwLock<HashSet<u64>>,
    #[cfg(feature = "jit")]
    pub(crate) jit: crate::jit::Jit,
}

enum Candidate<'a> {
    Bundle(&'a OpenBundle, &'a Entry),
    Store(Box<Artifact>),
}

impl Library {
    /// A library with these settings. Bundles are opened; nothing is written, and no device is touched.
    ///
    /// # Errors
    /// Op definitions that are wrong, or a bundle that cannot be used.
    pub fn open(config: Config) -> Result<Self, Error> {
        let tree = match &config.kernels {
            Some(folder) => Some(KernelTree::Folder(folder.clone())),
            None => crate::embedded::sources(),
        };
        let ops = read_ops(config.kernels.as_deref())?;
        let mut bundles = config.bundles.iter().map(|path| OpenBundle::open(path)).collect::<Result<Vec<_>, _>>()?;
        if let Some(bytes) = crate::embedded::bundle() {
            bundles.push(OpenBundle::embedded(bytes)?);
        }
        let workspace = Workspace::new(config.workspace.clone());
        Ok(Self {
            tree,
            store: Store::new(workspace.clone()),
            workspace,
            ops,
            bundles,
            kernels: RwLock::default(),
            uncovered: RwLock::default(),
            #[cfg(feature = "jit")]
            jit: crate::jit::Jit::default(),
            config,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }
    /// Names of the bundles in use, in look-up order.
    pub fn bundles(&self) -> impl Iterator<Item = &str> {
        self.bundles.iter().map(|b| b.name.as_str())
    }
    /// Whether a bundle with these details may be used by this library at all: same caret range of versions, same
    /// launch ABI. Its images are judged one by one, by their source keys.
    #[must_use]
    pub fn accepts(details: &parbake_model::bundle::Details) -> bool {
        crate::bundles::fits(details)
    }
    /// The toolchain that a look-up for a goal would compile with.
    ///
    /// # Errors
    /// A report that says where it was searched, and what to install.
    #[cfg(feature = "jit")]
    pub fn toolchain_for(
        &self,
        goal: Goal,
    ) -> Result<Arc<dyn parbake_codegen::toolchain::Toolchain>, parbake_model::Report> {
        self.jit.toolchain(self, goal.target(), goal.driver(), None)
    }
    /// All ops, sorted by family and name.
    pub fn ops(&self) -> impl Iterator<Item = (OpId, &Op)> {
        self.ops.iter().enumerate().map(|(i, o)| (OpId(i as u16), &o.op))
    }
    /// The definition of an op.
    #[must_use]
    pub fn definition(&self, op: OpId) -> &Op {
        &self.ops[usize::from(op.0)].op
    }
    /// The Rust side of an op: its launcher and reference.
    ///
    /// # Errors
    /// If the op was added after this binary was built.
    pub fn binding(&self, op: OpId) -> Result<&'static Binding, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        loaded.binding.ok_or_else(|| Error::UnknownOp {
            given: format!("{} (its launcher is not in this binary: build it again)", loaded.op.name),
            nearest: None,
            known: Vec::new(),
        })
    }

    /// The op of that name, or of that `family/name`.
    ///
    /// # Errors
    /// If there is none; the error names the nearest.
    pub fn op(&self, name: &str) -> Result<OpId, Error> {
        let found = self.ops.iter().position(|o| o.op.name == name || o.op.path() == name);
        found.map(|i| OpId(i as u16)).ok_or_else(|| {
            let known: Vec<String> = self.ops.iter().map(|o| o.op.name.clone()).collect();
            let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
            Error::UnknownOp { given: name.to_owned(), nearest, known }
        })
    }

    /// The spec with these axis and tactic values, given as text. Tactics that are not named take their default for
    /// the target.
    ///
    /// # Errors
    /// An unknown name or value, or an axis without a value.
    pub fn spec(&self, op: OpId, values: &[(String, String)], target: Target) -> Result<Spec, Error> {
        let def = self.definition(op);
        let unknown = |what: String, expected: String, got: &str| Error::UnknownValue {
            op: def.name.clone(),
            what,
            expected,
            got: got.to_owned(),
        };
        for (name, _) in values {
            let names = || def.axes.iter().map(|a| a.name.as_str()).chain(def.tactics.iter().map(|t| t.name.as_str()));
            if !names().any(|n| n == name) {
                return Err(unknown(
                    format!("there is no axis or tactic `{name}`"),
                    names().collect::<Vec<_>>().join(", "),
                    name,
                ));
            }
        }
        let given = |name: &str| values.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let mut axes = Vec::new();
        for axis in &def.axes {
            let legal = || axis.values.iter().map(|v| v.value.as_str()).collect::<Vec<_>>().join(", ");
            let value = match given(&axis.name) {
                Some(value) => value,
                None if axis.values.len() == 1 => &axis.values[0].value,
                None => {
                    return Err(unknown(
                        format!("axis `{}` has no value", axis.name),
                        format!("{}=… with one of {}", axis.name, legal()),
                        "nothing",
                    ));
                }
            };
            let found = axis.values.iter().position(|v| v.value == value);
            axes.push(
                found.ok_or_else(|| unknown(format!("axis `{}` has no value `{value}`", axis.name), legal(), value))?,
            );
        }
        // The element size of a default may be illegal for this element type: the first legal spec is taken then.
        let named = def.tactics.iter().any(|t| given(&t.name).is_some());
        let default = default_tactic(def, target);
        let mut tactic = Vec::new();
        for t in &def.tactics {
            let legal = || t.values.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let value = given(&t.name).map_or_else(|| default.get(&t.name).map(u32::to_string), |v| Some(v.to_owned()));
            let value = value.unwrap_or_else(|| t.values[0].to_string());
            let found = t.values.iter().position(|v| v.to_string() == value);
            tactic.push(
                found.ok_or_else(|| unknown(format!("tactic `{}` has no value `{value}`", t.name), legal(), &value))?,
            );
        }
        let spec = Spec::at(def, Spec::index(def, &axes, &tactic));
        if named || space::check(def, &spec, Some(target)).is_ok() {
            return Ok(spec);
        }
        let first = space::specs(def)
            .map(|(s, _)| s)
            .find(|s| s.axes == spec.axes && space::check(def, s, Some(target)).is_ok());
        Ok(first.unwrap_or(spec))
    }

    /// What a place needs.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn goal(&self, place: Place) -> Result<Goal, Error> {
        let Place::Cuda(ordinal) = place else { return Ok(Goal::Host) };
        let why = match driver::driver() {
            Driver::Ready(ready) => match ready.devices.get(ordinal as usize) {
                Some(device) => return Ok(Goal::Device(device.arch, ready.version)),
                None => format!("there are {} devices, device {ordinal} was asked for", ready.devices.len()),
            },
            Driver::Absent { searched } => format!("no driver library; tried {}", searched.join(", ")),
            Driver::Unusable { why } => why.clone(),
        };
        Err(Error::NoDevice { target: format!("device {ordinal}"), why })
    }

    /// What this library would compile an op from. Files are hashed only if a kernel folder is configured.
    ///
    /// # Errors
    /// Sources that cannot be read.
    pub fn sources_digest(&self, op: OpId) -> Result<Digest, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        match (&self.config.kernels, loaded.committed) {
            (None, Some(committed)) => Ok(committed),
            _ => Ok(self.sources(op)?.digest),
        }
    }

    /// The sources of an op.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub fn sources(&self, op: OpId) -> Result<&OpSources, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        let tree = self.tree.as_ref().ok_or_else(|| Error::NoSources { uri: loaded.op.name.clone() })?;
        Ok(loaded.sources.get_or_try_init(|| OpSources::read(tree, &loaded.op))?)
    }

    /// How a spec would be served, without serving it: nothing is compiled, loaded or written, no device is touched.
    ///
    /// # Errors
    /// A spec that does not exist for the goal, or a bundle or source that cannot be read.
    pub fn explain(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Decision, Error> {
        let (mut decision, found) = self.find(op, spec, goal)?;
        match found {
            Some(Candidate::Bundle(_, entry)) => {
                (decision.from, decision.target) = (Some(Origin::Bundle), Some(entry.target))
            }
            Some(Candidate::Store(a)) => {
                (decision.from, decision.target) = (Some(Origin::Store), Some(a.metadata.target))
            }
            None if self.may_compile(&mut decision, goal) => {
                (decision.from, decision.target) = (Some(Origin::Jit), Some(goal.target()));
            }
            None => {}
        }
        Ok(decision)
    }

    /// How a spec would be served.
    ///
    /// # Errors
    /// A bundle or source that cannot be read.
    pub fn supports(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Support, Error> {
        match self.explain(op, spec, goal) {
            Err(Error::Unsupported { reason, .. }) => Ok(Support::Unsupported(reason)),
            Err(e) => Err(e),
            Ok(decision) => Ok(match decision.from {
                Some(Origin::Bundle) => Support::Bundle,
                Some(Origin::Store) => Support::Store,
                Some(Origin::Jit | Origin::Registry) => Support::Jit,
                None => Support::NotCovered,
            }),
        }
    }

    #[cfg(feature = "jit")]
    fn may_compile(&self, decision: &mut Decision, goal: Goal) -> bool {
        if !self.config.jit {
            decision.note("jit", None, "switched off by PARBAKE_JIT");
            return false;
        }
        match self.jit.toolchain(self, goal.target(), goal.driver(), None) {
            Ok(toolchain) => {
                decision.note("jit", Some(goal.target()), format!("{} would compile it", toolchain.id()));
                true
            }
            Err(report) => {
                decision.note("jit", Some(goal.target()), format!("no toolchain: {}", report.what));
                false
            }
        }
    }

    #[cfg(not(feature = "jit"))]
    fn may_compile(&self, decision: &mut Decision, _: Goal) -> bool {
        decision.note("jit", None, "this build has no compiler (feature `jit`)");
        false
    }

    /// Looks in bundles and in the store.
    fn find<'a>(&'a self, op: OpId, spec: &Spec, goal: Goal) -> Result<(Decision, Option<Candidate<'a>>), Error> {
        let def = self.definition(op);
        let judged = match goal {
            Goal::Device(arch, _) => Target::Sm(arch, Suffix::Baseline),
            other => other.target(),
        };
        space::check(def, spec, Some(judged)).map_err(|reason| Error::Unsupported {
            spec: spec.to_string(),
            target: goal.words(),
            reason: reason.0,
        })?;
        let source_key = spec.source_key(def, self.sources_digest(op)?).digest;
        let mut decision = Decision {
            op: def.name.clone(),
            path: def.path(),
            spec: spec.to_string(),
            uri: spec.uri.clone(),
            source_key,
            runs_on: goal.words(),
            arch: if goal == Goal::Host { "host".to_owned() } else { goal.target().digits() },
            steps: Vec::new(),
            from: None,
            target: None,
        };
        if goal.target() == Target::Host {
            "host".clone_into(&mut decision.arch);
        }
        if self.bundles.is_empty() {
            decision.note("bundles", None, "none: PARBAKE_BUNDLES is not set, and none is embedded");
        }
        for bundle in &self.bundles {
            if let Some(entry) = bundle.find(source_key, goal.arch(), goal.driver(), &mut decision) {
                return Ok((decision, Some(Candidate::Bundle(bundle, entry))));
            }
        }
        let stored = self.find_stored(def, spec, source_key, goal, &mut decision);
        Ok((decision, stored.map(|a| Candidate::Store(Box::new(a)))))
    }

    /// Looks in the store: for the exact build if it could be made here, otherwise for any that fits.
    fn find_stored(
        &self,
        def: &Op,
        spec: &Spec,
        source_key: Digest,
        goal: Goal,
        decision: &mut Decision,
    ) -> Option<Artifact> {
        let place = format!("store {}", self.workspace.store().display());
        if !self.config.cache {
            decision.note(place, None, "switched off by PARBAKE_CACHE");
            return None;
        }
        #[cfg(feature = "jit")]
        if self.config.jit
            && let Ok(toolchain) = self.jit.toolchain(self, goal.target(), goal.driver(), None)
        {
            let build_key = parbake_codegen::artifact::build_key(&*toolchain, def, source_key, goal.target());
            return match self.store.get(source_key, goal.target(), build_key) {
                Ok(Some(artifact)) => {
                    decision.note(place, Some(goal.target()), "holds this very build");
                    Some(artifact)
                }
                Ok(None) => {
                    decision.note(place, Some(goal.target()), self.store_absence(spec, source_key));
                    None
                }
                Err(e) => {
                    decision.note(place, Some(goal.target()), e);
                    None
                }
            };
        }
        let _ = def;
        let mut fitting = Vec::new();
        for target in self.store.targets(source_key) {
            for found in self.store.all(source_key, target) {
                match found {
                    Ok(artifact) => fitting.push(artifact),
                    Err(e) => decision.note(&place, Some(target), e),
                }
            }
        }
        if fitting.is_empty() {
            decision.note(place, None, self.store_absence(spec, source_key));
            return None;
        }
        let none = Toolkit { major: 0, minor: 0 };
        let image = |a: &Artifact| Image { target: a.metadata.target, toolkit: a.metadata.toolkit.unwrap_or(none) };
        let images: Vec<Image> = fitting.iter().map(image).collect();
        let (best, trace) = verdict::select(images.iter().zip(fitting), goal.arch(), goal.driver(), false);
        for (target, verdict) in trace {
            match verdict {
                Ok(how) => decision.note(&place, Some(target), how),
                Err(why) => decision.note(&place, Some(target), why),
            }
        }
        best.map(|(_, artifact)| artifact)
    }

    /// Why the store has no entry: sources of another state are told from none at all.
    fn store_absence(&self, spec: &Spec, source_key: Digest) -> String {
        let others = self.store.sources_of(&spec.uri, source_key);
        if others == 0 {
            "no entry".to_owned()
        } else {
            format!("source changed: {others} entries of this spec are from other sources")
        }
    }

    /// Calls an op on memory that the caller vouches for.
    ///
    /// Arguments are given in the op's order: outputs, inputs; then scalars. They are checked first; after an error
    /// nothing was launched. Zero rows are no work, and no error.
    ///
    /// # Errors
    /// Arguments that do not fit; no kernel; a launch that failed.
    ///
    /// # Safety
    /// Every tensor's memory is valid at `place` for its whole extent, until `stream` has passed the work.
    pub unsafe fn call(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
        stream: Stream,
    ) -> Result<Called, Error> {
        let binding = self.binding(op)?;
        let def = self.definition(op);
        let bound = check::check(def, tensors, scalars).map_err(Error::Arguments)?;
        let written = def.tensors.iter().zip(tensors).filter(|(t, _)| t.role != Role::In);
        if written.into_iter().all(|(_, t)| t.is_empty()) {
            return Ok(Called { kernel: None, from: Origin::Registry });
        }
        let goal = self.goal(place)?;
        let checked = check::checked(def, tensors, scalars, &bound);
        let mut choices = Choices::default();
        (binding.select)(&checked, goal.target(), &mut choices);
        let axes: Vec<usize> = bound.axes.iter().map(|a| a.unwrap_or(0)).collect();
        let (kernel, tactic, from) = self.choose(op, &axes, &choices, place, goal)?;
        let mut launch = (binding.arrange)(&checked, &tactic);
        // SAFETY: the caller vouches for the memory, and the launcher derived its pointers from the checked tensors.
        unsafe { kernel.launch(&mut launch, stream)? };
        Ok(Called { kernel: Some(kernel), from })
    }

    /// The specs that a call with these arguments may use, best first.
    ///
    /// # Errors
    /// Arguments that do not fit.
    pub fn choices(&self, op: OpId, tensors: &[Tensor], scalars: &[f64], target: Target) -> Result<Vec<Spec>, Error> {
        let binding = self.binding(op)?;
        let def = self.definition(op);
        let bound = check::check(def, tensors, scalars).map_err(Error::Arguments)?;
        let mut choices = Choices::default();
        (binding.select)(&check::checked(def, tensors, scalars, &bound), target, &mut choices);
        let axes: Vec<usize> = bound.axes.iter().map(|a| a.unwrap_or(0)).collect();
        choices.as_slice().iter().map(|t| Ok(Spec::at(def, self.index(def, &axes, t)?))).collect()
    }

    fn index(&self, def: &Op, axes: &[usize], tactic: &Tactic) -> Result<SpecIndex, Error> {
        let mut digits = [0; MAX_TACTICS];
        for ((digit, t), value) in digits.iter_mut().zip(&def.tactics).zip(tactic.0) {
            let found = t.values.iter().position(|v| *v == value);
            *digit = found.ok_or_else(|| Error::UnknownValue {
                op: def.name.clone(),
                what: format!("its launcher chose {} = {value}, which op.toml does not declare", t.name),
                expected: format!("{:?}", t.values),
                got: value.to_string(),
            })?;
        }
        Ok(Spec::index(def, axes, &digits[..def.tactics.len()]))
    }

    /// The first choice; with JIT off the first that is covered.
    fn choose(
        &self,
        op: OpId,
        axes: &[usize],
        choices: &Choices,
        place: Place,
        goal: Goal,
    ) -> Result<(Arc<Kernel>, Tactic, Origin), Error> {
        let def = self.definition(op);
        let mut first_gap = None;
        for (i, tactic) in choices.as_slice().iter().enumerate() {
            let index = self.index(def, axes, tactic)?;
            let key = registry_key(op, index, place);
            if let Some(kernel) = self.loaded(key) {
                return Ok((kernel, *tactic, Origin::Registry));
            }
            if !self.config.jit && self.uncovered.read().is_ok_and(|u| u.contains(&key)) {
                continue;
            }
            match self.load(op, &Spec::at(def, index), key, place, goal) {
                Ok(kernel) => {
                    if i > 0 {
                        tracing::info!(op = def.name, tactic = ?tactic.0, "the best tactic is not covered; using the next that is");
                    }
                    let origin = kernel.origin;
                    return Ok((kernel, *tactic, origin));
                }
                Err(gap @ Error::NotCovered(_)) if !self.config.jit => {
                    if let Ok(mut uncovered) = self.uncovered.write() {
                        uncovered.insert(key);
                    }
                    first_gap = first_gap.or(Some(gap));
                }
                Err(e) => return Err(e),
            }
        }
        match first_gap {
            Some(gap) => Err(gap),
            // Every choice was found uncovered before: say again what the first one lacks.
            None => {
                let index = self.index(def, axes, &choices.as_slice()[0])?;
                Err(Error::NotCovered(Box::new(self.explain(op, &Spec::at(def, index), goal)?)))
            }
        }
    }

    /// A kernel that this process loaded before.
    fn loaded(&self, key: u64) -> Option<Arc<Kernel>> {
        self.kernels.read().ok()?.get(&key)?.get().cloned()
    }

    /// The number of a spec: what [`Library::hit`] takes.
    ///
    /// # Errors
    /// If the spec is not one of the op's.
    pub fn id(&self, op: OpId, spec: &Spec) -> Result<SpecId, Error> {
        let def = self.definition(op);
        let axis = |(axis, (_, value)): (&parbake_model::op::Axis, &(String, String))| {
            axis.values.iter().position(|v| &v.value == value)
        };
        let axes: Option<Vec<usize>> = def.axes.iter().zip(&spec.axes).map(axis).collect();
        let mut tactic = Tactic::default();
        tactic.0.iter_mut().zip(&spec.tactic).for_each(|(place, (_, value))| *place = *value);
        let axes = axes.ok_or_else(|| Error::UnknownValue {
            op: def.name.clone(),
            what: "the spec has a value that the op does not declare".into(),
            expected: "a spec of this op".into(),
            got: spec.to_string(),
        })?;
        Ok(SpecId { op, index: self.index(def, &axes, &tactic)? })
    }

    /// A kernel that this process loaded before. Costs one look-up: no lock is waited for but a reader's.
    #[must_use]
    pub fn hit(&self, id: SpecId, place: Place) -> Option<Arc<Kernel>> {
        self.loaded(registry_key(id.op, id.index, place))
    }

    /// The kernel of a spec at a place: found, or compiled, and loaded. Kept for the life of the process.
    ///
    /// # Errors
    /// If it exists nowhere and may not or cannot be compiled, or cannot be loaded.
    pub fn kernel(&self, op: OpId, spec: &Spec, place: Place) -> Result<(Arc<Kernel>, Origin), Error> {
        let id = self.id(op, spec)?;
        if let Some(kernel) = self.hit(id, place) {
            return Ok((kernel, Origin::Registry));
        }
        let key = registry_key(op, id.index, place);
        let kernel = self.load(op, spec, key, place, self.goal(place)?)?;
        let origin = kernel.origin;
        Ok((kernel, origin))
    }

    /// Finds or compiles, then loads. One thread works for a key, others wait for it; a failure is tried again.
    fn load(&self, op: OpId, spec: &Spec, key: u64, place: Place, goal: Goal) -> Result<Arc<Kernel>, Error> {
        let cell =
            self.kernels.write().unwrap_or_else(std::sync::PoisonError::into_inner).entry(key).or_default().clone();
        let kernel = cell.get_or_try_init(|| {
            let start = Instant::now();
            let (mut decision, found) = self.find(op, spec, goal)?;
            let (image, target, origin, compile_ms) = match found {
                Some(Candidate::Bundle(bundle, entry)) => (bundle.image(entry)?, entry.target, Origin::Bundle, None),
                Some(Candidate::Store(artifact)) => (artifact.bytes, artifact.metadata.target, Origin::Store, None),
                None => {
                    let (artifact, origin) = self.compile(op, spec, goal, &mut decision)?;
                    let ms = (origin == Origin::Jit).then_some(artifact.metadata.compile_ms as f64);
                    (artifact.bytes, artifact.metadata.target, origin, ms)
                }
            };
            (decision.from, decision.target) = (Some(origin), Some(target));
            let loaded = match place {
                Place::Host => Code::load_host(&image, &spec.entry()),
                Place::Cuda(ordinal) => {
                    let ready = driver::ready().expect("bug: a goal for a device without a driver");
                    Code::load_cuda(ready, ordinal, &image, &spec.entry())
                }
            };
            let code = loaded.map_err(|why| Error::Load { uri: spec.uri.clone(), target: target.to_string(), why })?;
            let load_ms = start.elapsed().as_secs_f64() * 1e3 - compile_ms.unwrap_or(0.0);
            tracing::info!(uri = spec.uri, %target, from = %origin, load_ms, compile_ms, "kernel loaded");
            let (entry, uri) = (spec.entry(), spec.uri.clone());
            Ok::<_, Error>(Arc::new(Kernel { entry, uri, decision, origin, compile_ms, load_ms, code }))
        })?;
        Ok(kernel.clone())
    }

    #[cfg(feature = "jit")]
    fn compile(&self, op: OpId, spec: &Spec, goal: Goal, decision: &mut Decision) -> Result<(Artifact, Origin), Error> {
        if !self.config.jit {
            decision.note("jit", None, "switched off by PARBAKE_JIT");
            return Err(Error::NotCovered(Box::new(decision.clone())));
        }
        match self.jit.toolchain(self, goal.target(), goal.driver(), None) {
            Ok(toolchain) => {
                decision.note("jit", Some(goal.target()), format!("compiled by {}", toolchain.id()));
                self.obtain(op, spec, goal.target(), &*toolchain)
            }
            Err(report) => {
                decision.note("jit", Some(goal.target()), report.to_string());
                Err(Error::NotCovered(Box::new(decision.clone())))
            }
        }
    }

    #[cfg(not(feature = "jit"))]
    fn compile(&self, _: OpId, _: &Spec, _: Goal, decision: &mut Decision) -> Result<(Artifact, Origin), Error> {
        decision.note("jit", None, "this build has no compiler (feature `jit`)");
        Err(Error::NotCovered(Box::new(decision.clone())))
    }
}

/// A spec at a place, in one word: op, spec number, place.
fn registry_key(op: OpId, index: SpecIndex, place: Place) -> u64 {
    let place = match place {
        Place::Host => 0,
        Place::Cuda(ordinal) => ordinal as u64 + 1,
    };
    u64::from(op.0) << 48 | (place & 0xffff) << 32 | u64::from(index.0)
}

fn default_tactic(op: &Op, target: Target) -> std::collections::BTreeMap<String, u32> {
    let reached =
        op.default_tactics.iter().rfind(|d| target.arch().is_some_and(|a| d.since.arch().is_none_or(|s| s <= a)));
    reached.or(op.default_tactics.first()).map(|d| d.tactic.clone()).unwrap_or_default()
}

/// All ops: from the kernel folder if there is one and definitions can be parsed here, else from the manifest.
fn read_ops(folder: Option<&Path>) -> Result<Vec<LoadedOp>, Error> {
    let binding = |name: &str| crate::modules::BINDINGS.iter().find(|b| b.op == name);
    #[cfg(feature = "jit")]
    if let Some(folder) = folder {
        let registry = parbake_codegen::registry::Registry::read(folder)
            .map_err(|e| Error::Definitions { code: e.code(), message: e.to_string() })?;
        let load = |e: parbake_codegen::registry::Entry| LoadedOp {
            binding: binding(&e.op.name),
            committed: None,
            sources: OnceCell::with_value(e.sources),
            op: e.op,
        };
        return Ok(registry.entries.into_iter().map(load).collect());
    }
    let _ = folder;
    #[derive(serde::Deserialize)]
    struct Manifest {
        ops: Vec<ManifestOp>,
    }
    #[derive(serde::Deserialize)]
    struct ManifestOp {
        op: Op,
        sources: Digest,
    }
    let text = include_str!("../generated-manifest/ops.json");
    let manifest: Manifest = serde_json::from_str(text).expect("bug: generated-manifest/ops.json is damaged");
    let load = |m: ManifestOp| LoadedOp {
        binding: binding(&m.op.name),
        committed: Some(m.sources),
        sources: OnceCell::new(),
        op: m.op,
    };
    Ok(manifest.ops.into_iter().map(load).collect())
}
