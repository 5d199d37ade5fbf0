//! Look-up: bundles, then the store; then the question whether it may be compiled. Every candidate is noted.

use crate::bundles::{OpenBundle, Wanted};
use crate::decision::{Decision, Miss, Origin};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use crate::store::{Artifact, Store, StoreError};
use crate::tactic::Seen;
use parbake_model::bundle::Entry;
use parbake_model::identity::{Profile, Spec};
use parbake_model::op::Op;
use parbake_model::{Digest, Target, Toolkit, space};

/// Where an image was found.
pub(crate) enum Candidate<'a> {
    Bundle(&'a OpenBundle, &'a Entry),
    Store(Box<Artifact>),
}

impl Candidate<'_> {
    /// The toolkit that compiled it.
    fn toolkit(&self) -> Option<Toolkit> {
        match self {
            Self::Bundle(_, entry) => entry.toolkit,
            Self::Store(artifact) => artifact.metadata.toolkit,
        }
    }
}

impl Library {
    /// How a spec would be served, without serving it: nothing is compiled, loaded or written, no device is touched.
    ///
    /// # Errors
    /// A spec that does not exist for the goal or is blocked, or a bundle or source that cannot be read.
    pub fn explain(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Decision, Error> {
        let (mut decision, found) = self.find(op, spec, goal, true)?;
        if let Some(found) = &found {
            self.allowed(op, spec, goal, Seen::Image(found.toolkit()))?;
        }
        match found {
            Some(Candidate::Bundle(_, entry)) => {
                (decision.from, decision.target) = (Some(Origin::Bundle), Some(entry.target))
            }
            Some(Candidate::Store(a)) => {
                (decision.from, decision.target) = (Some(Origin::Store), Some(a.metadata.target))
            }
            None if self.may_compile(op, spec, &mut decision, goal) => {
                (decision.from, decision.target) = (Some(Origin::Jit), Some(goal.target()));
            }
            None => {}
        }
        Ok(decision)
    }

    #[cfg(feature = "jit")]
    fn may_compile(&self, op: OpId, spec: &Spec, decision: &mut Decision, goal: Goal) -> bool {
        if !self.config.jit {
            decision.miss("jit", None, Miss::SwitchedOff, "switched off by PARBAKE_JIT");
            return false;
        }
        match self.jit.on_demand(self, self.definition(op).language, goal) {
            Ok(toolchain) => {
                if let Err(blocked) = self.allowed(op, spec, goal, Seen::Image(toolchain.toolkit())) {
                    decision.miss("jit", Some(goal.target()), Miss::Blocked, blocked);
                    return false;
                }
                decision.note("jit", Some(goal.target()), format!("{} would compile it", toolchain.id()));
                true
            }
            Err(report) => {
                let searched: Vec<&str> = report.details.iter().map(|(_, text)| text.as_str()).collect();
                let searched =
                    if searched.is_empty() { String::new() } else { format!("; searched {}", searched.join("; ")) };
                let why = format!("no toolchain: {}{searched}", report.what);
                decision.miss("jit", Some(goal.target()), Miss::NoToolchain, why);
                decision.toolchain = report.help;
                false
            }
        }
    }

    #[cfg(not(feature = "jit"))]
    fn may_compile(&self, _: OpId, _: &Spec, decision: &mut Decision, _: Goal) -> bool {
        decision.miss("jit", None, Miss::NoToolchain, "this build has no compiler (feature `jit`)");
        false
    }

    /// Looks in bundles and in the store. `thorough` looks at what else the store has, to say why it has nothing.
    pub(crate) fn find<'a>(
        &'a self,
        op: OpId,
        spec: &Spec,
        goal: Goal,
        thorough: bool,
    ) -> Result<(Decision, Option<Candidate<'a>>), Error> {
        let def = self.definition(op);
        space::check(def, spec, Some(goal.target())).map_err(|reason| Error::Unsupported {
            spec: spec.to_string(),
            target: goal.words(),
            reason: reason.0,
        })?;
        self.allowed(op, spec, goal, Seen::Spec)?;
        let source_key = spec.source_key(def, self.sources_digest(op)?).digest;
        let mut decision = Decision {
            op: def.name.clone(),
            path: def.path(),
            spec: spec.to_string(),
            uri: spec.uri.clone(),
            source_key,
            runs_on: goal.words(),
            arch: match goal.target() {
                Target::Sm(..) => goal.target().digits(),
                other => other.to_string(),
            },
            steps: Vec::new(),
            from: None,
            target: None,
            version_bypass: None,
            snippet: spec.snippet.as_ref().map(|snippet| snippet.name.clone()),
            toolchain: Vec::new(),
        };
        if self.config.profile == Profile::Release {
            let params = self.config.version_bypass.is_some().then(|| self.params_digest(op)).transpose()?;
            let wanted = Wanted { spec, source_key, params, thorough, ptx: self.config.ptx };
            if let Some((bundle, entry)) = self.bundles.find(&wanted, goal, &mut decision) {
                return Ok((decision, Some(Candidate::Bundle(bundle, entry))));
            }
        } else {
            let why = format!("not looked at: PARBAKE_PROFILE is {}", self.config.profile);
            decision.miss("bundles", None, Miss::SwitchedOff, why);
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
            decision.miss(place, None, Miss::SwitchedOff, "switched off by PARBAKE_CACHE");
            return None;
        }
        if let Err(untrusted) = self.workspace.trusted(&self.workspace.store()) {
            decision.miss(place, None, Miss::Untrusted, untrusted);
            return None;
        }
        #[cfg(feature = "jit")]
        if self.config.jit
            && let Ok(toolchain) = self.jit.on_demand(self, def.language, goal)
        {
            let build_key =
                parbake_codegen::artifact::build_key(&*toolchain, def, source_key, goal.target(), self.config.profile)
                    .digest;
            let found = match self.store.get(source_key, goal.target(), build_key) {
                Ok(Some(artifact)) => {
                    decision.note(place, Some(goal.target()), "holds this very build");
                    return Some(artifact);
                }
                Ok(None) => self.store_absence(spec, source_key),
                Err(e) => (damage(&e), e.to_string()),
            };
            decision.miss(place, Some(goal.target()), found.0, found.1);
            return self.find_shared(goal, decision, |store, place, decision| {
                let (miss, why) = match store.get(source_key, goal.target(), build_key) {
                    Ok(Some(artifact)) => {
                        decision.note(place, Some(goal.target()), "holds this very build");
                        return Some(artifact);
                    }
                    Ok(None) => (Miss::NotCovered, "no entry".to_owned()),
                    Err(e) => (damage(&e), e.to_string()),
                };
                decision.miss(place, Some(goal.target()), miss, why);
                None
            });
        }
        let _ = def;
        if let Some(artifact) = self.find_any(&self.store, &place, source_key, goal, decision) {
            return Some(artifact);
        }
        // What is there and does not serve has said so.
        if !decision.steps.iter().any(|step| step.place == place) {
            let (miss, why) = self.store_absence(spec, source_key);
            decision.miss(place, None, miss, why);
        }
        self.find_shared(goal, decision, |store, place, decision| {
            let found = self.find_any(store, place, source_key, goal, decision);
            if found.is_none() && !decision.steps.iter().any(|step| step.place == place) {
                decision.miss(place, None, Miss::NotCovered, "no entry");
            }
            found
        })
    }

