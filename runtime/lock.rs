//! Locks that save work. Correctness never rests on them: publishing is safe without.
//!
//! They are the kernel's, on a file that is opened close-on-exec: a process that dies releases them, whatever compilers
//! it leaves behind.

use crate::fault;
use crate::workspace::Workspace;
use parbake_model::Digest;
use parbake_model::owner::{self, Owner};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PAUSE: Duration = Duration::from_millis(10);
/// How often the lock's file may have gone before locks are taken for not working. A collection takes it once.
const GONE: u32 = 20;

/// Held while one build is made; released when dropped, or by the kernel if the process dies.
#[derive(Debug)]
pub(crate) struct BuildLock {
    _file: Option<File>,
}

impl BuildLock {
    /// Takes the lock of a build, saying once, and at once, that it waits and for whom. Gives up after `limit`, and at
    /// once where locks do not work or nothing can be written: compiling twice is better than failing.
    pub(crate) fn take(workspace: &Workspace, build_key: Digest, what: &str, limit: Duration) -> Self {
        let path = workspace.locks().join(format!("{build_key}.lock"));
        let mut next = || fault::retried(|| open(workspace, &path)).and_then(|file| attempt(file, &path));
        Self::wait(&mut next, &path, what, limit)
    }

    /// Makes attempts until one succeeds or there is no point in another.
    fn wait(next: &mut dyn FnMut() -> io::Result<Attempt>, path: &Path, what: &str, limit: Duration) -> Self {
        let none = Self { _file: None };
        let start = Instant::now();
        let (mut said, mut gone) = (None, 0);
        loop {
            match next() {
                Ok(Attempt::Taken(file)) => {
                    sign(&file, what);
                    return Self { _file: Some(file) };
                }
                Ok(Attempt::Gone) => {
                    gone += 1;
                    if gone >= GONE || start.elapsed() >= limit {
                        let lock = path.display();
                        tracing::debug!(%lock, "the file of a lock is another one each time; going on without");
                        return none;
                    }
                }
                Ok(Attempt::Held(file)) => {
                    let waited = start.elapsed();
                    let holder = holder(&file);
                    // A holder signs right after it took the lock, so a missing name is worth a few looks.
                    if said.is_none() && (holder.is_some() || waited > 5 * PAUSE) {
                        let holder = said.insert(holder.unwrap_or_else(|| "another process".into()));
                        tracing::warn!("waiting for {holder}, which compiles {what} (lock {})", path.display());
                    }
                    if waited >= limit {
                        let holder = said.unwrap_or_default();
                        tracing::warn!("waited {} s for {holder}; compiling {what} here too", limit.as_secs());
                        return none;
                    }
                }
                Err(error) => {
                    tracing::debug!(lock = %path.display(), %error, "no lock can be taken here; going on without");
                    return none;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn open(workspace: &Workspace, path: &Path) -> io::Result<File> {
    workspace.make(workspace.locks())?;
    let file = workspace.create().read(true).truncate(false).open(path)?;
    workspace.share(path, 0o660);
    Ok(file)
}

/// What came of an attempt to lock an open file.
enum Attempt {
    Taken(File),
    /// Somebody else has it.
    Held(File),
    /// Another file has that name by now, or none: old lock files are collected, and a lock on one excludes nobody.
    Gone,
}

fn attempt(file: File, path: &Path) -> io::Result<Attempt> {
    match file.try_lock() {
        Ok(()) => {
            let place = |m: std::fs::Metadata| (m.dev(), m.ino());
            let there = match std::fs::metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Gone),
                there => there?,
            };
            Ok(if place(file.metadata()?) == place(there) { Attempt::Taken(file) } else { Attempt::Gone })
        }
        Err(TryLockError::WouldBlock) => Ok(Attempt::Held(file)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes who holds the lock. A full disk is no reason not to hold it.
fn sign(mut file: &File, what: &str) {
    let Owner { process, host, .. } = Owner::this();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let line = format!("process {process} on {host} since {since} compiles {what}\n");
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(line.as_bytes()));
}

/// Who holds the lock, in words; `None` if the holder did not sign.
fn holder(mut file: &File) -> Option<String> {
    let mut line = String::new();
    file.rewind().ok()?;
    file.take(300).read_to_string(&mut line).ok()?;
    describe(&line, SystemTime::now())
}

fn describe(line: &str, now: SystemTime) -> Option<String> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| words.next().filter(|w| *w == name).and_then(|_| words.next());
    let (process, host, since) = (after("process")?, after("on")?, after("since")?);
    // Another host's clock may be ahead of ours.
    let age = now.duration_since(UNIX_EPOCH + Duration::from_secs(since.parse().ok()?)).unwrap_or_default();
    let elsewhere = if host == owner::host() { "" } else { " (another host)" };
    Some(format!("process {process} on {host}{elsewhere} since {} s", age.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_described() {
        let here = owner::host();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let line = |host: &str| format!("process 12 on {host} since 1000 compiles k for host\n");
        assert_eq!(describe(&line(&here), at(1007)).unwrap(), format!("process 12 on {here} since 7 s"));
        assert_eq!(describe(&line("other"), at(900)).unwrap(), "process 12 on other (another host) since 0 s");
        for cut in ["", "process", "process 12 on", "process 12 on x since soon", "12 on x"] {
            assert_eq!(describe(cut, at(0)), None, "{cut}");
        }
    }

    #[test]
    fn a_lock_on_a_file_that_has_gone_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(folder.path().join("w"));
        let path = workspace.locks().join("k.lock");
        let file = || open(&workspace, &path).unwrap();
        let stale = file();
        let held = attempt(file(), &path).unwrap();
        assert!(matches!(held, Attempt::Taken(_)));
        assert!(matches!(attempt(file(), &path), Ok(Attempt::Held(_))));
        std::fs::remove_file(&path).unwrap();
        drop(held);
        // Nobody holds the old file, but it is no longer the one that others lock; nor once there is a new one.
        assert!(matches!(attempt(stale.try_clone().unwrap(), &path), Ok(Attempt::Gone)));
        let new = file();
        assert!(matches!(attempt(stale, &path), Ok(Attempt::Gone)));
        assert!(matches!(attempt(new, &path), Ok(Attempt::Taken(_))));
    }
    #[test]
    fn a_file_that_is_another_one_each_time_ends_the_wait() {
        let wait = |next: &mut dyn FnMut() -> io::Result<Attempt>| {
            let mut tries = 0;
            let mut next = || {
                tries += 1;
                assert!(tries < 1000, "a busy loop");
                next()
            };
            let lock = BuildLock::wait(&mut next, Path::new("k.lock"), "k", Duration::from_secs(60));
            (tries, lock._file.is_some())
        };
        // Where an open file and its name never have the same number.
        assert_eq!(wait(&mut || Ok(Attempt::Gone)), (GONE, false));
        assert_eq!(wait(&mut || Err(io::ErrorKind::PermissionDenied.into())), (1, false));
        // Collected once or twice meanwhile.
        let mut left = 2;
        let taken = wait(&mut || {
            left -= 1;
            if left > 0 { Ok(Attempt::Gone) } else { Ok(Attempt::Taken(tempfile::tempfile()?)) }
        });
        assert_eq!(taken, (2, true));
    }

    #[test]
    fn a_name_that_cannot_be_looked_at_is_an_error_and_none_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.lock");
        let file = || File::create(&path).unwrap();
        assert!(matches!(attempt(file(), &path), Ok(Attempt::Taken(_))));
        // A name below a file: the look at it fails, and would each time.
        assert!(attempt(file(), &path.join("below")).is_err());
        let stale = file();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(attempt(stale, &path), Ok(Attempt::Gone)));
    }
}
