//! The page: one HTML file with its style and plots inside, and nothing fetched.

use super::figures::{Change, Summary, fastest, ratios};
use super::plot;
use super::rows::Row;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--ink:#222;--paper:#fff;--bad:#b00020;--good:#19703a}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181c;--bad:#ff7b86;--good:#6fcf97}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}\
th,td{padding:3px 9px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:var(--bad)}.good{color:var(--good)}\
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:11px system-ui,sans-serif}\
.axis{stroke:var(--line);fill:none}.roof{stroke:var(--ink);fill:none;stroke-dasharray:5 3}code{font-size:12px}";

/// Text that is no markup.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

/// A number with about four digits.
pub(super) fn number(value: f64) -> String {
    let digits = if value.abs() >= 1000.0 {
        0
    } else if value.abs() >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

struct Html(String);

impl Html {
    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escape(text));
    }

    fn say(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escape(text));
    }

    /// A table. A heading that starts with `>` is of numbers; a cell that starts with `-:` or `+:` is bad or good.
    fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) {
        let right: Vec<bool> = headings.iter().map(|h| h.starts_with('>')).collect();
        let class = |right: bool, mark: &str| match (right, mark) {
            (false, "") => String::new(),
            (true, "") => " class=\"n\"".to_owned(),
            (false, mark) => format!(" class=\"{mark}\""),
            (true, mark) => format!(" class=\"n {mark}\""),
        };
        self.0 += "<table><thead><tr>";
        for (heading, right) in headings.iter().zip(&right) {
            let _ = write!(self.0, "<th{}>{}</th>", class(*right, ""), escape(heading.trim_start_matches('>')));
        }
        self.0 += "</tr></thead><tbody>\n";
        for row in rows {
            self.0 += "<tr>";
            for (cell, right) in row.iter().zip(&right) {
                let (mark, text) = match (cell.strip_prefix("-:"), cell.strip_prefix("+:")) {
                    (Some(text), _) => ("bad", text),
                    (_, Some(text)) => ("good", text),
                    _ => ("", cell.as_str()),
                };
                let _ = write!(self.0, "<td{}>{}</td>", class(*right, mark), escape(text));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</tbody></table>\n";
    }
}

fn ratio_cell(ratio: f64) -> String {
    format!("{}{ratio:.2}", if ratio < 1.0 { "-:" } else { "" })
}

/// Renders the page. `changes` is there if an earlier run was named.
pub(super) fn render(rows: &[&Row], families: &[Summary], changes: Option<&[Change]>) -> String {
    let mut page = Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>Parbake: benchmarks</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<style>{STYLE}</style></head><body>\n<h1>Benchmarks</h1>\n"
    ));
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
    page.0 += &plot::bandwidth(rows);
    if let Some(plot) = plot::roofline(rows) {
        page.heading("Roofline");
        page.say("The dashed line is the highest bandwidth that torch.neg(out=) reached in these runs.");
        page.0 += &plot;
    }
    page.heading("Distribution");
    page.say("From the 10th to the 90th percentile, with the median, in microseconds.");
    page.0 += &plot::distribution(rows);
    if let Some(changes) = changes {
        regressions(&mut page, changes);
    }
    wrong(&mut page, rows);
    artifacts(&mut page, rows);
    page.0 + "</body></html>\n"
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
