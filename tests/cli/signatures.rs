//! Signed bundles: keys, signatures, and who is refused with which words.

use crate::machine::Machine;

/// Makes a key without a password; the text of its public half.
fn key(machine: &Machine, name: &str) -> String {
    let json = machine.run(&["sign", "--generate-key", name, "--no-password", "--json"]).ok().json();
    json["text"].as_str().unwrap().to_owned()
}

fn supports(bundle: &str) -> [&str; 7] {
    ["supports", "rmsnorm", "dtype=f32", "--target", "host", "--bundle", bundle]
}

#[test]
fn a_signed_bundle_serves_and_every_other_one_is_refused_by_name() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let bundle = machine.good_bundle();
    let ours = key(&machine, "ours");
    let machine = machine.set("PARBAKE_PUBLIC_KEYS", &ours);
    let refused = |says: &[&str]| {
        let ran = machine.run(&supports(&bundle));
        assert_eq!(ran.status, 1, "{ran:?}");
        for part in says {
            assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
        }
        let ran = machine.run(&["verify", &bundle]);
        assert!(ran.status == 1 && ran.stdout.contains(says[0]), "{ran:?}");
        assert_eq!(machine.run(&["inspect", &bundle]).status, 1);
    };
    let id = machine.run(&["sign", "--generate-key", "third", "--no-password", "--json"]).ok().json();
    let id = id["id"].as_str().unwrap().to_owned();
    refused(&["PB-1361", "good.pbk", "good.pbk.minisig"]);

    let signed = machine.run(&["sign", &bundle, "--key", "ours.key", "--no-password"]).ok();
    assert!(signed.stdout.contains("good.pbk.minisig"), "{signed:?}");
    machine.run(&supports(&bundle)).ok();
    let verified = machine.run(&["verify", &bundle]).ok();
    assert!(verified.stdout.contains("signature: valid, by"), "{verified:?}");
    let inspected = machine.run(&["inspect", &bundle, "--json"]).ok().json();
    assert_eq!(inspected["signature"], "valid", "{inspected}");
    assert!(inspected["comment"].as_str().unwrap().contains("file:good.pbk"), "{inspected}");

    // Torn, by another key, of another bundle.
    let place = format!("{bundle}.minisig");
    let right = std::fs::read(&place).unwrap();
    std::fs::write(&place, &right[..right.len() / 2]).unwrap();
    refused(&["PB-1363", "torn"]);
    machine.run(&["sign", &bundle, "--key", "third.key", "--no-password"]).ok();
    refused(&["PB-1365", &id, "expected"]);
    std::fs::write(&place, &right).unwrap();
    let whole = std::fs::read(&bundle).unwrap();
    machine.bundle("good.pbk", "9.9.9");
    refused(&["PB-1366", "good.pbk"]);
    // What is no bundle at all is refused for its signature: nothing of it was parsed.
    for garbage in [b"not a bundle".to_vec(), vec![0xff; 5000], whole[..whole.len() / 2].to_vec()] {
        std::fs::write(&bundle, garbage).unwrap();
        let ran = machine.run(&supports(&bundle));
        assert!(ran.status == 1 && (ran.stderr.contains("PB-1366") || ran.stderr.contains("PB-1304")), "{ran:?}");
    }
    std::fs::write(&bundle, b"not a bundle").unwrap();
    refused(&["PB-1366"]);
    assert!(!machine.run(&supports(&bundle)).stderr.contains("not a bundle"));

    // A byte behind the signed part is found by its hash.
    let mut altered = whole.clone();
    *altered.last_mut().unwrap() ^= 1;
    std::fs::write(&bundle, altered).unwrap();
    let ran = machine.run(&["verify", &bundle]);
    assert!(ran.status == 1 && ran.stdout.contains("PB-1305"), "{ran:?}");
    assert!(!machine.workspace().exists());
}

