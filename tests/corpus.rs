//! What is fuzzed elsewhere for hours runs here for seconds: every entry function over its committed corpus, over inputs
//! that proptest changes, and over bundles whose checksums were forged.

#[path = "fuzz/entries.rs"]
#[allow(unreachable_pub, reason = "in the workspace of the fuzz targets this is a library's module")]
mod entries;
#[path = "fuzz/forge.rs"]
#[allow(unreachable_pub, reason = "in the workspace of the fuzz targets this is a library's module")]
mod forge;

use entries::{ENTRIES, Entry};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name)
}

/// The inputs of a target, by file name.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder(name)).unwrap_or_else(|e| panic!("{name}: {e}")).map(Result::unwrap);
    let mut inputs: Vec<_> =
        files.map(|f| (f.file_name().into_string().unwrap(), std::fs::read(f.path()).unwrap())).collect();
    inputs.sort();
    inputs
}

/// Where to change what: a place, as a part of the length, and the bytes that replace as many.
type Changes = Vec<(prop::sample::Index, Vec<u8>)>;

fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..5)), 1..6)
}

fn change(bytes: &mut Vec<u8>, changes: &Changes) {
    for (at, new) in changes {
        let at = at.index(bytes.len() + 1);
        let end = (at + new.len()).min(bytes.len());
        // A last byte that is even replaces, an odd one inserts; one that is 3 cuts.
        match new.last() {
            Some(3) => drop(bytes.drain(at..)),
            Some(last) if last % 2 == 0 => drop(bytes.splice(at..end, new.iter().copied())),
            _ => drop(bytes.splice(at..at, new.iter().copied())),
        }
    }
}

fn check(cases: u32, entry: Entry, inputs: &[(String, Vec<u8>)], forged: bool) {
    // The same changes each time: what they find belongs to the change that is tested, and what they never tried is for
    // the hours of fuzzing. PARBAKE_TEST_FULL tries others each time.
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = match std::env::var_os("PARBAKE_TEST_FULL") {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let strategy = (any::<prop::sample::Index>(), any::<u32>(), changes());
    let tried = runner.run(&strategy, |(which, seed, changes)| {
        let mut bytes = which.get(inputs).1.clone();
        match forged.then(|| forge::forge(&bytes, seed, |part| change(part, &changes))) {
            Some(Some(forgery)) => bytes = forgery,
            _ => change(&mut bytes, &changes),
        }
        entry.1(&bytes);
        Ok(())
    });
    tried.unwrap_or_else(|e| panic!("{}: {e}", entry.0));
}

#[test]
fn the_corpus_is_small_and_of_known_targets() {
    let names: Vec<String> =
        std::fs::read_dir(folder("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let unknown: Vec<_> = names.iter().filter(|n| ENTRIES.iter().all(|(known, _)| known != n)).collect();
    assert!(unknown.is_empty() && names.len() == ENTRIES.len(), "{names:?}");
    let bytes: usize = ENTRIES.iter().flat_map(|(name, _)| corpus(name)).map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    let manifest = std::fs::read_to_string(folder("../Cargo.toml")).unwrap();
    for (name, _) in ENTRIES {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no target");
        let target = std::fs::read_to_string(folder(&format!("../targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("entries::{name}(data)")), "{name}");
    }
}

#[test]
fn every_input_of_the_corpus_passes() {
    for (name, entry) in ENTRIES {
        for (file, input) in corpus(name) {
            let passed = std::panic::catch_unwind(|| entry(&input));
            assert!(passed.is_ok(), "tests/fuzz/corpus/{name}/{file}");
        }
    }
}

#[test]
fn altered_inputs_pass() {
    for entry in ENTRIES {
        check(512, *entry, &corpus(entry.0), false);
    }
}

#[test]
fn forged_bundles_pass() {
    let bundle = *ENTRIES.iter().find(|(name, _)| *name == "bundle").unwrap();
    check(2048, bundle, &corpus("bundle"), true);
}

#[test]
fn a_forgery_gets_behind_the_checksums() {
    // Otherwise the test above, and the hours of fuzzing, try nothing but checksums.
    let inputs = corpus("bundle");
    let (_, bytes) = inputs.iter().find(|(name, _)| name == "seed-mixed").unwrap();
    let mut codes = std::collections::BTreeSet::new();
    for seed in 0..4096 {
        let flip = |part: &mut Vec<u8>| {
            let at = seed as usize * 37 % part.len();
            part[at] ^= 1;
        };
        let Some(forged) = forge::forge(bytes, seed, flip) else { continue };
        match parbake_model::bundle::Bundle::open(forged) {
            Ok(bundle) => codes.extend(bundle.verify().err().into_iter().flatten().map(|e| e.code())),
            Err(error) => drop(codes.insert(error.code())),
        }
    }
    for code in ["PB-1308", "PB-1311", "PB-1312", "PB-1313"] {
        assert!(codes.contains(code), "{code} is never reached: {codes:?}");
    }
}
