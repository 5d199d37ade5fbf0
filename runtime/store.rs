//! The store: artifacts that were compiled on this machine or for it. Entries are immutable.
//!
//! Publishing stages an entry on the same file system, verifies what was written, syncs it, and renames the folder. A
//! name is never overwritten: the loser of a race adopts the winner after verifying it. An I/O error is not corruption;
//! only content that fails verification is moved out of the way.

use crate::fault::{self, Fault};
use crate::version;
use crate::workspace::Workspace;
use parbake_model::metadata::{Metadata, MetadataError};
use parbake_model::owner::Owner;
use parbake_model::report::{Class, Report};
use parbake_model::trust::{self, Untrusted};
use parbake_model::{Digest, LAUNCH_ABI, Target, VERSION};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// An artifact and its metadata.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The bytes: a cubin, or a shared object for the host.
    pub bytes: Vec<u8>,
    /// What they are.
    pub metadata: Metadata,
    /// Where they lie, unless they exist in memory only.
    pub path: Option<PathBuf>,
}

/// Why an entry cannot be used, or none be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused; the entry may be fine.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The content is not what its metadata says.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The entry's folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The entry is whole, but another version of the library made it, which this one cannot use.
    #[error("{path} is of another version: {why}")]
    OtherVersion {
        /// The entry's folder.
        path: PathBuf,
        /// Both versions.
        why: String,
    },
    /// Whoever may write there is not to choose what runs here.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The disk or a quota is full.
    #[error("no room for the {needed} bytes of an entry in {path}: {error}")]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// The size of the whole entry.
        needed: u64,
        /// Why.
        error: io::Error,
    },
    /// The file system can only be read.
    #[error("{path} can only be read: {error}")]
    ReadOnly {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Staged and published entries are on different file systems, so that a rename cannot publish.
    #[error("{path} and its stage are on different file systems: {error}")]
    Apart {
        /// The entry's folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl StoreError {
    /// The error of a write of so many bytes.
    fn of(what: &'static str, path: &Path, needed: u64, error: io::Error) -> Self {
        let path = path.to_owned();
        match Fault::of(&error) {
            Fault::NoRoom => Self::NoRoom { path, needed, error },
            Fault::ReadOnly => Self::ReadOnly { path, error },
            Fault::OtherFileSystem => Self::Apart { path, error },
            _ => Self::Io { what, path, error },
        }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "PB-1601",
            Self::Damaged { .. } => "PB-1602",
            Self::Untrusted(_) => "PB-1603",
            Self::NoRoom { .. } => "PB-1604",
            Self::ReadOnly { .. } => "PB-1605",
            Self::Apart { .. } => "PB-1606",
            Self::OtherVersion { .. } => "PB-1620",
        }
    }

    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let report = Report::new(self.code(), Class::Environment, self.to_string());
        self.help().map_or(report.clone(), |help| report.help(help))
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Io { .. } | Self::Damaged { .. } => None,
            Self::OtherVersion { .. } => Some("parbake cache prune --stale removes what no version here uses".into()),
            Self::Untrusted(Untrusted { path, .. }) if !trust::is_own(path) => {
                Some("set PARBAKE_WORKSPACE to a folder of yours".into())
            }
            Self::Untrusted(Untrusted { path, .. }) => Some(format!(
                "chmod go-w {}, or set PARBAKE_WORKSPACE to a folder of yours; PARBAKE_WORKSPACE_SHARED=on trusts the folder's group",
                path.display()
            )),
            Self::NoRoom { .. } => Some("make room, or set PARBAKE_STORE to a folder with more".into()),
            Self::ReadOnly { .. } => Some("set PARBAKE_WORKSPACE to a folder that can be written".into()),
            Self::Apart { .. } => Some("let PARBAKE_STORE be one file system: nothing mounted below it".into()),
        }
    }
}

/// The store of a workspace.
#[derive(Clone, Debug)]
pub struct Store {
    workspace: Workspace,
}

/// The largest artifact that is read.
const LARGEST: u64 = 256 << 20;

impl Store {
    /// The store of a workspace; nothing is created.
    #[must_use]
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    fn folder(&self, source_key: Digest, target: Target) -> PathBuf {
        self.workspace.store().join(source_key.to_string()).join(target.to_string())
    }

    /// The entry of that exact build, verified; `None` if there is none. Only reads.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it fails verification, [`StoreError::OtherVersion`] if it is whole and not for this
    /// library, [`StoreError::Io`] if it cannot be read, not even at the fifth try, [`StoreError::Untrusted`] if others
    /// may write there.
    pub fn get(&self, source_key: Digest, target: Target, build_key: Digest) -> Result<Option<Artifact>, StoreError> {
        let folder = self.folder(source_key, target).join(build_key.to_string());
        self.workspace.trusted(&folder)?;
        read(&folder, source_key, target, build_key)
    }

