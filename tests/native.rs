//! Programs in C and C++ against the shared library, on the host target: right numbers, the right errors, any thread.

#![allow(clippy::print_stdout, reason = "skips are printed")]

mod common;
#[path = "common/native.rs"]
mod native;

use common::World;
use native::{build_folder, compiler, good, isolated, program, shared_library};
use parbake::door::dlpack::{CPU, DLDataType, DLDevice, DLTensor};
use parbake::{Library, Place, Stream, Tensor};
use parbake_codegen::registry::Registry;
use parbake_model::Target;
use parbake_model::dtype::DType;
use parbake_model::lock::{Lock, Locked};
use parbake_model::record::{self, Recorded, Recording};
use parbake_model::shared_object;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;

#[test]
fn a_c_program_gets_the_right_numbers_and_the_right_errors() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("tests/native/calls.c", "c11", folder.path());
    let said = good(&isolated(&program, folder.path()).output().unwrap(), "calls");
    assert_eq!(said, "0 failed\n");
}

/// What a call through the C ABI asks for is what the same call from Rust does.
#[test]
fn a_call_from_c_is_recorded_with_its_spec_and_locked() {
    let world = World::new();
    let folder = world.folder.path();
    let calls = folder.join("calls.jsonl");
    let program = program("tests/native/calls.c", "c11", folder);
    good(&isolated(&program, folder).env("PARBAKE_RECORD", &calls).output().unwrap(), "calls");
    let Recording { records, torn } = record::read(&std::fs::read(&calls).unwrap()).unwrap();
    assert!(torn.is_empty());

    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    common::norm(&library, "rmsnorm", "f32", 3, 8).run(&library, op, Place::Host).unwrap();
    // Calls that are refused ask for nothing: the first one that is good is recorded first, and once.
    let same: Vec<_> = records.iter().map(Recorded::locked).collect();
    assert_eq!(same[0], library.used().specs[0]);
    assert_eq!(same.iter().filter(|spec| **spec == same[0]).count(), 1, "{records:?}");
    // The others are what it prepares.
    let prepared =
        |r: &Recorded| r.axes[0].1 == "f32" && r.tactic.starts_with(&PREPARED.map(|(n, v)| (n.to_owned(), v)));
    assert!(records.len() > 1 && records[1..].iter().all(prepared), "{records:?}");
    assert!(records.iter().all(|r| r.op == "rmsnorm" && r.target == Target::Host && r.from.is_some()), "{records:?}");

    let command = native::built(&["--package", "parbake-cli"], "parbake");
    let said = good(&isolated(&command, folder).arg("lock").arg(&calls).output().unwrap(), "parbake lock");
    let lock = Lock::from_json(said.as_bytes()).unwrap();
    let sorted = |mut specs: Vec<Locked>| {
        specs.sort();
        specs
    };
    assert_eq!((sorted(lock.specs), lock.targets), (sorted(same), vec![Target::Host]));
}

/// What `calls.c` prepares.
const PREPARED: [(&str, u32); 3] = [("block", 128), ("rows", 8), ("vec", 4)];

#[test]
fn the_example_in_cpp_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("examples/cpp/rmsnorm.cpp", "c++17", folder.path());
    let said = good(&isolated(&program, folder.path()).output().unwrap(), "the example");
    for words in
        ["rmsnorm: within", "the residual is right", "PB-2001", "weight: dtype: expected f32", "\"from\": \"store\""]
    {
        assert!(said.contains(words), "no {words} in\n{said}");
    }
}

#[test]
fn the_example_in_rust_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let example = native::built(&["--package", "parbake", "--example", "cudarc_buffers"], "examples/cudarc_buffers");
    let said = good(&isolated(&example, folder.path()).output().unwrap(), "the example");
    for words in ["rmsnorm: within", "the residual is right", "PB-2001", "weight: dtype: expected f32"] {
        assert!(said.contains(words), "no {words} in\n{said}");
    }
}

