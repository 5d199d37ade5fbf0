//! Reports over rows that were made up: the numbers are round, the GPU says what it is.

use super::{figures, page, rows, run};
use crate::output::Output;
use rows::Row;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/bench").join(name)
}

fn sample(name: &str) -> Vec<Row> {
    rows::read(&path(name)).unwrap()
}

fn line(number: usize) -> String {
    std::fs::read_to_string(path("rows.jsonl")).unwrap().lines().nth(number).unwrap().to_owned()
}

fn parse(text: &str) -> Result<Vec<Row>, parbake_model::report::Report> {
    rows::parse("some.jsonl", text)
}

#[test]
fn a_family_has_the_geometric_mean_and_the_least_ratio_to_the_fastest_peer() {
    let rows = sample("rows.jsonl");
    let latest = figures::latest(&rows);
    let families = figures::families(&latest);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let norm = &families[0];
    assert_eq!((norm.family.as_str(), norm.workloads), ("norm", 2));
    // Triton is the fastest of both: 100 / 80 and 2 / 2.5.
    assert!(near(norm.mean.unwrap(), (1.25f64 * 0.8).sqrt()), "{norm:?}");
    assert_eq!(norm.least.as_ref().map(|(r, w)| (*r, w.as_str())), Some((0.8, "U1")));
    assert!(near(norm.peers["torch"].0, 2.0) && near(norm.peers["torch"].1, 2.0));
    assert!(near(norm.least_share.unwrap(), 0.8));
    // The only peer there was wrong.
    assert_eq!((families[1].mean, families[1].least.clone(), families[1].workloads), (None, None, 1));
}

#[test]
fn only_rows_of_one_run_and_one_timer_are_put_into_a_ratio() {
    let mut rows = sample("rows.jsonl");
    rows[1].run = "20260103T000000Z-0".into();
    rows[2].timer = Some("events".into());
    let latest: Vec<&Row> = rows.iter().collect();
    assert_eq!(figures::ratios(latest[0], &latest), []);
    let mut rows = sample("rows.jsonl");
    rows[0].timer = Some("wall".into());
    rows[1].timer = Some("wall".into());
    let latest: Vec<&Row> = rows.iter().collect();
    assert_eq!((figures::ratios(latest[0], &latest), latest[0].rate(), latest[0].share()), (vec![], None, None));
}

#[test]
fn of_several_runs_the_latest_counts() {
    let mut both = sample("rows.jsonl");
    both.extend(sample("earlier.jsonl"));
    let latest = figures::latest(&both);
    let ours = latest.iter().find(|r| r.workload == "U3" && r.backend == "parbake").unwrap();
    assert_eq!(ours.figures.unwrap().median, 80.0);
    // That of the earlier run stays in the table, and in no ratio.
    assert!(latest.iter().any(|r| r.backend == "flashinfer"));
    assert!(figures::ratios(ours, &latest).iter().all(|(peer, _)| *peer != "flashinfer"));
}

#[test]
fn what_became_slower_is_told_from_noise() {
    let (now, before) = (sample("rows.jsonl"), sample("earlier.jsonl"));
    let changes = figures::changes(&figures::latest(&now), &figures::latest(&before));
    let told: Vec<_> = changes.iter().map(|c| (c.title.split(' ').next().unwrap(), c.slower, c.faster)).collect();
    assert_eq!(told, [("U3", true, false), ("U1", false, false), ("U13", false, true)]);
}

#[test]
fn a_figure_without_a_passed_check_is_refused() {
    let good = line(0);
    for (from, to) in [
        ("\"ok\": true", "\"ok\": false"),
        ("\"error\": 1.0", "\"error\": 1.01"),
        ("\"error\": 1.0", "\"error\": null"),
        ("\"elements\": 1024", "\"elements\": 0"),
        ("\"tolerance\": \"1 ulp\"", "\"tolerance\": \" \""),
    ] {
        assert!(good.contains(from), "{from}");
        let error = parse(&good.replacen(from, to, 1)).unwrap_err();
        assert_eq!(
            (error.code, error.what.as_str()),
            ("PB-3203", "some.jsonl:1: a figure without a passed check"),
            "{to}"
        );
    }
    // A wrong result without a figure is a fact.
    assert!(parse(&line(7)).unwrap()[0].figures.is_none());
}

#[test]
fn lines_that_are_no_rows_are_named_with_their_place() {
    let good = line(0);
    for (from, to, says) in [
        ("{\"row\"", "{\"row", "EOF"),
        ("\"row\": 1", "\"row\": 2", "form 1"),
        ("\"workload\"", "\"worklode\"", "missing field `workload`"),
        ("\"median_us\": 80.0, ", "", "come together"),
        ("\"median_us\": 80.0", "\"median_us\": -80.0", "no times"),
        ("\"p90_us\": 81.6", "\"p90_us\": 79.0", "no times"),
        ("\"n\": 60", "\"n\": 0", "no times"),
        ("\"timer\": \"cupti\"", "\"timer\": null", "names its `timer`"),
        ("\"bytes\": 268451840", "\"bytes\": -1", "negative"),
        ("\"roof_us\": 76.0", "\"roof_us\": 0.0", "negative"),
    ] {
        assert!(good.contains(from), "{from}");
        let text = format!("{good}\n\n{}\n", good.replacen(from, to, 1));
        let error = parse(&text).unwrap_err();
        assert_eq!(
            (error.code, error.what.as_str()),
            ("PB-3202", "some.jsonl:3: this is no row of a benchmark"),
            "{to}"
        );
        assert!(error.causes[0].contains(says) || says == "EOF", "{to}: {:?}", error.causes);
    }
    assert_eq!(rows::read(&path("not-there.jsonl")).unwrap_err().code, "PB-3201");
}

#[test]
fn the_page_stands_alone_and_no_text_is_markup() {
    let (rows, before) = (sample("rows.jsonl"), sample("earlier.jsonl"));
    let latest = figures::latest(&rows);
    let changes = figures::changes(&latest, &figures::latest(&before));
    let page = page::render(&latest, &figures::families(&latest), Some(&changes));
    for outside in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("off &amp; &lt;on&gt;") && !page.contains("<on>") && page.contains("7 elements &lt;off&gt;"));
    for part in
        ["Ratios", "Workloads", "Roofline", "Distribution", "Against the earlier run", "Wrong results", "Kernels"]
    {
        assert!(page.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    assert_eq!(page.matches("<svg ").count(), 3);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    // The wrong row has no figure anywhere.
    assert!(!page.contains("U13 torch f32 rows=64 vocab=128256:"));
    for tag in ["table", "svg", "tr", "td", "th", "p", "h2", "thead", "tbody", "title"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn the_command_writes_the_page_and_refuses_what_has_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("report.html");
    let args = |rows: Vec<PathBuf>| super::Args { rows, against: Some(path("earlier.jsonl")), output: output.clone() };
    let none = folder.path().join("none.jsonl");
    std::fs::write(&none, line(7)).unwrap();
    let failure = run(&args(vec![none]), Output { json: true }).unwrap_err();
    assert_eq!(failure.reports[0].code, "PB-3204");
    assert!(!output.exists());
    run(&args(vec![path("rows.jsonl")]), Output { json: true }).unwrap();
    assert!(std::fs::read_to_string(&output).unwrap().starts_with("<!doctype html>"));
}
