//! Follows docs/add-a-kernel.md to the letter, in a copy of the repository below the target folder: writes the files
//! that the page shows, runs its commands, and checks that the op runs and is right.

#![allow(clippy::print_stdout, reason = "a test tells what it skips, and how long the guide takes")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = include_str!("../docs/add-a-kernel.md");

/// The guide's fenced blocks: what follows the fence, and the text.
fn blocks() -> Vec<(&'static str, String)> {
    let (mut found, mut open): (Vec<(&str, String)>, bool) = (Vec::new(), false);
    for line in GUIDE.lines() {
        match (line.strip_prefix("```"), open) {
            (Some(_), true) => open = false,
            (Some(info), false) => {
                open = true;
                found.push((info, String::new()));
            }
            (None, true) => found.last_mut().expect("a block was opened").1 += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    found
}

/// The files that the guide shows: `toml kernels/…/op.toml` after the fence.
fn files() -> BTreeMap<String, Vec<u8>> {
    let named = blocks().into_iter().filter_map(|(info, text)| Some((info.split_once(' ')?.1.to_owned(), text)));
    named.map(|(path, text)| (path, text.into_bytes())).collect()
}

/// The commands that it shows, in order.
fn commands() -> Vec<String> {
    let consoles = blocks().into_iter().filter(|(info, _)| *info == "console");
    consoles.flat_map(|(_, text)| text.lines().map(|l| l.replacen("$ ", "", 1)).collect::<Vec<_>>()).collect()
}

/// What git knows of this checkout, new files included.
fn checkout() -> BTreeMap<String, Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output().expect("git starts");
    let names = String::from_utf8(output.stdout).expect("names are text");
    let names = names.split('\0').filter(|n| root.join(n).is_file());
    names.map(|n| (n.to_owned(), std::fs::read(root.join(n)).expect("tracked files can be read"))).collect()
}

/// Makes a folder hold exactly these files. What has not changed keeps its time, so that cargo builds less.
fn fill(folder: &Path, files: &BTreeMap<String, Vec<u8>>) {
    let mut queue = vec![folder.to_owned()];
    while let Some(path) = queue.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()) {
            let name = entry.strip_prefix(folder).expect("below the folder").to_string_lossy().into_owned();
            if entry.is_dir() {
                queue.push(entry);
            } else if !files.contains_key(&name) {
                std::fs::remove_file(entry).expect("the copy is ours");
            }
        }
    }
    for (name, content) in files {
        let path = folder.join(name);
        if std::fs::read(&path).is_ok_and(|old| old == *content) {
            continue;
        }
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the copy is ours");
        std::fs::write(path, content).expect("the copy is ours");
    }
}

/// The folder that cargo builds this test in.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's folder for tests is below `target`").to_owned()
}

/// Gives the copy a version of its own. Cargo tells crates apart by name, version and place within their workspace, so
/// that without it the copy's crates would be taken for those of the checkout wherever build folders are shared.
fn other_version(manifest: &mut Vec<u8>) {
    let stated = format!("version = \"{}\"\n", parbake::model::VERSION);
    let (range, _) = parbake::model::VERSION.rsplit_once('.').expect("a version has three parts");
    let text = String::from_utf8(manifest.clone()).expect("a manifest is text");
    assert_eq!(text.matches(&stated).count(), 1, "the root Cargo.toml states the version once");
    *manifest = text.replace(&stated, &format!("version = \"{range}.9999\"\n")).into_bytes();
}

struct Copy {
    tree: PathBuf,
    target: PathBuf,
    workspace: tempfile::TempDir,
}

impl Copy {
    /// Runs a command of the guide as a person would in a fresh shell, but without the network. What it printed; if it
    /// failed, that is the error.
    fn run(&self, command: &str) -> Result<String, String> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(&self.tree).stdin(std::process::Stdio::null());
        // Settings of this process are about the checkout that is tested, above all where its kernels are.
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("PARBAKE_")) {
            if name != "PARBAKE_TOOLCHAINS" && name != "PARBAKE_NVRTC" {
                shell.env_remove(name);
            }
        }
        shell.env("PARBAKE_WORKSPACE", self.workspace.path()).env("CARGO_NET_OFFLINE", "true");
        // Programs go to a folder of their own; what is compiled of other people's crates is shared where cargo can.
        shell.env("CARGO_TARGET_DIR", &self.target).env("CARGO_BUILD_BUILD_DIR", target());
        let output = shell.output().expect("sh starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(out.into_owned())
        } else {
            Err(format!("`{command}` ended with {}\n{out}{err}", output.status))
        }
    }
}

