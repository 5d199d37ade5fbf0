//! Reference of block_scale_interleave: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    if let Some(x) = draw.tensors.get_mut("x") {
        x.iter_mut().for_each(|x| *x = draw.random.below(256) as f64);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (rows, columns) = (problem.dims["rows"], problem.dims["columns"]);
    let [padded_rows, padded] = quantization::scale_shape(rows, columns, 1, 0);
    let mut out = vec![0.0; (padded_rows * padded) as usize];
    for (row, column, value) in quantization::blocks(problem, columns as usize, 1) {
        out[quantization::scale_place(0, row, column, padded as usize)] = value[0];
    }
    vec![Expected::exact("out", out)]
}
