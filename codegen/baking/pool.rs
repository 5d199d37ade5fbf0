//! Making artifacts in worker processes: a compiler that crashes, leaks or hangs costs one unit and not the bake.
//!
//! A worker reads a line for each unit from its standard input and answers with a line on its standard output; what it
//! says on standard error is passed on. It ends when its standard input does, so none outlives whoever started it.

#[cfg(test)]
mod tests;
mod worker;

use super::governor::Governor;
use parbake_model::Target;
use parbake_model::identity::Profile;
use parbake_model::lock::Locked;
use parbake_model::metadata::Metadata;
use parbake_model::report::{Class, Report};
use parbake_model::target::Toolkit;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use worker::{Words, Worker};

/// How often the pool looks at its workers when none of them says anything.
const TICK: Duration = Duration::from_millis(100);
/// A worker that has grown beyond this is replaced: what it holds is of no use to the next unit.
const GROWN_KIB: u64 = 768 << 10;
/// After so many failures no more units are begun: what is wrong is not the unit.
const MAX_FAILURES: usize = 20;

/// What a worker is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The spec.
    pub spec: Locked,
    /// What it is compiled for.
    pub target: Target,
    /// The toolkit, unless the default is wanted.
    pub toolkit: Option<Toolkit>,
    /// Which kind of build.
    pub profile: Profile,
    /// Where the image is written if the store does not take it.
    pub scratch: PathBuf,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Answer {
    /// It is ready for requests: the first line.
    Ready,
    /// What was asked for is there.
    Made(Box<Unit>),
    /// It cannot be made.
    Failed(Box<Report>),
}

/// An artifact that lies in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// What it is.
    pub metadata: Metadata,
    /// Where it lies.
    pub file: PathBuf,
    /// Whether it was compiled for this, and did not lie in the store.
    pub compiled: bool,
    /// The most memory that the worker had meanwhile, in KiB; 0 if it is not known.
    pub peak_kib: u64,
}

/// A unit that is to be made.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name for a person: spec and target.
    pub name: String,
    /// The request.
    pub request: Request,
    /// How much memory a worker needs for it, in KiB.
    pub need_kib: u64,
}

/// How work goes.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What was made just now, and the task's number; none at a tick.
    pub made: Option<(usize, &'a Unit)>,
    /// Workers at work.
    pub busy: usize,
    /// The memory of all workers together, in KiB.
    pub kib: u64,
    /// What a worker said on standard error.
    pub said: Option<&'a str>,
}

/// How a pool is run.
pub struct Pool<'a> {
    /// Workers at most.
    pub jobs: usize,
    /// Shares out memory.
    pub governor: Governor,
    /// How long a unit may take.
    pub limit: Duration,
    /// Starts a worker.
    pub worker: &'a dyn Fn() -> Command,
    /// Set by whoever wants the bake to end.
    pub stop: &'a AtomicBool,
    /// Is told how work goes.
    pub progress: &'a dyn Fn(&Progress<'_>),
}

/// How the work of a pool ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was made, by the number of the task.
    pub made: Vec<Option<Unit>>,
    /// What failed, by the number of the task.
    pub failed: Vec<(usize, Report)>,
    /// Whether it was stopped.
    pub stopped: bool,
    /// Tasks that were not begun, because too much failed or the work was stopped.
    pub left: usize,
}

impl Pool<'_> {
    /// Makes all tasks, in their order as far as memory allows. A task whose worker was killed, as happens to the largest
    /// process when memory runs out, is tried once more when nothing else runs.
    #[must_use]
    pub fn run(self, tasks: &[Task]) -> Outcome {
        let (send, words) = mpsc::channel();
        let mut work = Work {
            tasks,
            pool: &self,
            waiting: (0..tasks.len()).collect(),
            alone: VecDeque::new(),
            workers: Vec::new(),
            started: 0,
            outcome: Outcome { made: tasks.iter().map(|_| None).collect(), ..Outcome::default() },
        };
        loop {
            work.outcome.stopped |= self.stop.load(Ordering::Relaxed);
            if !work.outcome.stopped && work.outcome.failed.len() < MAX_FAILURES {
                while work.begin_next(&send) {}
            }
            if work.outcome.stopped || work.busy() == 0 {
                break;
            }
            let (made, said) = match words.recv_timeout(TICK) {
                Ok((from, Words::Line(line))) => (work.answer(from, &line), None),
                Ok((_, Words::Said(line))) => (None, Some(line)),
                Ok((from, Words::End)) => {
                    work.bury(from);
                    (None, None)
                }
                Err(_) => (None, None),
            };
            work.end_late();
            (self.progress)(&Progress {
                made: made.and_then(|task| Some((task, work.outcome.made[task].as_ref()?))),
                busy: work.busy(),
                kib: work.workers.iter().map(Worker::kib).sum(),
                said: said.as_deref(),
            });
        }
        let mut outcome = work.outcome;
        outcome.left = tasks.len() - outcome.made.iter().flatten().count() - outcome.failed.len();
        outcome.failed.sort_by_key(|(task, _)| *task);
        outcome
    }
}

/// Work under way.
struct Work<'a> {
    tasks: &'a [Task],
    pool: &'a Pool<'a>,
    waiting: VecDeque<usize>,
    /// Tasks that were killed beside others.
    alone: VecDeque<usize>,
    workers: Vec<Worker>,
    /// How many workers were started so far.
    started: u64,
    outcome: Outcome,
}

