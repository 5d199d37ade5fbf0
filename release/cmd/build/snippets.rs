//! Files of snippets: which specs a bake makes of them.

use crate::output::Failure;
use parbake::{Error, Library};
use parbake_codegen::baking::{self, Only};
use parbake_model::lock::{Lock, Locked};
use parbake_model::report::{Class, Report};
use parbake_model::snippet::Snippet;
use parbake_model::{Target, space};
use std::path::{Path, PathBuf};

/// A lock of every spec with any of the snippets, for the targets where it exists.
pub(super) fn lock(library: &Library, files: &[PathBuf], only: &Only, targets: &[Target]) -> Result<Lock, Failure> {
    let mut pairs = Vec::new();
    for path in files {
        let (op, snippet) = read(path)?;
        let def = library.definition(library.op(&op)?);
        // What is no axis or no value of it says so.
        baking::plan([def], &def.path(), only, targets)?;
        let specs = space::of_snippet(def, &snippet).map_err(Error::Snippet)?;
        let open = |axis: &str| def.axes.iter().any(|a| a.name == axis && a.open.is_some());
        let wanted =
            |axis: &str, value: &String| open(axis) || only.get(axis).is_none_or(|values| values.contains(value));
        for spec in specs.iter().filter(|spec| spec.axes.iter().all(|(axis, value)| wanted(axis, value))) {
            let exists = targets.iter().filter(|target| space::check(def, spec, Some(**target)).is_ok());
            pairs.extend(exists.map(|&target| (Locked::from(spec), target)));
        }
    }
    Ok(Lock::of(pairs))
}

/// The op that a file's snippet is for, and the snippet.
fn read(path: &Path) -> Result<(String, Snippet), Report> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Report::new("PB-3145", Class::Environment, format!("cannot read {}", path.display())).caused_by(e)
    })?;
    let wrong = |why: String| {
        Report::new("PB-2040", Class::Usage, format!("{} is no snippet", path.display()))
            .with("expected", "op, name, [params] and [functions], as docs/attention.md has them")
            .caused_by(why.trim())
    };
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let op = table.remove("op").and_then(|op| op.as_str().map(str::to_owned));
    let op = op.ok_or_else(|| wrong("it says no `op`".into()))?;
    Ok((op, table.try_into().map_err(|e: toml::de::Error| wrong(e.to_string()))?))
}
