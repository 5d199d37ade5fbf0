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
    /// No tensor: what fills places that hold none yet.
    pub(crate) const NONE: Self =
        Self { data: std::ptr::null_mut(), dtype: DType::F32, rank: 0, shape: [1; MAX_RANK], strides: [0; MAX_RANK] };

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
    /// The same elements with `rank` dimensions, the leading ones made one; `None` if the strides do not let them be.
    /// Dimensions of one element never stand in the way.
    #[must_use]
    pub fn folded(&self, rank: usize) -> Option<Self> {
        let (leading, rest) =
            self.shape().split_at_checked((self.rank + 1).checked_sub(rank).filter(|n| rank > 0 && *n > 0)?)?;
        let mut extent: i64 = 1;
        let mut step = None;
        for (&n, &stride) in leading.iter().zip(self.strides()).rev().filter(|(n, _)| **n != 1) {
            let inner: i64 = *step.get_or_insert(stride);
            if !self.is_empty() && inner.checked_mul(extent) != Some(stride) {
                return None;
            }
            extent = extent.checked_mul(n)?;
        }
        // Of one row, the stride means nothing; a dense one satisfies every rule.
        let dense = rest.iter().fold(1i64, |all, n| all.saturating_mul((*n).max(1)));
        let mut folded = Self { rank, ..Self::NONE };
        (folded.data, folded.dtype) = (self.data, self.dtype);
        (folded.shape[0], folded.strides[0]) = (extent, step.unwrap_or(dense));
        folded.shape[1..rank].copy_from_slice(rest);
        folded.strides[1..rank].copy_from_slice(&self.strides()[leading.len()..]);
        Some(folded)
    }
    /// Extents.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.rank]
    }
    /// Extents, ones behind the last.
    pub(crate) fn shape_array(&self) -> [i64; MAX_RANK] {
        self.shape
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

#[cfg(test)]
mod tests {
    use super::Tensor;
    use parbake_model::dtype::DType;

    fn folded(shape: &[i64], strides: &[i64], rank: usize) -> Option<(Vec<i64>, Vec<i64>)> {
        let tensor = Tensor::new(std::ptr::null_mut(), DType::F32, shape, strides).unwrap();
        tensor.folded(rank).map(|t| (t.shape().to_vec(), t.strides().to_vec()))
    }

    #[test]
    fn leading_dimensions_fold_where_strides_let_them() {
        let is = |shape: &[i64], strides: &[i64]| Some((shape.to_vec(), strides.to_vec()));
        assert_eq!(folded(&[2, 3, 8], &[24, 8, 1], 2), is(&[6, 8], &[8, 1]));
        assert_eq!(folded(&[2, 3, 8], &[48, 16, 1], 2), is(&[6, 8], &[16, 1]), "rows may have space between them");
        assert_eq!(folded(&[2, 3, 8], &[32, 8, 1], 2), None, "but all of them the same");
        assert_eq!(folded(&[4, 2, 3, 8], &[48, 24, 8, 1], 2), is(&[24, 8], &[8, 1]));
        assert_eq!(folded(&[4, 2, 3, 8], &[48, 24, 8, 1], 3), is(&[8, 3, 8], &[24, 8, 1]));
        // A dimension of one element has no stride that counts, wherever it stands.
        assert_eq!(folded(&[3, 1, 8], &[16, 999, 1], 2), is(&[3, 8], &[16, 1]));
        assert_eq!(folded(&[1, 3, 8], &[999, 16, 1], 2), is(&[3, 8], &[16, 1]));
        assert_eq!(folded(&[1, 1, 8], &[7, 7, 1], 2), is(&[1, 8], &[8, 1]));
        // Nothing is laid out in no particular way.
        assert_eq!(folded(&[0, 3, 8], &[5, 7, 1], 2).unwrap().0, [0, 8]);
        assert_eq!(folded(&[2, 8], &[8, 1], 2), is(&[2, 8], &[8, 1]), "what fits stays");
        assert_eq!(folded(&[8], &[1], 2), None, "there is nothing to fold");
        assert_eq!(folded(&[2, 8], &[8, 1], 0), None);
        assert_eq!(folded(&[i64::MAX, 3, 8], &[24, 8, 1], 2), None, "more than can be counted");
    }
}
