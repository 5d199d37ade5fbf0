//! The store under its management: entries come, are read and go at once.

mod common;

use common::World;
use parbake::cache::{Cache, Limits, Reason, Standing};
use parbake::model::identity::{Profile, Spec, build_key};
use parbake::model::metadata::{self, Metadata};
use parbake::model::{Digest, LAUNCH_ABI, Target, VERSION, space};
use parbake::store::{Artifact, Store, StoreError};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What a compiler would have made of a spec: metadata and bytes, made up.
fn made(spec: &Spec, source_key: Digest, bytes: &[u8]) -> Metadata {
    let (target, options) = (Target::Host, vec!["-O3".to_owned()]);
    Metadata {
        schema: metadata::SCHEMA,
        op: spec.op.clone(),
        uri: spec.uri.clone(),
        entry: spec.entry(),
        target,
        source_key,
        build_key: build_key(source_key, target, "host test", &options, Profile::Release).digest,
        launch_abi: LAUNCH_ABI,
        library: VERSION.to_owned(),
        toolchain: "host test".to_owned(),
        toolkit: None,
        options,
        profile: Profile::Release,
        image: Digest::of(bytes),
        size: bytes.len() as u64,
        file: Metadata::file_for(target).to_owned(),
        resources: None,
        compile_ms: 1,
        log: String::new(),
        spec: spec.clone(),
    }
}

/// A world whose store has so many entries of current sources.
struct Filled {
    world: World,
    store: Store,
    wanted: Vec<(Metadata, Vec<u8>)>,
}

impl Filled {
    fn new(count: usize) -> Self {
        let world = World::new();
        let library = world.library();
        let mut wanted = Vec::new();
        for (id, op) in library.ops() {
            let sources = library.sources_digest(id).unwrap();
            for (spec, _) in space::specs(op) {
                let bytes = format!("{spec} ").repeat(100).into_bytes();
                wanted.push((made(&spec, spec.source_key(op, sources).digest, &bytes), bytes));
            }
        }
        assert!(wanted.len() >= count, "{} specs", wanted.len());
        wanted.truncate(count);
        let filled = Self { store: Store::new(library.workspace().clone()), world, wanted };
        for n in 0..count {
            filled.publish(n, HOUR);
        }
        filled
    }

    /// Publishes an entry as if that had been a while ago.
    fn publish(&self, n: usize, ago: Duration) -> Artifact {
        let (metadata, bytes) = &self.wanted[n];
        let artifact = self.store.publish(metadata, bytes, "{}").unwrap();
        // Somebody may have removed it already.
        let _ = File::open(artifact.path.as_ref().unwrap()).and_then(|f| f.set_modified(SystemTime::now() - ago));
        artifact
    }

    fn get(&self, n: usize) -> Result<Option<Artifact>, StoreError> {
        let m = &self.wanted[n].0;
        self.store.get(m.source_key, m.target, m.build_key)
    }

    fn folder(&self, n: usize) -> std::path::PathBuf {
        self.get(n).unwrap().unwrap().path.unwrap()
    }

    fn cache(&self) -> Cache {
        Cache::of(&self.world.library())
    }
}

fn used(folder: &Path) -> SystemTime {
    std::fs::metadata(folder).unwrap().modified().unwrap()
}

fn age(folder: &Path, ago: Duration) {
    File::open(folder).unwrap().set_modified(SystemTime::now() - ago).unwrap();
}

