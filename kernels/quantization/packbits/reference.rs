//! Reference of packbits: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn draw(draw: &mut Draw<'_>) {
    if let Some(x) = draw.tensors.get_mut("x") {
        x.iter_mut().for_each(|x| *x = draw.random.below(2) as f64);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let little = problem.scalars["little"] != 0.0;
    let out = problem.inputs["x"].chunks(8).map(|bits| quantization::packed(bits, little)).collect();
    vec![Expected::exact("out", out)]
}
