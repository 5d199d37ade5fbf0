//! What a person types wrong is said clearly, ends with status 2, and writes nothing.

use crate::machine::Machine;

#[test]
fn unknown_names_and_values_name_what_there_is() {
    let machine = Machine::new();
    for (words, says) in [
        ("ops rmsnrm", &["rmsnrm", "did you mean `rmsnorm`"][..]),
        ("ops --family nrom", &["nrom", "did you mean `norm`"]),
        ("ops zzz*", &["zzz*", "norm/rmsnorm"]),
        ("supports rmsnrm dtype=f32 --target host", &["did you mean `rmsnorm`"]),
        ("why rmsnorm dtyp=f32 --target host", &["dtyp", "expected: dtype", "parbake ops rmsnorm"]),
        ("why rmsnorm dtype=f64 --target host", &["f64", "f16, bf16, f32"]),
        ("why rmsnorm f32 --target host", &["f32", "did you mean `dtype=f32`"]),
        ("why rmsnorm dtype= --target host", &["name=value"]),
        ("why rmsnorm --target host", &["axis `dtype` has no value", "f16, bf16, f32"]),
        ("why rmsnorm dtype=f32 dtype=f16 --target host", &["`dtype` is given twice"]),
        ("why rmsnorm dtype=f32 block=3 --target host", &["tactic `block` has no value `3`", "128"]),
        ("run rmsnorm dtype=f32 dtype=bf16", &["`dtype` is given twice", "dtype=f32 and dtype=bf16"]),
        ("run rmsnorm dtype=f32 --shape rows=1 --shape rows=2", &["`rows` is given twice"]),
        ("run rmsnorm dtype=f32 --scalar eps=1 --scalar eps=2", &["`eps` is given twice"]),
        ("prepare rmsnorm dtype=f32 dtype=f16 --target host", &["`dtype` is given twice"]),
        ("show rmsnorm dtype=f32 dtype=f16", &["`dtype` is given twice"]),
        ("lock --arch host --only dtype=f32 --only dtype=f16", &["`dtype` is given twice"]),
        ("build --arch host --only dtype=f32 --only dtype=f16 -o x.pbk", &["`dtype` is given twice"]),
        ("expand --arch 80 --only dtype=f32 --only dtype=f16", &["`dtype` is given twice"]),
        ("expand", &["PARBAKE_ARCHS", "90a"]),
        ("expand --arch 80 --op nothing", &["`nothing` matches no op", "norm/rmsnorm"]),
        ("expand --arch 80 --op rmsnorm,rmsnrm", &["`rmsnrm` matches no op", "did you mean `rmsnorm`"]),
        ("lock --arch 80 --op rmsnorm,nothing/*", &["`nothing/*` matches no op", "norm/rmsnorm"]),
        ("build --arch 80 --op norm/*, -o x.pbk", &["`` matches no op", "norm/rmsnorm"]),
        ("ops rmsnorm,rmsnrm", &["rmsnrm", "did you mean `rmsnorm`"]),
        ("expand --arch 80 --only dtype=f99", &["dtype=f99", "bf16"]),
        ("expand --arch ,", &["the list is empty"]),
        ("build --arch 90a -o .", &["`-o norm.pbk`", "is a folder"]),
        ("run rmsnorm dtype=f32 --shape rows=2147483647 --shape hidden=65536", &["do not fit", "TiB"]),
        ("run rmsnorm dtype=f32 --offset 18446744073709551615", &["--offset", "1048576"]),
        ("run rmsnorm dtype=f32 --pad 9223372036854775807", &["--pad", "1048576"]),
        ("run rmsnorm dtype=f32 --pad=-1", &["--pad", "1048576"]),
        ("toolchain install 11.8", &["11.8", "12.9"]),
    ] {
        let ran = machine.say(words);
        assert_eq!(ran.status, 2, "{words}: {ran:?}");
        for text in says {
            assert!(ran.stderr.contains(text), "{words}: no {text:?} in {}", ran.stderr);
        }
        assert!(ran.stdout.is_empty(), "{words}: {ran:?}");
    }
    assert!(!machine.workspace().exists() && !machine.path("toolchains").exists());
}

