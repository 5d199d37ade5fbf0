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
    /// No tensor: what stands for an optional one that is not given.
    pub const ABSENT: Self = Self {
        data: std::ptr::null_mut(),
        dtype: DType::F32,
        rank: usize::MAX,
        shape: [1; MAX_RANK],
        strides: [0; MAX_RANK],
    };

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
        let mut folded = Self { rank, ..Self::ABSENT };
        (folded.data, folded.dtype) = (self.data, self.dtype);
        (folded.shape[0], folded.strides[0]) = (extent, step.unwrap_or(dense));
        folded.shape[1..rank].copy_from_slice(rest);
        folded.strides[1..rank].copy_from_slice(&self.strides()[leading.len()..]);
        Some(folded)
    }
    /// Whether it stands for an optional tensor that is not given.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.rank == usize::MAX
    }
    /// Extents; of an absent tensor none.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.shape.get(..self.rank).unwrap_or_default()
    }
    /// Extents, ones behind the last.
    pub(crate) fn shape_array(&self) -> [i64; MAX_RANK] {
        self.shape
    }
    /// Strides in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        self.strides.get(..self.rank).unwrap_or_default()
    }
    /// The stride of a dimension in elements.
    #[must_use]
    pub fn stride(&self, dim: usize) -> i64 {
        self.strides[dim]
    }
    /// Whether there is no element; an absent tensor has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_absent() || self.shape().contains(&0)
    }
    /// The bytes from the first to past the last element, as offsets from `data`; strides are not negative.
    pub(crate) fn extent(&self) -> i128 {
        if self.is_empty() {
            return 0;
        }
        let last: i128 = self.shape().iter().zip(self.strides()).map(|(n, s)| i128::from(n - 1) * i128::from(*s)).sum();
        (last + 1) * self.dtype.bytes() as i128
    }
    /// Whether the two surely share no byte, though they may lie between each other's elements, as columns of one matrix
    /// or planes of one cache do. Strides are not negative. What cannot be told apart is said to overlap.
    ///
    /// Both are looked at through a period, a stride in bytes that one of them has: an element's place within the period
    /// does not depend on the dimensions whose strides are multiples of it. If the others stay within disjoint parts of
    /// the period, so do all elements.
    pub(crate) fn is_apart(&self, other: &Self) -> bool {
        let (start_a, start_b) = (self.data as i128, other.data as i128);
        if self.is_empty()
            || other.is_empty()
            || start_a + self.extent() <= start_b
            || start_b + other.extent() <= start_a
        {
            return true;
        }
        let within = |t: &Self, period: i128| -> i128 {
            let steps = t.shape().iter().zip(t.strides()).map(|(n, s)| (*n, i128::from(*s) * t.dtype.bytes() as i128));
            let inner = steps.filter(|(_, s)| s % period != 0).map(|(n, s)| i128::from(n - 1) * s);
            inner.sum::<i128>() + t.dtype.bytes() as i128
        };
        let periods = |t: &Self| {
            let bytes = t.dtype.bytes() as i128;
            let steps = t.shape().iter().zip(t.strides()).filter(|(n, s)| **n > 1 && **s > 0);
            steps.map(move |(_, s)| i128::from(*s) * bytes).collect::<Vec<_>>()
        };
        periods(self).into_iter().chain(periods(other)).any(|period| {
            let between = (start_b - start_a).rem_euclid(period);
            within(self, period) <= between && within(other, period) <= period - between
        })
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
    fn tensors_that_lie_between_each_other_are_told_apart() {
        let at = |offset: usize, shape: &[i64], strides: &[i64]| {
            Tensor::new((4096 + 2 * offset) as *mut _, DType::F16, shape, strides).unwrap()
        };
        let apart = |a: &Tensor, b: &Tensor| {
            assert_eq!(a.is_apart(b), b.is_apart(a));
            a.is_apart(b)
        };
        // q, k and v as columns of one matrix: 5 rows of 48 elements.
        let q = at(0, &[5, 4, 8], &[48, 8, 1]);
        let k = at(32, &[5, 1, 8], &[48, 8, 1]);
        let v = at(40, &[5, 1, 8], &[48, 8, 1]);
        assert!(apart(&q, &k) && apart(&q, &v) && apart(&k, &v));
        assert!(!apart(&q, &at(31, &[5, 1, 8], &[48, 8, 1])), "one element is shared");
        assert!(!apart(&k, &at(39, &[5, 1, 8], &[48, 8, 1])));
        assert!(!apart(&v, &at(40 + 48, &[4, 1, 9], &[48, 8, 1])), "it reaches into the next row");
        // Planes of one cache [pages, 2, page, heads, dim], and of one with the heads outside.
        let plane = |i: usize| at(i * 64, &[3, 4, 2, 8], &[128, 16, 8, 1]);
        assert!(apart(&plane(0), &plane(1)) && !apart(&plane(0), &plane(0)));
        assert!(!apart(&plane(0), &at(128, &[3, 4, 2, 8], &[128, 16, 8, 1])));
        // Every second element.
        assert!(apart(&at(0, &[8], &[2]), &at(1, &[8], &[2])));
        assert!(!apart(&at(0, &[8], &[2]), &at(1, &[8], &[3])));
        assert!(apart(&at(0, &[8], &[1]), &at(8, &[8], &[1])) && !apart(&at(0, &[8], &[1]), &at(7, &[8], &[1])));
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
