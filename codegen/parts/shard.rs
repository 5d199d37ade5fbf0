//! Dividing a plan into shards: a pure function of the units and what they cost.

use super::Unit;
use parbake_model::Digest;
use parbake_model::digest::KeyFields;
use parbake_model::report::{Class, Report};
use std::fmt;
use std::str::FromStr;

/// More shards than this are a slip of the hand.
const MOST: u32 = 10_000;

/// The second of five: `2/5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shard {
    /// Its number, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = Report;

    fn from_str(text: &str) -> Result<Self, Report> {
        let number = |text: &str| text.parse().ok().filter(|n| !text.starts_with('+') && (1..=MOST).contains(n));
        let parts = text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?)));
        parts.filter(|(number, of)| number <= of).map(|(number, of)| Self { number, of }).ok_or_else(|| {
            Report::new("PB-1145", Class::Usage, format!("`{text}` is no shard"))
                .with("expected", format!("number/count, as in 2/5, with at most {MOST} shards"))
                .with("got", text)
        })
    }
}

/// For each unit, in its place, the number of its shard.
///
/// Without costs they are dealt out by key, so that all shards have as many, give or take one. With costs the dearest is
/// dealt first, each to the shard that has the least to do by then; where costs or loads are equal, key and number decide.
///
/// # Panics
/// If there are other costs than units.
#[must_use]
pub fn divide(units: &[Unit], costs: Option<&[u64]>, of: u32) -> Vec<u32> {
    assert!(of > 0 && costs.is_none_or(|costs| costs.len() == units.len()), "bug: a cost for each unit");
    let mut order: Vec<usize> = (0..units.len()).collect();
    let key = |i: usize| (units[i].source_key, units[i].target);
    order.sort_by_key(|&i| (std::cmp::Reverse(costs.map_or(0, |costs| costs[i])), key(i)));
    let mut shards = vec![0; units.len()];
    let mut loads = vec![0u64; of as usize];
    for i in order {
        let (shard, load) = loads.iter_mut().enumerate().min_by_key(|(_, load)| **load).expect("bug: no shard");
        // Something that costs nothing would all go to one shard.
        *load += costs.map_or(1, |costs| costs[i].max(1));
        shards[i] = shard as u32 + 1;
    }
    shards
}

/// Names a division, so that shards which were divided by other costs are told from damaged ones.
pub(super) fn name(units: &[Unit], shards: &[u32]) -> Digest {
    let mut order: Vec<(&Unit, u32)> = units.iter().zip(shards.iter().copied()).collect();
    order.sort();
    let key = KeyFields::new("parbake.division.v1");
    order.into_iter().fold(key, |key, (unit, shard)| key.with(unit.build_key.to_string(), shard)).finish().digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(keys: &[u64]) -> Vec<Unit> {
        let unit = |key: &u64| Unit {
            source_key: Digest::of(&key.to_le_bytes()),
            target: if key.is_multiple_of(2) { "sm_90a" } else { "sm_80" }.parse().unwrap(),
            build_key: Digest::of(key.to_string().as_bytes()),
            uri: key.to_string(),
        };
        keys.iter().map(unit).collect()
    }

    proptest! {
        #[test]
        fn shards_partition_a_plan_whatever_its_order(
            keys in prop::collection::btree_set(any::<u64>(), 0..60),
            costs in prop::collection::vec(0u64..5000, 60),
            recorded in any::<bool>(),
            of in 1u32..12,
            turn in 0usize..60,
        ) {
            let keys: Vec<u64> = keys.into_iter().collect();
            let mut turned = keys.clone();
            turned.rotate_left(turn % keys.len().max(1));
            let cost = |keys: &[u64]| keys.iter().map(|k| costs[(k % 60) as usize]).collect::<Vec<_>>();
            let of_each = |keys: &[u64]| {
                let costs = cost(keys);
                divide(&units(keys), recorded.then_some(costs.as_slice()), of)
            };
            let (shards, others) = (of_each(&keys), of_each(&turned));
            // Each unit is in one shard, and in the same one whoever asks.
            prop_assert!(shards.iter().all(|s| (1..=of).contains(s)));
            for (key, shard) in keys.iter().zip(&shards) {
                let there = turned.iter().position(|k| k == key).unwrap();
                prop_assert_eq!(others[there], *shard);
            }
            prop_assert_eq!(name(&units(&keys), &shards), name(&units(&turned), &others));
            let cost = cost(&keys);
            let load = |shard: u32| -> u64 {
                let own = shards.iter().zip(&cost).filter(|(s, _)| **s == shard);
                own.map(|(_, cost)| if recorded { (*cost).max(1) } else { 1 }).sum()
            };
            let loads: Vec<u64> = (1..=of).map(load).collect();
            // No shard has more to do than another by more than one unit.
            let dearest = if recorded { cost.iter().copied().max().unwrap_or(0).max(1) } else { 1 };
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= dearest, "{:?}", loads);
        }
    }

    #[test]
    fn shards_are_written_one_way() {
        assert_eq!("2/5".parse::<Shard>().unwrap().to_string(), "2/5");
        for bad in ["", "2", "0/5", "6/5", "2/0", "+2/5", "2/+5", "-1/5", "2/5/7", "2 / 5", "1/10001"] {
            assert_eq!(bad.parse::<Shard>().unwrap_err().code, "PB-1145", "{bad}");
        }
    }
}
