//! Bundles that are built in parts, with real compilers: whatever way a plan is carried out, the bytes are the same.

use crate::machine::{Machine, Ran};
use parbake::model::settings::Config;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine with the compilers of this one; `None` where there are none.
fn machine() -> Option<Machine> {
    let toolchains = Config::from_env().unwrap().toolchains;
    if !toolchains.join("cuda-12.9").is_dir() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: no compiler is installed (parbake toolchain install)");
        return None;
    }
    Some(Machine::new().set("PARBAKE_TOOLCHAINS", &toolchains.display().to_string()))
}

/// Eight images, and some combinations that do not exist.
const WHAT: &str = "build --arch 90a,80 --op merge_state --only dtype=f16,bf16 --level 3 --jobs 2";

fn build(machine: &Machine, workspace: &str, more: &str) -> Ran {
    let words: Vec<&str> = WHAT.split(' ').chain(more.split(' ')).collect();
    let mut command = machine.command(&words);
    command.env("PARBAKE_WORKSPACE", machine.path(workspace));
    ended(command)
}

fn ended(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().expect("killed"), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn read(machine: &Machine, name: &str) -> Vec<u8> {
    std::fs::read(machine.path(name)).unwrap()
}

/// A search path on which `parbake` is the program that is tested.
fn path(machine: &Machine) -> std::ffi::OsString {
    let own = machine.path("bin");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_parbake"));
    std::fs::create_dir_all(&own).unwrap();
    let _ = std::os::unix::fs::symlink(program, own.join("parbake"));
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([own].into_iter().chain(std::env::split_paths(&rest))).unwrap()
}

/// A command of another program, on a machine that has the compilers and no kernel sources.
fn engine(machine: &Machine, program: &str, folder: &Path) -> Command {
    let like = machine.command(&[]);
    let mut command = Command::new(program);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env_remove("PARBAKE_KERNELS").env("PATH", path(machine)).current_dir(folder);
    command
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &place) } else { drop(std::fs::copy(entry.path(), place)) }
    }
}

