//! Reference of segment_packbits: the contract of params.h, one f32 operation after the other.

use super::quantization;
use crate::binding::{Draw, Expected, Problem};

/// Segments that begin anywhere in x, one after the other, and fit into out.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (batch, n, packed) = (draw.dims["batch"] as usize, draw.dims["n"] as u64, draw.dims["packed"]);
    if let Some(x) = draw.tensors.get_mut("x") {
        x.iter_mut().for_each(|x| *x = draw.random.below(2) as f64);
    }
    let mut begins: Vec<f64> = (0..=batch).map(|_| draw.random.below(n + 1) as f64).collect();
    begins.sort_by(f64::total_cmp);
    let mut ends = vec![0.0];
    for i in 0..batch {
        let room = packed as f64 - ends[i];
        begins[i + 1] = begins[i + 1].min(begins[i] + 8.0 * room);
        ends.push(ends[i] + ((begins[i + 1] - begins[i]) / 8.0).ceil());
    }
    for (name, values) in [("indptr", begins), ("out_indptr", ends)] {
        draw.tensors.insert(name.to_owned(), values);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let little = problem.scalars["little"] != 0.0;
    let (x, indptr, begins) = (&problem.inputs["x"], &problem.inputs["indptr"], &problem.inputs["out_indptr"]);
    let mut out = vec![0.0; problem.dims["packed"] as usize];
    for (segment, begin) in indptr.windows(2).zip(begins) {
        let bits = &x[segment[0] as usize..segment[1] as usize];
        let to = out.iter_mut().skip(*begin as usize);
        bits.chunks(8).zip(to).for_each(|(bits, to)| *to = quantization::packed(bits, little));
    }
    vec![Expected::exact("out", out)]
}
