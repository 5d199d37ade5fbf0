//! Preparing: what a job needs is found or compiled before it starts, in parallel, and every gap is told at once.

use crate::code::Place;
use crate::decision::{Decision, Origin};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use crate::tactic::Seen;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::lock::{Lock, Locked};
use parbake_model::{Target, space};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a spec is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Site {
    /// In this process, loaded: a call then finds it in the registry.
    Place(Place),
    /// On some machine with this target: it is made sure that a bundle or the store has it; nothing is loaded.
    Target(Target),
}

/// A spec that will be needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The op.
    pub op: OpId,
    /// The spec.
    pub spec: Spec,
    /// Where.
    pub site: Site,
}

/// A spec that is ready.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Readied {
    /// The spec, as a person writes it.
    pub spec: String,
    /// Its URI.
    pub uri: String,
    /// What its image was compiled for.
    pub target: Target,
    /// Where it came from.
    pub from: Origin,
    /// What it cost to compile, if it was compiled for this.
    pub compile_ms: Option<f64>,
}

impl Library {
    /// Makes sure that specs can be served: loads them, or for a target has them in a bundle or the store. Compiles what
    /// is missing on as many threads as `PARBAKE_JOBS` says. Results come back in the order of the request.
    ///
    /// Every spec is judged before anything is loaded or compiled: if some have no way to be served, nothing is done.
    ///
    /// # Errors
    /// [`Error::Gaps`] with all specs that nothing covers, which may not or cannot be compiled; [`Error::Several`] with
    /// whatever else failed. What did not fail is ready nevertheless.
    pub fn prepare(&self, wanted: &[Wanted]) -> Result<Vec<Readied>, Error> {
        let (mut gaps, mut failures) = (Vec::new(), Vec::new());
        for each in wanted {
            match self.gap(each) {
                Ok(gap) => gaps.extend(gap),
                Err(error) => failures.push(error),
            }
        }
        if !gaps.is_empty() && failures.is_empty() {
            return Err(Error::Gaps { gaps, wanted: wanted.len() });
        }
        if !failures.is_empty() {
            if !gaps.is_empty() {
                failures.push(Error::Gaps { gaps, wanted: wanted.len() });
            }
            return Err(several(failures));
        }
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<Readied, Error>>>> = wanted.iter().map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.config.jobs.clamp(1, wanted.len().max(1)) {
                scope.spawn(|| {
                    while let Some((each, slot)) = {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        wanted.get(i).zip(results.get(i))
                    } {
                        let result = self.ready(each);
                        *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
                    }
                });
            }
        });
        let (mut readied, mut failures) = (Vec::new(), Vec::new());
        for result in results {
            match result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
                Some(Ok(ready)) => readied.push(ready),
                Some(Err(error)) => failures.push(error),
                None => unreachable!("bug: a spec was not prepared"),
            }
        }
        if failures.is_empty() { Ok(readied) } else { Err(several(failures)) }
    }

    /// Every legal tactic of an op with these axis and tactic values that is not blocked, at every site.
    ///
    /// # Errors
    /// An unknown name or value, or an axis without a value; a site where no tactic exists, or all are blocked.
    pub fn tactics(&self, op: OpId, values: &[(String, String)], sites: &[Site]) -> Result<Vec<Wanted>, Error> {
        let def = self.definition(op);
        // One spec with these values must exist: that judges names and values.
        let example = self.spec(op, values, Target::Host)?;
        let fits = |name: &str, value: &str| values.iter().all(|(n, v)| n != name || v == value);
        let mut wanted = Vec::new();
        for &site in sites {
            let target = self.goal_at(site)?.target();
            let before = wanted.len();
            for spec in space::alike(def, &example) {
                let chosen = spec.tactic.iter().all(|(n, v)| fits(n, &v.to_string()));
                if chosen
                    && space::check(def, &spec, Some(target)).is_ok()
                    && self.wants(op, &spec, self.goal_at(site)?)
                {
                    wanted.push(Wanted { op, spec, site });
                }
            }
            if wanted.len() == before {
                // One that exists is not wanted because it is blocked.
                for spec in
                    space::alike(def, &example).into_iter().filter(|s| space::check(def, s, Some(target)).is_ok())
                {
                    self.allowed(op, &spec, self.goal_at(site)?, Seen::Spec)?;
                }
                let reason = space::check(def, &example, Some(target)).err();
                let reason = reason.map_or("no tactic is legal".into(), |u| u.0);
                return Err(Error::Unsupported { spec: example.to_string(), target: target.to_string(), reason });
            }
        }
        Ok(wanted)
    }

    /// The specs of a lock, each at those of the given sites that it is wanted for. What is blocked there is left out.
    ///
    /// # Errors
    /// A site without a device; [`Error::Lock`] with every spec that this library does not have: the op is gone, lost a value or has other options.
    pub fn locked(&self, lock: &Lock, sites: &[Site]) -> Result<Vec<Wanted>, Error> {
        let goals = sites.iter().map(|&site| Ok((site, self.goal_at(site)?.target())));
        let goals = goals.collect::<Result<Vec<_>, Error>>()?;
        let mut wanted = Vec::new();
        for (locked, (op, spec)) in lock.specs.iter().zip(self.resolved(lock)?) {
            for &(site, target) in goals.iter().filter(|(_, target)| lock.asks(locked, *target)) {
                // That one is not of this target is for preparing to say.
                if space::check(self.definition(op), &spec, Some(target)).is_err()
                    || self.wants(op, &spec, self.goal_at(site)?)
                {
                    wanted.push(Wanted { op, spec: spec.clone(), site });
                }
            }
        }
        Ok(wanted)
    }

    /// The specs of a lock, in its order, each with its op.
    ///
    /// # Errors
    /// As [`Library::locked`].
    pub fn resolved(&self, lock: &Lock) -> Result<Vec<(OpId, Spec)>, Error> {
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for locked in &lock.specs {
            match self.resolve(locked) {
                Ok(pair) => found.push(pair),
                Err(why) => unknown.push((locked.to_string(), why)),
            }
        }
        if unknown.is_empty() { Ok(found) } else { Err(Error::Lock { unknown }) }
    }

    /// A lock of everything that was loaded so far: what this job needed, for the next one to prepare.
    #[must_use]
    pub fn used(&self) -> Lock {
        let kernels = self.kernels.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded: Vec<_> = kernels.values().filter_map(|slot| slot.kernel.get()).collect();
        Lock::of(loaded.iter().map(|kernel| (Locked::from(&kernel.spec), kernel.wanted)))
    }

    fn resolve(&self, locked: &Locked) -> Result<(OpId, Spec), String> {
        let op = self.op(&locked.op).map_err(|error| error.to_string())?;
        let def = self.definition(op);
        let names = |spec: &Locked| {
            spec.axes
                .iter()
                .map(|(n, _)| n.clone())
                .chain(spec.tactic.iter().map(|(n, _)| n.clone()))
                .collect::<Vec<_>>()
        };
        let expected: Vec<String> =
            def.axes.iter().map(|a| a.name.clone()).chain(def.tactics.iter().map(|t| t.name.clone())).collect();
        if names(locked) != expected {
            return Err(format!("the op has {}", expected.join(", ")));
        }
        let axes = def.axes.iter().zip(&locked.axes).map(|(axis, (_, value))| {
            let found = match &locked.snippet {
                Some(snippet) if axis.open.is_some() && snippet.value() == *value => Some(0),
                _ => axis.values.iter().position(|v| &v.value == value),
            };
            found.ok_or_else(|| format!("the op has no {}={value}", axis.name))
        });
        let axes = axes.collect::<Result<Vec<_>, _>>()?;
        let tactic = def.tactics.iter().zip(&locked.tactic).map(|(tactic, (_, value))| {
            let found = tactic.values.iter().position(|v| v == value);
            found.ok_or_else(|| format!("the op has no {}={value}", tactic.name))
        });
        let tactic = tactic.collect::<Result<Vec<_>, _>>()?;
        let index: SpecIndex = Spec::index(def, &axes, &tactic);
        let mut spec = Spec::at(def, index);
        if let Some(snippet) = &locked.snippet {
            spec = spec.with_snippet(def, (**snippet).clone()).map_err(|e| e.report().to_string())?;
        }
        match spec.spec_id == locked.spec_id {
            true => Ok((op, spec)),
            false => Err(format!("the op has other options: its identity is {}", spec.spec_id.short(12))),
        }
    }

    fn goal_at(&self, site: Site) -> Result<Goal, Error> {
        match site {
            Site::Place(place) => self.goal(place),
            Site::Target(Target::Host) => Ok(Goal::Host),
            Site::Target(target) => Ok(Goal::Target(target)),
        }
    }

    /// The decision on a spec that nothing can serve.
    fn gap(&self, wanted: &Wanted) -> Result<Option<Decision>, Error> {
        if let Site::Place(place) = wanted.site
            && self.hit(self.id(wanted.op, &wanted.spec)?, place).is_some()
        {
            return Ok(None);
        }
        let goal = self.goal_at(wanted.site)?;
        let (_, found) = self.find(wanted.op, &wanted.spec, goal, false)?;
        if found.is_some() {
            return Ok(None);
        }
        let decision = self.explain(wanted.op, &wanted.spec, goal)?;
        if decision.from.is_some() {
            return Ok(None);
        }
        let gap = Error::NotCovered(Box::new(decision));
        self.record(wanted.op, self.id(wanted.op, &wanted.spec)?.index, goal.target(), Err(&gap));
        let Error::NotCovered(decision) = gap else { unreachable!("bug: it was just made") };
        Ok(Some(*decision))
    }

    fn ready(&self, wanted: &Wanted) -> Result<Readied, Error> {
        let Wanted { op, spec, site } = wanted;
        let (target, from, compile_ms) = match *site {
            Site::Place(place) => {
                let (kernel, from) = self.kernel(*op, spec, place)?;
                let target = kernel.decision.target.expect("bug: a loaded kernel has a target");
                (target, from, kernel.compile_ms.filter(|_| from == Origin::Jit))
            }
            Site::Target(_) => {
                let goal = self.goal_at(*site)?;
                let provided = self.provide(*op, spec, goal);
                let outcome = provided.as_ref().map(|&(_, from, _)| from);
                self.record(*op, self.id(*op, spec)?.index, goal.target(), outcome);
                provided?
            }
        };
        Ok(Readied { spec: spec.to_string(), uri: spec.uri.clone(), target, from, compile_ms })
    }
}

/// One error as it is, more of them as one.
fn several(mut errors: Vec<Error>) -> Error {
    if errors.len() == 1 { errors.remove(0) } else { Error::Several(errors) }
}