/// A bundle that cannot be read stops whoever looks into its folder: which shows that somebody does.
#[test]
fn installed_bundles_are_found_by_both_ways_to_open_a_library() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("installed");
    let mut command = compiler(false, "c11");
    command.arg(common::root().join("tests/native/installed.c")).arg("-o").arg(&program).arg("-ldl");
    good(&command.output().unwrap(), "the compiler");
    let named = folder.path().join("named");
    let packages = folder.path().join("site-packages");
    for place in [named.clone(), packages.join("parbake_bundles/cu130-sm90a"), packages.join("parbake")] {
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("damaged.pbk"), "no bundle").unwrap();
    }
    let installed = packages.join("parbake/libparbake.so");
    std::fs::copy(shared_library(), &installed).unwrap();
    let empty = folder.path().join("empty").display().to_string();
    let run = |library: &std::path::Path, bundles: &str, how: &str| {
        let mut command = isolated(&program, folder.path());
        good(&command.arg(library).args([bundles, how]).output().unwrap(), "the program")
    };
    for how in ["default", "open"] {
        assert_eq!(run(shared_library(), "-", how), "open\n", "{how}");
        assert_eq!(run(shared_library(), named.to_str().unwrap(), how), "PB-1391\n", "{how}");
        assert_eq!(run(&installed, "-", how), "PB-1391\n", "{how}: those beside it");
        assert_eq!(run(&installed, &empty, how), "open\n", "{how}: what is said holds");
    }
    // What is wrong with the environment is said although the library that came first had settings of its own.
    let mut command = isolated(&program, folder.path());
    let output = command.arg(shared_library()).args(["-", "both"]).env("PARBAKE_BUNDELS", "/x").output().unwrap();
    assert_eq!(good(&output, "the program"), "open\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("PARBAKE_BUNDELS").count(), 1, "{said}");
}

/// Names of functions that a header declares: what stands before the parenthesis.
fn declared(header: &str) -> BTreeSet<String> {
    let lines = header.lines().filter_map(|line| line.strip_prefix("PARBAKE_API ")?.split_once('('));
    lines.filter_map(|(start, _)| start.rsplit([' ', '*']).next()).map(str::to_owned).collect()
}

#[test]
fn header_exports_and_ops_agree() {
    let header = std::fs::read_to_string(common::root().join("generated-manifest/parbake.h")).unwrap();
    let bytes = std::fs::read(shared_library()).unwrap();
    let exported: BTreeSet<String> = shared_object::exports(&bytes).unwrap().into_iter().map(str::to_owned).collect();
    let mut expected = declared(&header);
    assert!(expected.contains("parbake_error_message") && expected.contains("parbake_default"), "{expected:?}");
    let registry = Registry::read(&common::root().join("kernels")).unwrap();
    for op in registry.entries.iter().map(|e| &e.op.name) {
        assert!(expected.contains(&format!("parbake_{op}")), "the header lacks {op}");
        expected.extend(["", "_metadata_", "_doc_"].map(|kind| format!("__tvm_ffi_{kind}{op}")));
    }
    let missing: Vec<_> = expected.difference(&exported).collect();
    let extra: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty() && extra.is_empty(), "not exported: {missing:?}; not declared: {extra:?}");
}

/// What a test needs of DLPack's header where none is installed: its guard, and the struct as its standard has it.
const DLPACK: &str = "#ifndef DLPACK_DLPACK_H_\n#define DLPACK_DLPACK_H_\n#include <stdint.h>\n\
    typedef struct { int32_t device_type; int32_t device_id; } DLDevice;\n\
    typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;\n\
    typedef struct { void* data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t* shape; int64_t* strides; \
    uint64_t byte_offset; } DLTensor;\n#endif\n";

