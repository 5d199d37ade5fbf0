//! Reference of fp4_dequantize: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};
use parbake_model::dtype::DType;

/// Any codes, and scales that do not leave the range of f16 with them.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (first, count) = if draw.scalars["format"] == 0.0 { (0, 120) } else { (116, 10) };
    if let Some(x) = draw.tensors.get_mut("x") {
        x.iter_mut().for_each(|x| *x = draw.random.below(256) as f64);
    }
    if let Some(scale) = draw.tensors.get_mut("scale") {
        scale.iter_mut().for_each(|s| *s = (first + draw.random.below(count)) as f64);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let layout = problem.scalars["layout"] as i64;
    let nvfp4 = problem.scalars["format"] == 0.0;
    let global = problem.inputs.get("global_scale").map_or(1.0, |g| g[0] as f32);
    let columns = problem.dims["scale_columns"] as usize;
    let mut out = Vec::new();
    // Bytes of a block: half of its elements.
    let bytes_each = if nvfp4 { 8 } else { 16 };
    for (row, block, bytes) in quantization::blocks(problem, problem.dims["pairs"] as usize, bytes_each) {
        let code = problem.inputs["scale"][quantization::scale_place(layout, row, block, columns)] as u8;
        let scale = if nvfp4 { DType::E4m3.load(&[code]) } else { quantization::power_of_two(code) };
        let codes = bytes.iter().flat_map(|b| [*b as u8 & 15, *b as u8 >> 4]);
        out.extend(codes.map(|c| f64::from((quantization::e2m1_value(c) * scale) as f32 * global)));
    }
    vec![Expected::exact("out", out)]
}
