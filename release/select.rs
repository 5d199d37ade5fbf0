//! What commands about one spec are given: an op, a value for each axis, a target and bundles.

use crate::output::Failure;
use parbake::{Error, Goal, Library, OpId, Place, driver};
use parbake_model::Target;
use parbake_model::identity::Spec;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::path::PathBuf;

/// One spec on one target.
#[derive(clap::Args)]
pub(crate) struct Select {
    /// The op, as in `rmsnorm` or `norm/rmsnorm`
    #[arg(value_name = "OP")]
    op: String,
    /// A value for each axis; tactics that are not named take their default
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// An architecture such as `90a`, `host`, or `auto`: the first GPU of this machine, else the host
    #[arg(long, value_name = "TARGET", default_value = "auto")]
    target: String,
    /// A bundle to look in before those of PARBAKE_BUNDLES; may be given several times
    #[arg(long = "bundle", value_name = "FILE")]
    bundles: Vec<PathBuf>,
}

/// What was selected, and the library it was selected from.
pub(crate) struct Selected {
    pub(crate) library: Library,
    pub(crate) op: OpId,
    pub(crate) spec: Spec,
    pub(crate) goal: Goal,
}

impl Select {
    /// Opens the library and looks all of it up. No device is touched unless the target is `auto`.
    pub(crate) fn open(&self, mut config: Config) -> Result<Selected, Failure> {
        let target = target(&self.target)?;
        config.bundles.splice(0..0, self.bundles.iter().cloned());
        let library = Library::open(config)?;
        let op = library.op(&self.op)?;
        let values = values(library.definition(op), &self.values)?;
        let goal = match target {
            Some(target) => goal(target),
            None if driver::ready().is_some_and(|r| !r.devices.is_empty()) => library.goal(Place::Cuda(0))?,
            None => Goal::Host,
        };
        let spec = library.spec(op, &values, goal.target())?;
        Ok(Selected { library, op, spec, goal })
    }
}

/// What is needed to run on a target.
pub(crate) fn goal(target: Target) -> Goal {
    if target == Target::Host { Goal::Host } else { Goal::Target(target) }
}

/// `auto` is none.
fn target(text: &str) -> Result<Option<Target>, Report> {
    if text == "auto" {
        return Ok(None);
    }
    let report = |e| Error::Target(e).report().with("expected", "--target auto, host, or an architecture such as 90a");
    text.parse().map(Some).map_err(report)
}

/// A list of architectures from an option, else from a setting.
pub(crate) fn targets(option: Option<&str>, setting: Option<&Vec<Target>>) -> Result<Vec<Target>, Report> {
    match (option, setting) {
        (Some(text), _) => Target::parse_list(text)
            .map_err(|e| Error::Target(e).report().with("expected", "--arch with a list such as 80,90a")),
        (None, Some(targets)) => Ok(targets.clone()),
        (None, None) => Err(Report::new("PB-3101", Class::Usage, "no architectures are given")
            .with("expected", "--arch with a list such as 80,90a, or PARBAKE_ARCHS")
            .help(format!("known are {}, and host", parbake_model::target::known_targets()))),
    }
}

/// Splits `name=value` words. Names and values are judged later, against the op.
fn values(op: &Op, words: &[String]) -> Result<Vec<(String, String)>, Report> {
    let mut found: Vec<(String, String)> = Vec::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            let owner = op.axes.iter().find(|a| a.values.iter().any(|v| v.value == *word));
            let report = Report::new("PB-3102", Class::Usage, format!("`{word}` is not of the form name=value"))
                .with("expected", format!("a value for each axis of `{}`, as in {}", op.name, example(op)));
            return Err(match owner {
                Some(axis) => report.help(format!("did you mean `{}={word}`?", axis.name)),
                None => report.help(format!("`parbake ops {}` shows axes and tactics", op.name)),
            });
        };
        if let Some((_, first)) = found.iter().find(|(n, _)| n == name) {
            return Err(Report::new("PB-3103", Class::Usage, format!("`{name}` is given twice"))
                .with("got", format!("{name}={first} and {name}={value}")));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

/// The first value of each axis, as one would type it.
pub(crate) fn example(op: &Op) -> String {
    let words = op.axes.iter().map(|a| format!("{}={}", a.name, a.values[0].value));
    words.collect::<Vec<_>>().join(" ")
}
