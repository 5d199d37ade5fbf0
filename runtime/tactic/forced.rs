//! Tactics that a setting forces calls to take. They are for diagnosis: a call that cannot take one is an error, and never
//! served by another in silence.

use crate::binding::{Choices, MAX_TACTICS};
use crate::error::Error;
use crate::library::OpId;
use crate::tactic::{TacticError, words};
use parbake_model::op::Op;
use parbake_model::settings;
use std::collections::HashMap;

/// Op → the value of each of its tactics that is forced.
#[derive(Debug, Default)]
pub(crate) struct Forced(HashMap<OpId, [Option<u32>; MAX_TACTICS]>);

impl Forced {
    /// What the settings force, of ops that `find` knows.
    pub(crate) fn of<'a>(
        asked: &[settings::Forced],
        find: impl Fn(&str) -> Result<(OpId, &'a Op), Error>,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        for settings::Forced { op: name, tactic } in asked {
            let (id, op) = find(name)?;
            let values = all.0.entry(id).or_default();
            for (name, value) in tactic {
                let at = op.tactics.iter().position(|t| &t.name == name && t.values.contains(value));
                let legal = |t: &parbake_model::op::Tactic| format!("{} of {:?}", t.name, t.values);
                let at = at.ok_or_else(|| Error::UnknownValue {
                    op: op.name.clone(),
                    what: format!("PARBAKE_TACTICS names no tactic and value of it: `{name}={value}`"),
                    expected: op.tactics.iter().map(legal).collect::<Vec<_>>().join(", "),
                    got: format!("{name}={value}"),
                })?;
                values[at] = Some(*value);
            }
            tracing::warn!(op = op.name, tactic = all.words(id, op), "PARBAKE_TACTICS forces a tactic");
        }
        Ok(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that a tactic of an op is forced to.
    pub(crate) fn value(&self, op: OpId, tactic: usize) -> Option<u32> {
        self.0.get(&op).and_then(|values| values[tactic])
    }

    /// `block=512 rows=1`; nothing for an op that is free.
    pub(crate) fn words(&self, id: OpId, op: &Op) -> String {
        let value = |(i, t): (usize, &parbake_model::op::Tactic)| Some(format!("{}={}", t.name, self.value(id, i)?));
        op.tactics.iter().enumerate().filter_map(value).collect::<Vec<_>>().join(" ")
    }

    /// Leaves what is forced, and says whether anything is.
    ///
    /// # Errors
    /// If nothing is left.
    pub(crate) fn narrow(&self, id: OpId, op: &Op, choices: &mut Choices) -> Result<bool, TacticError> {
        let Some(values) = self.0.get(&id) else { return Ok(false) };
        let legal = *choices;
        choices.keep(|tactic| values.iter().zip(tactic.0).all(|(forced, value)| forced.is_none_or(|f| f == value)));
        if choices.as_slice().is_empty() {
            let legal = legal.as_slice().iter().map(|t| words(op, t)).collect::<Vec<_>>().join("; ");
            return Err(TacticError::NotLegal { op: op.name.clone(), forced: self.words(id, op), legal });
        }
        Ok(true)
    }
}
