//! `parbake ops`: which ops there are, and the signature of one.

use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake::{Error, Library, OpId};
use parbake_model::glob::choose;
use parbake_model::op::{Exclude, Op, Role, Tensor};
use parbake_model::report::{Class, Report};
use parbake_model::settings::{Config, nearest};
use parbake_model::{Digest, space};
use serde::Serialize;
use std::collections::BTreeSet;

/// Lists the ops, or shows the whole signature of one.
///
///   parbake ops 'norm/*'
///
///   parbake ops rmsnorm
#[derive(clap::Args)]
pub(crate) struct Args {
    /// An op, a family, or a pattern on `op` and `family/op` with `*` and `?`
    pattern: Option<String>,
    /// Only ops of this family
    #[arg(long)]
    family: Option<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    op: String,
    family: &'a str,
    name: &'a str,
    summary: &'a str,
    /// How many specs some target supports.
    specs: usize,
    since: String,
    host: bool,
}

#[derive(Serialize)]
struct Whole<'a> {
    op: &'a Op,
    path: String,
    specs: usize,
    sources: Digest,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    // Bundles have no say in what ops there are.
    config = config.without_bundles();
    let library = Library::open(config)?;
    if let Some(family) = &args.family {
        check_family(&library, family)?;
    }
    let pattern = args.pattern.as_deref().unwrap_or("*");
    let listed = pattern.contains(['*', '?', ',']) || families(&library).contains(pattern);
    if !listed {
        let id = library.op(pattern)?;
        return show(&library, id, out);
    }
    let in_family = |op: &Op| args.family.as_ref().is_none_or(|f| op.family == *f);
    let ops = library.ops().map(|(_, op)| ((), op)).filter(|(_, op)| in_family(op));
    let chosen: Vec<((), &Op)> = match families(&library).contains(pattern) {
        true => ops.filter(|(_, op)| op.family == pattern).collect(),
        false => choose(pattern, ops).map_err(Error::from)?,
    };
    let rows: Vec<Row<'_>> = chosen.iter().map(|((), op)| row(op)).collect();
    out.show(&serde_json::json!({ "ops": rows }), || {
        let mut table = Table::new(&["OP", ">SPECS", "TARGETS", "SUMMARY"]);
        for row in &rows {
            let targets = format!("{}+{}", row.since, if row.host { ", host" } else { "" });
            table.row([row.op.as_str(), &row.specs.to_string(), &targets, row.summary]);
        }
        table.text()
    });
    Ok(())
}

fn families(library: &Library) -> BTreeSet<&str> {
    library.ops().map(|(_, op)| op.family.as_str()).collect()
}

fn check_family(library: &Library, family: &str) -> Result<(), Report> {
    let known = families(library);
    if known.contains(family) {
        return Ok(());
    }
    let report = Report::new("PB-3104", Class::Usage, format!("there is no family `{family}`"))
        .with("known", text::list(&known));
    Err(match nearest(family, known.iter().copied()) {
        Some(name) => report.help(format!("did you mean `{name}`?")),
        None => report,
    })
}

/// How many specs some target supports.
fn specs(op: &Op) -> usize {
    space::specs(op).filter(|(_, legal)| legal.is_ok()).count()
}

fn row(op: &Op) -> Row<'_> {
    Row {
        op: op.path(),
        family: &op.family,
        name: &op.name,
        summary: &op.summary,
        specs: specs(op),
        since: op.since.to_string(),
        host: op.host,
    }
}

fn show(library: &Library, id: OpId, out: Output) -> Result<(), Failure> {
    let op = library.definition(id);
    let whole = Whole { op, path: op.path(), specs: specs(op), sources: library.sources_digest(id)? };
    out.show(&whole, || signature(&whole));
    Ok(())
}

