//! `parbake cache`, in workspaces that a test has filled.

use crate::machine::Machine;
use crate::workspace::publish;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The folder of the one entry of a dtype, made to look as old as that.
fn aged(machine: &Machine, dtype: &str, days: u64) -> PathBuf {
    let (_, key) = machine.spec(&[("dtype", dtype)], "host".parse().unwrap());
    let place = machine.workspace().join(format!("store/v1/{key}/host"));
    let folder = std::fs::read_dir(place).unwrap().next().unwrap().unwrap().path();
    let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    std::fs::File::open(&folder).unwrap().set_modified(time).unwrap();
    folder
}

/// Two entries, one of them three and one forty days old.
fn filled() -> (Machine, [PathBuf; 2]) {
    let machine = Machine::with_own_kernels();
    publish(&machine, "f32", "host");
    publish(&machine, "f16", "host");
    let folders = [aged(&machine, "f32", 3), aged(&machine, "f16", 40)];
    (machine, folders)
}

#[test]
fn entries_are_listed_filtered_and_shown() {
    let (machine, folders) = filled();
    let text = machine.say("cache list").ok().stdout;
    for part in ["rmsnorm-f32-", "rmsnorm-f16-", "host", "release", "3 d", "40 d", "current", "nvrtc test", "2 entries"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let count = |words: &str| machine.say(words).ok().json()["entries"].as_array().unwrap().len();
    for (words, expected) in [
        ("cache list --json", 2),
        ("cache list --op norm/* --json", 2),
        ("cache list --op *rmsnorm --target host --json", 2),
        ("cache list --op fused* --json", 0),
        ("cache list --target 90a --json", 0),
    ] {
        assert_eq!(count(words), expected, "{words}");
    }
    let json = machine.say("cache list --json").ok().json();
    let entry = &json["entries"].as_array().unwrap().iter().find(|e| e["folder"] == folders[0].display().to_string());
    let entry = entry.unwrap();
    let (uri, key, build) = (&entry["uri"], &entry["source_key"], &entry["build_key"]);
    let idle = entry["idle_s"].as_u64().unwrap();
    assert!((3 * 86_400..3 * 86_400 + 600).contains(&idle) && entry["standing"] == "current", "{entry}");
    for what in [uri, key, build] {
        let what = what.as_str().unwrap();
        for what in [what, &what[..what.len() - 3]] {
            let text = machine.say(&format!("cache show {what}")).ok().stdout;
            for part in ["rmsnorm dtype=f32", "--an-option", "a warning", build.as_str().unwrap(), "kernel.so"] {
                assert!(text.contains(part), "{what}: no {part:?} in {text}");
            }
            assert!(!text.contains("f16"), "{text}");
        }
    }
    let ran = machine.say("cache show fff-nothing");
    assert!(ran.status == 1 && ran.stderr.contains("PB-3151"), "{ran:?}");
    let store = machine.say("cache path store").ok().stdout;
    assert_eq!(store.trim(), machine.workspace().join("store/v1").display().to_string());
    assert_eq!(machine.say("cache path").ok().stdout.lines().count(), 5);
}

#[test]
fn damage_is_told_from_what_cannot_be_read() {
    let (machine, folders) = filled();
    assert!(machine.say("cache verify").ok().stdout.contains("2 entries: 2 whole, 0 damaged, 0 not read"));
    std::fs::write(folders[0].join("kernel.so"), "cut").unwrap();
    let ran = machine.say("cache verify");
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stdout.contains("DAMAGED  rmsnorm-f32") && ran.stderr.contains("PB-3152"), "{ran:?}");
    // A folder in the place of a file cannot be read, not even by the administrator.
    std::fs::remove_file(folders[1].join("kernel.so")).unwrap();
    std::fs::create_dir(folders[1].join("kernel.so")).unwrap();
    let ran = machine.say("cache verify");
    assert_eq!(ran.status, 3, "{ran:?}");
    let both = ran.stdout.contains("2 entries: 0 whole, 1 damaged, 1 not read");
    assert!(both && ran.stderr.contains("PB-1601") && ran.stderr.contains("PB-3152"), "{ran:?}");
    let json = machine.say("cache verify --json").json();
    assert_eq!((json["damaged"].as_array().unwrap().len(), json["whole"].as_u64()), (1, Some(0)), "{json}");
    // Removing what is damaged leaves what could not be judged.
    let ran = machine.say("cache prune --damaged");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(!folders[0].exists(), "{ran:?}");
    assert!(folders[1].exists() || ran.stdout.contains("minute"), "{ran:?}");
}

