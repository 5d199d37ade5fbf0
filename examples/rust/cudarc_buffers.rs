//! Calls two ops of Parbake from Rust. With a GPU, memory and stream are cudarc's; without one, the same runs on vectors,
//! through the host target. Results are compared with sums in `f64`, a call goes wrong on purpose, and the library says
//! where its kernels came from.
//!
//! ```console
//! $ cargo run --example cudarc_buffers
//! ```

#![allow(clippy::print_stdout, reason = "a program for people")]

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use parbake::model::dtype::DType;
use parbake::model::settings::Config;
use parbake::ops::{self, RMSNORM_EPS_DEFAULT, RMSNORM_WEIGHT_BIAS_DEFAULT};
use parbake::{Error, Library, Place, Site, Stream, Tensor};
use std::ffi::c_void;
use std::sync::Arc;

type Failure = Box<dyn std::error::Error>;

const ROWS: usize = 64;
const HIDDEN: usize = 1024;

/// Memory on one side or the other.
enum Buffer {
    Gpu(CudaSlice<f32>),
    Host(Vec<f32>),
}

/// Where this program runs. Parbake takes any memory and any stream: it owns neither.
enum Machine {
    Gpu(Arc<CudaStream>),
    Host,
}

impl Machine {
    /// The first GPU, if there is one. Parbake's own look never fails loudly; cudarc's panics without a driver.
    fn find() -> Result<Self, Failure> {
        match parbake::driver::first() {
            Ok(device) => {
                println!("running on {} (sm_{})", device.name, device.arch);
                // The primary context, which the driver shares between libraries of a process.
                let context = CudaContext::new(device.ordinal as usize)?;
                Ok(Self::Gpu(context.new_stream()?))
            }
            Err(why) => {
                println!("no GPU is used ({why}); running on the host target");
                Ok(Self::Host)
            }
        }
    }

    fn buffer(&self, values: &[f32]) -> Result<Buffer, Failure> {
        Ok(match self {
            Self::Gpu(stream) => Buffer::Gpu(stream.clone_htod(values)?),
            Self::Host => Buffer::Host(values.to_vec()),
        })
    }

    fn read(&self, buffer: &Buffer) -> Result<Vec<f32>, Failure> {
        Ok(match (self, buffer) {
            (Self::Gpu(stream), Buffer::Gpu(slice)) => {
                let values = stream.clone_dtoh(slice)?;
                stream.synchronize()?;
                values
            }
            (_, Buffer::Host(values)) => values.clone(),
            (Self::Host, Buffer::Gpu(_)) => unreachable!("a buffer is of the machine that made it"),
        })
    }

    /// A view that is written. The guard tells cudarc when the use is over, so that work of other streams is ordered
    /// behind it: it is kept until the ops that use the view were called.
    fn written<'a>(&'a self, buffer: &'a mut Buffer, shape: &[i64]) -> (Tensor, Option<SyncOnDrop<'a>>) {
        match (self, buffer) {
            (Self::Gpu(stream), Buffer::Gpu(slice)) => {
                let (data, guard) = slice.device_ptr_mut(stream);
                (view(data as *mut c_void, shape), Some(guard))
            }
            (_, Buffer::Host(values)) => (view(values.as_mut_ptr().cast(), shape), None),
            (Self::Host, Buffer::Gpu(_)) => unreachable!("a buffer is of the machine that made it"),
        }
    }
    /// A view that is only read.
    fn lent<'a>(&'a self, buffer: &'a Buffer, shape: &[i64]) -> (Tensor, Option<SyncOnDrop<'a>>) {
        match (self, buffer) {
            (Self::Gpu(stream), Buffer::Gpu(slice)) => {
                let (data, guard) = slice.device_ptr(stream);
                (view(data as *mut c_void, shape), Some(guard))
            }
            (_, Buffer::Host(values)) => (view(values.as_ptr().cast_mut().cast(), shape), None),
            (Self::Host, Buffer::Gpu(_)) => unreachable!("a buffer is of the machine that made it"),
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Gpu(stream) => Place::Cuda(stream.context().ordinal() as i32),
            Self::Host => Place::Host,
        }
    }

    fn stream(&self) -> Stream {
        match self {
            Self::Gpu(stream) => Stream(stream.cu_stream().cast()),
            Self::Host => Stream::DEFAULT,
        }
    }
}

/// A view of dense rows.
fn view(data: *mut c_void, shape: &[i64]) -> Tensor {
    Tensor::dense(data, DType::F32, shape).expect("two dimensions are not too many")
}

