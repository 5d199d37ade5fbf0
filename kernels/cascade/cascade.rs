//! What launchers and references of merges share: accesses, lanes of a head, the grid, and the formula.

use crate::binding::{Checked, Choices, Launch, Params, Random, Tactic, Tensor, Wrong};

const VECTOR: i64 = 16;
const BLOCK: u32 = 256;
/// Lanes of a warp.
const WARP: i64 = 32;
/// Threads that keep a large GPU busy: a thread takes a second head only if there are more.
const BUSY: i64 = 1 << 18;

/// How the heads of a row are shared out to threads.
pub(crate) struct Plan {
    /// Accesses of a head.
    pub units: i64,
    /// Threads that share a head.
    pub lanes: i64,
    /// Groups of lanes that share the heads of a row.
    pub groups: i64,
    /// Groups of lanes in all.
    pub items: i64,
}

/// With at most `most` heads to a thread.
pub(crate) fn plan(call: &Checked<'_>, values: &Tensor, tactic: &Tactic, most: i64) -> Plan {
    let (rows, heads) = (call.dim("rows"), call.dim("heads"));
    let units = call.dim("head_dim") * values.dtype.bytes() as i64 / i64::from(tactic.0[0]);
    let lanes = (units as u64).next_power_of_two().min(WARP as u64) as i64;
    let each = (rows.saturating_mul(heads).saturating_mul(lanes) / BUSY).clamp(1, most);
    let groups = heads / each + i64::from(heads % each != 0);
    Plan { units, lanes, groups, items: rows * groups }
}

/// Offers vectors if all of these tensors allow them, and single elements in any case.
pub(crate) fn select(call: &Checked<'_>, values: &[&str], choices: &mut Choices) {
    let element = call.tensor(values[0]).dtype.bytes() as i64;
    let fits = |t: &&str| call.tensor(t).is_empty() || call.tensor(t).alignment(VECTOR as u64) == VECTOR as u64;
    if values.iter().all(fits) && call.dim("head_dim") * element % VECTOR == 0 {
        choices.push(&[VECTOR as u32]);
    }
    choices.push(&[element as u32]);
}

/// Threads are numbered with 32 bits; a head has at most a warp of them.
pub(crate) fn check(call: &Checked<'_>, argument: &str, wrong: &mut Wrong) {
    let (rows, most) = (call.dim("rows"), i64::from(u32::MAX - BLOCK) / (WARP * call.dim("heads")));
    if rows > most {
        wrong.add(argument, "shape", format!("rows up to {most} with so many heads"), rows.to_string());
    }
}

/// All lanes of all groups.
pub(crate) fn launch(params: Params, plan: &Plan) -> Launch {
    let threads = (plan.items * plan.lanes) as u32;
    Launch::new(params, [threads.div_ceil(BLOCK), 1, 1], BLOCK)
}

/// One state made of several, each an output and its logarithm; cascade/merge.cuh has the formula.
pub(crate) fn merged(states: &[(&[f64], f64)], head_dim: usize) -> (Vec<f64>, f64) {
    let max = states.iter().fold(f64::NEG_INFINITY, |m, (_, s)| if m.is_nan() || m > *s { m } else { *s });
    let (mut values, mut sum) = (vec![0.0; head_dim], 0.0);
    for (v, s) in states {
        let weight = if max == f64::NEG_INFINITY { 0.0 } else { (s - max).exp2() };
        sum += weight;
        // In f32, smaller weights are 0.
        if weight.is_nan() || weight >= f64::from(f32::MIN_POSITIVE) {
            values.iter_mut().zip(*v).for_each(|(sum, v)| *sum += weight * v);
        }
    }
    if sum != 0.0 {
        values.iter_mut().for_each(|v| *v /= sum);
    }
    (values, max + sum.log2())
}

/// Logarithms as attention leaves them: some far apart, and some -inf, of keys that were all masked.
pub(crate) fn draw(s: &mut [f64], random: &mut Random) {
    for s in s {
        *s = match random.below(8) {
            0 => f64::NEG_INFINITY,
            1 => random.normal() * 1e4,
            _ => random.normal() * 4.0,
        };
    }
}
