//! Locks and what is made of them before a job starts.

use crate::machine::Machine;

/// One spec of rmsnorm on the host, and the words that choose it.
const ONE: &str = "rmsnorm dtype=f32 block=512 rows=1 vec=16 peel=0 --target host";

#[test]
fn every_gap_of_a_lock_is_told_at_once_with_one_command() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let lock = machine.path("job.lock").display().to_string();
    let made = machine
        .say(&format!("lock --arch 90a,host --op rmsnorm,fused_add_rmsnorm --only dtype=bf16 -o {lock} --json"))
        .ok()
        .json();
    let specs = made["specs"].as_u64().unwrap();
    assert!(specs >= 4, "{made}");
    let ran = machine.say(&format!("prepare --lock {lock}"));
    assert_eq!(ran.status, 3, "{ran:?}");
    let gaps = 2 * specs;
    for part in [
        format!("{gaps} of {gaps} specs are not covered, and JIT is off"),
        "parbake build --arch 90a,host --op norm/fused_add_rmsnorm,norm/rmsnorm -o missing.pbk".to_owned(),
    ] {
        assert!(ran.stderr.contains(&part), "no `{part}` in {}", ran.stderr);
    }
    let json = machine.say(&format!("prepare --lock {lock} --json"));
    assert_eq!(json.json()["errors"][0]["details"].as_array().unwrap().len() as u64, gaps);
    assert!(!machine.workspace().exists());
}

#[test]
fn what_a_lock_names_is_baked_and_then_serves_without_a_compiler() {
    let machine = Machine::new();
    let prepared = machine.say(&format!("prepare {ONE} --json")).ok().json();
    assert_eq!((prepared["compiled"].as_u64(), prepared["ready"][0]["from"].as_str()), (Some(1), Some("jit")));
    let uri = prepared["ready"][0]["uri"].as_str().unwrap().to_owned();

    // A lock of that one spec only.
    let all = machine.say("lock --arch host --op rmsnorm --only dtype=f32").ok().json();
    let (spec, _) = machine.spec(
        &[("dtype", "f32"), ("block", "512"), ("rows", "1"), ("vec", "16"), ("peel", "0")],
        "host".parse().unwrap(),
    );
    assert_eq!(spec.uri, uri);
    let mut one = all.clone();
    one["specs"].as_array_mut().unwrap().retain(|s| s["spec_id"] == spec.spec_id.to_string());
    assert_eq!(one["specs"].as_array().unwrap().len(), 1);
    let lock = machine.write("one.lock", one.to_string());
    let bundle = machine.path("one.pbk").display().to_string();
    let built = machine.say(&format!("build --lock {lock} -o {bundle} --json")).ok().json();
    assert_eq!((built["images"].as_u64(), built["from_store"].as_u64()), (Some(1), Some(1)));

    let bare = Machine::new().set("PARBAKE_JIT", "off");
    let ready = bare.say(&format!("prepare --lock {lock} --bundle {bundle} --json")).ok().json();
    assert_eq!(ready["ready"][0]["from"], "bundle");
    assert!(!bare.workspace().exists());
}

#[test]
fn a_lock_that_cannot_be_read_is_said() {
    let machine = Machine::new();
    let ran = machine.say("prepare --lock nowhere.lock");
    assert_eq!((ran.status, ran.stderr.contains("nowhere.lock")), (3, true), "{ran:?}");
    let torn = machine.write("torn.lock", "{\"schema\": 1, \"specs\": [");
    let ran = machine.run(&["prepare", "--lock", &torn]);
    assert_eq!((ran.status, ran.stderr.contains("PB-1342")), (1, true), "{ran:?}");
    let later = machine.write("later.lock", "{\"schema\": 9}");
    let ran = machine.run(&["build", "--lock", &later, "-o", "x.pbk"]);
    assert_eq!((ran.status, ran.stderr.contains("schema 9")), (1, true), "{ran:?}");
    let ran = machine.say("prepare");
    assert_eq!(ran.status, 2, "{ran:?}");
}

#[test]
fn compilers_run_one_at_a_time_if_memory_is_for_one() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new().set("PARBAKE_MEMORY", "1M");
    let (running, overlap) = (machine.path("running"), machine.path("overlap"));
    let script = format!(
        "#!/bin/sh\nmkdir {0} 2>/dev/null || touch {1}\nc++ \"$@\"\nstatus=$?\nrmdir {0} 2>/dev/null\nexit $status\n",
        running.display(),
        overlap.display()
    );
    let compiler = machine.write("c++-alone", script);
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = "prepare rmsnorm dtype=f32 block=512 rows=1 vec=16 --target host --json";
    let words: Vec<&str> = words.split(' ').collect();
    let ran = machine.command(&words).env("CXX", &compiler).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let summary: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(summary["compiled"].as_u64().unwrap() > 1, "{summary}");
    assert!(!overlap.exists());
}
