//! Where kernels come from: edits, the store, JIT off, damaged entries, a workspace that cannot be written.

mod common;

use common::{World, norm};
use parbake::decision::Origin;
use parbake::trial::Outcome;
use parbake::{Error, Library, Place};
use std::path::{Path, PathBuf};

fn run(library: &Library) -> Result<Outcome, Error> {
    norm(library, "rmsnorm", "f32", 3, 64).run(library, library.op("rmsnorm")?, Place::Host)
}

fn right(library: &Library) -> Outcome {
    let outcome = run(library).unwrap();
    assert!(outcome.ok, "{outcome:#?}");
    outcome
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn artifact(world: &World) -> PathBuf {
    let found = files(&world.config.workspace.join("store"));
    found.into_iter().find(|f| f.ends_with("kernel.so")).expect("an artifact in the store")
}

#[test]
fn an_edit_recompiles_a_revert_hits_and_a_touch_changes_nothing() {
    let world = World::with_own_kernels();
    let header = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
    let before = std::fs::read_to_string(&header).unwrap();
    let first = right(&world.library());
    assert_eq!(first.from, Origin::Jit);
    assert_eq!(right(&world.library()).from, Origin::Store);

    let modified = std::fs::metadata(&header).unwrap().modified().unwrap();
    std::fs::write(&header, format!("{before}// edited\n")).unwrap();
    // Contents count, not times.
    std::fs::File::options().write(true).open(&header).unwrap().set_modified(modified).unwrap();
    let edited = right(&world.library());
    assert_eq!((edited.from, &edited.uri), (Origin::Jit, &first.uri));

    std::fs::write(&header, &before).unwrap();
    assert_eq!(right(&world.library()).from, Origin::Store);
    let later = modified + std::time::Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&header).unwrap().set_modified(later).unwrap();
    assert_eq!(right(&world.library()).from, Origin::Store);
}

#[test]
fn a_kernel_is_loaded_once() {
    let world = World::new();
    let library = world.library();
    assert_eq!(right(&library).from, Origin::Jit);
    assert_eq!(right(&library).from, Origin::Registry);
}

#[test]
fn without_jit_a_gap_is_an_error_and_nothing_is_written() {
    let mut world = World::new();
    world.config.jit = false;
    let error = run(&world.library()).unwrap_err();
    assert!(matches!(&error, Error::NotCovered(_)), "{error:?}");
    let text = error.report().to_string();
    for part in [
        "`rmsnorm`",
        "dtype=f32",
        "host",
        "searched bundles",
        "searched store",
        "PARBAKE_JIT",
        "parbake build --arch host --op norm/rmsnorm",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!world.config.workspace.exists());
}

#[test]
fn without_jit_a_warm_store_serves() {
    let mut world = World::new();
    assert_eq!(right(&world.library()).from, Origin::Jit);
    world.config.jit = false;
    assert_eq!(right(&world.library()).from, Origin::Store);
}

#[test]
fn what_is_prepared_after_a_miss_is_found_by_the_same_process() {
    let mut world = World::new();
    world.config.jit = false;
    let offline = world.library();
    for _ in 0..2 {
        assert!(matches!(run(&offline), Err(Error::NotCovered(_))));
    }
    world.config.jit = true;
    right(&world.library());
    assert_eq!(right(&offline).from, Origin::Store);
    assert_eq!(right(&offline).from, Origin::Registry);
}

#[test]
fn a_damaged_entry_is_never_run() {
    let mut world = World::new();
    right(&world.library());
    let path = artifact(&world);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    world.config.jit = false;
    let text = run(&world.library()).unwrap_err().report().to_string();
    assert!(text.contains("damaged"), "{text}");
    world.config.jit = true;
    assert_eq!(right(&world.library()).from, Origin::Jit);
    assert_eq!(right(&world.library()).from, Origin::Store);

    std::fs::write(artifact(&world), &bytes[..middle]).unwrap();
    assert_eq!(right(&world.library()).from, Origin::Jit);
}

#[test]
fn a_workspace_that_cannot_be_written_keeps_kernels_in_memory() {
    let world = World::new();
    // A file where the folder should be refuses root too.
    std::fs::write(&world.config.workspace, "").unwrap();
    assert_eq!(right(&world.library()).from, Origin::Jit);
    assert_eq!(std::fs::read(&world.config.workspace).unwrap(), b"");
}

#[test]
fn without_the_cache_nothing_is_kept() {
    let mut world = World::new();
    world.config.cache = false;
    assert_eq!(right(&world.library()).from, Origin::Jit);
    assert_eq!(right(&world.library()).from, Origin::Jit);
    assert!(files(&world.config.workspace.join("store")).is_empty());
}