#[test]
fn the_policy_decides_and_being_installed_does_not_change_it() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    let ours = key(&machine, "ours");
    let installed = machine.path("data/parbake/bundles");
    std::fs::create_dir_all(&installed).unwrap();
    let bundle = machine.bundle("data/parbake/bundles/a.pbk", parbake::model::VERSION);
    let asked = ["why", "rmsnorm", "dtype=f32", "--target", "host"];
    assert!(machine.run(&asked).ok().stdout.contains("→ bundle, host"));
    let machine = machine.set("PARBAKE_PUBLIC_KEYS", &ours);
    let ran = machine.run(&asked).ok();
    assert!(ran.stdout.contains("not covered") && ran.stdout.contains("it is not signed"), "{ran:?}");
    assert_eq!(ran.stderr.matches("WARN").count(), 1, "{ran:?}");
    let doctor = machine.run(&["doctor"]).stdout;
    assert!(doctor.contains("a.pbk") && doctor.contains("it is not signed"), "{doctor}");

    let machine = machine.set("PARBAKE_SIGNATURE", "warn");
    let ran = machine.run(&asked).ok();
    assert!(ran.stdout.contains("→ bundle, host") && ran.stderr.contains("is used unsigned"), "{ran:?}");
    let machine = machine.set("PARBAKE_SIGNATURE", "off");
    let ran = machine.run(&asked).ok();
    assert!(ran.stdout.contains("→ bundle, host") && ran.stderr.is_empty(), "{ran:?}");
    // One command may ask for more than the settings do.
    let key = machine.path("ours.pub").display().to_string();
    let ran = machine.run(&["verify", &bundle, "--public-key", &key]);
    assert!(ran.status == 1 && ran.stdout.contains("PB-1361"), "{ran:?}");
    let config = machine.run(&["config"]).ok().stdout;
    assert!(config.contains("data/parbake/bundles") && config.contains("PARBAKE_SIGNATURE"), "{config}");
}

#[test]
fn keys_are_made_once_and_guarded() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    let password = machine.write("password", "a long one\n");
    machine.run(&["sign", "--generate-key", "safe", "--password-file", &password]).ok();
    let mode = std::fs::metadata(machine.path("safe.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = machine.run(&["sign", "--generate-key", "safe", "--no-password"]);
    assert!(again.status == 2 && again.stderr.contains("PB-3188"), "{again:?}");

    let signed = machine.run(&["sign", &bundle, "--key", "safe.key", "--password-file", &password, "--json"]);
    let json = signed.ok().json();
    assert_eq!(json["signed"][0]["key"].as_str().unwrap().len(), 16, "{json}");
    let wrong = machine.write("wrong", "another\n");
    let ran = machine.run(&["sign", &bundle, "--key", "safe.key", "--password-file", &wrong]);
    assert!(ran.status == 2 && ran.stderr.contains("Wrong password"), "{ran:?}");
    let ran = machine.run(&["sign", &bundle, "--key", "safe.key", "--no-password"]);
    assert!(ran.status == 2 && ran.stderr.contains("PB-3184"), "{ran:?}");
    key(&machine, "open");
    let ran = machine.run(&["sign", &bundle, "--key", "open.key", "--password-file", &password]);
    assert!(ran.status == 2 && ran.stderr.contains("not protected"), "{ran:?}");
    let ran = machine.run(&["sign", &bundle, "--key", "open.pub", "--no-password"]);
    assert!(ran.status == 2 && ran.stderr.contains("PB-3184"), "{ran:?}");

    // What is damaged is not vouched for.
    let mut bytes = std::fs::read(&bundle).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let torn = machine.write("torn.pbk", bytes);
    let ran = machine.run(&["sign", &bundle, &torn, "--key", "open.key", "--no-password", "--comment", "x"]);
    assert!(ran.status == 1 && ran.stderr.contains("PB-3181"), "{ran:?}");
    assert!(!machine.path("torn.pbk.minisig").exists());
    assert!(!machine.workspace().exists());
}

#[test]
fn a_setting_that_cannot_hold_is_an_error_that_says_why() {
    let says = |name: &str, value: &str, part: &str| {
        let machine = Machine::new().set(name, value);
        let ran = machine.run(&supports("any.pbk"));
        assert!(ran.status == 2 && ran.stderr.contains(part), "{name}={value}: {ran:?}");
    };
    says("PARBAKE_SIGNATURE", "required", "PARBAKE_PUBLIC_KEYS");
    says("PARBAKE_PUBLIC_KEYS", "RWnonsense", "PB-1360");
    says("PARBAKE_VERSION_BYPASS", "yes", "<bundle version>:<library version>");
    says("PARBAKE_VERSION_BYPASS", "1.0.0:2.0.0", "this library is");
}
