//! The API log: what was called, with what, and which kernel served it. `docs/api-log.md` shows it from outside.
//!
//! Calls are logged in one place, [`Library::call`], which every door ends in. Everything about a call is written before
//! its kernel is launched, by `write` and not through a buffer of this process: whatever the kernel does to it, the
//! line is there. A log that cannot be written warns once and never fails a call.

mod line;
mod sink;

use crate::call::{Called, Prepared};
use crate::code::{Place, Stream};
use crate::decision::Origin;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::tensor::Tensor;
use line::Lines;
use parbake_model::glob::glob;
use parbake_model::op::Op;
use parbake_model::settings::{BadSetting, Config, LogLevel};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Whether the level was set by the program: then no library that is opened changes it.
static CHOSEN: AtomicBool = AtomicBool::new(false);
/// The number of the next call that is logged; 0 is what the header has.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Whether calls are logged.
#[inline]
pub(crate) fn on() -> bool {
    cfg!(feature = "log") && LEVEL.load(Ordering::Relaxed) != 0
}

/// Takes the level of the settings of a library that is being opened.
pub(crate) fn start(config: &Config) {
    if let Some(level) = config.log
        && !CHOSEN.load(Ordering::Relaxed)
    {
        LEVEL.store(level as u8, Ordering::Relaxed);
    }
}

/// The level of this process's API log: 0, 1, 3, 5 or 10.
#[must_use]
pub fn level() -> u8 {
    LEVEL.load(Ordering::Relaxed)
}

/// Sets the level for all libraries of this process, from the next call on. It holds against `PARBAKE_LOG`.
///
/// # Errors
/// `PB-1001` for a number that is no level; the level stays as it was.
pub fn set_level(level: u8) -> Result<(), Error> {
    let expected = || LogLevel::EXPECTED.to_owned();
    let bad = || BadSetting { name: "PARBAKE_LOG", expected: expected(), got: level.to_string() };
    let level = LogLevel::of(level).ok_or_else(bad)?;
    CHOSEN.store(true, Ordering::Relaxed);
    LEVEL.store(level as u8, Ordering::Relaxed);
    Ok(())
}

/// Whether the settings want to know of calls of an op.
fn concerns(config: &Config, op: &Op) -> bool {
    config.log_include.as_deref().is_none_or(|globs| glob(globs, op))
        && !config.log_exclude.as_deref().is_some_and(|globs| glob(globs, op))
}

/// A call that is being logged.
struct Entry<'a> {
    library: &'a Library,
    op: &'a Op,
    tensors: &'a [Tensor],
    scalars: &'a [f64],
    place: Place,
    level: u8,
    start: Instant,
    lines: Lines,
}

impl Library {
    /// [`Library::call`] with the log on.
    ///
    /// # Safety
    /// As for [`Library::call`].
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn call_logged(
        &self,
        op: OpId,
        tensors: &[Tensor],
        scalars: &[f64],
        place: Place,
        stream: Stream,
    ) -> Result<Called, Error> {
        let def = self.definition(op);
        let level = level();
        if level == 0 || !concerns(&self.config, def) {
            // SAFETY: the caller vouches for the memory.
            return unsafe { self.call_unlogged(op, tensors, scalars, place, stream) };
        }
        let lines = Lines::new(&self.config, NEXT.fetch_add(1, Ordering::Relaxed), place);
        let entry = Entry { library: self, op: def, tensors, scalars, place, level, start: Instant::now(), lines };
        entry.announce();
        let prepared = self.prepare_call(op, tensors, scalars, place);
        let result = match prepared {
            Ok(Some(prepared)) => {
                if prepared.from == Origin::Jit {
                    prepared.kernel.warn_if_captured(&def.name, stream);
                }
                // SAFETY: the caller vouches for the memory.
                unsafe { entry.launch(prepared, stream) }
            }
            Ok(None) => Ok(Called { kernel: None, from: Origin::Registry }),
            Err(error) => Err(error),
        };
        entry.end(&result);
        result
    }
}

impl Entry<'_> {
    fn shows(&self, level: LogLevel) -> bool {
        self.level >= level as u8
    }

    /// The call and its arguments, before anything is judged.
    fn announce(&self) {
        self.lines.call(self.op);
        if self.shows(LogLevel::Arguments) {
            self.lines.arguments(self.op, self.tensors, self.scalars, self.place);
        }
    }

    /// # Safety
    /// As for [`Library::call`].
    unsafe fn launch(&self, mut prepared: Prepared, stream: Stream) -> Result<Called, Error> {
        if self.shows(LogLevel::Arguments) {
            self.lines.kernel(self.op, &prepared);
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { prepared.launch(stream)? };
        Ok(Called { kernel: Some(prepared.kernel), from: prepared.from })
    }

    /// How it ended. Errors are worth a line at every level.
    fn end(&self, result: &Result<Called, Error>) {
        let ms = self.start.elapsed().as_secs_f64() * 1e3;
        match result {
            Err(error) => self.lines.failed(error, ms),
            Ok(called) if self.shows(LogLevel::Arguments) => match (&called.kernel, self.place) {
                (None, _) => self.lines.say(format_args!("nothing to do")),
                (_, Place::Cuda(_)) if !self.shows(LogLevel::Statistics) => {
                    self.lines.say(format_args!("launched after {ms:.3} ms"));
                }
                _ => self.lines.say(format_args!("done after {ms:.3} ms")),
            },
            Ok(_) => {}
        }
    }
}
