//! Recordings, locks made of them, what is covered before a job starts, and the job without a compiler.

use crate::machine::{Machine, Ran};
use serde_json::Value;

/// A program that calls rmsnorm on rows of so many numbers, as `parbake run` is one.
fn job(machine: &Machine, hidden: &str) -> Ran {
    machine.say(&format!("run rmsnorm dtype=f32 --shape rows=3 --shape hidden={hidden} --target host --json"))
}

/// A machine that records into `calls.jsonl`.
fn recording() -> Machine {
    Machine::new().set("PARBAKE_RECORD", "calls.jsonl")
}

fn lines(machine: &Machine) -> Vec<Value> {
    let text = std::fs::read_to_string(machine.path("calls.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_job_is_recorded_locked_baked_covered_and_then_runs_without_a_compiler() {
    let builder = recording();
    job(&builder, "64").ok();
    job(&builder, "64").ok();
    let recorded = lines(&builder);
    assert_eq!((recorded.len(), &recorded[0]["from"], &recorded[1]["from"]), (2, &"jit".into(), &"store".into()));
    let locked = builder.say("lock calls.jsonl -o job.lock --json").ok().json();
    assert_eq!((&locked["specs"], &locked["targets"][0]), (&1.into(), &"host".into()));
    let built = builder.say("build --lock job.lock -o job.pbk --json").ok().json();
    assert_eq!((&built["images"], &built["compiled"]), (&1.into(), &0.into()));
    let bundle = builder.path("job.pbk").display().to_string();
    let lock = builder.path("job.lock").display().to_string();

    // Another machine, without a compiler, before the job starts: all of it is there.
    let bare = Machine::new().set("PARBAKE_JIT", "off").set("PATH", "/nowhere").set("CXX", "/nowhere/c++");
    let ran = bare.run(&["coverage", "--lock", &lock, "--bundle", &bundle]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.contains("norm/rmsnorm  1 bundle") && ran.stdout.contains(&bundle), "{ran:?}");
    let bare = bare.set("PARBAKE_BUNDLES", &bundle).set("PARBAKE_RECORD", "calls.jsonl");
    assert_eq!(job(&bare, "64").ok().json()["from"], "bundle");
    assert!(!bare.workspace().exists());

    // A call that is not in the lock: named before, by the lock that it would need, and by the error when it comes.
    let other = "run rmsnorm dtype=f16 --shape rows=3 --shape hidden=64 --target host --json";
    builder.say(other).ok();
    let calls = builder.path("calls.jsonl").display().to_string();
    let before = bare.run(&["coverage", "--calls", &calls]);
    assert_eq!(before.status, 1, "{before:?}");
    let spec = lines(&builder)[2]["spec_id"].as_str().unwrap().to_owned();
    let json = bare.run(&["coverage", "--calls", &calls, "--json"]).json();
    let gaps: Vec<&Value> = json["calls"].as_array().unwrap().iter().filter(|c| c["served"] == "missing").collect();
    assert_eq!((gaps.len(), gaps[0]["spec_id"].as_str()), (1, Some(spec.as_str())), "{json}");
    let named = gaps[0]["spec"].as_str().unwrap();
    // Reasons are broken into lines.
    let told = before.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [named, "does not hold this spec", "switched off by PARBAKE_JIT"] {
        assert!(told.contains(part), "no `{part}` in {before:?}");
    }
    let help =
        format!("parbake lock {calls} -o parbake.lock\n  parbake build --lock parbake.lock --arch host -o parbake.pbk");
    assert!(before.stderr.contains("PB-3302") && before.stderr.contains(&help), "{before:?}");
    let at_run_time = bare.say(other);
    assert_eq!((at_run_time.status, at_run_time.stderr.contains(named)), (3, true), "{at_run_time:?}");
    // And the gap is in the recording of the run that failed.
    let last = lines(&bare).pop().unwrap();
    assert_eq!((last["spec_id"].as_str(), &last["from"]), (Some(spec.as_str()), &Value::Null));
    assert!(last["missing"].as_str().unwrap().contains("jit: switched off"), "{last}");

    // The commands that were named close it.
    builder.say("lock calls.jsonl -o parbake.lock").ok();
    builder.say("build --lock parbake.lock --arch host -o parbake.pbk").ok();
    let bundle = builder.path("parbake.pbk").display().to_string();
    bare.run(&["coverage", "--calls", &calls, "--bundle", &bundle]).ok();
    let bare = bare.set("PARBAKE_BUNDLES", &bundle);
    assert_eq!(bare.say(other).ok().json()["from"], "bundle");
}

#[test]
fn what_would_be_compiled_is_a_gap_unless_that_is_allowed() {
    let machine = recording();
    job(&machine, "64").ok();
    let ran = machine.say("coverage --calls calls.jsonl");
    assert_eq!((ran.status, ran.stdout.contains("1 jit"), ran.stderr.contains("PB-3302")), (1, true, true), "{ran:?}");
    machine.say("coverage --calls calls.jsonl --allow-jit").ok();
    // The store of this machine counts if the job is said to run here.
    let stored = machine.say("coverage --calls calls.jsonl --store --json").ok().json();
    assert_eq!((&stored["calls"][0]["served"], &stored["counts"]["store"]), (&"store".into(), &1.into()));
    // Asked about other machines, of which one has no such kernel: host images serve no GPU.
    let machine = machine.set("PARBAKE_JIT", "off");
    let ran = machine.say("coverage --calls calls.jsonl --arch 90a,host --store --json");
    let json = ran.json();
    let served: Vec<&Value> = json["calls"].as_array().unwrap().iter().map(|c| &c["served"]).collect();
    assert_eq!((ran.status, served), (1, vec![&Value::from("store"), &Value::from("missing")]));
    let ran = machine.say("coverage --calls calls.jsonl --arch 90a --driver 12.4 --json");
    assert!(ran.json()["calls"][0]["why"].as_str().unwrap().contains("bundles: none"), "{ran:?}");
}

#[test]
fn recordings_and_locks_are_merged_each_spec_once_for_who_asked() {
    let machine = recording();
    job(&machine, "64").ok();
    job(&machine, "4096").ok();
    let text = std::fs::read_to_string(machine.path("calls.jsonl")).unwrap();
    let [short, long]: [&str; 2] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    // The long rows were asked for on a GPU, the short ones on both.
    let on_gpu = |line: &str| line.replace("\"host\"", "\"sm_90a\"");
    machine.write("a.jsonl", format!("{short}\n{}\n", on_gpu(short)));
    machine.write("b.jsonl", format!("{}\n{}", on_gpu(long), &short[..short.len() / 2]));
    let ran = machine.say("lock a.jsonl b.jsonl -o both.lock --json").ok();
    assert_eq!((&ran.json()["specs"], &ran.json()["torn"]), (&2.into(), &1.into()), "{ran:?}");
    assert!(ran.stderr.contains("b.jsonl: line 2 was cut short"), "{ran:?}");
    let both: Value = serde_json::from_slice(&std::fs::read(machine.path("both.lock")).unwrap()).unwrap();
    let own: Vec<&Value> = both["specs"].as_array().unwrap().iter().map(|s| &s["targets"]).collect();
    assert_eq!((&both["schema"], own.iter().filter(|t| t.is_null()).count()), (&2.into(), 1), "{both}");
    assert!(own.contains(&&serde_json::json!(["sm_90a"])), "{both}");
    // Merging a lock with itself, in any order, is the same lock; it bakes exactly these pairs.
    machine.say("lock both.lock a.jsonl both.lock -o again.lock").ok();
    let read = |name: &str| std::fs::read(machine.path(name)).unwrap();
    assert_eq!(read("both.lock"), read("again.lock"));
    let built = machine.say("build --lock both.lock --arch host -o host.pbk --json").ok().json();
    assert_eq!(built["images"], 1);
    // On targets of one's own each spec is asked for, and every tactic if that is wanted.
    let wide = machine.say("lock both.lock --arch host,80 --all-tactics --json").ok().json();
    assert_eq!((&wide["schema"], &wide["targets"]), (&1.into(), &serde_json::json!(["host", "sm_80"])));
    let all = machine.say("lock --arch host,80 --op rmsnorm --only dtype=f32 --json").ok().json();
    assert_eq!(wide["specs"], all["specs"]);

    let broken = machine.write("broken.jsonl", format!("{short}\nnonsense\n{long}\n"));
    let ran = machine.run(&["lock", &broken]);
    assert_eq!((ran.status, ran.stderr.contains("line 2 is no record")), (1, true), "{ran:?}");
    let mut nowhere = both;
    (nowhere["schema"], nowhere["targets"]) = (1.into(), Value::Array(Vec::new()));
    nowhere["specs"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .for_each(|s| drop(s.as_object_mut().unwrap().remove("targets")));
    let nowhere = machine.write("nowhere.lock", nowhere.to_string());
    let ran = machine.run(&["lock", &nowhere]);
    assert_eq!((ran.status, ran.stderr.contains("PB-3301")), (2, true), "{ran:?}");
    machine.run(&["lock", &nowhere, "--arch", "host"]).ok();
    assert_eq!(machine.say("lock a.jsonl --op rmsnorm").status, 2);
    assert_eq!(machine.say("coverage").status, 2);
}

#[test]
fn many_processes_append_to_one_file() {
    let machine = recording();
    job(&machine, "64").ok();
    let started: Vec<_> = (0..6)
        .map(|_| {
            let words = "run rmsnorm dtype=f32 --shape rows=3 --shape hidden=64 --target host".split(' ');
            let words: Vec<&str> = words.collect();
            machine.command(&words).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    started.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    assert_eq!(lines(&machine).len(), 7);
    let lock = machine.say("lock calls.jsonl --json").ok().json();
    assert_eq!(lock["specs"].as_array().unwrap().len(), 1);
}
