//! Tuning: the tactics that are legal for a call, checked and measured beside each other.
//!
//! The launcher judges first: only what it offers for a shape is measured, in its order, and what it would take wins unless
//! another one is faster by more than chance. Nothing is kept here; a result is used where its file is named.

mod timer;

use crate::binding::{Choices, MAX_TACTICS, Tactic};
use crate::call::{Also, Prepared};
use crate::check;
use crate::code::Place;
use crate::driver;
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use crate::tactic::{Block, TacticError, machine};
use crate::trial::{Arguments, Outcome, Trial};
use parbake_model::identity::Spec;
use parbake_model::snippet::MAX_PARAMS;
use parbake_model::space;
use parbake_model::tuned::{Artifact, Candidate, Machine, Timing, Tuning};
use serde::Serialize;
use timer::Timer;

/// Microseconds that the launches of a sample take at least, together.
const SAMPLE_US: f64 = 1000.0;
const MOST_LAUNCHES: usize = 128;
/// Copies of the arguments that are made, so that no cache holds them all.
const MOST_COPIES: u64 = 64;
/// What another tactic must gain over the launcher's choice, as a share: less is chance.
const GAIN: f64 = 0.02;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Of the legal tactics only so many, the launcher's best.
    pub most: usize,
    /// Samples of each.
    pub samples: usize,
}

/// A tactic of the op with these axes, and what came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// `block=512 rows=1`.
    pub tactic: String,
    /// The spec's URI.
    pub uri: String,
    /// Its place in the launcher's order, from 1; none if the launcher does not offer it.
    pub rank: Option<usize>,
    /// What was measured.
    pub timing: Option<Timing>,
    /// Why nothing was.
    pub why: Option<String>,
}

/// What came of tuning one call.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tuned {
    /// Every tactic of `op.toml`: those that were measured in the launcher's order, then the others.
    pub rows: Vec<Row>,
    /// The fastest that is right; none if no tactic could be measured.
    pub best: Option<Tuning>,
}

/// A tactic that is legal for a call.
#[derive(Clone, Debug)]
pub struct Legal {
    /// The spec.
    pub spec: Spec,
    tactic: Tactic,
}

/// What is measured, ready to be launched.
struct Runner {
    row: usize,
    calls: Vec<Prepared>,
    graph: Option<crate::driver::graph::Graph>,
    launches: usize,
    samples: Vec<f64>,
}

impl Library {
    /// The tactics that are legal for a trial at a place, in the launcher's order, blocked or not.
    ///
    /// # Errors
    /// Arguments that do not fit; if there is no such device.
    pub fn legal(&self, op: OpId, trial: &Trial, place: Place) -> Result<Vec<Legal>, Error> {
        self.legal_for(op, &trial.arguments(self, op, place)?, self.goal(place)?)
    }

    fn legal_for(&self, op: OpId, arguments: &Arguments, goal: Goal) -> Result<Vec<Legal>, Error> {
        let (def, binding) = (self.definition(op), self.binding(op)?);
        let Arguments { tensors, scalars, .. } = arguments;
        let bound = check::check(def, self.signature(op), binding.check, tensors, scalars).map_err(Error::Arguments)?;
        let mut choices = Choices::default();
        let checked = check::checked(def, tensors, scalars, &bound, [0; MAX_PARAMS]);
        (binding.select)(&checked, goal.target(), &mut choices);
        let legal = |tactic: &Tactic| {
            let spec = self.spec_at(op, self.index(def, bound.axes(def), tactic)?);
            Ok(Legal { spec, tactic: *tactic })
        };
        choices.as_slice().iter().map(legal).collect()
    }

