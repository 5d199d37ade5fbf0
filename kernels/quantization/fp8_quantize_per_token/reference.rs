//! Reference of fp8_quantize_per_token: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let largest = quantization::largest(problem.dtype);
    let (mut out, mut scales) = (Vec::new(), Vec::new());
    for (_, _, values) in
        quantization::blocks(problem, problem.dims["hidden"] as usize, problem.dims["hidden"] as usize)
    {
        let amax = quantization::amax(values);
        let scale = quantization::scale(amax, problem.scalars["eps"], largest);
        scales.push(f64::from(scale));
        out.extend(values.iter().map(|x| quantization::quotient(*x, scale)));
    }
    vec![Expected::exact("out", out), Expected::exact("scale", scales)]
}
