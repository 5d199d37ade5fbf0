//! The page: one HTML file with its style and plots inside, and nothing fetched.

use super::figures::{Change, Summary, fastest, ratios};
use super::plot;
use super::rows::Row;
use crate::html::{Html, number};
use std::collections::BTreeSet;

/// What plots need beside the style of every page.
const STYLE: &str = ".axis{stroke:var(--line);fill:none}.roof{stroke:var(--ink);fill:none;stroke-dasharray:5 3}";

fn ratio_cell(ratio: f64) -> String {
    format!("{}{ratio:.2}", if ratio < 1.0 { "-:" } else { "" })
}

/// Renders the page. `changes` is there if an earlier run was named.
pub(super) fn render(rows: &[&Row], families: &[Summary], changes: Option<&[Change]>) -> String {
    let mut page = Html::new("Parbake: benchmarks", "Benchmarks", STYLE);
    machine(&mut page, rows);
    ratio_table(&mut page, families);
    page.heading("Workloads");
    page.say(
        "Microseconds of one launch, median. Roof: the time of torch.neg(out=) that moves the same bytes, over ours. Error: \
         in units of the tolerance, against the float64 reference.",
    );
    workloads(&mut page, rows);
    page.heading("Bandwidth and the roof of the memory");
    page.say("Terabytes a second over the bytes of one launch. The dashed line is torch.neg(out=) at each size.");
    page.raw(&plot::bandwidth(rows));
    if let Some(plot) = plot::roofline(rows) {
        page.heading("Roofline");
        page.say("The dashed line is the highest bandwidth that torch.neg(out=) reached in these runs.");
        page.raw(&plot);
    }
    page.heading("Distribution");
    page.say("From the 10th to the 90th percentile, with the median, in microseconds.");
    page.raw(&plot::distribution(rows));
    if let Some(changes) = changes {
        regressions(&mut page, changes);
    }
    wrong(&mut page, rows);
    artifacts(&mut page, rows);
    page.finish()
}

fn machine(page: &mut Html, rows: &[&Row]) {
    let set = |of: &dyn Fn(&Row) -> Option<String>| {
        rows.iter().filter_map(|r| of(r)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
    };
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
    };
    let mut facts = vec![
        vec!["GPU".to_owned(), set(&|r| r.gpu.clone())],
        vec!["driver".to_owned(), set(&|r| r.driver.clone())],
        vec!["target".to_owned(), set(&|r| r.target.clone())],
        vec!["versions".to_owned(), set(&|r| Some(pairs(&r.versions)))],
        vec!["timed by".to_owned(), set(&|r| r.timer.clone())],
        vec!["settings".to_owned(), set(&|r| Some(pairs(&r.settings)).filter(|s| !s.is_empty()))],
        vec!["runs".to_owned(), set(&|r| Some(r.run.clone()))],
    ];
    facts.iter_mut().filter(|f| f[1].is_empty()).for_each(|f| f[1] = "none".to_owned());
    page.table(&["", ""], facts);
}

fn ratio_table(page: &mut Html, families: &[Summary]) {
    page.heading("Ratios");
    page.say(
        "How many times as long as ours the others take, in the same run and by the same timer, results of both checked: \
         geometric mean over the workloads of a family, and the least. Below 1 the other is faster.",
    );
    let peers: BTreeSet<&String> = families.iter().flat_map(|f| f.peers.keys()).collect();
    let columns: Vec<String> = peers.iter().flat_map(|p| [format!(">{p}"), ">least".to_owned()]).collect();
    let mut headings = vec!["family", ">workloads", ">fastest peer", ">least", "of"];
    headings.extend(columns.iter().map(String::as_str));
    headings.push(">least share of the roof");
    let body = families.iter().map(|f| {
        let cell = |r: Option<f64>| r.map_or("-".to_owned(), ratio_cell);
        let (least, of) = f.least.clone().map_or((None, String::new()), |(r, w)| (Some(r), w));
        let mut row = vec![f.family.clone(), f.workloads.to_string(), cell(f.mean), cell(least), of];
        for peer in &peers {
            let both = f.peers.get(*peer).copied();
            row.extend([cell(both.map(|b| b.0)), cell(both.map(|b| b.1))]);
        }
        row.push(f.least_share.map_or("-".to_owned(), |s| format!("{s:.3}")));
        row
    });
    page.table(&headings, body.collect());
}

fn workloads(page: &mut Html, rows: &[&Row]) {
    let headings = [
        "workload",
        "function",
        "type",
        "shape",
        "backend",
        ">µs",
        ">p10",
        ">p90",
        ">n",
        ">TB/s",
        ">roof",
        ">ratio",
        "to",
        ">error",
        "tolerance",
        "timer",
    ];
    let body = rows.iter().filter_map(|row| {
        let f = row.figures?;
        let ratio = fastest(&ratios(row, rows));
        let (value, to) = ratio.map_or(("-".to_owned(), ""), |(to, ratio)| (ratio_cell(ratio), to));
        Some(vec![
            row.workload.clone(),
            row.function.clone(),
            row.dtype.clone(),
            row.extents(),
            row.backend.clone(),
            number(f.median),
            number(f.p10),
            number(f.p90),
            f.n.to_string(),
            row.rate().map_or("-".to_owned(), |r| format!("{r:.2}")),
            row.share().map_or("-".to_owned(), |s| format!("{s:.3}")),
            value,
            to.to_owned(),
            row.check.error.map_or("-".to_owned(), |e| format!("{e:.3}")),
            row.check.tolerance.clone(),
            row.timer.clone().unwrap_or_default(),
        ])
    });
    page.table(&headings, body.collect());
}

fn regressions(page: &mut Html, changes: &[Change]) {
    page.heading("Against the earlier run");
    page.say(
        "Our rows that both runs have, by how much longer they take. One is slower if its 10th percentile lies above the \
         earlier 90th, and its median is more than 3 % higher.",
    );
    let body = changes.iter().map(|c| {
        let mark = if c.slower {
            "-:slower"
        } else if c.faster {
            "+:faster"
        } else {
            ""
        };
        vec![c.title.clone(), number(c.before), number(c.now), format!("{:.3}", c.now / c.before), mark.to_owned()]
    });
    page.table(&["row", ">before", ">now", ">now / before", ""], body.collect());
}

fn wrong(page: &mut Html, rows: &[&Row]) {
    let body: Vec<_> = rows
        .iter()
        .filter(|r| !r.check.ok)
        .map(|r| vec![r.title(), r.check.why.clone().unwrap_or_default(), r.check.tolerance.clone()])
        .collect();
    if !body.is_empty() {
        page.heading("Wrong results");
        page.say("Nothing is said about how fast a wrong result came.");
        page.table(&["row", "why", "tolerance"], body);
    }
}

fn artifacts(page: &mut Html, rows: &[&Row]) {
    let body: Vec<_> = rows
        .iter()
        .flat_map(|row| row.artifacts.iter().flatten().map(move |a| (row, a)))
        .map(|(row, a)| {
            let tactic = a.tactic.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
            let short = |key: &str| key.chars().take(12).collect::<String>();
            let key = a.build_key.as_deref().map_or("-".to_owned(), short);
            let toolchain = a.toolchain.clone().unwrap_or_default();
            vec![row.workload.clone(), a.uri.clone(), tactic, short(&a.image), key, toolchain]
        })
        .collect();
    if !body.is_empty() {
        page.heading("Kernels");
        page.table(&["workload", "URI", "tactic", "image", "build key", "toolchain"], body);
    }
}
