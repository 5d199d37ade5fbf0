//! Reference of fp8_quantize_per_token_group: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Expected, Problem};
use parbake_model::dtype::DType;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let largest = quantization::largest(problem.dtype);
    let (eps, powers) = (problem.scalars["eps"], problem.scalars["power_of_two"] != 0.0);
    let codes = problem.dtypes["scale"] == DType::U8;
    let (mut out, mut scales) = (Vec::new(), Vec::new());
    for (_, _, values) in quantization::blocks(problem, problem.dims["hidden"] as usize, 128) {
        let amax = quantization::amax(values);
        let code = quantization::exponent(amax.max(eps as f32), largest);
        let scale = match (codes, powers) {
            (false, false) => quantization::scale(amax, eps, largest),
            _ => quantization::power_of_two(code) as f32,
        };
        scales.push(if codes { f64::from(code) } else { f64::from(scale) });
        out.extend(values.iter().map(|x| quantization::quotient(*x, scale)));
    }
    vec![Expected::exact("out", out), Expected::exact("scale", scales)]
}
