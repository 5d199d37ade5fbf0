//! Loading: the registry of this process, and what fills it. One thread works for a key, others wait for it.

use crate::binding::Tactic;
use crate::cache;
use crate::code::{Code, Kernel, Place};
use crate::decision::{Decision, Miss, Origin};
use crate::driver::{self, Rejected};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId, SpecId};
use crate::lookup::Candidate;
use crate::store::Artifact;
use crate::tactic::Seen;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::{Digest, Target, Toolkit, cubin, fatbin, verdict};
use std::error::Error as _;
use std::sync::Arc;
use std::time::Instant;

/// An image, and what is known of it.
struct Image {
    bytes: Vec<u8>,
    judged: verdict::Image,
    origin: Origin,
    digest: Digest,
    build_key: Digest,
    toolkit: Option<Toolkit>,
    /// Its toolchain and options.
    made_by: Option<(String, Vec<String>)>,
}

impl Image {
    fn of(artifact: Artifact, origin: Origin) -> Self {
        let Artifact { bytes, metadata, .. } = artifact;
        Self {
            judged: metadata.judged(),
            digest: metadata.image,
            build_key: metadata.build_key,
            toolkit: metadata.toolkit,
            made_by: Some((metadata.toolchain, metadata.options)),
            bytes,
            origin,
        }
    }
}

impl Library {
    /// A kernel that this process loaded before.
    pub(crate) fn loaded(&self, key: u64) -> Option<Arc<Kernel>> {
        self.kernels.read().ok()?.get(&key)?.kernel.get().cloned()
    }

    /// The number of a spec: what [`Library::hit`] takes.
    ///
    /// # Errors
    /// If the spec is not one of the op's.
    pub fn id(&self, op: OpId, spec: &Spec) -> Result<SpecId, Error> {
        let def = self.definition(op);
        let axes = self.axis_places(op, spec)?;
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
        let goal = self.goal(place)?;
        let loaded = self.load(op, spec, key, place, goal);
        self.record(op, id.index, goal.target(), loaded.as_ref().map(|kernel| kernel.origin));
        let kernel = loaded?;
        let origin = kernel.origin;
        Ok((kernel, origin))
    }

    /// Finds or compiles, then loads. One thread works for a key, others wait for it; a failure is tried again.
    pub(crate) fn load(&self, op: OpId, spec: &Spec, key: u64, place: Place, goal: Goal) -> Result<Arc<Kernel>, Error> {
        let slot =
            self.kernels.write().unwrap_or_else(std::sync::PoisonError::into_inner).entry(key).or_default().clone();
        let arrived = Instant::now();
        let _turn = slot.turn(&spec.uri);
        let loaded = slot.kernel.get_or_try_init(|| {
            if let Some(failure) = slot.failure_since(arrived) {
                return Err(failure);
            }
            // Remembered before the next thread is let in.
            self.load_now(op, spec, place, goal).inspect_err(|error| slot.remember(error))
        });
        if loaded.is_err() {
            self.counters.failed();
        }
        loaded.cloned()
    }

