//! Dispatch: what launchers choose exists and is baked; what does not exist says why; layouts agree with every compiler.

mod common;

use common::{World, root};
use parbake::model::dtype::DType;
use parbake::model::identity::Profile;
use parbake::model::{Target, space};
use parbake::{Tensor, model};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Ops of one signature; whatever other launchers choose is run by the tests of the utilities.
const NORMS: [&str; 2] = ["rmsnorm", "fused_add_rmsnorm"];
const FLOATS: [DType; 3] = [DType::F16, DType::Bf16, DType::F32];

proptest! {
    /// A bake covers all reachable tactics, so that a call without JIT cannot fail by shape.
    #[test]
    fn whatever_a_launcher_chooses_is_baked(
        dtype in 0usize..3, rows in 1i64..5, hidden in 1i64..65537, pads in prop::array::uniform2(0i64..40), offsets in prop::array::uniform3(0usize..20),
    ) {
        thread_local!(static LIBRARY: parbake::Library = World::new().library());
        LIBRARY.with(|library| {
            let dtype = FLOATS[dtype];
            for name in NORMS {
                let id = library.op(name).unwrap();
                let op = library.definition(id);
                let at = |i: usize, shape: &[i64], strides: &[i64]| {
                    let address = ((i + 1) << 32) + offsets[i] * dtype.bytes();
                    Tensor::new(address as *mut _, dtype, shape, strides).unwrap()
                };
                let tensors = [at(0, &[rows, hidden], &[hidden + pads[0], 1]), at(1, &[rows, hidden], &[hidden + pads[1], 1]), at(2, &[hidden], &[1])];
                for target in ["host", "sm_80", "sm_90a", "sm_120f"] {
                    let target: Target = target.parse().unwrap();
                    let chosen = library.choices(id, &tensors, &[1e-6, 0.0], target).unwrap();
                    prop_assert!(!chosen.is_empty());
                    for spec in chosen {
                        prop_assert!(space::check(op, &spec, Some(target)).is_ok(), "{spec}");
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn every_baked_tactic_is_reachable() {
    let library = World::new().library();
    for name in NORMS {
        let id = library.op(name).unwrap();
        let op = library.definition(id);
        let mut reached = BTreeSet::new();
        for dtype in FLOATS {
            for hidden in [1, 8, 64, 100, 128, 200, 256, 512, 1000, 1024, 4096, 16384, 40000, 65536] {
                for offset in [0, 1] {
                    let at = |i: usize, shape: &[i64]| {
                        let address = ((i + 1) << 32) + if i == 1 { offset * dtype.bytes() } else { 0 };
                        Tensor::dense(address as *mut _, dtype, shape).unwrap()
                    };
                    let tensors = [at(0, &[3, hidden]), at(1, &[3, hidden]), at(2, &[hidden])];
                    for spec in library.choices(id, &tensors, &[1e-6, 0.0], "sm_90a".parse().unwrap()).unwrap() {
                        reached.insert(spec);
                    }
                }
            }
        }
        let baked: BTreeSet<_> = space::specs(op).filter(|(_, legal)| legal.is_ok()).map(|(s, _)| s).collect();
        assert_eq!(reached, baked, "{}: what no shape reaches should not be baked", op.name);
    }
}

/// Tensors that nobody reads, one after the other.
fn tensors(shapes: &[(DType, &[i64])]) -> Vec<Tensor> {
    let of = |(i, (dtype, shape)): (usize, &(DType, &[i64]))| match shape {
        [] => Tensor::ABSENT,
        shape => Tensor::dense(((i + 1) << 32) as *mut _, *dtype, shape).unwrap(),
    };
    shapes.iter().enumerate().map(of).collect()
}

/// Which of an op's choices for a target take Hopper's path; all of them exist.
fn on_hopper(library: &parbake::Library, op: &str, tensors: &[Tensor], scalars: &[f64], target: &str) -> Vec<bool> {
    let (id, target) = (library.op(op).unwrap(), target.parse().unwrap());
    let chosen = library.choices(id, tensors, scalars, target).unwrap();
    let legal = |spec: &_| space::check(library.definition(id), spec, Some(target)).is_ok();
    assert!(!chosen.is_empty() && chosen.iter().all(legal), "{op} for {target}");
    chosen.iter().map(|spec| spec.tactic.iter().any(|(name, value)| name == "path" && *value == 1)).collect()
}

#[test]
fn groups_and_experts_take_hoppers_path_where_it_exists() {
    let library = World::new().library();
    const NONE: &[i64] = &[];
    let (bf16, e4m3, f32, i32) = (DType::Bf16, DType::E4m3, DType::F32, DType::I32);
    let groups = |k: i64, given: [&[i64]; 5]| {
        let operands: [(_, &[i64]); 3] = [(bf16, &[256, 512]), (bf16, &[256, k]), (bf16, &[4, 512, k])];
        let said = given.map(|shape| (i32, shape));
        tensors(&[&operands[..], &said, &[(f32, NONE); 3]].concat())
    };
    let of_groups = |k, given, target| on_hopper(&library, "group_mm", &groups(k, given), &[0.0, 0.0, 132.0], target);
    let by_indptr = [&[5][..], NONE, NONE, NONE, NONE];
    // Rows side by side: the path of Hopper is first, the other one follows.
    for given in [by_indptr, [NONE, &[4], NONE, NONE, NONE], [&[5], NONE, NONE, NONE, &[4]]] {
        let chosen = of_groups(1024, given, "sm_90a");
        assert!(chosen[0] && !chosen[chosen.len() - 1], "{given:?}: {chosen:?}");
    }
    let never = |chosen: Vec<bool>| assert!(!chosen.contains(&true), "{chosen:?}");
    for target in ["host", "sm_80", "sm_90", "sm_100f", "sm_120f"] {
        never(of_groups(1024, by_indptr, target));
    }
    // Rows of a anywhere, rows that each say their group, rows at no multiple of 16 bytes.
    never(of_groups(1024, [&[5], NONE, NONE, &[256], NONE], "sm_90a"));
    never(of_groups(1024, [NONE, NONE, &[256], NONE, NONE], "sm_90a"));
    never(of_groups(1023, by_indptr, "sm_90a"));

    let lists: [(_, &[i64]); 2] = [(i32, &[9]), (i32, &[256])];
    let wide: [(_, &[i64]); 3] = [(bf16, &[256, 384]), (bf16, &[64, 1024]), (bf16, &[8, 768, 1024])];
    let wide = tensors(&[&wide[..], &lists, &[(bf16, NONE)]].concat());
    let narrow: [(_, &[i64]); 6] = [
        (e4m3, &[256, 384]),
        (f32, &[256, 3]),
        (e4m3, &[64, 1024]),
        (f32, &[64, 8]),
        (e4m3, &[8, 768, 1024]),
        (f32, &[8, 6, 8]),
    ];
    let narrow = tensors(&[&narrow[..], &lists].concat());
    for (op, given, scalars) in
        [("moe_gate_up", &wide, &[0.0, 7.0, 132.0][..]), ("moe_gate_up_quant", &narrow, &[0.0, 7.0, 1e-10, 132.0])]
    {
        let chosen = on_hopper(&library, op, given, scalars, "sm_90a");
        assert!(chosen[0] && !chosen[chosen.len() - 1], "{op}: {chosen:?}");
        never(on_hopper(&library, op, given, scalars, "sm_90"));
        never(on_hopper(&library, op, given, scalars, "host"));
    }
}

#[test]
fn every_combination_exists_or_says_why() {
    let targets = Target::parse_list("host,75,80,90a,100f,compute_90").unwrap();
    let library = World::new().library();
    let ops: Vec<_> = library.ops().map(|(_, op)| op).collect();
    let all = space::expand(ops.iter().copied(), &targets);
    assert_eq!(all.len(), ops.iter().map(|op| space::size(op)).sum::<usize>() * targets.len());
    assert!(all.iter().all(|c| c.skipped.as_ref().is_none_or(|why| !why.is_empty())));
    let bf16_on_turing =
        all.iter().find(|c| c.spec.axis("dtype") == Some("bf16") && c.target.to_string() == "sm_75").unwrap();
    assert!(bf16_on_turing.skipped.is_some());
    let ids: BTreeSet<_> = all.iter().map(|c| &c.spec.spec_id).collect();
    let uris: BTreeSet<_> = all.iter().map(|c| &c.spec.uri).collect();
    assert_eq!((ids.len(), uris.len()), (all.len() / targets.len(), all.len() / targets.len()));
}

#[test]
fn manifest_launchers_and_definitions_name_the_same_ops() {
    let world = World::new();
    let from_folder = world.library();
    let mut config = world.config.clone();
    config.kernels = None;
    let from_manifest = parbake::Library::open(config).unwrap();
    let listed = |library: &parbake::Library| library.ops().map(|(_, op)| op.clone()).collect::<Vec<_>>();
    assert_eq!(listed(&from_folder), listed(&from_manifest));
    for (id, op) in from_folder.ops() {
        assert!(from_folder.binding(id).is_ok(), "{}", op.name);
        assert_eq!(from_folder.sources_digest(id).unwrap(), from_manifest.sources_digest(id).unwrap(), "{}", op.name);
    }
}

#[test]
fn a_c_compiler_agrees_on_every_offset() {
    let folder = tempfile::tempdir().unwrap();
    let main = "#include <stdio.h>\nint main(void) { for (const struct pb_layout_row *r = pb_layouts; r->name; r++) \
                printf(\"%s %llu\\n\", r->name, r->value); return 0; }\n";
    let unit = folder.path().join("layout.c");
    let generated = std::fs::read_to_string(root().join("generated-manifest/layout.c")).unwrap();
    std::fs::write(&unit, generated + main).unwrap();
    let program = folder.path().join("layout");
    let compiler = cc::Build::new()
        .opt_level(0)
        .target("x86_64-unknown-linux-gnu")
        .host("x86_64-unknown-linux-gnu")
        .get_compiler();
    let status = std::process::Command::new(compiler.path())
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(&unit)
        .arg(format!("-I{}", root().join("kernels").display()))
        .arg(format!("-I{}", root().join("kernels/include").display()))
        .status()
        .unwrap();
    assert!(status.success());
    let said = String::from_utf8(std::process::Command::new(&program).output().unwrap().stdout).unwrap();
    let mut expected = String::new();
    for (name, layout) in parbake_codegen::layout::committed() {
        expected += &format!("{name} size {}\n{name} align {}\n", layout.size, layout.align);
        layout.fields.iter().for_each(|(field, offset)| expected += &format!("{name} {field} {offset}\n"));
    }
    assert_eq!(said, expected);
}

#[test]
fn a_layout_that_differs_neither_compiles_nor_runs() {
    let world = World::with_own_kernels();
    let header = world.kernel_file("norm/rmsnorm/params.h");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text.replace("    pb_i64 rows;\n", "    pb_i64 rows;\n    pb_i64 added;\n")).unwrap();
    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    // The launcher in this program fills the old struct: it must not run a kernel that takes the new one.
    let error = common::norm(&library, "rmsnorm", "f32", 1, 8).run(&library, op, parbake::Place::Host).unwrap_err();
    assert!(matches!(error, parbake::Error::OtherLauncher { .. }), "{}", error.report());
    // And no compiler that is asked makes one as long as the bindings are the old ones.
    let spec = library.spec(op, &[("dtype".into(), "f32".into())], Target::Host).unwrap();
    let toolchain = library.toolchain(Target::Host, None).unwrap();
    let error = library.obtain(op, &spec, Target::Host, &*toolchain, Profile::Release).unwrap_err();
    assert!(error.report().to_string().contains("layout of pb_rmsnorm_params"), "{}", error.report());
    // The other op is as it was.
    let other = library.op("fused_add_rmsnorm").unwrap();
    assert!(
        common::norm(&library, "fused_add_rmsnorm", "f32", 1, 8).run(&library, other, parbake::Place::Host).unwrap().ok
    );
}

#[test]
fn versions_come_from_one_source() {
    assert_eq!(model::VERSION, env!("CARGO_PKG_VERSION"));
}
