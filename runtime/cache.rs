//! The store as a person manages it: what is in it, whether it is whole, and what may go.
//!
//! **Recency.** The time of an entry's folder is when it was published or last loaded, to the day: a load moves it on if
//! it is older than a day, and where that is not possible nothing happens. Access times are not used, because file
//! systems are mounted without them. The files inside are never touched.
//!
//! **Removal.** An entry is renamed out of the store as a whole and then deleted, so that a reader finds all of it or
//! none. A reader that had opened one of its files finds the other gone, and takes that for a miss. What was published
//! or first used within the last minute stays, whatever the limits are, because a process may be about to load it.

use crate::leftovers::{Collected, PRUNED, is_locked, size};
use crate::library::Library;
use crate::store::{Store, StoreError, other_version};
use crate::workspace::Workspace;
use parbake_model::metadata::{Metadata, MetadataError};
use parbake_model::owner::{KEPT, Owner};
use parbake_model::{Digest, Target, cubin, fatbin, space, trust};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How old an entry is at least that [`Cache::prune`] removes.
pub const SETTLED: Duration = Duration::from_secs(60);
/// How often a load moves the time of an entry on.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How an entry stands to the library that looks at it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It is of the sources that the library has now.
    Current,
    /// The library does not use it, because of this.
    Stale(String),
    /// The library's sources are not known.
    Unknown,
}

/// An entry, as its place and its metadata tell. Its bytes were not read.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its folder.
    pub folder: PathBuf,
    /// What it was compiled from.
    pub source_key: Digest,
    /// What it was compiled for.
    pub target: Target,
    /// The build.
    pub build_key: Digest,
    /// What it says of itself, or why that cannot be read.
    pub metadata: Result<Metadata, String>,
    /// The size of all its files.
    pub bytes: u64,
    /// When it was published or last loaded, to the day.
    pub used: SystemTime,
    /// How it stands to the library.
    pub standing: Standing,
}

impl Entry {
    /// How long ago it was used. A time in the future, left while the clock was wrong, is now.
    #[must_use]
    pub fn idle(&self, now: SystemTime) -> Duration {
        now.duration_since(self.used).unwrap_or_default()
    }

    /// Whether it is new: another process may be about to load it. A time that lies further in the future than a clock
    /// is ever off says nothing.
    fn settled(&self, now: SystemTime) -> bool {
        match now.duration_since(self.used) {
            Ok(idle) => idle >= SETTLED,
            Err(ahead) => ahead.duration() >= SETTLED,
        }
    }
}

/// Everything in a store.
#[derive(Debug, Default)]
pub struct Listing {
    /// Entries, by source, target and build.
    pub entries: Vec<Entry>,
    /// Folders that could not be read.
    pub unread: Vec<StoreError>,
}

/// What may go. Limits that are not set let everything stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// What all entries together may take, in bytes; those that were used longest ago go first.
    pub size: Option<u64>,
    /// How long an entry may be left unused.
    pub age: Option<Duration>,
    /// Whether entries go that the library does not use any more.
    pub stale: bool,
    /// Whether entries go whose contents are damaged. All are read for it.
    pub damaged: bool,
}

/// Why an entry goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The library does not use it, because of this.
    Stale(String),
    /// It was left unused too long.
    Unused,
    /// It is damaged in this way.
    Damaged(String),
    /// All entries together are too large, and it was used longest ago.
    Size,
    /// Everything goes.
    Cleared,
}

/// An entry that went, or would go.
#[derive(Debug)]
pub struct Removed {
    /// What it was.
    pub entry: Entry,
    /// Why.
    pub why: Reason,
}

/// What [`Cache::prune`] did.
#[derive(Debug, Default)]
pub struct Pruned {
    /// Entries that are gone.
    pub removed: Vec<Removed>,
    /// Entries that stay, and their size in bytes.
    pub kept: Collected,
    /// Entries that should have gone and are too new.
    pub too_new: usize,
    /// Leftovers of killed processes that are gone.
    pub leftovers: Collected,
    /// What could not be removed or read, and stays.
    pub failed: Vec<StoreError>,
}

/// The store of a workspace, for those who manage it.
#[derive(Debug)]
pub struct Cache {
    workspace: Workspace,
    store: Store,
    /// The source keys of all specs, if they are known.
    current: Option<HashSet<Digest>>,
}

impl Cache {
    /// The store of a workspace; which entries are current is not known.
    #[must_use]
    pub fn new(workspace: Workspace) -> Self {
        Self { store: Store::new(workspace.clone()), workspace, current: None }
    }