fn signature(whole: &Whole<'_>) -> String {
    let op = whole.op;
    let mut text = format!("{}\n{}\n\n  {}\n", whole.path, op.summary, call(op));
    let mut section = |title: &str, table: Table| {
        if !table.is_empty() {
            text += &format!("\n{title}\n{}", table.text());
        }
    };
    let mut table = Table::plain();
    for t in &op.tensors {
        let shape = format!("[{}]", t.shape.join(", "));
        let dtype = t.axis.clone().or(t.dtype.map(|d| d.to_string())).unwrap_or_default();
        table.row([t.name.as_str(), role(t.role), &dtype, &shape, &about(t)]);
    }
    section("tensors", table);
    let mut table = Table::plain();
    for s in &op.scalars {
        let default = s.default.map_or("required".to_owned(), |d| format!("= {}", s.kind.text(d)));
        table.row([&s.name, &default, &s.range(), &s.summary]);
    }
    section("scalars", table);
    let mut table = Table::plain();
    for d in &op.dims {
        table.row([&d.name, &format!("{} … {}", d.min, d.max), &d.summary]);
    }
    section("shape symbols", table);
    let mut table = Table::plain();
    for a in &op.axes {
        table.row([&a.name, &text::list(a.values.iter().map(|v| &v.value)), &a.summary]);
    }
    section("axes", table);
    let mut table = Table::plain();
    for t in &op.tactics {
        table.row([&t.name, &text::list(&t.values), &t.summary]);
    }
    section("tactics", table);
    let mut table = Table::plain();
    for e in &op.excludes {
        table.row([when(e), e.reason.clone()]);
    }
    section("does not exist", table);
    section("also", also(whole));
    text
}

fn also(whole: &Whole<'_>) -> Table {
    let op = whole.op;
    let mut table = Table::plain();
    let host = if op.host { ", and host" } else { "" };
    table.row(["targets".to_owned(), format!("{} and newer{host}", op.since)]);
    if !op.language.is_cuda() {
        table.row(["written in".to_owned(), op.language.to_string()]);
    }
    for default in &op.default_tactics {
        let tactic = op.tactics.iter().filter_map(|t| Some(format!("{}={}", t.name, default.tactic.get(&t.name)?)));
        table.row(["default tactic".to_owned(), format!("{} from {}", words(tactic), default.since)]);
    }
    let options = op.options.fields().into_iter().map(|(name, value)| format!("{name}={value}"));
    table.row(["options".to_owned(), words(options)]);
    table.row(["tolerance".to_owned(), text::list(op.tolerance.iter().map(|(d, t)| format!("{d} {t}")))]);
    for peer in &op.peers {
        let fixed = text::list(peer.fixed.iter().map(|(name, value)| format!("{name}={value}")));
        let with = if fixed.is_empty() { String::new() } else { format!(" with {fixed}") };
        table.row(["answers to".to_owned(), format!("{}{with}", peer.name)]);
    }
    let constants = op.trace.constants.iter().map(|(dim, prefix)| format!("_{prefix}<{dim}>"));
    table.row(["trace name".to_owned(), format!("{}{}", op.trace.name_prefix, constants.collect::<String>())]);
    table.row(["specs".to_owned(), whole.specs.to_string()]);
    table.row(["sources".to_owned(), whole.sources.short(16)]);
    table
}

/// As one would call it.
fn call(op: &Op) -> String {
    let tensors = op.tensors.iter().map(|t| t.name.clone());
    let scalars = op.scalars.iter().map(|s| match s.default {
        Some(default) => format!("{}={}", s.name, s.kind.text(default)),
        None => s.name.clone(),
    });
    format!("{}({})", op.name, text::list(tensors.chain(scalars)))
}

fn role(role: Role) -> &'static str {
    match role {
        Role::In => "in",
        Role::Out => "out",
        Role::InOut => "inout",
    }
}

fn about(tensor: &Tensor) -> String {
    let free = tensor.shape.len() - tensor.dense;
    let mut about = tensor.summary.clone();
    if free > 0 {
        about += &format!("; any stride along {}", text::list(&tensor.shape[..free]));
    }
    if !tensor.may_be.is_empty() {
        about += &format!("; may be {} itself", tensor.may_be.join(" or "));
    }
    about
}

fn when(exclude: &Exclude) -> String {
    let terms = exclude.when.iter().map(|(name, values)| {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("{name}={}", values.join("|"))
    });
    let text = words(terms.chain(exclude.place()));
    if text.is_empty() { "ever".to_owned() } else { text }
}

fn words(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(" ")
}
