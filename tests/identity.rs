//! What makes a kernel another one, and what does not: contents of sources, toolchains, options, versions; not times,
//! places and the order of anything.

#![allow(clippy::print_stdout, reason = "skips are printed")]

mod common;

use common::{World, norm};
use parbake::decision::Origin;
use parbake::model::identity::{Profile, Spec, build_key};
use parbake::model::op::{Op, Options};
use parbake::model::source::{KernelTree, OpSources};
use parbake::model::{Digest, KeyFields, LAUNCH_ABI, Target, VERSION, space};
use parbake::{Library, Place};
use parbake_codegen::toolchain::{Toolchain, find};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Where a run of `rmsnorm` took its kernel from, and whether the result was right.
fn from(world: &World) -> Origin {
    let library = world.library();
    let outcome = norm(&library, "rmsnorm", "f32", 3, 64).run(&library, library.op("rmsnorm").unwrap(), Place::Host);
    let outcome = outcome.unwrap();
    assert!(outcome.ok, "{outcome:#?}");
    outcome.from
}

fn set_time(file: &Path, time: SystemTime) {
    std::fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

#[test]
fn contents_count_and_neither_times_nor_places_do() {
    let mut world = World::with_own_kernels();
    // unit → rmsnorm.cuh → level1 → level2 → level3, which is a link.
    let file = |name: &str| world.kernel_file(name);
    let kernel = file("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&kernel).unwrap();
    std::fs::write(&kernel, text.replacen("#include", "#include \"norm/level1.cuh\"\n#include", 1)).unwrap();
    std::fs::write(file("norm/level1.cuh"), "#pragma once\n#if 1\n  #  include \"norm/level2.cuh\"\n#endif\n").unwrap();
    std::fs::write(file("norm/level2.cuh"), "#pragma once\n#include \"norm/level3.cuh\"\n").unwrap();
    let (one, other) = (file("one.txt"), file("other.txt"));
    std::fs::write(&one, "#pragma once\n// 1\n").unwrap();
    std::fs::write(&other, "#pragma once\n// 2\n").unwrap();
    let link = file("norm/level3.cuh");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    assert_eq!(from(&world), Origin::Jit);
    assert_eq!(from(&world), Origin::Store);

    // The contents of the deepest header change, its time and size do not.
    let time = std::fs::metadata(&one).unwrap().modified().unwrap();
    std::fs::write(&one, "#pragma once\n// 3\n").unwrap();
    set_time(&one, time);
    assert_eq!(from(&world), Origin::Jit);

    // Times change, contents do not.
    for (file, time) in
        [(&one, SystemTime::UNIX_EPOCH + Duration::from_secs(1)), (&kernel, time + Duration::from_secs(1 << 25))]
    {
        set_time(file, time);
    }
    assert_eq!(from(&world), Origin::Store);

    // The link points elsewhere, and back.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    assert_eq!(from(&world), Origin::Jit);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&one, &link).unwrap();
    assert_eq!(from(&world), Origin::Store);

    // The project moves; the workspace stays.
    let moved = world.folder.path().join("another place/kernels");
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(file(""), &moved).unwrap();
    std::fs::remove_file(moved.join("norm/level3.cuh")).unwrap();
    std::os::unix::fs::symlink("../one.txt", moved.join("norm/level3.cuh")).unwrap();
    world.config.kernels = Some(moved);
    assert_eq!(from(&world), Origin::Store);
}

#[test]
fn a_header_that_no_scanner_could_find_is_an_error_and_no_stale_hit() {
    let world = World::with_own_kernels();
    let kernel = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&kernel).unwrap();
    std::fs::write(&kernel, "#define HEADER \"norm/norm.cuh\"\n#include HEADER\n".to_owned() + &text).unwrap();
    let library = world.library();
    let report = library.sources_digest(library.op("rmsnorm").unwrap()).unwrap_err().report().to_string();
    for part in ["norm/rmsnorm/rmsnorm.cuh:2", "#include HEADER", "literal"] {
        assert!(report.contains(part), "no {part:?} in {report}");
    }
}

#[test]
fn two_ops_of_one_name_are_an_error() {
    let world = World::with_own_kernels();
    let (from, to) = (world.kernel_file("norm/rmsnorm"), world.kernel_file("other/rmsnorm"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        std::fs::write(to.join(entry.file_name()), text.replace("family = \"norm\"", "family = \"other\"")).unwrap();
    }
    let report = Library::open(world.config.clone()).err().unwrap().report().to_string();
    assert!(report.contains("PB-1103") && report.contains("`norm`") && report.contains("`other`"), "{report}");
}

#[test]
fn each_toolchain_builds_an_entry_of_its_own_and_finds_it_again() {
    let world = World::new();
    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    let target: Target = "sm_90a".parse().unwrap();
    let spec = library.spec(op, &[("dtype".to_owned(), "f32".to_owned())], target).unwrap();
    let found = ["12.9", "13.0", "13.5"].map(|toolkit| common::toolchain(&library, "sm_90a", toolkit));
    let found: Vec<_> = found.into_iter().flatten().collect();
    let mut keys = BTreeSet::new();
    for round in [Origin::Jit, Origin::Store] {
        for toolchain in &found {
            let (artifact, origin) =
                library.obtain(op, &spec, target, &**toolchain, parbake::model::identity::Profile::Release).unwrap();
            assert_eq!((origin, artifact.metadata.toolchain.as_str()), (round, toolchain.id()));
            keys.insert(artifact.metadata.build_key);
        }
    }
    assert_eq!(keys.len(), found.len());
}

#[test]
fn no_two_toolchains_share_an_id_or_a_key() {
    let world = World::new();
    let library = world.library();
    let mut found: Vec<std::sync::Arc<dyn Toolchain>> = vec![library.toolchain(Target::Host, None).unwrap()];
    found.extend(["12.9", "13.0", "13.5"].iter().filter_map(|t| common::toolchain(&library, "sm_90a", t)));
    let search = find::Search {
        explicit: None,
        toolchains: world.config.toolchains.clone(),
        want: "13.0".parse().ok(),
        driver: None,
        target: "sm_90a".parse().unwrap(),
    };
    match find::find_nvcc(&search) {
        Ok(nvcc) => found.push(nvcc),
        Err(_) => println!("skipped: needs nvcc-13.0 (parbake toolchain install 13.0 --with-nvcc)"),
    }
    let ids: BTreeSet<&str> = found.iter().map(|t| t.id()).collect();
    assert_eq!(ids.len(), found.len(), "{ids:?}");
    // The same target, and even the same spelling of the options: the id alone tells them apart.
    let key = |id: &str| build_key(Digest::default(), "sm_90a".parse().unwrap(), id, &[], Profile::Release).digest;
    assert_eq!(ids.iter().map(|id| key(id)).collect::<BTreeSet<_>>().len(), ids.len());
    for toolchain in &found {
        let target = if toolchain.toolkit().is_some() { "sm_90a".parse().unwrap() } else { Target::Host };
        let plain = toolchain.spell(target, &Options::default(), Profile::Release);
        for profile in [Profile::Lineinfo, Profile::Debug] {
            assert_ne!(toolchain.spell(target, &Options::default(), profile), plain, "{} {profile}", toolchain.id());
        }
    }
}

/// What a build key is made of, as text.
type Parts = (Digest, Target, String, Vec<String>, Profile);

fn build((source, target, toolchain, options, profile): &Parts) -> Digest {
    build_key(*source, *target, toolchain, options, *profile).digest
}

fn parts() -> impl Strategy<Value = Parts> {
    let target = prop::sample::select(vec!["host", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "compute_90"]);
    let profile = prop::sample::select(vec![Profile::Release, Profile::Lineinfo, Profile::Debug]);
    // Few letters, so that joins of different lists look alike.
    let option = "[-AB ,=/]{0,4}";
    (0u8..3, target, "[ab 1]{0,3}", prop::collection::vec(option, 0..4), profile).prop_map(
        |(source, target, id, options, profile)| (Digest::of(&[source]), target.parse().unwrap(), id, options, profile),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn builds_that_differ_in_anything_have_different_keys(a in parts(), b in parts()) {
        prop_assert_eq!(a == b, build(&a) == build(&b));
    }

    #[test]
    fn lists_of_fields_that_differ_in_anything_have_different_digests(
        a in prop::collection::vec(("[ab]{0,2}", "[ab]{0,2}"), 0..4),
        b in prop::collection::vec(("[ab]{0,2}", "[ab]{0,2}"), 0..4),
    ) {
        let key = |fields: &[(String, String)]| {
            fields.iter().fold(KeyFields::new("t"), |key, (name, value)| key.with(name, value)).finish().digest
        };
        prop_assert_eq!(a == b, key(&a) == key(&b));
    }

    #[test]
    fn one_field_that_differs_is_enough(a in parts(), which in 0usize..5, with in parts()) {
        let mut b = a.clone();
        match which {
            0 => b.0 = with.0,
            1 => b.1 = with.1,
            2 => b.2 = with.2,
            3 => b.3 = with.3,
            _ => b.4 = with.4,
        }
        prop_assert_eq!(a == b, build(&a) == build(&b));
    }
}

#[test]
fn what_looks_alike_when_joined_is_told_apart() {
    let options = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        build_key(Digest::default(), Target::Host, "t", &list, Profile::Release).digest
    };
    let fields = |list: &[(&str, &str)]| {
        list.iter().fold(KeyFields::new("t"), |key, (name, value)| key.with(*name, value)).finish().digest
    };
    let pairs = [
        (options(&["-DA", "B"]), options(&["-DA B"])),
        (options(&["-DA", "-DB"]), options(&["-DB", "-DA"])),
        (options(&["-DA"]), options(&["-D", "A"])),
        (options(&[]), options(&[""])),
        (options(&[""]), options(&["", ""])),
        (options(&["-DA=1"]), options(&["-DA=1 "])),
        (options(&["--std=c++17"]), options(&["-std=c++17"])),
        // One letter, and a letter with an accent that is set over it.
        (options(&["\u{e9}"]), options(&["e\u{301}"])),
        (fields(&[("a", "b/c")]), fields(&[("a/b", "c")])),
        (fields(&[("op", "a"), ("op", "b")]), fields(&[("op", "ab")])),
        (fields(&[("a", "")]), fields(&[])),
        (fields(&[("a", ""), ("b", "")]), fields(&[("a", "b")])),
        (fields(&[("a", "b\0c")]), fields(&[("a", "b"), ("c", "")])),
    ];
    for (at, (a, b)) in pairs.iter().enumerate() {
        assert_ne!(a, b, "pair {at}");
    }
}

#[test]
fn library_version_and_launch_abi_are_in_the_keys() {
    let key = build_key(Digest::default(), Target::Host, "t", &[], Profile::Release);
    assert!(key.fields.contains(&("library".to_owned(), VERSION.to_owned())), "{key}");
    let again = |version: &str| {
        let change = |(name, value): &(String, String)| {
            (name.clone(), if name == "library" { version.to_owned() } else { value.clone() })
        };
        let fields: Vec<_> = key.fields.iter().map(change).collect();
        fields.into_iter().fold(KeyFields::new(key.domain), |key, (name, value)| key.with(name, value)).finish().digest
    };
    assert_eq!(again(VERSION), key.digest);
    assert_ne!(again("9.9.9"), key.digest);

    let world = World::new();
    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    let spec = library.spec(op, &[("dtype".to_owned(), "f32".to_owned())], Target::Host).unwrap();
    let key = spec.source_key(library.definition(op), Digest::default());
    assert!(key.fields.contains(&("launch_abi".to_owned(), LAUNCH_ABI.to_string())), "{key}");
}

#[test]
fn every_spec_of_every_op_has_names_of_its_own() {
    let library = World::new().library();
    let mut ids = BTreeMap::new();
    let mut entries = BTreeSet::new();
    for (_, op) in library.ops() {
        for (spec, _) in space::specs(op) {
            assert!(entries.insert(spec.entry()), "{spec}");
            let keys = (spec.spec_id, spec.source_key(op, Digest::default()).digest);
            if let Some(other) = ids.insert(keys.0, spec.to_string()) {
                panic!("{other} and {spec} have one id");
            }
            assert_ne!(keys.0, keys.1);
        }
    }
    assert!(ids.len() > 100, "{}", ids.len());
}

/// A source key, after a change to the op.
fn source_key(op: &Op, sources: Digest) -> (Digest, Digest) {
    let (spec, _): (Spec, _) = space::specs(op).next().unwrap();
    (spec.spec_id, spec.source_key(op, sources).digest)
}

#[test]
fn options_enter_the_spec_and_the_cpp_spelling_of_a_value_enters_its_sources() {
    let library = World::new().library();
    let op = library.definition(library.op("rmsnorm").unwrap()).clone();
    let plain = source_key(&op, Digest::default());
    let changed = |change: &dyn Fn(&mut Op)| {
        let mut op = op.clone();
        change(&mut op);
        source_key(&op, Digest::default())
    };
    let fast = changed(&|op| op.options.fast_math = !op.options.fast_math);
    let registers = changed(&|op| op.options.max_registers = Some(0));
    let spelled = changed(&|op| op.axes[0].values[0].cpp = "double".to_owned());
    let all: BTreeSet<Digest> = [plain, fast, registers, spelled].iter().map(|k| k.1).collect();
    assert_eq!(all.len(), 4);
    assert!(plain.0 != fast.0 && plain.0 != registers.0 && fast.0 != registers.0);
    assert_eq!(plain.0, spelled.0, "the id survives an edit");
    assert_ne!(plain.1, source_key(&op, Digest::of(b"others")).1);
    // What only people read changes nothing.
    let summary = changed(&|op| {
        op.summary = "other words".to_owned();
        op.excludes.clear();
    });
    assert_eq!(plain, summary);
}

#[test]
fn a_text_counts_together_with_the_name_under_which_it_is_included() {
    let library = World::new().library();
    let op = library.definition(library.op("rmsnorm").unwrap()).clone();
    let digest = |template: &str, headers: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in headers.iter().chain([&(op.template().as_str(), template)]) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        OpSources::read(&KernelTree::folder(folder.path().to_owned()), &op).unwrap().digest
    };
    let both = "#include \"a.cuh\"\n#include \"b.cuh\"\n";
    let plain = digest(both, &[("a.cuh", "1"), ("b.cuh", "2")]);
    assert_eq!(plain, digest(both, &[("b.cuh", "2"), ("a.cuh", "1"), ("unused.cuh", "3")]));
    assert_eq!(plain, digest(both, &[("include/a.cuh", "1"), ("b.cuh", "2")]), "names are those of the includes");
    let others = [
        digest(both, &[("a.cuh", "2"), ("b.cuh", "1")]),
        digest(both, &[("a.cuh", "12"), ("b.cuh", "")]),
        digest(both, &[("a.cuh", "1\n"), ("b.cuh", "2")]),
        digest("#include \"b.cuh\"\n#include \"a.cuh\"\n", &[("a.cuh", "1"), ("b.cuh", "2")]),
        digest(both, &[("a.cuh", "\u{e9}"), ("b.cuh", "2")]),
        digest(both, &[("a.cuh", "e\u{301}"), ("b.cuh", "2")]),
    ];
    assert_eq!(others.into_iter().chain([plain]).collect::<BTreeSet<_>>().len(), 7);
}
