//! What the library does with a driver: which image it hands over, in which context, and what it says when the driver
//! is old, broken or not there. Every test runs under the fake driver, in a process of its own.

#![allow(clippy::print_stdout, reason = "skips are printed")]

#[path = "driver/capture.rs"]
mod capture;
mod common;
#[path = "fake/driver.rs"]
mod fake;
#[path = "driver/group.rs"]
mod group;
#[path = "driver/log.rs"]
mod log;
#[path = "driver/maps.rs"]
mod maps;

use common::{World, norm};
use fake::{Machine, bundle, calls, name_of, setting};
use parbake::decision::Origin;
use parbake::driver::{self, Driver};
use parbake::memory::Memory;
use parbake::model::bundle::Bundle;
use parbake::model::dtype::DType;
use parbake::model::identity::Profile;
use parbake::model::{Digest, Target};
use parbake::trial::Outcome;
use parbake::{Error, Goal, Library, Place, Stream, Tensor};
use std::ffi::{c_int, c_void};

/// The targets of the bundle that most tests take.
const ARCHS: &str = "80,86,90,90a,100,100a,100f,120f";

/// A library that has this bundle only.
fn library(bundle: &str) -> Library {
    let mut world = World::new();
    world.config.bundles = vec![bundle.into()];
    world.config.jit = false;
    world.library()
}

/// Calls the op on memory that no kernel of the fake driver touches.
fn call(library: &Library, place: Place, stream: Stream) -> Result<parbake::Called, Error> {
    let mut memory = vec![0u16; 3 * 4096 + 512];
    let base = memory.as_mut_ptr().cast::<c_void>();
    let base = base.wrapping_byte_add(base.align_offset(256));
    let tensor = |at: usize, shape: &[i64]| Tensor::dense(base.wrapping_byte_add(at), DType::Bf16, shape).unwrap();
    let tensors = [tensor(0, &[4, 1024]), tensor(8192, &[4, 1024]), tensor(16384, &[1024])];
    // SAFETY: the fake driver's kernels compute nothing.
    unsafe { library.call(library.op("rmsnorm").unwrap(), &tensors, &[1e-6, 0.0], place, stream) }
}

fn trial(library: &Library, place: Place) -> Result<Outcome, Error> {
    norm(library, "rmsnorm", "bf16", 4, 1024).run(library, library.op("rmsnorm").unwrap(), place)
}

/// The driver as a framework in this process uses it.
struct Framework(libloading::Library);

impl Framework {
    fn open() -> Self {
        // SAFETY: the fake driver has no initialisers.
        Self(unsafe { libloading::Library::new("libcuda.so.1") }.unwrap())
    }
    fn current(&self) -> *mut c_void {
        let mut context = std::ptr::null_mut();
        // SAFETY: the signature is the driver's.
        unsafe {
            let get = self.0.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"cuCtxGetCurrent\0").unwrap();
            assert_eq!(get(&raw mut context), 0);
        }
        context
    }
    /// Makes the context of a device current, and gives it.
    fn enter(&self, ordinal: c_int) -> *mut c_void {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
        type Set = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the signatures are the driver's.
        unsafe {
            assert_eq!(self.0.get::<Get>(b"cuDeviceGet\0").unwrap()(&raw mut device, ordinal), 0);
            assert_eq!(self.0.get::<Retain>(b"cuDevicePrimaryCtxRetain\0").unwrap()(&raw mut context, device), 0);
            assert_eq!(self.0.get::<Set>(b"cuCtxSetCurrent\0").unwrap()(context), 0);
        }
        context
    }
    fn leave(&self) {
        type Set = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the signature is the driver's.
        unsafe { assert_eq!(self.0.get::<Set>(b"cuCtxSetCurrent\0").unwrap()(std::ptr::null_mut()), 0) };
    }
}

/// Every way to a device says the same, and none panics.
fn refused_everywhere(ordinal: i32) -> Vec<Error> {
    let (library, place) = (World::new().library(), Place::Cuda(ordinal));
    vec![
        library.goal(place).unwrap_err(),
        call(&library, place, Stream::DEFAULT).unwrap_err(),
        trial(&library, place).unwrap_err(),
        Memory::new(place, &[1, 2, 3]).err().unwrap(),
        parbake::memory::stream(place).err().unwrap(),
        parbake::memory::time(place, || Ok::<(), Error>(())).unwrap_err(),
        driver::device(ordinal).unwrap_err().into(),
    ]
}

