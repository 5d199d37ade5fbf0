//! Kernels in Triton, compiled without a GPU: what comes out, what makes it another build, and how it is launched.

#![allow(clippy::print_stdout, reason = "skips are printed")]

mod common;
#[path = "fake/driver.rs"]
mod fake;

use common::World;
use fake::{Machine, calls, setting};
use parbake::decision::Origin;
use parbake::model::bundle::Bundle;
use parbake::model::dtype::DType;
use parbake::model::identity::{Profile, Spec};
use parbake::model::lock::Lock;
use parbake::model::op::Op;
use parbake::model::{Language, Target, space};
use parbake::store::Artifact;
use parbake::{Error, Library, Place, Stream, Tensor};
use parbake_codegen::artifact::Made;
use parbake_codegen::baking::{self, Job, Only, Packing};
use parbake_codegen::toolchain::{Search, Toolchain, find_nvfatbin};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OP: &str = "gated_rmsnorm";

/// Triton, or the skip.
fn triton(library: &Library) -> Option<Arc<dyn Toolchain>> {
    let found = library.toolchain_of(Language::Triton, "sm_90a".parse().unwrap(), None);
    if found.is_err() {
        println!("skipped: needs triton (parbake toolchain install triton)");
    }
    found.ok()
}

/// A spec by its tactic.
fn spec(library: &Library, dtype: &str, warps: u32, vec: u32) -> Spec {
    let def = library.definition(library.op(OP).unwrap());
    let wanted = [("warps".to_owned(), warps), ("vec".to_owned(), vec)];
    let mut all = space::specs(def).map(|(spec, _)| spec);
    all.find(|s| s.axis("dtype") == Some(dtype) && s.axis("order") == Some("norm_first") && s.tactic == wanted).unwrap()
}

fn compile(
    library: &Library,
    toolchain: &dyn Toolchain,
    spec: &Spec,
    target: &str,
) -> Result<(Artifact, Origin), Error> {
    library.obtain(library.op(OP).unwrap(), spec, target.parse().unwrap(), toolchain, Profile::Release)
}

#[test]
fn cubins_do_not_depend_on_the_folder_and_are_what_the_launcher_fills() {
    let (one, other) = (World::new(), World::new());
    let (first, second) = (one.library(), other.library());
    let Some(toolchain) = triton(&first) else { return };
    let again = triton(&second).unwrap();
    assert_eq!(toolchain.id(), again.id());
    for (target, warps, vec) in [("sm_80", 1, 2), ("sm_90a", 4, 16)] {
        let spec = spec(&first, "bf16", warps, vec);
        let (made, origin) = compile(&first, &*toolchain, &spec, target).unwrap();
        assert_eq!(origin, Origin::Jit);
        let (twin, _) = compile(&second, &*again, &spec, target).unwrap();
        assert!(made.bytes == twin.bytes && made.metadata.build_key == twin.metadata.build_key);
        let used = made.metadata.resources.unwrap();
        assert_eq!((used.max_threads, used.param_bytes, used.local_bytes), (Some(warps * 32), 80, 0), "{target}");
        let folder = one.folder.path().display().to_string();
        assert!(!made.bytes.windows(folder.len()).any(|w| w == folder.as_bytes()), "the folder's name is in the cubin");
        assert_eq!(compile(&first, &*toolchain, &spec, target).unwrap().1, Origin::Store);
    }
    let lines = |library: &Library| {
        let (op, target, profile) = (library.op(OP).unwrap(), "sm_90a".parse().unwrap(), Profile::Lineinfo);
        library.obtain(op, &spec(library, "bf16", 4, 16), target, &*toolchain, profile).unwrap().0.bytes
    };
    let made = lines(&first);
    assert!(made == lines(&second) && made.windows(16).any(|w| w == b"gated_rmsnorm.py"));
}

#[test]
#[ignore = "minutes of compiling"]
fn every_spec_compiles_without_spills() {
    let world = World::new();
    let library = world.library();
    let Some(toolchain) = triton(&library) else { return };
    for (id, def) in library.ops().filter(|(_, def)| def.language == Language::Triton) {
        for target in Target::parse_list("80,86,89,90a,100a,103a,120a").unwrap() {
            for (spec, legal) in space::specs(def) {
                if legal.is_err() || space::check(def, &spec, Some(target)).is_err() {
                    continue;
                }
                let (made, _) = library.obtain(id, &spec, target, &*toolchain, Profile::Release).unwrap();
                assert_eq!(made.metadata.resources.unwrap().local_bytes, 0, "{} for {target}", spec.uri);
            }
        }
    }
}

