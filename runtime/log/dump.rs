//! Dumps: a folder for each call, written before the launch and completed after it.
//!
//! ```text
//! <dumps>/
//!   .lock                                     taken while room is reserved
//!   .stage-<owner>                            a dump whose inputs are being written; locked meanwhile
//!   <UTC>-<process>@<host>-<call>-<op>/
//!     call.json                               everything but the values
//!     inputs.safetensors                      what the kernel reads, as it was before
//!     outputs.safetensors                     what it wrote, once it returned
//!     .reserved                               bytes that it may take, until it is complete
//! ```
//!
//! How many there are and how much they take is read from the folder, under a lock: so the bounds hold over threads and
//! processes, and removing dumps makes room.

use super::record::{Record, State};
use super::sink::Warning;
use super::tensors;
use super::values::{Source, Stop};
use crate::fault::Fault;
use crate::leftovers::is_locked;
use crate::tensor::Tensor;
use parbake_model::owner::Owner;
use parbake_model::settings::Config;
use parbake_model::trust;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const CALL: &str = "call.json";
pub(super) const INPUTS: &str = "inputs.safetensors";
pub(super) const OUTPUTS: &str = "outputs.safetensors";
const LOCK: &str = ".lock";
const STAGE: &str = ".stage-";
const RESERVED: &str = ".reserved";
/// What `call.json`, and the header of each file, may take of the bytes that are allowed.
const SMALL: u64 = 64 << 10;
/// How long to wait for others that reserve room.
const PATIENCE: Duration = Duration::from_secs(10);

static FULL: Warning = Warning::new();
static FAILED: Warning = Warning::new();

/// A dump that was begun.
pub(super) struct Dump {
    pub(super) folder: PathBuf,
    record: Record,
}

/// Why there is no dump.
enum Refusal {
    /// The bounds are reached.
    Full(String),
    /// It could not be written.
    Stop(Stop),
}

impl<T: Into<Stop>> From<T> for Refusal {
    fn from(stop: T) -> Self {
        Self::Stop(stop.into())
    }
}

/// Where dumps go.
pub(super) fn folder(config: &Config) -> PathBuf {
    config.dumps.clone().unwrap_or_else(|| config.workspace.join("dumps"))
}

/// The tensors that a record has: those that were given.
fn given(tensors: &[Tensor]) -> impl Iterator<Item = &Tensor> {
    tensors.iter().filter(|t| !t.is_absent())
}

impl Dump {
    /// Writes a call and what its kernel will read. `None` if there is no room, or it cannot be written; that is said
    /// once.
    ///
    /// # Safety
    /// The tensors' memory is valid.
    pub(super) unsafe fn begin(config: &Config, record: Record, tensors: &[Tensor], source: &Source) -> Option<Self> {
        let root = folder(config);
        // SAFETY: the caller vouches for the memory.
        match unsafe { Self::write(&root, config, record, tensors, source) } {
            Ok(dump) => Some(dump),
            Err(Refusal::Full(why)) => {
                FULL.say(format_args!("calls are not dumped any more: {why} in {}", root.display()));
                None
            }
            Err(Refusal::Stop(why)) => {
                FAILED.say(format_args!("a call is not dumped to {}: {why}", root.display()));
                None
            }
        }
    }

    unsafe fn write(
        root: &Path,
        config: &Config,
        record: Record,
        tensors: &[Tensor],
        source: &Source,
    ) -> Result<Self, Refusal> {
        let read = |of: &dyn Fn(&super::record::Argument) -> bool| -> Vec<(&str, Tensor)> {
            let chosen = record.tensors.iter().zip(given(tensors)).filter(|(argument, _)| of(argument));
            chosen.map(|(argument, tensor)| (argument.name.as_str(), *tensor)).collect()
        };
        let inputs = if record.captured { Vec::new() } else { read(&|a| a.is_read()) };
        let outputs = if record.captured { Vec::new() } else { read(&|a| a.is_written()) };
        let values = inputs.iter().chain(&outputs).map(|(_, t)| tensors::bytes(t)).fold(SMALL, u64::saturating_add);
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        trust::check_scratch(root, config.workspace_shared).map_err(|e| io::Error::other(e.to_string()))?;
        let (stage, _used) = reserve(root, values, config)?;
        let staged = (|| {
            if !record.captured {
                // SAFETY: the caller vouches for the memory.
                unsafe { tensors::write(&stage.join(INPUTS), &inputs, source)? };
            }
            create(&stage.join(CALL), &json(&record))?;
            Ok::<PathBuf, Stop>(settle(&stage, root, &name(&record))?)
        })();
        match staged {
            Ok(folder) => Ok(Self { folder, record }),
            Err(stop) => {
                let _ = std::fs::remove_dir_all(&stage);
                Err(stop.into())
            }
        }
    }

    /// Notes how the call ended, and what the kernel wrote.
    ///
    /// # Safety
    /// As for [`Dump::begin`].
    pub(super) unsafe fn end(mut self, tensors: &[Tensor], source: &Source, error: Option<String>) {
        self.record.state = if error.is_some() { State::Failed } else { State::Done };
        let with_values = error.is_none() && !self.record.captured;
        self.record.error = error;
        let written = self.record.tensors.iter().zip(given(tensors)).filter(|(argument, _)| argument.is_written());
        let outputs: Vec<_> = written.map(|(argument, tensor)| (argument.name.as_str(), *tensor)).collect();
        let (part, whole) = (self.folder.join(".outputs"), self.folder.join(OUTPUTS));
        let mut saved: Result<(), Stop> = Ok(());
        if with_values {
            // SAFETY: the caller vouches for the memory.
            saved = unsafe { tensors::write(&part, &outputs, source) };
            saved = saved.and_then(|()| Ok(std::fs::rename(&part, whole)?));
        }
        if saved.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        let part = self.folder.join(".call");
        let replaced = create(&part, &json(&self.record))
            .and_then(|()| std::fs::rename(&part, self.folder.join(CALL)))
            .and_then(|()| std::fs::remove_file(self.folder.join(RESERVED)));
        if let Err(why) = saved.and(replaced.map_err(Stop::from)) {
            FAILED.say(format_args!("a dump is not complete: {}: {why}", self.folder.display()));
        }
    }
}

