//! Values of tensors, read for statistics and dumps: in pieces, so that memory stays bounded, and without the gaps between
//! rows, so that a view of a few rows of a large tensor costs what its elements cost.

use crate::code::{Place, Stream};
use crate::driver::{self, Current, DriverError, Ready, RelaxedCapture, capturing};
use crate::error::Error;
use crate::tensor::Tensor;
use cudarc::driver::sys;
use parbake_model::dtype::DType;
use std::ffi::c_void;
use std::fmt;
use std::io;

/// The most bytes that are held at once.
const PIECE: usize = 16 << 20;
/// Rows that lie further apart than that are copied one by one.
const MOST_PITCH: usize = i32::MAX as usize;

/// Why values were not read, or not taken.
#[derive(Debug)]
pub(super) enum Stop {
    Device(Error),
    File(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<DriverError> for Stop {
    fn from(error: DriverError) -> Self {
        Self::Device(error.into())
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => f.write_str(&super::line::one_line(error)),
            Self::File(error) => error.fmt(f),
        }
    }
}

/// Memory as a stream sees it when it is asked.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Host,
    Cuda { ready: &'static Ready, ordinal: i32, stream: Stream },
}

impl Source {
    /// # Errors
    /// If there is no such device.
    pub(super) fn new(place: Place, stream: Stream) -> Result<Self, Error> {
        let Place::Cuda(ordinal) = place else { return Ok(Self::Host) };
        let (ready, _) = driver::device(ordinal)?;
        Ok(Self::Cuda { ready, ordinal, stream })
    }

    /// Whether the stream is being captured: nothing can be read then, because nothing has run.
    pub(super) fn captured(&self) -> Result<bool, Error> {
        let Self::Cuda { ready, ordinal, stream } = *self else { return Ok(false) };
        let _current = Current::enter(ready, ordinal)?;
        Ok(capturing(ready, stream.0)?)
    }

    /// Waits for the work of the stream. A kernel that failed says so here.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let Self::Cuda { ready, ordinal, stream } = *self else { return Ok(()) };
        let _current = Current::enter(ready, ordinal)?;
        // Another stream of this thread may be captured: that one is not touched.
        let _relaxed = RelaxedCapture::enter(ready);
        // SAFETY: the caller vouches for the stream.
        Ok(ready.table.check("cuStreamSynchronize", unsafe { (ready.table.stream_synchronize)(stream.0) })?)
    }

    /// Hands out the elements, dense and in order, in pieces of whole elements.
    ///
    /// # Safety
    /// The tensor's memory is valid, and its strides are not negative.
    pub(super) unsafe fn each(
        &self,
        tensor: &Tensor,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Stop> {
        if tensor.is_empty() {
            return Ok(());
        }
        let rows = Rows::of(tensor);
        let mut piece = vec![0u8; PIECE.min(rows.bytes.saturating_mul(rows.total()))];
        for start in rows.starts() {
            if rows.bytes > PIECE {
                for row in 0..rows.count {
                    for at in (0..rows.bytes).step_by(PIECE) {
                        let part = &mut piece[..PIECE.min(rows.bytes - at)];
                        // SAFETY: a part of a row of the tensor.
                        unsafe { self.copy(start + row * rows.pitch + at, part, part.len(), 1, 0)? };
                        take(part)?;
                    }
                }
                continue;
            }
            let many = PIECE / rows.bytes;
            for first in (0..rows.count).step_by(many) {
                let count = many.min(rows.count - first);
                let part = &mut piece[..count * rows.bytes];
                // SAFETY: rows of the tensor.
                unsafe { self.copy(start + first * rows.pitch, part, rows.bytes, count, rows.pitch)? };
                take(part)?;
            }
        }
        Ok(())
    }

    /// Copies rows of `bytes` that begin `pitch` apart, and waits for it.
    ///
    /// # Safety
    /// They are valid, and `to` is as long as all of them.
    unsafe fn copy(&self, from: usize, to: &mut [u8], bytes: usize, count: usize, pitch: usize) -> Result<(), Stop> {
        debug_assert_eq!(to.len(), bytes * count);
        let Self::Cuda { ready, ordinal, stream } = *self else {
            for (row, part) in to.chunks_exact_mut(bytes).enumerate() {
                // SAFETY: the caller vouches for the source; the destination is a vector of ours.
                unsafe { std::ptr::copy_nonoverlapping((from + row * pitch) as *const u8, part.as_mut_ptr(), bytes) };
            }
            return Ok(());
        };
        let table = &ready.table;
        {
            let _current = Current::enter(ready, ordinal)?;
            let _relaxed = RelaxedCapture::enter(ready);
            if count > 1 && (bytes..=MOST_PITCH).contains(&pitch) {
                let copy = rows_to_host(from as u64, to, bytes, count, pitch);
                // SAFETY: as for the host; the stream is the caller's.
                table.check("cuMemcpy2DAsync", unsafe { (table.copy_rows_async)(&raw const copy, stream.0) })?;
            } else {
                for (row, part) in to.chunks_exact_mut(bytes).enumerate() {
                    let (to, from) = (part.as_mut_ptr().cast::<c_void>(), (from + row * pitch) as u64);
                    // SAFETY: as above.
                    let code = unsafe { (table.copy_to_host_async)(to, from, bytes, stream.0) };
                    table.check("cuMemcpyDtoHAsync", code)?;
                }
            }
        }
        self.wait().map_err(Stop::Device)
    }
}

fn rows_to_host(from: u64, to: &mut [u8], bytes: usize, count: usize, pitch: usize) -> sys::CUDA_MEMCPY2D_st {
    sys::CUDA_MEMCPY2D_st {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: from,
        srcArray: std::ptr::null_mut(),
        srcPitch: pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
        dstHost: to.as_mut_ptr().cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: bytes,
        WidthInBytes: bytes,
        Height: count,
    }
}

/// A tensor as rows without gaps: trailing dimensions that are dense are one row.
struct Rows {
    /// Bytes of a row.
    bytes: usize,
    /// Rows that are equally far apart, and how far.
    count: usize,
    pitch: usize,
    /// Address, extents and strides in bytes of what is left.
    base: usize,
    outer: Vec<(usize, usize)>,
}

impl Rows {
    fn of(tensor: &Tensor) -> Self {
        let (shape, strides, width) = (tensor.shape(), tensor.strides(), tensor.dtype.bytes());
        let (mut first, mut run) = (shape.len(), 1i64);
        while first > 0 && (shape[first - 1] == 1 || strides[first - 1] == run) {
            run *= shape[first - 1];
            first -= 1;
        }
        let dim = |i: usize| (shape[i] as usize, strides[i] as usize * width);
        let (count, pitch) = first.checked_sub(1).map_or((1, 0), dim);
        let outer = (0..first.saturating_sub(1)).map(dim).collect();
        Self { bytes: run as usize * width, count, pitch, base: tensor.data as usize, outer }
    }

