//! What only a caller from another language can get wrong, and how its tensors are taken.

mod common;

use common::World;
use parbake::door::dlpack::{CPU, CUDA, DLDataType, DLDevice, DLTensor};
use parbake::door::{self, Target};
use parbake::{Error, Library, Stream};

const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

struct Lent {
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    device: (i32, i32),
    dtype: DLDataType,
    at: usize,
}

fn lent(shape: &[i64], at: usize) -> Lent {
    Lent { shape: shape.to_vec(), strides: None, device: (CPU, 0), dtype: F32, at }
}

/// Calls rmsnorm through the door; whatever passes the check is not covered.
fn call(library: &Library, tensors: &[Lent; 3], target: Target) -> Error {
    let mut data = vec![1f32; 4096];
    let base = data.as_mut_ptr();
    let described = tensors.each_ref().map(|t| DLTensor {
        data: base.wrapping_add(t.at).cast(),
        device: DLDevice { device_type: t.device.0, device_id: t.device.1 },
        ndim: t.shape.len() as i32,
        dtype: t.dtype,
        shape: t.shape.as_ptr(),
        strides: t.strides.as_ref().map_or(std::ptr::null(), |s| s.as_ptr()),
        byte_offset: 0,
    });
    let op = library.op("rmsnorm").unwrap();
    let all = described.each_ref().map(Some);
    // SAFETY: the descriptors are complete; what passes the check lies within `data`, and nothing is launched.
    unsafe { door::call(library, op, (&all[..], &[1e-6, 0.0][..]), &[], target, |_| Stream::DEFAULT).unwrap_err() }
}

/// One that covers nothing, and whose calls are not logged: the level is the process's.
fn library() -> Library {
    let mut world = World::new();
    world.config.jit = false;
    world.config.log_exclude = Some("*".to_owned());
    world.library()
}

fn said(library: &Library, tensors: &[Lent; 3]) -> String {
    match call(library, tensors, Target::Host) {
        Error::Arguments(bad) => bad.report().to_string(),
        Error::NotCovered(_) => "fits".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn leading_dimensions_stand_for_rows_and_are_the_same_for_all_tensors() {
    let library = library();
    let of = |out: &[i64], x: &[i64]| said(&library, &[lent(out, 0), lent(x, 1024), lent(&[8], 2048)]);
    assert_eq!(of(&[6, 8], &[6, 8]), "fits");
    assert_eq!(of(&[2, 3, 8], &[2, 3, 8]), "fits");
    assert_eq!(of(&[1, 2, 3, 8], &[1, 2, 3, 8]), "fits");
    for (out, x) in [([3i64, 2, 8].as_slice(), [2i64, 3, 8].as_slice()), (&[2, 3, 8], &[6, 8]), (&[6, 8], &[2, 3, 8])] {
        let text = of(out, x);
        assert!(text.contains("x: shape: expected leading dimensions"), "{out:?} {x:?}: {text}");
    }
    let mut tensors = [lent(&[2, 3, 8], 0), lent(&[2, 3, 8], 1024), lent(&[8], 2048)];
    tensors[1].strides = Some(vec![32, 8, 1]);
    assert!(said(&library, &tensors).contains("x: stride: expected strides with which the first 2 dimensions are one"));
}

#[test]
fn tensors_are_at_one_place_that_the_target_admits() {
    let library = library();
    let with = |device: [(i32, i32); 3], target| {
        let mut tensors = [lent(&[2, 8], 0), lent(&[2, 8], 1024), lent(&[8], 2048)];
        tensors.iter_mut().zip(device).for_each(|(t, d)| t.device = d);
        match call(&library, &tensors, target) {
            Error::Arguments(bad) => bad.report().to_string(),
            other => panic!("{other:?}"),
        }
    };
    let (cpu, gpu) = ((CPU, 0), (CUDA, 0));
    let text = with([cpu, cpu, cpu], Target::Auto);
    assert!(text.contains("x: device: expected a CUDA device, or target=\"host\""), "{text}");
    let text = with([cpu, gpu, cpu], Target::Host);
    assert!(text.contains("x: device: expected cpu, as target=\"host\" says, got cuda:0"), "{text}");
    let text = with([gpu, (CUDA, 1), gpu], Target::Auto);
    assert!(text.contains("x: device: expected cuda:0, as of the tensors before it, got cuda:1"), "{text}");
    let text = with([gpu, gpu, (10, 0)], Target::Auto);
    assert!(text.contains("weight: device: expected a CUDA device, got a device of DLPack's kind 10"), "{text}");
}

#[test]
fn a_call_that_the_door_refuses_is_in_the_log() {
    let mut world = World::new();
    world.config.jit = false;
    world.config.log = parbake::model::settings::LogLevel::of(1);
    let log = world.folder.path().join("calls.log");
    world.config.log_dest = parbake::model::settings::LogDestination::File(log.to_str().unwrap().to_owned());
    let library = world.library();
    let mut tensors = [lent(&[2, 8], 0), lent(&[2, 8], 1024), lent(&[8], 2048)];
    tensors[1].dtype.bits = 64;
    call(&library, &tensors, Target::Host);
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("norm/rmsnorm in thread") && said.contains("PB-2001") && said.contains("x: dtype"), "{said}");
}
