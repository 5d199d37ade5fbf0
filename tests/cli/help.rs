//! Every command explains itself, and speaks JSON.

use crate::machine::{Machine, sample};

#[test]
fn every_command_has_help_with_an_example() {
    let machine = Machine::new();
    let all = machine.say("--help").ok().stdout;
    for command in [
        "ops",
        "expand",
        "supports",
        "why",
        "build",
        "inspect",
        "verify",
        "sign",
        "show",
        "run",
        "demo",
        "test",
        "bench",
        "toolchain install",
        "toolchain list",
        "doctor",
        "config",
    ] {
        let first = command.split(' ').next().unwrap();
        assert!(all.contains(&format!("  {first} ")), "{first} is not in {all}");
        let help = machine.say(&format!("{command} --help")).ok().stdout;
        let sentence = help.lines().next().unwrap();
        assert!(sentence.ends_with(['.', ';']) || sentence.contains(' '), "{command}: {help}");
        assert!(help.contains(&format!("parbake {command}")), "{command}: {help}");
        assert!(help.contains("--json"), "{command}: {help}");
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn every_answer_is_one_json_document() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let bundle = machine.good_bundle();
    let cubin = sample("13.0-90a.cubin").display().to_string();
    let fatbin = sample("13.0-mixed.fatbin").display().to_string();
    for (words, status, field) in [
        (vec!["ops"], 0, "ops"),
        (vec!["ops", "rmsnorm"], 0, "op"),
        (vec!["expand", "--arch", "80,90a"], 0, "rows"),
        (vec!["expand", "--arch", "80", "--all"], 0, "combinations"),
        (vec!["supports", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", &bundle], 0, "support"),
        (vec!["supports", "rmsnorm", "dtype=f16", "--target", "host"], 1, "support"),
        (vec!["why", "rmsnorm", "dtype=f16", "--target", "host"], 0, "identities"),
        (vec!["inspect", &bundle, "--images"], 0, "images"),
        (vec!["inspect", &cubin], 0, "facts"),
        (vec!["inspect", &fatbin], 0, "images"),
        (vec!["verify", &bundle], 0, "bundles"),
        (vec!["verify", &cubin], 1, "bundles"),
        (vec!["show", "rmsnorm"], 1, "errors"),
        (vec!["toolchain", "list"], 0, "chosen"),
        (vec!["config"], 0, "settings"),
        (vec!["ops", "nothing"], 2, "errors"),
    ] {
        let ran = machine.run(&[words.as_slice(), &["--json"]].concat());
        assert_eq!(ran.status, status, "{words:?}: {ran:?}");
        assert!(ran.json().get(field).is_some(), "{words:?}: {ran:?}");
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn doctor_finds_what_is_there_and_what_is_not() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    let machine = machine.set("PARBAKE_BUNDLES", &bundle).set("PARBAKE_JITS", "1");
    let ran = machine.say("doctor --json").ok();
    let json = ran.json();
    let level = |area: &str| {
        let all = json["findings"].as_array().unwrap();
        let found = all.iter().find(|f| f["area"] == area).unwrap_or_else(|| panic!("no {area} in {json}"));
        found["level"].as_str().unwrap().to_owned()
    };
    assert_eq!([level("kernels"), level("bundle"), level("workspace")], ["ok", "ok", "ok"]);
    assert_eq!(level("toolchains"), "warn");
    assert_eq!((&json["works"]["gpu"], &json["works"]["host"]), (&false.into(), &true.into()));
    let text = machine.say("doctor").ok().stdout;
    assert!(text.contains("PARBAKE_JITS") && text.contains("PARBAKE_JIT"), "{text}");
    assert!(!machine.workspace().exists());

    // A bundle that is asked for and cannot be used refuses every call; only a bake can do without.
    std::fs::write(&bundle, "text").unwrap();
    let ran = machine.say("doctor --json");
    let works = &ran.json()["works"];
    assert_eq!(works["host"], false, "{ran:?}");
    assert_eq!(ran.status, if works["build"] == true { 0 } else { 3 }, "{ran:?}");
}

#[test]
fn doctor_ends_with_status_three_if_nothing_works() {
    let machine = Machine::new().set("PARBAKE_KERNELS", "/nonexistent/kernels");
    let ran = machine.say("doctor --json");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(ran.stderr.contains("PB-3130") && ran.json()["works"]["build"] == false, "{ran:?}");
}

#[test]
fn config_shows_values_and_origins() {
    let machine = Machine::new().set("PARBAKE_JIT", "off").set("PARBAKE_JTI", "off");
    let ran = machine.say("config").ok();
    let line = |name: &str| ran.stdout.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(line("PARBAKE_JIT ").contains("environment") && line("PARBAKE_JIT ").ends_with("off"));
    assert!(line("PARBAKE_CACHE").contains("default"));
    assert!(ran.stderr.contains("PARBAKE_JTI") && ran.stderr.contains("nearest"), "{}", ran.stderr);
    let bad = Machine::new().set("PARBAKE_JIT", "perhaps").say("config");
    assert_eq!(bad.status, 2);
    assert!(bad.stderr.contains("PARBAKE_JIT") && bad.stderr.contains("perhaps"), "{bad:?}");
}