    fn total(&self) -> usize {
        self.outer.iter().map(|(n, _)| n).product::<usize>() * self.count
    }

    /// Where each group of rows begins.
    fn starts(&self) -> impl Iterator<Item = usize> {
        let groups = self.outer.iter().map(|(n, _)| n).product::<usize>();
        (0..groups).map(|group| {
            let (mut rest, mut at) = (group, self.base);
            for (extent, stride) in self.outer.iter().rev() {
                at += rest % extent * stride;
                rest /= extent;
            }
            at
        })
    }
}

/// What the values of a tensor are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Statistics {
    /// Of the finite values.
    min: f64,
    max: f64,
    sum: f64,
    finite: u64,
    nan: u64,
    infinite: u64,
}

impl Statistics {
    pub(super) const NONE: Self =
        Self { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, finite: 0, nan: 0, infinite: 0 };

    pub(super) fn take(&mut self, dtype: DType, bytes: &[u8]) {
        for raw in bytes.chunks_exact(dtype.bytes()) {
            let value = dtype.load(raw);
            if value.is_finite() {
                (self.min, self.max) = (self.min.min(value), self.max.max(value));
                self.sum += value;
                self.finite += 1;
            } else if value.is_nan() {
                self.nan += 1;
            } else {
                self.infinite += 1;
            }
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.finite > 0 {
            let mean = self.sum / self.finite as f64;
            write!(f, "min {} max {} mean {mean}, ", self.min, self.max)?;
        }
        write!(f, "{} finite {} nan {} inf", self.finite, self.nan, self.infinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tensor: &Tensor) -> Vec<f64> {
        let mut values = Vec::new();
        let mut take = |bytes: &[u8]| {
            values.extend(bytes.chunks_exact(4).map(|raw| DType::F32.load(raw)));
            Ok(())
        };
        // SAFETY: the tensors of these tests lie in vectors.
        unsafe { Source::Host.each(tensor, &mut take).unwrap() };
        values
    }

    #[test]
    fn elements_are_read_in_order_whatever_the_strides() {
        let mut memory: Vec<f32> = (0..60).map(|i| i as f32).collect();
        let data = memory.as_mut_ptr().cast();
        for (shape, strides, expected) in [
            (vec![2, 3], vec![3, 1], vec![0., 1., 2., 3., 4., 5.]),
            (vec![2, 3], vec![10, 1], vec![0., 1., 2., 10., 11., 12.]),
            (vec![2, 2], vec![1, 7], vec![0., 7., 1., 8.]),
            (vec![3, 1, 2], vec![0, 9, 1], vec![0., 1., 0., 1., 0., 1.]),
            (vec![2, 2, 2], vec![30, 5, 2], vec![0., 2., 5., 7., 30., 32., 35., 37.]),
            (vec![2, 2, 2], vec![4, 2, 1], (0..8).map(f64::from).collect()),
            (vec![], vec![], vec![0.]),
            (vec![2, 0], vec![1, 1], vec![]),
        ] {
            let tensor = Tensor::new(data, DType::F32, &shape, &strides).unwrap();
            assert_eq!(read(&tensor), expected, "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn what_is_longer_than_a_piece_comes_in_several() {
        let mut memory = vec![0f32; PIECE / 2 + 3];
        let last = memory.len() - 1;
        memory[last] = 7.0;
        let tensor = Tensor::dense(memory.as_mut_ptr().cast(), DType::F32, &[memory.len() as i64]).unwrap();
        let (mut pieces, mut bytes, mut end) = (0, 0, 0.0);
        let mut take = |part: &[u8]| {
            (pieces, bytes) = (pieces + 1, bytes + part.len());
            end = DType::F32.load(&part[part.len() - 4..]);
            Ok(())
        };
        // SAFETY: the tensor is the vector.
        unsafe { Source::Host.each(&tensor, &mut take).unwrap() };
        assert_eq!((pieces, bytes, end), (3, memory.len() * 4, 7.0));
    }

    #[test]
    fn statistics_are_of_finite_values_and_count_the_others() {
        let mut of = Statistics::NONE;
        for value in [1f32, -3.0, f32::NAN, 5.0, f32::INFINITY, f32::NEG_INFINITY] {
            of.take(DType::F32, &value.to_le_bytes());
        }
        assert_eq!(of.to_string(), "min -3 max 5 mean 1, 3 finite 1 nan 2 inf");
        assert_eq!(Statistics::NONE.to_string(), "0 finite 0 nan 0 inf");
    }
}
