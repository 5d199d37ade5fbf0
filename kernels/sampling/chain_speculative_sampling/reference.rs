//! Reference of chain_speculative_sampling in float64.

use super::sampling::{drawn, key, uniform};
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let dim = |name: &str| problem.dims[name] as usize;
    let (rows, drafts, vocab) = (dim("rows"), dim("drafts"), dim("vocab"));
    let input = |name: &str| &problem.inputs[name];
    let (mut tokens, mut accepted, mut emitted) = (Vec::new(), input("accepted").clone(), input("emitted").clone());
    for row in 0..rows {
        let (seed, offset) = key(problem, row);
        let ids = &input("draft_token_ids")[row * drafts..][..drafts];
        let draft = |i: usize| &input("draft_probs")[(row * drafts + i) * vocab..][..vocab];
        let target = |i: usize| &input("target_probs")[(row * (drafts + 1) + i) * vocab..][..vocab];
        let good = |i: usize| {
            let u = uniform(seed, offset, row as u32, i as u32);
            ids[i] >= 0.0 && (ids[i] as usize) < vocab && u * draft(i)[ids[i] as usize] < target(i)[ids[i] as usize]
        };
        let first = (0..drafts).find(|i| !good(*i)).unwrap_or(drafts);
        accepted[row] += (0..drafts).filter(|i| good(*i)).count() as f64;
        emitted[row] += first as f64;

        // The kernel subtracts in f32.
        let less = |(t, d): (&f64, &f64)| f64::from((*t as f32) - (*d as f32)).max(0.0);
        let mut weights = target(first).to_vec();
        if first < drafts {
            weights = weights.iter().zip(draft(first)).map(less).collect();
        }
        if weights.iter().sum::<f64>() == 0.0 {
            weights = target(first).to_vec();
        }
        let mass = weights.iter().sum::<f64>();
        let found = drawn(&weights, mass, uniform(seed, offset, row as u32, drafts as u32));
        let found: Vec<f64> = found.iter().map(|i| *i as f64).collect();
        tokens.extend((0..=drafts).map(|i| match i {
            _ if i < first => vec![ids[i]],
            _ if i == first && !found.is_empty() => found.clone(),
            _ if i == first => vec![0.0],
            _ => vec![-1.0],
        }));
    }
    vec![Expected::one_of("tokens", tokens), Expected::exact("accepted", accepted), Expected::exact("emitted", emitted)]
}

/// Probabilities, draft models that agree with the target more or less, and tokens that these models could give.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let dim = |name: &str| draw.dims[name] as usize;
    let (drafts, vocab) = (dim("drafts"), dim("vocab"));
    let softmax = |row: &mut [f64]| {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        row.iter_mut().for_each(|v| *v = v.exp() / sum);
    };
    let mut target = draw.tensors["target_probs"].clone();
    target.chunks_exact_mut(vocab).for_each(softmax);
    let mut draft = draw.tensors["draft_probs"].clone();
    draft.chunks_exact_mut(vocab).for_each(softmax);
    for (i, row) in draft.chunks_exact_mut(vocab).enumerate() {
        let (request, position) = (i / drafts, i % drafts);
        let of_target = &target[(request * (drafts + 1) + position) * vocab..][..vocab];
        // From the target itself to something else.
        let share = if i % 7 == 6 { 1.0 } else { (i % 4) as f64 / 8.0 };
        row.iter_mut().zip(of_target).for_each(|(d, t)| *d = *d * share + t * (1.0 - share));
    }
    for (i, id) in draw.tensors.get_mut("draft_token_ids").expect("bug: a chain without tokens").iter_mut().enumerate()
    {
        let (mut u, row) = (draw.random.uniform(), &draft[i * vocab..][..vocab]);
        let place = row.iter().position(|p| {
            u -= p;
            u < 0.0
        });
        *id = if i % 97 == 96 { -1.0 } else { place.unwrap_or(0) as f64 };
    }
    draw.tensors.insert("target_probs".into(), target);
    draw.tensors.insert("draft_probs".into(), draft);
    for name in ["seeds", "offsets"] {
        if let Some(values) = draw.tensors.get_mut(name) {
            values.iter_mut().for_each(|v| *v = draw.random.below(1 << 50) as f64);
        }
    }
}