#[test]
fn only_what_the_target_lacks_is_a_reason() {
    let ran = Machine::new().say("build --arch 75 --op norm/rmsnorm --only dtype=bf16 -o x.pbk");
    assert_eq!(ran.status, 2, "{ran:?}");
    let reasons = ran.stderr.lines().find(|l| l.contains("reasons:")).unwrap();
    assert!(reasons.contains("bf16 conversion instructions need sm_80") && !reasons.contains(';'), "{ran:?}");
}

#[test]
fn architectures_are_parsed_not_matched() {
    let machine = Machine::new();
    for (arch, says) in [
        ("99", "90a"),
        ("12.1", "`121`"),
        ("2.1", "are one of 75"),
        ("90b", "90a"),
        ("90f", "no suffix `f`"),
        ("hots", "90a"),
    ] {
        for words in [
            vec!["expand", "--arch", arch],
            vec!["supports", "rmsnorm", "dtype=f32", "--target", arch],
            vec!["why", "rmsnorm", "dtype=f32", "--target", arch],
        ] {
            let ran = machine.run(&words);
            assert_eq!(ran.status, 2, "{words:?}: {ran:?}");
            assert!(ran.stderr.contains(&format!("`{arch}`")) && ran.stderr.contains(says), "{words:?}: {ran:?}");
        }
    }
    let set = Machine::new().set("PARBAKE_ARCHS", "80,99").say("expand");
    assert_eq!(set.status, 2);
    assert!(set.stderr.contains("PARBAKE_ARCHS") && set.stderr.contains("99"), "{set:?}");
    assert!(!machine.workspace().exists());
}

