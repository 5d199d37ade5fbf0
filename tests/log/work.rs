//! What a worker does, and how a test starts one.

use crate::common::root;
use parbake::log::Dumped;
use parbake::model::dtype::DType;
use parbake::model::settings::Config;
use parbake::{Library, Place, Stream, Tensor};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Calls, `;` between, each as `OP DTYPE ROWS HIDDEN [WORD…]`: `pad=N` elements between rows, `offset=N` before the
/// first, `inplace` for `out` in the memory of `x`, `eps=X`; `level N`; and `replay DUMP`, on the host target.
pub(crate) fn run(job: &str) {
    let library = Library::open(Config::from_env().unwrap()).unwrap();
    for words in job.split(';').map(|call| call.split_whitespace().collect::<Vec<_>>()) {
        match words.as_slice() {
            ["replay", dump] => println!("answer {}", replay(&library, Path::new(dump))),
            ["level", level] => parbake::log::set_level(level.parse().unwrap()).unwrap(),
            [op, dtype, rows, hidden, rest @ ..] => {
                let result = call(&library, op, dtype, rows.parse().unwrap(), hidden.parse().unwrap(), rest);
                println!("answer {}", result.map_or_else(|e| e.report().code.to_owned(), |()| "done".to_owned()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What came of a replay, in words.
pub(crate) fn replay(library: &Library, dump: &Path) -> String {
    match Dumped::open(dump).and_then(|dump| dump.replay(library, Place::Host, 2)) {
        Ok(replayed) => {
            let outputs = replayed.outputs.iter().map(|o| format!(" {} {:?}", o.name, o.verdict)).collect::<String>();
            let reference = if replayed.reference.is_some_and(|r| r.wrong.is_none()) { "right" } else { "wrong" };
            format!("{}{outputs} reference {reference}", if replayed.ok { "ok" } else { "not ok" })
        }
        Err(error) => error.report().code.to_owned(),
    }
}

/// Rows that are padded and begin somewhere, filled with numbers that differ.
struct Rows {
    memory: Vec<u64>,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    offset: usize,
}

impl Rows {
    fn new(dtype: DType, shape: &[i64], pad: i64, offset: usize, seed: usize) -> Self {
        let row = shape[shape.len() - 1] + pad;
        let strides = if shape.len() == 2 { vec![row, 1] } else { vec![1] };
        let count = offset + (shape.iter().rev().skip(1).product::<i64>().max(1) * row) as usize;
        let mut memory = vec![0u64; (count * dtype.bytes()).div_ceil(8)];
        // SAFETY: the memory of a vector of plain numbers.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), memory.len() * 8) };
        for (i, element) in bytes.chunks_exact_mut(dtype.bytes()).enumerate() {
            dtype.store(((i * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0, element);
        }
        Self { memory, dtype, shape: shape.to_vec(), strides, offset }
    }

    fn tensor(&mut self) -> Tensor {
        let data = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(self.offset * self.dtype.bytes());
        Tensor::new(data.cast(), self.dtype, &self.shape, &self.strides).unwrap()
    }
}

fn call(
    library: &Library,
    op: &str,
    dtype: &str,
    rows: i64,
    hidden: i64,
    words: &[&str],
) -> Result<(), parbake::Error> {
    let word = |name: &str| words.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
    let (pad, offset) =
        (word("pad").map_or(0, |n| n.parse().unwrap()), word("offset").map_or(0, |n| n.parse().unwrap()));
    let eps = word("eps").map_or(1e-6, |x| x.parse().unwrap());
    let dtype = DType::named(dtype).unwrap();
    let new = |seed| Rows::new(dtype, &[rows, hidden], pad, offset, seed);
    let (mut first, mut second) = (new(1), new(2));
    let mut weight = Rows::new(dtype, &[hidden], 0, 0, 3);
    let (mut a, b) = (first.tensor(), second.tensor());
    if words.contains(&"inplace") {
        a = b;
    }
    let tensors = [a, b, weight.tensor()];
    // SAFETY: the memory outlives the call, which is synchronous on the host target.
    unsafe { library.call(library.op(op)?, &tensors, &[eps, 0.0], Place::Host, Stream::DEFAULT).map(drop) }
}

/// Where compiled kernels are kept for all tests.
fn store() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("log-store")
}

pub(crate) fn copy(from: &Path, to: &Path) {
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

/// A folder of its own, and workers that write below it only.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) kernels: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kernels: root().join("kernels") }
    }

    /// The same with kernels of its own, which a test may edit.
    pub(crate) fn with_own_kernels() -> Self {
        let mut site = Self::new();
        site.kernels = site.path("kernels");
        copy(&root().join("kernels"), &site.kernels);
        site
    }

    /// All dumps, by name.
    pub(crate) fn dumps(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("workspace/dumps")).into_iter().flatten().flatten();
        let named = |e: std::fs::DirEntry| (!e.file_name().to_str()?.starts_with('.')).then(|| e.path());
        let mut dumps: Vec<PathBuf> = entries.filter_map(named).collect();
        dumps.sort();
        dumps
    }

    pub(crate) fn library(&self) -> Library {
        let path = |p: PathBuf| p.display().to_string();
        let settings = [
            ("PARBAKE_KERNELS", path(self.kernels.clone())),
            ("PARBAKE_WORKSPACE", path(self.path("workspace"))),
            ("PARBAKE_STORE", path(store())),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        Library::open(Config::from_pairs(settings).unwrap().without_bundles()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker with a job, not yet started. Compiled kernels are shared by all tests.
    pub(crate) fn worker(&self, job: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", "--exact", "--nocapture", "--test-threads=1"]);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|n| n.starts_with("PARBAKE_")) {
                command.env_remove(name);
            }
        }
        command
            .env("PARBAKE_TEST_JOB", job)
            .env("PARBAKE_KERNELS", &self.kernels)
            .env("PARBAKE_WORKSPACE", self.path("workspace"))
            .env("PARBAKE_STORE", store())
            .env("XDG_DATA_DIRS", self.path("none"))
            .env("XDG_DATA_HOME", self.path("none"));
        Worker(command)
    }
}

pub(crate) struct Worker(pub(crate) Command);

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) answers: Vec<String>,
    pub(crate) said: String,
    pub(crate) status: std::process::ExitStatus,
}

impl Worker {
    pub(crate) fn set(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn level(self, level: &str) -> Self {
        self.set("PARBAKE_LOG", level)
    }

    pub(crate) fn run(mut self) -> Done {
        Done::of(self.0.output().unwrap())
    }
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        let stdout = String::from_utf8(output.stdout).unwrap();
        // The first may stand behind the harness's own words.
        let answers = stdout.lines().filter_map(|l| Some(l.split_once("answer ")?.1.to_owned())).collect();
        Self { answers, said: String::from_utf8(output.stderr).unwrap(), status: output.status }
    }

    pub(crate) fn answered(self, answers: &[&str]) -> Self {
        assert!(self.status.success(), "{self:?}");
        assert_eq!(self.answers, answers, "{self:?}");
        self
    }

    /// The lines of the log, without process and number.
    pub(crate) fn lines(&self) -> Vec<(u64, String)> {
        lines(&self.said)
    }
}

/// Each line of a log: the number of its call, and its text.
pub(crate) fn lines(log: &str) -> Vec<(u64, String)> {
    let line = |line: &str| {
        let (who, text) = line.strip_prefix("parbake ")?.split_once(' ')?;
        Some((who.split_once(':')?.1.parse().ok()?, text.to_owned()))
    };
    log.lines().filter_map(line).collect()
}