#[test]
fn without_a_driver_library_that_is_said() {
    if !Machine::without_driver().runs("without_a_driver_library_that_is_said") {
        return;
    }
    if !matches!(driver::driver(), Driver::Absent { .. }) {
        println!("skipped: needs a machine whose loader finds no libcuda.so.1");
        return;
    }
    for error in refused_everywhere(0) {
        let report = error.report();
        assert_eq!(report.code, "PB-2110", "{report}");
        let text = report.to_string();
        assert!(text.contains("libcuda.so.1") && text.contains("--target host"), "{text}");
    }
    // What is covered is told without a device, and the CPU works.
    let library = World::new().library();
    assert!(driver::first().is_err() && driver::ready().is_none());
    let op = library.op("rmsnorm").unwrap();
    let spec = library.spec(op, &[("dtype".into(), "f32".into())], "sm_90a".parse().unwrap()).unwrap();
    library.explain(op, &spec, Goal::Target("sm_90a".parse().unwrap())).unwrap();
}

#[test]
fn each_refusal_of_the_driver_has_its_code_and_its_advice() {
    let test = "each_refusal_of_the_driver_has_its_code_and_its_advice";
    let one = || Machine::with("9.0");
    let rows = [
        (one().failing("cuInit=34"), "PB-2112", "stubs"),
        (one().failing("cuInit=100"), "PB-2101", "CUDA_VISIBLE_DEVICES: not set"),
        (one().failing("cuInit=803"), "PB-2113", "restart after an update"),
        (one().failing("cuInit=804"), "PB-2114", "compatibility package"),
        (one().failing("cuInit=999"), "PB-2115", "nvidia-smi"),
        (one().failing("cuInit=3"), "PB-2118", "spawn"),
        (one().failing("cuInit=54321"), "PB-2115", "unknown (54321)"),
        (one().failing("cuDriverGetVersion=999"), "PB-2115", "cuDriverGetVersion"),
        (one().failing("cuDeviceGetCount=100"), "PB-2101", "container"),
        (one().failing("cuDeviceGetName=101"), "PB-2117", "cuDeviceGetName failed with CUDA_ERROR_INVALID_DEVICE"),
        (one().set("CUDA_VISIBLE_DEVICES", ""), "PB-2101", "CUDA_VISIBLE_DEVICES: ``"),
        (Machine::with(""), "PB-2101", "the driver shows no GPU"),
        (Machine::with("-1.0"), "PB-2117", "compute capability is -1.0"),
        (Machine::with("9.10"), "PB-2117", "compute capability is 9.10"),
        (one().lacking("cuLibraryLoadData"), "PB-2111", "525"),
        (one().lacking("cuStreamIsCapturing"), "PB-2111", "no cuStreamIsCapturing"),
    ];
    for (machine, code, says) in rows {
        if !machine.set("FAKE_CUDA_EXPECT", format!("{code} {says}")).runs(test) {
            continue;
        }
        let expected = setting("FAKE_CUDA_EXPECT");
        let (code, says) = expected.split_once(' ').unwrap();
        for error in refused_everywhere(0) {
            let report = error.report();
            assert_eq!(report.code, code, "{report}");
            assert!(report.to_string().contains(says), "no {says:?} in {report}");
            assert!(!report.help.is_empty(), "{report}");
        }
        return;
    }
}

#[test]
fn a_device_that_is_not_there_is_named() {
    if !Machine::with("9.0;9.0").runs("a_device_that_is_not_there_is_named") {
        return;
    }
    for ordinal in [-1, 2, 64, 65534, 65535, i32::MAX, i32::MIN] {
        for error in refused_everywhere(ordinal) {
            let text = error.report().to_string();
            assert!(text.contains("PB-2116") && text.contains("one of [0, 1]"), "{text}");
            assert!(text.contains(&format!("there is no device {ordinal}")), "{text}");
        }
    }
    assert!(calls("cuDevicePrimaryCtxRetain").is_empty());
}

