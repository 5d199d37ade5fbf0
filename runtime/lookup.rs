//! Look-up: bundles, then the store; then the question whether it may be compiled. Every candidate is noted.

use crate::bundles::OpenBundle;
use crate::decision::{Decision, Origin};
use crate::error::Error;
use crate::goal::{Goal, Support};
use crate::library::{Library, OpId};
use crate::store::Artifact;
use parbake_model::bundle::Entry;
use parbake_model::identity::Spec;
use parbake_model::op::Op;
use parbake_model::target::Suffix;
use parbake_model::verdict::Image;
use parbake_model::{Digest, Target, Toolkit, space};

/// Where an image was found.
pub(crate) enum Candidate<'a> {
    Bundle(&'a OpenBundle, &'a Entry),
    Store(Box<Artifact>),
}

impl Library {
    /// How a spec would be served, without serving it: nothing is compiled, loaded or written, no device is touched.
    ///
    /// # Errors
    /// A spec that does not exist for the goal, or a bundle or source that cannot be read.
    pub fn explain(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Decision, Error> {
        let (mut decision, found) = self.find(op, spec, goal, true)?;
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
                let searched: Vec<&str> = report.details.iter().map(|(_, text)| text.as_str()).collect();
                let searched =
                    if searched.is_empty() { String::new() } else { format!("; searched {}", searched.join("; ")) };
                decision.note("jit", Some(goal.target()), format!("no toolchain: {}{searched}", report.what));
                false
            }
        }
    }

    #[cfg(not(feature = "jit"))]
    fn may_compile(&self, decision: &mut Decision, _: Goal) -> bool {
        decision.note("jit", None, "this build has no compiler (feature `jit`)");
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
            arch: if goal.target() == Target::Host { "host".to_owned() } else { goal.target().digits() },
            steps: Vec::new(),
            from: None,
            target: None,
        };
        if self.bundles.is_empty() {
            decision.note("bundles", None, "none: PARBAKE_BUNDLES is not set, and none is embedded");
        }
        for bundle in &self.bundles {
            if let Some(entry) = bundle.find(source_key, goal, thorough, &mut decision) {
                return Ok((decision, Some(Candidate::Bundle(bundle, entry))));
            }
        }
        let absence = |key| if thorough { self.store_absence(spec, key) } else { "no entry".to_owned() };
        let stored = self.find_stored(def, source_key, goal, &absence, &mut decision);
        Ok((decision, stored.map(|a| Candidate::Store(Box::new(a)))))
    }

    /// Looks in the store: for the exact build if it could be made here, otherwise for any that fits.
    fn find_stored(
        &self,
        def: &Op,
        source_key: Digest,
        goal: Goal,
        absence: &dyn Fn(Digest) -> String,
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
                    decision.note(place, Some(goal.target()), absence(source_key));
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
            decision.note(place, None, absence(source_key));
            return None;
        }
        let none = Toolkit { major: 0, minor: 0 };
        let image = |a: &Artifact| Image { target: a.metadata.target, toolkit: a.metadata.toolkit.unwrap_or(none) };
        let (best, trace) = goal.select(fitting.into_iter().map(|a| (image(&a), a)));
        decision.note_all(&place, trace);
        best
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
}
