//! What the ops of mixtures of experts share.

/// Scores of the experts of a token: 0 softmax over all logits, 1 sigmoid, 2 the logits. None is NaN; a row of −inf has a
/// softmax of 0.
pub(crate) fn scores(logits: &[f64], scoring: u32) -> Vec<f64> {
    match scoring {
        0 => {
            let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = logits.iter().map(|x| if x.is_finite() { (x - top).exp() } else { 0.0 }).collect();
            let sum: f64 = powers.iter().sum();
            powers.iter().map(|e| if sum > 0.0 { e / sum } else { 0.0 }).collect()
        }
        1 => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        _ => logits.to_vec(),
    }
}

/// The first of the greatest, in order.
fn best(values: &[f64], among: impl Iterator<Item = usize>, k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = among.collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(k);
    order
}

/// The k experts that are chosen, the best first, of equal ones the first.
pub(crate) fn chosen(by: &[f64], k: usize, groups: usize, kept: usize, group_best: usize) -> Vec<usize> {
    let size = by.len() / groups;
    let sum = |g: usize| best(by, g * size..(g + 1) * size, group_best).iter().map(|e| by[*e]).sum::<f64>();
    let sums: Vec<f64> = (0..groups).map(sum).collect();
    let groups = best(&sums, 0..groups, kept);
    best(by, (0..by.len()).filter(|e| groups.contains(&(e / size))), k)
}

/// Places that so many choices take at most, each expert's padded to whole tiles.
pub(crate) fn most_places(choices: i64, experts: i64, tile: i64) -> i64 {
    (choices + choices.min(experts) * (tile - 1)) / tile * tile
}

/// Choices sorted by expert.
pub(crate) struct Sorted {
    /// For each place the choice that went there.
    pub choices: Vec<Option<usize>>,
    /// Where the places of each expert begin, and behind the last one's.
    pub indptr: Vec<usize>,
}

impl Sorted {
    /// Of experts that are given by their ids.
    pub(crate) fn new(ids: &[i64], experts: i64, first: i64, tile: usize) -> Self {
        let (mut choices, mut indptr) = (Vec::new(), vec![0]);
        for expert in first..first + experts {
            choices.extend(ids.iter().enumerate().filter(|(_, id)| **id == expert).map(|(i, _)| Some(i)));
            choices.resize(choices.len().next_multiple_of(tile), None);
            indptr.push(choices.len());
        }
        Self { choices, indptr }
    }
}
