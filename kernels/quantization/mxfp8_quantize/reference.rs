//! Reference of mxfp8_quantize: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let layout = problem.scalars["layout"] as i64;
    let columns = problem.dims["scale_columns"] as usize;
    let mut scales = vec![0.0; problem.dims["scale_rows"] as usize * columns];
    let mut out = Vec::new();
    for (row, block, values) in quantization::blocks(problem, problem.dims["hidden"] as usize, 32) {
        let code = quantization::exponent(quantization::amax(values), 448.0);
        scales[quantization::scale_place(layout, row, block, columns)] = f64::from(code);
        out.extend(values.iter().map(|x| x / quantization::power_of_two(code)));
    }
    vec![Expected::exact("out", out), Expected::exact("scale", scales)]
}
