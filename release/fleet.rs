//! `fleet.toml`: what a fleet is baked for, in a file of its own.

use parbake_codegen::baking::Only;
use parbake_model::report::{Class, Report};
use parbake_model::target::Suffix;
use parbake_model::{Target, Toolkit, gpu};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What to bake. All that is left out is as if the options of `parbake build` were not given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Fleet {
    /// GPUs by name, as `nvidia-smi` prints them.
    #[serde(default)]
    gpus: Vec<String>,
    /// Architectures, as `--arch` takes them.
    #[serde(default)]
    archs: Vec<String>,
    /// Patterns for ops.
    ops: Option<Vec<String>>,
    /// Axis → values.
    #[serde(default)]
    pub(crate) only: Only,
    /// A lock instead of patterns; relative to the file.
    lock: Option<PathBuf>,
    pub(crate) toolkit: Option<Toolkit>,
    pub(crate) min_driver: Option<Toolkit>,
    pub(crate) level: Option<i32>,
    /// Line tables for profilers.
    #[serde(default)]
    pub(crate) lineinfo: bool,
    /// PTX of the newest architecture beside the machine code.
    #[serde(default)]
    ptx: bool,
    #[serde(skip)]
    place: PathBuf,
}

impl Fleet {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Report> {
        let wrong = |class, got: String| wrong(path, class, got);
        let text = std::fs::read_to_string(path).map_err(|e| wrong(Class::Environment, e.to_string()))?;
        let fleet: Self = toml::from_str(&text).map_err(|e| wrong(Class::Usage, e.to_string().trim().to_owned()))?;
        if fleet.lock.is_some() && (fleet.ops.is_some() || !fleet.only.is_empty()) {
            return Err(wrong(Class::Usage, "`lock` beside `ops` or `only`: a lock names its specs".into()));
        }
        if fleet.level.is_some_and(|level| !(1..=22).contains(&level)) {
            return Err(wrong(Class::Usage, "a `level` that is not 1 to 22".into()));
        }
        Ok(Self { place: path.to_owned(), ..fleet })
    }

    /// The targets of its GPUs and architectures, each once; none if it names neither.
    pub(crate) fn targets(&self) -> Result<Vec<Target>, Report> {
        let mut targets = Vec::new();
        for name in &self.gpus {
            targets.push(gpu::target(name).map_err(|unknown| {
                let report = self.wrong(format!("no GPU that is known as `{name}`"));
                match unknown.nearest {
                    Some(nearest) => report.help(format!("did you mean `{nearest}`?")),
                    None => report.help("name its architecture under `archs`, as in \"90a\""),
                }
            })?);
        }
        for arch in &self.archs {
            targets.push(arch.parse().map_err(|e| self.wrong(format!("{e}")))?);
        }
        let newest = targets.iter().filter_map(|target| target.arch()).max().filter(|_| self.ptx);
        targets.extend(newest.map(|arch| Target::Compute(arch, Suffix::Baseline)));
        targets.sort();
        targets.dedup();
        Ok(targets)
    }

    /// Its patterns, as `--op` takes them.
    pub(crate) fn op(&self) -> String {
        self.ops.as_ref().map_or_else(|| "*".to_owned(), |ops| ops.join(","))
    }

    pub(crate) fn lock(&self) -> Option<PathBuf> {
        self.lock.as_ref().map(|lock| self.place.parent().unwrap_or(Path::new("")).join(lock))
    }

    fn wrong(&self, got: String) -> Report {
        wrong(&self.place, Class::Usage, got)
    }
}

fn wrong(path: &Path, class: Class, got: String) -> Report {
    Report::new("PB-1153", class, format!("{} cannot be used as the description of a fleet", path.display()))
        .with("expected", "gpus or archs, ops and only or lock, toolkit, min-driver, level, lineinfo, ptx")
        .with("got", got)
}
