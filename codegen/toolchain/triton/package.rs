//! An installed Triton: where it lies, which one it is, and for which Python.

use super::super::ToolchainError;
use super::super::folder::io;
use parbake_model::{Digest, KeyFields};
use std::path::{Path, PathBuf};

/// The versions whose compiler is called as `driver.py` does it.
const KNOWN: &str = "3.6.";

/// A package as pip left it in a folder of packages.
#[derive(Clone, Debug)]
pub(super) struct Package {
    /// The folder of packages.
    pub(super) site: PathBuf,
    /// The folder beside it that says what it is.
    pub(super) info: PathBuf,
    pub(super) version: String,
    /// `3.11`: its library fits no other.
    pub(super) python: String,
    /// Over every file, without reading the large ones.
    pub(super) digest: Digest,
}

impl Package {
    /// Reads what a folder of packages has; `None` if Triton is not there.
    ///
    /// # Errors
    /// If it is of another version, or not whole.
    pub(super) fn read(site: &Path) -> Option<Result<Self, ToolchainError>> {
        let entries = std::fs::read_dir(site).ok()?.flatten();
        let mut infos: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        infos.retain(|path| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            name.starts_with("triton-") && name.ends_with(".dist-info")
        });
        infos.sort();
        infos.pop().map(|info| Self::of(site, info))
    }

    fn of(site: &Path, info: PathBuf) -> Result<Self, ToolchainError> {
        let unusable = |why: String| ToolchainError::Unusable { path: site.to_owned(), why };
        let name = info.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let version = name.trim_start_matches("triton-").trim_end_matches(".dist-info").to_owned();
        if !version.starts_with(KNOWN) {
            return Err(unusable(format!("is Triton {version}, {KNOWN}* is known")));
        }
        let read = |file: &str| {
            let path = info.join(file);
            std::fs::read_to_string(&path).map_err(io("read", &path))
        };
        let wheel = read("WHEEL")?;
        let python = wheel.lines().find_map(|line| line.strip_prefix("Tag: cp3")?.split('-').next());
        let python = python.ok_or_else(|| unusable("its wheel names no Python".to_owned()))?;
        let python = format!("3.{python}");
        let digest = digest(site, &read("RECORD")?)?;
        Ok(Self { site: site.to_owned(), info, version, python, digest })
    }

    /// The assembler for every architecture: of two, the one that knows the newer ones. It is of CUDA 12.9 where the
    /// other is of 12.8, and all images of a bundle want one packer.
    pub(super) fn ptxas(&self) -> PathBuf {
        let folder = self.site.join("triton/backends/nvidia/bin");
        let newer = folder.join("ptxas-blackwell");
        if newer.is_file() { newer } else { folder.join("ptxas") }
    }
}

/// What the record lists of the package, by digest. The texts are read, because people edit them; of the libraries the
/// size is compared, and pip has compared the digest.
fn digest(site: &Path, record: &str) -> Result<Digest, ToolchainError> {
    let mut lines: Vec<&str> = record.lines().filter(|line| line.starts_with("triton/")).collect();
    lines.sort_unstable();
    let mut key = KeyFields::new("parbake.toolchain.triton.v1");
    for line in lines {
        let mut fields = line.rsplitn(3, ',');
        let (Some(bytes), Some(hash), Some(name)) = (fields.next(), fields.next(), fields.next()) else { continue };
        // Compiled texts, and what has no digest because it was written later.
        if hash.is_empty() || name.ends_with(".pyc") {
            continue;
        }
        let path = site.join(name);
        if name.ends_with(".py") {
            let text = std::fs::read(&path).map_err(io("read", &path))?;
            key = key.with(name, Digest::of(&text));
            continue;
        }
        let size = std::fs::metadata(&path).map_err(io("read", &path))?.len();
        if bytes.parse() != Ok(size) {
            let why = format!("`{name}` has {size} bytes, its record says {bytes}");
            return Err(ToolchainError::Unusable { path: site.to_owned(), why });
        }
        key = key.with(name, hash);
    }
    Ok(key.finish().digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package of two files.
    fn package(version: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let info = folder.path().join(format!("triton-{version}.dist-info"));
        std::fs::create_dir_all(&info).unwrap();
        std::fs::create_dir_all(folder.path().join("triton/_C")).unwrap();
        std::fs::write(info.join("WHEEL"), "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_28_x86_64\n").unwrap();
        let record = "bin/x,,\ntriton/_C/lib.so,sha256=abc,4\ntriton/__init__.py,sha256=def,1\n\
                      triton/__pycache__/x.pyc,,\n";
        std::fs::write(info.join("RECORD"), record).unwrap();
        std::fs::write(folder.path().join("triton/_C/lib.so"), "four").unwrap();
        std::fs::write(folder.path().join("triton/__init__.py"), "1").unwrap();
        folder
    }

    #[test]
    fn an_edit_is_another_package_and_a_cut_library_none() {
        assert!(Package::read(Path::new("/nonexistent")).is_none());
        let folder = package("3.6.0");
        let read = || Package::read(folder.path()).unwrap();
        let first = read().unwrap();
        assert_eq!((first.version.as_str(), first.python.as_str()), ("3.6.0", "3.11"));
        assert_eq!(read().unwrap().digest, first.digest);
        std::fs::write(folder.path().join("triton/__init__.py"), "2").unwrap();
        assert_ne!(read().unwrap().digest, first.digest);
        std::fs::write(folder.path().join("triton/_C/lib.so"), "cut").unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.contains("`triton/_C/lib.so` has 3 bytes, its record says 4"), "{error}");
        let other = Package::read(package("3.4.0").path()).unwrap().unwrap_err().to_string();
        assert!(other.contains("is Triton 3.4.0, 3.6.* is known"), "{other}");
    }
}
