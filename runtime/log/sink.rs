//! Where the log is written: standard error, standard output, or a file that is opened when the first line comes.

use crate::driver::{self, Driver};
use parbake_model::settings::{Config, LogDestination};
use parbake_model::{LAUNCH_ABI, VERSION, owner};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An open destination.
pub(super) struct Sink {
    /// The process that opened it: a fork opens its own.
    process: u32,
    destination: LogDestination,
    /// The file; none for the standard streams, and where it could not be opened: lines go to standard error then.
    file: Option<File>,
    devices: AtomicBool,
}

/// The destination that the settings name, opened and with its header. Where a file cannot be opened, that is said once,
/// and standard error takes its place.
pub(super) fn of(config: &Config) -> Arc<Sink> {
    static OPEN: Mutex<Vec<Arc<Sink>>> = Mutex::new(Vec::new());
    let process = std::process::id();
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sink) = open.iter().find(|s| s.process == process && s.destination == config.log_dest) {
        return sink.clone();
    }
    let path = config.log_dest.path(process);
    let (file, error) = match path.as_deref().map(open_file) {
        Some(Ok(file)) => (Some(file), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let destination = config.log_dest.clone();
    let sink = Arc::new(Sink { process, destination, file, devices: AtomicBool::new(false) });
    open.push(sink.clone());
    drop(open);
    if let (Some(path), Some(error)) = (path, error) {
        UNWRITTEN
            .say(format_args!("the log cannot be opened at {}: {error}; it goes to standard error", path.display()));
    }
    sink.header(config);
    sink
}

/// Never waits: a pipe that nobody reads is an error. A terminal does not become this process's.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    // Standard error of a container is a pipe by that name.
    if kind.is_file() || kind.is_char_device() || kind.is_fifo() {
        return Ok(file);
    }
    Err(io::Error::other("it is no file, no pipe and no terminal"))
}

impl Sink {
    fn descriptor(&self) -> RawFd {
        match (&self.file, &self.destination) {
            (Some(file), _) => file.as_raw_fd(),
            (None, LogDestination::Stdout) => libc::STDOUT_FILENO,
            (None, _) => libc::STDERR_FILENO,
        }
    }

    /// Writes a whole line at once.
    pub(super) fn write(&self, sequence: u64, text: fmt::Arguments<'_>) {
        let line = line(self.process, sequence, text);
        if let Err(error) = write(self.descriptor(), line.as_bytes()) {
            UNWRITTEN.say(format_args!("lines of the log are lost: {error}"));
        }
    }

    /// Who writes, and what differs from the defaults.
    fn header(&self, config: &Config) {
        let (level, host) = (super::level(), owner::host());
        self.write(
            0,
            format_args!("{} log of parbake {VERSION}, launch ABI {LAUNCH_ABI}, level {level}, on {host}", now()),
        );
        for (name, value) in &config.set {
            self.write(0, format_args!("setting {name}={value}"));
        }
    }

    /// Driver and devices, once; asked for when a call is on one, so that the log is never what starts the driver.
    pub(super) fn describe_devices(&self) {
        if self.devices.swap(true, Ordering::Relaxed) {
            return;
        }
        match driver::driver() {
            Driver::Ready(ready) => {
                let module = driver::kernel_module().map(|v| format!(", kernel module {v}")).unwrap_or_default();
                self.write(0, format_args!("driver of CUDA {}{module}", ready.version));
                for d in &ready.devices {
                    self.write(
                        0,
                        format_args!("device cuda:{} {}, sm_{}, {} bytes", d.ordinal, d.name, d.arch, d.memory),
                    );
                }
                for (ordinal, error) in &ready.broken {
                    self.write(0, format_args!("device cuda:{ordinal} does not answer: {error}"));
                }
            }
            Driver::Absent { .. } => self.write(0, format_args!("no driver library")),
            Driver::Unusable { why } => self.write(0, format_args!("no driver that can be used: {why}")),
        }
    }
}

/// A warning that a process says once, on standard error.
pub(super) struct Warning(AtomicU32);

static UNWRITTEN: Warning = Warning::new();

impl Warning {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(super) fn say(&self, text: fmt::Arguments<'_>) {
        let process = std::process::id();
        if self.0.swap(process, Ordering::Relaxed) != process {
            // Nobody to tell that even this failed.
            let _ = write(libc::STDERR_FILENO, line(process, 0, format_args!("WARN {text}")).as_bytes());
        }
    }
}

fn line(process: u32, sequence: u64, text: fmt::Arguments<'_>) -> String {
    let mut line = format!("parbake {process}:{sequence} {text}");
    if line.contains(['\n', '\r']) {
        line = line.replace(['\n', '\r'], " ");
    }
    line.push('\n');
    line
}

fn write(descriptor: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    /// How often a stream that is full may be waited for, a tenth of a second each time.
    const PATIENCE: u32 = 20;
    let mut waits = 0;
    while !bytes.is_empty() {
        // SAFETY: the bytes are there; a descriptor that is not open is an error.
        let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
        if let Ok(written) = usize::try_from(written) {
            bytes = &bytes[written..];
            continue;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // Whoever gave the process this stream made it not wait.
            io::ErrorKind::WouldBlock if waits < PATIENCE => {
                waits += 1;
                let mut ready = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
                // SAFETY: one valid struct.
                unsafe { libc::poll(&raw mut ready, 1, 100) };
            }
            _ => return Err(error),
        }
    }
    Ok(())
}

/// The time in UTC, to the microsecond: `2026-11-30T11:36:08.123456Z`.
pub(super) fn now() -> String {
    let (tm, micros) = utc();
    let day = format!("{:04}-{:02}-{:02}", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    format!("{day}T{:02}:{:02}:{:02}.{micros:06}Z", tm.tm_hour, tm.tm_min, tm.tm_sec)
}

fn utc() -> (libc::tm, u32) {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() as libc::time_t;
    // SAFETY: all zeros is a valid `tm`.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: two valid pointers; this variant keeps no state.
    unsafe { libc::gmtime_r(&raw const seconds, &raw mut tm) };
    (tm, since.subsec_micros())
}
