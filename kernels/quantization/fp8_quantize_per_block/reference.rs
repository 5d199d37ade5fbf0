//! Reference of fp8_quantize_per_block: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (rows, hidden) = (problem.dims["rows"] as usize, problem.dims["hidden"] as usize);
    let (eps, largest) = (problem.scalars["eps"], quantization::largest(problem.dtype));
    let x = &problem.inputs["x"];
    let across = hidden.div_ceil(128);
    let mut tiles = vec![Vec::new(); rows.div_ceil(128) * across];
    let tile = |i: usize| i / hidden / 128 * across + i % hidden / 128;
    x.iter().enumerate().for_each(|(i, v)| tiles[tile(i)].push(*v));
    let scale = |values: &Vec<f64>| {
        let amax = quantization::amax(values);
        if problem.scalars["power_of_two"] == 0.0 {
            quantization::scale(amax, eps, largest)
        } else {
            quantization::power_of_two(quantization::exponent(amax.max(eps as f32), largest)) as f32
        }
    };
    let scales: Vec<f32> = tiles.iter().map(scale).collect();
    let out = x.iter().enumerate().map(|(i, v)| quantization::quotient(*v, scales[tile(i)])).collect();
    vec![Expected::exact("out", out), Expected::exact("scale", scales.into_iter().map(f64::from).collect())]
}
