//! `parbake diff`: what differs between two bundles, or two locks.

use crate::asked::read_lock;
use crate::cmd::inspect::{foreign, open, unreadable};
use crate::difference::{Difference, Side};
use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake_model::bundle::MAGIC;
use parbake_model::lock::{Lock, Locked};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Target};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Says what differs between two bundles, and why: specs, images with what went into them, sizes, resources.
///
/// Two locks are compared by what they ask for. Ends with status 1 if anything differs.
///
///   parbake diff norm-1.pbk norm-2.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The earlier bundle or lock
    before: PathBuf,
    /// The later one
    after: PathBuf,
    /// Lists each image, not only how many
    #[arg(long)]
    images: bool,
}

pub(crate) fn run(args: Args, _: Config, out: Output) -> Result<(), Failure> {
    let same = match (is_bundle(&args.before)?, is_bundle(&args.after)?) {
        (true, true) => bundles(&args, out)?,
        (false, false) => locks(&args, out)?,
        _ => {
            let what = "a bundle and a lock are not of one kind";
            return Err(Report::new("PB-3303", Class::Usage, what)
                .with("expected", "two bundles or two locks")
                .with("got", format!("{} and {}", args.before.display(), args.after.display()))
                .help("`parbake coverage --lock F --bundle B` says what a bundle lacks of a lock")
                .into());
        }
    };
    if same { Ok(()) } else { Err(Failure::shown(Vec::new())) }
}

fn is_bundle(path: &Path) -> Result<bool, Report> {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    read.map_err(|e| unreadable(path).caused_by(e))?;
    // What is neither is told as a bundle that it is not: a lock begins with a brace.
    Ok(!start.trim_ascii_start().starts_with(b"{"))
}

#[derive(Serialize)]
struct Answer<'a, T> {
    kind: &'static str,
    before: String,
    after: String,
    same: bool,
    #[serde(flatten)]
    difference: &'a T,
}

fn answer<'a, T>(kind: &'static str, args: &Args, same: bool, difference: &'a T) -> Answer<'a, T> {
    let name = |path: &Path| path.display().to_string();
    Answer { kind, before: name(&args.before), after: name(&args.after), same, difference }
}

fn bundles(args: &Args, out: Output) -> Result<bool, Failure> {
    let (before, after) = ([open(&args.before)?], [open(&args.after)?]);
    let side = |path: &Path, bundles| Side::of(bundles).map_err(|e| foreign(path, e.code(), &e));
    let difference = Difference::between(&side(&args.before, &before)?, &side(&args.after, &after)?);
    let same = difference.is_empty();
    out.show(&answer("bundles", args, same, &difference), || describe(args, &difference));
    Ok(same)
}

fn describe(args: &Args, difference: &Difference) -> String {
    if difference.is_empty() {
        return "no difference\n".to_owned();
    }
    let mut text = format!("{} → {}\n", args.before.display(), args.after.display());
    let mut head = Table::plain();
    for fact in &difference.facts {
        head.row([fact.name.clone(), format!("{} → {}", none(&fact.before), none(&fact.after))]);
    }
    let (before, after) = (difference.before, difference.after);
    head.row([
        "images".to_owned(),
        format!("{} → {}{}", text::bytes(before), text::bytes(after), percent(before, after)),
    ]);
    text += &head.text();
    let mut rows: BTreeMap<(&str, &str, Target, String), usize> = BTreeMap::new();
    let mut count = |what, op, target, why: String| *rows.entry((what, op, target, why)).or_default() += 1;
    for (what, list) in [("added", &difference.added), ("removed", &difference.removed)] {
        list.iter().for_each(|lone| count(what, &lone.op, lone.target, lone.why().to_owned()));
    }
    difference.changed.iter().for_each(|c| count("changed", &c.op, c.target, c.why.join("; ")));
    if !rows.is_empty() {
        let mut table = Table::new(&["IMAGES", "OP", "TARGET", ">COUNT", "BECAUSE"]);
        for ((what, op, target, why), count) in &rows {
            table.row([(*what).to_owned(), (*op).to_owned(), target.to_string(), count.to_string(), why.clone()]);
        }
        text += &format!("\n{}", table.text());
    }
    if args.images {
        text += &images(difference);
    }
    text += &resources(difference);
    text + &sizes(difference)
}

