//! Baking with real compilers: bundles hold what was promised, the same bytes every time, and serve calls.

mod common;

use common::{World, toolchain};
use parbake::decision::Origin;
use parbake::model::bundle::Bundle;
use parbake::model::identity::Profile;
use parbake::model::op::Op;
use parbake::model::target::Arch;
use parbake::model::{Target, fatbin};
use parbake::{Goal, Library};
use parbake_codegen::artifact::Made;
use parbake_codegen::baking::{self, Job, Only, Packing};
use parbake_codegen::toolchain::{Search, find_nvfatbin};
use std::collections::BTreeMap;

/// Bakes bf16 rmsnorm for some targets.
fn bake(world: &World, archs: &str, threads: usize) -> Option<Vec<u8>> {
    let library = world.library();
    let targets = Target::parse_list(archs).unwrap();
    let only = Only::from([("dtype".to_owned(), vec!["bf16".to_owned()])]);
    let mut plan = baking::plan(library.ops().map(|(_, op)| op), "rmsnorm", &only, &targets).unwrap();
    // Made in another order by each number of threads.
    let count = plan.jobs.len();
    let half = count / 2;
    plan.jobs.rotate_left(threads % count);
    plan.jobs[half..].reverse();
    let mut toolchains = BTreeMap::new();
    for target in &targets {
        let found = if *target == Target::Host {
            library.toolchain(*target, None).ok()
        } else {
            toolchain(&library, &target.to_string(), "12.9")
        };
        toolchains.insert(*target, found?);
    }
    let make = |job: &Job<'_>| {
        let op = library.op(&job.op.name).unwrap();
        let (artifact, _) = library
            .obtain(op, &job.spec, job.target, &*toolchains[&job.target], Profile::Release)
            .map_err(|e| e.report())?;
        Ok(Made { bytes: artifact.bytes, metadata: artifact.metadata })
    };
    let made = baking::run(&plan, threads, &make, &|_, _| {}).unwrap();
    let packer = |target, toolkit| {
        let toolchains = library.config().toolchains.clone();
        find_nvfatbin(&Search { explicit: None, toolchains, want: Some(toolkit), driver: None, target })
            .map_err(|e| e.report())
    };
    let params = |op: &Op| library.op(&op.name).and_then(|id| library.params_digest(id)).map_err(|e| e.report());
    Some(
        baking::pack(&plan, made, &Packing { params: &params, nvfatbin: &packer, level: 3, threads, keep: None })
            .unwrap(),
    )
}

#[test]
fn bundles_are_the_same_bytes_whatever_the_folder_and_the_threads() {
    let Some(first) = bake(&World::new(), "80,90a,120f", 1) else { return };
    let second = bake(&World::new(), "120f,80,90a", 8).unwrap();
    assert!(first == second, "{} and {} bytes", first.len(), second.len());
}

#[test]
fn code_under_a_false_label_is_not_packed() {
    let world = World::new();
    let library = world.library();
    let Some(nvrtc) = toolchain(&library, "sm_90a", "12.9") else { return };
    let targets = Target::parse_list("90").unwrap();
    let only = Only::from([("dtype".to_owned(), vec!["bf16".to_owned()])]);
    let mut plan = baking::plan(library.ops().map(|(_, op)| op), "rmsnorm", &only, &targets).unwrap();
    plan.jobs.truncate(1);
    let op = library.op("rmsnorm").unwrap();
    let (artifact, _) =
        library.obtain(op, &plan.jobs[0].spec, "sm_90a".parse().unwrap(), &*nvrtc, Profile::Release).unwrap();
    let mut made = Made { bytes: artifact.bytes, metadata: artifact.metadata };
    made.metadata.target = targets[0];
    let packer = |target, toolkit| {
        let toolchains = library.config().toolchains.clone();
        find_nvfatbin(&Search { explicit: None, toolchains, want: Some(toolkit), driver: None, target })
            .map_err(|e| e.report())
    };
    // nvFatbin itself takes it.
    let params = |_: &Op| library.params_digest(op).map_err(|e| e.report());
    let report = baking::pack(
        &plan,
        vec![made],
        &Packing { params: &params, nvfatbin: &packer, level: 3, threads: 1, keep: None },
    )
    .unwrap_err()
    .to_string();
    assert!(report.contains("sm_90a") && report.contains("sm_90 "), "{report}");
}

#[test]
fn a_bundle_holds_exactly_what_was_promised() {
    let Some(bytes) = bake(&World::new(), "80,90a,100f", 2) else { return };
    let bundle = Bundle::open(bytes).unwrap();
    bundle.verify().unwrap();
    let entries = bundle.entries();
    assert_eq!(entries.len(), 9 * 3);
    for entry in entries {
        let image = bundle.image(entry).unwrap();
        let images = fatbin::read(&image).unwrap();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].target, entry.target);
    }
    let details = bundle.details().unwrap();
    for spec in &details.specs {
        for image in &spec.images {
            let resources = image.resources.expect("a cubin tells what it uses");
            assert_eq!(resources.local_bytes, 0, "{} spills on {}", spec.uri, image.target);
        }
    }
}

