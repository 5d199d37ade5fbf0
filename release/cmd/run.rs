//! `parbake run`: runs one op on random data and checks the numbers.

use crate::output::{Failure, Output};
use crate::select;
use parbake::driver::{self, NoDevice};
use parbake::trial::{Outcome, Trial};
use parbake::{Error, Goal, Library, Place};
use parbake_codegen::toolchain::memory;
use parbake_model::dtype::DType;
use parbake_model::extent::Extent;
use parbake_model::identity::Profile;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Suffix, Target, space};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Runs an op on random data, on a GPU or on the CPU, and compares with a float64 reference.
///
///   parbake run rmsnorm dtype=bf16 --shape rows=99 --shape hidden=4096
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The op
    op: String,
    /// A value for each axis, as in `dtype=bf16`
    #[arg(value_name = "AXIS=VALUE")]
    values: Vec<String>,
    /// Shape symbols, as in `hidden=4096` [default: the first example of the op's trace template]
    #[arg(long, value_name = "SYM=N")]
    shape: Vec<String>,
    /// Scalars, as in `eps=1e-5`
    #[arg(long, value_name = "NAME=X")]
    scalar: Vec<String>,
    /// Optional tensors that are given [default: those of the op's trace template]
    #[arg(long, value_name = "NAME")]
    with: Vec<String>,
    /// `auto` is the first GPU if there is one, else `host`; an architecture asks whether it is covered, then runs there
    #[arg(long, default_value = "auto")]
    target: String,
    /// A bundle to look in first; may be repeated
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,
    /// `release`, `lineinfo` for a profiler or `debug` for a device debugger [default: PARBAKE_PROFILE]
    #[arg(long, value_parser = select::profile)]
    profile: Option<Profile>,
    /// Which random data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Elements between rows
    #[arg(long, default_value_t = 0)]
    pad: i64,
    /// Elements between an aligned address and the first element
    #[arg(long, default_value_t = 0)]
    offset: usize,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    config.profile = args.profile.unwrap_or(config.profile);
    let library = Library::open(select::with_bundles(config, &args.bundle)?)?;
    let op = library.op(&args.op)?;
    let def = library.definition(op);
    let mut trial = Trial::example(def, select::pairs(&args.values)?.into_iter().collect());
    overlay(def, "shape symbol", &mut trial.dims, &args.shape, |n| def.dims.iter().any(|d| d.name == n))?;
    overlay(def, "scalar", &mut trial.scalars, &args.scalar, |n| def.scalars.iter().any(|s| s.name == n))?;
    if !args.with.is_empty() {
        trial.with.clear();
    }
    for name in &args.with {
        if !def.tensors.iter().any(|t| t.optional && t.name == *name) {
            return Err(Error::UnknownValue {
                op: def.name.clone(),
                what: format!("there is no optional tensor `{name}`"),
                expected: optional(def),
                got: name.clone(),
            }
            .into());
        }
        trial.with.insert(name.clone());
    }
    trial.derive(def);
    complete_axes(&library, &args.op, &trial.axes)?;
    for (name, given) in [("--pad", i128::from(args.pad)), ("--offset", args.offset as i128)] {
        if !(0..=MOST_SPACE).contains(&given) {
            return Err(Report::new("PB-3140", Class::Usage, format!("{name} is out of range"))
                .with("expected", format!("0 to {MOST_SPACE} elements"))
                .with("got", given.to_string())
                .into());
        }
    }
    (trial.seed, trial.pad, trial.offset, trial.timed) = (args.seed, args.pad, args.offset, 20);
    fits(def, &trial, memory::available().map(u128::from))?;
    let place = place(&library, &args, &trial)?;
    let outcome = trial.run(&library, op, place)?;
    out.show(&outcome, || text(&outcome));
    if outcome.ok { Ok(()) } else { Err(Failure::shown(vec![wrong(&outcome)])) }
}

/// Elements that may lie between rows, or before the first.
const MOST_SPACE: i128 = 1 << 20;

/// The optional tensors, for a person.
pub(super) fn optional(def: &Op) -> String {
    let names: Vec<_> = def.tensors.iter().filter(|t| t.optional).map(|t| t.name.as_str()).collect();
    if names.is_empty() { "none: every tensor is given".to_owned() } else { names.join(" or ") }
}

/// Refuses shapes whose tensors and reference this machine cannot hold. Sizes that are not legal are judged later.
pub(super) fn fits(def: &Op, trial: &Trial, available: Option<u128>) -> Result<(), Report> {
    let extent = |extent: &Extent| {
        let value = extent.value(&mut |name| trial.dims.get(name).copied());
        u128::try_from(value.unwrap_or(0)).unwrap_or(0)
    };
    let given = def.tensors.iter().filter(|t| !t.optional || trial.with.contains(&t.name));
    let bytes = given.fold(0u128, |sum, tensor| {
        let dtype = tensor.axis.as_ref().and_then(|axis| trial.axes.get(axis)).and_then(|v| DType::named(v));
        let width = dtype.or(tensor.dtype).map_or(8, DType::bytes) as u128;
        let extents = tensor.extents();
        let count = extents.iter().fold(1u128, |n, dim| n.saturating_mul(extent(dim)));
        // Padding follows whatever comes before the dense dimensions.
        let rows = extents.iter().take(tensor.shape.len().saturating_sub(tensor.dense));
        let rows = rows.fold(1u128, |n, dim| n.saturating_mul(extent(dim)));
        let padding = if tensor.shape.len() > tensor.dense { rows.saturating_mul(trial.pad as u128) } else { 0 };
        let elements = count.saturating_add(padding).saturating_add(trial.offset as u128);
        sum.saturating_add(elements.saturating_mul(width)).saturating_add(count.saturating_mul(8))
    });
    match available.map(|a| a / 4 * 3) {
        Some(most) if bytes > most => {
            Err(Report::new("PB-3141", Class::Usage, "the tensors and their float64 reference do not fit this machine")
                .with("expected", format!("at most {}, three quarters of the memory available", size(most)))
                .with("got", size(bytes))
                .help("name smaller sizes, as in `--shape rows=16`"))
        }
        _ => Ok(()),
    }
}