impl super::record::Argument {
    pub(super) fn is_read(&self) -> bool {
        self.role != parbake_model::op::Role::Out
    }
    pub(super) fn is_written(&self) -> bool {
        self.role != parbake_model::op::Role::In
    }
}

fn json(record: &Record) -> Vec<u8> {
    serde_json::to_vec_pretty(record).expect("bug: a record is plain data")
}

fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

/// `20261130T113608` of `2026-11-30T11:36:08.123456Z`.
fn stamp(time: &str) -> String {
    time.chars().take_while(|c| *c != '.').filter(|c| !"-:".contains(*c)).collect()
}

/// `rmsnorm` of `norm/rmsnorm`.
fn short(op: &str) -> &str {
    op.rsplit('/').next().unwrap_or(op)
}

/// Numbers of processes are told apart within a host only.
fn name(record: &Record) -> String {
    let Record { process, host, sequence, .. } = record;
    format!("{}-{process}@{host}-{sequence}-{}", stamp(&record.time), short(&record.op))
}

/// Gives a folder its name. Processes of several containers may have the same number, on a host of the same name: the
/// second then gets another one.
fn settle(stage: &Path, root: &Path, name: &str) -> io::Result<PathBuf> {
    let others = (2..=99).map(|n| format!("{name}-{n}"));
    for name in std::iter::once(name.to_owned()).chain(others) {
        let folder = root.join(name);
        match std::fs::rename(stage, &folder) {
            Ok(()) => return Ok(folder),
            Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(format!("there are a hundred dumps called {name}")))
}

/// Makes the folder of a dump that will take so many bytes, if the bounds allow it, and its lock.
fn reserve(root: &Path, bytes: u64, config: &Config) -> Result<(PathBuf, Option<File>), Refusal> {
    let _turn = lock(&root.join(LOCK))?;
    let (mut count, mut taken) = (0u64, 0u64);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == LOCK || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let owner = name.to_str().and_then(|name| name.strip_prefix(STAGE)).and_then(Owner::of);
        // In another container on this host a process lives that cannot be seen from here: its lock can.
        if owner.is_some_and(|owner| owner.alive() == Some(false)) && !is_locked(&entry.path()) {
            // What a process that died while it wrote left is whole for nobody.
            let _ = std::fs::remove_dir_all(entry.path());
            continue;
        }
        count += 1;
        folders.push(entry.path());
    }
    if count >= config.dump_count {
        return Err(Refusal::Full(format!("{count} dumps, as many as PARBAKE_DUMP_COUNT allows,")));
    }
    for folder in folders {
        taken = taken.saturating_add(size(&folder));
    }
    if taken.saturating_add(bytes) > config.dump_bytes {
        let most = config.dump_bytes;
        return Err(Refusal::Full(format!("{taken} bytes of dumps and {bytes} more, PARBAKE_DUMP_BYTES is {most},")));
    }
    let stage = root.join(Owner::this().name(STAGE));
    DirBuilder::new().mode(0o700).create(&stage)?;
    if let Err(error) = create(&stage.join(RESERVED), bytes.to_string().as_bytes()) {
        let _ = std::fs::remove_dir_all(&stage);
        return Err(error.into());
    }
    // Where there are no locks the number of the process has to do.
    let used = File::open(&stage).ok().filter(|folder| folder.try_lock().is_ok());
    Ok((stage, used))
}

/// What a dump takes, or will have taken.
fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there = files.filter_map(|file| file.metadata().ok()).map(|m| m.len()).fold(0, u64::saturating_add);
    let reserved = std::fs::read_to_string(folder.join(RESERVED)).ok().and_then(|text| text.parse().ok());
    there.max(reserved.unwrap_or(0))
}

/// The lock, or nothing where the file system has none.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let nofollow = libc::O_NOFOLLOW;
    let file =
        File::options().write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow).open(path)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("others hold its lock")),
            Err(TryLockError::Error(error)) if Fault::of(&error) == Fault::Unsupported => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::from_settings([]).unwrap()
    }

    #[test]
    fn what_is_being_written_in_another_container_stays_and_what_a_dead_process_left_goes() {
        let root = tempfile::tempdir().unwrap();
        // As it looks from a container where the number of the process means nothing.
        let name = |count| format!("{STAGE}{}-{count}", Owner { process: u32::MAX, ..Owner::this() }.tag());
        let [used, left] = [name(1), name(2)].map(|name| root.path().join(name));
        [&used, &left].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let lock = File::open(&used).unwrap();
        lock.lock().unwrap();
        let (stage, held) = reserve(root.path(), 1, &config()).ok().unwrap();
        assert!(used.exists() && !left.exists());
        assert!(held.is_some() && is_locked(&stage), "others see that it is in use");
    }

    #[test]
    fn dumps_of_the_same_name_lie_side_by_side() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (0..3)
            .map(|i| {
                let (stage, _used) = reserve(root.path(), i, &config()).ok().unwrap();
                settle(&stage, root.path(), "dump").unwrap()
            })
            .collect();
        assert_eq!(names, ["dump", "dump-2", "dump-3"].map(|name| root.path().join(name)));
        assert!(names.iter().all(|folder| folder.join(RESERVED).is_file()));
    }
}