impl Work<'_> {
    fn busy(&self) -> usize {
        self.workers.iter().filter(|w| w.task.is_some()).count()
    }

    /// Hands out the next task, if there is one, and a worker and memory for it.
    fn begin_next(&mut self, words: &mpsc::Sender<(u64, Words)>) -> bool {
        let (busy, alone) = (self.busy(), self.waiting.is_empty());
        let Some(&task) = self.waiting.front().or(self.alone.front()) else { return false };
        if busy >= self.pool.jobs.max(1) || (alone && busy > 0) || !self.fits(task) {
            return false;
        }
        let idle = self.workers.iter_mut().find(|w| w.task.is_none() && !w.dismissed());
        let worker = match idle {
            Some(worker) => worker,
            None => match Worker::start((self.pool.worker)(), self.started, words) {
                Ok(worker) => {
                    self.started += 1;
                    self.workers.push(worker);
                    self.workers.last_mut().expect("bug: it was pushed")
                }
                Err(report) => {
                    self.give_up(task, report);
                    return false;
                }
            },
        };
        worker.begin(task, alone, &self.tasks[task].request);
        if alone {
            self.alone.pop_front()
        } else {
            self.waiting.pop_front()
        };
        true
    }

    /// Whether there is memory for one more. The first one always fits.
    fn fits(&self, next: usize) -> bool {
        let running = self.workers.iter().filter_map(|w| Some((self.tasks[w.task?.task].need_kib, w.kib())));
        let running: Vec<(u64, u64)> = running.collect();
        let idle: Vec<u64> = self.workers.iter().filter(|w| w.task.is_none()).map(Worker::kib).collect();
        running.is_empty() || self.pool.governor.admits(self.tasks[next].need_kib, &running, &idle)
    }

    /// Understands a line of a worker; gives the task that it has made.
    fn answer(&mut self, from: u64, line: &str) -> Option<usize> {
        let worker = self.workers.iter_mut().find(|w| w.serial == from)?;
        let mut made = None;
        match (serde_json::from_str(line), worker.task) {
            (Ok(Answer::Ready), _) if !worker.ready => worker.ready = true,
            (Ok(Answer::Made(unit)), Some(running)) if worker.ready => {
                worker.task = None;
                self.outcome.made[running.task] = Some(*unit);
                made = Some(running.task);
            }
            (Ok(Answer::Failed(report)), Some(running)) if worker.ready => {
                worker.task = None;
                self.outcome.failed.push((running.task, *report));
            }
            _ => worker.kill(&format!("it said {line:?}, which is no answer")),
        }
        if worker.task.is_none() && worker.kib() > GROWN_KIB {
            worker.dismiss();
        }
        made
    }

    /// A worker has ended, as it should or not.
    fn bury(&mut self, from: u64) {
        let Some(place) = self.workers.iter().position(|w| w.serial == from) else { return };
        let mut worker = self.workers.swap_remove(place);
        let Some(running) = worker.task.take() else { return };
        let death = worker.death();
        if death.memory && !running.alone && worker.ready {
            return self.alone.push_back(running.task);
        }
        let report = death.report(&self.tasks[running.task].name, worker.ready, running.alone);
        match worker.ready {
            true => self.outcome.failed.push((running.task, report)),
            // The next one would not start either.
            false => self.give_up(running.task, report),
        }
    }

    /// Kills workers whose task takes too long.
    fn end_late(&mut self) {
        for worker in &mut self.workers {
            if worker.task.is_some_and(|running| running.since.elapsed() > self.pool.limit) {
                worker.time_out(self.pool.limit);
            }
        }
    }

    /// Begins no more tasks.
    fn give_up(&mut self, task: usize, report: Report) {
        self.outcome.failed.push((task, report));
        self.waiting.clear();
        self.alone.clear();
    }
}

/// A unit that a worker is at.
#[derive(Clone, Copy, Debug)]
struct Running {
    task: usize,
    /// Whether it runs alone, because it was killed beside others.
    alone: bool,
    since: Instant,
}

/// How a worker came to its end.
#[derive(Debug)]
struct Death {
    /// In words.
    how: String,
    /// Whether it is what happens when memory runs out.
    memory: bool,
    /// Whether it took too long, and how long it had.
    limit: Option<Duration>,
    /// The last that it said.
    said: String,
}

impl Death {
    fn report(self, name: &str, ready: bool, alone: bool) -> Report {
        let report = if !ready {
            Report::new("PB-1151", Class::Environment, "a worker process does not start")
                .help("run `parbake worker </dev/null`: it should say that it is ready, and end")
        } else if let Some(limit) = self.limit {
            Report::new(
                "PB-1514",
                Class::Failed,
                format!("{name} did not end within {limit:?}, and its worker was killed"),
            )
            .help("PARBAKE_COMPILE_TIMEOUT states another limit")
        } else if self.memory && alone {
            Report::new("PB-1525", Class::Environment, format!("{name} ran out of memory, also when it ran alone"))
                .help("make room, or state a budget with --memory if the machine has more")
        } else {
            Report::new(
                "PB-1526",
                Class::Failed,
                format!("the compiler of {name} crashed; the other units are not touched"),
            )
            .help("run it again; if it crashes again, try another --toolkit")
        };
        let report = report.with("how", self.how);
        if self.said.is_empty() { report } else { report.with("said", self.said) }
    }
}