fn none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// `, +3.1 %`; nothing if it makes no sense.
fn percent(before: u64, after: u64) -> String {
    if before == 0 || before == after {
        return String::new();
    }
    format!(", {:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0)
}

fn images(difference: &Difference) -> String {
    let mut table = Table::new(&["IMAGE", "TARGET", "SPEC"]);
    for (what, list) in [("added", &difference.added), ("removed", &difference.removed)] {
        list.iter().for_each(|lone| table.row([what, &lone.target.to_string(), &lone.spec]));
    }
    difference.changed.iter().for_each(|c| table.row(["changed", &c.target.to_string(), &c.spec]));
    format!("\n{}", table.text())
}

fn resources(difference: &Difference) -> String {
    /// Rows beyond these are left to `--json`.
    const SHOWN: usize = 30;
    let mut table = Table::new(&["RESOURCE", ">BEFORE", ">AFTER", "TARGET", "SPEC"]);
    let all: Vec<_> = difference.changed.iter().flat_map(|c| c.resources.iter().map(move |r| (c, r))).collect();
    for (image, change) in all.iter().filter(|(_, r)| r.name != "code").take(SHOWN) {
        let numbers = [change.before.to_string(), change.after.to_string()];
        let [before, after] = numbers;
        table.row([change.name.to_owned(), before, after, image.target.to_string(), image.spec.clone()]);
    }
    let more = all.iter().filter(|(_, r)| r.name != "code").count().saturating_sub(SHOWN);
    match (all.iter().any(|(_, r)| r.name != "code"), more) {
        (false, _) => String::new(),
        (true, 0) => format!("\n{}", table.text()),
        (true, more) => format!("\n{}and {more} more; --json lists all\n", table.text()),
    }
}

fn sizes(difference: &Difference) -> String {
    let mut table = Table::new(&["SIZE OF", ">BEFORE", ">AFTER", "CHANGE"]);
    let mut add = |name: String, (before, after): (u64, u64)| {
        if before != after {
            let change = percent(before, after);
            table.row([name, text::bytes(before), text::bytes(after), change.trim_start_matches(", ").to_owned()]);
        }
    };
    difference.sizes_by(|s| s.target).into_iter().for_each(|(target, sum)| add(target.to_string(), sum));
    difference.sizes_by(|s| s.op.clone()).into_iter().for_each(|(op, sum)| add(op, sum));
    if difference.sizes.is_empty() { String::new() } else { format!("\n{}", table.text()) }
}

#[derive(Serialize)]
struct Locks {
    added: Vec<Row>,
    removed: Vec<Row>,
}

/// A spec that only one lock asks for; without a target if that is for whoever reads the lock to say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Row {
    spec: String,
    target: Option<Target>,
    spec_id: Digest,
}

fn locks(args: &Args, out: Output) -> Result<bool, Failure> {
    let (before, after) = (rows(&read_lock(&args.before)?), rows(&read_lock(&args.after)?));
    let only = |here: &BTreeSet<Row>, there| here.difference(there).cloned().collect();
    let difference = Locks { added: only(&after, &before), removed: only(&before, &after) };
    let same = difference.added.is_empty() && difference.removed.is_empty();
    out.show(&answer("locks", args, same, &difference), || {
        if same {
            return "no difference\n".to_owned();
        }
        let mut table = Table::new(&["", "TARGET", "SPEC"]);
        for (what, list) in [("added", &difference.added), ("removed", &difference.removed)] {
            for row in list {
                table.row([what, &row.target.map_or("any".to_owned(), |t| t.to_string()), &row.spec]);
            }
        }
        table.text()
    });
    Ok(same)
}

fn rows(lock: &Lock) -> BTreeSet<Row> {
    let row = |locked: &Locked, target| Row { spec: locked.to_string(), target, spec_id: locked.spec_id };
    if lock.targets.is_empty() {
        return lock.specs.iter().map(|locked| row(locked, None)).collect();
    }
    lock.pairs().map(|(locked, target)| row(locked, Some(target))).collect()
}
