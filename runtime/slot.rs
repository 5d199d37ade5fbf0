//! A place in the registry: a kernel, or the threads that want it. One works, the others wait and say so.

use crate::code::Kernel;
use crate::error::Error;
use once_cell::sync::OnceCell;
use parbake_model::Report;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread waits for another one before that is said to all.
const PATIENCE: Duration = Duration::from_secs(1);

/// A kernel of the registry, and whose turn it is to load it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) kernel: OnceCell<Arc<Kernel>>,
    /// Whether a thread is at work, and whether a long wait for it was said.
    work: Mutex<(bool, bool)>,
    done: Condvar,
    /// When a compilation failed, and how.
    failure: Mutex<Option<(Instant, Failure)>>,
}

#[derive(Clone, Debug)]
struct Failure {
    uri: String,
    target: String,
    report: Report,
}

/// Held by the thread that is at work.
pub(crate) struct Turn<'a>(&'a Slot);

impl Slot {
    /// Waits until the kernel is there or it is this thread's turn. A long wait is said once, not by each thread.
    pub(crate) fn turn(&self, uri: &str) -> Option<Turn<'_>> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let mut noted = false;
        while self.kernel.get().is_none() && work.0 {
            if !std::mem::replace(&mut noted, true) {
                tracing::info!(uri, "waiting for another thread of this process that loads it");
            }
            let (next, waited) = self.done.wait_timeout(work, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            work = next;
            if waited.timed_out() && work.0 && !std::mem::replace(&mut work.1, true) {
                tracing::warn!(uri, "waiting for another thread of this process, which still loads it");
            }
        }
        if self.kernel.get().is_some() {
            return None;
        }
        *work = (true, false);
        Some(Turn(self))
    }

    /// The failure of a compilation that ended after a thread had begun to wait for it. What failed is tried again by
    /// whoever comes later; but sixty threads that wait do not find out one after the other.
    pub(crate) fn failure_since(&self, arrived: Instant) -> Option<Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, Failure { uri, target, report }) = failure.as_ref().filter(|(at, _)| *at > arrived)?.clone();
        Some(Error::Compile { uri, target, report: Box::new(report) })
    }

    /// Keeps the failure of a compilation for those who wait for it.
    pub(crate) fn remember(&self, error: &Error) {
        if let Error::Compile { uri, target, report } = error {
            let failure = Failure { uri: uri.clone(), target: target.clone(), report: (**report).clone() };
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), failure));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner).0 = false;
        self.0.done.notify_all();
    }
}
