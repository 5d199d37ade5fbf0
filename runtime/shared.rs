//! The shared store: a folder of several machines beside the store of this one, with the same layout and the same rules.
//!
//! Asked after the own store; what it has is verified and copied there. What was compiled here is published in both, and
//! a name is never overwritten. It only saves work: one that is absent, full, read-only or not to be trusted is said once
//! and otherwise as good as none.

#[cfg(feature = "jit")]
use crate::store::StoreError;
use crate::store::{Artifact, Store};
use crate::workspace::Workspace;
use parbake_model::settings::Config;
#[cfg(feature = "jit")]
use parbake_model::{Digest, Target};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that several machines share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    folder: PathBuf,
    /// The own store's folder.
    own: PathBuf,
    workspace: Workspace,
    store: Store,
    said: Arc<AtomicBool>,
}

impl Shared {
    /// The one that the settings name; nothing is created.
    pub(crate) fn of(config: &Config, own: &Workspace) -> Option<Self> {
        let workspace = Workspace::of_shared_store(config).filter(|_| config.cache)?;
        let folder = workspace.root().to_owned();
        let own = own.store().parent().expect("bug: a folder of a store").to_owned();
        Some(Self { folder, own, store: Store::new(workspace.clone()), workspace, said: Arc::default() })
    }

    /// Where it is, for a person.
    pub(crate) fn place(&self) -> String {
        format!("shared store {}", self.workspace.store().display())
    }

    /// The store, if there is any point in looking at it. Its folder is never made: an empty one in place of what was not
    /// mounted would fill a disk that it does not belong on.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn store(&self) -> Result<&Store, String> {
        if !self.folder.is_dir() {
            return Err(format!("{} is no folder, or is not there", self.folder.display()));
        }
        let place = |path: &PathBuf| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
        if place(&self.folder) == place(&self.own) {
            // One lock would be waited for by whoever holds the other.
            return Err(format!("{} is this machine's own store", self.folder.display()));
        }
        self.workspace.trusted(&self.workspace.store()).map_err(|untrusted| untrusted.to_string())?;
        Ok(&self.store)
    }

    /// The store, or a word on why not.
    #[cfg(feature = "jit")]
    fn usable(&self) -> Option<&Store> {
        self.store().map_err(|why| self.say(why)).ok()
    }

    /// Says once what is wrong.
    #[cfg(feature = "jit")]
    fn say(&self, why: impl std::fmt::Display) {
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!("{why}; going on without what PARBAKE_STORE_SHARED would save");
        }
    }

    /// Whether something was wrong with it.
    pub(crate) fn failed(&self) -> bool {
        self.said.load(Ordering::Relaxed)
    }

    /// The entry of that exact build, verified. A damaged one is put aside.
    #[cfg(feature = "jit")]
    pub(crate) fn get(&self, source_key: Digest, target: Target, build_key: Digest) -> Option<Artifact> {
        let store = self.usable()?;
        match store.get(source_key, target, build_key) {
            Ok(found) => found,
            Err(StoreError::Damaged { .. }) => {
                store.quarantine(source_key, target, build_key);
                None
            }
            Err(error) => {
                self.say(error);
                None
            }
        }
    }

    /// Takes the lock of a build; none where locks do not work or nothing can be written.
    #[cfg(feature = "jit")]
    pub(crate) fn lock(
        &self,
        build_key: Digest,
        what: &str,
        limit: std::time::Duration,
    ) -> Option<crate::lock::BuildLock> {
        self.usable()?;
        Some(crate::lock::BuildLock::take(&self.workspace, build_key, what, limit))
    }

    /// Publishes what was compiled here.
    #[cfg(feature = "jit")]
    pub(crate) fn publish(&self, metadata: &parbake_model::metadata::Metadata, bytes: &[u8], build: &str) {
        if let Some(error) = self.usable().and_then(|store| store.publish(metadata, bytes, build).err()) {
            self.say(error);
        }
    }

    /// Copies an entry that was found here into the own store. Not being able to is no error: it serves as it is.
    pub(crate) fn copy(&self, own: &Store, artifact: Artifact) -> Artifact {
        let Some(folder) = artifact.path.clone().filter(|path| path.starts_with(&self.folder)) else { return artifact };
        let copied = std::fs::read_to_string(folder.join("build.json")).map_err(|e| e.to_string()).and_then(|build| {
            // It is not hashed with the rest, and torn it would explain nothing.
            serde_json::from_str::<serde::de::IgnoredAny>(&build).map_err(|e| e.to_string())?;
            own.publish(&artifact.metadata, &artifact.bytes, &build).map_err(|e| e.to_string())
        });
        copied.unwrap_or_else(|error| {
            tracing::debug!(path = %folder.display(), error, "an entry of the shared store is not copied");
            artifact
        })
    }
}
