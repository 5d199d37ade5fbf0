//! The world of an integration test: the checkout's kernels, or a copy of them, and a workspace of its own.

#![allow(dead_code, clippy::print_stdout, reason = "each test uses its own part; skips are printed")]

use parbake::Library;
use parbake::model::settings::{Config, SignaturePolicy};
use parbake::trial::Trial;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder that goes away, with a configuration that writes below it only.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) config: Config,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::from_env().unwrap();
        config.kernels = Some(root().join("kernels"));
        config.workspace = folder.path().join("workspace");
        config = config.without_bundles();
        (config.public_keys, config.signature) = (Vec::new(), SignaturePolicy::Off);
        config.version_bypass = None;
        config.jit = true;
        config.cache = true;
        Self { folder, config }
    }

    /// The same with a copy of the kernels that a test may edit.
    pub(crate) fn with_own_kernels() -> Self {
        let mut world = Self::new();
        let kernels = world.folder.path().join("kernels");
        copy(&root().join("kernels"), &kernels);
        world.config.kernels = Some(kernels);
        world
    }

    pub(crate) fn kernel_file(&self, name: &str) -> PathBuf {
        self.config.kernels.as_ref().unwrap().join(name)
    }

    pub(crate) fn library(&self) -> Library {
        Library::open(self.config.clone()).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A trial of a row norm.
pub(crate) fn norm(library: &Library, op: &str, dtype: &str, rows: i64, hidden: i64) -> Trial {
    let def = library.definition(library.op(op).unwrap());
    let mut trial = Trial::example(def, BTreeMap::from([("dtype".to_owned(), dtype.to_owned())]));
    trial.dims = BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), hidden)]);
    trial
}

/// The image facts of a toolchain that a test needs; `None` prints the skip.
pub(crate) fn toolchain(
    library: &Library,
    target: &str,
    toolkit: &str,
) -> Option<std::sync::Arc<dyn parbake_codegen::toolchain::Toolchain>> {
    let found = library.toolchain(target.parse().unwrap(), Some(toolkit.parse().unwrap()));
    if found.is_err() {
        println!("skipped: needs cuda-{toolkit} (parbake toolchain install {toolkit})");
    }
    found.ok()
}
