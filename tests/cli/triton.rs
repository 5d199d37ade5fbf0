//! An op in Triton, on a machine without it.

use crate::machine::Machine;

#[test]
fn what_is_missing_is_named_with_the_command_that_brings_it() {
    let machine = Machine::new();
    let json = machine.say("ops gated_rmsnorm --json").ok().stdout;
    assert!(json.contains("\"language\": \"triton\""), "{json}");

    let built = machine.say("build --arch 80,90a --op gated_rmsnorm -o out.pbk");
    assert_eq!(built.status, 3, "{built:?}");
    for text in ["PB-1501", "no usable Triton for sm_80", "searched", "parbake toolchain install triton"] {
        assert!(built.stderr.contains(text), "no {text:?} in {}", built.stderr);
    }
    assert!(!machine.path("out.pbk").exists());

    let asked = machine.say("supports gated_rmsnorm dtype=bf16 order=norm_first --target 90a");
    assert_eq!(asked.status, 1, "{asked:?}");
    for text in ["no usable Triton for sm_90a", "parbake toolchain install triton"] {
        assert!(asked.stdout.contains(text), "no {text:?} in {}", asked.stdout);
    }

    // A Python without it is no help, and said to be none.
    let python = machine.write("python3", "#!/bin/sh\nexit 7\n");
    let machine = machine.set("PARBAKE_TRITON_PYTHON", &python);
    let built = machine.say("build --arch 90a --op gated_rmsnorm -o out.pbk").stderr;
    assert!(
        built.contains("the Python that was asked for") && built.contains("unset PARBAKE_TRITON_PYTHON"),
        "{built}"
    );
}

#[test]
fn targets_that_it_does_not_know_are_told_from_missing_compilers() {
    let machine = Machine::new();
    for (target, why) in [
        ("100f", "Triton compiles for sm_100a, not for sm_100f"),
        ("75", "gated_rmsnorm is written for sm_80 and newer"),
        ("host", "gated_rmsnorm has no host target"),
    ] {
        let built = machine.say(&format!("build --arch {target} --op gated_rmsnorm -o out.pbk"));
        assert_eq!((built.status, built.stderr.contains(why)), (2, true), "{built:?}");
    }
}