#[test]
fn cmake_finds_a_checkout_and_a_package() {
    let Some(cmake) = cmake() else {
        println!("skipped: needs cmake");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let library = shared_library();
    // The layout of the wheel.
    let package = folder.path().join("site packages/parbake");
    let root = common::root();
    let mut parts = parbake_model::VERSION.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap(), parts.next().unwrap());
    for (from, to) in [
        (root.join("generated-manifest/parbake.h"), "include/parbake.h"),
        (root.join("wheels/cmake/parbakeConfig.cmake"), "cmake/parbakeConfig.cmake"),
        (root.join("wheels/cmake/parbakeConfigVersion.cmake"), "cmake/parbakeConfigVersion.cmake"),
        (library.to_owned(), "libparbake.so"),
    ] {
        let to = package.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
    let checkout = format!("-Dparbake_DIR={}", root.join("wheels/cmake").display());
    let profile = format!("-DPARBAKE_PROFILE={}", build_folder().file_name().unwrap().display());
    let installed = format!("-DCMAKE_PREFIX_PATH={}", package.display());
    for (name, options) in [("checkout", vec![&checkout, &profile]), ("package", vec![&installed])] {
        let build = folder.path().join(name);
        let configure = |source: &std::path::Path, build: &std::path::Path| {
            let mut command = Command::new(&cmake);
            // The build tool is the one that is there everywhere.
            command.args(["-G", "Unix Makefiles", "-S"]).arg(source).arg("-B").arg(build).args(&options);
            command.env("CARGO_TARGET_DIR", build_folder().parent().unwrap()).output().unwrap()
        };
        good(&configure(&root.join("examples/cpp"), &build), "cmake");
        good(&Command::new(&cmake).arg("--build").arg(&build).output().unwrap(), "cmake --build");
        let said = good(&isolated(&build.join("rmsnorm"), folder.path()).output().unwrap(), name);
        assert!(said.contains("the residual is right"), "{said}");
        // Another minor version below 1.0 is another range.
        let source = folder.path().join("asks");
        std::fs::create_dir_all(&source).unwrap();
        let others = [format!("{major}.{}", minor + 1), format!("{}", major + 1), format!("{major}.{minor}.999")];
        let asked = others.iter().map(|v| (v.as_str(), false)).chain([(parbake_model::VERSION, true)]);
        for (asked, found) in asked {
            let text = format!(
                "cmake_minimum_required(VERSION 3.18)\nproject(asks LANGUAGES CXX)\nfind_package(parbake {asked} CONFIG REQUIRED)\n"
            );
            std::fs::write(source.join("CMakeLists.txt"), text).unwrap();
            let build = folder.path().join(format!("{name} {asked}"));
            assert_eq!(configure(&source, &build).status.success(), found, "{name}: {asked}");
        }
    }
}

/// CMake and make, if both are here.
fn cmake() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    let find = |name| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    find("make").and(find("cmake"))
}

#[test]
fn the_header_compiles_alone_and_with_dlpack_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dlpack.h"), DLPACK).unwrap();
    let fields = ["data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"];
    let mut layout =
        "\n#include <assert.h>\n#include <stddef.h>\nstatic_assert(sizeof(parbake_tensor) == 48, \"size\");\n"
            .to_owned();
    for (field, offset) in fields.iter().zip(OFFSETS) {
        layout += &format!("static_assert(offsetof(parbake_tensor, {field}) == {offset}, \"{field}\");\n");
    }
    let same =
        fields.map(|f| format!("static_assert(offsetof(parbake_tensor, {f}) == offsetof(DLTensor, {f}), \"{f}\");\n"));
    let (ours, theirs) = ("#include \"parbake.h\"\n", "#include \"dlpack.h\"\n");
    let taken = "int use(const DLTensor *t);\nint use(const DLTensor *t) { \
                 return parbake_rmsnorm(0, 0, 0, t, t, t, 0, 0, 0); }\n";
    let cases = [
        format!("{ours}{layout}"),
        format!("{ours}{ours}{theirs}{layout}{}", same.concat()),
        format!("{theirs}{ours}{layout}{}{taken}", same.concat()),
    ];
    for (cpp, standard, name) in [(false, "c11", "unit.c"), (true, "c++17", "unit.cpp"), (true, "c++20", "unit.cpp")] {
        for case in &cases {
            let unit = folder.path().join(name);
            std::fs::write(&unit, case).unwrap();
            let mut command = compiler(cpp, standard);
            command.arg("-c").arg(&unit).arg("-o").arg(folder.path().join("unit.o"));
            good(&command.arg(format!("-I{}", folder.path().display())).output().unwrap(), case);
        }
    }
}

/// Offsets as Rust has them, in the order of the struct.
const OFFSETS: [usize; 7] = [
    std::mem::offset_of!(DLTensor, data),
    std::mem::offset_of!(DLTensor, device),
    std::mem::offset_of!(DLTensor, ndim),
    std::mem::offset_of!(DLTensor, dtype),
    std::mem::offset_of!(DLTensor, shape),
    std::mem::offset_of!(DLTensor, strides),
    std::mem::offset_of!(DLTensor, byte_offset),
];

/// The functions of the shared library that this test calls, as C would.
struct C {
    open: unsafe extern "C" fn(*const *const c_char, usize, *mut *mut c_void, *mut *mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void),
    message: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    rmsnorm: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        *const c_char,
        *const DLTensor,
        *const DLTensor,
        *const DLTensor,
        f64,
        f64,
        *mut *mut c_void,
    ) -> c_int,
}

