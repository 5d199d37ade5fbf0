//! The store: artifacts that were compiled on this machine or for it. Entries are immutable.
//!
//! Publishing stages an entry on the same file system, verifies what was written, syncs it, and renames the folder. A
//! name is never overwritten: the loser of a race adopts the winner after verifying it. An I/O error is not corruption;
//! only content that fails verification is moved out of the way.

use crate::version;
use crate::workspace::Workspace;
use parbake_model::metadata::Metadata;
use parbake_model::{Digest, LAUNCH_ABI, Target, VERSION};
use std::collections::BTreeSet;
use std::io::{self, Write};
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

/// Why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused; the entry may be fine.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The content is not what its metadata says.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The entry's folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl StoreError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "PB-1601",
            Self::Damaged { .. } => "PB-1602",
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
    /// [`StoreError::Damaged`] if it fails verification, [`StoreError::Io`] if it cannot be read.
    pub fn get(&self, source_key: Digest, target: Target, build_key: Digest) -> Result<Option<Artifact>, StoreError> {
        let folder = self.folder(source_key, target).join(build_key.to_string());
        match read(&folder, source_key, target, build_key) {
            Ok(artifact) => Ok(Some(artifact)),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Every entry of a source and target, by build key, each verified or with what is wrong. Only reads.
    #[must_use]
    pub fn all(&self, source_key: Digest, target: Target) -> Vec<Result<Artifact, StoreError>> {
        let Ok(entries) = std::fs::read_dir(self.folder(source_key, target)) else { return Vec::new() };
        let keys = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<Digest>().ok());
        let keys: BTreeSet<Digest> = keys.collect();
        keys.into_iter().filter_map(|key| self.get(source_key, target, key).transpose()).collect()
    }

    /// The targets that a source has entries for.
    #[must_use]
    pub fn targets(&self, source_key: Digest) -> Vec<Target> {
        let Ok(entries) = std::fs::read_dir(self.workspace.store().join(source_key.to_string())) else {
            return Vec::new();
        };
        let mut targets: Vec<Target> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        targets.sort();
        targets
    }

    /// How many sources other than this one have entries of that URI.
    #[must_use]
    pub fn sources_of(&self, uri: &str, except: Digest) -> usize {
        let list = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
        let names_it = |folder: PathBuf| {
            let metadata =
                std::fs::read(folder.join("meta.json")).ok().and_then(|text| Metadata::from_json(&text).ok());
            metadata.is_some_and(|m| m.uri == uri)
        };
        let sources = list(self.workspace.store()).filter(|p| !p.ends_with(except.to_string()));
        sources.filter(|s| list(s.clone()).any(|target| list(target).any(names_it))).count()
    }

    /// Moves a damaged entry away, so that it is compiled anew. If a faster process has replaced it by a good one in the
    /// meantime, that one goes back.
    pub(crate) fn quarantine(&self, source_key: Digest, target: Target, build_key: Digest) {
        let path = self.folder(source_key, target).join(build_key.to_string());
        let to = self.workspace.temporary().join(format!("damaged-{}", unique()));
        let moved = self.workspace.make(self.workspace.temporary()).and_then(|_| std::fs::rename(&path, &to));
        if moved.is_ok() && read(&to, source_key, target, build_key).is_ok() {
            let _ = std::fs::rename(&to, &path);
            return;
        }
        tracing::warn!(path = %path.display(), moved = moved.is_ok(), "a damaged entry of the store is put aside");
    }

    /// Publishes an artifact; adopts the entry of a faster process.
    ///
    /// # Errors
    /// If nothing could be published; the caller still has the bytes.
    pub fn publish(&self, metadata: &Metadata, bytes: &[u8], build: &str) -> Result<Artifact, StoreError> {
        let parent = self.folder(metadata.source_key, metadata.target);
        let folder = parent.join(metadata.build_key.to_string());
        let refuse = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { what, path, source }
        };
        self.workspace.make(parent.clone()).map_err(refuse("create", &parent))?;
        let temporary =
            self.workspace.make(self.workspace.temporary()).map_err(refuse("create", self.workspace.root()))?;
        let staged =
            tempfile::Builder::new().prefix("stage-").tempdir_in(&temporary).map_err(refuse("create", &temporary))?;
        for (name, content) in [
            (metadata.file.as_str(), bytes),
            ("meta.json", metadata.to_json().as_bytes()),
            ("build.json", build.as_bytes()),
        ] {
            let path = staged.path().join(name);
            let mut file = std::fs::File::create(&path).map_err(refuse("create", &path))?;
            file.write_all(content).and_then(|()| file.sync_all()).map_err(refuse("write", &path))?;
        }
        read(staged.path(), metadata.source_key, metadata.target, metadata.build_key)?;
        let _ = std::fs::File::open(staged.path()).and_then(|d| d.sync_all());
        // The staging folder was made private; an entry is as readable as the workspace lets it be.
        let _ = std::fs::set_permissions(staged.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755));
        match std::fs::rename(staged.path(), &folder) {
            Ok(()) => {
                // What was renamed away is not there to be removed.
                let _ = staged.keep();
                let _ = std::fs::File::open(&parent).and_then(|d| d.sync_all());
                Ok(Artifact { bytes: bytes.to_owned(), metadata: metadata.clone(), path: Some(folder) })
            }
            Err(source) => match self.get(metadata.source_key, metadata.target, metadata.build_key) {
                Ok(Some(winner)) => Ok(winner),
                _ => Err(StoreError::Io { what: "publish", path: folder, source }),
            },
        }
    }
}

