//! Reference of sample in float64: the same random numbers, all tokens that rounding leaves possible.

use super::sampling::{drawn, key, less, uniform};
use crate::binding::{Draw, Expected, Problem};

/// A row and its filters.
struct Row {
    /// Weights by index.
    weights: Vec<f64>,
    /// Indices by weight, descending; ties by index.
    order: Vec<usize>,
    /// Places in `order`, by index.
    rank: Vec<usize>,
    /// Mass of the tokens before a place in `order`, and at the end of all.
    before: Vec<f64>,
    k: usize,
    p: f64,
    min_p: f64,
    top_k_first: bool,
    seed: u64,
    offset: u64,
    row: u32,
}

impl Row {
    /// Adds what draw `draw` and those after it may give, among the first `limit` tokens of the order.
    fn walk(&self, draw: u32, limit: usize, found: &mut Vec<usize>) {
        let candidates: Vec<f64> =
            self.weights.iter().zip(&self.rank).map(|(w, r)| if *r < limit { *w } else { 0.0 }).collect();
        for token in drawn(&candidates, self.before[limit], uniform(self.seed, self.offset, self.row, draw)) {
            let rank = self.rank[token];
            let floor = self.floor();
            let (kept, next) = if self.weights[token] < floor {
                (Some(false), self.order.iter().take_while(|i| self.weights[**i] >= floor).count())
            } else {
                (self.keeps(rank), rank)
            };
            if kept != Some(false) && !found.contains(&token) {
                found.push(token);
            }
            if kept != Some(true) {
                self.walk(draw + 1, next, found);
            }
        }
    }
    fn floor(&self) -> f64 {
        let share = if self.min_p > 0.0 { self.min_p.min(1.0) } else { 0.0 };
        f64::from((share * self.weights[self.order[0]]) as f32)
    }
    fn keeps(&self, rank: usize) -> Option<bool> {
        let total = self.before[if self.top_k_first { self.k.min(self.order.len()) } else { self.order.len() }];
        match rank {
            0 => Some(true),
            _ if rank >= self.k => Some(false),
            _ if self.p >= 1.0 => Some(true),
            _ if self.p.is_nan() => Some(false),
            _ => less(self.before[rank], self.p * total, total),
        }
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (rows, vocab) = (problem.dims["rows"] as usize, problem.dims["vocab"] as usize);
    let (mut tokens, mut valid) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let source = problem.inputs.get("indices").map_or(row as f64, |i| i[row]);
        let x = if source >= 0.0 { problem.inputs["x"].chunks_exact(vocab).nth(source as usize) } else { None };
        let found = x.map_or_else(Vec::new, |x| outcomes(problem, row, x));
        valid.push(f64::from(u8::from(!found.is_empty())));
        let found: Vec<f64> = found.iter().map(|i| *i as f64).collect();
        tokens.push(if found.is_empty() { vec![0.0] } else { found });
    }
    vec![Expected::one_of("tokens", tokens), Expected::exact("valid", valid)]
}

fn outcomes(problem: &Problem, row: usize, x: &[f64]) -> Vec<usize> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight = |v: f64| match problem.scalars["logits"] {
        0.0 => v,
        _ if v - top < -126.0 * std::f64::consts::LN_2 => 0.0,
        _ => (v - top).exp(),
    };
    let weights: Vec<f64> = x.iter().map(|v| weight(*v)).map(|w| if w <= 0.0 { 0.0 } else { w }).collect();
    let total: f64 = weights.iter().sum();
    if !(total > 0.0 && total.is_finite()) || x.iter().any(|v| v.is_nan()) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    let mut rank = vec![0; x.len()];
    let mut before = vec![0.0];
    for (place, i) in order.iter().enumerate() {
        rank[*i] = place;
        before.push(before[place] + weights[*i]);
    }
    let value = |many: &str, one: &str| problem.inputs.get(many).map_or(problem.scalars[one], |v| v[row]);
    let (seed, offset) = key(problem, row);
    let row = Row {
        k: value("top_ks", "top_k").max(1.0) as usize,
        p: value("top_ps", "top_p"),
        min_p: value("min_ps", "min_p"),
        top_k_first: problem.scalars["top_k_first"] != 0.0,
        weights,
        rank,
        before,
        seed,
        offset,
        row: row as u32,
        order,
    };
    let mut found = Vec::new();
    row.walk(0, row.order.len(), &mut found);
    found
}

/// Probabilities like those of a language model, a few rows that are special, and filters that change from row to row.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let (vocab, sources) = (draw.dims["vocab"] as usize, draw.dims["sources"].max(1) as u64);
    let logits = draw.scalars["logits"] != 0.0;
    let random = &mut *draw.random;
    let x = draw.tensors.get_mut("x").expect("bug: a sample without x");
    for (i, row) in x.chunks_exact_mut(vocab).enumerate() {
        row.iter_mut().for_each(|v| *v *= 3.0);
        match i % 5 {
            1 => row.iter_mut().for_each(|v| *v = v.round()),
            2 => row.iter_mut().skip(1).step_by(2).for_each(|v| *v = f64::NEG_INFINITY),
            _ => {}
        }
        if logits {
            continue;
        }
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
        row.iter_mut().for_each(|v| *v = (*v - top).exp() / sum);
        if i % 5 == 3 {
            let only = random.below(vocab as u64) as usize;
            row.iter_mut().enumerate().for_each(|(j, v)| *v = f64::from(u8::from(j == only)));
        }
    }
    let mut fill = |name: &str, value: &mut dyn FnMut() -> f64| {
        if let Some(values) = draw.tensors.get_mut(name) {
            values.iter_mut().for_each(|v| *v = value());
        }
    };
    fill("indices", &mut || random.below(sources) as f64);
    fill("top_ks", &mut || random.below(50) as f64);
    fill("top_ps", &mut || random.uniform() * 1.1);
    fill("min_ps", &mut || random.uniform() * 0.5);
    fill("seeds", &mut || random.below(1 << 50) as f64);
    fill("offsets", &mut || random.below(1 << 50) as f64);
}
