//! What the settings say of the API log: how much, and where to.

use std::path::PathBuf;

/// How much the API log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogLevel {
    /// Nothing.
    Off = 0,
    /// Each call, and what went wrong.
    Calls = 1,
    /// Arguments and kernel, before the launch.
    Arguments = 3,
    /// Statistics of the values.
    Statistics = 5,
    /// A dump of the whole call.
    Dumps = 10,
}

impl LogLevel {
    /// All levels, ascending.
    pub const ALL: [Self; 5] = [Self::Off, Self::Calls, Self::Arguments, Self::Statistics, Self::Dumps];
    /// Their numbers, in words.
    pub const EXPECTED: &str = "0, 1, 3, 5 or 10";

    /// The level of a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| *level as u8 == number)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::of)
    }
}

/// Where the API log is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogDestination {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file of that absolute path, in which `%p` stands for the process id.
    File(String),
}

impl LogDestination {
    /// What it may be, in words.
    pub const EXPECTED: &str = "stderr, stdout or an absolute path, with no `%` but `%p`";

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "stderr" => Some(Self::Stderr),
            "stdout" => Some(Self::Stdout),
            path if path.starts_with('/') && !path.replace("%p", "").contains('%') => Some(Self::File(text.to_owned())),
            _ => None,
        }
    }

    /// The file for a process, if it is one.
    #[must_use]
    pub fn path(&self, process: u32) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(PathBuf::from(path.replace("%p", &process.to_string()))),
            _ => None,
        }
    }
}
