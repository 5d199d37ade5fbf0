//! With everything in a bundle, a run leaves the machine alone: no network, no file, no process, no compiler. And what it
//! says where nothing is installed.

#![allow(clippy::print_stdout, reason = "a test that needs a tool of the system says what it needs")]

use crate::machine::{Machine, Ran, checkout};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A small run, so that time goes into what is tested.
const RUN: &[&str] =
    &["run", "rmsnorm", "dtype=f32", "--target", "host", "--shape", "rows=3", "--shape", "hidden=64", "--json"];

/// A bundle of `rmsnorm dtype=f32` for the host, baked once.
fn baked() -> &'static [u8] {
    static BAKED: OnceLock<Vec<u8>> = OnceLock::new();
    BAKED.get_or_init(|| {
        let machine = Machine::new();
        machine.say("build --arch host --op norm/rmsnorm --only dtype=f32 --jobs 2 -o baked.pbk").ok();
        std::fs::read(machine.path("baked.pbk")).unwrap()
    })
}

/// What is installed: the program and a bundle, in a folder that everybody may read and nobody but its owner write.
struct Installed {
    machine: Machine,
    program: PathBuf,
    bundle: String,
}

impl Installed {
    fn new() -> Self {
        let machine = Machine::new();
        let bundle = machine.write("baked.pbk", baked());
        let program = machine.path("parbake");
        // Not a link: where it was built need not be readable for everybody.
        // By another process: a file that this one has open for writing cannot be run, and a child that another test is
        // just starting has it open too.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_parbake")).arg(&program).status().unwrap();
        assert!(copied.success());
        for (path, mode) in [(machine.path(""), 0o755), (program.clone(), 0o755), (bundle.clone().into(), 0o644)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Self { machine, program, bundle }
    }

    /// The program behind some words (`strace …`), with an environment that has nothing but the bundle: no HOME, no PATH,
    /// no kernel folder.
    fn alone(&self, before: &[&str], words: &[&str]) -> Ran {
        let mut all: Vec<&std::ffi::OsStr> = before.iter().map(AsRef::as_ref).collect();
        all.push(self.program.as_ref());
        all.extend(words.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).env_clear().env("PARBAKE_BUNDLES", &self.bundle).current_dir("/");
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { status: status.code().expect("killed"), stdout: text(stdout), stderr: text(stderr) }
    }

    /// What the system was asked for, by system call.
    fn traced(&self, words: &[&str]) -> Vec<String> {
        let log = self.machine.path("trace");
        let calls = "trace=%network,open,openat,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,\
                     renameat,renameat2,unlink,unlinkat,truncate,chmod,fchmodat,execve,execveat";
        let ran = self.alone(&[tool("strace").unwrap(), "-f", "-qq", "-o", log.to_str().unwrap(), "-e", calls], words);
        assert_eq!(ran.status, 0, "{ran:?}");
        let lines = std::fs::read_to_string(log).unwrap();
        let call = |line: &str| line.split_once(' ').map(|(_, call)| call.trim_start().to_owned());
        lines.lines().filter_map(call).filter(|c| !c.starts_with("+++") && !c.starts_with("---")).collect()
    }
}

/// Where a program of the system is; without it a test says what it needs.
fn tool(name: &str) -> Option<&'static str> {
    let paths = [("strace", "/usr/bin/strace"), ("setpriv", "/usr/bin/setpriv"), ("unshare", "/usr/bin/unshare")];
    let path = paths.into_iter().find(|(n, _)| *n == name).map(|(_, path)| path).expect("a known tool");
    if Path::new(path).exists() {
        return Some(path);
    }
    println!("skipped: needs {name}");
    None
}

/// Whether this process may become another user and mount file systems.
fn privileged(words: &[&str]) -> bool {
    let may = Command::new(words[0]).args(&words[1..]).output().is_ok_and(|o| o.status.success());
    if !may {
        println!("skipped: needs the right to run `{}`", words.join(" "));
    }
    may
}

/// Every file and folder below some, with size and time of its last change.
fn tree(roots: &[&Path]) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = roots.iter().map(|r| r.to_path_buf()).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path(), (facts.len(), facts.modified().unwrap()));
        }
    }
    found
}

