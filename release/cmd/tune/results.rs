//! The file of results: read, added to, and judged.

use crate::output::{Failure, Output};
use crate::text::Table;
use parbake::tactic::{TacticError, Verdict};
use parbake::{Library, Place};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::tuned::{Tuned, Tuning};
use std::io::ErrorKind;
use std::path::Path;

/// What a file that will be written again holds; nothing if it is not there.
pub(super) fn before(path: &Path) -> Result<Option<Vec<u8>>, Report> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TacticError::Unreadable { path: path.to_owned(), source }.report()),
    }
}

/// The results in a file, which is not replaced if it holds anything else.
pub(super) fn read(path: &Path) -> Result<Vec<Tuning>, Report> {
    let Some(text) = before(path)? else { return Ok(Vec::new()) };
    let tuned = Tuned::from_json(&text);
    Ok(tuned.map_err(|source| TacticError::Tuned { path: path.to_owned(), source }.report())?.results)
}

/// Adds a result, in place of those about the same calls on the same kind of machine.
pub(super) fn add(op: &Op, kept: &mut Vec<Tuning>, new: Tuning) {
    kept.retain(|old| !new.replaces(op, old));
    kept.push(new);
}

/// Which results of the settings are used at a place.
pub(super) fn list(library: &Library, place: Place, out: Output) -> Result<(), Failure> {
    if library.config().tuned.is_empty() {
        return Err(Report::new("PB-2233", Class::Usage, "there are no results to list")
            .with("expected", "PARBAKE_TUNED with the files that `parbake tune --out` wrote")
            .into());
    }
    let verdicts = library.tuned(place)?;
    out.show(&verdicts, || {
        let mut table = Table::new(&["USED", "RESULT", ">µs", "WHY NOT"]);
        for Verdict { result, median_us, unfit, .. } in &verdicts {
            let used = if unfit.is_none() { "yes" } else { "no" };
            let why = unfit.clone().unwrap_or_default();
            table.row([used.to_owned(), result.clone(), format!("{median_us:.2}"), why]);
        }
        table.text()
    });
    Ok(())
}
