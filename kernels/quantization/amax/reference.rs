//! Reference of amax: shares as params.h deals them.

use super::quantization::Deal;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dtype = problem.dtypes["x"];
    let hidden = problem.dims["hidden"];
    let deal = Deal::new(dtype, hidden, 1);
    let lanes = 16 / dtype.bytes();
    let mut out = vec![0f64; 512];
    for (i, v) in problem.inputs["x"].iter().enumerate() {
        let (row, vector) = (i / hidden as usize, i % hidden as usize / lanes);
        let tile = if deal.down == 1 {
            row / (4 * deal.block_rows as usize)
        } else {
            row / deal.block_rows as usize * deal.chunks as usize + vector / (4 * deal.row_threads as usize)
        };
        out[tile % 512] = out[tile % 512].max(v.abs());
    }
    vec![Expected::exact("out", out)]
}