#[test]
fn readers_never_fail_while_entries_are_removed() {
    let filled = Filled::new(50);
    let cache = filled.cache();
    let one = cache.list().entries[0].bytes;
    let limits = Limits { size: Some(10 * one), ..Limits::default() };
    let (hits, misses, removed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    let count = |counter: &AtomicUsize, n| counter.fetch_add(n, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (filled, hits, misses) = (&filled, &hits, &misses);
                scope.spawn(move || {
                    for round in 0..400 {
                        let n = (round * (reader + 3) + reader) % filled.wanted.len();
                        // An entry is whole or not there; one that is not is made again.
                        match filled.get(n).unwrap_or_else(|e| panic!("reader {reader}, round {round}: {e}")) {
                            Some(found) => {
                                assert_eq!(found.bytes, filled.wanted[n].1);
                                count(hits, 1);
                            }
                            None => {
                                assert_eq!(filled.publish(n, HOUR).bytes, filled.wanted[n].1);
                                count(misses, 1);
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let pruned = cache.prune(&limits);
                assert!(pruned.failed.is_empty(), "{:?}", pruned.failed);
                count(&removed, pruned.removed.len());
            }
        });
        let ended: Vec<_> = readers.into_iter().map(|r| r.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    for counter in [&hits, &misses, &removed] {
        assert!(counter.load(Ordering::Relaxed) > 0, "{hits:?} {misses:?} {removed:?}");
    }
    let pruned = cache.prune(&limits);
    assert!(pruned.kept.bytes <= 10 * one, "{pruned:?}");
    let listing = cache.list();
    assert!(listing.unread.is_empty() && listing.entries.iter().all(|e| cache.verify(e).is_ok()));
    // Nothing is left of what was being removed.
    let staging = filled.world.config.workspace.join("store/stage");
    let left: Vec<_> = std::fs::read_dir(staging).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "collected"), "{left:?}");
}

#[test]
fn an_entry_goes_as_a_whole() {
    let filled = Filled::new(1);
    let cache = filled.cache();
    for round in 0..3 {
        // So many files that deleting them where they lie would show.
        let folder = filled.publish(0, HOUR).path.unwrap();
        for n in 0..4000 {
            File::create(folder.join(format!("more-{n}"))).unwrap();
        }
        age(&folder, HOUR);
        let gone = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match filled.get(0) {
                        Ok(Some(found)) => assert_eq!(found.bytes, filled.wanted[0].1),
                        Ok(None) => return Ok(()),
                        Err(error) => return Err(error.to_string()),
                    }
                }
            });
            let pruned = cache.prune(&Limits { age: Some(Duration::ZERO), ..Limits::default() });
            assert_eq!((pruned.removed.len(), pruned.failed.len()), (1, 0), "{pruned:?}");
            reader.join().unwrap()
        });
        assert_eq!(gone, Ok(()), "round {round}");
    }
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let filled = Filled::new(4);
    let folders: Vec<_> = (0..4).map(|n| filled.folder(n)).collect();
    for (folder, days) in folders.iter().zip([3, 1, 4, 2]) {
        age(folder, days * DAY);
    }
    let cache = filled.cache();
    let one = cache.list().entries.iter().map(|e| e.bytes).max().unwrap();
    let limits = Limits { size: Some(2 * one), ..Limits::default() };
    let plan = cache.plan(&limits);
    assert!(folders.iter().all(|f| f.exists()), "a plan only reads");
    let pruned = cache.prune(&limits);
    for report in [&plan, &pruned] {
        let gone: Vec<_> = report.removed.iter().map(|r| r.entry.folder.clone()).collect();
        assert_eq!(gone, [folders[2].clone(), folders[0].clone()]);
        assert!(report.removed.iter().all(|r| r.why == Reason::Size));
        assert_eq!((report.kept.count, report.too_new), (2, 0));
    }
    assert!(!folders[2].exists() && !folders[0].exists() && folders[1].exists() && folders[3].exists());

    let limits = Limits { age: Some(36 * HOUR), ..Limits::default() };
    let pruned = cache.prune(&limits);
    assert_eq!(pruned.removed.iter().map(|r| &r.entry.folder).collect::<Vec<_>>(), [&folders[3]]);
    assert_eq!(pruned.removed[0].why, Reason::Unused);
}

#[test]
fn what_was_just_published_stays_unless_everything_goes() {
    let filled = Filled::new(2);
    let new = filled.folder(1);
    age(&new, Duration::ZERO);
    let cache = filled.cache();
    let limits = Limits { size: Some(1), age: Some(Duration::ZERO), ..Limits::default() };
    let pruned = cache.prune(&limits);
    assert_eq!((pruned.removed.len(), pruned.too_new, pruned.kept.count), (1, 1, 1));
    assert!(new.exists());
    // Left while the clock was wrong: no reason to keep it for ever, nor to call it old.
    File::open(&new).unwrap().set_modified(SystemTime::now() + 365 * DAY).unwrap();
    assert_eq!(cache.plan(&Limits { age: Some(HOUR), ..Limits::default() }).removed.len(), 0);
    assert_eq!(cache.plan(&Limits { size: Some(1), ..Limits::default() }).removed.len(), 1);
    age(&new, Duration::ZERO);
    let cleared = cache.clear();
    assert_eq!((cleared.removed.len(), cleared.failed.len()), (1, 0));
    assert!(cache.list().entries.is_empty());
}

#[test]
fn a_load_moves_the_time_of_an_entry_on_once_a_day_and_touches_no_file() {
    let world = World::new();
    let run = || {
        let library = world.library();
        let trial = common::norm(&library, "rmsnorm", "f32", 3, 64);
        trial.run(&library, library.op("rmsnorm").unwrap(), parbake::Place::Host).unwrap().from
    };
    run();
    let entry = Cache::of(&world.library()).list().entries.remove(0);
    let file = entry.folder.join("kernel.so");
    let (written, bytes) = (used(&file), std::fs::read(&file).unwrap());
    for (ago, moved) in [(HOUR, false), (3 * DAY, true)] {
        age(&entry.folder, ago);
        let before = used(&entry.folder);
        assert_eq!(run(), parbake::decision::Origin::Store);
        assert_eq!(used(&entry.folder) != before, moved, "{ago:?}");
    }
    assert!(SystemTime::now().duration_since(used(&entry.folder)).unwrap() < HOUR);
    // From the future, left while the clock was wrong.
    File::open(&entry.folder).unwrap().set_modified(SystemTime::now() + 365 * DAY).unwrap();
    run();
    assert!(SystemTime::now().duration_since(used(&entry.folder)).is_ok());
    assert_eq!((used(&file), std::fs::read(&file).unwrap()), (written, bytes));
}

