//! Calls: arguments are checked, a tactic is chosen, a kernel is found, and it is launched.

use crate::binding::{Choices, Launch, MAX_TACTICS, Problem, Tactic};
use crate::check;
use crate::code::{Kernel, Place, Stream};
use crate::decision::{Miss, Origin};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use crate::load::registry_key;
use crate::log;
use crate::snippet::Value;
use crate::tactic::{Chosen, Hit, TacticError, words};
use crate::tensor::Tensor;
use parbake_model::Target;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::op::{Op, Role};
use parbake_model::snippet::MAX_PARAMS;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a call may have beside its arguments.
#[derive(Clone, Copy, Default)]
pub(crate) struct Also<'a> {
    /// What the parameters of a snippet are given.
    pub(crate) values: &'a [(&'a str, Value)],
    /// A tactic that is taken before those that are better, if it is legal.
    pub(crate) tactic: Option<&'a Tactic>,
    /// The one tactic that may be taken.
    pub(crate) only: Option<&'a Tactic>,
}

/// What a call used.
#[derive(Clone, Debug)]
pub struct Called {
    /// The kernel; none if there was nothing to do.
    pub kernel: Option<Arc<Kernel>>,
    /// Where it came from for this call.
    pub from: Origin,
}

/// A call whose arguments were checked and whose kernel was found.
#[derive(Debug)]
pub struct Prepared {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Where it came from.
    pub from: Origin,
    pub(crate) tactic: Tactic,
    pub(crate) chosen: Chosen,
    pub(crate) launch: Launch,
}

impl Prepared {
    /// Launches it.
    ///
    /// # Errors
    /// What the driver says, or the rule that the kernel broke on the host target.
    ///
    /// # Safety
    /// The memory of every tensor that was given is still valid, until `stream` has passed the work.
    pub unsafe fn launch(&mut self, stream: Stream) -> Result<(), Error> {
        // SAFETY: the caller vouches for the memory, and the launcher derived its pointers from the checked tensors.
        unsafe { self.kernel.launch(&mut self.launch, stream) }
    }
}

