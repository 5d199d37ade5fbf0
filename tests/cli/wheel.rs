//! Data wheels: what is in them, that they are reproducible, and what is not packed.

use crate::machine::Machine;
use parbake::model::VERSION;
use std::io::Read;
use std::path::Path;

/// Names and texts of the entries of a zip file, in their order.
fn entries(wheel: &Path) -> Vec<(String, Vec<u8>)> {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(wheel).unwrap()).unwrap();
    let count = zip.len();
    let read = |i| {
        let mut file = zip.by_index(i).unwrap();
        let name = file.name().unwrap().into_owned();
        assert_eq!(file.unix_mode().map(|mode| mode & 0o777), Some(0o644), "{name}");
        assert_eq!(file.last_modified(), Some(zip::DateTime::default()), "{name}");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    };
    (0..count).map(read).collect()
}

#[test]
fn a_wheel_holds_the_bundle_its_signature_and_a_record() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    machine.run(&["sign", "--generate-key", "k", "--no-password"]).ok();
    machine.run(&["sign", &bundle, "--key", "k.key", "--no-password"]).ok();
    let json = machine.run(&["wheel", &bundle, "-o", "dist/new", "--json"]).ok().json();
    let made = &json["wheels"][0];
    // It holds code of the host, so it is not for every machine.
    let name = format!("parbake_bundle_cu130_host_sm90a-{VERSION}-py3-none-linux_{}.whl", std::env::consts::ARCH);
    assert_eq!(made["wheel"], format!("dist/new/{name}"), "{json}");
    assert_eq!((&made["name"], &made["signed"]), (&"parbake-bundle-cu130-host-sm90a".into(), &1.into()), "{json}");
    let wheel = machine.path("dist/new").join(&name);
    let entries = entries(&wheel);
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let info = format!("parbake_bundle_cu130_host_sm90a-{VERSION}.dist-info");
    let place = "parbake_bundles/cu130-host-sm90a/good.pbk";
    let parts = ["METADATA", "WHEEL", "licenses/LICENSE", "RECORD"].map(|part| format!("{info}/{part}"));
    let note = "parbake_bundles/cu130-host-sm90a.txt";
    assert_eq!(names, [place, &format!("{place}.minisig"), note, &parts[0], &parts[1], &parts[2], &parts[3]]);
    assert_eq!(entries[0].1, std::fs::read(&bundle).unwrap());
    let text = |i: usize| String::from_utf8(entries[i].1.clone()).unwrap();
    let (major, rest) = VERSION.split_once('.').unwrap();
    let minor: u64 = rest.split('.').next().unwrap().parse().unwrap();
    if major == "0" {
        let requires = format!("Requires-Dist: parbake>=0.{minor},<0.{}\n", minor + 1);
        assert!(text(3).contains(&requires), "{}", text(3));
    }
    assert!(text(3).contains(&format!("Version: {VERSION}\n")) && text(4).contains("Tag: py3-none-linux_"));
    assert!(text(3).contains("License-File: LICENSE\n") && text(5).contains("Apache License"), "{}", text(3));
    assert_eq!(text(6).lines().count(), 7, "{}", text(6));
    assert!(text(6).lines().take(6).all(|l| l.contains(",sha256=")) && text(6).ends_with("RECORD,,\n"));

    // Neither times nor permissions nor the folder show.
    let before = std::fs::read(&wheel).unwrap();
    let moved = machine.path("elsewhere");
    std::fs::create_dir(&moved).unwrap();
    for file in [bundle.clone(), format!("{bundle}.minisig")] {
        let copy = moved.join(Path::new(&file).file_name().unwrap());
        std::fs::copy(&file, &copy).unwrap();
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    machine.run(&["wheel", "elsewhere/good.pbk"]).ok();
    assert!(before == std::fs::read(machine.path(&name)).unwrap());
    assert!(!machine.workspace().exists());
}

#[test]
fn what_does_not_belong_into_a_wheel_is_refused_and_nothing_is_written() {
    let machine = Machine::new();
    let good = machine.good_bundle();
    let other = machine.bundle("other.pbk", VERSION);
    // The same toolkits and targets: one wheel.
    let json = machine.run(&["wheel", &good, &other, "-o", "both", "--json"]).ok().json();
    assert_eq!(json["wheels"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["wheels"][0]["bundles"].as_array().unwrap().len(), 2, "{json}");

    let mut bytes = std::fs::read(&good).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = machine.write("damaged.pbk", bytes);
    std::fs::create_dir(machine.path("twin")).unwrap();
    std::fs::copy(&good, machine.path("twin/good.pbk")).unwrap();
    let old = machine.bundle("old.pbk", "9.9.9");
    let strange = machine.bundle("strange.pbk", "nightly");
    // The look-up would pass over it.
    let nameless = machine.path("norm.bundle").display().to_string();
    std::fs::copy(&good, &nameless).unwrap();
    for (bundles, status, says) in [
        (vec![good.as_str(), &damaged], 1, ["PB-3160", "damaged.pbk"]),
        (vec!["absent.pbk"], 3, ["PB-3110", "absent.pbk"]),
        (vec![&good, "twin/good.pbk"], 2, ["PB-3162", "same name"]),
        (vec![&good, &old], 2, ["PB-3162", "9.9.9"]),
        (vec![&strange], 2, ["PB-3164", "nightly"]),
        (vec![&good, &nameless], 2, ["PB-3165", "norm.bundle"]),
    ] {
        let ran = machine.run(&[&["wheel", "-o", "dist"], bundles.as_slice()].concat());
        assert_eq!(ran.status, status, "{ran:?}");
        assert!(says.iter().all(|part| ran.stderr.contains(part)), "{says:?}: {ran:?}");
    }
    let keys = machine.run(&["sign", "--generate-key", "k", "--no-password", "--json"]).ok().json();
    let machine = machine.set("PARBAKE_PUBLIC_KEYS", keys["text"].as_str().unwrap());
    let ran = machine.run(&["wheel", "-o", "dist", &good]);
    assert!(ran.status == 1 && ran.stderr.contains("PB-1361"), "{ran:?}");
    assert!(std::fs::read_dir(machine.path("dist")).map_or(0, Iterator::count) == 0);
}

#[test]
fn a_bundle_of_another_version_in_the_folders_of_wheels_is_named_by_doctor_and_stops_the_rest() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let folder = machine.path("data/parbake/bundles/cu130-host-sm90a");
    std::fs::create_dir_all(&folder).unwrap();
    machine.bundle("data/parbake/bundles/cu130-host-sm90a/a.pbk", "9.9.9");
    let ran = machine.say("why rmsnorm dtype=f32 --target host");
    assert_eq!(ran.status, 3, "{ran:?}");
    for part in ["PB-1391", "a.pbk", "made by version 9.9.9, launch ABI 1", &format!("version {VERSION}, launch ABI 1")]
    {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
    let doctor = machine.say("doctor --json");
    assert!(doctor.status == 1 && doctor.stdout.contains("a.pbk: made by version 9.9.9"), "{doctor:?}");
    // What makes and judges bundles does not look at installed ones.
    machine.say("verify data/parbake/bundles/cu130-host-sm90a/a.pbk").ok();
    machine.say("ops").ok();
}