/// A copy of an installed Triton in which one text was edited; what is large is linked.
fn edited(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            edited(&path, &target);
        } else if path.ends_with("triton/runtime/cache.py") {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(target, text + "\n# Another Triton.\n").unwrap();
        } else {
            std::os::unix::fs::symlink(path, target).unwrap();
        }
    }
}

#[test]
fn another_kernel_and_another_triton_are_other_builds() {
    let mut world = World::with_own_kernels();
    let library = world.library();
    let Some(toolchain) = triton(&library) else { return };
    let spec = spec(&library, "f16", 1, 16);
    let (made, _) = compile(&library, &*toolchain, &spec, "sm_90a").unwrap();

    // The kernel.
    let kernel = world.kernel_file("norm/gated_rmsnorm/gated_rmsnorm.py");
    let text = std::fs::read_to_string(&kernel).unwrap();
    std::fs::write(&kernel, text.replace("1.0 + tl.exp(-gate)", "2.0 + tl.exp(-gate)")).unwrap();
    let library = world.library();
    let (other, origin) = compile(&library, &*toolchain, &spec, "sm_90a").unwrap();
    assert_eq!((origin, other.metadata.spec.spec_id), (Origin::Jit, made.metadata.spec.spec_id));
    assert!(other.metadata.source_key != made.metadata.source_key && other.bytes != made.bytes);
    std::fs::write(&kernel, text).unwrap();

    // Triton: this one is another by one line that changes nothing.
    let place = toolchain.describe();
    let site = place.split(" at ").nth(1).and_then(|rest| rest.split(", run by ").next()).unwrap();
    let toolchains = world.folder.path().join("toolchains");
    edited(Path::new(site), &toolchains.join("triton-3.6.0"));
    world.config.toolchains = toolchains;
    let library = world.library();
    let another = triton(&library).unwrap();
    assert!(another.describe().contains("toolchains/triton-3.6.0") && another.id() != toolchain.id());
    let (rebuilt, origin) = compile(&library, &*another, &spec, "sm_90a").unwrap();
    assert_eq!((origin, rebuilt.metadata.source_key), (Origin::Jit, made.metadata.source_key));
    assert!(rebuilt.metadata.build_key != made.metadata.build_key && rebuilt.bytes == made.bytes);
    // The entry of the first is still there.
    assert_eq!(compile(&library, &*toolchain, &spec, "sm_90a").unwrap().1, Origin::Store);
}

#[test]
fn a_kernel_that_breaks_its_promise_is_not_stored() {
    let world = World::with_own_kernels();
    let Some(toolchain) = triton(&world.library()) else { return };
    let template = "norm/gated_rmsnorm/gated_rmsnorm.py.tera";
    let kernel = "norm/gated_rmsnorm/gated_rmsnorm.py";
    for (file, from, to, code, said) in [
        (template, "SHARED = 1024", "SHARED = 0", "PB-1560", "dynamic shared memory: expected at most 0 bytes, got 16"),
        (
            template,
            "\"hidden\": \"i32\"",
            "\"hidden\": \"i64\"",
            "PB-1560",
            "`hidden` at 56, and the kernel takes 8 bytes at 56",
        ),
        (template, "    \"eps\": \"fp32\",\n", "", "PB-1560", "parameters in the order of the struct's fields"),
        (kernel, "    eps,\n    BLOCK", "    BLOCK", "PB-1560", "arguments of the kernel"),
        (kernel, "tl.program_id(0)", "tl.program_id(nothing)", "PB-1509", "nothing is not defined"),
        (kernel, "import triton\n", "import triton\nimport os\n", "PB-1104", "gated_rmsnorm.py:4"),
    ] {
        let path = world.kernel_file(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let library = world.library();
        let spec = spec(&library, "bf16", 4, 16);
        let report = compile(&library, &*toolchain, &spec, "sm_90a").map(drop).unwrap_err().report();
        let all = format!("{report}");
        assert!(all.contains(code) && all.contains(said), "{to}: expected {code} and {said:?}\n{all}");
        std::fs::write(&path, text).unwrap();
    }
}

#[test]
fn wildcards_leave_it_to_who_names_it() {
    let library = World::new().library();
    let targets = Target::parse_list("90a").unwrap();
    let plan = |pattern: &str| baking::plan(library.ops().map(|(_, op)| op), pattern, &Only::new(), &targets).unwrap();
    let has = |pattern: &str| plan(pattern).jobs.iter().any(|job| job.op.name == OP);
    assert!(!has("*") && !has("norm/*"));
    assert!(has(OP) && has("norm/gated_rmsnorm") && has("*, gated_rmsnorm"));
    let left_out = plan("norm/*").skipped;
    let reason = &left_out.iter().find(|s| s.op == OP).unwrap().reason;
    assert!(reason.contains("written in Triton") && reason.contains("only where it is named"), "{reason}");
}

/// A bundle with a kernel for each number of warps.
fn bake(world: &World) -> Option<PathBuf> {
    let library = world.library();
    let toolchain = triton(&library)?;
    let targets = Target::parse_list("90a").unwrap();
    let wanted = [1, 4, 16].map(|warps| spec(&library, "bf16", warps, 16));
    let plan = baking::plan_lock(library.ops().map(|(_, op)| op), &Lock::new(&wanted, []), &targets).unwrap();
    let make = |job: &Job<'_>| {
        let made = compile(&library, &*toolchain, &job.spec, "sm_90a").map_err(|e| e.report())?;
        Ok(Made { bytes: made.0.bytes, metadata: made.0.metadata })
    };
    let made = baking::run(&plan, 2, &make, &|_, _| {}).unwrap();
    let params = |op: &Op| library.op(&op.name).and_then(|id| library.params_digest(id)).map_err(|e| e.report());
    let packer = |target, toolkit| {
        let toolchains = library.config().toolchains.clone();
        find_nvfatbin(&Search { explicit: None, toolchains, want: Some(toolkit), driver: None, target })
            .map_err(|e| e.report())
    };
    let path = world.folder.path().join("triton.pbk");
    let packing = Packing { params: &params, nvfatbin: &packer, level: 3, threads: 1, keep: None };
    std::fs::write(&path, baking::pack(&plan, made, &packing).unwrap()).unwrap();
    Some(path)
}

