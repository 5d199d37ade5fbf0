//! What needs a real device and one process: several specs, compiling, a graph that is captured, a fork.
//!
//! Every test here asks for a GPU and is skipped without one; `tests/gpu/load.py` runs this program where there is one.
//! The same rules are tested under a fake driver in `tests/driver.rs`.

#![allow(clippy::print_stdout, reason = "skips are printed")]

use parbake::decision::Origin;
use parbake::memory::{self, Memory};
use parbake::model::dtype::DType;
use parbake::model::settings::Config;
use parbake::trial::Trial;
use parbake::{Called, Error, Library, Place, Stream, Tensor};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

/// A library with the kernels of the environment, no bundle, and a workspace that goes away.
fn library() -> (tempfile::TempDir, Library) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::from_env().unwrap();
    config.workspace = folder.path().join("workspace");
    config.bundles = Vec::new();
    (folder, Library::open(config).unwrap())
}

/// Whether this machine compiles for the device; otherwise the skip is printed.
fn compiles(library: &Library, place: Place) -> bool {
    let found = library.toolchain_for(library.goal(place).unwrap());
    if let Err(report) = &found {
        println!("skipped: needs a compiler for this GPU: {}", report.what);
    }
    found.is_ok()
}

fn trial(library: &Library, op: &str, dtype: &str, hidden: i64) -> Trial {
    let def = library.definition(library.op(op).unwrap());
    let mut trial = Trial::example(def, BTreeMap::from([("dtype".to_owned(), dtype.to_owned())]));
    trial.dims = BTreeMap::from([("rows".to_owned(), 33), ("hidden".to_owned(), hidden)]);
    trial
}

const ROWS: i64 = 64;
const HIDDEN: i64 = 1024;

/// Rows of f32 on a device, with an output of NaNs.
struct Rows {
    out: Memory,
    x: Memory,
    weight: Memory,
}

impl Rows {
    fn new(place: Place) -> Self {
        let count = (ROWS * HIDDEN) as usize;
        let bytes = |n: usize| (0..n).flat_map(|i| ((i % 251) as f32 / 50.0 - 2.0).to_le_bytes()).collect::<Vec<u8>>();
        let new = |content: &[u8]| Memory::new(place, content).unwrap();
        Self { out: new(&vec![0xff; 4 * count]), x: new(&bytes(count)), weight: new(&bytes(HIDDEN as usize)) }
    }

    fn call(&mut self, library: &Library, place: Place, stream: Stream) -> Result<Called, Error> {
        let tensor = |memory: &mut Memory, shape: &[i64]| Tensor::dense(memory.pointer(), DType::F32, shape).unwrap();
        let arguments = [
            tensor(&mut self.out, &[ROWS, HIDDEN]),
            tensor(&mut self.x, &[ROWS, HIDDEN]),
            tensor(&mut self.weight, &[HIDDEN]),
        ];
        // SAFETY: the memory lives until it is read back.
        unsafe { library.call(library.op("rmsnorm").unwrap(), &arguments, &[1e-6, 0.0], place, stream) }
    }
}

#[test]
fn gpu_several_specs_are_compiled_and_run_in_one_process() {
    let devices = parbake::require!(target = "sm_80");
    let (_folder, library) = library();
    let place = Place::Cuda(devices[0]);
    if !compiles(&library, place) {
        return;
    }
    println!("compiles with {}", library.toolchain_for(library.goal(place).unwrap()).unwrap().id());
    let mut seen = std::collections::BTreeSet::new();
    for (op, dtype, hidden) in [
        ("rmsnorm", "bf16", 4096),
        ("rmsnorm", "f32", 4096),
        ("rmsnorm", "bf16", 96),
        ("fused_add_rmsnorm", "f16", 512),
    ] {
        let id = library.op(op).unwrap();
        for expected in [Origin::Jit, Origin::Registry] {
            let outcome = trial(&library, op, dtype, hidden).run(&library, id, place).unwrap();
            assert!(outcome.ok && outcome.from == expected, "{outcome:#?}");
            seen.insert(outcome.uri);
        }
    }
    assert_eq!((seen.len(), library.stats().jit), (4, 4));
}

/// The part of the driver's interface for graphs.
struct Graphs(libloading::Library);