/// Which image of the bundle a device gets under a driver: `sm_90a`, or what the error says.
#[test]
fn the_driver_is_handed_the_best_image_alone_and_never_a_wrong_one() {
    let test = "the_driver_is_handed_the_best_image_alone_and_never_a_wrong_one";
    let rows = [
        ("8.0", 12000, "sm_80"),
        ("8.0", 13000, "sm_80"),
        ("8.9", 12020, "sm_86"),
        ("8.6", 13000, "sm_86"),
        ("9.0", 12000, "sm_90a"),
        ("9.0", 13000, "sm_90a"),
        ("10.0", 12080, "sm_100a"),
        ("10.3", 12090, "sm_100f"),
        ("10.3", 13000, "sm_100f"),
        ("12.0", 12080, "sm_120f"),
        ("12.1", 13000, "sm_120f"),
        ("8.7", 13000, "sm_86 is not promised to run on compute capability 8.7"),
        ("9.0", 11080, "needs a driver for CUDA 12.0 or newer; the driver supports CUDA 11.8"),
        ("10.0", 12040, "compute capability 10.0 needs a driver for CUDA 12.8"),
        ("10.3", 12080, "compute capability 10.3 needs a driver for CUDA 12.9"),
        ("11.0", 13000, "sm_100f runs on the family 10.x only; the device is 11.0"),
        ("7.5", 13000, "bf16"),
        ("13.7", 13050, "sm_120f runs on the family 12.x only; the device is 13.7"),
    ];
    for (capability, version, expected) in rows {
        let child = std::env::var("FAKE_CUDA_BUNDLE").is_ok();
        if !child {
            let Some(bundle) = bundle(ARCHS) else { return };
            let machine = Machine::with(capability).driver(version).set("FAKE_CUDA_EXPECT", expected);
            machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
            continue;
        }
        let (expected, file) = (setting("FAKE_CUDA_EXPECT"), setting("FAKE_CUDA_BUNDLE"));
        let library = library(&file);
        let outcome = trial(&library, Place::Cuda(0));
        let loads = calls("cuLibraryLoadData");
        let Ok(target) = expected.parse::<Target>() else {
            let text = outcome.unwrap_err().report().to_string();
            assert!(text.contains(&expected), "{text}");
            assert!(loads.is_empty(), "{loads:?}");
            return;
        };
        // The fake kernel computes nothing, and a number that is wrong does not pass.
        let outcome = outcome.unwrap();
        assert_eq!((outcome.target, outcome.from, outcome.ok), (Some(target), Origin::Bundle, false));
        assert!(outcome.wrong.unwrap().contains("got NaN"));
        let bundle = Bundle::open(std::fs::read(&file).unwrap()).unwrap();
        let entry = bundle.entries().iter().find(|e| e.target == target).unwrap();
        let image = bundle.image(entry).unwrap();
        assert_eq!(loads.len(), 1, "{loads:?}");
        assert_eq!(loads[0].get("image"), name_of(&image));
        assert_eq!((loads[0].get("context"), loads[0].result), ("0", 0));
        assert_eq!(loads[0].get("head"), "50ed55ba");
        let launch = &calls("cuLaunchKernelEx")[0];
        assert_eq!(launch.get("entry"), calls("cuLibraryGetKernel")[0].get("entry"));
        assert_eq!((launch.get("grid"), launch.result), ("4,1,1", 0));
        return;
    }
}