/// What the units of a spec promise: warps and shared memory.
fn promised(library: &Library, toolchain: &dyn Toolchain, spec: &Spec) -> BTreeMap<String, u32> {
    let target = "sm_90a".parse().unwrap();
    let unit = library.plan(library.op(OP).unwrap(), spec, target, toolchain, Profile::Release).unwrap().unit.text;
    let numbers = unit.lines().filter_map(|line| line.split_once(" = "));
    numbers.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

#[test]
fn a_bundle_serves_without_compiler_and_parameters_are_passed_as_one_buffer() {
    let test = "a_bundle_serves_without_compiler_and_parameters_are_passed_as_one_buffer";
    let mut world = World::new();
    let bundle = match setting("BUNDLE") {
        set if !set.is_empty() => PathBuf::from(set),
        _ => match bake(&world) {
            Some(path) => path,
            None => return,
        },
    };
    if !Machine::with("9.0").set("BUNDLE", bundle.display().to_string()).runs(test) {
        return;
    }
    let found = Bundle::open(std::fs::File::open(&bundle).unwrap()).unwrap();
    assert!(found.details().unwrap().specs.iter().all(|s| s.op == OP));
    let compiling = world.library();
    let toolchain = triton(&compiling).unwrap();
    world.config.bundles = vec![bundle];
    world.config.jit = false;
    let library = world.library();
    let mut memory = vec![0u16; 1 << 20];
    let base = memory.as_mut_ptr().cast::<c_void>();
    let base = base.wrapping_byte_add(base.align_offset(256));
    for (i, (hidden, warps)) in [(128, 1), (1024, 4), (5120, 16)].into_iter().enumerate() {
        let at = |n: usize, shape: &[i64]| Tensor::dense(base.wrapping_byte_add(n << 16), DType::Bf16, shape).unwrap();
        let tensors = [at(0, &[3, hidden]), at(1, &[3, hidden]), at(2, &[3, hidden]), at(3, &[hidden])];
        // SAFETY: the fake driver's kernels compute nothing.
        let called = unsafe {
            library.call(library.op(OP).unwrap(), &tensors, &[1e-6, 0.0], Place::Cuda(0), Stream::DEFAULT).unwrap()
        };
        assert_eq!(called.from, Origin::Bundle);
        let promise = promised(&compiling, &*toolchain, &spec(&compiling, "bf16", warps, 16));
        let launch = &calls("cuLaunchKernelEx")[i];
        assert_eq!(launch.result, 0);
        assert_eq!((launch.get("grid"), launch.get("block")), ("3,1,1", format!("{},1,1", warps * 32).as_str()));
        assert_eq!((promise["WARPS"], promise["SHARED"].to_string().as_str()), (warps, launch.get("shared")));
        // The buffer: four addresses, three strides, hidden, eps, and Triton's own two.
        let mut buffer: Vec<u8> = [1, 2, 3, 0].iter().flat_map(|n| (tensors[*n].data as u64).to_ne_bytes()).collect();
        buffer.extend([hidden; 3].iter().flat_map(|n| n.to_ne_bytes()));
        buffer.extend((hidden as i32).to_ne_bytes());
        buffer.extend(1e-6f32.to_ne_bytes());
        buffer.extend([0; 16]);
        assert_eq!(launch.get("params"), format!("{}:{}", buffer.len(), fake::name_of(&buffer)));
    }
}
