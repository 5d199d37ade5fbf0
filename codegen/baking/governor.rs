//! How much may be compiled at once: memory is shared out by what each unit needs, which is learned.

use crate::toolchain::memory;

/// Decides whether there is memory for one more unit.
#[derive(Clone, Copy, Debug)]
pub struct Governor {
    /// What this process and all workers may take together, in KiB; else what is free decides.
    pub limit_kib: Option<u64>,
}

impl Governor {
    /// Whether a unit that needs `next` may begin beside running ones (what each needs, and what it has now) and idle
    /// workers (what each has now), one of which would take it. All in KiB.
    #[must_use]
    pub fn admits(&self, next: u64, running: &[(u64, u64)], idle: &[u64]) -> bool {
        let own = memory::resident_kib("self").map_or(0, |m| m.now);
        self.decide(memory::available().map(|bytes| bytes / 1024), own, next, running, idle)
    }

    fn decide(&self, free: Option<u64>, own: u64, next: u64, running: &[(u64, u64)], idle: &[u64]) -> bool {
        // Whoever takes it has something already.
        let (taker, others) = idle.split_first().map_or((0, &[][..]), |(taker, others)| (*taker, others));
        if let Some(limit) = self.limit_kib {
            let running: u64 = running.iter().map(|&(needs, has)| needs.max(has)).sum();
            return own + running + next.max(taker) + others.iter().sum::<u64>() <= limit;
        }
        let growth: u64 = running.iter().map(|&(needs, has)| needs.saturating_sub(has)).sum();
        free.is_none_or(|free| growth + next.saturating_sub(taker) <= memory::spare(free * 1024) / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024;

    #[test]
    fn a_unit_begins_if_what_is_needed_fits() {
        let free = Governor { limit_kib: None };
        let decide = |free_mib: u64, next, running: &[(u64, u64)], idle: &[u64]| {
            free.decide(Some(free_mib * MIB), 50 * MIB, next, running, idle)
        };
        // An eighth, at least 256 MiB, is left to others.
        assert!(decide(1000, 700 * MIB, &[], &[]) && !decide(1000, 800 * MIB, &[], &[]));
        assert!(decide(16000, 13000 * MIB, &[], &[]) && !decide(16000, 15000 * MIB, &[], &[]));
        // What runs will grow to what it needs; what it has is no longer free.
        assert!(!decide(1000, 400 * MIB, &[(500 * MIB, 100 * MIB)], &[]));
        assert!(decide(1000, 400 * MIB, &[(500 * MIB, 450 * MIB)], &[]));
        assert!(decide(1000, 800 * MIB, &[], &[200 * MIB]));
        assert!(free.decide(None, 0, u64::MAX, &[], &[]));

        let limited = Governor { limit_kib: Some(500 * MIB) };
        let decide =
            |next, running: &[(u64, u64)], idle: &[u64]| limited.decide(Some(0), 50 * MIB, next, running, idle);
        assert!(decide(200 * MIB, &[(200 * MIB, 20 * MIB)], &[]));
        assert!(!decide(200 * MIB, &[(260 * MIB, 20 * MIB)], &[]));
        // One that took more than was thought counts with what it has; idle ones count too.
        assert!(!decide(200 * MIB, &[(200 * MIB, 300 * MIB)], &[]));
        assert!(decide(200 * MIB, &[(200 * MIB, 20 * MIB)], &[150 * MIB]));
        assert!(!decide(200 * MIB, &[(200 * MIB, 20 * MIB)], &[150 * MIB, 100 * MIB]));
    }
}
