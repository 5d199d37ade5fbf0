//! A machine without GPU, compilers or settings, and the bundles and kernels that a test puts there.

use parbake::model::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
use parbake::model::identity::Spec;
use parbake::model::settings::Config;
use parbake::model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use parbake::{Library, OpId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The one JSON document on standard output.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The same, if it ended well.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }
}

/// A temporary folder with a workspace that is not there yet.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    kernels: PathBuf,
    settings: BTreeMap<String, String>,
}

/// The checkout.
pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A file of the formats' samples.
pub(crate) fn sample(name: &str) -> PathBuf {
    checkout().join("codegen/model/testdata").join(name)
}

impl Machine {
    /// One that reads the checkout's kernels.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, kernels: checkout().join("kernels"), settings: BTreeMap::new() }
    }

    /// One that reads a copy of the kernels, which a test may edit.
    pub(crate) fn with_own_kernels() -> Self {
        let mut machine = Self::new();
        let copy = machine.path("kernels");
        copy_folder(&machine.kernels, &copy);
        machine.kernels = copy;
        machine
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Where its compilers are.
    pub(crate) fn toolchains(&self) -> String {
        self.settings()["PARBAKE_TOOLCHAINS"].clone()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name).display().to_string()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let path = |p: PathBuf| p.display().to_string();
        let mut all = BTreeMap::from([
            ("PARBAKE_KERNELS".to_owned(), path(self.kernels.clone())),
            ("PARBAKE_TOOLCHAINS".to_owned(), path(self.path("toolchains"))),
            ("PARBAKE_WORKSPACE".to_owned(), path(self.workspace())),
            ("XDG_DATA_HOME".to_owned(), path(self.path("data"))),
            ("XDG_DATA_DIRS".to_owned(), path(self.path("share"))),
        ]);
        all.extend(self.settings.clone());
        all
    }

    /// Runs `parbake` with these words.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { status: status.code().expect("killed"), stdout: text(stdout), stderr: text(stderr) }
    }

    /// `parbake` with these words, not yet started.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parbake"));
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("PARBAKE_")) {
            command.env_remove(name);
        }
        // No wheels or toolkits of this machine, and no GPU even if it has one.
        for name in ["VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command.env("CUDA_VISIBLE_DEVICES", "").current_dir(self.folder.path());
        command.envs(self.settings()).args(words);
        command
    }

    /// Runs words that are written as one text.
    pub(crate) fn say(&self, words: &str) -> Ran {
        self.run(&words.split(' ').collect::<Vec<_>>())
    }

    /// The library as the program sees it.
    pub(crate) fn library(&self) -> Library {
        Library::open(Config::from_pairs(self.settings()).unwrap()).unwrap()
    }

    /// A spec, and what it would be compiled from.
    pub(crate) fn spec(&self, values: &[(&str, &str)], target: Target) -> (Spec, Digest) {
        let library = self.library();
        let op: OpId = library.op("rmsnorm").unwrap();
        let values: Vec<_> = values.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let spec = library.spec(op, &values, target).unwrap();
        let key = spec.source_key(library.definition(op), library.sources_digest(op).unwrap()).digest;
        (spec, key)
    }

    /// A bundle of `rmsnorm dtype=f32` for the host and for 90a, whose images are not what they should compute. The
    /// version is that of the library it is made for.
    pub(crate) fn bundle(&self, name: &str, version: &str) -> String {
        self.bundle_of(name, version, b"a shared object".to_vec())
    }

    /// The same with these bytes for the host.
    pub(crate) fn bundle_of(&self, name: &str, version: &str, object: Vec<u8>) -> String {
        let details = Details { library: version.to_owned(), launch_abi: LAUNCH_ABI, ..Details::default() };
        let mut writer = BundleWriter::new(details, 3);
        let library = self.library();
        let op = library.op("rmsnorm").unwrap();
        let (options, params) = (&library.definition(op).options, library.params_digest(op).unwrap());
        for target in [Target::Host, "sm_90a".parse().unwrap()] {
            let (spec, key) = self.spec(&[("dtype", "f32")], target);
            let host = target == Target::Host;
            let bytes = if host { object.clone() } else { std::fs::read(sample("13.0-90a.fatbin")).unwrap() };
            let image = ImageDetails {
                target,
                toolkit: (!host).then_some(Toolkit { major: 13, minor: 0 }),
                toolchain: if host { "host test".to_owned() } else { "nvrtc test".to_owned() },
                build_key: Digest::of(target.to_string().as_bytes()),
                size: 0,
                resources: None,
            };
            // The sample's kernel has that name.
            let spec = SpecDetails { entry: "sample".to_owned(), ..SpecDetails::new(&spec, key, params, options) };
            writer.push(Item { spec, image, bytes }).unwrap();
        }
        self.write(name, writer.finish().unwrap())
    }

    /// A bundle that fits.
    pub(crate) fn good_bundle(&self) -> String {
        self.bundle("good.pbk", VERSION)
    }
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}
