//! The API log on a GPU: values come back by the call's own stream, nothing is read during a capture, and what a driver
//! says ends in the log and in the dump.

use super::{ARCHS, Framework, bundle, calls, in_child_on};
use crate::common::World;
use crate::fake::{Machine, setting};
use parbake::log::record::{Record, State};
use parbake::log::{Dumped, parse};
use parbake::model::dtype::DType;
use parbake::model::settings::{LogDestination, LogLevel};
use parbake::{Called, Error, Library, Place, Stream, Tensor};
use std::ffi::c_void;
use std::path::PathBuf;

/// A stream of a framework.
const STREAM: Stream = Stream(0x5000 as *mut _);

/// A library with this bundle only that logs to a file.
struct Logging {
    world: World,
    library: Library,
}

impl Logging {
    fn new(bundle: impl Into<PathBuf>, level: LogLevel) -> Self {
        let mut world = World::new();
        world.config.bundles = vec![bundle.into()];
        world.config.jit = false;
        world.config.log = Some(level);
        world.config.log_dest = LogDestination::File(world.folder.path().join("log").display().to_string());
        let library = world.library();
        Self { world, library }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.world.folder.path().join("log")).unwrap()
    }

    /// The one dump, and what it says.
    fn dump(&self) -> (PathBuf, Record) {
        let dumps = std::fs::read_dir(self.world.config.workspace.join("dumps")).unwrap().flatten().map(|e| e.path());
        let dumps: Vec<PathBuf> = dumps.filter(|p| p.is_dir()).collect();
        let [dump] = dumps.try_into().unwrap();
        let record = parse(&std::fs::read(dump.join("call.json")).unwrap()).unwrap();
        (dump, record)
    }

    /// Calls the op on rows of ones that lie 1536 elements apart. The fake driver's kernels compute nothing, so `out`
    /// keeps its twos.
    fn call(&self) -> Result<Called, Error> {
        let mut memory = vec![0u16; 4 * 1536 * 2 + 1024 + 128];
        let base = memory.as_mut_ptr().cast::<c_void>();
        let start = base.align_offset(256) / 2;
        let (x, out, weight) = (start, start + 4 * 1536, start + 8 * 1536);
        for row in 0..4 {
            memory[x + row * 1536..][..1024].fill(0x3f80);
            memory[out + row * 1536..][..1024].fill(0x4000);
            // Between the rows there is what would spoil every figure.
            memory[x + row * 1536 + 1024..][..512].fill(0x7fc0);
        }
        let tensor = |at: usize, shape: &[i64], strides: &[i64]| {
            Tensor::new(base.wrapping_byte_add(2 * at), DType::Bf16, shape, strides).unwrap()
        };
        let rows = |at| tensor(at, &[4, 1024], &[1536, 1]);
        let tensors = [rows(out), rows(x), tensor(weight, &[1024], &[1])];
        let op = self.library.op("rmsnorm").unwrap();
        // SAFETY: the fake driver's kernels compute nothing, and its copies are of this memory.
        unsafe { self.library.call(op, &tensors, &[1e-6, 0.0], Place::Cuda(0), STREAM) }
    }
}