#[test]
fn entries_of_other_sources_or_versions_are_stale_and_damaged_ones_are_not() {
    let filled = Filled::new(3);
    // Of sources that the library no longer has.
    let (spec, bytes) = (&filled.wanted[0].0.spec, b"old".as_slice());
    let old = filled.store.publish(&made(spec, Digest::of(b"old sources"), bytes), bytes, "{}").unwrap();
    // Of a library that does not fit ours: whole, and not to be used.
    let mut foreign = made(spec, filled.wanted[0].0.source_key, bytes);
    foreign.library = "7.0.0".to_owned();
    foreign.build_key = foreign.build();
    let place = filled.folder(0).with_file_name(foreign.build_key.to_string());
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("kernel.so"), bytes).unwrap();
    std::fs::write(place.join("meta.json"), foreign.to_json()).unwrap();
    // Of a library that writes other metadata.
    let later = filled.folder(0).with_file_name(Digest::of(b"later").to_string());
    std::fs::create_dir(&later).unwrap();
    std::fs::write(later.join("meta.json"), r#"{"schema": 7, "kernel": 1}"#).unwrap();
    for folder in [old.path.as_ref().unwrap(), &place, &later] {
        age(folder, HOUR);
    }
    // Of ours, and damaged.
    let damaged = filled.folder(1);
    std::fs::write(damaged.join("kernel.so"), "cut").unwrap();
    age(&damaged, HOUR);

    let cache = filled.cache();
    let listing = cache.list();
    let stale = |e: &&parbake::cache::Entry| matches!(e.standing, Standing::Stale(_));
    let folders: Vec<_> = listing.entries.iter().filter(stale).map(|e| &e.folder).collect();
    assert!(
        folders.len() == 3
            && folders.contains(&&later)
            && folders.contains(&&place)
            && folders.contains(&old.path.as_ref().unwrap())
    );
    let wrong: Vec<_> = listing.entries.iter().filter(|e| cache.verify(e).is_err()).map(|e| &e.folder).collect();
    assert_eq!(wrong, [&damaged]);
    let m = &foreign;
    let error = filled.store.get(m.source_key, m.target, m.build_key).unwrap_err();
    assert!(matches!(error, StoreError::OtherVersion { .. }) && error.to_string().contains("7.0.0"), "{error}");

    let error = filled.store.get(m.source_key, m.target, Digest::of(b"later")).unwrap_err();
    assert!(matches!(error, StoreError::OtherVersion { .. }) && error.to_string().contains("schema 7"), "{error}");
    let plan = cache.plan(&Limits { damaged: true, ..Limits::default() });
    assert_eq!(plan.removed.iter().map(|r| &r.entry.folder).collect::<Vec<_>>(), [&damaged]);

    let pruned = cache.prune(&Limits { stale: true, damaged: true, ..Limits::default() });
    assert_eq!((pruned.removed.len(), pruned.kept.count), (4, 2), "{pruned:?}");
    assert!(pruned.removed.iter().any(|r| matches!(&r.why, Reason::Damaged(why) if why.contains("3 bytes"))));
    // Whoever does not know the sources calls nothing stale.
    let blind = Cache::new(filled.world.library().workspace().clone());
    assert!(!blind.knows_sources() && blind.list().entries.iter().all(|e| e.standing == Standing::Unknown));
}

#[test]
fn an_entry_that_cannot_be_read_is_no_damaged_one() {
    let filled = Filled::new(2);
    let folder = filled.folder(0);
    // A folder in the place of a file refuses everybody, the administrator too.
    std::fs::remove_file(folder.join("kernel.so")).unwrap();
    std::fs::create_dir(folder.join("kernel.so")).unwrap();
    age(&folder, HOUR);
    let cache = filled.cache();
    let entry = cache.list().entries.into_iter().find(|e| e.folder == folder).unwrap();
    assert!(matches!(cache.verify(&entry), Err(StoreError::Io { .. })));
    let pruned = cache.prune(&Limits { damaged: true, ..Limits::default() });
    assert_eq!((pruned.removed.len(), pruned.failed.len(), folder.exists()), (0, 1, true), "{pruned:?}");
}

#[test]
fn what_is_not_there_is_not_made() {
    let world = World::new();
    let cache = Cache::of(&world.library());
    assert!(cache.list().entries.is_empty());
    assert_eq!(cache.prune(&Limits { size: Some(1), ..Limits::default() }).removed.len(), 0);
    assert_eq!(cache.clear().removed.len(), 0);
    assert!(!world.config.workspace.exists());
}
