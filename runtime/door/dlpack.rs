//! DLPack: how frameworks describe tensors to each other. Own structs; the field order is the standard's, and a test
//! compares them with its header.

use crate::code::Place;
use crate::tensor::{MAX_RANK, Tensor};
use parbake_model::dtype::DType;
use std::ffi::c_void;
use std::fmt;

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDevice {
    /// Kind of device: 1 CPU, 2 CUDA, 3 pinned CPU memory, 13 managed CUDA memory.
    pub device_type: i32,
    /// Number among its kind.
    pub device_id: i32,
}

/// CPU memory.
pub const CPU: i32 = 1;
/// Memory of a CUDA device.
pub const CUDA: i32 = 2;
/// Pinned CPU memory.
pub const CUDA_HOST: i32 = 3;
/// Managed CUDA memory.
pub const CUDA_MANAGED: i32 = 13;

impl DLDevice {
    /// The place that it is, if it is one that kernels run at.
    #[must_use]
    #[inline]
    pub fn place(self) -> Option<Place> {
        match self.device_type {
            CUDA | CUDA_MANAGED => Some(Place::Cuda(self.device_id)),
            CPU | CUDA_HOST => Some(Place::Host),
            _ => None,
        }
    }
}

impl fmt::Display for DLDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device_type {
            CUDA | CUDA_MANAGED => write!(f, "cuda:{}", self.device_id),
            CPU => f.write_str("cpu"),
            CUDA_HOST => f.write_str("cpu (pinned)"),
            other => write!(f, "a device of DLPack's kind {other}"),
        }
    }
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDataType {
    /// Kind of number.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Elements of a vector; 1 for scalars.
    pub lanes: u16,
}

impl DLDataType {
    /// The element type, if it is one that ops know.
    #[must_use]
    #[inline]
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.into_iter().find(|t| (self.code, self.bits, self.lanes) == (t.dlpack().0, t.dlpack().1, 1))
    }
}

impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.code {
            0 => "i",
            1 => "u",
            2 => "f",
            4 => "bf",
            5 => "complex",
            6 => return f.write_str("bool"),
            code => return write!(f, "DLPack's type {code} of {} bits", self.bits),
        };
        write!(f, "{kind}{}", self.bits)?;
        if self.lanes == 1 { Ok(()) } else { write!(f, "x{}", self.lanes) }
    }
}

/// `DLTensor`: a view, owned by somebody else.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// Where the memory begins.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// Dimensions.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// Extents, `ndim` of them.
    pub shape: *const i64,
    /// Strides in elements; null for densely packed, the last dimension fastest.
    pub strides: *const i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

const _: () = assert!(size_of::<DLTensor>() == 48 && align_of::<DLTensor>() == 8);

/// What is wrong with a descriptor, what was expected, and what came.
pub(crate) type Unfit = (&'static str, String, String);

impl DLTensor {
    /// The tensor as launchers see it.
    ///
    /// # Safety
    /// `shape`, and `strides` unless it is null, have `ndim` elements.
    #[inline]
    pub(crate) unsafe fn view(&self) -> Result<Tensor, Unfit> {
        let Some(dtype) = self.dtype.dtype() else {
            return Err(("dtype", "a type that ops know".to_owned(), self.dtype.to_string()));
        };
        let rank = usize::try_from(self.ndim).unwrap_or(usize::MAX);
        if rank > MAX_RANK {
            return Err(("rank", format!("at most {MAX_RANK} dimensions"), self.ndim.to_string()));
        }
        // SAFETY: a pointer may be null only where there is nothing to read.
        let list = |p: *const i64| if rank == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(p, rank) } };
        if rank > 0 && self.shape.is_null() {
            return Err(("shape", format!("{rank} extents"), "a null pointer".to_owned()));
        }
        let shape = list(self.shape);
        if let Some(extent) = shape.iter().find(|n| **n < 0) {
            return Err(("shape", "extents of 0 or more".to_owned(), extent.to_string()));
        }
        let data = if self.data.is_null() { self.data } else { self.data.wrapping_byte_add(self.byte_offset as usize) };
        let tensor = if self.strides.is_null() {
            Tensor::dense(data, dtype, shape)
        } else {
            Tensor::new(data, dtype, shape, list(self.strides))
        };
        Ok(tensor.expect("bug: the rank was just looked at"))
    }
}
