//! While a stream is being captured into a graph: loads are allowed, compiling is said once, and what would break the
//! capture is refused before the driver is asked.

use super::{bundle, call, calls, library, trial};
use crate::common::World;
use crate::fake::{self, Machine};
use parbake::decision::Origin;
use parbake::memory::{self, Memory};
use parbake::{Error, Library, Place, Stream};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The warnings of a thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Warnings {
    fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
        let warnings = Self::default();
        let result = tracing::subscriber::with_default(warnings.clone(), work);
        let said = warnings.0.lock().unwrap().clone();
        (result, said)
    }
}

/// A stream of a framework.
const STREAM: Stream = Stream(0x5000 as *mut _);

/// A library without bundles that may compile; without a toolkit the skip is printed.
fn compiling() -> Option<(World, Library)> {
    let world = World::new();
    let library = world.library();
    crate::common::toolchain(&library, "sm_90a", "12.9")?;
    Some((world, library))
}

#[test]
fn compiling_during_a_capture_is_said_once_and_the_kernel_works() {
    let test = "capture::compiling_during_a_capture_is_said_once_and_the_kernel_works";
    if !Machine::with("9.0").set("FAKE_CUDA_CAPTURE", "active").runs(test) {
        return;
    }
    let Some((_world, library)) = compiling() else { return };
    let (called, said) = Warnings::of(|| call(&library, Place::Cuda(0), STREAM));
    assert_eq!(called.unwrap().from, Origin::Jit);
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["prepare(", "rmsnorm", "uri=\"rmsnorm-bf16-", "compile_ms="] {
        assert!(said[0].contains(part), "no {part:?} in {said:?}");
    }
    // The load was made in relaxed mode, which the thread had only for that time.
    assert_eq!(calls("cuLibraryLoadData").iter().map(|c| c.result).collect::<Vec<_>>(), [0]);
    let modes: Vec<_> = calls("cuThreadExchangeStreamCaptureMode").iter().map(|c| c.get("mode").to_owned()).collect();
    assert_eq!(modes, ["2", "0"]);
    let asked = calls("cuStreamIsCapturing");
    assert_eq!(asked.iter().map(|c| (c.get("stream"), c.get("context"))).collect::<Vec<_>>(), [("0x5000", "0")]);
    // A kernel that is there asks nothing and says nothing.
    let (called, said) = Warnings::of(|| call(&library, Place::Cuda(0), STREAM));
    assert_eq!((called.unwrap().from, said.len()), (Origin::Registry, 0));
    assert_eq!(calls("cuStreamIsCapturing").len(), 1);
    assert!(calls("cuLaunchKernelEx").iter().all(|c| c.result == 0 && c.get("stream") == "0x5000"));
}

#[test]
fn only_a_capture_makes_compiling_worth_a_warning() {
    let test = "capture::only_a_capture_makes_compiling_worth_a_warning";
    for (status, stream, warnings) in [("none", "own", "0"), ("implicit", "default", "1"), ("implicit", "own", "0")] {
        let machine = Machine::with("9.0").set("FAKE_CUDA_CAPTURE", status).set("FAKE_CUDA_EXPECT", warnings);
        if !machine.set("FAKE_CUDA_STREAM", stream).runs(test) {
            continue;
        }
        let Some((_world, library)) = compiling() else { return };
        let stream = if fake::setting("FAKE_CUDA_STREAM") == "own" { STREAM } else { Stream::DEFAULT };
        let (called, said) = Warnings::of(|| call(&library, Place::Cuda(0), stream));
        assert_eq!(called.unwrap().from, Origin::Jit);
        assert_eq!(said.len().to_string(), fake::setting("FAKE_CUDA_EXPECT"), "{said:?}");
        return;
    }
}

#[test]
fn a_bundle_serves_during_a_capture_without_a_question() {
    let test = "capture::a_bundle_serves_during_a_capture_without_a_question";
    let Some(file) = super::in_child_on(test, Machine::with("9.0").set("FAKE_CUDA_CAPTURE", "active")) else { return };
    let library = library(&file);
    let (called, said) = Warnings::of(|| call(&library, Place::Cuda(0), STREAM));
    assert_eq!((called.unwrap().from, said.len()), (Origin::Bundle, 0));
    assert!(calls("cuStreamIsCapturing").is_empty());
    assert_eq!(calls("cuLibraryLoadData")[0].result, 0);
}

#[test]
fn a_mode_that_was_not_taken_is_not_given_back() {
    let test = "capture::a_mode_that_was_not_taken_is_not_given_back";
    let machine = Machine::with("9.0").failing("cuThreadExchangeStreamCaptureMode=999");
    let Some(file) = super::in_child_on(test, machine) else { return };
    call(&library(&file), Place::Cuda(0), STREAM).unwrap();
    assert_eq!(calls("cuThreadExchangeStreamCaptureMode").len(), 1);
}

#[test]
fn own_memory_and_measurements_are_refused_during_a_capture() {
    let test = "capture::own_memory_and_measurements_are_refused_during_a_capture";
    for status in ["active", "invalidated", "implicit"] {
        if std::env::var("FAKE_CUDA_BUNDLE").is_err() {
            let Some(bundle) = bundle(super::ARCHS) else { return };
            let machine = Machine::with("9.0").set("FAKE_CUDA_CAPTURE", status);
            machine.set("FAKE_CUDA_BUNDLE", bundle.display().to_string()).runs(test);
            continue;
        }
        let library = library(&fake::setting("FAKE_CUDA_BUNDLE"));
        let place = Place::Cuda(0);
        for error in [
            Memory::new(place, &[1, 2, 3]).err().unwrap(),
            memory::time(place, || Ok::<(), Error>(())).unwrap_err(),
            trial(&library, place).unwrap_err(),
        ] {
            let report = error.report();
            assert_eq!(report.code, "PB-2120", "{report}");
            assert!(report.to_string().contains("before the capture begins"), "{report}");
        }
        // The driver was asked for nothing that ends a capture.
        for function in ["cuMemAlloc_v2", "cuEventCreate", "cuCtxSynchronize", "cuLibraryLoadData"] {
            assert!(calls(function).is_empty(), "{function}");
        }
        return;
    }
}
