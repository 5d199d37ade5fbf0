//! `parbake replay`: what it says and how it ends.

use crate::machine::{Machine, Ran};
use serde_json::{Value, json};
use std::path::Path;

/// A machine that made one call with the log at its highest level, and the dump of it.
fn dumped(machine: &Machine) -> String {
    dumped_by(machine, "rmsnorm dtype=bf16 --shape rows=3 --shape hidden=100 --pad 5 --offset 1", "on")
}

fn dumped_by(machine: &Machine, call: &str, jit: &str) -> String {
    let settings = [("PARBAKE_LOG", "10"), ("PARBAKE_DUMP_COUNT", "1"), ("PARBAKE_JIT", jit)];
    let words = format!("run {call} --target host");
    let words: Vec<&str> = words.split(' ').collect();
    let ran = machine.command(&words).envs(settings).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let dumps = std::fs::read_dir(machine.workspace().join("dumps")).unwrap().flatten();
    let mut names = dumps.filter(|e| e.file_name() != ".lock").map(|e| e.path().display().to_string());
    let dump = names.next().unwrap();
    assert_eq!(names.next(), None);
    dump
}

fn rewrite(dump: &str, change: impl FnOnce(&mut Value)) {
    let path = Path::new(dump).join("call.json");
    let mut call: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut call);
    std::fs::write(path, call.to_string()).unwrap();
}

fn says(ran: &Ran, status: i32, parts: &[&str]) {
    assert_eq!(ran.status, status, "{ran:?}");
    let text = format!("{}{}", ran.stdout, ran.stderr);
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_dump_is_replayed_and_what_differs_is_told() {
    let machine = Machine::with_own_kernels();
    let dump = dumped(&machine);
    let same = [
        "norm/rmsnorm on host, rmsnorm-bf16-",
        "the call returned",
        "out       as recorded, bit for bit",
        "reference right",
    ];
    let ran = machine.run(&["replay", &dump, "--times", "3"]);
    says(&ran, 0, &[&same[..], &["runs      3, all the same, bit for bit"]].concat());
    assert!(!ran.stdout.contains("differs"), "{ran:?}");
    let json = machine.run(&["replay", &dump, "--target", "host", "--json"]).ok().json();
    assert_eq!((&json["ok"], &json["recorded"]), (&json!(true), &json!("done")));
    assert_eq!((&json["outputs"][0]["verdict"], &json["differences"]), (&json!("bit-exact"), &json!([])));

    // A kernel that was changed since gives something else: the replay says so, and that the kernel is another one.
    let own = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, text.replace("* inv_hidden + p.eps)", "* inv_hidden * 2.f + p.eps)")).unwrap();
    let ran = machine.run(&["replay", &dump]);
    says(
        &ran,
        1,
        &[
            "PB-3190",
            "DIFFERS from what was recorded",
            "reference WRONG",
            "differs   image: recorded ",
            "against the reference",
        ],
    );
    std::fs::write(&own, text).unwrap();
    let machine = machine.set("PARBAKE_LOCK_TIMEOUT", "77");
    says(&machine.run(&["replay", &dump]), 0, &["differs   PARBAKE_LOCK_TIMEOUT: recorded 330, now 77"]);
}

#[test]
fn the_recorded_tactic_runs_although_another_would_be_chosen_now() {
    let machine = Machine::new();
    machine.say("prepare rmsnorm dtype=bf16 block=512 rows=1 vec=2 peel=0 --target host").ok();
    // Without a compiler it is the only one; with one a better one would be compiled.
    let dump = dumped_by(&machine, "rmsnorm dtype=bf16 --shape rows=3 --shape hidden=64", "off");
    let ran = machine.run(&["replay", &dump]);
    says(&ran, 0, &["bit for bit", "differs   PARBAKE_JIT"]);
    assert!(!ran.stdout.contains("differs   kernel") && !ran.stdout.contains("differs   tactic"), "{ran:?}");
    rewrite(&dump, |call| call["kernel"]["tactic"]["block"] = json!(7));
    let now = "differs   tactic: recorded block=7 peel=0 rows=1 vec=2, now block=128 peel=0 rows=32 vec=16";
    says(&machine.run(&["replay", &dump]), 0, &[now]);
}

#[test]
fn a_call_that_never_returned_is_replayed_too() {
    let machine = Machine::new();
    let dump = dumped(&machine);
    rewrite(&dump, |call| call["state"] = json!("launched"));
    std::fs::remove_file(Path::new(&dump).join("outputs.safetensors")).unwrap();
    says(&machine.run(&["replay", &dump]), 0, &["the call never returned: its process died", "reference right"]);
    rewrite(&dump, |call| {
        call["state"] = json!("failed");
        call["error"] = json!("PB-2122 a context is unusable");
    });
    says(&machine.run(&["replay", &dump]), 0, &["the call failed: PB-2122 a context is unusable", "reference right"]);
}

#[test]
fn where_no_such_device_is_the_environment_lacks_something() {
    let machine = Machine::new();
    let dump = dumped(&machine);
    let ran = machine.run(&["replay", &dump, "--target", "sm_90a"]);
    assert_eq!(ran.status, 3, "{ran:?}");
    rewrite(&dump, |call| {
        call["place"] = json!("cuda:0");
        call["device"] = json!({ "name": "NVIDIA H200", "target": "sm_90", "memory": 1 });
    });
    says(&machine.run(&["replay", &dump]), 3, &["--target host"]);
    says(
        &machine.run(&["replay", &dump, "--target", "host"]),
        0,
        &["differs   device: recorded NVIDIA H200 (sm_90), now none"],
    );
}

#[test]
fn what_is_no_dump_is_refused() {
    let machine = Machine::new();
    let none = machine.path("none").display().to_string();
    says(&machine.run(&["replay", &none]), 3, &["PB-2130", "call.json"]);
    std::fs::create_dir(&none).unwrap();
    machine.write("none/call.json", "{}");
    says(&machine.run(&["replay", &none]), 1, &["PB-2131", "format"]);
    says(&machine.run(&["replay", &none, "--times", "0"]), 2, &["PB-3192"]);
    let json = machine.run(&["replay", &none, "--json"]).json();
    assert_eq!(json["errors"][0]["code"], "PB-2131");
    assert!(!machine.workspace().exists());
}
