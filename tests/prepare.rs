//! Preparing: what a job needs is ready before it starts, or every gap is told at once.

mod common;

use common::{World, norm};
use parbake::decision::Origin;
use parbake::model::lock::Lock;
use parbake::model::{Target, space};
use parbake::{Error, Library, Place, Site, Wanted};

/// Some specs of both row norms, wanted at a site.
fn wanted(library: &Library, count: usize, site: Site) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for name in ["rmsnorm", "fused_add_rmsnorm"] {
        let op = library.op(name).unwrap();
        let legal = space::specs(library.definition(op))
            .filter(|(spec, legal)| legal.is_ok() && spec.axis("dtype") == Some("f32"));
        wanted.extend(legal.take(count).map(|(spec, _)| Wanted { op, spec, site }));
    }
    wanted
}

#[test]
fn without_jit_all_gaps_are_one_error_with_one_command() {
    let mut world = World::new();
    world.config.jit = false;
    let library = world.library();
    let mut all = wanted(&library, 2, Site::Place(Place::Host));
    all.extend(wanted(&library, 2, Site::Target("sm_90a".parse().unwrap())));
    let error = library.prepare(&all).unwrap_err();
    let Error::Gaps { gaps, wanted: 8 } = &error else { panic!("{error:?}") };
    assert_eq!(gaps.len(), 8);
    let text = error.report().to_string();
    for each in &all {
        assert!(text.contains(&each.spec.uri), "no {} in\n{text}", each.spec.uri);
    }
    let command = "parbake build --arch 90a,host --op norm/fused_add_rmsnorm,norm/rmsnorm -o missing.pbk";
    assert!(text.contains(command) && text.contains("8 of 8 specs are not covered, and JIT is off"), "{text}");
    assert!(!world.config.workspace.exists());
}

#[test]
fn what_is_prepared_is_in_the_registry_and_a_lock_brings_it_back() {
    let mut world = World::new();
    world.config.jobs = 2;
    let library = world.library();
    let all = wanted(&library, 2, Site::Place(Place::Host));
    let ready = library.prepare(&all).unwrap();
    let uris = |ready: &[parbake::Readied]| ready.iter().map(|r| r.uri.clone()).collect::<Vec<_>>();
    assert_eq!(uris(&ready), all.iter().map(|w| w.spec.uri.clone()).collect::<Vec<_>>());
    assert!(ready.iter().all(|r| r.from == Origin::Jit && r.compile_ms.is_some()), "{ready:?}");
    assert!(library.prepare(&all).unwrap().iter().all(|r| r.from == Origin::Registry));
    assert_eq!(library.stats().jit, 4);

    // What a job used is what the next one prepares: here without a compiler, from the store.
    let lock = Lock::from_json(library.used().to_json().as_bytes()).unwrap();
    assert_eq!((lock.specs.len(), lock.targets.as_slice()), (4, &[Target::Host][..]));
    world.config.jit = false;
    let next = world.library();
    let ready = next.prepare(&next.locked(&lock, &[Site::Place(Place::Host)]).unwrap()).unwrap();
    assert!(ready.len() == 4 && ready.iter().all(|r| r.from == Origin::Store), "{ready:?}");
    assert!(norm(&next, "rmsnorm", "f32", 3, 64).run(&next, next.op("rmsnorm").unwrap(), Place::Host).is_ok());
}

#[test]
fn preparing_for_a_target_fills_the_store_and_loads_nothing() {
    let world = World::new();
    let library = world.library();
    let all = wanted(&library, 1, Site::Target(Target::Host));
    assert!(library.prepare(&all).unwrap().iter().all(|r| r.from == Origin::Jit));
    assert!(library.prepare(&all).unwrap().iter().all(|r| r.from == Origin::Store));
    assert_eq!((library.stats().jit, library.used().specs.len()), (0, 0));

    let mut nowhere = World::new();
    nowhere.config.cache = false;
    let report = nowhere.library().prepare(&all[..1]).unwrap_err().report();
    assert_eq!((report.code, report.help.len()), ("PB-2007", 1), "{report}");
}

#[test]
fn a_lock_of_another_library_names_every_spec_that_is_gone() {
    let world = World::new();
    let library = world.library();
    let specs: Vec<_> = wanted(&library, 1, Site::Target(Target::Host)).into_iter().map(|w| w.spec).collect();
    let mut lock = Lock::new(&specs, []);
    lock.specs[0].op = "nosuchnorm".to_owned();
    lock.specs[1].spec_id = parbake::model::Digest::of(b"other options");
    let mut third = Lock::new(&specs[..1], []).specs.remove(0);
    third.axes[0].1 = "f8".to_owned();
    lock.specs.push(third);
    let report = library.locked(&lock, &[Site::Target(Target::Host)]).unwrap_err().report();
    let text = report.to_string();
    assert_eq!((report.code, report.details.len()), ("PB-2006", 3), "{text}");
    for part in ["no op `nosuchnorm`", "other options", "no dtype=f8"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}