/// Reads an entry's folder and verifies that it is what its place says.
fn read(folder: &Path, source_key: Digest, target: Target, build_key: Digest) -> Result<Artifact, StoreError> {
    let damaged = |why: String| StoreError::Damaged { path: folder.to_owned(), why };
    let file = |name: &str| {
        let path = folder.join(name);
        let refuse = |source| StoreError::Io { what: "read", path: path.clone(), source };
        match std::fs::metadata(&path) {
            // An entry is renamed into place whole, so a file that is missing in its folder is damage.
            Err(e) if e.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
                Err(damaged(format!("{name} is missing")))
            }
            Err(e) => Err(refuse(e)),
            Ok(m) if m.len() > LARGEST => Err(damaged(format!("{name} is too large"))),
            Ok(_) => std::fs::read(&path).map_err(refuse),
        }
    };
    let metadata = Metadata::from_json(&file("meta.json")?).map_err(|e| damaged(e.to_string()))?;
    let bytes = file(&metadata.file)?;
    let place = (metadata.source_key, metadata.target, metadata.build_key) == (source_key, target, build_key);
    let why = if !place {
        format!("its metadata is of {} for {}, build {}", metadata.uri, metadata.target, metadata.build_key.short(12))
    } else if metadata.build_key != metadata.build() {
        "its build key is not the one of what its metadata say".to_owned()
    } else if metadata.launch_abi != LAUNCH_ABI || !version::compatible(&metadata.library, VERSION) {
        let (abi, library) = (metadata.launch_abi, &metadata.library);
        format!(
            "made by version {library}, launch ABI {abi}; this library is version {VERSION}, launch ABI {LAUNCH_ABI}"
        )
    } else if metadata.size != bytes.len() as u64 || metadata.image != Digest::of(&bytes) {
        format!("{} holds {} bytes that do not hash to {}", metadata.file, bytes.len(), metadata.image.short(12))
    } else {
        return Ok(Artifact { bytes, metadata, path: Some(folder.to_owned()) });
    };
    Err(damaged(why))
}

/// A name that no other process and no other thread takes.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{}", std::process::id(), since.as_nanos(), COUNT.fetch_add(1, Ordering::Relaxed))
}
