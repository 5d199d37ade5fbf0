//! The points that are tuned: every combination of the lists that were given.

use super::Args;
use crate::cmd::run::{complete_axes, fits, overlay};
use crate::output::Failure;
use crate::select;
use parbake::trial::Trial;
use parbake::{Error, Library, OpId};
use parbake_codegen::toolchain::memory;
use parbake_model::op::Op;

/// A call that is tuned.
pub(super) struct Point {
    pub(super) op: OpId,
    name: String,
    pub(super) trial: Trial,
}

impl Point {
    /// `rmsnorm dtype=f32, rows=16 hidden=4096`.
    pub(super) fn words(&self) -> String {
        let axes: Vec<String> = self.trial.axes.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} {}, {}", self.name, axes.join(" "), self.shape())
    }

    pub(super) fn shape(&self) -> String {
        self.trial.dims.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ")
    }
}

pub(super) fn of(library: &Library, name: &str, args: &Args) -> Result<Vec<Point>, Failure> {
    let op = library.op(name)?;
    let def = library.definition(op);
    let mut points = Vec::new();
    for axes in combinations(&select::pairs(&args.values)?) {
        for shape in combinations(&select::pairs(&args.shape)?) {
            let mut trial = Trial::example(def, axes.iter().cloned().collect());
            let shape: Vec<String> = shape.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let symbol = |n: &str| def.dims.iter().any(|d| d.name == n);
            overlay(def, "shape symbol", &mut trial.dims, &shape, symbol)?;
            let scalar = |n: &str| def.scalars.iter().any(|s| s.name == n);
            overlay(def, "scalar", &mut trial.scalars, &args.scalar, scalar)?;
            given(def, &mut trial, &args.with)?;
            trial.derive(def);
            complete_axes(library, name, &trial.axes)?;
            fits(def, &trial, memory::available().map(u128::from))?;
            points.push(Point { op, name: def.name.clone(), trial });
        }
    }
    Ok(points)
}

/// Takes these optional tensors instead of those of the trace template.
fn given(def: &Op, trial: &mut Trial, names: &[String]) -> Result<(), Error> {
    if let Some(unknown) = names.iter().find(|name| !def.tensors.iter().any(|t| t.optional && t.name == **name)) {
        return Err(Error::UnknownValue {
            op: def.name.clone(),
            what: format!("there is no optional tensor `{unknown}`"),
            expected: crate::cmd::run::optional(def),
            got: unknown.clone(),
        });
    }
    if !names.is_empty() {
        trial.with = names.iter().cloned().collect();
    }
    Ok(())
}

/// One value of each list, in all ways.
fn combinations(lists: &[(String, String)]) -> Vec<Vec<(String, String)>> {
    lists.iter().fold(vec![Vec::new()], |all, (name, values)| {
        let with = |chosen: &Vec<(String, String)>| {
            let chosen = chosen.clone();
            values.split(',').map(move |v| {
                let mut chosen = chosen.clone();
                chosen.push((name.clone(), v.trim().to_owned()));
                chosen
            })
        };
        all.iter().flat_map(with).collect()
    })
}
