//! The recording of what a program asks for (`PARBAKE_RECORD`): a line for each spec and target, when it is first asked for.
//!
//! It is written where kernels are loaded, and not where they are called: what is in the registry has been recorded. A file
//! is opened for each line and closed again, so that nothing is held across a fork, and a line is one `write` to a file
//! opened for appending, so that processes do not cut into each other's. That a line cannot be written is said once.

use crate::decision::Origin;
use crate::error::Error;
use crate::library::{Library, OpId};
use parbake_model::Target;
use parbake_model::identity::SpecIndex;
use parbake_model::record::Recorded;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where to, and what is there already.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: String,
    seen: Mutex<HashSet<(OpId, SpecIndex, Target)>>,
    warned: AtomicBool,
}

impl Recorder {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), seen: Mutex::default(), warned: AtomicBool::new(false) }
    }

    /// Whether this is the first time.
    fn first(&self, op: OpId, index: SpecIndex, target: Target) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert((op, index, target))
    }

    fn append(&self, record: &Recorded) {
        let path = self.file.replace("%p", &std::process::id().to_string());
        if let Err(error) = append(&path, record.line().as_bytes())
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(path, %error, "what this program asks for is not recorded");
        }
    }
}

/// Never waits: a pipe that nobody reads is an error.
fn append(path: &str, line: &[u8]) -> io::Result<()> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = File::options().append(true).create(true).custom_flags(flags).open(path)?;
    match file.write(line)? {
        written if written == line.len() => Ok(()),
        written => Err(io::Error::other(format!("only {written} of {} bytes were written", line.len()))),
    }
}

impl Library {
    /// Notes how a spec was served, or why it was not. What does not exist for a target, or is
    /// blocked, is not noted: no bake is to make it.
    pub(crate) fn record(&self, op: OpId, index: SpecIndex, target: Target, outcome: Result<Origin, &Error>) {
        let Some(recorder) = &self.recorder else { return };
        if matches!(outcome, Err(Error::Unsupported { .. } | Error::Tactic(_))) || !recorder.first(op, index, target) {
            return;
        }
        let spec = self.spec_at(op, index);
        let outcome = outcome.map(|from| from.to_string()).map_err(|error| match error {
            Error::NotCovered(decision) => decision.missed(),
            Error::Compile { report, .. } => format!("{error}: {}", report.what),
            error => error.one_line(),
        });
        recorder.append(&Recorded::new(&spec, target, outcome));
    }

    /// Notes that a spec is still not covered: why was found out when another call could do with it second best.
    pub(crate) fn record_uncovered(&self, op: OpId, index: SpecIndex, target: Target) {
        let Some(recorder) = self.recorder.as_ref().filter(|r| r.first(op, index, target)) else { return };
        let spec = self.spec_at(op, index);
        recorder.append(&Recorded::new(&spec, target, Err("not covered".to_owned())));
    }
}
