//! Compressed frames of bundles, kept between bakes: `<store>/frames/<key>`.
//!
//! The key says everything that the bytes depend on, so a file is never changed; one that is damaged is as good as none.
//! What no bake used for a month is collected with the leftovers.

use crate::store::publish_file;
use crate::workspace::Workspace;
use parbake_codegen::baking::Keep;
use parbake_model::Digest;
use parbake_model::bundle::Packed;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How old the time of a file may be before a use moves it on.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The frames of a workspace.
#[derive(Clone, Debug)]
pub struct Frames {
    workspace: Workspace,
}

impl Frames {
    /// The frames of a workspace; nothing is created.
    #[must_use]
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    fn path(&self, key: Digest) -> PathBuf {
        self.workspace.frames().join(key.to_string())
    }
}

impl Keep for Frames {
    fn get(&self, key: Digest) -> Option<Packed> {
        let path = self.path(key);
        self.workspace.trusted(&path).ok()?;
        let packed = Packed::from_bytes(&std::fs::read(&path).ok()?)?;
        let recent = |used: SystemTime| SystemTime::now().duration_since(used).is_ok_and(|idle| idle < DAY);
        if std::fs::metadata(&path).and_then(|m| m.modified()).is_ok_and(|used| !recent(used)) {
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        Some(packed)
    }

    fn put(&self, key: Digest, packed: &Packed) {
        let path = self.path(key);
        if let Err(error) = publish_file(&self.workspace, &path, &packed.to_bytes()) {
            tracing::debug!(path = %path.display(), %error, "compressed frames are not kept");
        }
    }
}
