//! The API log: what was called, with what, and which kernel served it. `docs/api-log.md` shows it from outside.
//!
//! Calls are logged in one place, [`Library::call`], which every door ends in; a call that a door refuses is logged there.
//! Everything about a call is written before
//! its kernel is launched, by `write` and not through a buffer of this process: whatever the kernel does to it, the
//! line is there. A log that cannot be written warns once and never fails a call.

mod dump;
mod dumped;
mod line;
pub mod record;
pub mod replay;
mod sink;
mod tensors;
mod values;

use crate::call::{Also, Called, Prepared};
use crate::code::{Place, Stream};
use crate::decision::Origin;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::tensor::Tensor;
use dump::Dump;
use line::Lines;
use parbake_model::glob::glob;
use parbake_model::op::{Op, Role};
use parbake_model::settings::{BadSetting, Config, LogLevel};
use record::Record;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;
use values::{Source, Statistics};

pub use dumped::{DumpError, Dumped, parse};

static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Whether the level was set by the program: then no library that is opened changes it.
static CHOSEN: AtomicBool = AtomicBool::new(false);
/// The number of the next call that is logged; 0 is what the header has.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Whether this build has the log. One without it, made with `PARBAKE_TEST_WITHOUT_LOG` set, is there to measure what
/// asking for the level costs.
pub const BUILT_IN: bool = option_env!("PARBAKE_TEST_WITHOUT_LOG").is_none();

/// Whether calls are logged.
#[inline]
pub(crate) fn on() -> bool {
    BUILT_IN && LEVEL.load(Ordering::Relaxed) != 0
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

/// Logs a call that its door refused: one whose arguments do not even make tensors and numbers.
#[cold]
pub(crate) fn refused(library: &Library, op: &Op, error: &Error) {
    if on() && concerns(&library.config, op) {
        // Where it would have run is not known, or there is more than one place.
        let lines = Lines::new(&library.config, NEXT.fetch_add(1, Ordering::Relaxed), Place::Host);
        lines.call(op);
        lines.failed(error, 0.0);
    }
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
    /// [`Library::call_with`] with the log on.
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
        also: Also<'_>,
    ) -> Result<Called, Error> {
        let def = self.definition(op);
        let level = level();
        if level == 0 || !concerns(&self.config, def) {
            // SAFETY: the caller vouches for the memory.
            return unsafe { self.call_unlogged(op, tensors, scalars, place, stream, also) };
        }
        let lines = Lines::new(&self.config, NEXT.fetch_add(1, Ordering::Relaxed), place);
        let entry = Entry { library: self, op: def, tensors, scalars, place, level, start: Instant::now(), lines };
        entry.announce();
        let prepared = self.prepare_with(op, tensors, scalars, place, also);
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
        if !self.shows(LogLevel::Statistics) {
            // SAFETY: the caller vouches for the memory.
            unsafe { prepared.launch(stream)? };
            return Ok(Called { kernel: Some(prepared.kernel), from: prepared.from });
        }
        let source = Source::new(self.place, stream)?;
        // Where that cannot be told, reading could break a capture.
        let captured = source.captured().unwrap_or(true);
        if captured {
            self.lines.say(format_args!("values are not read: the stream is being captured"));
        } else {
            // SAFETY: the caller vouches for the memory.
            unsafe { self.describe(&source, |role| role != Role::Out) };
        }
        // SAFETY: as above.
        let dump = unsafe { self.dump(&prepared, &source, captured) };
        // SAFETY: as above. An error of the kernel itself is known once the stream has passed it.
        let mut launched = unsafe { prepared.launch(stream) };
        if !captured {
            launched = launched.and_then(|()| source.wait());
        }
        if launched.is_ok() && !captured {
            // SAFETY: as above.
            unsafe { self.describe(&source, |role| role != Role::In) };
        }
        if let Some(dump) = dump {
            let error = launched.as_ref().err().map(line::one_line);
            // SAFETY: as above.
            unsafe { dump.end(self.tensors, &source, error) };
        }
        launched.map(|()| Called { kernel: Some(prepared.kernel), from: prepared.from })
    }

    /// Statistics of the tensors that are read, or of those that were written.
    ///
    /// # Safety
    /// As for [`Library::call`].
    unsafe fn describe(&self, source: &Source, of: impl Fn(Role) -> bool) {
        for (def, tensor) in self.op.tensors.iter().zip(self.tensors).filter(|(def, t)| of(def.role) && !t.is_absent())
        {
            let mut statistics = Statistics::NONE;
            let mut take = |piece: &[u8]| {
                statistics.take(tensor.dtype, piece);
                Ok(())
            };
            // SAFETY: the caller vouches for the memory; arguments that were checked have no negative strides.
            match unsafe { source.each(tensor, &mut take) } {
                Ok(()) => self.lines.say(format_args!("values {} {statistics}", def.name)),
                Err(why) => self.lines.say(format_args!("values {} are not read: {why}", def.name)),
            }
        }
    }

    /// Everything about the call, in a folder of its own.
    ///
    /// # Safety
    /// As for [`Library::call`].
    unsafe fn dump(&self, prepared: &Prepared, source: &Source, captured: bool) -> Option<Dump> {
        if !self.shows(LogLevel::Dumps) {
            return None;
        }
        let (arguments, number) = ((self.tensors, self.scalars), (self.lines.sequence, captured));
        let record = Record::of(self.library, self.op, arguments, self.place, prepared, number);
        // SAFETY: the caller vouches for the memory.
        let dump = unsafe { Dump::begin(&self.library.config, record, self.tensors, source)? };
        self.lines.say(format_args!("dump {}", dump.folder.display()));
        Some(dump)
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