    /// The store of a library's workspace. If an op's sources cannot be read, no entry is called stale.
    #[must_use]
    pub fn of(library: &Library) -> Self {
        Self { current: source_keys(library), ..Self::new(library.workspace().clone()) }
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Whether it is known which sources are current.
    #[must_use]
    pub fn knows_sources(&self) -> bool {
        self.current.is_some()
    }

    /// All entries. Only reads, and only metadata; what is removed meanwhile is not there.
    #[must_use]
    pub fn list(&self) -> Listing {
        let mut listing = Listing::default();
        let root = self.workspace.store();
        for source in self.folders(&root, &mut listing.unread) {
            let Some(source_key) = named::<Digest>(&source) else { continue };
            for place in self.folders(&source, &mut listing.unread) {
                let Some(target) = named::<Target>(&place) else { continue };
                for folder in self.folders(&place, &mut listing.unread) {
                    let Some(build_key) = named::<Digest>(&folder) else { continue };
                    let entry = self.entry(folder, source_key, target, build_key, &mut listing.unread);
                    listing.entries.extend(entry);
                }
            }
        }
        listing
    }

    /// The folders in a folder, sorted by name.
    fn folders(&self, folder: &Path, unread: &mut Vec<StoreError>) -> BTreeSet<PathBuf> {
        let list = || -> io::Result<BTreeSet<PathBuf>> {
            std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()
        };
        list().unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                unread.push(StoreError::Io { what: "list", path: folder.to_owned(), error });
            }
            BTreeSet::new()
        })
    }

    fn entry(
        &self,
        folder: PathBuf,
        source_key: Digest,
        target: Target,
        build_key: Digest,
        unread: &mut Vec<StoreError>,
    ) -> Option<Entry> {
        let used = match std::fs::symlink_metadata(&folder).and_then(|m| m.modified()) {
            Ok(used) => used,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                unread.push(StoreError::Io { what: "read", path: folder, error });
                return None;
            }
        };
        let metadata = match std::fs::read(folder.join("meta.json")) {
            Ok(text) => {
                Metadata::from_json(&text).map_err(|e| (matches!(e, MetadataError::Schema { .. }), e.to_string()))
            }
            Err(_) if !folder.exists() => return None,
            Err(error) => Err((false, format!("meta.json: {error}"))),
        };
        let standing = match &metadata {
            Err((true, why)) => Standing::Stale(why.clone()),
            read => self.standing(source_key, read.as_ref().ok()),
        };
        let metadata = metadata.map_err(|(_, why)| why);
        Some(Entry { bytes: size(&folder), folder, source_key, target, build_key, metadata, used, standing })
    }

    fn standing(&self, source_key: Digest, metadata: Option<&Metadata>) -> Standing {
        match &self.current {
            _ if metadata.is_some_and(|m| other_version(m).is_some()) => {
                Standing::Stale(metadata.and_then(other_version).unwrap_or_default())
            }
            None => Standing::Unknown,
            Some(keys) if keys.contains(&source_key) => Standing::Current,
            Some(_) => Standing::Stale("the library has other sources now, or no longer has the spec".to_owned()),
        }
    }

    /// Reads an entry and verifies that it is what its place says and, for a GPU, that it is one complete image with its
    /// kernel. Another version of the library is no damage. What is gone by now is whole.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is not, and the other errors if it cannot be judged.
    pub fn verify(&self, entry: &Entry) -> Result<(), StoreError> {
        let artifact = match self.store.get(entry.source_key, entry.target, entry.build_key) {
            Ok(Some(artifact)) => artifact,
            Ok(None) | Err(StoreError::OtherVersion { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        if entry.target == Target::Host {
            return Ok(());
        }
        let damaged = |why: String| Err(StoreError::Damaged { path: entry.folder.clone(), why });
        if let (Target::Compute(..), Some(toolkit)) = (entry.target, artifact.metadata.toolkit) {
            let (bytes, name) = (&artifact.bytes, &artifact.metadata.entry);
            return fatbin::check_ptx(bytes, entry.target, name, toolkit).or_else(|e| damaged(e.to_string()));
        }
        match cubin::read(&artifact.bytes) {
            Err(error) => damaged(error.to_string()),
            Ok(facts) if !facts.kernels.contains(&artifact.metadata.entry) => {
                damaged(format!("the image has no kernel `{}`", artifact.metadata.entry))
            }
            Ok(facts) if facts.target.arch() != entry.target.arch() => {
                damaged(format!("the image is code for {}", facts.target))
            }
            Ok(_) => Ok(()),
        }
    }

    /// What [`Cache::prune`] with these limits would remove, each entry with the reason. Only reads.
    #[must_use]
    pub fn plan(&self, limits: &Limits) -> Pruned {
        let now = SystemTime::now();
        let Listing { mut entries, unread } = self.list();
        let mut pruned = Pruned { failed: unread, ..Pruned::default() };
        // Those that were used longest ago come first.
        entries.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.folder.cmp(&b.folder)));
        let mut total: u64 = entries.iter().map(|e| e.bytes).sum();
        let mut kept = Vec::new();
        for entry in entries {
            match self.judge(&entry, limits, now, &mut pruned.failed) {
                Some(why) if entry.settled(now) => {
                    total -= entry.bytes;
                    pruned.removed.push(Removed { entry, why });
                }
                Some(_) => {
                    pruned.too_new += 1;
                    kept.push(entry);
                }
                None => kept.push(entry),
            }
        }
        let most = limits.size.unwrap_or(u64::MAX);
        for entry in kept {
            if total > most && entry.settled(now) {
                total -= entry.bytes;
                pruned.removed.push(Removed { entry, why: Reason::Size });
            } else {
                pruned.kept.count += 1;
                pruned.kept.bytes += entry.bytes;
            }
        }
        pruned.leftovers = self.workspace.leftovers(SETTLED);
        pruned
    }

    fn judge(&self, entry: &Entry, limits: &Limits, now: SystemTime, unread: &mut Vec<StoreError>) -> Option<Reason> {
        if let (true, Standing::Stale(why)) = (limits.stale, &entry.standing) {
            return Some(Reason::Stale(why.clone()));
        }
        if limits.age.is_some_and(|most| entry.idle(now) >= most) {
            return Some(Reason::Unused);
        }
        match limits.damaged.then(|| self.verify(entry)) {
            Some(Err(StoreError::Damaged { why, .. })) => Some(Reason::Damaged(why)),
            Some(Err(error)) => {
                unread.push(error);
                None
            }
            _ => None,
        }
    }

    /// Removes what goes beyond the limits, and leftovers of killed processes that are older than a minute. Processes
    /// may look up, compile and publish meanwhile.
    #[must_use]
    pub fn prune(&self, limits: &Limits) -> Pruned {
        let mut pruned = self.plan(limits);
        if !self.exists() {
            return pruned;
        }
        let leaving = std::mem::take(&mut pruned.removed);
        self.remove(leaving, &mut pruned);
        self.remove_empty();
        pruned.leftovers = self.workspace.collect_leftovers(SETTLED);
        pruned
    }

    /// Removes every entry, however new, all compressed frames, all generated sources, folders of compilations that were
    /// kept, and leftovers that are older than a minute. Locks, the host target's runtime object and what compilations
    /// took stay: other processes may hold or link them.
    #[must_use]
    pub fn clear(&self) -> Pruned {
        let Listing { entries, unread } = self.list();
        let mut pruned = Pruned { failed: unread, ..Pruned::default() };
        if !self.exists() {
            return pruned;
        }
        let all = entries.into_iter().map(|entry| Removed { entry, why: Reason::Cleared });
        self.remove(all.collect(), &mut pruned);
        if self.workspace.trusted(&self.workspace.frames()).is_ok() {
            remove_own(&self.workspace.frames());
        }
        for folder in self.folders(&self.workspace.temporary(), &mut pruned.failed) {
            let kept = folder.file_name().is_some_and(|n| n.to_string_lossy().starts_with(KEPT));
            if kept && !is_locked(&folder) {
                remove_own(&folder);
            }
        }
        for folder in self.folders(&self.workspace.generated(), &mut pruned.failed) {
            // Others may be writing there; they take what happens for a file system that refuses.
            if folder.file_name().is_some_and(|n| n.to_string_lossy().contains('@')) {
                remove_own(&folder);
            }
        }
        self.remove_empty();
        pruned.leftovers = self.workspace.collect_leftovers(SETTLED);
        pruned
    }

    /// Whether there is anything that could go: nothing is made to find that out.
    fn exists(&self) -> bool {
        self.workspace.root().exists() || self.workspace.store().exists()
    }

    fn remove(&self, leaving: Vec<Removed>, pruned: &mut Pruned) {
        let mut sources: BTreeMap<Digest, BTreeSet<String>> = BTreeMap::new();
        for removed in leaving {
            let entry = &removed.entry;
            match self.take_away(entry) {
                Ok(true) => {
                    let uris = sources.entry(entry.source_key).or_default();
                    uris.extend(entry.metadata.as_ref().ok().map(|m| m.uri.clone()));
                    pruned.removed.push(removed);
                }
                // Somebody removed it, or made it anew, while this one was planning.
                Ok(false) => {}
                Err(error) => {
                    pruned.failed.push(StoreError::Io { what: "remove", path: entry.folder.clone(), error });
                    pruned.kept.count += 1;
                    pruned.kept.bytes += entry.bytes;
                }
            }
        }
        for (source_key, uris) in sources {
            self.tidy(source_key, &uris);
        }
    }

    /// Takes an entry out of the store as a whole, then deletes it. False if it is no longer the one that was judged.
    fn take_away(&self, entry: &Entry) -> io::Result<bool> {
        self.workspace.trusted(&entry.folder).map_err(|e| io::Error::new(io::ErrorKind::PermissionDenied, e))?;
        let to = self.workspace.make(self.workspace.staging())?.join(Owner::this().name(PRUNED));
        match std::fs::rename(&entry.folder, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed?,
        }
        let used = std::fs::metadata(&to).and_then(|m| m.modified());
        if used.is_ok_and(|used| used != entry.used) && std::fs::rename(&to, &entry.folder).is_ok() {
            return Ok(false);
        }
        // It is out of the store; what cannot be deleted now is collected by age.
        if let Err(error) = std::fs::remove_dir_all(&to) {
            tracing::debug!(path = %to.display(), %error, "a removed entry is deleted later");
        }
        Ok(true)
    }

    /// Removes the folders of a source that has no entry any more, and what was generated from it. A folder that was
    /// changed within the last minute stays until next time: somebody may be about to publish there.
    fn tidy(&self, source_key: Digest, uris: &BTreeSet<String>) {
        let source = self.workspace.store().join(source_key.to_string());
        let mut ignored = Vec::new();
        let targets = self.folders(&source, &mut ignored);
        if targets.iter().any(|target| !self.folders(target, &mut ignored).is_empty()) {
            return;
        }
        for uri in uris {
            remove_own(&self.workspace.generated().join(format!("{uri}@{}", source_key.short(12))));
        }
    }

    /// Removes folders of sources and targets that have been empty for a while.
    fn remove_empty(&self) {
        let mut ignored = Vec::new();
        let old = |folder: &Path| {
            let changed = std::fs::metadata(folder).and_then(|m| m.modified());
            changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age >= SETTLED))
        };
        for source in self.folders(&self.workspace.store(), &mut ignored) {
            let targets = self.folders(&source, &mut ignored);
            for folder in targets.iter().chain([&source]).filter(|folder| old(folder)) {
                // Fails if there is something in it.
                let _ = std::fs::remove_dir(folder);
            }
        }
    }
}

