//! `parbake bench report`: rows of benchmarks as one page that needs nothing beside it.

mod figures;
mod page;
mod plot;
mod rows;

use crate::cmd::build::write;
use crate::output::{Failure, Output, note};
use crate::text;
use figures::{Change, Summary};
use parbake_model::report::{Class, Report};
use serde::Serialize;
use std::path::PathBuf;

/// What is asked for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of rows, as the benchmark writes them: one JSON object a line
    #[arg(required = true, value_name = "ROWS")]
    rows: Vec<PathBuf>,
    /// Compares with rows of an earlier run
    #[arg(long, value_name = "ROWS")]
    against: Option<PathBuf>,
    /// The page
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Answer<'a> {
    page: String,
    rows: usize,
    /// Results that were wrong, so that nothing is said about their speed.
    wrong: Vec<String>,
    families: &'a [Summary],
    changes: &'a [Change],
}

pub(crate) fn run(args: &Args, out: Output) -> Result<(), Failure> {
    let mut read = Vec::new();
    for path in &args.rows {
        read.extend(rows::read(path)?);
    }
    let earlier = args.against.as_deref().map(rows::read).transpose()?;
    let latest = figures::latest(&read);
    if !latest.iter().any(|r| r.figures.is_some()) {
        let files = args.rows.iter().map(|p| p.display().to_string());
        return Err(Report::new("PB-3204", Class::Usage, "there are no figures to report")
            .with("got", format!("{} in {}", text::count(read.len(), "row"), text::list(files)))
            .help("`python -m parbake.bench --json ROWS` on a GPU writes some")
            .into());
    }
    let families = figures::families(&latest);
    let changes = earlier.as_deref().map(|e| figures::changes(&latest, &figures::latest(e))).unwrap_or_default();
    write(&args.output, page::render(&latest, &families, args.against.as_ref().map(|_| &changes[..])).as_bytes())?;
    let wrong: Vec<String> = latest.iter().filter(|r| !r.check.ok).map(|r| r.title()).collect();
    for title in &wrong {
        note(format!("warning: no figure of {title}: its result was wrong"));
    }
    let page = args.output.display().to_string();
    let answer = Answer { page, rows: latest.len(), wrong, families: &families, changes: &changes };
    out.show(&answer, || summary(&answer, args.against.is_some()));
    Ok(())
}

fn summary(answer: &Answer<'_>, compared: bool) -> String {
    let mut table = text::Table::new(&["FAMILY", ">WORKLOADS", ">GEO. MEAN", ">LEAST", "OF", ">LEAST ROOF"]);
    for f in answer.families {
        let ratio = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.2}"));
        let (least, of) = f.least.as_ref().map_or((None, ""), |(r, w)| (Some(*r), w.as_str()));
        let cells = [f.family.clone(), f.workloads.to_string(), ratio(f.mean), ratio(least), of.to_owned()];
        table.row(cells.into_iter().chain([ratio(f.least_share)]));
    }
    let mut text = format!("Ratios are the fastest peer's time over ours, in the same run.\n\n{}", table.text());
    if compared {
        let slower = answer.changes.iter().filter(|c| c.slower).count();
        text += &format!("\n{} compared, {slower} slower\n", text::count(answer.changes.len(), "row"));
    }
    text + &format!("\n{} of {}\n", answer.page, text::count(answer.rows, "row"))
}

#[cfg(test)]
mod tests;
