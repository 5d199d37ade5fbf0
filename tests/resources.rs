//! What compilers make of every spec: no spill, no warning, within the registers that a block may have, and quickly.

#![allow(clippy::print_stdout, reason = "the slowest and the skips are printed")]

mod common;

use common::{World, toolchain};
use parbake::model::identity::{Profile, Spec};
use parbake::model::{Target, space};
use parbake::{Library, OpId};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Registers of a multiprocessor, on every architecture.
const REGISTERS: u32 = 65536;

/// What release artifacts are for.
const TARGETS: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100f", "sm_120f"];

/// The toolkit that bakes take.
const BAKES: &str = "12.9";

type Specs = Vec<(OpId, Spec)>;

/// Every legal spec for a target.
fn specs(library: &Library, target: &str) -> Specs {
    let target = Some(target.parse().unwrap());
    let legal = |(id, def)| {
        let specs = space::specs(def).map(|(spec, _)| spec);
        specs.filter(move |s| space::check(def, s, target).is_ok()).map(move |spec| (id, spec))
    };
    // Those in another language are in tests/triton.rs.
    library.ops().filter(|(_, def)| def.language.is_cuda()).flat_map(legal).collect()
}

/// A part in which every two values of different axes and tactics that occur together in an op still do.
fn pairwise(specs: &Specs) -> Specs {
    let pairs = |(_, spec): &(OpId, Spec)| {
        let axes = spec.axes.iter().map(|(a, v)| format!("{a}={v}"));
        // The op itself, so that one with a single axis, or with none, has pairs too.
        let values: Vec<_> = [spec.op.clone()]
            .into_iter()
            .chain(axes)
            .chain(spec.tactic.iter().map(|(t, v)| format!("{t}={v}")))
            .collect();
        let of =
            |i: usize| values[i..].iter().map(|b| (spec.op.clone(), values[i].clone(), b.clone())).collect::<Vec<_>>();
        (0..values.len()).flat_map(of).collect::<HashSet<_>>()
    };
    let mut left: Vec<_> = specs.iter().map(|s| (s, pairs(s))).collect();
    let mut chosen = Specs::new();
    // The one with most that is new, again and again; the first of equals.
    while let Some(i) = (0..left.len()).rev().max_by_key(|&i| left[i].1.len()).filter(|&i| !left[i].1.is_empty()) {
        let (spec, new) = left.swap_remove(i);
        chosen.push(spec.clone());
        left.iter_mut().filter(|(s, _)| s.1.op == spec.1.op).for_each(|(_, pairs)| pairs.retain(|p| !new.contains(p)));
    }
    chosen
}

/// Compiles specs for a target. Gives the registers of each, and what is not as it should be.
fn compile(library: &Library, specs: &Specs, target: &str, toolkit: &str) -> Option<(Vec<u32>, Vec<String>)> {
    let toolchain = toolchain(library, target, toolkit)?;
    let parsed: Target = target.parse().unwrap();
    let (next, bad, times) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let registers: Vec<_> = specs.iter().map(|_| AtomicUsize::new(0)).collect();
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some((id, spec)) = specs.get(i) else { return };
            let wrong = |what: String| {
                bad.lock().unwrap().push(format!("{} for {target} by {toolkit}: {what}", spec.uri));
            };
            let meta = match library.obtain(*id, spec, parsed, &*toolchain, Profile::Release) {
                Ok((artifact, _)) => artifact.metadata,
                Err(error) => {
                    wrong(error.to_string());
                    continue;
                }
            };
            let used = meta.resources.expect("a cubin tells its resources");
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
            registers[i].store(used.registers as usize, Ordering::Relaxed);
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
    println!("{target} by {toolkit}: {} specs, {median} ms each (median), the slowest {:?}", times.len(), times.last());
    let mut bad = bad.into_inner().unwrap();
    bad.sort();
    bad.iter().for_each(|line| println!("  {line}"));
    Some((registers.into_iter().map(|r| r.into_inner() as u32).collect(), bad))
}

/// For Hopper a pairwise sample of all specs; for each other target, and for another toolkit, those of them that need most
/// registers on Hopper and a part of the rest, another one each. A bake refuses those that spill, whatever is baked.
#[test]
fn no_spec_spills() {
    const HUNGRY: usize = 12;
    const PARTS: usize = 64;
    let world = World::new();
    let library = world.library();
    let all = pairwise(&specs(&library, "sm_90a"));
    let Some((registers, mut bad)) = compile(&library, &all, "sm_90a", BAKES) else { return };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(registers[i]));
    let others = TARGETS.into_iter().filter(|t| *t != "sm_90a").map(|t| (t, BAKES)).chain([("sm_90a", "13.0")]);
    for (part, (target, toolkit)) in others.enumerate() {
        let rest = order.iter().skip(HUNGRY).skip(part * PARTS / TARGETS.len()).step_by(PARTS);
        let legal = specs(&library, target);
        let chosen = order.iter().take(HUNGRY).chain(rest).map(|&i| all[i].clone());
        let chosen = chosen.filter(|(_, spec)| legal.iter().any(|(_, s)| s.spec_id == spec.spec_id)).collect();
        bad.extend(compile(&library, &chosen, target, toolkit).into_iter().flat_map(|(_, bad)| bad));
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}

/// Everything, where time does not matter: `cargo test --test resources -- --ignored --nocapture`.
#[test]
#[ignore = "an hour of compiling"]
fn no_spec_spills_anywhere() {
    let world = World::new();
    let library = world.library();
    let mut bad = Vec::new();
    for toolkit in [BAKES, "13.0"] {
        for target in TARGETS {
            let found = compile(&library, &specs(&library, target), target, toolkit);
            bad.extend(found.into_iter().flat_map(|(_, bad)| bad));
        }
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}