impl Graphs {
    /// With the device's context current, as a framework has it while it captures.
    fn open(ordinal: i32) -> Self {
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
        type Set = unsafe extern "C" fn(*mut c_void) -> c_int;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the library is there and initialised, as a device was found; the signatures are the driver's.
        unsafe {
            let library = libloading::Library::new("libcuda.so.1").unwrap();
            assert_eq!(library.get::<Get>(b"cuDeviceGet\0").unwrap()(&raw mut device, ordinal), 0);
            assert_eq!(library.get::<Retain>(b"cuDevicePrimaryCtxRetain\0").unwrap()(&raw mut context, device), 0);
            assert_eq!(library.get::<Set>(b"cuCtxSetCurrent\0").unwrap()(context), 0);
            Self(library)
        }
    }

    fn begin(&self, stream: Stream) {
        const GLOBAL: c_int = 0;
        type Begin = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
        // SAFETY: the signature is the driver's; the stream is ours.
        unsafe { assert_eq!(self.0.get::<Begin>(b"cuStreamBeginCapture_v2\0").unwrap()(stream.0, GLOBAL), 0) };
    }

    /// Ends the capture, and gives what can be launched.
    fn end(&self, stream: Stream) -> *mut c_void {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
        type Instantiate = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, u64) -> c_int;
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the signatures are the driver's; out-parameters are plain.
        unsafe {
            assert_eq!(self.0.get::<End>(b"cuStreamEndCapture\0").unwrap()(stream.0, &raw mut graph), 0);
            let instantiate = self.0.get::<Instantiate>(b"cuGraphInstantiateWithFlags\0").unwrap();
            assert_eq!(instantiate(&raw mut executable, graph, 0), 0);
        }
        executable
    }

    fn launch(&self, executable: *mut c_void, stream: Stream) {
        type Launch = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
        // SAFETY: the signature is the driver's; the graph is instantiated, its memory lives.
        unsafe { assert_eq!(self.0.get::<Launch>(b"cuGraphLaunch\0").unwrap()(executable, stream.0), 0) };
    }
}

#[test]
fn gpu_a_kernel_that_is_compiled_during_a_capture_is_in_the_graph() {
    let devices = parbake::require!(target = "sm_80");
    let (_folder, library) = library();
    let place = Place::Cuda(devices[0]);
    if !compiles(&library, place) {
        return;
    }
    let (mut captured, mut plain) = (Rows::new(place), Rows::new(place));
    let stream = memory::stream(place).unwrap();
    let graphs = Graphs::open(devices[0]);
    graphs.begin(stream);
    let called = captured.call(&library, place, stream);
    let executable = graphs.end(stream);
    assert_eq!(called.unwrap().from, Origin::Jit);
    // Recorded, not run: the output is as it was.
    assert!(captured.out.read().unwrap().iter().all(|b| *b == 0xff));
    graphs.launch(executable, stream);
    assert_eq!(plain.call(&library, place, Stream::DEFAULT).unwrap().from, Origin::Registry);
    let expected = plain.out.read().unwrap();
    assert!(expected.iter().any(|b| *b != 0xff));
    assert!(captured.out.read().unwrap() == expected);
}

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

#[test]
fn gpu_a_fork_after_the_start_is_told_instead_of_hanging() {
    let devices = parbake::require!(target = "sm_80");
    let (_folder, library) = library();
    let place = Place::Cuda(devices[0]);
    if !compiles(&library, place) {
        return;
    }
    let mut rows = Rows::new(place);
    rows.call(&library, place, Stream::DEFAULT).unwrap();
    let mut status = -1;
    // SAFETY: the child asks, and ends without returning or calling the driver.
    unsafe {
        let child = fork();
        if child == 0 {
            let called = rows.call(&library, place, Stream::DEFAULT).err().map(|e| e.report().code);
            let allocated = Memory::new(place, &[1]).err().map(|e| e.report().code);
            _exit(if (called, allocated) == (Some("PB-2118"), Some("PB-2118")) { 7 } else { 1 });
        }
        assert_eq!(waitpid(child, &raw mut status, 0), child);
    }
    assert_eq!(status >> 8, 7);
    rows.call(&library, place, Stream::DEFAULT).unwrap();
    rows.out.read().unwrap();
}
