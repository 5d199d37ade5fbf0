//! The row norms against their float64 reference: on the host target, and on a GPU where there is one.

mod common;

use common::{World, norm};
use parbake::model::{Target, space};
use parbake::{Library, Place};

const DTYPES: [&str; 3] = ["f16", "bf16", "f32"];

/// Rows, hidden size, elements between rows, elements before the first: every tactic is reached, and its edges.
const SHAPES: &[(i64, i64, i64, usize)] = &[
    (1, 1, 0, 0),
    (3, 2, 1, 1),
    (5, 7, 0, 0),
    (33, 32, 0, 0),
    (3, 111, 1, 1),
    (9, 120, 8, 0),
    (19, 256, 0, 0),
    (19, 500, 12, 0),
    (5, 512, 16, 0),
    (2, 1000, 3, 5),
    (2, 4096, 8, 0),
    (2, 8192, 3, 3),
    (1, 20000, 0, 1),
    (1, 65536, 0, 0),
    (1, 65535, 0, 0),
    (0, 64, 0, 0),
];

fn check(library: &Library, place: Place, shapes: &[(i64, i64, i64, usize)]) {
    let target = library.goal(place).unwrap().target();
    for op in ["rmsnorm", "fused_add_rmsnorm"] {
        let id = library.op(op).unwrap();
        for dtype in DTYPES {
            let spec = library.spec(id, &[("dtype".into(), dtype.into())], target).unwrap();
            if space::check(library.definition(id), &spec, Some(target)).is_err() {
                // Only what op.toml leaves out is left out here: bf16 below sm_80.
                assert!(dtype == "bf16" && target.arch() < "sm_80".parse::<Target>().unwrap().arch(), "{op} {dtype}");
                continue;
            }
            for (seed, &(rows, hidden, pad, offset)) in shapes.iter().enumerate() {
                let mut trial = norm(library, op, dtype, rows, hidden);
                (trial.pad, trial.offset, trial.seed) = (pad, offset, seed as u64);
                // Half of the runs take the gemma form.
                trial.scalars.insert("weight_bias".into(), (seed % 2) as f64);
                let outcome = trial.run(library, library.op(op).unwrap(), place).unwrap();
                assert!(outcome.ok, "{op} {dtype} {rows}x{hidden} pad {pad} offset {offset}: {outcome:#?}");
            }
        }
    }
}

#[test]
fn norms_are_right_on_the_host_target() {
    check(&World::new().library(), Place::Host, SHAPES);
}

#[test]
fn norms_are_right_on_a_gpu() {
    let devices = parbake::require!(target = "sm_75", gpus = 1);
    let library = World::new().library();
    for device in devices {
        check(&library, Place::Cuda(device), SHAPES);
        check(&library, Place::Cuda(device), &[(989, 3584, 0, 0), (16384, 1024, 0, 0)]);
    }
}

#[test]
fn a_wrong_kernel_is_found() {
    // Each must be seen by the very comparison that the tests above rely on.
    let mutants = [
        ("* inv_hidden + p.eps", "* inv_hidden + p.eps + 0.001f"),
        ("c < tile.end; c += tile.step()", "c + 1 < tile.end - kLane; c += tile.step()"),
        ("if (kPeel && tile.edge < tile.n) {", "if (kPeel && tile.edge + 1 < tile.n) {"),
        ("const i64 row = (i64)blockIdx.x * kRows", "const i64 row = (i64)blockIdx.x * 1"),
    ];
    // The last has rows that end beyond their vectors; in the one before, each ends with its last vector.
    let shapes = [(3, 96, 0, 0), (40, 20, 0, 0), (2, 65536, 0, 0), (3, 111, 1, 1), (5, 7, 0, 0)];
    for (old, new) in mutants {
        let world = World::with_own_kernels();
        let file = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(old), "the kernel has changed: write another mutant for `{old}`");
        std::fs::write(&file, text.replace(old, new)).unwrap();
        let library = world.library();
        let found = shapes.iter().any(|&(rows, hidden, pad, offset)| {
            let mut trial = norm(&library, "rmsnorm", "f32", rows, hidden);
            (trial.pad, trial.offset) = (pad, offset);
            // It compiles and runs; only its numbers are wrong.
            !trial.run(&library, library.op("rmsnorm").unwrap(), Place::Host).unwrap().ok
        });
        assert!(found, "mutant survived: {new}");
    }
}
