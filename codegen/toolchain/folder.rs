//! The private folder of one child compilation: the unit and its closure under their include names, nothing else.

use super::diagnosis::keeps;
use super::{CompileManifest, ToolchainError, Unit};
use parbake_model::owner::{KEPT, Owner};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An I/O error with what was tried and where.
pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ToolchainError {
    move |source| ToolchainError::Io { doing, path: path.to_owned(), source }
}

/// What the files of one compilation take, generously.
const ROOM: u64 = 64 << 20;

/// A fresh folder below the first of some places that can be written and has room; if none has room, below the last
/// that can be written. It goes away with the value. Its name tells whose it is: a killed process leaves it behind.
pub(super) fn fresh(places: &[PathBuf]) -> Result<Folder, ToolchainError> {
    Ok(Folder::of(make(places, &format!("compile-{}-", Owner::this().tag()), false)?, false))
}

/// The folder of one compilation.
pub(super) struct Folder {
    folder: TempDir,
    kept: bool,
    /// Locked while it is in use, so that other hosts see it too.
    _lock: Option<File>,
}

impl Folder {
    /// A fresh folder, which stays if the options ask for intermediate files: under a name that tells what was compiled,
    /// and that no collection takes.
    pub(super) fn new(places: &[PathBuf], manifest: &CompileManifest) -> Result<Self, ToolchainError> {
        if !keeps(manifest) {
            return fresh(places);
        }
        check_plain(&manifest.unit.name)?;
        let name = manifest.unit.name.trim_end_matches(".cu").trim_end_matches(".py");
        let folder = make(places, &format!("{KEPT}{name}-"), true)?;
        tracing::info!(folder = %folder.path().display(), "the files of this compilation stay");
        Ok(Self::of(folder, true))
    }

    fn of(folder: TempDir, kept: bool) -> Self {
        let lock = File::open(folder.path()).ok().filter(|file| file.try_lock().is_ok());
        Self { folder, kept, _lock: lock }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What the compiler said, and where the files are if they stay.
    pub(super) fn log(&self, said: String) -> String {
        if !self.kept {
            return said;
        }
        let separator = if said.is_empty() { "" } else { "\n" };
        format!("{said}{separator}kept: {}", self.path().display())
    }
}

/// Makes a folder of what will be run, and what is missing above it: others may read, and nobody else may write there,
/// whatever the umask is.
pub(super) fn make_for_all(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

fn make(places: &[PathBuf], prefix: &str, stays: bool) -> Result<TempDir, ToolchainError> {
    let (mut cramped, mut refused) = (None, None);
    for place in places {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(place);
        let made = made.map_err(io("make the folder", place)).and_then(|()| {
            let made = tempfile::Builder::new().prefix(prefix).disable_cleanup(stays).tempdir_in(place);
            made.map_err(io("make a folder in", place))
        });
        match made {
            Ok(folder) if room(folder.path()).is_none_or(|room| room >= ROOM) => return Ok(folder),
            Ok(folder) => cramped = Some(folder),
            Err(error) => refused = Some(error),
        }
    }
    cramped.ok_or_else(|| refused.expect("bug: no place for a compilation"))
}

/// Bytes that this user may still write, if the file system says so.
fn room(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero is a valid `statvfs`.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is terminated, and both live through the call.
    let code = unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) };
    (code == 0).then(|| facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Writes a text below `folder` under a relative name.
pub(super) fn write(folder: &Path, name: &str, text: &[u8]) -> Result<(), ToolchainError> {
    check_name(name)?;
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io("make the folder", parent))?;
    }
    std::fs::write(&path, text).map_err(io("write", &path))
}

/// Writes a unit and its closure.
pub(super) fn write_unit(folder: &Path, unit: &Unit) -> Result<(), ToolchainError> {
    check_plain(&unit.name)?;
    for (name, text) in &unit.closure.headers {
        write(folder, name, text.as_bytes())?;
    }
    write(folder, &unit.name, unit.text.as_bytes())
}

/// The unit lies in the folder itself.
fn check_plain(name: &str) -> Result<(), ToolchainError> {
    check_name(name)?;
    if name.contains('/') { Err(ToolchainError::Name { name: name.to_owned() }) } else { Ok(()) }
}

/// Names come from rendered sources: they must not leave the folder, nor look like an option of a compiler.
pub(super) fn check_name(name: &str) -> Result<(), ToolchainError> {
    let plain = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.chars().any(|c| c.is_control() || c == '\\')
    };
    if name.split('/').all(plain) { Ok(()) } else { Err(ToolchainError::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_written_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let places = [file.clone(), folder.path().to_owned()];
        let fresh_one = fresh(&places).unwrap();
        assert_eq!(fresh_one.path().parent(), Some(folder.path()));
        let name = fresh_one.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(Owner::of(&name), Some(Owner::this()));
        assert_eq!(fresh(&[file]).err().unwrap().code(), "PB-1516");
        assert!(room(folder.path()).is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_folder_in_use_is_locked() {
        let place = tempfile::tempdir().unwrap();
        let used = fresh(&[place.path().to_owned()]).unwrap();
        let look = File::open(used.path()).unwrap();
        assert!(matches!(look.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
        drop(used);
        assert!(look.try_lock().is_ok());
    }

    #[test]
    fn names_stay_inside() {
        for good in ["a.cu", "parbake/vec.cuh", "rmsnorm-bf16-b1024-3fa29c01d7e4.cu"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "../a", "a/../b", "a//b", "-o", ".x", "a\n", "a\0"] {
            assert_eq!(check_name(bad).unwrap_err().code(), "PB-1507", "{bad:?}");
        }
    }
}
