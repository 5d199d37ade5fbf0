//! Reference of mxfp8_dequantize: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};

/// Scales that do not leave the range of f16 with values of x.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    if let Some(scale) = draw.tensors.get_mut("scale") {
        scale.iter_mut().for_each(|s| *s = 120.0 + draw.random.below(10) as f64);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let layout = problem.scalars["layout"] as i64;
    let columns = problem.dims["scale_columns"] as usize;
    let mut out = Vec::new();
    for (row, block, values) in quantization::blocks(problem, problem.dims["hidden"] as usize, 32) {
        let code = problem.inputs["scale"][quantization::scale_place(layout, row, block, columns)] as u8;
        out.extend(values.iter().map(|x| x * quantization::power_of_two(code)));
    }
    vec![Expected::exact("out", out)]
}