fn served_by_the_bundle(ran: Ran) {
    let ran = ran.ok();
    let json = ran.json();
    assert_eq!((&json["from"], &json["ok"]), (&"bundle".into(), &true.into()), "{json}");
    assert_eq!(ran.stderr, "", "nothing is worth a warning");
}

/// What must not happen, of the system calls that did.
fn touched(calls: &[String], also: &[&str]) -> Vec<String> {
    let mut programs = 0;
    let mut bad = |call: &&String| {
        let name = call.split('(').next().unwrap_or_default();
        let opens = name.starts_with("open") || name == "creat";
        match name {
            _ if opens && (call.contains("O_CREAT") || call.contains("O_WRONLY") || call.contains("O_RDWR")) => {
                !call.contains("\"/dev/null\"")
            }
            _ if opens => also.iter().any(|library| call.contains(library)),
            "execve" => {
                programs += 1;
                programs > 1
            }
            _ => true,
        }
    };
    calls.iter().filter(|c| bad(c)).cloned().collect()
}

/// Parts of the names of compilers.
const COMPILERS: &[&str] = &["nvrtc", "nvcc", "nvfatbin", "cc1", "g++", "clang", "ptxas", "/usr/bin/c++", "collect2"];

#[test]
fn a_covered_run_opens_no_compiler_writes_nothing_and_asks_no_network() {
    if tool("strace").is_none() {
        return;
    }
    let installed = Installed::new();
    let calls = installed.traced(RUN);
    assert!(calls.iter().any(|c| c.contains("baked.pbk")), "it reads the bundle: {calls:#?}");
    assert_eq!(touched(&calls, COMPILERS), Vec::<String>::new());
}

