//! Files that are written whole or not at all.

use parbake_model::report::{Class, Report};
use std::io::Write;
use std::path::Path;

/// Finds out before compiling whether the bundle can be written.
pub(crate) fn check_output(path: &Path) -> Result<(), Report> {
    let folder = folder_of(path);
    tempfile::NamedTempFile::new_in(folder).map(drop).map_err(|e| cannot_write(path).caused_by(e))
}

pub(crate) fn cannot_write(path: &Path) -> Report {
    Report::new("PB-1117", Class::Environment, format!("cannot write {}", path.display()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Report> {
    write_with(path, |file| file.write_all(bytes))
}

/// Writes a file piece by piece: whole or not at all.
pub(crate) fn write_with(
    path: &Path,
    work: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
) -> Result<(), Report> {
    let refuse = |e: std::io::Error| cannot_write(path).caused_by(e);
    let mut file = tempfile::NamedTempFile::new_in(folder_of(path)).map_err(refuse)?;
    work(file.as_file_mut()).and_then(|()| file.as_file().sync_all()).map_err(refuse)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), readable).map_err(refuse)?;
    file.persist(path).map(drop).map_err(|e| refuse(e.error))
}
