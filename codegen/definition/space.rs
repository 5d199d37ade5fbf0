//! The dispatch space of a definition: axes, tactics, exclusions, defaults.

use super::{is_name, is_prefix};
use parbake_model::op::{Op, Value};
use parbake_model::space;
use std::collections::BTreeSet;

pub(super) fn check(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    let mut names = BTreeSet::new();
    let mut unique = |kind: &str, i: &str, name: &str, wrong: &mut dyn FnMut(&[&str], String)| {
        if !is_name(name) {
            wrong(&[kind, i, "name"], format!("`{name}` is not a name: lower-case letters, digits and `_`"));
        } else if !names.insert(name.to_owned()) {
            wrong(&[kind, i, "name"], format!("`{name}` is declared twice"));
        }
    };
    for (i, axis) in op.axes.iter().enumerate() {
        let i = i.to_string();
        unique("axis", &i, &axis.name, wrong);
        if !is_prefix(&axis.prefix) {
            wrong(
                &["axis", &i, "prefix"],
                format!("`{}` cannot be part of a URI: letters, digits and `_`", axis.prefix),
            );
        }
        let distinct: BTreeSet<_> = axis.values.iter().map(|v| &v.value).collect();
        if axis.values.is_empty() || distinct.len() != axis.values.len() {
            wrong(&["axis", &i, "values"], format!("axis `{}` needs at least one value, each once", axis.name));
        }
        let chosen = axis.scalar.as_ref().and_then(|n| op.scalars.iter().find(|s| &s.name == n));
        if axis.dim.as_ref().is_some_and(|n| op.dim(n).is_none()) {
            wrong(&["axis", &i, "dim"], "there is no `[[dim]]` of that name".into());
        }
        if axis.scalar.is_some() && chosen.is_none() {
            wrong(&["axis", &i, "scalar"], "there is no `[[scalar]]` of that name".into());
        }
        if axis.dim.is_some() && axis.scalar.is_some() {
            wrong(&["axis", &i, "dim"], "an axis comes from one of `dim` and `scalar`, or from element types".into());
        }
        if axis.dim.is_some() && axis.values.iter().any(|v| v.value.parse::<i64>().is_err()) {
            wrong(&["axis", &i, "values"], "values of an axis that is an extent are numbers".into());
        }
        // The numbers of snippets begin behind those of the values.
        let most = match axis.open {
            Some(_) => f64::from(i32::MAX),
            None => axis.values.len() as f64 - 1.0,
        };
        if chosen.is_some_and(|s| !s.kind.is_whole() || s.min != 0.0 || s.max != most) {
            wrong(&["axis", &i, "scalar"], format!("the scalar must be whole, from 0 to {}", most.max(0.0)));
        }
        if let Some(open) = &axis.open {
            if axis.scalar.is_none()
                || !op.language.is_cuda()
                || op.axes.iter().filter(|a| a.open.is_some()).count() > 1
            {
                let what = "one axis of an op in CUDA C++ may be open, and a scalar chooses its value";
                wrong(&["axis", &i, "open"], what.into());
            }
            if open.functions.is_empty() || !open.functions.keys().all(|name| is_name(name)) {
                wrong(&["axis", &i, "open", "functions"], "at least one function, each by a name".into());
            }
        }
        for value in &axis.values {
            if !value.value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') || value.value.is_empty() {
                wrong(
                    &["axis", &i, "values"],
                    format!("`{}` cannot be part of a URI: letters, digits and `_`", value.value),
                );
            }
        }
    }
    for (i, tactic) in op.tactics.iter().enumerate() {
        let i = i.to_string();
        unique("tactic", &i, &tactic.name, wrong);
        if !is_prefix(&tactic.prefix) {
            wrong(
                &["tactic", &i, "prefix"],
                format!("`{}` cannot be part of a URI: letters, digits and `_`", tactic.prefix),
            );
        }
        let distinct: BTreeSet<_> = tactic.values.iter().collect();
        if tactic.values.is_empty() || distinct.len() != tactic.values.len() {
            wrong(&["tactic", &i, "values"], format!("tactic `{}` needs at least one value, each once", tactic.name));
        }
    }
    for (i, exclude) in op.excludes.iter().enumerate() {
        let i = i.to_string();
        if exclude.reason.trim().is_empty() {
            wrong(&["exclude", &i, "reason"], "every exclusion says why".into());
        }
        let everywhere = exclude.below.is_none() && exclude.except.is_none();
        if exclude.when.is_empty() && exclude.unless.is_empty() && everywhere {
            wrong(&["exclude", &i], "an exclusion without a condition excludes everything".into());
        }
        let when = exclude.when.iter().map(|(name, values)| ("when", name, values));
        for (part, name, values) in when.chain(exclude.unless.iter().map(|(name, values)| ("unless", name, values))) {
            if values.is_empty() || values.iter().enumerate().any(|(at, v)| values[..at].contains(v)) {
                wrong(&["exclude", &i, part, name], format!("`{name}` needs at least one value, each once"));
            }
            let axis = op.axes.iter().find(|a| &a.name == name);
            let tactic = op.tactics.iter().find(|t| &t.name == name);
            if axis.is_none() && tactic.is_none() {
                wrong(&["exclude", &i, part, name], format!("there is no axis or tactic `{name}`"));
                continue;
            }
            for value in values {
                let known = match value {
                    Value::Text(t) => axis.is_some_and(|a| a.values.iter().any(|v| &v.value == t)),
                    Value::Number(n) => tactic.is_some_and(|t| t.values.contains(n)),
                };
                if !known {
                    wrong(&["exclude", &i, part, name], format!("`{name}` has no value `{value}`"));
                }
            }
        }
    }
    let size = space::size(op);
    if size > space::MAX_COMBINATIONS {
        let number = if size == usize::MAX { "too many".to_owned() } else { size.to_string() };
        let kind = if op.axes.is_empty() { "tactic" } else { "axis" };
        wrong(&[kind], format!("{number} combinations of axes and tactics; at most {}", space::MAX_COMBINATIONS));
    }
    for (kind, count, most) in [("axis", op.axes.len(), 16), ("tactic", op.tactics.len(), 4)] {
        if count > most {
            wrong(&[kind], format!("{count} of `[[{kind}]]`; launchers keep room for {most}"));
        }
    }
    if !op.tactics.is_empty() && op.default_tactics.is_empty() {
        wrong(&["tactic"], "an op with tactics declares a `[[default_tactic]]`".into());
    }
    for (i, default) in op.default_tactics.iter().enumerate() {
        let i = i.to_string();
        for tactic in &op.tactics {
            match default.tactic.get(&tactic.name) {
                Some(v) if tactic.values.contains(v) => {}
                Some(v) => {
                    wrong(&["default_tactic", &i, "tactic"], format!("tactic `{}` has no value `{v}`", tactic.name))
                }
                None => wrong(&["default_tactic", &i, "tactic"], format!("no value for tactic `{}`", tactic.name)),
            }
        }
        for name in default.tactic.keys().filter(|n| op.tactics.iter().all(|t| &t.name != *n)) {
            wrong(&["default_tactic", &i, "tactic", name], format!("there is no tactic `{name}`"));
        }
    }
}