#[test]
fn shards_and_plans_give_the_bytes_of_one_build() {
    let Some(machine) = machine() else { return };
    let json = build(&machine, "one", "-o one.pbk --json").ok().json();
    assert_eq!((&json["images"], &json["compiled"]), (&8.into(), &8.into()), "{json}");
    let one = read(&machine, "one.pbk");

    // Shards, each on a machine of its own; by key, and by what the first build recorded.
    let costs = machine.path("one/store/costs.json").display().to_string();
    for (how, more) in [("key", String::new()), ("cost", format!(" --costs {costs}"))] {
        let (mut files, mut images) = (Vec::new(), Vec::new());
        for number in [3, 1, 5, 2, 4] {
            let file = format!("{how}-{number}.pbk");
            let more = format!("--shard {number}/5 -o {file} --json{more}");
            let json = build(&machine, &format!("{how}-{number}"), &more).ok().json();
            images.push(json["compiled"].as_u64().unwrap());
            // Built already, and nothing else than it was asked for.
            let again = build(&machine, &format!("{how}-{number}"), &more).ok().json();
            assert_eq!(again["up_to_date"], true, "{again}");
            files.push(file);
        }
        assert_eq!(images.iter().sum::<u64>(), 8, "{how}: {images:?}");
        let words: Vec<&str> = ["merge", "-o", "all.pbk"].into_iter().chain(files.iter().map(String::as_str)).collect();
        let mut merge = machine.command(&words);
        // No compiler and no packer is needed.
        merge.env("PARBAKE_TOOLCHAINS", machine.path("none")).env_remove("PARBAKE_KERNELS");
        ended(merge).ok();
        assert!(read(&machine, "all.pbk") == one, "five shards by {how}");
    }

    // The plan as a folder, which is moved, on a machine without sources.
    let json = build(&machine, "plan", "--plan ninja --name all -o plan --json").ok().json();
    assert_eq!(json["units"], 8, "{json}");
    let again = build(&machine, "plan", "--plan ninja --name all -o plan --json").ok().json();
    assert_eq!((&again["written"], &again["digest"]), (&0.into(), &json["digest"]), "{again}");
    std::fs::rename(machine.path("plan"), machine.path("with ninja")).unwrap();
    copy(&machine.path("with ninja"), &machine.path("with-xargs"));
    let ninja = machine.path("with ninja");
    match engine(&machine, "ninja", &ninja).args(["-j", "2"]).stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
            assert!(read(&machine, "with ninja/all.pbk") == one, "ninja");
            let again = engine(&machine, "ninja", &ninja).output().unwrap().stdout;
            assert!(String::from_utf8_lossy(&again).contains("no work to do"), "{again:?}");
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => panic!("{e}"),
    }
    let plan: serde_json::Value = serde_json::from_slice(&read(&machine, "with-xargs/plan.json")).unwrap();
    let words = |action: &serde_json::Value| {
        let words = action["command"].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = plan["units"].as_array().unwrap().iter().map(|u| words(u).join(" ")).collect();
    lines.reverse();
    let folder = machine.path("with-xargs");
    std::fs::write(folder.join("commands"), lines.join("\n") + "\n").unwrap();
    let commands = std::fs::File::open(folder.join("commands")).unwrap();
    let mut xargs = engine(&machine, "xargs", &folder);
    let ran = xargs.args(["-P", "2", "-L", "1", "env"]).stdin(commands).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let last = words(&plan["merge"]);
    ended(engine_of(&machine, &last, &folder)).ok();
    assert!(read(&machine, "with-xargs/all.pbk") == one, "xargs");

    // A unit that is not there is named before anything is written.
    let first = &plan["units"][0];
    std::fs::remove_file(folder.join(first["output"].as_str().unwrap())).unwrap();
    std::fs::remove_file(folder.join("all.pbk")).unwrap();
    let ran = ended(engine_of(&machine, &last, &folder));
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("PB-1149") && ran.stderr.contains(first["uri"].as_str().unwrap()), "{ran:?}");
    assert!(!folder.join("all.pbk").exists());
}

fn engine_of(machine: &Machine, words: &[String], folder: &Path) -> Command {
    let mut command = engine(machine, "env", folder);
    command.args(words);
    command
}

