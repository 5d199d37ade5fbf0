//! Random points at which a test kills a process, and the seed that makes the same ones again.

#![allow(clippy::print_stdout, reason = "the seed is said")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that holds the seed.
const SEED: &str = "PARBAKE_TEST_SEED";

/// Numbers by chance of a seed, which is said, so that a failure can be repeated.
pub(crate) struct Points(u64);

impl Points {
    /// Those of a test: of the seed that the environment names, else of another one each time.
    pub(crate) fn of(test: &str) -> Self {
        let seed = match std::env::var(SEED) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}: expected a number, got `{text}`")),
            Err(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
                // Short enough to be typed.
                Self(now ^ u64::from(std::process::id())).next() >> 32
            }
        };
        println!("{test}: the same points again: {SEED}={seed}");
        Self(seed)
    }

    /// One of so many, from 0.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// A part of a whole, less than all of it.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// SplitMix64: any seed will do.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Whether there are fewer of them.
pub(crate) fn quick() -> bool {
    std::env::var_os("PARBAKE_TEST_QUICK").is_some_and(|quick| quick == "1")
}