/// A shared library has the same name in the shared folder whoever's it is, and cargo would take the copy's for the
/// checkout's. One that is gone is built again.
impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(target().join("debug/deps/libparbake_ffi.so"));
    }
}

/// The folder with libclang, or what is missing.
#[cfg(feature = "jit")]
fn libclang() -> Result<(), String> {
    let config = parbake::model::settings::Config::from_env().expect("settings are good");
    let there = || {
        let folder = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
        folder.or_else(|| parbake_codegen::bindings::installed_libclang(&config.toolchains)).is_some()
    };
    if !there() && std::env::var("PARBAKE_TEST_FETCH").is_ok_and(|v| v == "1") {
        use parbake_codegen::toolchain::{components, install};
        for component in components::named("libclang", false).expect("libclang is in the table") {
            install::install(component, &config.toolchains, config.offline, &mut |line| println!("{line}"))
                .expect("it installs");
        }
    }
    there().then_some(()).ok_or_else(|| "libclang (parbake toolchain install libclang)".to_owned())
}

#[test]
fn the_guide_shows_one_op_whole() {
    let files = files();
    let names: Vec<&str> = files.keys().filter_map(|p| p.strip_prefix("kernels/activation/scale/")).collect();
    let whole = ["launch.rs", "op.toml", "params.h", "reference.py", "reference.rs", "scale.cu.tera", "scale.cuh"];
    assert_eq!(names, whole);
    assert_eq!(files.len(), whole.len(), "files outside the op's folder: {:?}", files.keys());
    assert!(commands().iter().all(|c| c.starts_with("cargo ")) && commands().len() > 5, "{:?}", commands());
}

#[cfg(feature = "jit")]
#[test]
fn the_guide_leads_to_an_op_that_runs_and_is_right() {
    if let Err(missing) = libclang() {
        println!("skipped: needs {missing}");
        return;
    }
    let own = target().join("add-a-kernel");
    let workspace = tempfile::tempdir().unwrap();
    let copy = Copy { tree: own.join("tree"), target: own.join("target"), workspace };
    let mut all = checkout();
    all.extend(files());
    other_version(all.get_mut("Cargo.toml").expect("the root has a manifest"));
    fill(&copy.tree, &all);

    let mut right = 0;
    for command in commands() {
        let start = std::time::Instant::now();
        let printed = copy.run(&command).unwrap_or_else(|said| panic!("{said}"));
        println!("{:5.1} s  {command}", start.elapsed().as_secs_f64());
        if command.contains("--json run") {
            let outcome: serde_json::Value = serde_json::from_str(&printed).expect("`run --json` prints one document");
            assert_eq!(
                (&outcome["ok"], &outcome["op"], &outcome["from"]),
                (&true.into(), &"scale".into(), &"jit".into()),
                "{outcome}"
            );
            right += 1;
        }
        if command.contains(" expand ") {
            assert!(printed.contains("bf16 conversion instructions need sm_80"), "{printed}");
        }
    }
    assert_eq!(right, 3, "the guide runs its op three times");

    // A wrong kernel must be found, or the runs above have shown nothing.
    let kernel = copy.tree.join("kernels/activation/scale/scale.cuh");
    let text = std::fs::read_to_string(&kernel).unwrap();
    std::fs::write(&kernel, text.replace("v[j] *= p.factor", "v[j] *= p.factor * 1.01f")).unwrap();
    let broken = copy.run("cargo parbake run scale dtype=f32 --target host");
    std::fs::write(&kernel, text).unwrap();
    let said = broken.expect_err("a wrong kernel was called right");
    assert!(said.contains("does not match its float64 reference"), "{said}");
}
