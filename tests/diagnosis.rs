//! Profiles, compilers that tell more, and kept files: each is a build of its own.

mod common;

use common::{World, norm};
use parbake::Place;
use parbake::cache::{Cache, Entry};
use parbake::decision::Origin;
use parbake::model::identity::Profile;
use parbake::model::settings::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

fn run(config: &Config) -> Origin {
    let library = parbake::Library::open(config.clone()).unwrap();
    let op = library.op("rmsnorm").unwrap();
    let outcome = norm(&library, "rmsnorm", "f32", 3, 64).run(&library, op, Place::Host).unwrap();
    assert!(outcome.ok, "{outcome:#?}");
    outcome.from
}

/// Bytes and times of everything in an entry, the folder included.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let time = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut found: BTreeMap<_, _> = files.map(|f| (f.clone(), (std::fs::read(&f).unwrap(), time(&f)))).collect();
    found.insert(folder.to_owned(), (Vec::new(), time(folder)));
    found
}

fn entries(world: &World) -> Vec<Entry> {
    Cache::of(&world.library()).list().entries
}

#[test]
fn a_diagnosis_never_touches_a_release_entry() {
    let world = World::new();
    assert_eq!(run(&world.config), Origin::Jit);
    let release = entries(&world).remove(0);
    let before = contents(&release.folder);

    let mut keys = BTreeSet::from([release.build_key]);
    let change = |change: fn(&mut Config)| {
        let mut config = world.config.clone();
        change(&mut config);
        config
    };
    for config in [
        change(|c| c.profile = Profile::Lineinfo),
        change(|c| c.profile = Profile::Debug),
        change(|c| c.verbose_compiler = true),
        change(|c| c.keep = true),
        change(|c| (c.profile, c.verbose_compiler, c.keep) = (Profile::Debug, true, true)),
    ] {
        let told = (config.profile, config.verbose_compiler, config.keep);
        assert_eq!(run(&config), Origin::Jit, "{told:?}");
        let new: Vec<Entry> = entries(&world).into_iter().filter(|e| !keys.contains(&e.build_key)).collect();
        let [entry] = new.as_slice() else { panic!("{told:?}: {} new entries", new.len()) };
        let metadata = entry.metadata.as_ref().unwrap();
        assert_eq!((entry.source_key, metadata.profile), (release.source_key, config.profile));
        if config.verbose_compiler {
            assert!(metadata.log.contains("COLLECT_GCC") || metadata.log.contains("version"), "{}", metadata.log);
        }
        if config.keep {
            let kept = metadata.log.lines().find_map(|l| l.strip_prefix("kept: ")).expect("says where");
            assert!(kept.starts_with(world.config.workspace.to_str().unwrap()), "{kept}");
            let sources = std::fs::read_dir(kept).unwrap().filter(|e| {
                let name = e.as_ref().unwrap().file_name();
                name.to_string_lossy().ends_with(".s")
            });
            assert!(sources.count() > 0, "{kept}");
        }
        assert_eq!(metadata.log.is_empty(), !config.verbose_compiler && !config.keep, "{}", metadata.log);
        keys.insert(entry.build_key);
        assert_eq!(run(&config), Origin::Store, "{told:?}");
    }
    assert_eq!(keys.len(), 6);
    assert_eq!(run(&world.config), Origin::Store);
    assert_eq!(contents(&release.folder), before);

    // Folders that were kept stay until everything goes.
    let kept = || std::fs::read_dir(world.config.workspace.join("tmp")).unwrap().count();
    let cache = Cache::new(world.library().workspace().clone());
    let _ = cache.prune(&parbake::cache::Limits::default());
    assert_eq!(kept(), 2);
    assert_eq!((cache.clear().removed.len(), kept()), (6, 0));
}

#[test]
fn a_bake_does_not_depend_on_a_diagnosis() {
    let world = World::new();
    let mut config = world.config.clone();
    (config.profile, config.verbose_compiler, config.keep) = (Profile::Debug, true, true);
    let (plain, told) = (world.library(), parbake::Library::open(config).unwrap());
    let host = parbake::model::Target::Host;
    let options = |library: &parbake::Library| {
        let op = library.op("rmsnorm").unwrap();
        library.toolchain(host, None).unwrap().spell(host, &library.definition(op).options, Profile::Release)
    };
    assert_eq!(options(&plain), options(&told));
    // What is compiled on demand does.
    let on_demand = told.toolchain_for(parbake::Goal::Host).unwrap();
    let op = told.op("rmsnorm").unwrap();
    let spelled = on_demand.spell(host, &told.definition(op).options, Profile::Release);
    assert_eq!(spelled[options(&plain).len()..], ["-v", "-save-temps"]);
}
