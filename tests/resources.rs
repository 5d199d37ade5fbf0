//! What compilers make of every spec: no spill, no warning, within the registers that a block may have, and quickly.

#![allow(clippy::print_stdout, reason = "the slowest and the skips are printed")]

mod common;

use common::{World, toolchain};
use parbake::model::identity::Profile;
use parbake::model::{Target, space};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Registers of a multiprocessor, on every architecture.
const REGISTERS: u32 = 65536;

/// Compiles every legal spec for a target, and complains of all that are not as they should be.
fn check(target: &str) {
    let world = World::new();
    let library = world.library();
    let Some(toolchain) = toolchain(&library, target, "13.0") else { return };
    let target: Target = target.parse().unwrap();
    let legal = |(id, def)| {
        let specs = space::specs(def).map(|(spec, _)| spec);
        specs.filter(move |s| space::check(def, s, Some(target)).is_ok()).map(move |spec| (id, spec))
    };
    // Those in another language are in tests/triton.rs.
    let all: Vec<_> = library.ops().filter(|(_, def)| def.language.is_cuda()).flat_map(legal).collect();
    let (next, bad, times) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some((id, spec)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let made = library.obtain(*id, spec, target, &*toolchain, Profile::Release);
            let (artifact, _) = made.unwrap_or_else(|e| panic!("{}: {e}", spec.uri));
            let meta = artifact.metadata;
            let used = meta.resources.expect("a cubin tells its resources");
            let wrong = |what: String| bad.lock().unwrap().push(format!("{}: {what}", spec.uri));
            if used.local_bytes > 0 {
                wrong(format!("{} bytes of local memory", used.local_bytes));
            }
            if !meta.log.is_empty() {
                wrong(format!("the compiler says: {}", meta.log));
            }
            // Registers are given to warps in units of 8 a thread.
            let threads = used.max_threads.expect("every kernel says how many threads a block may have");
            if used.registers.next_multiple_of(8) * threads > REGISTERS {
                wrong(format!("{} registers of {threads} threads", used.registers));
            }
            times.lock().unwrap().push((meta.compile_ms, spec.uri.clone()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort();
    let median = times.get(times.len() / 2).map_or(0, |t| t.0);
    println!("{target}: {} specs, {median} ms each (median), the slowest {:?}", times.len(), times.last());
    let bad = bad.into_inner().unwrap();
    assert!(bad.is_empty(), "{target}:\n{}", bad.join("\n"));
}

#[test]
fn every_spec_compiles_without_spills_for_hopper() {
    check("sm_90a");
}

/// Everything else, where time does not matter: `cargo test --test resources -- --ignored`.
#[test]
#[ignore = "minutes of compiling"]
fn every_spec_compiles_without_spills_everywhere() {
    for target in ["sm_75", "sm_80", "sm_86", "sm_89", "sm_100f", "sm_120f"] {
        check(target);
    }
}
