//! The writable workspace. Nothing is created before something must be written.
//!
//! ```text
//! <workspace>/
//!   gen/<uri>@<source_key, 12 digits>/   rendered unit and copied headers, written only if different
//!   store/v1/<source_key>/<target>/<build_key>/
//!     kernel.cubin | kernel.so           the artifact
//!     meta.json                          everything needed to judge and reproduce it
//!     build.json                         the exact compile manifest
//!   locks/<build_key>.lock               taken while compiling; never deleted
//!   tmp/                                 staging, on the store's file system
//!   host/                                the host target's runtime object
//! ```

use std::io;
use std::path::{Path, PathBuf};

/// Folders under one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace at a root; nothing is created.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }
    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Generated sources.
    #[must_use]
    pub fn generated(&self) -> PathBuf {
        self.root.join("gen")
    }
    /// The store, with its format's version.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.root.join("store/v1")
    }
    #[cfg(feature = "jit")]
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }
    pub(crate) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }
    /// The host target's scratch folder.
    #[must_use]
    pub fn host(&self) -> PathBuf {
        self.root.join("host")
    }

    /// Creates a folder below the root, the root itself private to its owner, and gives it back.
    pub(crate) fn make(&self, folder: PathBuf) -> io::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        if !self.root.exists() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    #[cfg(feature = "jit")]
    /// Writes a file if its content differs; staged and renamed, so that it is never half there.
    pub(crate) fn write_if_different(&self, path: &Path, text: &str) -> io::Result<bool> {
        if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
            return Ok(false);
        }
        let folder = path.parent().expect("bug: a path below the workspace");
        self.make(folder.to_owned())?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(true)
    }
}