#[test]
fn a_bundle_serves_until_its_source_changes() {
    let mut world = World::with_own_kernels();
    let Some(bytes) = bake(&world, "host,90a", 2) else { return };
    let path = world.folder.path().join("norm.pbk");
    std::fs::write(&path, bytes).unwrap();
    world.config.bundles = vec![path];
    world.config.jit = false;
    world.config.workspace = world.folder.path().join("other");
    let served = |library: &Library, target: &str, dtype: &str| {
        let op = library.op("rmsnorm").unwrap();
        let target: Target = target.parse().unwrap();
        let spec = library.spec(op, &[("dtype".into(), dtype.into())], target).unwrap();
        library.explain(op, &spec, Goal::Target(target)).unwrap()
    };
    let library = world.library();
    assert_eq!(served(&library, "sm_90a", "bf16").from, Some(Origin::Bundle));
    let other_chip = served(&library, "sm_100a", "bf16");
    assert_eq!(other_chip.from, None);
    assert!(other_chip.to_string().contains("sm_90a"), "{other_chip}");
    assert!(served(&library, "sm_90a", "f16").to_string().contains("does not hold this spec"));
    let outcome = common::norm(&library, "rmsnorm", "bf16", 5, 1000)
        .run(&library, library.op("rmsnorm").unwrap(), parbake::Place::Host)
        .unwrap();
    assert!(outcome.ok && outcome.from == Origin::Bundle, "{outcome:?}");

    let header = world.kernel_file("norm/norm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    let stale = served(&world.library(), "sm_90a", "bf16");
    assert_eq!(stale.from, None);
    assert!(stale.to_string().contains("source changed"), "{stale}");
    assert!(!world.config.workspace.exists());
}

#[test]
fn a_damaged_bundle_is_refused_with_its_name() {
    let mut world = World::new();
    let path = world.folder.path().join("foreign.pbk");
    for content in [b"\x7fELF foreign".to_vec(), Vec::new(), vec![0; 5000]] {
        std::fs::write(&path, content).unwrap();
        world.config.bundles = vec![path.clone()];
        let text = Library::open(world.config.clone()).err().unwrap().report().to_string();
        assert!(text.contains("foreign.pbk"), "{text}");
        assert!(!world.config.workspace.exists());
    }
}

#[test]
fn an_unknown_value_or_target_is_an_error_that_says_what_there_is() {
    let library = World::new().library();
    let ops: Vec<_> = library.ops().map(|(_, op)| op).collect();
    let plan = |pattern: &str, only: &Only, archs: &str| {
        let targets = Target::parse_list(archs).unwrap();
        baking::plan(ops.iter().copied(), pattern, only, &targets).map(drop).unwrap_err().to_string()
    };
    assert!(plan("nothing", &Only::new(), "80").contains("norm/rmsnorm"));
    let f64s = Only::from([("dtype".to_owned(), vec!["f64".to_owned()])]);
    assert!(plan("*", &f64s, "80").contains("bf16"));
    let bf16 = Only::from([("dtype".to_owned(), vec!["bf16".to_owned()])]);
    let text = plan("norm/rmsnorm", &bf16, "75");
    assert!(text.contains("sm_75") && text.contains("bf16 conversion"), "{text}");
}

#[test]
fn ptx_serves_where_it_is_asked_for_and_nothing_else_does() {
    let world = World::new();
    let Some(bytes) = bake(&world, "80,compute_80", 2) else { return };
    let bundle = Bundle::open(bytes.clone()).unwrap();
    bundle.verify().unwrap();
    let ptx: Target = "compute_80".parse().unwrap();
    for entry in bundle.entries().iter().filter(|entry| entry.target == ptx) {
        let kinds: Vec<_> = fatbin::read(&bundle.image(entry).unwrap()).unwrap().iter().map(|i| i.kind).collect();
        assert_eq!(kinds, [fatbin::Kind::Ptx]);
    }
    let path = world.folder.path().join("ptx.pbk");
    std::fs::write(&path, bytes).unwrap();
    let explain = |allowed: bool, arch: u16, driver: &str| {
        let mut config = world.config.clone();
        (config.bundles, config.jit, config.ptx) = (vec![path.clone()], false, allowed);
        config.cache = false;
        let library = Library::open(config).unwrap();
        let op = library.op("rmsnorm").unwrap();
        let spec = library.spec(op, &[("dtype".into(), "bf16".into())], ptx).unwrap();
        let decision = library.explain(op, &spec, Goal::Device(Arch(arch), driver.parse().unwrap())).unwrap();
        (decision.target.map(|t| t.to_string()), decision.to_string())
    };
    assert_eq!(explain(true, 86, "13.0").0.as_deref(), Some("sm_80"), "machine code comes first");
    assert_eq!(explain(true, 120, "13.0").0.as_deref(), Some("compute_80"));
    // A driver that is older than the toolkit does not read its PTX, though it runs its machine code.
    assert!(explain(true, 120, "12.8").1.contains("PTX of CUDA 12.9"));
    assert_eq!(explain(true, 80, "12.8").0.as_deref(), Some("sm_80"));
    let (target, why) = explain(false, 120, "13.0");
    assert!(target.is_none() && why.contains("PARBAKE_PTX"), "{why}");
}
