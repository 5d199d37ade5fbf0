//! The folder that is published: who writes there, and that nothing in it is replaced.

use crate::cmd::build;
use crate::output;
use crate::published::{File as Row, INDEX, Index, MAX_BYTES};
use parbake::signature;
use parbake_model::Digest;
use parbake_model::owner::Owner;
use parbake_model::report::{Class, Report};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the names of files begin that are about to be published.
const STAGED: &str = ".publish-";

/// A folder in which no other process publishes meanwhile.
pub(super) struct Shelf {
    folder: PathBuf,
    _lock: Option<File>,
}

/// The digest of a file, and how many bytes were read for it.
pub(in crate::cmd) fn digest(path: &Path) -> io::Result<(Digest, u64)> {
    copy(&mut File::open(path)?, &mut io::sink())
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(Digest, u64)> {
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((Digest(hash.finalize().into()), size)),
            Ok(read) => {
                hash.update(&buffer[..read]);
                to.write_all(&buffer[..read])?;
                size += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Two files that want the same name.
pub(super) fn different(place: &Path, source: &Path, there: Digest, new: Digest) -> Report {
    let what = format!("`{}` is published already, and is another file", place.display());
    Report::new("PB-3403", Class::Failed, what)
        .with("published", format!("SHA-256 {there}"))
        .with("new", format!("SHA-256 {new}, {}", source.display()))
        .help("give the new one another name: who fetched the old one may count on it")
}

impl Shelf {
    /// Makes the folder if it is not there, and waits for another process that publishes in it.
    pub(super) fn open(folder: &Path) -> Result<Self, Report> {
        let refuse = |e: io::Error| build::cannot_write(folder).caused_by(e);
        std::fs::create_dir_all(folder).map_err(refuse)?;
        let path = folder.join(".publish.lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(refuse)?;
        let mut said = false;
        let lock = loop {
            match file.try_lock() {
                Ok(()) => break Some(file),
                Err(std::fs::TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut said, true) {
                        output::note(format!("waiting for another process that publishes in {}", folder.display()));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                // A file system without locks: files are still never replaced, only the index may lack a row.
                Err(std::fs::TryLockError::Error(_)) => break None,
            }
        };
        let shelf = Self { folder: folder.to_owned(), _lock: lock };
        shelf.sweep(folder);
        Ok(shelf)
    }

    /// Removes what killed processes of this host left.
    fn sweep(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().filter(|n| n.starts_with(STAGED)).and_then(Owner::of);
            if owner.and_then(|o| o.alive()) == Some(false) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// What is published.
    pub(super) fn index(&self) -> Result<Index, Report> {
        let path = self.folder.join(INDEX);
        let wrong = |why: String| {
            Report::new("PB-3404", Class::Failed, format!("`{}` cannot be added to", path.display()))
                .caused_by(why)
                .help("publish into another folder, or with the version of parbake that wrote this one")
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Index::empty()),
            Err(e) => return Err(super::unreadable(&path).caused_by(e)),
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|e| super::unreadable(&path).caused_by(e))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("it is longer than {MAX_BYTES} bytes")));
        }
        Index::from_json(&text).map_err(wrong)
    }

    /// Whether somebody signed the index.
    pub(super) fn signed(&self) -> bool {
        signature::beside(&self.folder.join(INDEX)).exists()
    }

    /// Copies a file to its place; true if it was there. One that is there is never replaced.
    pub(super) fn put(&self, source: &Path, row: &Row) -> Result<bool, Report> {
        let place = self.folder.join(&row.path);
        let refuse = |e: io::Error| build::cannot_write(&place).caused_by(e);
        if place.symlink_metadata().is_ok() {
            let (there, _) = digest(&place).map_err(|e| super::unreadable(&place).caused_by(e))?;
            return if there == row.sha256 { Ok(true) } else { Err(different(&place, source, there, row.sha256)) };
        }
        let folder = place.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder).map_err(refuse)?;
        self.sweep(folder);
        let staged = tempfile::Builder::new().prefix(&format!("{STAGED}{}-", Owner::this().tag())).tempfile_in(folder);
        let mut staged = staged.map_err(refuse)?;
        let mut from = File::open(source).map_err(|e| super::unreadable(source).caused_by(e))?;
        let (digest, _) = copy(&mut from, staged.as_file_mut()).map_err(refuse)?;
        if digest != row.sha256 {
            let what = format!("`{}` changed while it was published", source.display());
            return Err(Report::new("PB-3409", Class::Failed, what).help("publish it when nobody writes it any more"));
        }
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        staged.as_file().set_permissions(readable).and_then(|()| staged.as_file().sync_all()).map_err(refuse)?;
        staged.persist_noclobber(&place).map_err(|e| refuse(e.error))?;
        // The index that names it must not outlive its entry in the folder.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(refuse)?;
        Ok(false)
    }

    /// Writes one of the files that tell of the others, unless it says the same already.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Report> {
        let path = self.folder.join(name);
        if std::fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let refuse = |e: io::Error| build::cannot_write(&path).caused_by(e);
        let prefix = format!("{STAGED}{}-", Owner::this().tag());
        let mut staged = tempfile::Builder::new().prefix(&prefix).tempfile_in(&self.folder).map_err(refuse)?;
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let file = staged.as_file_mut();
        file.write_all(bytes).and_then(|()| file.set_permissions(readable)).map_err(refuse)?;
        file.sync_all().map_err(refuse)?;
        staged.persist(&path).map_err(|e| refuse(e.error))?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(refuse)
    }
}
