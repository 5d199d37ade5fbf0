//! Tensor maps: what the copy engine of sm_90 and newer is told of a tensor. A launcher describes it in the place of its
//! parameter struct where the kernel wants the map, and the launch puts what the driver makes of it there.

use crate::driver::{DriverError, Ready};
use crate::params::pb_tensor_map;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};

/// Dimensions: elements along a row, rows, and matrices of a batch.
const DIMS: usize = 3;
/// Bytes of a row of a box, which is what a swizzle of 128 bytes permutes.
const LINE: u64 = 128;
/// The most elements that a box has along a dimension.
const MOST: u32 = 256;

/// A batch of matrices whose rows are dense, in boxes with rows of 128 bytes, which lie in shared memory permuted for wgmma.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// Where it begins, at a multiple of 16 bytes.
    pub data: *const c_void,
    /// Bytes of an element: 1 or 2.
    pub bytes: u64,
    /// Elements of a row, rows, matrices.
    pub dims: [u64; DIMS],
    /// Bytes from row to row, and from matrix to matrix, multiples of 16.
    pub strides: [u64; DIMS - 1],
    /// Rows of a box.
    pub rows: u32,
}

impl TensorMap {
    /// Its description, for the parameter struct.
    ///
    /// # Panics
    /// If no map can be like that: a launcher that offers a tactic to what it is not for is a bug.
    #[must_use]
    pub fn described(self) -> pb_tensor_map {
        let Self { data, bytes, dims, strides, rows } = self;
        // A single matrix, or row, has a stride that nobody uses but the driver looks at.
        let row = if dims[1] > 1 { strides[0] } else { (dims[0] * bytes).next_multiple_of(16) };
        let matrix = if dims[2] > 1 { strides[1] } else { row * dims[1] };
        let whole = [data as u64, row, matrix].iter().all(|n| n.is_multiple_of(16) && *n > 0);
        assert!(whole && !dims.contains(&0) && (1..=MOST).contains(&rows), "bug: no map is like {self:?}");
        let mut words = [0; 16];
        words[..8].copy_from_slice(&[data as u64, bytes, dims[0], dims[1], dims[2], row, matrix, u64::from(rows)]);
        pb_tensor_map { words }
    }
}

// Of `CUtensorMapDataType`, `…Swizzle`, `…L2promotion`.
const U8: c_int = 0;
const U16: c_int = 1;
const SWIZZLE_128B: c_int = 3;
const L2_256B: c_int = 3;

/// The last maps of this thread: a layer's weights come again, and its activations mostly do.
const KEPT: usize = 64;

#[derive(Clone, Copy)]
struct Kept {
    description: [u64; 16],
    map: [u64; 16],
}

thread_local! {
    static CACHE: RefCell<Box<[Kept; KEPT]>> = RefCell::new(Box::new([Kept { description: [0; 16], map: [0; 16] }; KEPT]));
}

/// Replaces the descriptions that `words` begins with by maps.
pub(crate) fn encode(ready: &Ready, words: &mut [u64], count: u32) -> Result<(), DriverError> {
    for words in words.chunks_exact_mut(16).take(count as usize) {
        let words: &mut [u64; 16] = words.try_into().expect("bug: a chunk of another length");
        let description = *words;
        // Any mixture of addresses and extents will do: what lies there is compared.
        let hash =
            description[..8].iter().fold(0u64, |h, w| (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        let at = (hash % KEPT as u64) as usize;
        let found = CACHE.with_borrow(|kept| kept[at]);
        *words = if found.description == description {
            found.map
        } else {
            let map = of_driver(ready, &description)?;
            CACHE.with_borrow_mut(|kept| kept[at] = Kept { description, map });
            map
        };
    }
    Ok(())
}

fn of_driver(ready: &Ready, description: &[u64; 16]) -> Result<[u64; 16], DriverError> {
    #[repr(align(64))]
    struct Map([u64; 16]);
    let [data, bytes, dims @ ..] = *description;
    let [columns, rows, matrices, row, matrix, height, ..] = dims;
    let (dims, strides) = ([columns, rows, matrices], [row, matrix]);
    let (tile, steps) = ([(LINE / bytes) as u32, height as u32, 1], [1u32; DIMS]);
    let mut map = Map([0; 16]);
    // SAFETY: the arrays are as long as the driver reads for three dimensions, and the map is as large and aligned as it
    // writes.
    let code = unsafe {
        (ready.table.tensor_map)(
            map.0.as_mut_ptr().cast(),
            if bytes == 1 { U8 } else { U16 },
            DIMS as u32,
            data as *const c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            0,
            SWIZZLE_128B,
            L2_256B,
            0,
        )
    };
    ready.table.check("cuTensorMapEncodeTiled", code)?;
    Ok(map.0)
}
