//! Tensors as a launcher sees them: memory that somebody else owns.

use parbake_model::dtype::DType;
use std::ffi::c_void;

/// The most dimensions that a tensor may have.
pub const MAX_RANK: usize = 8;

/// A view of a tensor. Nothing is owned; whoever calls keeps the memory alive until the work is done.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The first element.
    pub data: *mut c_void,
    /// The element type.
    pub dtype: DType,
    rank: usize,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl Tensor {
    /// A view with strides in elements; `None` if there are more than [`MAX_RANK`] dimensions or the lengths differ.
    #[must_use]
    pub fn new(data: *mut c_void, dtype: DType, shape: &[i64], strides: &[i64]) -> Option<Self> {
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return None;
        }
        let mut tensor = Self { data, dtype, rank: shape.len(), shape: [1; MAX_RANK], strides: [0; MAX_RANK] };
        tensor.shape[..shape.len()].copy_from_slice(shape);
        tensor.strides[..shape.len()].copy_from_slice(strides);
        Some(tensor)
    }
    /// A view of densely packed memory, the last dimension fastest.
    #[must_use]
    pub fn dense(data: *mut c_void, dtype: DType, shape: &[i64]) -> Option<Self> {
        let mut strides = [1i64; MAX_RANK];
        let rank = shape.len().min(MAX_RANK);
        for i in (0..rank.saturating_sub(1)).rev() {
            strides[i] = strides[i + 1].saturating_mul(shape[i + 1].max(1));
        }
        Self::new(data, dtype, shape, &strides[..rank])
    }
    /// Extents.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.rank]
    }
    /// Strides in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank]
    }
    /// The stride of a dimension in elements.
    #[must_use]
    pub fn stride(&self, dim: usize) -> i64 {
        self.strides[dim]
    }
    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
    /// The bytes from the first to past the last element, as offsets from `data`; strides are not negative.
    pub(crate) fn extent(&self) -> i128 {
        if self.is_empty() {
            return 0;
        }
        let last: i128 = self.shape().iter().zip(self.strides()).map(|(n, s)| i128::from(n - 1) * i128::from(*s)).sum();
        (last + 1) * self.dtype.bytes() as i128
    }
    /// The largest power of two, up to `most`, that divides the address and every free stride in bytes.
    #[must_use]
    pub fn alignment(&self, most: u64) -> u64 {
        let mut bits = self.data as u64 | most;
        for (n, s) in self.shape().iter().zip(self.strides()) {
            if *n > 1 && *s != 1 {
                bits |= (*s as u64).wrapping_mul(self.dtype.bytes() as u64);
            }
        }
        1 << bits.trailing_zeros()
    }
}