    /// What a result of measuring at a place is bound to.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn machine(&self, place: Place) -> Result<Machine, Error> {
        machine(place, self.goal(place)?)
    }

    /// Runs a trial with one of its legal tactics, whatever the launcher would take.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn try_tactic(
        &self,
        op: OpId,
        trial: &Trial,
        place: Place,
        tactic: &[(String, u32)],
    ) -> Result<Outcome, Error> {
        let mut only = Tactic([0; MAX_TACTICS]);
        for (place, declared) in only.0.iter_mut().zip(&self.definition(op).tactics) {
            let given = tactic.iter().find(|(name, _)| *name == declared.name);
            *place = given.map_or(declared.values[0], |(_, value)| *value);
        }
        trial.run_with(self, op, place, Some(&only))
    }

    /// Checks and measures the tactics of a trial. `say` is told what is about to run.
    ///
    /// # Errors
    /// Arguments that do not fit; a timer that does not measure there; what a device fails with. A tactic that is wrong,
    /// blocked or not covered is a row that says so.
    pub fn tune(
        &self,
        op: OpId,
        trial: &Trial,
        place: Place,
        effort: Effort,
        say: &dyn Fn(&str),
    ) -> Result<Tuned, Error> {
        let goal = self.goal(place)?;
        let mut timer = Timer::new(place, &self.config)?;
        let mut copies = vec![trial.arguments(self, op, place)?];
        let legal = self.legal_for(op, &copies[0], goal)?;
        let mut rows = self.rows(op, &legal, goal);
        for (row, tactic) in rows.iter_mut().zip(&legal) {
            row.why = match row.rank {
                Some(rank) if rank > effort.most => {
                    Some(format!("not measured: the launcher has {} before it", rank - 1))
                }
                _ => {
                    say(&row.tactic);
                    self.unfit(op, trial, place, tactic)?
                }
            };
        }
        while copies.len() < self.copies(place, copies[0].bytes()) {
            copies.push(trial.arguments(self, op, place)?);
        }
        let mut runners = Vec::new();
        for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.rank.is_some() && row.why.is_none()) {
            say(&row.tactic);
            runners.extend(self.runner(op, (i, &legal[i].tactic), &copies, place, &mut timer)?);
        }
        // In turn, so that a busy moment of the machine falls on all of them.
        for _ in 0..effort.samples.max(1) {
            for runner in &mut runners {
                say(&rows[runner.row].tactic);
                let sample = runner.sample(&mut timer)?;
                runner.samples.push(sample);
            }
        }
        for runner in &runners {
            rows[runner.row].timing = Some(runner.timing(&timer, copies.len()));
        }
        let best = self.best(op, trial, &legal, &rows, &runners, machine(place, goal)?);
        Ok(Tuned { rows, best })
    }

    /// All tactics of the op with the axes of the call: the legal ones first.
    fn rows(&self, op: OpId, legal: &[Legal], goal: Goal) -> Vec<Row> {
        let def = self.definition(op);
        let row = |spec: &Spec, rank, why| {
            let tactic = spec.tactic.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
            Row { tactic, uri: spec.uri.clone(), rank, timing: None, why }
        };
        let mut rows: Vec<Row> = legal.iter().enumerate().map(|(i, l)| row(&l.spec, Some(i + 1), None)).collect();
        let Some(example) = legal.first() else { return rows };
        for spec in space::alike(def, &example.spec) {
            if legal.iter().all(|l| l.spec.spec_id != spec.spec_id) {
                let why = match space::check(def, &spec, Some(goal.target())) {
                    Err(reason) => reason.0,
                    Ok(()) => "the launcher does not offer it for these arguments".to_owned(),
                };
                rows.push(row(&spec, None, Some(why)));
            }
        }
        rows
    }

    /// Runs a tactic once and says why it is not to be measured, if it is not.
    fn unfit(&self, op: OpId, trial: &Trial, place: Place, legal: &Legal) -> Result<Option<String>, Error> {
        match trial.run_with(self, op, place, Some(&legal.tactic)) {
            Ok(outcome) if outcome.ok => Ok(None),
            Ok(outcome) => Ok(Some(format!("wrong: {}", outcome.wrong.unwrap_or_default()))),
            Err(Error::Tactic(TacticError::Blocked(blocks))) => {
                Ok(Some(format!("blocked: {}", blocks.iter().map(Block::words).collect::<String>())))
            }
            Err(error @ (Error::NotCovered(_) | Error::Compile { .. } | Error::Host { .. })) => {
                Ok(Some(error.one_line()))
            }
            Err(error) => Err(error),
        }
    }

    /// How many copies of the arguments keep caches cold: twice what the device's holds, and no more than a quarter of
    /// its memory. The host target is not there for speed: there is one.
    fn copies(&self, place: Place, bytes: u64) -> usize {
        let Place::Cuda(ordinal) = place else { return 1 };
        let Ok((_, device)) = driver::device(ordinal) else { return 1 };
        let bytes = bytes.max(1);
        let cold = (2 * device.cache).div_ceil(bytes) + 1;
        cold.min(MOST_COPIES).min(device.memory / 4 / bytes).max(1) as usize
    }

    /// A tactic's calls on all copies, and how many launches a sample of it has.
    fn runner(
        &self,
        op: OpId,
        (row, tactic): (usize, &Tactic),
        copies: &[Arguments],
        place: Place,
        timer: &mut Timer,
    ) -> Result<Option<Runner>, Error> {
        let also = Also { only: Some(tactic), ..Also::default() };
        let call = |a: &Arguments| self.prepare_with(op, &a.tensors, &a.scalars, place, also).transpose();
        let calls = copies.iter().filter_map(call).collect::<Result<Vec<_>, _>>()?;
        if calls.is_empty() {
            return Ok(None);
        }
        let mut runner = Runner { row, launches: calls.len(), calls, graph: None, samples: Vec::new() };
        // The first launches load code and ask for leave; the second ones tell how long they take.
        runner.sample(timer)?;
        let once = runner.sample(timer)?.max(0.01);
        let wanted = (SAMPLE_US / once).ceil() as usize;
        runner.launches =
            wanted.clamp(1, MOST_LAUNCHES).max(runner.calls.len().min((20.0 * SAMPLE_US / once) as usize));
        let (calls, launches) = (&mut runner.calls, runner.launches);
        runner.graph = timer.graph_of(calls, launches);
        if runner.graph.is_some() {
            runner.sample(timer)?;
        }
        Ok(Some(runner))
    }

    /// The fastest, unless the launcher's first is as fast within chance.
    fn best(
        &self,
        op: OpId,
        trial: &Trial,
        legal: &[Legal],
        rows: &[Row],
        runners: &[Runner],
        machine: Machine,
    ) -> Option<Tuning> {
        let us = |r: &&Runner| rows[r.row].timing.as_ref().map_or(f64::INFINITY, |t| t.median_us);
        let first = runners.first()?;
        let fastest = runners.iter().min_by(|a, b| us(a).total_cmp(&us(b)))?;
        let best = if us(&fastest) < us(&first) * (1.0 - GAIN) { fastest } else { first };
        let (spec, kernel) = (&legal[best.row].spec, &best.calls[0].kernel);
        let def = self.definition(op);
        let given = def.tensors.iter().filter(|t| t.optional && trial.with.contains(&t.name));
        let candidate = |r: &Runner| Candidate { tactic: legal[r.row].spec.tactic.clone(), median_us: us(&r) };
        Some(Tuning {
            op: def.name.clone(),
            axes: spec.axes.clone(),
            dims: def.dims.iter().filter_map(|d| Some((d.name.clone(), *trial.dims.get(&d.name)?))).collect(),
            scalars: trial.scalars.clone(),
            given: given.map(|t| t.name.clone()).collect(),
            tactic: spec.tactic.clone(),
            machine,
            artifact: Artifact {
                spec_id: spec.spec_id,
                source_key: kernel.decision.source_key,
                build_key: kernel.build_key,
                image: kernel.image,
                toolkit: kernel.toolkit,
            },
            timing: rows[best.row].timing.clone()?,
            candidates: runners.iter().map(candidate).collect(),
        })
    }
}

