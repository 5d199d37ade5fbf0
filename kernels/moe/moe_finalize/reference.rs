//! Reference of moe_finalize in float64.

use crate::binding::{Draw, Expected, Problem};

/// Choices go to different rows while there are any, in any order; some go nowhere. Rows that none goes to hold NaN.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (capacity, hidden) = (draw.dims["capacity"] as usize, draw.dims["hidden"] as usize);
    let random = &mut *draw.random;
    let mut free: Vec<usize> = (0..capacity).collect();
    let mut taken = vec![false; capacity];
    let places = draw.tensors.get_mut("places").expect("bug: places are given");
    for place in places.iter_mut() {
        let any = (!free.is_empty() && random.below(5) > 0).then(|| random.below(free.len() as u64) as usize);
        let row = any.map(|i| free.swap_remove(i));
        *place = row.map_or(-1.0, |row| row as f64);
        row.into_iter().for_each(|row| taken[row] = true);
    }
    let x = draw.tensors.get_mut("x").expect("bug: x is given");
    for (row, _) in x.chunks_exact_mut(hidden).zip(&taken).filter(|(_, taken)| !**taken) {
        row.fill(f64::NAN);
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (k, hidden) = (problem.dims["k"] as usize, problem.dims["hidden"] as usize);
    let [x, places, weights] = ["x", "places", "weights"].map(|name| &problem.inputs[name]);
    let mut out = Vec::new();
    for (places, weights) in places.chunks_exact(k).zip(weights.chunks_exact(k)) {
        let mut sum = vec![0.0; hidden];
        for (place, weight) in places.iter().zip(weights).filter(|(place, _)| **place >= 0.0) {
            let row = &x[*place as usize * hidden..][..hidden];
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        }
        out.extend(sum);
    }
    vec![Expected::close("out", out)]
}
