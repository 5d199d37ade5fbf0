//! `parbake explain`: what an error code means, and what to do about it.

use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake_model::codes::{self, AREAS, Area, Code};
use parbake_model::report::{Class, Report};
use parbake_model::settings::nearest;
use serde::Serialize;

/// Says what an error code means and what to do about it; without a code, lists all of them.
///
///   parbake explain PB-1512
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Codes, as in `PB-1512` or `1512`
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
}

#[derive(Serialize)]
struct Entry {
    code: &'static str,
    area: &'static str,
    title: &'static str,
    meaning: &'static str,
    help: &'static str,
}

impl Entry {
    fn new(code: &Code) -> Self {
        let area = AREAS.iter().find(|a| code.code.starts_with(a.prefix)).expect("bug: a code of no area");
        Self { code: code.code, area: area.about, title: code.title, meaning: code.meaning, help: code.remedy }
    }
}

pub(crate) fn run(args: &Args, out: Output) -> Result<(), Failure> {
    if args.codes.is_empty() {
        let all: Vec<Entry> = codes::all().map(Entry::new).collect();
        out.show(&serde_json::json!({ "codes": all }), || AREAS.iter().map(list).collect::<Vec<_>>().join("\n"));
        return Ok(());
    }
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for text in &args.codes {
        match codes::find(text) {
            Some(code) => found.push(Entry::new(code)),
            None => unknown.push(no_code(text)),
        }
    }
    // One that is unknown does not hide the others.
    if !found.is_empty() || unknown.is_empty() {
        out.show(&serde_json::json!({ "codes": found }), || found.iter().map(describe).collect::<Vec<_>>().join("\n"));
        return if unknown.is_empty() { Ok(()) } else { Err(Failure::shown(unknown)) };
    }
    Err(unknown.into())
}

fn no_code(text: &str) -> Report {
    let report = Report::new("PB-3150", Class::Usage, format!("there is no error code `{text}`"));
    let given = text.to_ascii_uppercase();
    match nearest(&given, codes::all().map(|c| c.code)).filter(|n| n.len() == given.len()) {
        Some(code) => report.help(format!("did you mean `{code}`? `parbake explain` lists all codes")),
        None => report.help("`parbake explain` lists all codes"),
    }
}

fn list(area: &Area) -> String {
    let mut table = Table::plain();
    for code in area.codes {
        table.row([code.code, code.title]);
    }
    format!("{}\n{}", area.about, table.text())
}

fn describe(entry: &Entry) -> String {
    let paragraph = |text: &str| text::wrap(text, 2);
    format!("{}: {}\n\n  {}\n\nhelp:\n  {}\n", entry.code, entry.title, paragraph(entry.meaning), paragraph(entry.help))
}