    /// Every entry of a source and target, by build key, each verified or with what is wrong. Only reads.
    #[must_use]
    pub fn all(&self, source_key: Digest, target: Target) -> Vec<Result<Artifact, StoreError>> {
        let keys: BTreeSet<Digest> = match names(&self.folder(source_key, target)) {
            Ok(keys) => keys,
            Err(error) => return vec![Err(error)],
        };
        keys.into_iter().filter_map(|key| self.get(source_key, target, key).transpose()).collect()
    }

    /// The targets that a source has entries for.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the folder is there and cannot be listed: that is not the same as holding nothing.
    pub fn targets(&self, source_key: Digest) -> Result<BTreeSet<Target>, StoreError> {
        names(&self.workspace.store().join(source_key.to_string()))
    }

    /// Moves a damaged entry away, so that it is compiled anew. It is looked at once more before and after: a faster
    /// process may have replaced it by a good one, which stays or goes back.
    #[cfg(feature = "jit")]
    pub(crate) fn quarantine(&self, source_key: Digest, target: Target, build_key: Digest) {
        let damaged = |found| matches!(found, Err(StoreError::Damaged { .. }));
        if !damaged(self.get(source_key, target, build_key)) {
            return;
        }
        let path = self.folder(source_key, target).join(build_key.to_string());
        let to = self.workspace.staging().join(Owner::this().name("damaged-"));
        let moved = self.workspace.make(self.workspace.staging()).and_then(|_| std::fs::rename(&path, &to));
        if moved.is_ok() && !damaged(read(&to, source_key, target, build_key)) {
            let _ = std::fs::rename(&to, &path);
            return;
        }
        let path = path.display();
        match moved {
            Ok(()) => tracing::warn!(%path, "a damaged entry of the store is put aside"),
            Err(error) => {
                tracing::warn!(%path, %error, "a damaged entry of the store cannot be put aside, and is not used")
            }
        }
    }

    /// Publishes an artifact; adopts the entry of a faster process. What was staged is gone afterwards, whatever
    /// happened.
    ///
    /// # Errors
    /// If nothing could be published; the caller still has the bytes.
    pub fn publish(&self, metadata: &Metadata, bytes: &[u8], build: &str) -> Result<Artifact, StoreError> {
        let json = metadata.to_json();
        let files = [(metadata.file.as_str(), bytes), ("meta.json", json.as_bytes()), ("build.json", build.as_bytes())];
        let needed = files.iter().map(|(_, content)| content.len() as u64).sum();
        let refuse = |what, path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::of(what, &path, needed, error)
        };
        let parent = self.folder(metadata.source_key, metadata.target);
        let folder = parent.join(metadata.build_key.to_string());
        self.workspace.trusted(&folder)?;
        let staged = Staged::new(&self.workspace).map_err(refuse("create a folder in", &self.workspace.staging()))?;
        for (name, content) in files {
            let path = staged.path.join(name);
            self.write(&path, content).map_err(refuse("write", &path))?;
        }
        let verified = read(&staged.path, metadata.source_key, metadata.target, metadata.build_key)?;
        let gone = || StoreError::of("read", &staged.path, needed, io::ErrorKind::NotFound.into());
        let verified = verified.ok_or_else(gone)?;
        staged.sync();
        self.workspace.make(parent.clone()).map_err(refuse("create", &parent))?;
        let renamed = fault::retried(|| std::fs::rename(&staged.path, &folder));
        let published = match renamed {
            Ok(()) => {
                for changed in [Some(parent.as_path()), parent.parent()].into_iter().flatten() {
                    let _ = File::open(changed).and_then(|d| d.sync_all());
                }
                Artifact { path: Some(folder), ..verified }
            }
            // Somebody was faster; or the rename was done and only its answer lost, as on a network file system.
            Err(error) => match self.get(metadata.source_key, metadata.target, metadata.build_key) {
                Ok(Some(winner)) => winner,
                _ => return Err(refuse("publish", &folder)(error)),
            },
        };
        drop(staged);
        self.workspace.collect_now_and_then();
        Ok(published)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = self.workspace.create().create_new(true).open(path)?;
        self.workspace.share(path, 0o660);
        file.write_all(content)?;
        file.sync_all()
    }
}

/// A folder that is about to become an entry. Unless it was renamed, it goes away with the value; if the process dies,
/// it is collected by age.
struct Staged {
    path: PathBuf,
    /// Locked, so that other hosts see that it is in use.
    folder: Option<File>,
}

impl Staged {
    fn new(workspace: &Workspace) -> io::Result<Self> {
        let path = workspace.make(workspace.staging())?.join(Owner::this().name("stage-"));
        DirBuilder::new().mode(0o755).create(&path)?;
        workspace.share(&path, 0o2770);
        let folder = File::open(&path).ok();
        let _ = folder.as_ref().map(File::try_lock);
        Ok(Self { path, folder })
    }

