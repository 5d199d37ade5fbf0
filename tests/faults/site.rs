//! A site: a workspace of its own, workers with fake compilers, and what is left when they are gone.

use crate::work::Answer;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What all sites share: the preload library, what the real compiler gave before, the host target's runtime.
pub(crate) fn shared(name: &str) -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(name);
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder).unwrap();
    folder
}

/// Builds one of the libraries in `tests/fake`.
pub(crate) fn build(source: &str, output: &Path) {
    let staged = output.with_extension(format!("{}.so", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or("cc".to_owned());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&staged)
        .arg(root().join("tests/fake").join(source))
        .arg("-ldl")
        .status();
    assert!(status.unwrap().success(), "{source}");
    std::fs::rename(staged, output).unwrap();
}

fn preload() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let path = shared("preload").join("faults.so");
        build("faults.c", &path);
        path
    })
}

/// All files and folders below a folder, relative to it.
pub(crate) fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        found.push(name.clone());
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
        }
    }
    found
}

pub(crate) struct Site {
    folder: tempfile::TempDir,
    pub(crate) workspace: PathBuf,
    workers: AtomicUsize,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { workspace: folder.path().join("workspace"), folder, workers: AtomicUsize::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker with a job, not yet started. Its compiler is the fake one, in mode `ok`.
    pub(crate) fn worker(&self, job: &str) -> Worker<'_> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", "--exact", "--nocapture", "--test-threads=1"]);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|n| n.starts_with("PARBAKE_") || n == "CXXFLAGS") {
                command.env_remove(name);
            }
        }
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        command
            .env("PARBAKE_TEST_JOB", job)
            .env("PARBAKE_KERNELS", root().join("kernels"))
            .env("PARBAKE_WORKSPACE", &self.workspace)
            .env("PARBAKE_TOOLCHAINS", shared("toolchains"))
            .env("CXX", root().join("tests/fake/cxx"))
            .env("PARBAKE_TEST_FAKE_REAL", std::env::var("CXX").unwrap_or("c++".to_owned()))
            .env("PARBAKE_TEST_FAKE_CACHE", shared("compiled"))
            .env("PARBAKE_TEST_FAKE_LOG", self.path("log"))
            .env("FAULTS_SEED", (number + 1).to_string());
        Worker { site: self, number, command }
    }

    /// Runs a worker to its end.
    pub(crate) fn run(&self, job: &str) -> Done {
        self.worker(job).run()
    }

    /// Lets workers that line up go, once all of them are ready.
    pub(crate) fn start(&self, workers: Vec<Worker<'_>>) -> Vec<Done> {
        let line = self.path("line");
        let _ = std::fs::remove_dir_all(&line);
        std::fs::create_dir(&line).unwrap();
        let count = workers.len();
        let running: Vec<Running> = workers.into_iter().map(|w| w.set("PARBAKE_TEST_START", &line).spawn()).collect();
        wait("all workers to be ready", || tree(&line).len() == count);
        std::fs::write(line.join("go"), "").unwrap();
        running.into_iter().map(Running::end).collect()
    }

    /// The compilations that were begun: process and mode.
    pub(crate) fn compiles(&self) -> Vec<(i32, String)> {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.parse().unwrap_or(0), words.next()?.to_owned()))
        };
        log.lines().filter_map(line).collect()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.workspace.join("store")
    }

    /// The folders of published entries.
    pub(crate) fn entries(&self) -> Vec<PathBuf> {
        let folder = self.store().join("v1");
        let depth = |name: &str| name.matches('/').count();
        tree(&folder).iter().filter(|name| depth(name) == 2).map(|name| folder.join(name)).collect()
    }

    /// What was begun and not finished, or put aside; the stamp of the last collection is neither.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let below = |part: &str| tree(&self.workspace.join(part));
        let staged = below("store/stage").into_iter().filter(|name| name != "collected");
        staged.chain(below("tmp")).chain(below("gen").into_iter().filter(|n| n.starts_with("stage-"))).collect()
    }
}

pub(crate) struct Worker<'a> {
    site: &'a Site,
    number: usize,
    command: Command,
}

impl Worker<'_> {
    pub(crate) fn set(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Makes operations fail below a folder.
    pub(crate) fn faults(self, below: &Path, rules: &str) -> Self {
        self.set("LD_PRELOAD", preload()).set("FAULTS_BELOW", below).set("FAULTS", rules)
    }

    /// Shifts the time of day by so many years.
    pub(crate) fn years(self, years: i64) -> Self {
        self.set("LD_PRELOAD", preload()).set("FAULTS_CLOCK", (years * 31_556_952).to_string())
    }

    /// Runs the worker by a shell, after a command of it.
    pub(crate) fn after(mut self, shell: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")]);
        command.arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.command = command;
        self
    }

    pub(crate) fn spawn(mut self) -> Running {
        let file = |kind: &str| self.site.path(&format!("{kind}-{}", self.number));
        let (output, log) = (file("output"), file("log"));
        let to = |path: &Path| Stdio::from(std::fs::File::create(path).unwrap());
        self.command.stdin(Stdio::null()).stdout(to(&output)).stderr(to(&log));
        Running { child: self.command.spawn().unwrap(), output, log }
    }

    pub(crate) fn run(self) -> Done {
        self.spawn().end()
    }
}

pub(crate) struct Running {
    child: Child,
    output: PathBuf,
    log: PathBuf,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Kills it as the kernel would: with no chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn end(mut self) -> Done {
        let status = self.child.wait().unwrap();
        let (output, log) = (std::fs::read_to_string(&self.output).unwrap(), self.log());
        assert!(status.success(), "{output}\n{log}");
        let answers = output.lines().filter_map(|line| line.strip_prefix("ANSWER "));
        Done { answers: answers.map(|json| serde_json::from_str(json).unwrap()).collect(), log }
    }
}

/// What a worker said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) answers: Vec<Answer>,
    pub(crate) log: String,
}

impl Done {
    /// Where its kernels came from; all must have been loaded.
    pub(crate) fn from(&self) -> Vec<&str> {
        assert!(!self.answers.is_empty(), "{self:?}");
        self.answers.iter().map(|a| a.from.as_deref().unwrap_or_else(|| panic!("{}\n{}", a.report, self.log))).collect()
    }

    /// Its only answer, which is an error of that code and says that.
    pub(crate) fn failed(&self, code: &str, parts: &[&str]) {
        assert!(!self.answers.is_empty(), "{self:?}");
        for answer in &self.answers {
            assert_eq!((answer.from.as_deref(), answer.code.as_str()), (None, code), "{}\n{}", answer.report, self.log);
            for part in parts {
                assert!(answer.report.contains(part), "no `{part}` in\n{}", answer.report);
            }
        }
    }

    /// It said that, so many times.
    pub(crate) fn said(&self, text: &str, times: usize) {
        assert_eq!(self.log.matches(text).count(), times, "`{text}` in\n{}", self.log);
    }
}

/// Waits for something that must come within half a minute; gives how long it took.
pub(crate) fn wait(what: &str, mut is: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// A file system of its own, which goes away with the value; `None` where none can be mounted.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn new(at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(at).output();
        if !mount.is_ok_and(|output| output.status.success()) {
            println!("skipped: needs the right to mount file systems");
            return None;
        }
        Some(Self(at.to_owned()))
    }

    pub(crate) fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