#[test]
fn naming_a_target_asks_no_driver() {
    if tool("strace").is_none() {
        return;
    }
    let installed = Installed::new();
    let bundle = installed.machine.good_bundle();
    let also = [COMPILERS, &["libcuda", "/dev/nvidia"]].concat();
    let words = |command| [command, "rmsnorm", "dtype=f32", "--target", "90a", "--bundle", &bundle].map(str::to_owned);
    let traced = |command| {
        let words = words(command);
        installed.traced(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(touched(&traced("supports"), &also), Vec::<String>::new());
    // `why` also tells the key of a build here, for which it asks the compiler; never the driver.
    assert_eq!(touched(&traced("why"), &["libcuda", "/dev/nvidia"]), Vec::<String>::new());
}

#[test]
fn a_covered_run_leaves_every_folder_as_it_was() {
    // Independent of what strace knows: the folders themselves, and compilers out of reach.
    let installed = Installed::new();
    let own = installed.machine.path("");
    let folders = [("HOME", own.join("home")), ("TMPDIR", own.join("tmp"))];
    folders.iter().for_each(|(_, folder)| std::fs::create_dir(folder).unwrap());
    let before = tree(&[&own]);
    let mut command = Command::new(&installed.program);
    command.args(RUN).env_clear().env("PARBAKE_BUNDLES", &installed.bundle).env("PATH", own.join("no-compilers"));
    command.envs(folders).env("https_proxy", "http://127.0.0.1:9").current_dir("/");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    served_by_the_bundle(Ran {
        status: output.status.code().unwrap(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    });
    assert_eq!(tree(&[&own]), before);
}

#[test]
fn an_unknown_user_without_a_home_is_served() {
    let Some(setpriv) = tool("setpriv") else { return };
    let somebody = [setpriv, "--reuid", "12345", "--regid", "12345", "--clear-groups"];
    if !privileged(&[&somebody[..], &["/bin/true"]].concat()) {
        return;
    }
    let fallback = std::env::temp_dir().join("parbake-12345");
    let existed = fallback.exists();
    served_by_the_bundle(Installed::new().alone(&somebody, RUN));
    assert_eq!(fallback.exists(), existed, "its workspace is not made");
}

#[test]
fn a_read_only_root_serves() {
    let Some(unshare) = tool("unshare") else { return };
    let read_only = [unshare, "-m", "--propagation", "private", "/bin/sh", "-c"];
    // Every file system that can be: of the others nothing is written either, or the trace above would show it.
    let script = "for m in / /tmp \"$(dirname \"$1\")\"; do mount -o remount,bind,ro \"$m\" 2>/dev/null; done; \
                  ! /bin/touch \"$1.x\" 2>/dev/null || exit 99; exec \"$@\"";
    if !privileged(&[&read_only[..], &["mount -o remount,bind,ro /"]].concat()) {
        return;
    }
    let installed = Installed::new();
    let before: Vec<&str> = read_only.iter().copied().chain([script, "sh"]).collect();
    let ran = installed.alone(&before, RUN);
    if ran.status == 99 {
        println!("skipped: needs a temporary folder that can be made read-only");
        return;
    }
    served_by_the_bundle(ran);
}

#[test]
fn a_workspace_without_the_right_to_execute_serves() {
    let Some(unshare) = tool("unshare") else { return };
    let mounting = [unshare, "-m", "--propagation", "private", "/bin/sh", "-c"];
    if !privileged(&[&mounting[..], &["mount -t tmpfs -o noexec none /mnt"]].concat()) {
        return;
    }
    let machine = Machine::new();
    std::fs::create_dir(machine.workspace()).unwrap();
    let program = env!("CARGO_BIN_EXE_parbake");
    // Twice: compiled and run, then taken from the store and run.
    let script = format!(
        "mount -t tmpfs -o noexec,mode=0700 none {0} && {1} {2} && {1} {2}",
        machine.workspace().display(),
        program,
        RUN.join(" ")
    );
    let mut command = machine.command(&[]);
    let mut wrapped = Command::new(mounting[0]);
    wrapped.args(&mounting[1..]).arg(script).current_dir("/");
    for (name, value) in command.arg("--help").get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    let output = wrapped.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let runs = String::from_utf8(output.stdout).unwrap();
    let runs: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&runs).into_iter().map(Result::unwrap).collect();
    let from: Vec<_> = runs.iter().map(|r| r["from"].as_str().unwrap_or_default()).collect();
    assert_eq!(from, ["jit", "store"]);
    assert!(runs.iter().all(|r| r["ok"] == true), "{runs:?}");
}

#[test]
fn where_nothing_is_installed_one_message_says_all() {
    let machine = Machine::new();
    let bare = |words: &[&str], kernels: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parbake"));
        command.args(words).env_clear().env("PATH", "/nonexistent").current_dir("/");
        command.env("PARBAKE_WORKSPACE", machine.workspace()).env("PARBAKE_TOOLCHAINS", machine.path("toolchains"));
        if kernels {
            command.env("PARBAKE_KERNELS", checkout().join("kernels"));
        }
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { status: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    };
    let workspace = machine.workspace().display().to_string();
    let installs = machine.path("toolchains").display().to_string();
    let always =
        ["`rmsnorm`", "rmsnorm dtype=f32 block=", "PARBAKE_BUNDLES is not set", &workspace, "parbake build --arch"];
    for (target, kernels, says) in [
        ("host", true, &["target: host", "no C++ compiler found", "install g++ or clang++"][..]),
        ("host", false, &["target: host", "PARBAKE_KERNELS"]),
        ("90a", true, &["target: sm_90a", "no usable NVRTC for sm_90a", "CUDA_HOME", &installs, "libnvrtc.so"]),
    ] {
        let ran = bare(&["run", "rmsnorm", "dtype=f32", "--target", target], kernels);
        assert_eq!(ran.status, 3, "{target}: {ran:?}");
        assert_eq!(ran.stderr.matches("error[PB-20").count(), 1, "one message: {}", ran.stderr);
        for text in always.iter().chain(says) {
            assert!(ran.stderr.contains(text), "{target}: no {text:?} in {}", ran.stderr);
        }
    }
    let kept: BTreeSet<PathBuf> = tree(&[&machine.path("")]).into_keys().collect();
    assert!(kept.iter().all(|p| p.starts_with(machine.path("toolchains"))), "{kept:?}");
}