#[test]
fn what_the_driver_refuses_after_our_verdict_is_a_bug_report() {
    let test = "what_the_driver_refuses_after_our_verdict_is_a_bug_report";
    let rows = [
        ("cuLibraryLoadData=200", "PB-2103 CUDA_ERROR_INVALID_IMAGE"),
        ("cuLibraryLoadData=209", "PB-2103 CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuLibraryLoadData=218", "PB-2103 CUDA_ERROR_INVALID_PTX"),
        ("cuLibraryLoadData=222", "PB-2103 CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        ("cuLibraryGetKernel=500", "PB-2103 cuLibraryGetKernel"),
        ("cuKernelGetFunction=98", "PB-2103 cuKernelGetFunction"),
        ("cuLibraryLoadData=2", "PB-2121 nvidia-smi"),
        ("cuDevicePrimaryCtxRetain=2", "PB-2121 cuDevicePrimaryCtxRetain"),
        ("cuCtxGetCurrent=201", "PB-2102 cuCtxGetCurrent"),
        ("cuCtxSetCurrent=700", "PB-2122 end the process"),
        ("cuKernelGetFunction=719", "PB-2122 compute-sanitizer"),
        ("cuLibraryLoadData=999", "PB-2102 CUDA_ERROR_UNKNOWN (999)"),
        ("cuLibraryLoadData=4711", "PB-2102 unknown (4711)"),
    ];
    for (failure, expected) in rows {
        if std::env::var("FAKE_CUDA_BUNDLE").is_err() {
            let Some(bundle) = bundle(ARCHS) else { return };
            let machine = Machine::with("9.0:NVIDIA H200:143771").failing(failure).set("FAKE_CUDA_EXPECT", expected);
            machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
            continue;
        }
        let library = library(&setting("FAKE_CUDA_BUNDLE"));
        let expected = setting("FAKE_CUDA_EXPECT");
        let (code, says) = expected.split_once(' ').unwrap();
        // A second call is a second attempt, and fails alike.
        for _ in 0..2 {
            let report = call(&library, Place::Cuda(0), Stream::DEFAULT).unwrap_err().report();
            let text = report.to_string();
            assert!(report.code == code && text.contains(says), "{text}");
            if code == "PB-2103" {
                let entry = Bundle::open(std::fs::read(setting("FAKE_CUDA_BUNDLE")).unwrap()).unwrap();
                let entry = entry.entries().iter().find(|e| e.target.to_string() == "sm_90a").unwrap().image;
                for part in [
                    "image: sm_90a by CUDA 12.9",
                    &format!("sha256 {entry}"),
                    "from: bundle",
                    "verdict: compiled for exactly this chip",
                    "device: 0: NVIDIA H200, sm_90",
                    "driver: CUDA 13.0",
                    "bug worth reporting",
                ] {
                    assert!(text.contains(part), "no {part:?} in {text}");
                }
            }
        }
        assert_eq!(library.stats().failed, 2);
        assert!(calls("cuLaunchKernelEx").is_empty());
        return;
    }
}

#[test]
fn a_broken_device_spoils_no_other() {
    let test = "a_broken_device_spoils_no_other";
    for failure in ["cuDeviceGetName@0=101", "cuDeviceGet@0=46", "cuDevicePrimaryCtxRetain@0=999"] {
        if std::env::var("FAKE_CUDA_BUNDLE").is_err() {
            let Some(bundle) = bundle(ARCHS) else { return };
            let machine = Machine::with("9.0;8.0").failing(failure);
            machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
            continue;
        }
        let library = library(&setting("FAKE_CUDA_BUNDLE"));
        let listed = !setting("FAKE_CUDA_FAIL").contains("Retain");
        let report = call(&library, Place::Cuda(0), Stream::DEFAULT).unwrap_err().report();
        assert_eq!(report.code, if listed { "PB-2117" } else { "PB-2102" }, "{report}");
        let called = call(&library, Place::Cuda(1), Stream::DEFAULT).unwrap();
        assert_eq!(called.kernel.unwrap().decision.target.unwrap().to_string(), "sm_80");
        assert_eq!(driver::first().unwrap().ordinal, i32::from(listed));
        let ready = driver::ready().unwrap();
        assert_eq!((ready.devices.len(), ready.broken.len()), if listed { (1, 1) } else { (2, 0) });
        return;
    }
}

#[test]
fn different_devices_in_one_process_get_their_own_images_in_their_own_contexts() {
    let test = "different_devices_in_one_process_get_their_own_images_in_their_own_contexts";
    let Some(file) = in_child(test, "8.0;9.0;12.0;9.0") else { return };
    let (library, framework) = (library(&file), Framework::open());
    let expected = ["sm_80", "sm_90a", "sm_120f", "sm_90a"];
    for round in 0..3 {
        for ordinal in [2, 0, 3, 1] {
            let called = call(&library, Place::Cuda(ordinal), Stream(0x10 as *mut _)).unwrap();
            assert_eq!(called.from, if round == 0 { Origin::Bundle } else { Origin::Registry });
            let target = called.kernel.unwrap().decision.target.unwrap().to_string();
            assert_eq!(target, expected[ordinal as usize]);
            assert!(framework.current().is_null());
        }
    }
    let loads = calls("cuLibraryLoadData");
    let seen: Vec<_> = loads.iter().map(|c| (c.get("context"), c.get("sm"))).collect();
    assert_eq!(seen, [("2", "120f"), ("0", "80"), ("3", "90a"), ("1", "90a")]);
    let launches = calls("cuLaunchKernelEx");
    assert_eq!(launches.len(), 12);
    for launch in &launches {
        let of = expected[launch.get("context").parse::<usize>().unwrap()];
        assert_eq!((launch.result, launch.get("stream")), (0, "0x10"));
        assert_eq!(format!("sm_{}", launch.get("sm")), of);
    }
    // A context is retained once, and none is released.
    assert_eq!(calls("cuDevicePrimaryCtxRetain").len(), 4);
}

/// In the child, the path of the bundle; in the parent, nothing more to do.
fn in_child(test: &str, devices: &str) -> Option<String> {
    in_child_on(test, Machine::with(devices))
}

fn in_child_on(test: &str, machine: Machine) -> Option<String> {
    if let Ok(file) = std::env::var("FAKE_CUDA_BUNDLE") {
        return Some(file);
    }
    let bundle = bundle(ARCHS)?;
    machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
    None
}

#[test]
fn the_context_that_was_current_is_current_again_also_after_errors() {
    let test = "the_context_that_was_current_is_current_again_also_after_errors";
    let machine = Machine::with("8.0;9.0;12.0;10.0")
        .failing("cuLaunchKernelEx@2=719,cuLibraryGetKernel@3=500,cuMemcpyHtoD_v2@3=700");
    let Some(file) = in_child_on(test, machine) else { return };
    let (library, framework) = (library(&file), Framework::open());
    driver::ready().unwrap();
    for own in [None, Some(0), Some(1), Some(2)] {
        let before = own.map_or_else(
            || {
                framework.leave();
                std::ptr::null_mut()
            },
            |ordinal| framework.enter(ordinal),
        );
        for (ordinal, code) in [(0, None), (1, None), (2, Some("PB-2122")), (3, Some("PB-2103")), (4, Some("PB-2116"))]
        {
            let result = call(&library, Place::Cuda(ordinal), Stream::DEFAULT);
            assert_eq!(result.err().map(|e| e.report().code), code, "device {ordinal}");
            assert_eq!(framework.current(), before);
        }
        // Memory that cannot be filled is given back, in its own context.
        let allocated = calls("cuMemAlloc_v2").len();
        let error = Memory::new(Place::Cuda(3), &[1, 2, 3]).err().unwrap();
        assert_eq!(error.report().code, "PB-2122");
        assert_eq!(calls("cuMemAlloc_v2").len(), allocated + 1);
        assert_eq!(calls("cuMemFree_v2").len(), allocated + 1);
        assert!(calls("cuMemFree_v2").iter().all(|c| c.get("context") == "3"));
        // Events are destroyed after an error too.
        let failing = || call(&library, Place::Cuda(2), Stream::DEFAULT).map(drop);
        assert_eq!(parbake::memory::time(Place::Cuda(0), failing).unwrap_err().report().code, "PB-2122");
        assert_eq!(calls("cuEventCreate").len(), calls("cuEventDestroy_v2").len());
        assert_eq!(framework.current(), before);
    }
}

#[test]
fn threads_on_several_devices_load_once_each_and_never_mix() {
    let test = "threads_on_several_devices_load_once_each_and_never_mix";
    let Some(file) = in_child(test, "8.0;9.0;12.0") else { return };
    let library = library(&file);
    let barrier = std::sync::Barrier::new(12);
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (library, barrier) = (&library, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for i in 0..30 {
                    call(library, Place::Cuda((thread + i) % 3), Stream::DEFAULT).unwrap();
                }
            });
        }
    });
    assert_eq!(calls("cuLibraryLoadData").len(), 3);
    assert_eq!((library.stats().bundle, library.stats().failed), (3, 0));
    let launches = calls("cuLaunchKernelEx");
    assert_eq!(launches.len(), 360);
    let of = ["80", "90a", "120f"];
    assert!(launches.iter().all(|l| l.result == 0 && of[l.get("context").parse::<usize>().unwrap()] == l.get("sm")));
}

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// The exit status of a fork that does this.
fn forked(work: impl FnOnce() -> bool) -> c_int {
    let mut status = -1;
    // SAFETY: the other threads of a test process wait; the child ends without returning.
    unsafe {
        let child = fork();
        if child == 0 {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            _exit(if fine { 0 } else { 1 });
        }
        assert_eq!(waitpid(child, &raw mut status, 0), child);
    }
    status
}

