//! Reference of apply_rope in float64. The contract says that frequency and angle are f32: so they are here.

use crate::binding::{Draw, Expected, Problem};
use std::f64::consts::PI;

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let head_dim = problem.dims["head_dim"] as usize;
    let rotary_dim = match problem.scalars["rotary_dim"] as usize {
        0 => head_dim,
        some => some,
    };
    let frequencies: Vec<f32> = (0..rotary_dim / 2).map(|i| frequency(problem, i, rotary_dim)).collect();
    let positions = positions(problem);
    let turned = |name: &str| {
        let mut values = problem.inputs[name].clone();
        let heads = values.len() / head_dim / positions.len().max(1);
        for (row, position) in values.chunks_exact_mut((heads * head_dim).max(1)).zip(&positions) {
            for head in row.chunks_exact_mut(head_dim) {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let (sine, cosine) = f64::from(*position * *frequency).sin_cos();
                    let interleave = problem.scalars["interleave"] != 0.0;
                    let (a, b) = if interleave { (2 * i, 2 * i + 1) } else { (i, i + rotary_dim / 2) };
                    let (x, y) = (head[a], head[b]);
                    (head[a], head[b]) = (x * cosine - y * sine, y * cosine + x * sine);
                }
            }
        }
        values
    };
    vec![Expected::close("q_out", turned("q")), Expected::close("k_out", turned("k"))]
}

fn frequency(problem: &Problem, i: usize, rotary_dim: usize) -> f32 {
    let scalar = |name: &str| problem.scalars[name];
    let (scale, old) = (scalar("rope_scale"), scalar("old_context_len"));
    let exact = scalar("rope_theta").powf(-2.0 * i as f64 / rotary_dim as f64);
    if old == 0.0 {
        return (exact / scale) as f32;
    }
    let (low, high) = (scalar("low_freq_factor"), scalar("high_freq_factor"));
    let (slope, offset) = ((old / (2.0 * PI * (high - low))) as f32, (-low / (high - low)) as f32);
    let (kept, slowest) = (exact as f32, (1.0 / scale) as f32);
    let smooth = kept.mul_add(slope, offset).clamp(0.0, 1.0);
    kept * smooth.mul_add(1.0 - slowest, slowest)
}

fn positions(problem: &Problem) -> Vec<f32> {
    let integers = |name: &str| problem.inputs.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    if let Some(positions) = integers("pos_ids") {
        return positions.into_iter().map(|p| p as f32).collect();
    }
    let (indptr, offsets) = (integers("indptr").unwrap_or_default(), integers("offsets").unwrap_or_default());
    let of = |token: i64| {
        let segment = indptr.windows(2).position(|w| w[0] <= token && token < w[1])?;
        Some((offsets[segment] + token - indptr[segment]) as f32)
    };
    (0..problem.dims["tokens"]).map(|token| of(token).unwrap_or(0.0)).collect()
}

/// Positions near and far, some of them negative; segments of all lengths, none among them, that may leave tokens out.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    for name in ["pos_ids", "offsets"] {
        for (i, position) in draw.tensors.get_mut(name).into_iter().flatten().enumerate() {
            let far = [1 << 12, 1 << 20, 1 << 30][i % 3];
            *position = draw.random.below(far) as f64 * if i % 7 == 6 { -1.0 } else { 1.0 };
        }
    }
    if let Some(indptr) = draw.tensors.get_mut("indptr") {
        let tokens = draw.dims["tokens"] as u64;
        indptr.iter_mut().for_each(|first| *first = draw.random.below(tokens + 1) as f64);
        indptr.sort_by(f64::total_cmp);
    }
}