    /// Finds or compiles, then loads, whoever else is at it.
    fn load_now(&self, op: OpId, spec: &Spec, place: Place, goal: Goal) -> Result<Arc<Kernel>, Error> {
        let start = Instant::now();
        let (mut decision, found) = self.find_image(op, spec, goal)?;
        let (found, compile_ms) = match found {
            Some(image) => (image, None),
            None => {
                let (artifact, origin) = self.compile(op, spec, goal, &mut decision)?;
                let ms = (origin == Origin::Jit).then_some(artifact.metadata.compile_ms as f64);
                (Image::of(artifact, origin), ms)
            }
        };
        let Image { bytes: image, judged, origin, digest, build_key, toolkit, made_by } = found;
        self.allowed(op, spec, goal, Seen::Image(toolkit))?;
        let target = judged.target;
        (decision.from, decision.target) = (Some(origin), Some(target));
        let code = match place {
            Place::Host => Code::load_host(&image, &spec.entry(), self.config.host_schedule)
                .map_err(|why| Error::Load { uri: spec.uri.clone(), target: target.to_string(), why })?,
            Place::Cuda(ordinal) => {
                let unlike = |why| Error::Image { uri: spec.uri.clone(), target, origin, why };
                checked_image(&image, origin, judged, &spec.entry()).map_err(unlike)?;
                // The driver takes a text up to its zero.
                let mut image = image;
                if matches!(target, Target::Compute(..)) && origin != Origin::Bundle {
                    image.push(0);
                }
                let (ready, device) = driver::device(ordinal)?;
                Code::load_cuda(ready, ordinal, &image, &spec.entry()).map_err(|source| {
                    if !source.rejects_image() {
                        return Error::Driver(source);
                    }
                    Error::Rejected(Box::new(Rejected {
                        uri: spec.uri.clone(),
                        image: judged,
                        origin,
                        bytes: image.len(),
                        digest,
                        device: (ordinal, device.name.clone(), device.arch),
                        driver: ready.version,
                        source,
                    }))
                })?
            }
        };
        let load_ms = start.elapsed().as_secs_f64() * 1e3 - compile_ms.unwrap_or(0.0);
        let missed = decision.missed();
        tracing::info!(uri = spec.uri, %target, from = %origin, load_ms, compile_ms, missed, "kernel loaded");
        if let Some(bypass) = &decision.version_bypass {
            tracing::warn!(uri = spec.uri, %target, bypass, "a kernel is used by PARBAKE_VERSION_BYPASS");
        }
        if origin != Origin::Bundle {
            self.counters.missed(&decision);
        }
        self.counters.loaded(origin, compile_ms.unwrap_or(0.0), load_ms);
        let (entry, uri, spec, wanted) = (spec.entry(), spec.uri.clone(), spec.clone(), goal.target());
        Ok(Arc::new(Kernel {
            entry,
            uri,
            spec,
            wanted,
            decision,
            origin,
            image: digest,
            build_key,
            toolkit,
            made_by,
            compile_ms,
            load_ms,
            code,
        }))
    }

