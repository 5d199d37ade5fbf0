//! The API log, its dumps and their replay. Levels and settings are those of a process: what logs is this very program
//! run again, as `worker` with a job in `PARBAKE_TEST_JOB`.

#![cfg(feature = "jit")]
#![allow(clippy::print_stdout, reason = "workers answer on their output; skips are printed")]

#[path = "log/bounds.rs"]
mod bounds;
mod common;
#[path = "log/dumps.rs"]
mod dumps;
#[path = "log/hostile.rs"]
mod hostile;
#[path = "log/lines.rs"]
mod lines;
#[path = "log/work.rs"]
mod work;

#[test]
fn worker() {
    if let Ok(job) = std::env::var("PARBAKE_TEST_JOB") {
        work::run(&job);
    }
}
