//! The bundles that this process looks kernels up in.

use crate::decision::{Decision, Miss};
use crate::error::Error;
use crate::goal::Goal;
use crate::version;
use parbake_model::bundle::{Bundle, BundleError, Entry, Part};
use parbake_model::{Digest, LAUNCH_ABI, VERSION};
use std::path::{Path, PathBuf};

/// An open bundle that fits this library.
pub(crate) struct OpenBundle {
    pub(crate) name: String,
    path: PathBuf,
    bundle: Bundle,
}

impl std::fmt::Debug for OpenBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenBundle").field(&self.name).finish()
    }
}

impl OpenBundle {
    /// Opens a bundle file. Nothing is written, and only its index and details are read.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::Bundle { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(|source| BundleError::Io { part: Part::Header, source });
        let bundle = file.and_then(Bundle::open).map_err(refuse)?;
        Self::admit(format!("bundle {}", path.display()), path.to_owned(), bundle)
    }

    /// Takes a bundle that lies inside the library.
    pub(crate) fn embedded(bytes: &'static [u8]) -> Result<Self, Error> {
        let path = PathBuf::from("(embedded)");
        let bundle = Bundle::open(bytes).map_err(|source| Error::Bundle { path: path.clone(), source })?;
        Self::admit("embedded bundle".to_owned(), path, bundle)
    }

    /// The clear error before any look-up: same caret range of versions, same launch ABI.
    fn admit(name: String, path: PathBuf, bundle: Bundle) -> Result<Self, Error> {
        let (library, abi) = (bundle.library().to_owned(), bundle.launch_abi());
        if !fits(&library, abi) {
            return Err(Error::BundleVersion {
                path,
                bundle: format!("made by version {library}, launch ABI {abi}"),
                library: format!("version {VERSION}, launch ABI {LAUNCH_ABI}"),
            });
        }
        Ok(Self { name, path, bundle })
    }

    /// The best image for a source on a device; every candidate is noted.
    pub(crate) fn find(
        &self,
        source_key: Digest,
        goal: Goal,
        thorough: bool,
        decision: &mut Decision,
    ) -> Option<&Entry> {
        let entries: Vec<&Entry> = self.bundle.targets_of(source_key).collect();
        if entries.is_empty() {
            let quick = || (Miss::NotCovered, "no image of these sources".to_owned());
            let (miss, why) = if thorough { self.absence(decision) } else { quick() };
            decision.miss(&self.name, None, miss, why);
            return None;
        }
        let (best, trace) = goal.select(entries.iter().map(|e| (e.judged(), *e)));
        decision.note_all(&self.name, trace);
        best
    }

    /// Why there is no image of a source: another build of the same spec is told from none at all.
    fn absence(&self, decision: &Decision) -> (Miss, String) {
        let details = self.bundle.details().ok();
        let other = details.and_then(|d| d.specs.iter().find(|s| s.uri == decision.uri));
        match other {
            Some(spec) => {
                let (theirs, ours) = (spec.source_key.short(12), decision.source_key.short(12));
                let why = format!("source changed: it holds this spec from sources {theirs}, the library's are {ours}");
                (Miss::SourceChanged, why)
            }
            None => (Miss::NotCovered, "not covered: it does not hold this spec".to_owned()),
        }
    }

    pub(crate) fn image(&self, entry: &Entry) -> Result<Vec<u8>, Error> {
        self.bundle.image(entry).map_err(|source| Error::Bundle { path: self.path.clone(), source })
    }
}

/// Whether a bundle of this version and launch ABI may be used by this library at all.
pub(crate) fn fits(library: &str, launch_abi: u32) -> bool {
    launch_abi == LAUNCH_ABI && version::compatible(library, VERSION)
}
