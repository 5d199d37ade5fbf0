//! The private folder of one child compilation: the unit and its closure under their include names, nothing else.

use super::{ToolchainError, Unit};
use std::path::Path;
use tempfile::TempDir;

/// An I/O error with what was tried and where.
pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ToolchainError {
    move |source| ToolchainError::Io { doing, path: path.to_owned(), source }
}

/// A fresh folder below `scratch`, which is made if needed. It goes away with the value.
pub(super) fn fresh(scratch: &Path) -> Result<TempDir, ToolchainError> {
    std::fs::create_dir_all(scratch).map_err(io("make the folder", scratch))?;
    let folder = tempfile::Builder::new().prefix("compile-").tempdir_in(scratch);
    folder.map_err(io("make a folder in", scratch))
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
    if unit.name.contains('/') {
        return Err(ToolchainError::Name { name: unit.name.clone() });
    }
    for (name, text) in &unit.closure.headers {
        write(folder, name, text.as_bytes())?;
    }
    write(folder, &unit.name, unit.text.as_bytes())
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
    fn names_stay_inside() {
        for good in ["a.cu", "parbake/vec.cuh", "rmsnorm-bf16-b1024-3fa29c01d7e4.cu"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "../a", "a/../b", "a//b", "-o", ".x", "a\n", "a\0"] {
            assert_eq!(check_name(bad).unwrap_err().code(), "PB-1507", "{bad:?}");
        }
    }
}
