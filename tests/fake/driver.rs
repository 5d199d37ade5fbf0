//! Runs a test in a process of its own under the fake driver of `driver.c`: a process opens its driver once.

#![allow(dead_code, reason = "each test uses its own part")]

use crate::common::{World, root, toolchain};
use parbake::model::Target;
use parbake::model::identity::Profile;
use parbake::model::op::Op;
use parbake_codegen::artifact::Made;
use parbake_codegen::baking::{self, Job, Only, Packing};
use parbake_codegen::toolchain::{Search, find_nvfatbin};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// A machine with a fake driver, or without one.
#[derive(Clone)]
pub(crate) struct Machine {
    settings: BTreeMap<String, String>,
    without: Option<&'static str>,
    driver: bool,
}

/// Which test a child process is about.
const TEST: &str = "FAKE_CUDA_TEST";
const LOG: &str = "FAKE_CUDA_LOG";

impl Machine {
    /// One with these devices, as `driver.c` reads them.
    pub(crate) fn with(devices: &str) -> Self {
        let settings = BTreeMap::from([("FAKE_CUDA_DEVICES".to_owned(), devices.to_owned())]);
        Self { settings, without: None, driver: true }
    }

    /// One without a driver library.
    pub(crate) fn without_driver() -> Self {
        Self { driver: false, ..Self::with("") }
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.insert(name.to_owned(), value.into());
        self
    }

    /// Functions and their results.
    pub(crate) fn failing(self, what: &str) -> Self {
        self.set("FAKE_CUDA_FAIL", what)
    }

    /// What `cuDriverGetVersion` says.
    pub(crate) fn driver(self, version: i32) -> Self {
        self.set("FAKE_CUDA_DRIVER", version.to_string())
    }

    /// An old driver, which lacks a function.
    pub(crate) fn lacking(mut self, symbol: &'static str) -> Self {
        self.without = Some(symbol);
        self
    }

    /// Whether this is the child that is on such a machine; the parent starts it and sees that it passes.
    pub(crate) fn runs(&self, test: &str) -> bool {
        if std::env::var(TEST).is_ok_and(|t| t == test) {
            return true;
        }
        let folder = tempfile::tempdir().unwrap();
        let library = if self.driver { library(self.without) } else { folder.path().to_owned() };
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        child.env_remove("CUDA_VISIBLE_DEVICES").env("LD_LIBRARY_PATH", library);
        child.env(TEST, test).env(LOG, folder.path().join("log")).envs(&self.settings);
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        child.stdout(Stdio::from(std::fs::File::create(&out).unwrap()));
        child.stderr(Stdio::from(std::fs::File::create(&err).unwrap()));
        let mut child = child.spawn().unwrap();
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if start.elapsed() > Duration::from_secs(120) => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let said = text(&out);
        // A name that no test has would pass too.
        let passed = status.is_some_and(|s| s.success()) && said.contains("test result: ok. 1 passed");
        let log = text(&folder.path().join("log"));
        assert!(passed, "{status:?} with {:?}\n{said}\n{}\n{log}", self.settings, text(&err));
        // A skip in the child is one of this test; the name of the test may stand before it.
        said.lines()
            .filter_map(|line| line.find("skipped: ").map(|at| &line[at..]))
            .for_each(|skip| println!("{skip}"));
        false
    }
}

/// A setting of the machine, in the child.
pub(crate) fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The folder of a fake driver, built once a process. Both names are there, so that no driver of this machine is found.
fn library(without: Option<&'static str>) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<Option<&'static str>, tempfile::TempDir>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = built.entry(without).or_insert_with(|| {
        let folder = tempfile::tempdir().unwrap();
        let host = "x86_64-unknown-linux-gnu";
        let compiler = cc::Build::new().cargo_metadata(false).opt_level(0).target(host).host(host).get_compiler();
        let mut command = Command::new(compiler.path());
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]);
        command.args(without.map(|symbol| format!("-D{symbol}=left_out")));
        command.arg("-o").arg(folder.path().join("libcuda.so.1")).arg(root().join("tests/fake/driver.c"));
        assert!(command.status().unwrap().success());
        std::os::unix::fs::symlink("libcuda.so.1", folder.path().join("libcuda.so")).unwrap();
        folder
    });
    folder.path().to_owned()
}

/// A call that the fake driver logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) result: i32,
}

impl Call {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }
}

/// What was called so far, in the child.
pub(crate) fn log() -> Vec<Call> {
    let text = std::fs::read_to_string(setting(LOG)).unwrap_or_default();
    text.lines()
        .map(|line| {
            let (call, result) = line.split_once(" -> ").unwrap();
            let mut words = call.split(' ');
            let function = words.next().unwrap().to_owned();
            let values = words.map(|w| w.split_once('=').unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            Call { function, values, result: result.parse().unwrap() }
        })
        .collect()
}

/// The calls of one function so far.
pub(crate) fn calls(function: &str) -> Vec<Call> {
    log().into_iter().filter(|c| c.function == function).collect()
}

/// How the fake driver names bytes (FNV-1a).
pub(crate) fn name_of(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// The tactic of a row of 1024 elements of bf16.
const TACTIC: [(&str, &str); 5] = [("dtype", "bf16"), ("block", "512"), ("rows", "1"), ("vec", "16"), ("peel", "0")];

/// A bundle by toolkit 12.9 with the kernel of `rmsnorm` for bf16 rows of 1024 elements, baked once a process; without
/// that toolkit the skip is printed.
pub(crate) fn bundle(archs: &str) -> Option<PathBuf> {
    static BAKED: LazyLock<(tempfile::TempDir, Mutex<()>)> =
        LazyLock::new(|| (tempfile::tempdir().unwrap(), Mutex::default()));
    let _one = BAKED.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = BAKED.0.path().join(format!("{archs}.pbk"));
    if path.exists() {
        return Some(path);
    }
    let world = World::new();
    let library = world.library();
    let targets = Target::parse_list(archs).unwrap();
    let mut plan = baking::plan(library.ops().map(|(_, op)| op), "rmsnorm", &Only::new(), &targets).unwrap();
    plan.jobs.retain(|job| {
        let value = |name: &str| {
            let tactic = job.spec.tactic.iter().find(|(n, _)| n == name).map(|(_, v)| v.to_string());
            tactic.or(job.spec.axis(name).map(str::to_owned))
        };
        TACTIC.iter().all(|(name, wanted)| value(name).as_deref() == Some(wanted))
    });
    assert_eq!(plan.jobs.len(), targets.len());
    let compiler = toolchain(&library, "sm_90a", "12.9")?;
    let make = |job: &Job<'_>| {
        let op = library.op(&job.op.name).unwrap();
        let (artifact, _) =
            library.obtain(op, &job.spec, job.target, &*compiler, Profile::Release).map_err(|e| e.report())?;
        Ok(Made { bytes: artifact.bytes, metadata: artifact.metadata })
    };
    let made = baking::run(&plan, 2, &make, &|_, _| {}).unwrap();
    let params = |op: &Op| library.op(&op.name).and_then(|id| library.params_digest(id)).map_err(|e| e.report());
    let packer = |target, toolkit| {
        let toolchains = library.config().toolchains.clone();
        find_nvfatbin(&Search { explicit: None, toolchains, want: Some(toolkit), driver: None, target })
            .map_err(|e| e.report())
    };
    std::fs::write(
        &path,
        baking::pack(&plan, made, &Packing { params: &params, nvfatbin: &packer, level: 3, threads: 2, keep: None })
            .unwrap(),
    )
    .unwrap();
    Some(path)
}
