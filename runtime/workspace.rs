//! The writable workspace. Nothing is created before something must be written.
//!
//! ```text
//! <workspace>/
//!   gen/<uri>@<source_key, 12 digits>/   rendered unit and copied headers, written only if different
//!   store/                               its parts stay together: they must be on one file system
//!     v1/<source_key>/<target>/<build_key>/
//!       kernel.cubin | kernel.so         the artifact
//!       meta.json                        everything needed to judge and reproduce it
//!       build.json                       the exact compile manifest
//!     locks/<build_key>.lock             taken while compiling
//!     frames/<key>                       compressed frames of bundles
//!     stage/                             what is about to become an entry; damaged entries are moved here
//!   tmp/                                 where compiler processes work
//!   host/                                the host target's runtime object
//! ```
//!
//! `gen`, `store` and `tmp` can each be set apart. The root is made with mode 0700 and decides who gets in. Below it,
//! folders are 0755 and files 0644, less what the umask takes away and never more, so that no umask makes anything
//! writable to others. In a shared workspace folders are 2770 and files 0660, so that the group can work in it.

use parbake_model::settings::Config;
use parbake_model::trust::{self, Untrusted};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Folders under one root, some of them perhaps elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    root: PathBuf,
    generated: PathBuf,
    store: PathBuf,
    temporary: PathBuf,
    shared: bool,
}

