//! Which ops are baked for which targets, what is missing, and why.

use crate::difference::Side;
use parbake_model::Target;
use parbake_model::bundle::Details;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An op on a target.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) images: usize,
    /// Combinations that other targets have.
    pub(super) holes: usize,
    /// Whether it was asked for at all.
    pub(super) asked: bool,
}

/// Combinations that are missing for a reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Hole {
    pub(super) op: String,
    pub(super) reason: String,
    pub(super) targets: BTreeMap<Target, usize>,
}

#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) targets: BTreeSet<Target>,
    pub(super) ops: BTreeSet<String>,
    pub(super) cells: BTreeMap<(String, Target), Cell>,
    /// What some target has and others lack.
    pub(super) holes: Vec<Hole>,
    /// What no target has.
    pub(super) nowhere: Vec<Hole>,
}

impl Matrix {
    pub(super) fn of(side: &Side<'_>, all: &[&Details]) -> Self {
        let mut cells: BTreeMap<(String, Target), Cell> = BTreeMap::new();
        let mut baked = BTreeSet::new();
        for ((_, target), held) in &side.images {
            cells.entry((held.spec.op.clone(), *target)).or_default().images += 1;
            baked.insert(held.spec.spec().to_string());
        }
        let skipped: BTreeSet<_> = all.iter().flat_map(|d| &d.skipped).collect();
        let (mut holes, mut nowhere) = (BTreeMap::new(), BTreeMap::new());
        for skipped in skipped {
            let elsewhere = baked.contains(&skipped.spec);
            let cell = cells.entry((skipped.op.clone(), skipped.target)).or_default();
            cell.asked = true;
            cell.holes += usize::from(elsewhere);
            let list = if elsewhere { &mut holes } else { &mut nowhere };
            let targets: &mut BTreeMap<Target, usize> =
                list.entry((skipped.op.clone(), skipped.reason.clone())).or_default();
            *targets.entry(skipped.target).or_default() += 1;
        }
        let rows = |list: BTreeMap<(String, String), _>| {
            list.into_iter().map(|((op, reason), targets)| Hole { op, reason, targets }).collect()
        };
        Self {
            targets: all.iter().flat_map(|d| d.targets.clone()).chain(side.images.keys().map(|(_, t)| *t)).collect(),
            ops: cells.keys().map(|(op, _)| op.clone()).collect(),
            cells,
            holes: rows(holes),
            nowhere: rows(nowhere),
        }
    }
}
