//! Bakes that are killed, interrupted, crashed into and done again, with real compilers in real worker processes.

#![allow(clippy::print_stdout, reason = "what is skipped is said")]

use crate::machine::Machine;
use crate::points::{Points, quick};
use parbake::model::settings::Config;
use parbake_codegen::toolchain::process::descendants;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A small bake: two ops, for a GPU.
const BAKE: &str = "build --arch 90a --op rmsnorm,fused_add_rmsnorm --only dtype=bf16 --level 3 --jobs 2 -o out.pbk";

/// A machine with the compilers of this one; `None` prints the skip.
fn machine() -> Option<Machine> {
    let toolchains = Config::from_env().unwrap().toolchains;
    if !toolchains.join("cuda-12.9").exists() {
        println!("skipped: needs cuda-12.9 (parbake toolchain install 12.9)");
        return None;
    }
    Some(Machine::new().set("PARBAKE_TOOLCHAINS", &toolchains.display().to_string()))
}

fn start(machine: &Machine, words: &str) -> Child {
    let mut command = machine.command(&words.split(' ').collect::<Vec<_>>());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(process: u32, signal: i32) {
    // SAFETY: a plain system call on a child of this test, which is not waited for yet.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

/// How many entries a store has.
fn entries(workspace: &Path) -> usize {
    let list =
        |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let sources = list(&workspace.join("store/v1"));
    sources.iter().flat_map(|s| list(s)).flat_map(|t| list(&t)).count()
}

/// The number behind a name in what a bake says as JSON.
fn number(machine: &Machine, words: &str, name: &str) -> u64 {
    machine.say(&format!("{words} --json")).ok().json()[name].as_u64().unwrap()
}

#[test]
fn a_bake_that_is_killed_goes_on_where_it_was() {
    let (Some(machine), Some(other)) = (machine(), machine()) else { return };
    let images = number(&other, BAKE, "images");
    let expected = std::fs::read(other.path("out.pbk")).unwrap();
    let kills = if quick() { 10 } else { 50 };
    let mut points = Points::of("bake");
    let mut complete = 0;
    for _ in 0..kills {
        let mut bake = start(&machine, BAKE);
        std::thread::sleep(Duration::from_millis(20 + points.below(256)));
        signal(bake.id(), libc::SIGKILL);
        bake.wait().unwrap();
        if let Ok(bytes) = std::fs::read(machine.path("out.pbk")) {
            assert!(bytes == expected, "a bundle that is there is whole");
            std::fs::remove_file(machine.path("out.pbk")).unwrap();
            complete += 1;
        }
    }
    let had = entries(&machine.workspace());
    let compiled = number(&machine, BAKE, "compiled");
    println!("{kills} kills, {complete} too late; {had} of {images} images were there then, {compiled} were compiled");
    assert!(std::fs::read(machine.path("out.pbk")).unwrap() == expected);
    // A worker that was at work when its master was killed may have published meanwhile.
    assert!(compiled <= images - had.min(images as usize) as u64, "{compiled} of {images}, {had} were there");
    machine.say("cache verify").ok();
    machine.say("verify out.pbk").ok();
}

#[test]
fn a_bake_that_is_interrupted_leaves_its_work_and_nothing_else() {
    let Some(machine) = machine() else { return };
    for which in [libc::SIGINT, libc::SIGTERM] {
        let bake = start(&machine, BAKE);
        let before = entries(&machine.workspace());
        let began = Instant::now();
        while entries(&machine.workspace()) <= before && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let workers = descendants(bake.id());
        signal(bake.id(), which);
        let ended = bake.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("PB-1152") && said.contains("images"), "{said}");
        assert!(!machine.path("out.pbk").exists());
        assert!(!workers.is_empty());
        for worker in workers {
            assert!(!Path::new(&format!("/proc/{worker}")).exists(), "a worker lives on");
        }
        let left = std::fs::read_dir(machine.workspace().join("tmp")).into_iter().flatten().count();
        let staged = std::fs::read_dir(machine.workspace().join("store/stage")).into_iter().flatten().flatten();
        let staged = staged.filter(|e| e.file_name().to_string_lossy().starts_with("stage-")).count();
        assert_eq!((left, staged), (0, 0));
    }
    let held = entries(&machine.workspace()) as u64;
    assert!(held > 0 && number(&machine, BAKE, "from_store") == held);
}

#[test]
fn a_worker_that_crashes_costs_its_unit() {
    let Some(machine) = machine() else { return };
    let bake = start(&machine, BAKE);
    let began = Instant::now();
    let workers = loop {
        let workers = descendants(bake.id());
        if workers.len() > 1 && entries(&machine.workspace()) > 1 {
            break workers;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no worker");
        std::thread::sleep(Duration::from_millis(5));
    };
    // Both: one may have nothing to do just now, and is not missed then.
    workers.into_iter().for_each(|worker| signal(worker, libc::SIGABRT));
    let ended = bake.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("PB-1526") && said.contains("signal 6") && !machine.path("out.pbk").exists(), "{said}");
    let held = entries(&machine.workspace()) as u64;
    let again = machine.say(&format!("{BAKE} --json")).ok().json();
    assert_eq!(again["compiled"].as_u64().unwrap(), again["images"].as_u64().unwrap() - held);
    assert!(again["compiled"].as_u64().unwrap() <= 2, "{again}");
}

#[test]
fn a_bundle_is_of_one_state_of_the_sources() {
    let Some(machine) = machine() else { return };
    let own = Machine::with_own_kernels().set("PARBAKE_TOOLCHAINS", &machine.toolchains());
    let bake = start(&own, BAKE);
    let began = Instant::now();
    while entries(&own.workspace()) == 0 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Workers keep what they saw of a file; one that is started later sees it as it is now.
    let header = own.path("kernels/include/parbake/vec.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    descendants(bake.id()).into_iter().for_each(|worker| signal(worker, libc::SIGKILL));
    let ended = bake.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("PB-1155") && !own.path("out.pbk").exists(), "{said}");
}

#[test]
fn what_was_baked_before_is_neither_compiled_nor_compressed() {
    let Some(machine) = machine() else { return };
    machine.say(BAKE).ok();
    let frames = |machine: &Machine| {
        let folder = machine.workspace().join("store/frames");
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let first = std::fs::read(machine.path("out.pbk")).unwrap();
    let kept = frames(&machine);
    assert_eq!(kept.len(), 2);
    let costs = std::fs::read_to_string(machine.workspace().join("store/costs.json")).unwrap();
    assert!(costs.contains("\"rmsnorm\"") && costs.contains("\"sm_90a\":{\"ms\":"), "{costs}");
    let again = BAKE.replace("out.pbk", "again.pbk");
    assert_eq!(number(&machine, &again, "compiled"), 0);
    assert!(std::fs::read(machine.path("again.pbk")).unwrap() == first && frames(&machine) == kept);
    // A frame that is damaged is made again, and so is one of another level.
    let one = machine.workspace().join("store/frames").join(&kept[0]);
    let mut bytes = std::fs::read(&one).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&one, &bytes).unwrap();
    machine.say(&BAKE.replace("out.pbk", "third.pbk")).ok();
    assert!(std::fs::read(machine.path("third.pbk")).unwrap() == first && std::fs::read(&one).unwrap() != bytes);
    machine.say(&BAKE.replace("out.pbk", "fourth.pbk").replace("--level 3", "--level 4")).ok();
    assert_eq!(frames(&machine).len(), 4);
    machine.say("cache clear --yes").ok();
    assert!(!machine.workspace().join("store/frames").exists());
}

#[test]
fn a_bake_needs_no_store() {
    let Some(machine) = machine() else { return };
    machine.say(BAKE).ok();
    let expected = std::fs::read(machine.path("out.pbk")).unwrap();
    let without = machine.set("PARBAKE_CACHE", "off").set("PARBAKE_WORKSPACE", "/proc/nowhere");
    let baked = without.say(&format!("{} --json", BAKE.replace("out.pbk", "without.pbk"))).ok().json();
    assert_eq!(baked["compiled"], baked["images"]);
    assert!(std::fs::read(without.path("without.pbk")).unwrap() == expected);
}

#[test]
fn a_fleet_is_what_its_options_are() {
    let Some(machine) = machine() else { return };
    machine.say(BAKE).ok();
    let expected = std::fs::read(machine.path("out.pbk")).unwrap();
    let fleet = "gpus = [\"NVIDIA H200\", \"H100 NVL\"]\nops = [\"rmsnorm\", \"fused_add_rmsnorm\"]\nlevel = 3\n\n[only]\ndtype = [\"bf16\"]\n";
    machine.write("fleet.toml", fleet);
    machine.say("build --fleet fleet.toml -o fleet.pbk").ok();
    assert!(std::fs::read(machine.path("fleet.pbk")).unwrap() == expected);

    // Line tables are builds of their own, and serve.
    machine.write("fleet.toml", format!("lineinfo = true\n{fleet}"));
    machine.say("build --fleet fleet.toml -o lines.pbk").ok();
    let lines = std::fs::read(machine.path("lines.pbk")).unwrap();
    assert!(lines != expected);
    machine.say("verify lines.pbk").ok();
    machine.say("supports rmsnorm dtype=bf16 --target 90a --bundle lines.pbk").ok();

    machine.say("lock --arch 90a --op rmsnorm --only dtype=bf16 -o parbake.lock").ok();
    machine.write("locked.toml", "archs = [\"90a\"]\nlock = \"parbake.lock\"\nlevel = 3\n");
    machine.say("build --fleet locked.toml -o locked.pbk").ok();
    machine.say("build --lock parbake.lock --level 3 -o named.pbk").ok();
    let bytes = |name: &str| std::fs::read(machine.path(name)).unwrap();
    assert!(bytes("locked.pbk") == bytes("named.pbk"));

    for (text, says) in [
        ("gpus = [\"H20O\"]", "did you mean `H200`?"),
        ("gpus = [\"Radeon\"]", "under `archs`"),
        ("archs = [\"91\"]", "known are"),
        ("arch = [\"90a\"]", "unknown field `arch`"),
        ("archs = [\"90a\"]\nlock = \"x\"\nops = [\"*\"]", "a lock names its specs"),
        ("archs = [\"90a\"]\nlevel = 40", "1 to 22"),
        ("archs = [\"90a\"]\ntoolkit = 12.9", "toolkit"),
    ] {
        machine.write("bad.toml", text);
        let ran = machine.say("build --fleet bad.toml -o bad.pbk");
        assert_eq!(ran.status, 2, "{text}: {ran:?}");
        assert!(ran.stderr.contains("PB-1153") && ran.stderr.contains(says), "{text}: {}", ran.stderr);
    }
    assert_eq!(machine.say("build --fleet nothing.toml -o bad.pbk").status, 3);
    assert_eq!(machine.say("build --fleet fleet.toml --arch 80 -o bad.pbk").status, 2);
    assert!(!machine.path("bad.pbk").exists());
}