#[test]
fn a_fork_after_the_start_is_told_and_one_before_works() {
    let test = "a_fork_after_the_start_is_told_and_one_before_works";
    let Some(file) = in_child(test, "9.0") else { return };
    let library = library(&file);
    // Nothing has touched the driver yet.
    assert_eq!(forked(|| call(&library, Place::Cuda(0), Stream::DEFAULT).is_ok()), 0);
    let op = library.op("rmsnorm").unwrap();
    call(&library, Place::Cuda(0), Stream::DEFAULT).unwrap();
    let memory = Memory::new(Place::Cuda(0), &[7]).unwrap();
    let before = fake::log().len();
    let told = || {
        let code = |e: Error| e.report().code;
        let called = code(call(&library, Place::Cuda(0), Stream::DEFAULT).unwrap_err());
        let allocated = code(Memory::new(Place::Cuda(0), &[7]).err().unwrap());
        let report = library.goal(Place::Cuda(0)).unwrap_err().report();
        let read = code(memory.read().unwrap_err());
        [called, allocated, read, report.code] == ["PB-2118"; 4] && report.to_string().contains("spawn")
    };
    assert_eq!(forked(told), 0);
    // The driver was not asked once, and the parent is as before.
    assert_eq!(fake::log().len(), before);
    assert_eq!(call(&library, Place::Cuda(0), Stream::DEFAULT).unwrap().from, Origin::Registry);
    let spec = library.spec(op, &[("dtype".into(), "bf16".into())], "sm_90a".parse().unwrap()).unwrap();
    // What a child may ask: whether something is covered.
    let explained = || library.explain(op, &spec, Goal::Target("sm_90a".parse().unwrap())).is_ok();
    assert_eq!(forked(explained), 0);
}