impl C {
    fn load() -> Self {
        // SAFETY: a library of ours, which is never closed; the types are those of the header.
        unsafe {
            let library = Box::leak(Box::new(libloading::Library::new(shared_library()).unwrap()));
            Self {
                open: *library.get(b"parbake_open").unwrap(),
                close: *library.get(b"parbake_close").unwrap(),
                message: *library.get(b"parbake_error_message").unwrap(),
                rmsnorm: *library.get(b"parbake_rmsnorm").unwrap(),
            }
        }
    }
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1000) as f32 / 250.0 - 2.0).collect()
}

const HIDDEN: usize = 96;

fn view(data: &[f32], shape: &[i64]) -> DLTensor {
    DLTensor {
        data: data.as_ptr().cast_mut().cast(),
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset: 0,
    }
}

/// The norm of rows, by the Rust API.
fn by_rust(library: &Library, x: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len()];
    let rows = (x.len() / HIDDEN) as i64;
    let tensor = |data: *const f32, shape: &[i64]| Tensor::dense(data.cast_mut().cast(), DType::F32, shape).unwrap();
    let tensors = [
        tensor(out.as_mut_ptr(), &[rows, HIDDEN as i64]),
        tensor(x.as_ptr(), &[rows, HIDDEN as i64]),
        tensor(weight.as_ptr(), &[HIDDEN as i64]),
    ];
    let op = library.op("rmsnorm").unwrap();
    // SAFETY: all memory outlives the call, which is done when it returns.
    unsafe { library.call(op, &tensors, &[1e-6, 0.0], Place::Host, Stream::DEFAULT).unwrap() };
    out
}

#[test]
fn sixteen_threads_and_a_caller_in_rust_get_the_same_numbers() {
    let world = World::new();
    let weight = numbers(HIDDEN, 99);
    // Sizes differ, so that several tactics are compiled while other threads call.
    let inputs: Vec<Vec<f32>> = (0..16).map(|i| numbers((1 + i * i) * HIDDEN, i)).collect();
    let c = C::load();
    let kernels = common::root().join("kernels").display().to_string();
    let workspace = world.folder.path().join("another").display().to_string();
    let texts = ["PARBAKE_KERNELS", &kernels, "PARBAKE_WORKSPACE", &workspace].map(|t| CString::new(t).unwrap());
    let settings = texts.each_ref().map(|t| t.as_ptr());
    let (mut handle, mut error) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two pairs of texts, and room for what is given.
    assert_eq!(unsafe { (c.open)(settings.as_ptr(), 2, &raw mut handle, &raw mut error) }, 0);
    let library = handle as usize;
    let by_c = |x: &[f32]| {
        let mut out = vec![f32::NAN; x.len()];
        let (rows, columns) = ([(x.len() / HIDDEN) as i64, HIDDEN as i64], [HIDDEN as i64]);
        let out_view = DLTensor { data: out.as_mut_ptr().cast(), ..view(&[], &rows) };
        let (x_view, weight_view) = (view(x, &rows), view(&weight, &columns));
        let mut error = std::ptr::null_mut();
        let (handle, stream) = (library as *mut c_void, std::ptr::null_mut());
        // SAFETY: complete descriptors of memory that outlives the call.
        unsafe {
            let result = (c.rmsnorm)(
                handle,
                stream,
                c"host".as_ptr(),
                &raw const out_view,
                &raw const x_view,
                &raw const weight_view,
                1e-6,
                0.0,
                &raw mut error,
            );
            let message = if error.is_null() { c"" } else { CStr::from_ptr((c.message)(error)) };
            assert_eq!(result, 0, "{message:?}");
        }
        out
    };
    let rust = world.library();
    let expected: Vec<Vec<f32>> = inputs.iter().map(|x| by_rust(&rust, x, &weight)).collect();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (by_c, inputs, expected) = (&by_c, &inputs, &expected);
            scope.spawn(move || {
                for call in 0..64 {
                    let i = (thread + call) % inputs.len();
                    assert_eq!(by_c(&inputs[i]), expected[i], "thread {thread}, call {call}");
                }
            });
        }
    });
    // SAFETY: no call is running.
    unsafe { (c.close)(handle) };
}