#[test]
fn limits_decide_what_goes_and_a_dry_run_only_says_so() {
    let (machine, folders) = filled();
    let ran = machine.say("cache prune --max-age 30d --dry-run").ok();
    assert!(ran.stdout.contains("would remove 1 entry") && folders[1].exists(), "{ran:?}");
    let ran = machine.say("cache prune").ok();
    assert!(ran.stdout.contains("removed 0 entries") && ran.stdout.contains("--max-size"), "{ran:?}");
    let json = machine.say("cache prune --max-age 30d --json").ok().json();
    assert_eq!((&json["removed"][0]["reason"], &json["kept"]["count"]), (&"unused".into(), &1.into()), "{json}");
    assert!(folders[0].exists() && !folders[1].exists());

    // What the kernels no longer make is stale.
    assert!(machine.say("cache prune --stale -n").ok().stdout.contains("would remove 0 entries"));
    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    assert!(machine.say("cache list").ok().stdout.contains("stale"));
    let ran = machine.say("cache prune --stale").ok();
    assert!(ran.stdout.contains("removed 1 entry") && ran.stdout.contains("other sources"), "{ran:?}");
    assert!(!folders[0].exists());

    for (option, says) in
        [("--max-size=0", "512M"), ("--max-size=x", "512M"), ("--max-age=3", "12h"), ("--max-age=-1d", "12h")]
    {
        let ran = machine.run(&["cache", "prune", option]);
        assert!(ran.status == 2 && ran.stderr.contains(says), "{option}: {ran:?}");
    }
}

#[test]
fn everything_goes_only_if_somebody_says_so() {
    let (machine, folders) = filled();
    let generated = machine.workspace().join("gen/rmsnorm-f32@0123456789ab");
    std::fs::create_dir_all(&generated).unwrap();
    let ran = machine.say("cache clear");
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains("--yes") && folders.iter().all(|f| f.exists()), "{ran:?}");
    publish(&machine, "bf16", "host");
    let ran = machine.say("cache clear --yes").ok();
    assert!(ran.stdout.contains("removed 3 entries"), "{ran:?}");
    assert!(folders.iter().all(|f| !f.exists()) && !generated.exists());
    assert!(machine.say("cache list").ok().stdout.starts_with("0 entries"));
}

#[test]
fn what_killed_processes_left_is_counted_and_removed() {
    let machine = Machine::new();
    publish(&machine, "f32", "host");
    let dead = parbake_model::owner::Owner { process: u32::MAX, ..parbake_model::owner::Owner::this() };
    // Whether a process of another host lives cannot be told: what it left stays for a day.
    let [left, elsewhere] = [dead.tag(), "1.1@elsewhere".to_owned()].map(|tag| {
        let folder = machine.workspace().join(format!("store/stage/stage-{tag}-1-0"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.so"), [0; 100]).unwrap();
        std::fs::File::open(&folder).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        folder
    });
    assert!(machine.say("cache list").ok().stdout.contains("1 leftover of killed processes, 100 B"));
    let ran = machine.say("cache prune").ok();
    assert!(ran.stdout.contains("1 leftover") && !left.exists() && elsewhere.exists(), "{ran:?}");
    assert!(!machine.say("cache list").ok().stdout.contains("leftover"));
}