#[test]
fn an_entry_with_right_hashes_and_a_wrong_image_never_reaches_the_driver() {
    let test = "an_entry_with_right_hashes_and_a_wrong_image_never_reaches_the_driver";
    let Some(file) = in_child(test, "9.0") else { return };
    let mut world = World::new();
    let compiler = common::toolchain(&world.library(), "sm_90a", "12.9");
    let Some(compiler) = compiler else { return };
    let made = |target: &str| {
        let library = world.library();
        let op = library.op("rmsnorm").unwrap();
        let values = [("dtype", "bf16"), ("block", "512"), ("rows", "1"), ("vec", "16"), ("peel", "0")];
        let values = values.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let target = target.parse().unwrap();
        let spec = library.spec(op, &values, target).unwrap();
        library.obtain(op, &spec, target, &*compiler, Profile::Release).unwrap().0
    };
    let (right, older) = (made("sm_90a"), made("sm_80").bytes);
    let newer = {
        let bundle = Bundle::open(std::fs::read(&file).unwrap()).unwrap();
        let entry = bundle.entries().iter().find(|e| e.target.to_string() == "sm_100a").unwrap();
        bundle.image(entry).unwrap()
    };
    let sample = std::fs::read(common::root().join("codegen/model/testdata/12.9-90a.cubin")).unwrap();
    let noise: Vec<u8> = (0..right.bytes.len() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let plain = made("sm_90").bytes;
    // Only the one forged entry remains.
    let folder = right.path.clone().unwrap();
    let source = folder.ancestors().nth(2).unwrap();
    for other in ["sm_80", "sm_90"] {
        std::fs::remove_dir_all(source.join(other)).unwrap();
    }
    world.config.jit = false;
    let cases = [
        ("another architecture", older, "sm_80"),
        ("a fatbin for another architecture", newer, "50 ed 55 ba"),
        ("without its suffix", plain, "sm_90"),
        ("cut", right.bytes[..right.bytes.len() / 2].to_vec(), ""),
        ("one byte short", right.bytes[..right.bytes.len() - 1].to_vec(), ""),
        ("random", noise, ""),
        ("empty", Vec::new(), "empty"),
        ("another kernel", sample, "sample"),
        ("PTX", b".version 8.8\n.target sm_90a\n.address_size 64\n\0".to_vec(), ""),
    ];
    for (what, bytes, says) in cases {
        let metadata = parbake::model::metadata::Metadata {
            image: Digest::of(&bytes),
            size: bytes.len() as u64,
            ..right.metadata.clone()
        };
        std::fs::write(folder.join("meta.json"), metadata.to_json()).unwrap();
        std::fs::write(folder.join("kernel.cubin"), &bytes).unwrap();
        let report = call(&world.library(), Place::Cuda(0), Stream::DEFAULT).unwrap_err().report();
        assert_eq!(report.code, "PB-2119", "{what}: {report}");
        assert!(report.to_string().contains(says), "{what}: {report}");
    }
    assert!(calls("cuLibraryLoadData").is_empty());
    // The right one is taken.
    std::fs::write(folder.join("meta.json"), right.metadata.to_json()).unwrap();
    std::fs::write(folder.join("kernel.cubin"), &right.bytes).unwrap();
    assert_eq!(call(&world.library(), Place::Cuda(0), Stream::DEFAULT).unwrap().from, Origin::Store);
    assert_eq!(calls("cuLibraryLoadData")[0].get("image"), name_of(&right.bytes));
}
