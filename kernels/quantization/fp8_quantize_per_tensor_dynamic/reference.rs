//! Reference of fp8_quantize_per_tensor_dynamic: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};

/// The largest magnitude of x is in one of the shares.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let most = f64::from(quantization::amax(draw.tensors.get("x").into_iter().flatten()));
    let share = draw.random.below(512) as usize;
    if let Some(amax) = draw.tensors.get_mut("amax") {
        amax.fill(0.0);
        amax[share] = most;
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let amax = quantization::amax(&problem.inputs["amax"]);
    let scale = quantization::scale(amax, problem.scalars["eps"], quantization::largest(problem.dtype));
    let out = problem.inputs["x"].iter().map(|x| quantization::quotient(*x, scale)).collect();
    vec![Expected::exact("out", out), Expected::exact("scale", vec![f64::from(scale)])]
}