impl Library {
    /// Calls an op on memory that the caller vouches for.
    ///
    /// Arguments are given in the op's order: outputs, inputs; then scalars. They are checked first; after an error
    /// nothing was launched. Zero rows are no work, and no error.
    ///
    /// # Errors
    /// Arguments that do not fit; no kernel; a launch that failed.
    ///
    /// With the API log at level 5 or 10 the call waits for its kernel, and what that fails with is this call's error.
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
        // SAFETY: the caller vouches for the memory.
        unsafe { self.call_with(op, tensors, scalars, place, stream, Also::default()) }
    }

    /// [`Library::call`] with a snippet: its number is the scalar of the open axis, and each of its parameters has a value.
    ///
    /// # Errors
    /// As [`Library::call`]; a parameter without a value, or a value of none.
    ///
    /// # Safety
    /// As for [`Library::call`], also for the tensors among the values.
    pub unsafe fn call_snippet(
        &self,
        op: OpId,
        (tensors, scalars): (&[Tensor], &[f64]),
        values: &[(&str, Value)],
        place: Place,
        stream: Stream,
    ) -> Result<Called, Error> {
        // SAFETY: the caller vouches for the memory.
        unsafe { self.call_with(op, tensors, scalars, place, stream, Also { values, ..Also::default() }) }
    }

    /// [`Library::call`] with more than its arguments.
    ///
    /// # Safety
    /// As for [`Library::call`].
    #[inline]
    pub(crate) unsafe fn call_with(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
        stream: Stream,
        also: Also<'_>,
    ) -> Result<Called, Error> {
        // All that the API log costs where it is off.
        if log::on() {
            // SAFETY: the caller vouches for the memory.
            return unsafe { self.call_logged(op, tensors, scalars, place, stream, also) };
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { self.call_unlogged(op, tensors, scalars, place, stream, also) }
    }

    /// # Safety
    /// As for [`Library::call`].
    #[inline]
    pub(crate) unsafe fn call_unlogged(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
        stream: Stream,
        also: Also<'_>,
    ) -> Result<Called, Error> {
        let Some(mut prepared) = self.prepare_with(op, tensors, scalars, place, also)? else {
            return Ok(Called { kernel: None, from: Origin::Registry });
        };
        if prepared.from == Origin::Jit {
            prepared.kernel.warn_if_captured(&self.definition(op).name, stream);
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { prepared.launch(stream)? };
        Ok(Called { kernel: Some(prepared.kernel), from: prepared.from })
    }

    /// Checks arguments and finds the kernel for them, once for many launches on the same memory; `None` if there is
    /// nothing to do.
    ///
    /// # Errors
    /// As [`Library::call`], except that nothing is launched.
    pub fn prepare_call(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
    ) -> Result<Option<Prepared>, Error> {
        self.prepare_with(op, tensors, scalars, place, Also::default())
    }

    #[inline]
    pub(crate) fn prepare_with(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
        also: Also<'_>,
    ) -> Result<Option<Prepared>, Error> {
        let binding = self.binding(op)?;
        let def = self.definition(op);
        let bound = check::check(def, self.signature(op), binding.check, tensors, scalars).map_err(Error::Arguments)?;
        let values = self.values(op, bound.axes(def), tensors, also.values)?;
        let mut written = def.tensors.iter().zip(tensors).filter(|(t, _)| t.role != Role::In);
        if written.all(|(_, t)| t.is_empty()) {
            return Ok(None);
        }
        let goal = self.goal(place)?;
        let checked = check::checked(def, tensors, scalars, &bound, values);
        let mut choices = Choices::default();
        (binding.select)(&checked, goal.target(), &mut choices);
        if let Some(tactic) = also.tactic {
            choices.prefer(tactic);
        }
        let mut chosen = Chosen::Launcher;
        if !self.forced.is_empty() && self.forced.narrow(op, def, &mut choices)? {
            chosen = Chosen::Forced;
        }
        if let Some(only) = also.only {
            self.narrow(def, only, &mut choices)?;
            chosen = Chosen::Forced;
        }
        let axes = bound.axes(def);
        if !self.tuned.is_empty()
            && also.tactic.is_none()
            && chosen == Chosen::Launcher
            && let Some(hit) = self.tuned_for(op, axes, checked.dims, place, goal)?
            && let Some((kernel, tactic, from)) = self.choose_tuned(op, axes, &hit, choices, (place, goal))?
        {
            let launch = (binding.arrange)(&checked, &tactic);
            return Ok(Some(Prepared { kernel, launch, tactic, chosen: Chosen::Tuned, from }));
        }
        let (kernel, tactic, from) = self.choose(op, axes, &choices, place, goal)?;
        Ok(Some(Prepared { kernel, launch: (binding.arrange)(&checked, &tactic), tactic, chosen, from }))
    }

    fn narrow(&self, def: &Op, only: &Tactic, choices: &mut Choices) -> Result<(), TacticError> {
        let legal = *choices;
        choices.keep(|tactic| tactic == only);
        if choices.as_slice().is_empty() {
            let legal = legal.as_slice().iter().map(|t| words(def, t)).collect::<Vec<_>>().join("; ");
            return Err(TacticError::NotLegal { op: def.name.clone(), forced: words(def, only), legal });
        }
        Ok(())
    }

    /// The kernel of a tuned result, if it is what serves and what was measured.
    fn choose_tuned(
        &self,
        op: OpId,
        axes: &[usize],
        hit: &Hit,
        mut choices: Choices,
        (place, goal): (Place, Goal),
    ) -> Result<Option<(Arc<Kernel>, Tactic, Origin)>, Error> {
        choices.prefer(&hit.tactic);
        if choices.as_slice().first() != Some(&hit.tactic) {
            return Ok(None);
        }
        let (kernel, tactic, from) = self.choose(op, axes, &choices, place, goal)?;
        Ok((tactic == hit.tactic && hit.is_of(&kernel)).then_some((kernel, tactic, from)))
    }

    /// The specs that a call with these arguments may use, best first.
    ///
    /// # Errors
    /// Arguments that do not fit.
    pub fn choices(&self, op: OpId, tensors: &[Tensor], scalars: &[f64], target: Target) -> Result<Vec<Spec>, Error> {
        let binding = self.binding(op)?;
        let def = self.definition(op);
        let bound = check::check(def, self.signature(op), binding.check, tensors, scalars).map_err(Error::Arguments)?;
        let mut choices = Choices::default();
        (binding.select)(&check::checked(def, tensors, scalars, &bound, [0; MAX_PARAMS]), target, &mut choices);
        let axes = bound.axes(def);
        choices.as_slice().iter().map(|t| Ok(self.spec_at(op, self.index(def, axes, t)?))).collect()
    }

    /// The problem that a call with these arguments poses to the reference. `inputs` are the values of the tensors that
    /// are read.
    ///
    /// # Errors
    /// Arguments that do not fit.
    pub(crate) fn problem(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        inputs: BTreeMap<String, Vec<f64>>,
    ) -> Result<Problem, Error> {
        let def = self.definition(op);
        let rules = self.binding(op)?.check;
        let bound = check::check(def, self.signature(op), rules, tensors, scalars).map_err(Error::Arguments)?;
        let checked = check::checked(def, tensors, scalars, &bound, [0; MAX_PARAMS]);
        let given = def.tensors.iter().zip(tensors).filter(|(_, t)| !t.is_absent());
        Ok(Problem {
            dims: def.dims.iter().map(|d| (d.name.clone(), checked.dim(&d.name))).collect(),
            // The reference takes what the kernel gets.
            scalars: def.scalars.iter().zip(scalars).map(|(s, v)| (s.name.clone(), s.kind.rounded(*v))).collect(),
            inputs,
            dtype: check::output_dtype(def, tensors),
            dtypes: given.map(|(def, t)| (def.name.clone(), t.dtype)).collect(),
        })
    }

    pub(crate) fn index(&self, def: &Op, axes: &[usize], tactic: &Tactic) -> Result<SpecIndex, Error> {
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

    /// The first choice that is not blocked; where nothing can be compiled the first that is covered.
    fn choose(
        &self,
        op: OpId,
        axes: &[usize],
        choices: &Choices,
        place: Place,
        goal: Goal,
    ) -> Result<(Arc<Kernel>, Tactic, Origin), Error> {
        let def = self.definition(op);
        // The best is the first that is not blocked.
        let (mut first_gap, mut best) = (None, true);
        for tactic in choices.as_slice() {
            let index = self.index(def, axes, tactic)?;
            let key = registry_key(op, index, place);
            if let Some(kernel) = self.loaded(key) {
                return Ok((kernel, *tactic, Origin::Registry));
            }
            if self.blocked.barred(key) {
                continue;
            }
            // A program asks for the best of its choices; another one counts if it serves.
            if self.uncovered.read().is_ok_and(|u| u.contains(&key)) {
                if best {
                    self.record_uncovered(op, index, goal.target());
                }
                best = false;
                continue;
            }
            let loaded = self.load(op, &self.spec_at(op, index), key, place, goal);
            if let Err(Error::Tactic(TacticError::Blocked(blocks))) = &loaded {
                self.blocked.bar(key, &blocks[0]);
                continue;
            }
            if best || loaded.is_ok() {
                self.record(op, index, goal.target(), loaded.as_ref().map(|kernel| kernel.origin));
            }
            match loaded {
                Ok(kernel) => {
                    if !best {
                        tracing::info!(op = def.name, tactic = ?tactic.0, "the best tactic is not covered; using the next that is");
                    }
                    let origin = kernel.origin;
                    return Ok((kernel, *tactic, origin));
                }
                // Not covered, and it may not or cannot be compiled: the next best may be covered.
                Err(gap @ Error::NotCovered(_)) => {
                    // With JIT a compiler may be installed meanwhile; without, neither bundles nor what was read of the
                    // store change by themselves. What could not be read may be there the next time.
                    let Error::NotCovered(decision) = &gap else { unreachable!("bug: it was just matched") };
                    let passing = decision.steps.iter().any(|s| s.miss == Some(Miss::Unreadable));
                    if !self.config.jit
                        && !passing
                        && let Ok(mut uncovered) = self.uncovered.write()
                    {
                        uncovered.insert(key);
                    }
                    first_gap = first_gap.or(Some(gap));
                    best = false;
                }
                Err(e) => return Err(e),
            }
        }
        if let Some(gap) = first_gap {
            return Err(gap);
        }
        // Every choice was found uncovered or blocked before: look again, for somebody may have prepared the best that is
        // not blocked, and say what is missing if nobody has.
        let mut blocks = Vec::new();
        for tactic in choices.as_slice() {
            let index = self.index(def, axes, tactic)?;
            let key = registry_key(op, index, place);
            match self.load(op, &self.spec_at(op, index), key, place, goal) {
                Err(Error::Tactic(TacticError::Blocked(block))) => blocks.extend(block),
                loaded => {
                    let kernel = loaded?;
                    if let Ok(mut uncovered) = self.uncovered.write() {
                        uncovered.remove(&key);
                    }
                    let origin = kernel.origin;
                    return Ok((kernel, *tactic, origin));
                }
            }
        }
        Err(TacticError::Blocked(blocks).into())
    }
}
