//! What this process did so far.

use crate::decision::{Decision, Miss, Origin};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kernels loaded, by where they came from, what that cost, and why places had nothing. A registry hit is not counted:
/// it costs nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Stats {
    /// Loaded from a bundle.
    pub bundle: u64,
    /// Loaded from the store.
    pub store: u64,
    /// Compiled, then loaded.
    pub jit: u64,
    /// Look-ups that ended without a kernel.
    pub failed: u64,
    /// Microseconds spent compiling.
    pub compile_us: u64,
    /// Microseconds spent finding and loading.
    pub load_us: u64,
    /// Candidates and places that did not serve, by reason, over all look-ups that went on to the store or beyond.
    pub misses: BTreeMap<Miss, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 6], [AtomicU64; Miss::ALL.len()]);

impl Counters {
    pub(crate) fn loaded(&self, origin: Origin, compile_ms: f64, load_ms: f64) {
        let place = match origin {
            Origin::Bundle => 0,
            Origin::Store | Origin::Registry => 1,
            Origin::Jit => 2,
        };
        self.0[place].fetch_add(1, Ordering::Relaxed);
        self.0[4].fetch_add((compile_ms * 1e3) as u64, Ordering::Relaxed);
        self.0[5].fetch_add((load_ms * 1e3) as u64, Ordering::Relaxed);
    }
    pub(crate) fn failed(&self) {
        self.0[3].fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn missed(&self, decision: &Decision) {
        for miss in decision.steps.iter().filter_map(|step| step.miss) {
            self.1[miss as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn read(&self) -> Stats {
        let [bundle, store, jit, failed, compile_us, load_us] =
            [0, 1, 2, 3, 4, 5].map(|i: usize| self.0[i].load(Ordering::Relaxed));
        let counted = Miss::ALL.into_iter().map(|miss| (miss, self.1[miss as usize].load(Ordering::Relaxed)));
        let misses = counted.filter(|(_, count)| *count > 0).collect();
        Stats { bundle, store, jit, failed, compile_us, load_us, misses }
    }
}