#[test]
fn a_unit_is_compiled_as_it_was_planned_or_not_at_all() {
    let Some(machine) = machine() else { return };
    build(&machine, "plan", "--plan json -o plan").ok();
    let unit = std::fs::read_dir(machine.path("plan/units")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&unit).unwrap();
    let good = machine.run(&["compile", &unit.display().to_string(), "-o", "out/good.pbk", "--json"]).ok().json();
    let bundle = machine.say("inspect out/good.pbk --json").ok().json();
    assert_eq!((&bundle["specs"], &bundle["targets"]), (&1.into(), &serde_json::json!([good["target"]])), "{bundle}");

    let refused = |text: &str, code: &str, says: &[&str]| {
        let file = machine.write("unit.json", text);
        let ran = machine.run(&["compile", &file, "-o", "out/bad.pbk"]);
        assert!(ran.status != 0 && ran.stderr.contains(code), "{ran:?}");
        says.iter().for_each(|says| assert!(ran.stderr.contains(says), "no {says:?} in {}", ran.stderr));
        assert!(!machine.path("out/bad.pbk").exists());
    };
    refused(&text.replacen("namespace", "namespace ", 1), "PB-1142", &["expected: content of digest"]);
    refused(&text[..text.len() / 2], "PB-1142", &["unit.json"]);
    refused(&text.replacen("\"schema\": 1", "\"schema\": 9", 1), "PB-1142", &["expected: schema 1", "got: 9"]);
    assert_eq!(machine.say("compile nothing.json -o x.pbk").status, 3);

    // Another compiler than was planned with: both are named.
    let other = Config::from_env().unwrap().toolchains.join("cuda-13.0");
    if let Some(library) = find(&other, "libnvrtc.so.13") {
        let words = ["compile", &unit.display().to_string(), "-o", "out/bad.pbk"];
        let mut command = machine.command(&words);
        command.env("PARBAKE_NVRTC", library);
        let ran = ended(command);
        assert_eq!(ran.status, 3, "{ran:?}");
        for says in ["PB-1144", "nvrtc 12.9", "CUDA 13.0"] {
            assert!(ran.stderr.contains(says), "no {says:?} in {}", ran.stderr);
        }
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.map(|e| e.path()).find_map(|path| match path.is_dir() {
        true => find(&path, name),
        false => path.file_name().is_some_and(|n| n == name).then_some(path),
    })
}

#[test]
fn a_split_build_is_one_build_a_target_and_leaves_alone_what_is_up_to_date() {
    let Some(machine) = machine() else { return };
    let split = "--split --name fleet -o bundles --json";
    let json = build(&machine, "one", split).ok().json();
    assert_eq!(json["bundles"].as_array().unwrap().len(), 2, "{json}");
    let words = "build --arch 80 --op merge_state --only dtype=f16,bf16 --level 3 -o single.pbk";
    let mut single = machine.command(&words.split(' ').collect::<Vec<_>>());
    single.env("PARBAKE_WORKSPACE", machine.path("one"));
    ended(single).ok();
    assert!(read(&machine, "bundles/fleet-sm_80.pbk") == read(&machine, "single.pbk"));
    std::fs::remove_file(machine.path("bundles/fleet-sm_90a.pbk")).unwrap();
    let again = build(&machine, "one", split).ok().json();
    let current: Vec<bool> = [0, 1].map(|i| again["bundles"][i]["up_to_date"].as_bool().unwrap()).into();
    assert_eq!(current, [true, false], "{again}");
    // Merged again they are the whole.
    build(&machine, "one", "-o one.pbk").ok();
    machine.say("merge bundles/fleet-sm_80.pbk bundles/fleet-sm_90a.pbk --level 3 -o all.pbk").ok();
    assert!(read(&machine, "all.pbk") == read(&machine, "one.pbk"));
    let ran = build(&machine, "one", "--shard 1/2 --split -o x");
    assert_eq!(ran.status, 2, "{ran:?}");
    let ran = build(&machine, "one", "--shard 3/2 -o x");
    assert!(ran.status == 2 && ran.stderr.contains("PB-1145"), "{ran:?}");
}

#[test]
fn bakes_on_two_machines_with_a_shared_store_compile_each_unit_once() {
    let Some(machine) = machine() else { return };
    let shared = machine.path("shared");
    std::fs::create_dir(&shared).unwrap();
    let machine = machine.set("PARBAKE_STORE_SHARED", &shared.display().to_string());
    let start = |workspace: &str| {
        let file = format!("{workspace}.pbk");
        let words: Vec<&str> = WHAT.split(' ').chain(["--json", "-o", &file]).collect();
        let mut command = machine.command(&words);
        command.env("PARBAKE_WORKSPACE", machine.path(workspace)).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let compiled = [start("a"), start("b")].map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["compiled"].as_u64().unwrap()
    });
    assert_eq!(compiled.iter().sum::<u64>(), 8, "{compiled:?}");
    assert!(read(&machine, "a.pbk") == read(&machine, "b.pbk"));
    // Warm: nothing is compiled. Without the store: all of it, to the same bytes.
    let warm = build(&machine, "c", "-o c.pbk --json").ok().json();
    assert_eq!((&warm["compiled"], &warm["from_store"]), (&0.into(), &8.into()), "{warm}");
    std::fs::rename(&shared, machine.path("away")).unwrap();
    let cold = build(&machine, "d", "-o d.pbk --json").ok();
    assert_eq!(cold.stderr.matches("PARBAKE_STORE_SHARED").count(), 1, "{cold:?}");
    assert_eq!(cold.json()["compiled"], 8, "{cold:?}");
    assert!(read(&machine, "a.pbk") == read(&machine, "c.pbk") && read(&machine, "a.pbk") == read(&machine, "d.pbk"));
}
