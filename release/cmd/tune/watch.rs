//! Watches over what runs in this process: a kernel that does not end cannot be ended, but the process can.

use crate::output::{Failure, Output};
use parbake_model::report::{Class, Report};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

struct State {
    tactic: String,
    since: Instant,
    over: bool,
}

/// Ends the process if a tactic takes too long, until it is dropped.
pub(super) struct Watch(Arc<(Mutex<State>, Condvar)>);

impl Watch {
    pub(super) fn start(point: String, limit: Duration, out: Output) -> Self {
        let state = State { tactic: "its arguments".to_owned(), since: Instant::now(), over: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let watched = shared.clone();
        std::thread::spawn(move || {
            let (state, changed) = &*watched;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.over {
                let left = limit.saturating_sub(state.since.elapsed());
                if left.is_zero() {
                    end(&point, &state.tactic, limit, out);
                }
                state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        Self(shared)
    }

    /// A tactic begins.
    pub(super) fn at(&self, tactic: &str) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.tactic, state.since) = (tactic.to_owned(), Instant::now());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.0.1.notify_all();
    }
}

fn end(point: &str, tactic: &str, limit: Duration, out: Output) -> ! {
    let report = Report::new("PB-2230", Class::Failed, "a tactic does not end")
        .with("of", point)
        .with("tactic", tactic)
        .with("expected", format!("an end within {} s (`--limit`)", limit.as_secs()))
        .help(
            "`parbake tune … --probe --out blocked.json` finds all that hang; then set PARBAKE_BLOCKLIST to that file",
        );
    out.fail(&Failure::from(report));
    std::process::exit(1)
}
