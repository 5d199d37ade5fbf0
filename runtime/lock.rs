//! Locks that save work. Correctness never rests on them: publishing is safe without.

use crate::workspace::Workspace;
use parbake_model::Digest;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

/// How long to wait for another process that compiles the same thing.
const PATIENCE: Duration = Duration::from_secs(120);

/// Held while one build is made; released when dropped, or by the kernel if the process dies.
#[derive(Debug)]
pub(crate) struct BuildLock {
    _file: Option<File>,
}

impl BuildLock {
    /// Takes the lock of a build, saying once that it waits and for whom. Gives up after two minutes, and at once
    /// where locks do not work or nothing can be written: compiling twice is better than failing.
    pub(crate) fn take(workspace: &Workspace, build_key: Digest, what: &str) -> Self {
        let none = Self { _file: None };
        let Ok(folder) = workspace.make(workspace.locks()) else { return none };
        let path = folder.join(format!("{build_key}.lock"));
        let Ok(mut file) = File::options().read(true).write(true).create(true).truncate(false).open(&path) else {
            return none;
        };
        let start = Instant::now();
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    let _ = file.set_len(0);
                    let _ = file.rewind();
                    let _ = writeln!(file, "process {} compiles {what}", std::process::id());
                    return Self { _file: Some(file) };
                }
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {}
                Err(TryLockError::WouldBlock) => {
                    tracing::warn!(lock = %path.display(), "waited two minutes for another process; compiling here too");
                    return none;
                }
                Err(TryLockError::Error(error)) => {
                    tracing::debug!(lock = %path.display(), %error, "locks do not work here; going on without");
                    return none;
                }
            }
            if !said {
                said = true;
                let mut holder = String::new();
                let _ = file.rewind();
                let _ = (&file).take(200).read_to_string(&mut holder);
                tracing::warn!(lock = %path.display(), holder = holder.trim(), "waiting for another process that compiles {what}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
