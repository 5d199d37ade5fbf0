//! Answers to questions about specs: what the command line prints with `--json`, and what other languages are given.

use crate::decision::{Decision, Origin, Step};
use crate::error::Error;
use crate::goal::{Goal, Support};
use crate::library::{Library, OpId};
use crate::prepare::{Readied, Wanted};
use crate::tactic::{Block, TacticError};
use parbake_model::Key;
use parbake_model::identity::Spec;
use parbake_model::op::Op;
use serde::Serialize;
use std::time::Instant;

/// Whether and from where a spec would be served.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// How it would be served.
    pub support: Support,
    /// `family/op`.
    pub op: String,
    /// The spec, as a person writes it.
    pub spec: String,
    /// Its URI.
    pub uri: String,
    /// What it must run on, in words.
    pub runs_on: String,
    /// Why it does not exist.
    pub reason: Option<String>,
    /// What was looked at.
    pub searched: Vec<Step>,
    /// The commands that close the gap.
    pub help: Option<String>,
}

/// The three identities of a spec. The third needs a toolchain.
#[derive(Clone, Debug, Serialize)]
pub struct Identities {
    /// Names the spec; stays when kernels are edited.
    pub spec_id: Key,
    /// What an image must have been compiled from.
    pub source_key: Key,
    /// What an entry of the store must be.
    pub build_key: Option<Key>,
    /// Why there is no build key.
    pub no_build_key: Option<String>,
}

/// The whole decision about a spec, and what its identities are made of.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// `family/op`.
    pub op: String,
    /// The spec, as a person writes it.
    pub spec: String,
    /// Its URI.
    pub uri: String,
    /// The tactics that PARBAKE_TACTICS forces calls of the op to take, a diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced: Option<String>,
    /// None if the spec does not exist for the target, or is blocked.
    pub decision: Option<Decision>,
    /// Why it does not exist, or by what it is blocked.
    pub unsupported: Option<String>,
    /// The commands that close a gap.
    pub help: Option<String>,
    /// Its identities, field by field.
    pub identities: Identities,
}

/// What was made ready.
#[derive(Clone, Debug, Serialize)]
pub struct Preparation {
    /// Each spec, in the order of the request.
    pub ready: Vec<Readied>,
    /// How many were compiled for it.
    pub compiled: usize,
    /// How long it took.
    pub seconds: f64,
}

impl Library {
    /// Whether and from where a spec would be served; nothing is compiled or loaded.
    ///
    /// # Errors
    /// A bundle or source that cannot be read. That a spec does not exist, or is not covered, is an answer.
    pub fn supports(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Coverage, Error> {
        let name = self.definition(op).path();
        match self.explain(op, spec, goal) {
            Ok(decision) => Ok(found(name, decision)),
            Err(Error::Unsupported { spec: words, target, reason }) => {
                Ok(barred(Support::Unsupported, (name, words, spec.uri.clone()), target, reason))
            }
            Err(Error::Tactic(TacticError::Blocked(blocks))) => {
                let reason = blocks.iter().map(Block::words).collect::<Vec<_>>().join("; ");
                Ok(barred(Support::Blocked, (name, spec.to_string(), spec.uri.clone()), goal.words(), reason))
            }
            Err(error) => Err(error),
        }
    }

    /// From where a spec would be served and why not from elsewhere, with its identities field by field.
    ///
    /// # Errors
    /// As [`Library::supports`].
    pub fn why(&self, op: OpId, spec: &Spec, goal: Goal) -> Result<Explanation, Error> {
        let def = self.definition(op);
        let source_key = spec.source_key(def, self.sources_digest(op)?);
        let (decision, unsupported) = match self.explain(op, spec, goal) {
            Ok(decision) => (Some(decision), None),
            Err(e @ Error::Unsupported { .. }) => (None, Some(e.to_string())),
            Err(Error::Tactic(TacticError::Blocked(blocks))) => {
                (None, Some(blocks.iter().map(|b| format!("blocked: {}", b.words())).collect()))
            }
            Err(error) => return Err(error),
        };
        let (build_key, no_build_key) = match self.key_on_demand(def, &source_key, goal) {
            Ok(key) => (Some(key), None),
            Err(why) => (None, Some(why)),
        };
        Ok(Explanation {
            op: def.path(),
            spec: spec.to_string(),
            uri: spec.uri.clone(),
            forced: Some(self.forced.words(op, def)).filter(|words| !words.is_empty()),
            help: decision.as_ref().filter(|d| d.from.is_none()).map(Decision::remedy),
            decision,
            unsupported,
            identities: Identities { spec_id: spec.id_key(def), source_key, build_key, no_build_key },
        })
    }

    #[cfg(feature = "jit")]
    fn key_on_demand(&self, op: &Op, source_key: &Key, goal: Goal) -> Result<Key, String> {
        if !self.config.jit {
            return Err("not asked for: with JIT off any build of these sources that fits is taken".to_owned());
        }
        let toolchain = self.jit.on_demand(self, op.language, goal).map_err(|report| report.what)?;
        let (digest, profile) = (source_key.digest, self.config.profile);
        Ok(parbake_codegen::artifact::build_key(&*toolchain, op, digest, goal.target(), profile))
    }

    #[cfg(not(feature = "jit"))]
    fn key_on_demand(&self, _: &Op, _: &Key, _: Goal) -> Result<Key, String> {
        Err("this program has no compiler in it: any build of these sources that fits is taken".to_owned())
    }

    /// [`Library::prepare`], with what it took.
    ///
    /// # Errors
    /// As there.
    pub fn make_ready(&self, wanted: &[Wanted]) -> Result<Preparation, Error> {
        let start = Instant::now();
        let ready = self.prepare(wanted)?;
        let compiled = ready.iter().filter(|r| r.compile_ms.is_some()).count();
        Ok(Preparation { ready, compiled, seconds: start.elapsed().as_secs_f64() })
    }
}

fn barred(support: Support, (op, spec, uri): (String, String, String), runs_on: String, reason: String) -> Coverage {
    Coverage { support, op, spec, uri, runs_on, reason: Some(reason), searched: Vec::new(), help: None }
}

fn found(op: String, decision: Decision) -> Coverage {
    let support = match decision.from {
        Some(Origin::Bundle) => Support::Bundle,
        Some(Origin::Store) => Support::Store,
        Some(Origin::Jit | Origin::Registry) => Support::Jit,
        None => Support::NotCovered,
    };
    let help = (support == Support::NotCovered).then(|| decision.remedy());
    let Decision { spec, uri, runs_on, steps, .. } = decision;
    Coverage { support, op, spec, uri, runs_on, reason: None, searched: steps, help }
}
