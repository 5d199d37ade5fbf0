//! Bundles that are inspected, verified and refused.

use crate::machine::{Machine, sample};

#[test]
fn inspect_shows_what_is_inside() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    let text = machine.say(&format!("inspect {bundle} --images")).ok().stdout;
    let (spec, _) = machine.spec(&[("dtype", "f32")], "90a".parse().unwrap());
    for part in ["bundle of format 1", "launch ABI 1", "host test, nvrtc test", "host, sm_90a", &spec.uri, "13.0"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let path = |name: &str| sample(name).display().to_string();
    let text = machine.run(&["inspect", &path("12.9-90a.cubin")]).ok().stdout;
    assert!(text.contains("compiled for  sm_90a") && text.contains("12.9") && text.contains("registers"), "{text}");
    let text = machine.run(&["inspect", &path("13.0-mixed.fatbin")]).ok().stdout;
    assert!(text.contains("3 images") && text.contains("PTX labelled compute_80"), "{text}");
    for lie in ["13.0-half.fatbin", "13.0-90a-as-90.fatbin"] {
        let ran = machine.run(&["inspect", &path(lie)]);
        assert_eq!(ran.status, 1, "{lie}: {ran:?}");
        assert!(ran.stderr.contains("damaged") || ran.stderr.contains("was compiled for sm_90a"), "{ran:?}");
    }
    let absent = machine.say("inspect nothing.pbk");
    assert_eq!(absent.status, 3, "{absent:?}");
    assert!(!machine.workspace().exists());
}

#[test]
fn a_foreign_bundle_is_refused_by_what_it_is() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let good = std::fs::read(machine.good_bundle()).unwrap();
    let mut later = good.clone();
    later[12] = 9;
    let truncated = good[..good.len() - 1].to_vec();
    let header_only = good[..100].to_vec();
    for (name, bytes, says) in [
        ("text.pbk", b"not a bundle at all".to_vec(), "not a bundle"),
        ("empty.pbk", Vec::new(), "an empty file"),
        ("elf.pbk", std::fs::read(sample("13.0-90a.cubin")).unwrap(), "an ELF file"),
        ("fatbin.pbk", std::fs::read(sample("13.0-90a.fatbin")).unwrap(), "a fatbin"),
        ("lfs.pbk", b"version https://git-lfs.github.com/spec/v1\n".to_vec(), "Git LFS"),
        ("truncated.pbk", truncated, "bytes long; expected"),
        ("header.pbk", header_only, "bytes long; expected"),
        ("later.pbk", later, "needs a reader of format 9"),
    ] {
        let path = machine.write(name, &bytes);
        for words in [
            vec!["supports", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", &path],
            vec!["why", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", &path],
        ] {
            let ran = machine.run(&words);
            assert_eq!(ran.status, 1, "{words:?}: {ran:?}");
            assert!(ran.stderr.contains(name) && ran.stderr.contains(says), "{words:?}: {}", ran.stderr);
        }
        let ran = machine.run(&["verify", &path]);
        assert_eq!(ran.status, 1, "{name}: {ran:?}");
        assert!(ran.stdout.contains("FAILED") && ran.stdout.contains(says), "{name}: {ran:?}");
        if !name.starts_with("elf") && !name.starts_with("fatbin") {
            let ran = machine.run(&["inspect", &path]);
            assert_eq!(ran.status, 1, "{name}: {ran:?}");
            assert!(ran.stderr.contains(says), "{name}: {ran:?}");
        }
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn what_cannot_be_read_is_not_called_damaged() {
    let machine = Machine::new();
    for path in ["nope.pbk", "."] {
        let ran = machine.run(&["verify", path]);
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(ran.stdout.contains("cannot read") && !ran.stdout.contains("FAILED"), "{ran:?}");
        assert_eq!(machine.run(&["inspect", path]).status, 3);
        let json = machine.run(&["verify", path, "--json"]).json();
        assert_eq!(json["bundles"][0]["unreadable"], true, "{json}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let good = std::fs::read(machine.good_bundle()).unwrap();
    // Every bit is tried where the format is tested; here it is that the commands say so.
    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let path = machine.write("flipped.pbk", &bytes);
        let ran = machine.run(&["verify", &path]);
        assert_eq!(ran.status, 1, "byte {at}: {ran:?}");
        assert!(ran.stdout.contains("PB-13"), "byte {at}: {ran:?}");
    }
    for at in [0, 20, 60, 300] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let path = machine.write("flipped.pbk", &bytes);
        let ran = machine.run(&["supports", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", &path]);
        assert_eq!(ran.status, 1, "byte {at}: {ran:?}");
        assert!(ran.stderr.contains("flipped.pbk"), "byte {at}: {ran:?}");
    }
    assert!(!machine.workspace().exists());
}

#[test]
fn verify_says_whether_a_bundle_fits_and_what_is_stale() {
    let machine = Machine::with_own_kernels();
    let (good, old) = (machine.good_bundle(), machine.bundle("old.pbk", "9.9.9"));
    let ran = machine.run(&["verify", &good]).ok();
    assert!(ran.stdout.starts_with("ok ") && ran.stdout.contains("every spec is of the present sources"), "{ran:?}");
    let ran = machine.run(&["verify", &old]).ok();
    assert!(ran.stdout.contains("does not fit") && ran.stdout.contains("9.9.9"), "{ran:?}");
    let used = machine.run(&["supports", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", &old]);
    assert_eq!(used.status, 3, "{used:?}");
    assert!(used.stderr.contains("9.9.9") && used.stderr.contains("parbake build"), "{used:?}");

    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    let json = machine.run(&["verify", &good, "--json"]).ok().json();
    let fit = &json["bundles"][0]["fit"];
    assert_eq!((&fit["accepted"], &fit["current"], &fit["stale"]), (&true.into(), &0.into(), &1.into()), "{json}");
    let (spec, _) = machine.spec(&[("dtype", "f32")], "90a".parse().unwrap());
    assert_eq!((&fit["changed"], &fit["gone"]), (&serde_json::json!([spec.uri]), &serde_json::json!([])), "{json}");
    let text = machine.run(&["verify", &good]).ok().stdout;
    assert!(text.contains(&format!("source changed: {}", spec.uri)), "{text}");
    let why = machine.run(&["why", "rmsnorm", "dtype=f32", "--target", "90a", "--bundle", &good]).ok().stdout;
    assert!(why.contains("source changed"), "{why}");

    // Both are judged, and one that is bad is enough.
    let text = machine.write("text.pbk", "text");
    let ran = machine.run(&["verify", &text, &good]);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("FAILED") && ran.stdout.contains("ok "), "{ran:?}");
}