#[test]
fn values_come_back_by_the_stream_of_the_call() {
    let test = "log::values_come_back_by_the_stream_of_the_call";
    let machine = Machine::with("9.0:NVIDIA H200:143771;8.0").driver(13000);
    let Some(file) = in_child_on(test, machine) else { return };
    let framework = Framework::open();
    let logging = Logging::new(file, LogLevel::Dumps);
    logging.call().unwrap();
    assert!(framework.current().is_null());
    let log = logging.log();
    for part in [
        ":0 driver of CUDA 13.0",
        ":0 device cuda:0 NVIDIA H200, sm_90, ",
        ":0 device cuda:1 ",
        " on cuda:0\n",
        "kernel rmsnorm-bf16-",
        " from bundle, image ",
        "values x min 1 max 1 mean 1, 4096 finite 0 nan 0 inf",
        "values out min 2 max 2 mean 2, 4096 finite 0 nan 0 inf",
        "done after ",
    ] {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
    // Rows without their gaps, each tensor twice: for the figures and for the dump.
    let copies = calls("cuMemcpy2DAsync_v2");
    assert_eq!(copies.len(), 4, "{copies:?}");
    let all = copies.iter().chain(&calls("cuMemcpyDtoHAsync_v2")).cloned().collect::<Vec<_>>();
    assert!(all.iter().all(|c| c.get("stream") == "0x5000" && c.get("context") == "0"), "{all:?}");
    assert!(copies.iter().all(|c| (c.get("width"), c.get("pitch")) == ("2048", "3072")), "{copies:?}");
    assert!(calls("cuCtxSynchronize").is_empty());
    let (dump, record) = logging.dump();
    assert_eq!((record.state, record.place.as_str()), (State::Done, "cuda:0"));
    let device = record.device.unwrap();
    assert_eq!((device.name.as_str(), device.target.to_string().as_str()), ("NVIDIA H200", "sm_90"));
    assert_eq!(record.driver.unwrap().version.to_string(), "13.0");
    assert_eq!(record.kernel.toolkit.unwrap().to_string(), "12.9");
    assert_eq!(record.kernel.target.unwrap().to_string(), "sm_90a");
    assert!(dump.join("outputs.safetensors").is_file());
    // What no kernel computed is wrong, and is what was recorded all the same.
    let mut world = World::new();
    world.config.jit = true;
    let replayed = Dumped::open(&dump).unwrap().replay(&world.library(), Place::Host, 1).unwrap();
    assert!(!replayed.ok && replayed.reference.unwrap().wrong.is_none());
    let differs: Vec<&str> = replayed.differences.iter().map(|d| d.what.as_str()).collect();
    assert!(["target", "toolkit", "place", "device", "driver"].iter().all(|d| differs.contains(d)), "{differs:?}");
}

#[test]
fn arguments_and_kernel_cost_no_wait() {
    let test = "log::arguments_and_kernel_cost_no_wait";
    let Some(file) = in_child_on(test, Machine::with("9.0")) else { return };
    let logging = Logging::new(file, LogLevel::Arguments);
    logging.call().unwrap();
    let log = logging.log();
    assert!(log.contains("tensor weight bf16 [1024] ") && log.contains("launched after "), "{log}");
    for function in ["cuStreamSynchronize", "cuStreamIsCapturing", "cuMemcpy2DAsync_v2", "cuMemcpyDtoHAsync_v2"] {
        assert!(calls(function).is_empty(), "{function}");
    }
}

#[test]
fn nothing_is_read_while_the_stream_is_captured() {
    let test = "log::nothing_is_read_while_the_stream_is_captured";
    let Some(file) = in_child_on(test, Machine::with("9.0").set("FAKE_CUDA_CAPTURE", "active")) else { return };
    let logging = Logging::new(file, LogLevel::Dumps);
    logging.call().unwrap();
    let log = logging.log();
    assert!(log.contains("values are not read: the stream is being captured") && !log.contains("values x"), "{log}");
    for function in ["cuStreamSynchronize", "cuMemcpy2DAsync_v2", "cuMemcpyDtoHAsync_v2"] {
        assert!(calls(function).is_empty(), "{function}");
    }
    assert_eq!(calls("cuLaunchKernelEx").len(), 1);
    let (dump, record) = logging.dump();
    assert!(record.captured && record.state == State::Done && record.tensors.len() == 3);
    assert!(!dump.join("inputs.safetensors").exists() && !dump.join("outputs.safetensors").exists());
    let refused = Dumped::open(&dump).unwrap().replay(&logging.library, Place::Host, 1).unwrap_err();
    assert_eq!(refused.report().code, "PB-2132");
}

#[test]
fn a_kernel_that_faults_is_the_error_of_its_own_call() {
    let test = "log::a_kernel_that_faults_is_the_error_of_its_own_call";
    for (fails, level) in
        [("cuLaunchKernelEx=700", "3"), ("cuLaunchKernelEx=700", "10"), ("cuStreamSynchronize=700", "10")]
    {
        if std::env::var("FAKE_CUDA_BUNDLE").is_err() {
            let Some(bundle) = bundle(ARCHS) else { return };
            let machine = Machine::with("9.0").failing(fails).set("FAKE_CUDA_LEVEL", level);
            machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
            continue;
        }
        let level = LogLevel::of(setting("FAKE_CUDA_LEVEL").parse().unwrap()).unwrap();
        let logging = Logging::new(setting("FAKE_CUDA_BUNDLE"), level);
        let error = logging.call().unwrap_err().report();
        assert_eq!(error.code, "PB-2122", "{error}");
        let log = logging.log();
        assert!(log.contains("failed after ") && log.contains("PB-2122"), "{log}");
        assert!(log.contains("tensor x bf16 [4, 1024]") && log.contains("kernel rmsnorm-bf16-"), "{log}");
        // Where even the inputs cannot be read, there is no dump, and the log has the call.
        if level == LogLevel::Dumps && setting("FAKE_CUDA_FAIL").starts_with("cuLaunch") {
            let (_, record) = logging.dump();
            assert!(record.state == State::Failed && record.error.unwrap().contains("PB-2122"));
        }
        return;
    }
}