impl Workspace {
    /// The workspace at a root, with all parts below it; nothing is created.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        let [generated, store, temporary] = ["gen", "store", "tmp"].map(|part| root.join(part));
        Self { root, generated, store, temporary, shared: false }
    }
    /// The store that several machines share, as a workspace that is nothing else; nothing is created.
    #[must_use]
    pub fn of_shared_store(config: &Config) -> Option<Self> {
        let folder = config.store_shared.clone()?;
        Some(Self { store: folder.clone(), shared: config.workspace_shared, ..Self::new(folder) })
    }
    /// The workspace that the settings name; nothing is created.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let below = Self::new(config.workspace.clone());
        Self {
            generated: config.generated.clone().unwrap_or(below.generated),
            store: config.store.clone().unwrap_or(below.store),
            temporary: config.temporary.clone().unwrap_or(below.temporary),
            shared: config.workspace_shared,
            root: below.root,
        }
    }
    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Whether the members of its group trust each other.
    #[must_use]
    pub fn shared(&self) -> bool {
        self.shared
    }
    /// Generated sources.
    #[must_use]
    pub fn generated(&self) -> PathBuf {
        self.generated.clone()
    }
    /// The store, with its format's version.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.store.join("v1")
    }
    pub(crate) fn locks(&self) -> PathBuf {
        self.store.join("locks")
    }
    /// Compressed frames of bundles that were baked.
    pub(crate) fn frames(&self) -> PathBuf {
        self.store.join("frames")
    }
    /// What compilations took before.
    #[must_use]
    pub fn costs(&self) -> PathBuf {
        self.store.join("costs.json")
    }
    /// What is about to become an entry: a rename takes it there, so it is on the store's file system by construction.
    pub(crate) fn staging(&self) -> PathBuf {
        self.store.join("stage")
    }
    /// Where compiler processes work.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.temporary.clone()
    }
    /// Where the host target's runtime object is kept.
    #[must_use]
    pub fn host(&self) -> PathBuf {
        self.root.join("host")
    }

    /// The topmost folder of ours above a path: the root, or the place that a part was given. The root may lie below such
    /// a place, as with `PARBAKE_TMP=/tmp`: the nearest one counts.
    fn top(&self, path: &Path) -> &Path {
        let apart = [&self.generated, &self.store, &self.temporary].into_iter().filter(|p| !p.starts_with(&self.root));
        let above = apart.chain([&self.root]).filter(|top| path.starts_with(top));
        above.max_by_key(|top| top.components().count()).unwrap_or(&self.root)
    }

    /// Whether the temporary folder was set apart: then it may be everybody's, and not all that is in it is ours.
    pub(crate) fn works_elsewhere(&self) -> bool {
        !self.temporary.starts_with(&self.root)
    }

    /// Whether what is found at a path below the workspace may be used: its part and the root above it must be ours
    /// alone to write.
    ///
    /// # Errors
    /// The folder that is not, and why.
    pub fn trusted(&self, path: &Path) -> Result<(), Untrusted> {
        let top = self.top(path);
        trust::check(top, self.shared)?;
        match path.strip_prefix(top).ok().and_then(|below| below.components().next()) {
            Some(part) => trust::check(&top.join(part), self.shared),
            None => Ok(()),
        }
    }

    /// Says once in a process that a folder is not trusted and therefore left alone.
    pub(crate) fn say_distrust(untrusted: &Untrusted) {
        static SAID: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
        let mut said = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !said.contains(&untrusted.path) {
            said.push(untrusted.path.clone());
            tracing::warn!("{untrusted}; the folder is left alone");
        }
    }

    /// Creates a folder below the workspace and gives it back.
    pub(crate) fn make(&self, folder: PathBuf) -> io::Result<PathBuf> {
        let refuse = |untrusted| io::Error::new(io::ErrorKind::PermissionDenied, untrusted);
        self.trusted(&folder).map_err(refuse)?;
        if folder.is_dir() {
            return Ok(folder);
        }
        let top = self.top(&folder);
        if !top.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(top)?;
            self.share(top, 0o2770);
        }
        let mut made = top.to_owned();
        for part in folder.strip_prefix(top).expect("bug: a path below the workspace") {
            made.push(part);
            match DirBuilder::new().mode(0o755).create(&made) {
                Ok(()) => self.share(&made, 0o2770),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(folder)
    }

    /// Options for a new file, which nobody else may write.
    pub(crate) fn create(&self) -> OpenOptions {
        let mut options = File::options();
        options.write(true).create(true).mode(0o644);
        options
    }

    /// In a shared workspace gives something to the group, whatever the umask is. What was made by another member
    /// cannot be changed, and need not be.
    pub(crate) fn share(&self, path: &Path, mode: u32) {
        if self.shared {
            let _ = std::fs::set_permissions(path, Permissions::from_mode(mode));
        }
    }

    #[cfg(feature = "jit")]
    /// Writes a generated file if its content differs; staged and renamed, so that it is never half there.
    pub(crate) fn write_if_different(&self, path: &Path, text: &str) -> io::Result<bool> {
        if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
            return Ok(false);
        }
        let folder = path.parent().expect("bug: a path below the workspace");
        self.make(folder.to_owned())?;
        let staged = self.generated.join(parbake_model::owner::Owner::this().name("stage-"));
        let written = self.create().create_new(true).open(&staged).and_then(|mut file| {
            self.share(&staged, 0o660);
            io::Write::write_all(&mut file, text.as_bytes())?;
            std::fs::rename(&staged, path)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        written.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_above_the_root_does_not_decide_for_what_is_below_the_root() {
        let below = tempfile::tempdir().unwrap();
        let everybodys = below.path().to_owned();
        std::fs::set_permissions(&everybodys, Permissions::from_mode(0o1777)).unwrap();
        let mut workspace = Workspace::new(everybodys.join("w"));
        workspace.temporary = everybodys.clone();
        assert_eq!(workspace.top(&workspace.store()), everybodys.join("w"));
        assert_eq!(workspace.top(&everybodys.join("compile-1")), everybodys);
        workspace.store = everybodys.join("s");
        assert_eq!(workspace.top(&workspace.locks()), workspace.store);
        for folder in [workspace.locks(), workspace.host(), workspace.generated()] {
            workspace.trusted(&workspace.make(folder).unwrap()).unwrap();
        }
        assert!(workspace.trusted(&everybodys.join("x")).is_err());
    }
}