    /// Not every file system can sync a folder; the files themselves are synced by now.
    fn sync(&self) {
        let _ = self.folder.as_ref().map(File::sync_all);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Writes a file of the store whole or not at all; one of that name is replaced.
///
/// # Errors
/// If it cannot be written; then nothing of it is left.
#[cfg(feature = "jit")]
pub(crate) fn publish_file(workspace: &Workspace, path: &Path, bytes: &[u8]) -> io::Result<()> {
    workspace.make(path.parent().expect("bug: a path below the store").to_owned())?;
    let staged = workspace.make(workspace.staging())?.join(Owner::this().name("stage-"));
    let written = workspace.create().create_new(true).open(&staged).and_then(|mut file| {
        workspace.share(&staged, 0o660);
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&staged, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&staged);
    }
    written
}

/// What the names in a folder say; none if there is no such folder. Other names are not ours.
fn names<T: std::str::FromStr + Ord>(folder: &Path) -> Result<BTreeSet<T>, StoreError> {
    let list = || {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(folder)? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()));
        }
        Ok(found)
    };
    match fault::retried(list) {
        Err(error) if Fault::of(&error) == Fault::Absent => Ok(BTreeSet::new()),
        listed => listed.map_err(|error| StoreError::Io { what: "list", path: folder.to_owned(), error }),
    }
}

/// Reads an entry's folder and verifies that it is what its place says; `None` if there is no such folder.
fn read(folder: &Path, source_key: Digest, target: Target, build_key: Digest) -> Result<Option<Artifact>, StoreError> {
    let damaged = |why: String| StoreError::Damaged { path: folder.to_owned(), why };
    let Some(text) = content(folder, "meta.json")? else { return Ok(None) };
    let other = |why: String| StoreError::OtherVersion { path: folder.to_owned(), why };
    let metadata = Metadata::from_json(&text).map_err(|error| match error {
        // Whole for whoever wrote it.
        MetadataError::Schema { .. } => other(error.to_string()),
        _ => damaged(error.to_string()),
    })?;
    let Some(bytes) = content(folder, &metadata.file)? else { return Ok(None) };
    let place = (metadata.source_key, metadata.target, metadata.build_key) == (source_key, target, build_key);
    let why = if !place {
        format!("its metadata is of {} for {}, build {}", metadata.uri, metadata.target, metadata.build_key.short(12))
    } else if metadata.size != bytes.len() as u64 || metadata.image != Digest::of(&bytes) {
        format!("{} holds {} bytes that do not hash to {}", metadata.file, bytes.len(), metadata.image.short(12))
    } else if let Some(why) = other_version(&metadata) {
        return Err(other(why));
    } else if metadata.build_key != metadata.build() {
        // How it is made up is for a version to say.
        "its build key is not the one of what its metadata say".to_owned()
    } else {
        return Ok(Some(Artifact { bytes, metadata, path: Some(folder.to_owned()) }));
    };
    Err(damaged(why))
}

/// Why an artifact of another version of the library is not used by this one.
pub(crate) fn other_version(metadata: &Metadata) -> Option<String> {
    let (abi, library) = (metadata.launch_abi, &metadata.library);
    let fits = abi == LAUNCH_ABI && version::compatible(library, VERSION);
    (!fits).then(|| {
        format!(
            "made by version {library}, launch ABI {abi}; this library is version {VERSION}, launch ABI {LAUNCH_ABI}"
        )
    })
}

/// The content of an entry's file; `None` if there is no such entry.
///
/// An entry is renamed into place whole, so a file that is missing in its folder is damage. But a network file system
/// may say so of a file that is there: only a listing of the folder is believed, and only at the second look.
fn content(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let path = folder.join(name);
    let damaged = |why: String| StoreError::Damaged { path: folder.to_owned(), why };
    let refuse = |error| StoreError::Io { what: "read", path: path.clone(), error };
    let fetch = || {
        let mut file = File::open(&path)?;
        let size = file.metadata()?.len();
        if size > LARGEST {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    };
    let listed = || {
        let mut entries = std::fs::read_dir(folder)?;
        entries.try_fold(false, |found, entry| Ok(found || entry?.file_name() == *name))
    };
    let mut missed = false;
    let mut last = io::ErrorKind::NotFound.into();
    for pause in fault::PAUSES {
        last = match fault::retried(fetch) {
            Ok(Some(bytes)) => return Ok(Some(bytes)),
            Ok(None) => return Err(damaged(format!("{name} is too large"))),
            Err(error) if Fault::of(&error) == Fault::Absent => error,
            Err(error) => return Err(refuse(error)),
        };
        match fault::retried(listed) {
            Ok(true) => {}
            Ok(false) if missed => return Err(damaged(format!("{name} is missing"))),
            Ok(false) => missed = true,
            Err(error) if Fault::of(&error) == Fault::Absent && !folder.exists() => return Ok(None),
            Err(error) if Fault::of(&error) == Fault::Absent => {}
            Err(error) => return Err(refuse(error)),
        }
        std::thread::sleep(pause);
    }
    Err(refuse(last))
}
