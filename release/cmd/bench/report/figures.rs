//! What rows say together. A ratio is of two rows of one run, timed by the same mechanism.

use super::rows::{Key, Row};
use serde::Serialize;
use std::collections::BTreeMap;

/// A change below this is not told from noise, whatever the spread says.
const NOISE: f64 = 1.03;

/// The latest row of each workload and backend. Runs are named after their time.
pub(super) fn latest(rows: &[Row]) -> Vec<&Row> {
    // In the order in which they first come.
    let mut place: BTreeMap<(&str, &str, &str, &str), usize> = BTreeMap::new();
    let mut found: Vec<&Row> = Vec::new();
    for row in rows {
        let key = (row.workload.as_str(), row.backend.as_str(), row.dtype.as_str(), row.gpu.as_deref().unwrap_or(""));
        match place.get(&key).copied() {
            Some(at) if found[at].run <= row.run => found[at] = row,
            Some(_) => {}
            None => {
                place.insert(key, found.len());
                found.push(row);
            }
        }
    }
    found
}

/// Whether two rows are of one workload in one run, timed alike.
fn together(a: &Row, b: &Row) -> bool {
    (&a.run, &a.workload, &a.function, &a.dtype, &a.shape, &a.timer, &a.gpu)
        == (&b.run, &b.workload, &b.function, &b.dtype, &b.shape, &b.timer, &b.gpu)
}

/// How many times as long as this row of ours each other backend takes.
pub(super) fn ratios<'a>(ours: &Row, rows: &[&'a Row]) -> Vec<(&'a str, f64)> {
    let Some(mine) = ours.figures.filter(|_| ours.compared() && ours.backend == "parbake") else { return Vec::new() };
    let peers = rows.iter().filter(|r| r.backend != "parbake" && r.compared() && together(ours, r));
    peers.filter_map(|r| Some((r.backend.as_str(), r.figures?.median / mine.median))).collect()
}

/// The ratio to the fastest peer.
pub(super) fn fastest<'a>(ratios: &[(&'a str, f64)]) -> Option<(&'a str, f64)> {
    ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

/// One family.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) family: String,
    /// How many of its workloads have a figure of ours.
    pub(super) workloads: usize,
    /// Geometric mean of the ratios to the fastest peer.
    pub(super) mean: Option<f64>,
    /// The least of them, and of which workload.
    pub(super) least: Option<(f64, String)>,
    /// Geometric mean and least ratio to each peer.
    pub(super) peers: BTreeMap<String, (f64, f64)>,
    /// The least share of the roof.
    pub(super) least_share: Option<f64>,
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

fn least(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

pub(super) fn families(rows: &[&Row]) -> Vec<Summary> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.family()) {
            names.push(row.family());
        }
    }
    names.into_iter().map(|name| family(name, rows)).collect()
}

fn family(name: &str, rows: &[&Row]) -> Summary {
    let ours: Vec<&Row> =
        rows.iter().copied().filter(|r| r.family() == name && r.backend == "parbake" && r.compared()).collect();
    let mut best: Vec<(f64, &Row)> = Vec::new();
    let mut peers: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in &ours {
        let ratios = ratios(row, rows);
        best.extend(fastest(&ratios).map(|(_, ratio)| (ratio, *row)));
        for (peer, ratio) in ratios {
            peers.entry(peer.to_owned()).or_default().push(ratio);
        }
    }
    let values: Vec<f64> = best.iter().map(|(ratio, _)| *ratio).collect();
    let lowest = best.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    Summary {
        family: name.to_owned(),
        workloads: ours.len(),
        mean: geometric_mean(&values),
        least: lowest.map(|(ratio, row)| (*ratio, row.workload.clone())),
        peers: peers
            .into_iter()
            .filter_map(|(peer, values)| Some((peer, (geometric_mean(&values)?, least(values.into_iter())?))))
            .collect(),
        least_share: least(ours.iter().filter_map(|r| r.share())),
    }
}

/// A row of ours beside that of an earlier run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Change {
    pub(super) title: String,
    pub(super) before: f64,
    pub(super) now: f64,
    /// Slower by more than noise: the fast end of now lies above the slow end of before.
    pub(super) slower: bool,
    pub(super) faster: bool,
}

/// What became of our rows that an earlier run has too, the worst first.
pub(super) fn changes(now: &[&Row], earlier: &[&Row]) -> Vec<Change> {
    let before: BTreeMap<Key<'_>, &Row> = earlier.iter().map(|r| (r.key(), *r)).collect();
    let ours = now.iter().filter(|r| r.backend == "parbake" && r.compared());
    let mut found: Vec<Change> = ours
        .filter_map(|row| {
            let (new, old) = (row.figures?, before.get(&row.key())?.figures?);
            let slower = new.p10 > old.p90 && new.median > old.median * NOISE;
            let faster = new.p90 < old.p10 && old.median > new.median * NOISE;
            Some(Change { title: row.title(), before: old.median, now: new.median, slower, faster })
        })
        .collect();
    found.sort_by(|a, b| (b.now / b.before).total_cmp(&(a.now / a.before)));
    found
}