fn size(bytes: u128) -> String {
    crate::text::bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Axis names and values are checked before anything is run; tactics are the launcher's business.
pub(super) fn complete_axes(library: &Library, name: &str, axes: &BTreeMap<String, String>) -> Result<(), Error> {
    let op = library.op(name)?;
    let def = library.definition(op);
    if let Some(tactic) = axes.keys().find(|n| def.tactics.iter().any(|t| &t.name == *n)) {
        return Err(Error::UnknownValue {
            op: def.name.clone(),
            what: format!("`{tactic}` is a tactic, which the launcher chooses by shape"),
            expected: def.axes.iter().map(|a| format!("{}=…", a.name)).collect::<Vec<_>>().join(" "),
            got: tactic.clone(),
        });
    }
    let pairs: Vec<_> = axes.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
    library.spec(op, &pairs, Target::Host).map(drop)
}

/// Takes `name=value` texts over defaults.
pub(super) fn overlay<T: std::str::FromStr>(
    def: &Op,
    kind: &str,
    values: &mut BTreeMap<String, T>,
    given: &[String],
    known: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    for (name, text) in select::pairs(given)? {
        let unknown = |what: String| Error::UnknownValue {
            op: def.name.clone(),
            what,
            expected: format!("a {kind} of this op and its value"),
            got: format!("{name}={text}"),
        };
        if !known(&name) {
            return Err(unknown(format!("there is no {kind} `{name}`")).into());
        }
        let value = text.parse().map_err(|_| unknown(format!("`{text}` is no value of {kind} `{name}`")))?;
        values.insert(name, value);
    }
    Ok(())
}

/// Where to run. A target that is named is first asked for coverage, then for a device that runs it.
fn place(library: &Library, args: &Args, trial: &Trial) -> Result<Place, Failure> {
    match args.target.as_str() {
        "auto" => Ok(driver::first().map_or(Place::Host, |device| Place::Cuda(device.ordinal))),
        "host" => Ok(Place::Host),
        text => {
            let target: Target = text.parse().map_err(Error::from)?;
            let op = library.op(&args.op)?;
            let pairs: Vec<_> = trial.axes.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
            let spec = library.spec(op, &pairs, target)?;
            space::check(library.definition(op), &spec, Some(target)).map_err(|reason| Error::Unsupported {
                spec: spec.to_string(),
                target: target.to_string(),
                reason: reason.0,
            })?;
            let decision = library.explain(op, &spec, Goal::Target(target))?;
            if decision.from.is_none() {
                return Err(Error::NotCovered(Box::new(decision)).into());
            }
            let devices = driver::ready().map(|r| r.devices.as_slice()).unwrap_or_default();
            let fitting = devices.iter().find(|d| target.arch() == Some(d.arch));
            match fitting {
                Some(device) => Ok(Place::Cuda(device.ordinal)),
                None => {
                    // Without any device, that is what is wrong; else none of them is of that architecture.
                    driver::first().map_err(Error::from)?;
                    let found = devices.iter().map(|d| Target::Sm(d.arch, Suffix::Baseline)).collect();
                    Err(Error::NoDevice(NoDevice::Target { target, found }).into())
                }
            }
        }
    }
}

fn text(o: &Outcome) -> String {
    let target = o.target.map_or("nothing to do".to_owned(), |t| t.to_string());
    let ms = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.1} ms"));
    let us = o.launch_us.map_or("-".to_owned(), |v| format!("{v:.1} µs"));
    let verdict = if o.ok { "right" } else { "WRONG" };
    let bypass = o.version_bypass.as_ref().map(|b| format!(", by version bypass {b}")).unwrap_or_default();
    format!(
        "{} on {target}, from {}{bypass}\n  compile {}, load {}, launch {us}\n  max error {:.3e} absolute, {:.3e} relative; tolerance {}: {verdict}",
        o.uri,
        o.from,
        ms(o.compile_ms),
        ms(o.load_ms),
        o.max_abs_err,
        o.max_rel_err,
        o.tolerance
    )
}

/// The report of a result that is not right.
pub(crate) fn wrong(o: &Outcome) -> Report {
    let mut report = Report::new("PB-2003", Class::Failed, format!("{} does not match its float64 reference", o.uri));
    if let Some(wrong) = &o.wrong {
        report = report.with("first", wrong);
    }
    report.with("tolerance", &o.tolerance)
}
