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
        "lock",
        "coverage",
        "prepare",
        "build",
        "compile",
        "merge",
        "inspect",
        "verify",
        "diff",
        "report",
        "sign",
        "wheel",
        "publish",
        "fetch",
        "show",
        "run",
        "demo",
        "test",
        "bench",
        "tune",
        "toolchain install",
        "toolchain list",
        "cache list",
        "cache show",
        "cache verify",
        "cache prune",
        "cache clear",
        "cache path",
        "doctor",
        "explain",
        "config",
    ] {
        let first = command.split(' ').next().unwrap();
        assert!(all.contains(&format!("  {first} ")), "{first} is not in {all}");
        let help = machine.say(&format!("{command} --help")).ok().stdout;
        let sentence = help.lines().next().unwrap();
        assert!(sentence.ends_with(['.', ';']) || sentence.contains(' '), "{command}: {help}");
        assert!(help.contains(&format!("parbake {command}")), "{command}: {help}");
        assert!(help.contains("--json"), "{command}: {help}");
        let examples = help.lines().filter(|l| l.trim_start().starts_with("parbake "));
        for example in examples {
            assert_eq!(example.matches("parbake ").count(), 1, "two examples on one line of {command}: {example}");
        }
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
        (vec!["cache", "list"], 0, "entries"),
        (vec!["cache", "verify"], 0, "damaged"),
        (vec!["cache", "show", "rmsnorm"], 1, "errors"),
        (vec!["cache", "prune"], 0, "removed"),
        (vec!["cache", "clear"], 2, "errors"),
        (vec!["cache", "clear", "--yes"], 0, "removed"),
        (vec!["cache", "path"], 0, "store"),
        (vec!["config"], 0, "settings"),
        (vec!["doctor"], 1, "findings"),
        (vec!["explain", "PB-1512"], 0, "codes"),
        (vec!["publish", &bundle, "-o", "public"], 0, "files"),
        (vec!["fetch", "--from", "public", "--arch", "host", "-o", "here"], 0, "files"),
        (vec!["fetch", "--from", "nowhere", "--arch", "host", "-o", "here"], 3, "missing"),
        (vec!["fetch", "--arch", "host"], 2, "errors"),
        (vec!["ops", "nothing"], 2, "errors"),
    ] {
        let ran = machine.run(&[words.as_slice(), &["--json"]].concat());
        assert_eq!(ran.status, status, "{words:?}: {ran:?}");
        assert!(ran.json().get(field).is_some(), "{words:?}: {ran:?}");
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn a_code_is_explained() {
    let machine = Machine::new();
    for words in ["explain PB-1512", "explain 1512", "explain pb-1512"] {
        let text = machine.say(words).ok().stdout;
        assert!(text.starts_with("PB-1512: A compiler's output") && text.contains("help:\n  "), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 120), "{text}");
    }
    let all = machine.say("explain").ok().stdout;
    for c in parbake::model::codes::all() {
        assert!(all.contains(c.code) && all.contains(c.title), "{}", c.code);
    }
    let json = machine.say("explain PB-2002 PB-1001 --json").ok().json();
    assert_eq!((&json["codes"][0]["code"], &json["codes"][1]["area"]), (&"PB-2002".into(), &"Settings".into()));
    let ran = machine.say("explain PB-1001 PB-1513x nothing");
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stdout.contains("PB-1001") && ran.stderr.contains("`PB-1513x`"), "{ran:?}");
    assert!(machine.say("explain PB-1599").stderr.contains("did you mean `PB-15"));
    // Each error says where to read more.
    let ran = machine.say("ops nothing");
    assert!(ran.stderr.trim_end().ends_with("more: parbake explain PB-1107"), "{ran:?}");
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
