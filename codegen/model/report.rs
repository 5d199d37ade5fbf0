//! One shape for every error that a person reads: what, where, expected, got, why, and what to do.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Whose fault an error is; decides the exit status of the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The thing asked for does not hold: a check failed. Exit status 1.
    Failed,
    /// Wrong usage: an unknown op, axis, value, target or option. Exit status 2.
    Usage,
    /// The environment lacks something: a driver, a compiler, an artifact. Exit status 3.
    Environment,
}

/// An error for a person, with a stable code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Stable code, `PB-1203`.
    pub code: &'static str,
    /// Whose fault it is.
    pub class: Class,
    /// One sentence: what went wrong.
    pub what: String,
    /// Labelled details in order, such as `where`, `expected`, `got`, `searched`.
    pub details: Vec<(String, String)>,
    /// The chain of causes, outermost first.
    pub causes: Vec<String>,
    /// Commands or edits that help.
    pub help: Vec<String>,
}

/// A report that another process made has a code of our table.
impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Told {
            code: String,
            class: Class,
            what: String,
            details: Vec<(String, String)>,
            causes: Vec<String>,
            help: Vec<String>,
        }
        let Told { code, class, what, details, causes, help } = Told::deserialize(d)?;
        let known = crate::codes::find(&code).map(|known| known.code);
        let code = known.ok_or_else(|| serde::de::Error::custom(format!("no error has the code {code}")))?;
        Ok(Self { code, class, what, details, causes, help })
    }
}

impl Report {
    /// A report with a code, a class and its sentence.
    #[must_use]
    pub fn new(code: &'static str, class: Class, what: impl Into<String>) -> Self {
        Self { code, class, what: what.into(), details: Vec::new(), causes: Vec::new(), help: Vec::new() }
    }
    /// Adds a labelled detail; later lines of a multi-line text are indented under it.
    #[must_use]
    pub fn with(mut self, label: impl Into<String>, text: impl fmt::Display) -> Self {
        self.details.push((label.into(), text.to_string()));
        self
    }
    /// Adds a cause.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }
    /// Adds the causes of an error, and the causes of those.
    #[must_use]
    pub fn caused_by_chain(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.causes.push(error.to_string());
            next = error.source();
        }
        self
    }
    /// Adds something to do.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help.push(help.to_string());
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.what)?;
        for (label, text) in &self.details {
            write!(f, "\n  {label}: {}", text.replace('\n', "\n    "))?;
        }
        for cause in &self.causes {
            write!(f, "\ncaused by: {}", cause.replace('\n', "\n  "))?;
        }
        for help in &self.help {
            write!(f, "\nhelp: {}", help.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
