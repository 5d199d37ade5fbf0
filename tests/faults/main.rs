//! Faults of machines: killed processes, lying compilers, full disks, network file systems, clocks that jump. None of
//! them loses work, hangs, or gets a kernel run that is not what it should be.
//!
//! Processes that are to be killed, or to be run under a preload library, are this very program run again: `worker`
//! does what `PARBAKE_TEST_JOB` says and prints one line for each kernel.

#![cfg(feature = "jit")]
#![allow(clippy::print_stdout, reason = "workers answer on their output; skips are printed")]

mod compilers;
mod files;
mod folders;
#[path = "../common/points.rs"]
mod points;
mod processes;
mod shared;
mod site;
mod work;

#[test]
fn worker() {
    if let Ok(job) = std::env::var("PARBAKE_TEST_JOB") {
        work::run(&job);
    }
}
