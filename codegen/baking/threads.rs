//! Making artifacts on the threads of this process, as a build script and tests do it.

use super::plan::{Job, Plan};
use crate::artifact::Made;
use parbake_model::report::Report;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// Does something with each of a list on some threads; results come back in its order.
///
/// # Panics
/// If the work panics.
pub fn on_threads<T: Sync, R: Send>(threads: usize, list: &[T], work: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = list.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, list.len().max(1)) {
            scope.spawn(|| {
                while let Some((each, slot)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    list.get(i).zip(results.get(i))
                } {
                    let result = work(each);
                    *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    let taken = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().map(|slot| taken(slot).expect("bug: one was left out")).collect()
}
