//! A file that is being fetched: beside its place, named after its hash, so that whoever fetches it next goes on with it,
//! from whatever source.

use crate::output;
use parbake_model::Digest;
use parbake_model::owner::Owner;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How the names of these files begin. No look-up takes them for bundles.
const PREFIX: &str = ".part-";

/// How often somebody else's file is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// What nobody went on with for so long goes away.
const OLD: Duration = Duration::from_secs(7 * 86_400);

/// Locked while it is written, so two processes never write the same one. The lock is the kernel's, and goes with a process
/// that is killed.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    /// Whether it is left for the next one if it is not completed.
    keep: bool,
}

impl Partial {
    /// The file for a hash. Waits while another process works on it; one that got nowhere for `patience`, and a file
    /// system without locks, are evaded with a file of our own.
    pub(super) fn take(folder: &Path, hash: Digest, name: &str, patience: Duration) -> io::Result<Self> {
        let path = folder.join(format!("{PREFIX}{hash}"));
        let (mut said, mut seen, mut since) = (false, 0, Instant::now());
        loop {
            let file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {
                    let same = std::fs::metadata(&path).is_ok_and(|there| there.ino() == of(&file));
                    // Else it got to its place, or was given up, while we opened it.
                    if same {
                        return Ok(Self { path, file, keep: true });
                    }
                }
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut said, true) {
                        output::note(format!("waiting for another process that fetches {name}"));
                    }
                    let size = file.metadata().map_or(0, |m| m.len());
                    if size != seen {
                        (seen, since) = (size, Instant::now());
                    } else if since.elapsed() > patience {
                        return Self::own(folder, hash);
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(_)) => return Self::own(folder, hash),
            }
        }
    }

    fn own(folder: &Path, hash: Digest) -> io::Result<Self> {
        let path = folder.join(Owner::this().name(&format!("{PREFIX}{hash}-")));
        Ok(Self { file: open(&path)?, path, keep: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Throws away what is in it.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Adds to its end.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(bytes)
    }

    /// Makes what is in it last.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Nobody is to go on with it.
    pub(super) fn give_up(&mut self) {
        self.keep = false;
    }

    /// Puts it into its place.
    pub(super) fn install(mut self, place: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, place)?;
        // There is nothing to remove under the old name, and somebody else's may be there by now.
        self.keep = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let ours = || std::fs::metadata(&self.path).is_ok_and(|there| there.ino() == of(&self.file));
        if (!self.keep || self.len().is_ok_and(|len| len == 0)) && ours() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The number of an open file; 0 is none's.
fn of(file: &File) -> u64 {
    file.metadata().map_or(0, |m| m.ino())
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).mode(0o644).open(path)
}

/// A file that is not gone on with.
pub(super) fn scratch(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", Owner::this().tag())).tempfile_in(folder)
}

/// Removes what was begun long ago and never completed.
pub(super) fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|n| n.starts_with(PREFIX)) else { continue };
        let age = entry.metadata().and_then(|m| m.modified()).map(|t| SystemTime::now().duration_since(t));
        let old = age.is_ok_and(|age| age.is_ok_and(|age| age > OLD));
        // One of our own is nobody's once its process is gone.
        let orphan = Owner::of(name).and_then(|o| o.alive()) == Some(false);
        if (old || orphan) && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_gone_on_with_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.pbk");
        let take = |patience: u64| {
            Partial::take(folder.path(), Digest::default(), "a.pbk", Duration::from_millis(patience)).unwrap()
        };
        let mut part = take(1);
        part.add(b"abc").unwrap();
        // Whoever does not get it has one of its own, which goes away.
        let mut own = take(1);
        own.add(b"x").unwrap();
        assert_ne!(own.path(), part.path());
        drop((own, part));
        let mut part = take(1);
        assert_eq!(part.len().unwrap(), 3);
        part.add(b"de").unwrap();
        part.install(&place).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"abcde");
        let mut part = take(1);
        part.add(b"x").unwrap();
        part.give_up();
        drop(part);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_is_old_or_orphaned_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let dead = Owner { started: 1, ..Owner::this() };
        for name in [".part-1".to_owned(), ".part-2".to_owned(), format!(".part-3-{}", dead.tag()), "x.pbk".to_owned()]
        {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let old = File::options().write(true).open(folder.path().join(".part-2")).unwrap();
        old.set_modified(SystemTime::now() - 2 * OLD).unwrap();
        drop(old);
        sweep(folder.path());
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".part-1", "x.pbk"]);
    }
}