impl Timer {
    /// So many launches, which take the copies in turn, as one graph.
    fn graph_of(&self, calls: &mut [Prepared], launches: usize) -> Option<crate::driver::graph::Graph> {
        let stream = self.stream();
        self.graph(|| launch_all(calls, launches, stream))
    }
}

fn launch_all(calls: &mut [Prepared], launches: usize, stream: crate::code::Stream) -> Result<(), Error> {
    let count = calls.len();
    for i in 0..launches {
        // SAFETY: the copies of the arguments outlive the runners, and a sample waits for its launches.
        unsafe { calls[i % count].launch(stream)? };
    }
    Ok(())
}

impl Runner {
    /// Microseconds of one launch.
    fn sample(&mut self, timer: &mut Timer) -> Result<f64, Error> {
        let (calls, graph, launches, stream) = (&mut self.calls, &self.graph, self.launches, timer.stream());
        let total = timer.time(|| match graph {
            // SAFETY: as for single launches.
            Some(graph) => unsafe { graph.launch(stream) }.map_err(Error::from),
            None => launch_all(calls, launches, stream),
        })?;
        Ok(total / launches as f64)
    }

    fn timing(&self, timer: &Timer, copies: usize) -> Timing {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| (sorted[((sorted.len() - 1) as f64 * share).round() as usize] * 1e4).round() / 1e4;
        Timing {
            timer: timer.name().to_owned(),
            launch: if self.graph.is_some() { "graph" } else { "eager" }.to_owned(),
            median_us: at(0.5),
            low_us: at(0.1),
            high_us: at(0.9),
            samples: sorted.len(),
            launches: self.launches,
            copies,
        }
    }
}
