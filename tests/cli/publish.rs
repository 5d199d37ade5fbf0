//! Folders that are published: what is in them, what stays, and what is refused.

use crate::machine::{Machine, Ran};
use parbake::model::{Digest, VERSION};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file below a folder, with its hash and the time of its last change.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (Digest, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(tree(&entry.path()));
        } else {
            let changed = entry.metadata().unwrap().modified().unwrap();
            found.insert(entry.path(), (Digest::of(&std::fs::read(entry.path()).unwrap()), changed));
        }
    }
    found
}

fn refused(ran: Ran, status: i32, code: &str) {
    assert!(ran.status == status && ran.stderr.contains(code), "{code}: {ran:?}");
}

#[test]
fn what_is_published_is_listed_and_stays() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    machine.run(&["sign", "--generate-key", "key", "--no-password"]).ok();
    machine.run(&["sign", &bundle, "--key", "key.key", "--no-password"]).ok();
    let wheels = machine.run(&["wheel", &bundle, "-o", "dist", "--json"]).ok().json();
    let wheel = wheels["wheels"][0]["wheel"].as_str().unwrap().to_owned();
    let publish = ["publish", &bundle, &wheel, "-o", "public", "--key", "key.key", "--no-password"];
    let ran = machine.run(&publish).ok();
    assert!(ran.stdout.contains("complete, signed") && ran.stderr.is_empty(), "{ran:?}");

    let public = machine.path("public");
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(public.join("index.json")).unwrap()).unwrap();
    let version = &index["versions"][0];
    assert_eq!(
        (&index["schema"], &version["library"], &version["launch_abi"]),
        (&1.into(), &VERSION.into(), &1.into())
    );
    let files = version["files"].as_array().unwrap();
    let kinds: Vec<&str> = files.iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bundle", "signature", "wheel"]);
    for file in [&files[0], &files[2]] {
        assert_eq!(file["targets"], serde_json::json!(["host", "sm_90a"]), "{file}");
        assert_eq!(file["toolkits"], serde_json::json!(["13.0"]), "{file}");
        assert_eq!(file["ops"]["norm/rmsnorm"], serde_json::json!(["host", "sm_90a"]), "{file}");
    }
    for file in files {
        let bytes = std::fs::read(public.join(file["path"].as_str().unwrap())).unwrap();
        assert_eq!(file["size"], bytes.len());
        assert_eq!(file["sha256"], Digest::of(&bytes).to_string());
    }
    let sums = Command::new("sha256sum").args(["-c", "--strict", "SHA256SUMS"]).current_dir(&public).output().unwrap();
    assert!(sums.status.success() && sums.stdout.iter().filter(|c| **c == b'\n').count() == 3, "{sums:?}");

    // The same once more changes nothing, not even a time.
    let before = tree(&public);
    let json = machine.run(&[&publish[..], &["--json"]].concat()).ok().json();
    assert!(json["files"].as_array().unwrap().iter().all(|f| f["known"] == true), "{json}");
    assert_eq!(tree(&public), before);

    // Another version goes beside it, and the index would have lost its signature.
    let other = machine.bundle("good.pbk", "0.0.9");
    std::fs::remove_file(machine.path("good.pbk.minisig")).unwrap();
    refused(machine.run(&["publish", &other, "-o", "public"]), 2, "PB-3405");
    assert_eq!(tree(&public), before);
    let ran = machine.run(&["publish", &other, "-o", "public", "--key", "key.key", "--no-password"]).ok();
    assert!(ran.stderr.contains("good.pbk is not signed"), "{ran:?}");
    let after = tree(&public);
    let kept = before.iter().filter(|(path, _)| path.starts_with(public.join(format!("v{VERSION}"))));
    assert_eq!(kept.clone().count(), 3);
    kept.for_each(|(path, file)| assert_eq!(after.get(path), Some(file)));
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(public.join("index.json")).unwrap()).unwrap();
    let versions: Vec<&str> =
        index["versions"].as_array().unwrap().iter().map(|v| v["library"].as_str().unwrap()).collect();
    assert_eq!(versions, ["0.0.9", VERSION]);
    assert!(!machine.workspace().exists());
}

#[test]
fn nothing_is_replaced_and_nothing_damaged_gets_in() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    machine.run(&["publish", &bundle, "-o", "public"]).ok();
    let public = machine.path("public");
    let before = tree(&public);

    let other = machine.bundle_of("good.pbk", VERSION, b"another".to_vec());
    refused(machine.run(&["publish", &other, "-o", "public"]), 1, "PB-3403");
    // Also if the index was lost, or never written.
    let index = std::fs::read(public.join("index.json")).unwrap();
    std::fs::remove_file(public.join("index.json")).unwrap();
    refused(machine.run(&["publish", &other, "-o", "public"]), 1, "PB-3403");
    std::fs::write(public.join("index.json"), "{").unwrap();
    refused(machine.run(&["publish", &other, "-o", "public"]), 1, "PB-3404");
    std::fs::write(public.join("index.json"), &index).unwrap();

    let mut bytes = std::fs::read(&other).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = machine.write("damaged.pbk", &bytes);
    refused(machine.run(&["publish", &damaged, "-o", "public"]), 1, "PB-3402");
    let named = machine.write("a name.pbk", &bytes);
    refused(machine.run(&["publish", &named, "-o", "public"]), 2, "PB-3401");
    let text = machine.write("text.whl", "text");
    refused(machine.run(&["publish", &text, "-o", "public"]), 1, "PB-3410");
    refused(machine.run(&["publish", "nothing.pbk", "-o", "public"]), 3, "PB-3408");
    let file = machine.write("file", "");
    refused(machine.run(&["publish", &other, "-o", &file]), 3, "PB-1117");
    let bytes = |tree: BTreeMap<PathBuf, (Digest, _)>| tree.into_iter().map(|(p, (b, _))| (p, b)).collect::<Vec<_>>();
    assert_eq!(bytes(tree(&public)), bytes(before));
}
