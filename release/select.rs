//! Arguments that several commands share: an op, `name=value` texts, targets and bundles.

use crate::output::Failure;
use parbake::context::TargetContext;
use parbake::{Error, Goal, Library, OpId, Place, driver};
use parbake_codegen::baking::Only;
use parbake_model::Target;
use parbake_model::identity::{Profile, Spec};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::{self, Config};
use parbake_model::target::known_targets;
use std::path::PathBuf;

/// One spec on one target.
#[derive(clap::Args)]
pub(crate) struct Select {
    /// The op, as in `rmsnorm` or `norm/rmsnorm`
    #[arg(value_name = "OP")]
    op: String,
    /// A value for each axis, as in `dtype=bf16`; tactics that are not named take their default
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// An architecture such as `90a`, `host`, or `auto`: the first GPU of this machine, else the host
    #[arg(long, value_name = "TARGET", default_value = "auto")]
    target: String,
    /// A bundle to look in before those of PARBAKE_BUNDLES; may be repeated
    #[arg(long = "bundle", value_name = "FILE")]
    bundles: Vec<PathBuf>,
    /// `release`, `lineinfo` or `debug` [default: PARBAKE_PROFILE]
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,
}

/// A profile, as settings and options name it.
pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|()| "expected release, lineinfo or debug".to_owned())
}

/// The ops that a bake, or a list of what one would hold, is about.
#[derive(clap::Args)]
pub(crate) struct Ops {
    /// Ops, by `op` or `family/op`; `*` and `?` are wildcards
    #[arg(long, value_name = "GLOB", default_value = "*")]
    pub(crate) op: String,
    /// Only these values of an axis, as in `dtype=f16,bf16`; may be repeated
    #[arg(long, value_name = "AXIS=VALUES")]
    only: Vec<String>,
}

impl Ops {
    /// Axis → the values wanted.
    pub(crate) fn only(&self) -> Result<Only, Report> {
        let pairs = pairs(&self.only)?.into_iter();
        Ok(pairs.map(|(axis, values)| (axis, values.split(',').map(str::to_owned).collect())).collect())
    }
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
        config.profile = self.profile.unwrap_or(config.profile);
        let target = target(&self.target)?;
        let library = Library::open(with_bundles(config, &self.bundles)?)?;
        let op = library.op(&self.op)?;
        let values = values(library.definition(op), &self.values)?;
        let goal = match target {
            Some(Target::Host) => Goal::Host,
            Some(target) => Goal::Target(target),
            None => match driver::first() {
                Ok(device) => library.goal(Place::Cuda(device.ordinal))?,
                Err(_) => Goal::Host,
            },
        };
        let spec = library.spec(op, &values, goal.target())?;
        Ok(Selected { library, op, spec, goal })
    }
}

/// `auto` is none.
fn target(text: &str) -> Result<Option<Target>, Report> {
    if text == "auto" {
        return Ok(None);
    }
    let report = |e| Error::Target(e).report().with("expected", "--target auto, host, or an architecture such as 90a");
    text.parse().map(Some).map_err(report)
}

/// A list of architectures from an option, else from the target context: PARBAKE_ARCHS and the devices found.
pub(crate) fn targets(option: Option<&str>, config: &Config) -> Result<Vec<Target>, Report> {
    if let Some(text) = option {
        let report = |e| Error::Target(e).report().with("expected", "--arch with a list such as 80,90a");
        return Target::parse_list(text).map_err(report);
    }
    let targets = TargetContext::find(config).targets();
    if targets.is_empty() {
        return Err(Report::new("PB-1116", Class::Usage, "a bake is for an explicit list of architectures")
            .with("expected", "--arch 80,90a or PARBAKE_ARCHS=80,90a, or a GPU in this machine")
            .with("got", "neither")
            .help(format!("known are {}, and host", known_targets())));
    }
    Ok(targets)
}

/// Splits `name=value` texts, each name at most once.
pub(crate) fn pairs(texts: &[String]) -> Result<Vec<(String, String)>, Report> {
    let split = |text: &String| {
        let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        pair.map(|(n, v)| (n.to_owned(), v.to_owned())).ok_or_else(|| {
            Report::new("PB-3005", Class::Usage, "an argument is not `name=value`")
                .with("expected", "dtype=bf16")
                .with("got", text)
        })
    };
    let found = texts.iter().map(split).collect::<Result<Vec<_>, _>>()?;
    for (i, (name, value)) in found.iter().enumerate() {
        if let Some((_, first)) = found[..i].iter().find(|(n, _)| n == name) {
            return Err(Report::new("PB-3101", Class::Usage, format!("`{name}` is given twice"))
                .with("got", format!("{name}={first} and {name}={value}")));
        }
    }
    Ok(found)
}

/// Splits `name=value` texts of an op. Names and values are judged later.
fn values(op: &Op, texts: &[String]) -> Result<Vec<(String, String)>, Report> {
    pairs(texts).map_err(|report| {
        if report.code != "PB-3005" {
            return report;
        }
        let of = |text: &str| op.axes.iter().find(|a| a.values.iter().any(|v| v.value == text));
        match texts.iter().find_map(|text| Some((text, of(text)?))) {
            Some((text, axis)) => report.help(format!("did you mean `{}={text}`?", axis.name)),
            None => report.help(format!("`parbake ops {}` shows axes and tactics", op.name)),
        }
    })
}

/// The first value of each axis, as one would type it.
pub(crate) fn example(op: &Op) -> String {
    let words = op.axes.iter().map(|a| format!("{}={}", a.name, a.values[0].value));
    words.collect::<Vec<_>>().join(" ")
}

/// Puts bundles named on the command line before those of the settings.
pub(crate) fn with_bundles(mut config: Config, bundles: &[PathBuf]) -> Result<Config, Report> {
    config.bundles.splice(0..0, bundles.iter().cloned());
    Ok(config)
}

/// A number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    settings::bytes(text).ok_or_else(|| "expected a size above 0, as in `512M` or `1G` (powers of 1024)".to_owned())
}