#[test]
fn a_malformed_definition_is_pointed_at() {
    let machine = Machine::with_own_kernels();
    let file = machine.path("kernels/norm/rmsnorm/op.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let wrong = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let at = text[..text.find(from).unwrap()].lines().count() + 1;
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        (at, machine.say("ops"))
    };
    for (from, to, column, says) in [
        ("host = true", "host = maybe", 8, ""),
        ("host = true", "hots = true", 1, "hots"),
        ("since = \"sm_75\"", "since = \"sm_99\"", 9, "sm_99"),
        ("[[tensor]]\nname = \"x\"", "[[tensor]]\nname = \"out\"", 1, "`out` is declared twice"),
    ] {
        let (line, ran) = wrong(from, to);
        let line = line + from.matches('\n').count();
        assert_eq!(ran.status, 1, "{to}: {ran:?}");
        let place = format!("norm/rmsnorm/op.toml:{line}:{column}: ");
        assert!(ran.stderr.contains(&place) && ran.stderr.contains(says), "{to}: no {place} in {}", ran.stderr);
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn a_gap_without_a_compiler_names_what_brings_one() {
    let machine = Machine::new().set("PARBAKE_NVRTC", "/nowhere/libnvrtc.so");
    let lock = machine.write("p.lock", machine.say("lock --arch 90a --op rmsnorm --only dtype=f32").ok().stdout);
    for words in [
        "supports rmsnorm dtype=f32 --target 90a",
        "why rmsnorm dtype=f32 --target 90a",
        "prepare rmsnorm dtype=f32 --target 90a",
        &format!("prepare --lock {lock} --target 90a,80"),
        "run rmsnorm dtype=f32 --target 90a",
    ] {
        let ran = machine.say(words);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{words}: no `{part}` in {text}"));
        let install = at("help: parbake toolchain install 12.9");
        assert!(install < at("or, where there is a compiler: parbake build --arch "), "{words}: {text}");
    }
    // With JIT off no compiler is missing.
    let off = Machine::new().set("PARBAKE_JIT", "off").say("supports rmsnorm dtype=f32 --target 90a");
    assert!(off.stdout.contains("help: parbake build --arch 90a --op norm/rmsnorm"), "{off:?}");
    assert!(!off.stdout.contains("toolchain install"), "{off:?}");
}

#[test]
fn a_bundle_of_ptx_is_advised_for_ptx() {
    let ran = Machine::new().set("PARBAKE_JIT", "off").say("supports rmsnorm dtype=f32 --target compute_90");
    assert!(ran.stdout.contains("help: parbake build --arch compute_90 --op norm/rmsnorm"), "{ran:?}");
}

#[test]
fn a_kernel_folder_that_is_not_there_is_the_environment_and_says_why() {
    let ran = Machine::new().set("PARBAKE_KERNELS", "/nonexistent").say("run rmsnorm dtype=f32 --target host");
    assert_eq!(ran.status, 3, "{ran:?}");
    for text in ["PB-1102", "/nonexistent", "No such file", "help: set PARBAKE_KERNELS"] {
        assert!(ran.stderr.contains(text), "no {text:?} in {ran:?}");
    }
}

#[test]
fn a_bundle_that_is_not_there_says_why_and_what_to_do() {
    let machine = Machine::new();
    let ran = machine.say("supports rmsnorm dtype=f32 --target host --bundle none.pbk");
    assert_eq!(ran.status, 3, "{ran:?}");
    for text in ["PB-1301", "none.pbk", "No such file", "help: name a bundle that can be read"] {
        assert!(ran.stderr.contains(text), "no {text:?} in {ran:?}");
    }
}

#[test]
fn bad_settings_are_reported_together_and_do_not_hide_their_explanation() {
    let machine = Machine::new().set("PARBAKE_JIT", "maybe").set("PARBAKE_JOBS", "0").set("PARBAKE_CACHE", "off");
    assert!(machine.say("explain PB-1001").ok().stdout.contains("PB-1001"));
    let both = |text: &str| text.contains("PARBAKE_JIT") && text.contains("maybe") && text.contains("PARBAKE_JOBS");
    let ran = machine.say("ops");
    assert!(ran.status == 2 && ran.stdout.is_empty() && both(&ran.stderr), "{ran:?}");
    let ran = machine.say("config");
    assert!(ran.status == 2 && both(&ran.stdout) && both(&ran.stderr), "{ran:?}");
    let line = |name: &str| ran.stdout.lines().find(|l| l.starts_with(name)).unwrap();
    assert!(line("PARBAKE_JIT ").ends_with("maybe  REFUSED") && line("PARBAKE_CACHE").ends_with("off"), "{ran:?}");
    let json = machine.say("config --json").json();
    let jit = json["settings"].as_array().unwrap().iter().find(|s| s["name"] == "PARBAKE_JIT").unwrap();
    assert_eq!((&jit["value"], &jit["refused"]), (&"maybe".into(), &"on or off".into()));
    let ran = machine.say("doctor");
    assert!(ran.status == 1 && both(&ran.stdout) && ran.stdout.contains("PARBAKE_CACHE=off"), "{ran:?}");
}

#[test]
fn an_unknown_setting_names_only_a_setting_that_is_near() {
    let ran = Machine::new().set("PARBAKE_QQQQQQQQ", "debug").say("ops").ok();
    assert!(ran.stderr.contains("unknown setting PARBAKE_QQQQQQQQ; `parbake config`"), "{ran:?}");
}

#[test]
fn an_empty_name_of_an_entry_is_wrong_usage() {
    let ran = Machine::new().run(&["cache", "show", ""]);
    assert!(ran.status == 2 && ran.stderr.contains("URI|KEY"), "{ran:?}");
}

#[test]
fn offline_starts_no_process_to_fetch_anything() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new().set("PARBAKE_OFFLINE", "on");
    // Whoever starts Python leaves a trace.
    let trace = machine.path("started");
    let python = machine.write("python3", format!("#!/bin/sh\necho \"$@\" >>{}\nexit 1\n", trace.display()));
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", machine.path("").display(), std::env::var("PATH").unwrap());
    for words in [&["toolchain", "install", "12.9"][..], &["demo"]] {
        let ran = machine.command(words).env("PATH", &path).output().unwrap();
        let error = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{words:?}: {error}");
        assert!(error.contains("PB-1540") && error.contains("unset PARBAKE_OFFLINE"), "{words:?}: {error}");
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(!said.contains("fetching") && !trace.exists(), "{words:?}: {said}");
    }
    assert!(!machine.path("toolchains").exists());
    // Without the setting it would have been started.
    let machine = machine.set("PARBAKE_OFFLINE", "off");
    machine.command(&["toolchain", "install", "12.9"]).env("PATH", &path).output().unwrap();
    assert!(trace.exists());
}
