//! What the commands about ops and specs answer.

use crate::machine::Machine;

#[test]
fn a_gap_is_named_before_anything_runs() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let workspace = machine.workspace().display().to_string();
    for (target, arch) in [("sm_90a", "90a"), ("host", "host")] {
        let (spec, _) = machine.spec(&[("dtype", "f32")], target.parse().unwrap());
        for (command, status) in [("supports", 1), ("why", 0)] {
            let ran = machine.run(&[command, "rmsnorm", "dtype=f32", "--target", target]);
            assert_eq!(ran.status, status, "{ran:?}");
            for text in [
                "not covered",
                &spec.to_string(),
                target,
                "PARBAKE_BUNDLES is not set",
                &workspace,
                "switched off by PARBAKE_JIT",
                &format!("parbake build --arch {arch} --op norm/rmsnorm -o rmsnorm-{arch}.pbk"),
            ] {
                assert!(ran.stdout.contains(text), "{command}: no {text:?} in {}", ran.stdout);
            }
        }
    }
    let json = machine.say("supports rmsnorm dtype=f32 --target 90a --json").json();
    assert_eq!((&json["support"], &json["runs_on"]), (&"not_covered".into(), &"sm_90a".into()));
    assert_eq!(json["searched"].as_array().unwrap().len(), 3, "{json}");
    assert!(!machine.workspace().exists());
}

#[test]
fn a_bundle_covers_what_it_holds() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let bundle = machine.good_bundle();
    let support = |words: &str| {
        let json = machine.say(&format!("supports rmsnorm {words} --bundle {bundle} --json")).json();
        json["support"].as_str().unwrap().to_owned()
    };
    assert_eq!(support("dtype=f32 --target host"), "bundle");
    assert_eq!(support("dtype=f32 --target 90a"), "bundle");
    assert_eq!(support("dtype=f32 --target 80"), "not_covered");
    assert_eq!(support("dtype=f16 --target 90a"), "not_covered");
    let why = machine.say(&format!("why rmsnorm dtype=f32 --target 80 --bundle {bundle}")).ok().stdout;
    assert!(why.contains("sm_90a runs on compute capability 9.0 exactly; the device is 8.0"), "{why}");
    let why = machine.say(&format!("why rmsnorm dtype=f16 --target 90a --bundle {bundle}")).ok().stdout;
    assert!(why.contains("not covered: it does not hold this spec"), "{why}");
    // Of several, the one that is taken is named: the first of those that are equally good.
    let other = machine.bundle("other.pbk", parbake::model::VERSION);
    let words = format!("why rmsnorm dtype=f32 --target 90a --bundle {other} --bundle {bundle}");
    let why = machine.say(&words).ok().stdout;
    assert!(why.contains(&format!("→ bundle, sm_90a, of bundle {other}")) && why.contains(&bundle), "{why}");
    // The setting says the same as the option.
    let set = machine.set("PARBAKE_BUNDLES", &bundle);
    assert!(set.say("supports rmsnorm dtype=f32 --target 90a").ok().stdout.starts_with("bundle"));
}

#[test]
fn what_does_not_exist_has_a_reason() {
    let machine = Machine::new();
    let ran = machine.say("supports rmsnorm dtype=bf16 --target 75");
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.starts_with("unsupported") && ran.stdout.contains("sm_80"), "{ran:?}");
    let ran = machine.say("why rmsnorm dtype=bf16 --target sm_75").ok();
    assert!(ran.stdout.contains("does not exist for sm_75"), "{ran:?}");
    assert!(!machine.workspace().exists());
}

#[test]
fn why_prints_the_identities_field_by_field() {
    let machine = Machine::new();
    let json = machine.say("why rmsnorm dtype=bf16 --target 90a --json").ok().json();
    let fields = |key: &str| {
        let fields = json["identities"][key]["fields"].as_array().unwrap();
        fields.iter().map(|f| f[0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(fields("spec_id").starts_with(&["op".to_owned(), "axis.dtype".to_owned()]), "{json}");
    assert_eq!(fields("source_key"), ["spec_id", "sources", "context", "launch_abi"]);
    assert_eq!(json["decision"]["source_key"], json["identities"]["source_key"]["digest"]);
    let (spec, key) = machine.spec(&[("dtype", "bf16")], "90a".parse().unwrap());
    assert_eq!((&json["uri"], &json["decision"]["source_key"]), (&spec.uri.into(), &key.to_string().into()));
    assert!(!machine.workspace().exists());
}

#[test]
fn ops_are_listed_and_one_is_shown_whole() {
    let machine = Machine::new();
    let list = machine.say("ops").ok().stdout;
    assert!(list.starts_with("OP ") && list.contains("norm/rmsnorm") && list.contains("sm_75+, host"), "{list}");
    let norms = machine.say("ops norm").ok().stdout;
    assert!(norms.contains("norm/rmsnorm") && !norms.contains("rope/"), "{norms}");
    assert_eq!(machine.say("ops * --family norm").ok().stdout, norms);
    assert!(!machine.say("ops rms*").ok().stdout.contains("fused"));
    let one = machine.say("ops rmsnorm").ok().stdout;
    for text in [
        "rmsnorm(out, x, weight, eps=1e-6, weight_bias=0)",
        "[rows, hidden]",
        "1 … 65536",
        "f16, bf16, f32",
        "below sm_80",
        "bf16 1 ulp",
        "flashinfer.norm.gemma_rmsnorm with weight_bias=1",
        "rmsnorm_h<hidden>",
    ] {
        assert!(one.contains(text), "no {text:?} in {one}");
    }
    assert_eq!(machine.say("ops norm/rmsnorm").ok().stdout, one);
}

#[test]
fn an_expansion_accounts_for_every_combination() {
    let machine = Machine::new();
    let json = machine.say("expand --arch 75,90a,host --op rmsnorm --all --json").ok().json();
    let count = |name: &str| json[name].as_u64().unwrap();
    let all = json["combinations"].as_array().unwrap();
    assert_eq!(all.len() as u64, count("built") + count("skipped"));
    assert_eq!(json["targets"], serde_json::json!(["host", "sm_75", "sm_90a"]));
    assert!(all.iter().all(|c| c["uri"].is_null() != c["skipped"].is_null()));
    let sum: u64 = json["reasons"].as_array().unwrap().iter().map(|r| r["combinations"].as_u64().unwrap()).sum();
    assert_eq!(sum, count("skipped"));
    let set = Machine::new().set("PARBAKE_ARCHS", "75,90a,host").say("expand --op rmsnorm").ok().stdout;
    let total = set.lines().find(|l| l.starts_with("total")).unwrap();
    assert!(total.contains(&count("built").to_string()) && total.contains(&count("skipped").to_string()), "{set}");
    let text = machine.say("expand --arch 75 --op rmsnorm --all").ok().stdout;
    assert!(text.contains("– bf16 conversion instructions need sm_80"), "{text}");
    // A list that no spec supports names both sides.
    let none = machine.say("expand --arch 75 --op rmsnorm --only dtype=bf16");
    assert_eq!(none.status, 2, "{none:?}");
    assert!(none.stderr.contains("sm_75") && none.stderr.contains("rmsnorm"), "{none:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let machine = Machine::new();
    for (words, status) in [("expand --arch 80 --all", 0), ("ops nothing --json", 2)] {
        let mut command = machine.command(&words.split(' ').collect::<Vec<_>>());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
        assert_eq!(done.code(), Some(status), "{words}");
    }
}
