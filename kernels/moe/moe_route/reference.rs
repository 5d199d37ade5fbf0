//! Reference of moe_route in float64.

use super::moe;
use crate::binding::{Draw, Expected, Problem};

/// Logits and biases of a few values each, whose scores and sums of two scores are either equal or well apart: which of
/// two is greater does not depend on rounding. Among the rows are equal ones, some with −inf and with nothing else, and
/// some whose sigmoids underflow.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    const LOGITS: [f64; 9] = [-2.625, -1.6875, -1.0, -0.4375, 0.125, 0.5625, 1.1875, 1.875, 2.75];
    const BIASES: [f64; 3] = [0.0, 0.203_125, -0.117_187_5];
    let experts = draw.dims["experts"] as usize;
    let random = &mut *draw.random;
    let logits = draw.tensors.get_mut("logits").expect("bug: the logits are given");
    for (i, row) in logits.chunks_exact_mut(experts).enumerate() {
        for x in row.iter_mut() {
            let pick = random.below(LOGITS.len() as u64) as usize;
            *x = match i % 7 {
                3 => 0.5625,
                4 if random.below(2) == 0 => f64::NEG_INFINITY,
                5 => f64::NEG_INFINITY,
                6 => -300.0,
                _ => LOGITS[pick],
            };
        }
    }
    // Of several biases, sums of two are equal that rounding tells apart: those of groups are all different.
    let grouped = draw.scalars["groups"] > 1.0;
    if let Some(bias) = draw.tensors.get_mut("bias") {
        let pick = |b: f64| if grouped { b / 4.0 } else { BIASES[b.to_bits() as usize % BIASES.len()] };
        bias.iter_mut().for_each(|b| *b = pick(*b));
    }
}

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let scalar = |name: &str| problem.scalars[name];
    let (experts, k) = (problem.dims["experts"] as usize, problem.dims["k"] as usize);
    let (groups, kept) = (scalar("groups") as usize, scalar("kept_groups") as usize);
    let bias = problem.inputs.get("bias").cloned().unwrap_or_else(|| vec![0.0; experts]);
    let (mut weights, mut ids) = (Vec::new(), Vec::new());
    for row in problem.inputs["logits"].chunks_exact(experts) {
        let logits: Vec<f64> = row.iter().map(|x| if x.is_nan() { f64::NEG_INFINITY } else { *x }).collect();
        let scores = moe::scores(&logits, scalar("scoring") as u32);
        let by: Vec<f64> = scores.iter().zip(&bias).map(|(s, b)| s + b).collect();
        // Scores that round to one number are told apart by their logits, where nothing is added to them.
        let plain = !problem.inputs.contains_key("bias") && (groups == 1 || scalar("group_best") < 2.0);
        let by = if plain { logits.clone() } else { by };
        let chosen = moe::chosen(&by, k, groups, kept, scalar("group_best") as usize);
        let mut of: Vec<f64> = chosen.iter().map(|e| scores[*e]).collect();
        if scalar("scoring") as u32 == 2 {
            of = moe::scores(&of, 0);
        } else if scalar("renormalize") != 0.0 {
            let sum = of.iter().sum::<f64>() + 1e-20;
            of.iter_mut().for_each(|w| *w /= sum);
        }
        let factor = if row.iter().any(|x| x.is_nan()) { f64::NAN } else { scalar("scale") };
        weights.extend(of.iter().map(|w| w * factor));
        ids.extend(chosen.iter().map(|e| *e as f64));
    }
    vec![Expected::close("weights", weights), Expected::exact("ids", ids)]
}
