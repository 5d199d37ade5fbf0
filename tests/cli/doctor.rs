//! `parbake doctor`: what it finds, how bad that is, and what mends it.

use crate::machine::Machine;
use crate::workspace::publish;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Findings of a section.
fn of<'a>(json: &'a Value, section: &str) -> Vec<&'a Value> {
    json["findings"].as_array().unwrap().iter().filter(|f| f["section"] == section).collect()
}

fn worst<'a>(json: &'a Value, section: &str) -> &'a str {
    let order = ["problem", "warning", "note", "ok"];
    let found: Vec<&str> = of(json, section).iter().map(|f| f["severity"].as_str().unwrap()).collect();
    order.into_iter().find(|s| found.contains(s)).unwrap_or_else(|| panic!("no {section} in {json}"))
}

#[test]
fn doctor_finds_what_is_there_and_what_is_not() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    let machine = machine.set("PARBAKE_BUNDLES", &bundle).set("PARBAKE_JITS", "1");
    let json = machine.say("doctor --json").ok().json();
    for (section, severity) in [("kernels", "ok"), ("bundle", "ok"), ("store", "ok"), ("setting", "warning")] {
        assert_eq!(worst(&json, section), severity, "{section}");
    }
    assert_ne!(worst(&json, "workspace"), "problem");
    // Nothing is installed there.
    assert!(of(&json, "toolchain").iter().any(|f| f["severity"] == "note"), "{json}");
    assert_eq!((&json["works"]["gpu"], &json["works"]["host"]), (&false.into(), &true.into()));
    assert_eq!((&json["problems"], &of(&json, "bundle")[0]["facts"]["specs"]), (&0.into(), &1.into()));
    for finding in json["findings"].as_array().unwrap() {
        assert_eq!(finding["severity"] == "ok", finding["fix"].is_null(), "{finding}");
    }
    let text = machine.say("doctor").ok().stdout;
    assert!(text.contains("PARBAKE_JITS") && text.contains("nearest one is PARBAKE_JIT"), "{text}");
    assert!(text.contains("fix: parbake toolchain install 12.9"), "{text}");
    assert!(!machine.workspace().exists());
}

#[test]
fn a_bundle_that_cannot_be_used_is_a_problem_and_a_stale_one_a_warning() {
    let machine = Machine::with_own_kernels();
    let bundle = machine.good_bundle();
    let machine = machine.set("PARBAKE_BUNDLES", &bundle);
    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    let json = machine.say("doctor --json").ok().json();
    let found = of(&json, "bundle")[0];
    assert_eq!((&found["severity"], &found["facts"]["stale"]), (&"warning".into(), &1.into()), "{found}");
    assert!(found["fix"].as_str().unwrap().contains("parbake build"), "{found}");

    let other = machine.bundle("other.pbk", "7.0.0");
    for (path, says) in [(other, "PB-1390"), (machine.write("text.pbk", "text"), "PB-1302")] {
        let machine = Machine::new().set("PARBAKE_BUNDLES", &path);
        let ran = machine.say("doctor --json");
        assert_eq!(ran.status, 1, "{ran:?}");
        let json = ran.json();
        assert!(of(&json, "bundle")[0]["what"].as_str().unwrap().contains(says), "{json}");
        // It refuses every call; only a bake can do without.
        assert_eq!(json["works"]["host"], false);
        assert!(ran.stderr.contains("PB-3130"), "{ran:?}");
    }
}

#[test]
fn folders_that_others_may_write_are_problems() {
    let machine = Machine::new();
    let part = machine.path("toolchains/cuda-1.0");
    std::fs::create_dir_all(&part).unwrap();
    let stamp = r#"{"name": "cuda", "version": "1.0", "licence": "none", "wheels": []}"#;
    std::fs::write(part.join("component.json"), stamp).unwrap();
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ran = machine.say("doctor --json");
    assert_eq!((ran.status, worst(&ran.json(), "toolchain")), (1, "problem"), "{ran:?}");
    assert!(ran.stdout.contains(&format!("{} may be written by everybody", part.display())), "{ran:?}");
    std::fs::remove_dir_all(&part).unwrap();
    for (folder, section) in [(machine.workspace(), "workspace"), (machine.path("toolchains"), "toolchain")] {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let ran = machine.say("doctor --json");
        assert_eq!((ran.status, worst(&ran.json(), section)), (1, "problem"), "{ran:?}");
        assert!(ran.stdout.contains(&format!("chmod go-w {}", folder.display())), "{ran:?}");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(worst(&machine.say("doctor --json").ok().json(), section), "problem");
    }
}

#[test]
fn a_temporary_folder_may_be_everybodys_if_others_cannot_rename_there() {
    let machine = Machine::new();
    let everybodys = machine.path("scratch");
    std::fs::create_dir(&everybodys).unwrap();
    let shown = everybodys.to_str().unwrap().to_owned();
    let workspace = everybodys.join("w");
    let machine = machine.set("PARBAKE_TMP", &shown).set("PARBAKE_WORKSPACE", workspace.to_str().unwrap());
    let set_mode = |mode| std::fs::set_permissions(&everybodys, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o1777);
    assert_ne!(worst(&machine.say("doctor --json").ok().json(), "workspace"), "problem");
    set_mode(0o777);
    let ran = machine.say("doctor --json");
    assert_eq!((ran.status, worst(&ran.json(), "workspace")), (1, "problem"), "{ran:?}");
    assert!(ran.stdout.contains(&format!("chmod +t {shown}, or set PARBAKE_TMP")), "{ran:?}");
    // Whose it is not cannot follow such advice.
    if std::os::unix::fs::chown(&everybodys, Some(1234), None).is_ok() {
        let ran = machine.say("doctor --json");
        assert!(ran.status == 1 && !ran.stdout.contains("chmod"), "{ran:?}");
    }
}

#[test]
fn only_a_deep_look_finds_damage() {
    let machine = Machine::new();
    publish(&machine, "f32", "host");
    let (_, key) = machine.spec(&[("dtype", "f32")], "host".parse().unwrap());
    let place = machine.workspace().join(format!("store/v1/{key}/host"));
    let folder = std::fs::read_dir(place).unwrap().next().unwrap().unwrap().path();
    let json = machine.say("doctor --deep --json").ok().json();
    assert_eq!(of(&json, "store")[0]["facts"]["damaged"], 0, "{json}");
    std::fs::write(folder.join("kernel.so"), "cut").unwrap();
    assert_eq!(worst(&machine.say("doctor --json").ok().json(), "store"), "ok");
    let ran = machine.say("doctor --deep --json");
    assert_eq!((ran.status, worst(&ran.json(), "store")), (1, "problem"), "{ran:?}");
    assert!(ran.stdout.contains("parbake cache prune --damaged"), "{ran:?}");
}

#[test]
fn without_jit_a_warm_store_is_enough() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    assert_eq!(machine.say("doctor --json").json()["works"]["host"], false);
    publish(&machine, "f32", "host");
    assert_eq!(machine.say("doctor --json").json()["works"]["host"], true);
}

#[test]
fn a_machine_where_nothing_works_has_a_problem() {
    let machine = Machine::new().set("PARBAKE_KERNELS", "/nonexistent/kernels");
    let ran = machine.say("doctor --json");
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!((worst(&ran.json(), "kernels"), worst(&ran.json(), "summary")), ("problem", "problem"));
    assert!(ran.stderr.contains("PB-3130") && ran.json()["works"]["build"] == false, "{ran:?}");
}
