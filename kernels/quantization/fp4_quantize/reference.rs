//! Reference of fp4_quantize: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};
use parbake_model::dtype::DType;

/// A factor that brings the scales into the range of e4m3.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let amax = quantization::amax(draw.tensors.get("x").into_iter().flatten()).max(1e-3);
    if let Some(global) = draw.tensors.get_mut("global_scale") {
        global[0] = 448.0 * 6.0 / f64::from(amax);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let layout = problem.scalars["layout"] as i64;
    let nvfp4 = problem.scalars["format"] == 0.0;
    let columns = problem.dims["scale_columns"] as usize;
    let mut scales = vec![0.0; problem.dims["scale_rows"] as usize * columns];
    let mut codes = Vec::new();
    let block_size = if nvfp4 { 16 } else { 32 };
    for (row, block, values) in quantization::blocks(problem, problem.dims["hidden"] as usize, block_size) {
        let amax = quantization::amax(values);
        let (code, factor) = if nvfp4 {
            let global = problem.inputs.get("global_scale").map_or(1.0, |g| g[0] as f32);
            let scale = amax * (1f32 / 6.0) * global;
            let rounded = DType::E4m3.round(f64::from(scale)) as f32;
            (quantization::e4m3_code(scale), if rounded == 0.0 { 0.0 } else { 1.0 / (rounded * (1.0 / global)) })
        } else {
            let code = quantization::exponent(amax, 6.0);
            (code, (1.0 / quantization::power_of_two(code)) as f32)
        };
        scales[quantization::scale_place(layout, row, block, columns)] = f64::from(code);
        codes.extend(values.iter().map(|x| quantization::e2m1(f64::from(*x as f32 * factor))));
    }
    let out = codes.chunks_exact(2).map(|pair| f64::from(pair[0] | pair[1] << 4)).collect();
    vec![Expected::exact("out", out), Expected::exact("scale", scales)]
}
