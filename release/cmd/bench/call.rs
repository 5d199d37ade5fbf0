//! `parbake bench call`: what a call costs its caller before the kernel runs, door by door.

use super::{Row, row, sample};
use crate::output::Failure;
use parbake::door::dlpack::{CPU, CUDA, DLDataType, DLDevice, DLTensor};
use parbake::door::tvm_ffi::{self, Any, AnyValue, index};
use parbake::door::{self, Target};
use parbake::memory::{self, Memory};
use parbake::trial::Trial;
use parbake::{Library, Place, Tensor, driver};
use parbake_model::dtype::DType;
use parbake_model::settings::Config;
use std::collections::BTreeMap;
use std::ffi::c_void;

const HIDDEN: i64 = 4096;

/// Measures `n` times at the first GPU, else on the host target, where the kernel itself is part of a call.
pub(super) fn run(n: usize, config: &Config) -> Result<Vec<Row>, Failure> {
    // The door asks for a library that lives as long as the process.
    let library: &'static Library = Box::leak(Box::new(Library::open(config.clone())?));
    let place = driver::first().map_or(Place::Host, |device| Place::Cuda(device.ordinal));
    let (dtype, rows) = (DType::F16, 4);
    let op = library.op("rmsnorm")?;
    // The numbers of the kernel that is timed.
    let mut trial =
        Trial::example(library.definition(op), BTreeMap::from([("dtype".to_owned(), dtype.name().to_owned())]));
    trial.dims = BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), HIDDEN)]);
    let outcome = trial.run(library, op, place)?;
    if !outcome.ok {
        return Err(Failure::shown(vec![super::super::run::wrong(&outcome)]));
    }
    let bytes = 1 << 18;
    let mut space = Memory::new(place, &vec![0; bytes])?;
    let base = space.pointer() as usize;
    let at = |place: usize| (base + (place << 16)) as *mut c_void;
    let own = memory::stream(place)?;
    let tensors = |rows: i64| -> Option<[Tensor; 3]> {
        let dense = |i, shape: &[i64]| Tensor::dense(at(i), dtype, shape);
        Some([dense(0, &[rows, HIDDEN])?, dense(1, &[rows, HIDDEN])?, dense(2, &[HIDDEN])?])
    };
    let (full, empty) = (tensors(rows).expect("bug: rank 2"), tensors(0).expect("bug: rank 2"));
    let scalars = [1e-6, 0.0];
    // Calls in a row, not waited for. On the CPU one that launches waits, and takes long.
    let idle = 200;
    let busy = if place == Place::Host { 5 } else { idle };
    let mut measured = Vec::new();
    let mut add = |what: &str, many: u32, note: &str, call: &mut dyn FnMut() -> Result<(), parbake::Error>| {
        let mut times = Vec::new();
        for _ in 0..n {
            times.extend(sample(1, || (0..many).try_for_each(|_| call()))?);
            // What was launched is done before the next batch, or its failure shows here.
            space.read()?;
        }
        measured.push(row(what, "µs", 1e6 / f64::from(many), times, format!("{many} in a row; {note}")));
        Ok::<(), parbake::Error>(())
    };
    add("check arguments", idle, "no rows, so nothing is looked up", &mut || {
        library.prepare_call(op, &empty, &scalars, place).map(drop)
    })?;
    add("check, choose, look up, arrange", idle, "nothing launched", &mut || {
        library.prepare_call(op, &full, &scalars, place).map(drop)
    })?;
    let mut prepared = library.prepare_call(op, &full, &scalars, place)?.expect("bug: rows are work");
    // SAFETY: here and below, the memory holds all three tensors, and lives until it is read after the batch.
    add("launch alone", busy, "own stream", &mut || unsafe { prepared.launch(own) })?;
    // SAFETY: as above.
    add("call from Rust", busy, "own stream", &mut || unsafe {
        library.call(op, &full, &scalars, place, own).map(drop)
    })?;
    // SAFETY: as above.
    add("call from Rust, nothing to do", idle, "no rows, so nothing is looked up", &mut || unsafe {
        library.call(op, &empty, &scalars, place, own).map(drop)
    })?;

    let (wide, long) = ([rows, HIDDEN], [HIDDEN]);
    let device = match place {
        Place::Host => DLDevice { device_type: CPU, device_id: 0 },
        Place::Cuda(device_id) => DLDevice { device_type: CUDA, device_id },
    };
    let describe = |i, shape: &[i64]| DLTensor {
        data: at(i),
        device,
        ndim: shape.len() as i32,
        dtype: DLDataType { code: dtype.dlpack().0, bits: dtype.dlpack().1, lanes: 1 },
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    let lent = [describe(0, &wide), describe(1, &wide), describe(2, &long)];
    let target = if place == Place::Host { Target::Host } else { Target::Auto };
    let built_in = library.ops().take_while(|(id, _)| *id != op).count();
    // SAFETY: as above; the descriptors are complete.
    add("call from C", busy, "tensors described by DLPack, own stream", &mut || unsafe {
        door::call(library, op, (&[Some(&lent[0]), Some(&lent[1]), Some(&lent[2])], &scalars), &[], target, |_| own)
            .map(drop)
    })?;
    let tensor = |t: &DLTensor| Any {
        type_index: index::DLTENSOR,
        small_len: 0,
        value: AnyValue { pointer: std::ptr::from_ref(t).cast_mut().cast() },
    };
    let number = |float| Any { type_index: index::FLOAT, small_len: 0, value: AnyValue { float } };
    let text = Any { type_index: index::SMALL_STR, small_len: 4, value: AnyValue { bytes: *b"host\0\0\0\0" } };
    let args = [tensor(&lent[0]), tensor(&lent[1]), tensor(&lent[2]), number(scalars[0]), number(scalars[1]), text];
    let count = if place == Place::Host { 6 } else { 5 };
    let mut result = number(0.0);
    add("call through TVM FFI", busy, "default stream, without a host language", &mut || {
        // SAFETY: as above; `args` are what TVM FFI would hand over.
        match unsafe { tvm_ffi::call(|| Ok(library), built_in, args.as_ptr(), count, &raw mut result) } {
            0 => Ok(()),
            // The error went to a host that is not there.
            _ => Err(parbake::Error::NoSources { uri: "a call through TVM FFI".into() }),
        }
    })?;
    Ok(measured)
}