#[test]
fn many_threads_on_one_missing_spec_compile_once() {
    let world = World::new();
    let library = world.library();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16).map(|_| scope.spawn(|| right(&library).from)).collect();
        let jits = runs.into_iter().map(|r| r.join().unwrap()).filter(|from| *from == Origin::Jit).count();
        // All who waited for the one that compiled see its kernel.
        assert!(jits >= 1);
    });
    assert_eq!((library.stats().jit, library.stats().store, library.stats().failed), (1, 0, 0));
    assert_eq!(files(&world.config.workspace.join("store")).iter().filter(|f| f.ends_with("kernel.so")).count(), 1);
}

#[test]
fn an_entry_of_another_source_or_version_is_not_run() {
    let mut world = World::new();
    right(&world.library());
    let entry = artifact(&world).parent().unwrap().to_owned();
    world.config.jit = false;

    // Under another source's key, as a careless copy would leave it.
    let other = entry.ancestors().nth(2).unwrap().with_file_name("0".repeat(64)).join("host");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::rename(&entry, other.join(entry.file_name().unwrap())).unwrap();
    assert!(matches!(run(&world.library()), Err(Error::NotCovered(_))));
    std::fs::rename(other.join(entry.file_name().unwrap()), &entry).unwrap();
    assert_eq!(right(&world.library()).from, Origin::Store);

    let meta = entry.join("meta.json");
    let text = std::fs::read_to_string(&meta).unwrap();
    let version = format!("\"library\": \"{}\"", parbake::model::VERSION);
    for (old, new, says) in [
        (version.as_str(), "\"library\": \"7.0.0\"", "of another version"),
        ("\"profile\": \"release\"", "\"profile\": \"debug\"", "damaged"),
    ] {
        assert!(text.contains(old), "{text}");
        std::fs::write(&meta, text.replace(old, new)).unwrap();
        let report = run(&world.library()).unwrap_err().report().to_string();
        assert!(report.contains(says) && !report.contains("no entry"), "{report}");
    }
    // Nothing was moved: without JIT the disk is only read.
    assert!(meta.exists());
}

#[test]
fn every_miss_carries_its_reason_and_is_counted() {
    use parbake::decision::Miss;
    let world = World::with_own_kernels();
    let library = world.library();
    right(&library);
    let misses = library.stats().misses;
    assert_eq!(misses, [(Miss::NotCovered, 2)].into(), "no bundle, no entry");
    let header = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    let library = world.library();
    right(&library);
    assert_eq!(library.stats().misses, [(Miss::NotCovered, 1), (Miss::SourceChanged, 1)].into());
    right(&library);
    assert_eq!(library.stats().misses.len(), 2, "a registry hit looks nowhere");
}

#[test]
fn no_profile_replaces_another_and_lineinfo_serves_a_normal_call() {
    let mut world = World::new();
    let with = |world: &mut World, profile, jit| {
        (world.config.profile, world.config.jit) = (profile, jit);
        run(&world.library())
    };
    use parbake::model::identity::Profile::{Debug, Lineinfo, Release};
    let entries = |world: &World| {
        files(&world.config.workspace.join("store")).iter().filter(|f| f.ends_with("kernel.so")).count()
    };
    assert_eq!(with(&mut world, Debug, true).unwrap().from, Origin::Jit);
    assert!(
        matches!(with(&mut world, Release, false), Err(Error::NotCovered(_))),
        "a debug build is not served unasked"
    );
    assert!(matches!(with(&mut world, Lineinfo, false), Err(Error::NotCovered(_))));
    assert_eq!(with(&mut world, Lineinfo, true).unwrap().from, Origin::Jit);
    assert_eq!(with(&mut world, Release, false).unwrap().from, Origin::Store);
    assert_eq!(with(&mut world, Release, true).unwrap().from, Origin::Jit, "the exact build is asked for");
    assert_eq!(entries(&world), 3);
    for profile in [Debug, Lineinfo, Release] {
        assert_eq!(with(&mut world, profile, true).unwrap().from, Origin::Store);
    }
    assert_eq!(entries(&world), 3);
}

#[test]
fn an_entry_that_lost_its_metadata_heals() {
    let world = World::new();
    right(&world.library());
    std::fs::remove_file(artifact(&world).with_file_name("meta.json")).unwrap();
    assert_eq!(right(&world.library()).from, Origin::Jit);
    assert_eq!(right(&world.library()).from, Origin::Store);
}

#[test]
fn explaining_writes_nothing() {
    let world = World::new();
    right(&world.library());
    std::fs::write(artifact(&world), "damaged").unwrap();
    let before = files(&world.config.workspace);
    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    let trial = norm(&library, "rmsnorm", "f32", 3, 64);
    let values: Vec<_> =
        trial.axes.into_iter().chain([("block".into(), "128".into()), ("rows".into(), "32".into())]).collect();
    let spec = library.spec(op, &values, parbake::model::Target::Host).unwrap();
    let decision = library.explain(op, &spec, parbake::Goal::Host).unwrap();
    assert!(decision.to_string().contains("damaged"), "{decision}");
    assert_eq!(files(&world.config.workspace), before);
}