/// What each spec of a library is compiled from; nothing if sources of an op cannot be read.
#[must_use]
pub fn source_keys(library: &Library) -> Option<HashSet<Digest>> {
    let mut keys = HashSet::new();
    for (id, op) in library.ops() {
        let sources = library.sources_digest(id).ok()?;
        keys.extend(space::specs(op).map(|(spec, _)| spec.source_key(op, sources).digest));
    }
    Some(keys)
}

/// Notes that an entry was loaded, at most once a day. Costs one look at its folder; where the time cannot be set, it
/// counts as used when it was published.
pub(crate) fn note_use(folder: &Path) {
    let now = SystemTime::now();
    let recent = |used: SystemTime| now.duration_since(used).is_ok_and(|idle| idle < DAY);
    if std::fs::metadata(folder).and_then(|m| m.modified()).is_ok_and(|used| !recent(used)) {
        let _ = File::open(folder).and_then(|folder| folder.set_modified(now));
    }
}

/// Removes a folder of this user. The one above it may be everybody's, and then names prove nothing.
fn remove_own(folder: &Path) {
    if trust::is_own(folder) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// The name of a folder, if it is one of ours.
fn named<T: std::str::FromStr + ToString>(folder: &Path) -> Option<T> {
    let name = folder.file_name()?.to_str()?;
    name.parse::<T>().ok().filter(|parsed| parsed.to_string() == name)
}