fn main() -> Result<(), Failure> {
    // Settings from the environment; opening compiles nothing and touches no device.
    let library = Library::open(Config::from_env()?)?;
    let machine = Machine::find()?;
    let (place, stream) = (machine.place(), machine.stream());

    // What is not there yet is found or compiled now, so that no call has to wait.
    let values = ["dtype=f32", "block=512", "rows=1", "vec=16"].map(|v| v.split_once('=').unwrap_or_default());
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for op in ["rmsnorm", "fused_add_rmsnorm"] {
        let wanted = library.tactics(library.op(op)?, &values, &[Site::Place(place)])?;
        for ready in library.prepare(&wanted)? {
            println!("{} for {}, from: {}", ready.spec, ready.target, ready.from);
        }
    }

    let numbers = |count: usize, step: usize| (0..count).map(move |i| (i * step % 1000) as f32 / 500.0 - 1.0);
    let (x, residual): (Vec<f32>, Vec<f32>) =
        (numbers(ROWS * HIDDEN, 7919).collect(), numbers(ROWS * HIDDEN, 104_729).collect());
    let weight: Vec<f32> = numbers(HIDDEN, 31).map(|v| v + 2.0).collect();
    let mut out_buffer = machine.buffer(&vec![f32::NAN; x.len()])?;
    let (mut x_buffer, mut residual_buffer) = (machine.buffer(&x)?, machine.buffer(&residual)?);
    let weight_buffer = machine.buffer(&weight)?;
    let (rows, row) = ([ROWS as i64, HIDDEN as i64], [HIDDEN as i64]);

    let (out_view, out_guard) = machine.written(&mut out_buffer, &rows);
    let (x_view, x_guard) = machine.written(&mut x_buffer, &rows);
    let (residual_view, residual_guard) = machine.written(&mut residual_buffer, &rows);
    let (weight_view, weight_guard) = machine.lent(&weight_buffer, &row);
    let (eps, bias) = (RMSNORM_EPS_DEFAULT, RMSNORM_WEIGHT_BIAS_DEFAULT);
    // SAFETY: the buffers live until their contents were read back, on the same stream.
    unsafe {
        ops::rmsnorm(&library, place, stream, out_view, x_view, weight_view, eps, bias)?;
        // residual = x + residual; x = norm of that.
        ops::fused_add_rmsnorm(&library, place, stream, x_view, residual_view, weight_view, eps, bias)?;
    }

    // Everything is checked before anything is launched.
    let mut wrong = weight_view;
    wrong.dtype = DType::Bf16;
    // SAFETY: as above.
    match unsafe { ops::rmsnorm(&library, place, stream, out_view, x_view, wrong, 1e-6, 0.0) } {
        Err(error @ Error::Arguments(_)) => println!("a weight of bf16 among tensors of f32:\n{}", error.report()),
        other => return Err(format!("expected an error, got {other:?}").into()),
    }
    drop((out_guard, x_guard, residual_guard, weight_guard));

    let sums: Vec<f64> = x.iter().zip(&residual).map(|(a, b)| f64::from(*a) + f64::from(*b)).collect();
    let norm = distance(&machine.read(&out_buffer)?, &x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), &weight);
    let fused = distance(&machine.read(&x_buffer)?, &sums, &weight);
    let new = machine.read(&residual_buffer)?;
    let added = new.iter().zip(&sums).all(|(got, sum)| (f64::from(*got) - sum).abs() <= 1e-6);
    println!("rmsnorm: within {norm:.1e} of the sums in f64");
    println!("fused_add_rmsnorm: within {fused:.1e}, the residual is {}", if added { "right" } else { "wrong" });
    if norm < 1e-5 && fused < 1e-5 && added { Ok(()) } else { Err("wrong numbers".into()) }
}

/// The largest distance between `got` and the norm of rows, relative where numbers are large.
fn distance(got: &[f32], x: &[f64], weight: &[f32]) -> f64 {
    let mut worst = 0f64;
    for (row, got) in x.chunks(HIDDEN).zip(got.chunks(HIDDEN)) {
        let squares: f64 = row.iter().map(|v| v * v).sum();
        let scale = 1.0 / (squares / HIDDEN as f64 + RMSNORM_EPS_DEFAULT).sqrt();
        for ((x, weight), got) in row.iter().zip(weight).zip(got) {
            let expected = x * scale * f64::from(*weight);
            let off = (f64::from(*got) - expected).abs() / (1.0 + expected.abs());
            worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
        }
    }
    worst
}