    /// Makes sure that a bundle or the store can serve a spec; loads nothing. Gives the image's target, where it is, and
    /// what it cost to compile.
    pub(crate) fn provide(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<(Target, Origin, Option<f64>), Error> {
        let (mut decision, found) = self.find_image(op, spec, goal)?;
        if let Some(image) = found {
            return Ok((image.judged.target, image.origin, None));
        }
        let (artifact, origin) = self.compile(op, spec, goal, &mut decision)?;
        if artifact.path.is_none() {
            let folder = self.workspace.store();
            return Err(Error::NotKept { uri: spec.uri.clone(), target: goal.words(), folder });
        }
        let ms = (origin == Origin::Jit).then_some(artifact.metadata.compile_ms as f64);
        Ok((artifact.metadata.target, origin, ms))
    }

    /// Looks a spec up and reads its image. An installed bundle that cannot be read any more is set aside, and
    /// the search made again.
    fn find_image(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<(Decision, Option<Image>), Error> {
        loop {
            let (mut decision, mut found) = self.find(op, spec, goal, false)?;
            if found.is_none() {
                // A miss costs a compilation, or the call: it may cost the question what each place has instead.
                (decision, found) = self.find(op, spec, goal, true)?;
            }
            let image = match found {
                Some(Candidate::Bundle(bundle, entry)) => match bundle.image(entry)? {
                    Some(bytes) => Some(Image {
                        bytes,
                        judged: entry.judged(),
                        origin: Origin::Bundle,
                        digest: entry.image,
                        build_key: entry.build_key,
                        toolkit: entry.toolkit,
                        made_by: None,
                    }),
                    None => continue,
                },
                Some(Candidate::Store(artifact)) => {
                    if let Some(folder) = &artifact.path {
                        cache::note_use(folder);
                    }
                    let artifact = match &self.shared {
                        Some(shared) => shared.copy(&self.store, *artifact),
                        None => *artifact,
                    };
                    Some(Image::of(artifact, Origin::Store))
                }
                None => None,
            };
            return Ok((decision, image));
        }
    }

    #[cfg(feature = "jit")]
    fn compile(&self, op: OpId, spec: &Spec, goal: Goal, decision: &mut Decision) -> Result<(Artifact, Origin), Error> {
        if !self.config.jit {
            decision.miss("jit", None, Miss::SwitchedOff, "switched off by PARBAKE_JIT");
            return Err(self.not_covered(decision));
        }
        match self.jit.on_demand(self, self.definition(op).language, goal) {
            Ok(toolchain) => {
                self.allowed(op, spec, goal, Seen::Image(toolchain.toolkit()))?;
                decision.note("jit", Some(goal.target()), format!("compiled by {}", toolchain.id()));
                let (artifact, from) = self.obtain(op, spec, goal.target(), &*toolchain, self.config.profile)?;
                // A bake refuses it; a call is better slow than not at all. It is said when it is compiled, not each time.
                if let Some(spill) = parbake_codegen::spill::of(&artifact.metadata).filter(|_| from == Origin::Jit) {
                    let (uri, target, by) = (&spec.uri, goal.target(), toolchain.id());
                    tracing::warn!(uri, %target, "the kernel spills registers, which costs time: {spill}, by {by}");
                }
                Ok((artifact, from))
            }
            Err(report) => {
                decision.miss("jit", Some(goal.target()), Miss::NoToolchain, &report);
                decision.toolchain = report.help;
                Err(self.not_covered(decision))
            }
        }
    }

    #[cfg(not(feature = "jit"))]
    fn compile(&self, _: OpId, _: &Spec, _: Goal, decision: &mut Decision) -> Result<(Artifact, Origin), Error> {
        decision.miss("jit", None, Miss::NoToolchain, "this build has no compiler (feature `jit`)");
        Err(self.not_covered(decision))
    }

    fn not_covered(&self, decision: &Decision) -> Error {
        self.counters.missed(decision);
        tracing::info!(uri = decision.uri, missed = decision.missed(), "not covered");
        Error::NotCovered(Box::new(decision.clone()))
    }
}

/// A spec at a place, in one word: op, place, spec number. A device that no process has gets a key of its own, under
/// which nothing is ever found.
pub(crate) fn registry_key(op: OpId, index: SpecIndex, place: Place) -> u64 {
    let place = match place {
        Place::Host => 0,
        Place::Cuda(ordinal) => u16::try_from(ordinal).ok().and_then(|o| o.checked_add(1)).unwrap_or(u16::MAX),
    };
    u64::from(op.0) << 48 | u64::from(place) << 32 | u64::from(index.0)
}

/// What the driver is handed is exactly one complete image for that target, by that toolkit, with that kernel: the driver
/// itself reports success for a foreign or torn one.
fn checked_image(image: &[u8], origin: Origin, judged: verdict::Image, entry: &str) -> Result<(), String> {
    let target = judged.target;
    if let Target::Compute(..) = target {
        let checked = match origin {
            Origin::Bundle => fatbin::check_single_ptx(image, target, entry, judged.toolkit),
            _ => fatbin::check_ptx(image, target, entry, judged.toolkit),
        };
        return checked.map_err(|e| e.to_string());
    }
    let facts = if origin == Origin::Bundle {
        fatbin::check_single(image, target, entry).map_err(|e| match e.source() {
            Some(source) => format!("{e}: {source}"),
            None => e.to_string(),
        })?
    } else {
        cubin::read(image).map_err(|e| e.to_string())?
    };
    let same = facts.target.arch() == target.arch() && (!facts.suffix_known || facts.target == target);
    if !same || !facts.kernels.iter().any(|k| k == entry) {
        return Err(format!("it is code for {} with the kernels {:?}", facts.target, facts.kernels));
    }
    // The verdict on the driver rests on the toolkit that the label states.
    match facts.toolkit {
        Some(toolkit) if toolkit != judged.toolkit => {
            Err(format!("it was compiled by CUDA {toolkit}, not by {}", judged.toolkit))
        }
        _ => Ok(()),
    }
}