    /// Looks in the shared store, if there is one.
    fn find_shared(
        &self,
        goal: Goal,
        decision: &mut Decision,
        look: impl FnOnce(&Store, &str, &mut Decision) -> Option<Artifact>,
    ) -> Option<Artifact> {
        let shared = self.shared.as_ref()?;
        let place = shared.place();
        match shared.store() {
            Ok(store) => look(store, &place, decision),
            Err(why) => {
                decision.miss(place, Some(goal.target()), Miss::Unreadable, why);
                None
            }
        }
    }

    /// The best of all entries of a source that fit a goal.
    fn find_any(
        &self,
        store: &Store,
        place: &str,
        source_key: Digest,
        goal: Goal,
        decision: &mut Decision,
    ) -> Option<Artifact> {
        let mut fitting = Vec::new();
        let targets = store.targets(source_key).unwrap_or_else(|e| {
            decision.miss(place, None, damage(&e), e);
            Default::default()
        });
        for target in targets {
            for found in store.all(source_key, target) {
                match found {
                    Ok(artifact) if !self.config.profile.is_served_by(artifact.metadata.profile) => {
                        let why = format!("a {} build", artifact.metadata.profile);
                        decision.miss(place, Some(target), Miss::OtherProfile, why);
                    }
                    Ok(artifact) => fitting.push(artifact),
                    Err(e) => decision.miss(place, Some(target), damage(&e), e),
                }
            }
        }
        if fitting.is_empty() {
            return None;
        }
        let (best, trace) = goal.select(fitting.into_iter().map(|a| (a.metadata.judged(), a)), self.config.ptx);
        decision.note_all(place, trace);
        best
    }

    /// Why the store has no entry: sources of another state are told from none at all, by the folders of generated
    /// sources that compilations left. The store itself is not searched: it may hold thousands of entries.
    fn store_absence(&self, spec: &Spec, source_key: Digest) -> (Miss, String) {
        let folders = std::fs::read_dir(self.workspace.generated()).into_iter().flatten().flatten();
        let names = folders.filter_map(|e| e.file_name().into_string().ok());
        let current = source_key.short(12);
        let others = names.filter(|n| n.split_once('@').is_some_and(|(uri, key)| uri == spec.uri && key != current));
        match others.count() {
            0 => (Miss::NotCovered, "no entry".to_owned()),
            n => {
                let states = if n == 1 { "another state" } else { "other states" };
                (
                    Miss::SourceChanged,
                    format!("source changed: this spec was compiled here from {states} of its sources"),
                )
            }
        }
    }
}

fn damage(error: &StoreError) -> Miss {
    match error {
        StoreError::Damaged { .. } => Miss::Integrity,
        StoreError::OtherVersion { .. } => Miss::OtherVersion,
        StoreError::Untrusted(_) => Miss::Untrusted,
        _ => Miss::Unreadable,
    }
}
