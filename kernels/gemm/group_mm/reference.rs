//! Reference of group_mm in float64.

use super::gemm;
use super::group_mm_launch::groups;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dim = |name: &str| problem.dims[name];
    let [m, n, k, tokens, matrices] = ["m", "n", "k", "tokens", "matrices"].map(dim);
    let integers = |name: &str| problem.inputs.get(name).map(|v| v.iter().map(|x| *x as i64).collect::<Vec<_>>());
    let (indptr, lengths, ids) = (integers("indptr"), integers("lengths"), integers("ids"));
    let (rows, weights) = (integers("rows"), integers("weights"));
    let said = indptr.is_some() || lengths.is_some() || weights.is_some();
    let groups = groups(dim("groups"), matrices, said);
    let a_shape = [1, dim("a_scale_rows"), dim("a_scale_blocks")];
    let b_shape = ["matrices", "rows", "blocks"].map(|d| dim(&format!("b_scale_{d}")));
    let (a, b) = (&problem.inputs["a"], &problem.inputs["b"]);
    let [a_scale, b_scale, bias] = ["a_scale", "b_scale", "bias"].map(|name| problem.inputs.get(name));
    let kind = problem.scalars["activation"] as i64;

    let group_of = |row: i64| match (&indptr, &lengths, &ids) {
        (Some(indptr), ..) => indptr.windows(2).position(|w| w[0] <= row && row < w[1]).map(|g| g as i64),
        (_, Some(lengths), _) => {
            let most = m / groups;
            (row % most < lengths[(row / most) as usize]).then_some(row / most)
        }
        (.., Some(ids)) => (0..groups).contains(&ids[row as usize]).then_some(ids[row as usize]),
        _ => None,
    };
    let mut out = problem.inputs["out"].clone();
    for row in 0..m {
        let source = rows.as_ref().map_or(row, |rows| rows[row as usize]);
        let Some(group) = group_of(row).filter(|_| (0..tokens).contains(&source)) else { continue };
        let matrix = weights.as_ref().map_or(group, |weights| weights[group as usize]);
        if !(0..matrices).contains(&matrix) {
            continue;
        }
        for column in 0..n {
            let product = |from: i64, to: i64| -> f64 {
                let x = &a[(source * k + from) as usize..(source * k + to) as usize];
                let y = &b[((matrix * n + column) * k + from) as usize..((matrix * n + column) * k + to) as usize];
                x.iter().zip(y).map(|(x, y)| x * y).sum()
            };
            let sum: f64 = (0..k)
                .step_by(gemm::BLOCK as usize)
                .map(|at| {
                    let factor = gemm::factor(a_scale, a_shape, tokens, [0, source, at]);
                    let factor = factor * gemm::factor(b_scale, b_shape, n, [matrix, column, at]);
                    product(at, (at + gemm::BLOCK).min(k)) * factor
                })
                .sum();
            let bias = bias.map_or(0.0, |bias| bias[(matrix * n + column) as usize]);
            out[(row * n + column) as usize] = gemm::activation(kind, sum + bias);
        }
    }
    vec![Expected::close("out", out)]
}

/// Groups of any size, some of them none; ids with rows of no group, a tile in several; rows in any order, some of none.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let dim = |name: &str| draw.dims[name];
    let (m, tokens, matrices) = (dim("m"), dim("tokens"), dim("matrices"));
    let said = ["indptr", "lengths", "weights"].iter().any(|name| draw.tensors.contains_key(*name));
    let groups = groups(dim("groups"), matrices, said);
    let random = &mut *draw.random;
    let mut below = |n: i64| random.below(n.max(1) as u64) as i64;
    for name in ["a_scale", "b_scale"] {
        if let Some(scales) = draw.tensors.get_mut(name) {
            scales.iter_mut().for_each(|s| *s = 0.25 + below(1 << 20) as f64 / f64::from(1 << 20));
        }
    }
    if let Some(indptr) = draw.tensors.get_mut("indptr") {
        let mut ends: Vec<i64> = (0..groups).map(|_| below(m + 1)).collect();
        ends.sort_unstable();
        indptr[0] = 0.0;
        for (at, end) in indptr[1..].iter_mut().zip(&ends) {
            *at = *end as f64;
        }
        // The last group has what is left, or there are rows of no group.
        if groups % 2 == 0 {
            indptr[groups as usize] = m as f64;
        }
    }
    if let Some(lengths) = draw.tensors.get_mut("lengths") {
        lengths.iter_mut().for_each(|length| *length = below(m / groups.max(1) + 1) as f64);
    }
    if let Some(ids) = draw.tensors.get_mut("ids") {
        let mut id = -1;
        for at in ids.iter_mut() {
            if below(9) == 0 {
                id = below(groups + 2) - 1;
            }
            *at = id as f64;
        }
    }
    if let Some(rows) = draw.tensors.get_mut("rows") {
        rows.iter_mut().for_each(|row| *row = (below(tokens + 2) - 1) as f64);
    }
    if let Some(weights) = draw.tensors.get_mut("weights") {
        weights.iter_mut().for_each(|matrix| *matrix = (below(matrices + 1) - i64::from(below(9) == 0)) as f64);
    }
}
