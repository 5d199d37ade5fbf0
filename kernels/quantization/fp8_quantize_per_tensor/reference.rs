//! Reference of fp8_quantize_per_tensor: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let scale = problem.inputs["scale"][0] as f32;
    let out = problem.inputs["x"].iter().map(|x| quantization::quotient(*x, scale)).collect();
    vec![Expected::exact("out", out)]
}
