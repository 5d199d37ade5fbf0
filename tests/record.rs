//! Recordings: what a program asked for is in a file, once, whoever else writes there, and whether it was served or not.

mod common;

use common::{World, norm};
use parbake::model::record::{self, Recorded, Recording};
use parbake::model::{Digest, Target, space};
use parbake::{Error, Library, Place, Site, Wanted};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A world that records, and the file.
fn recording() -> (World, PathBuf) {
    let mut world = World::new();
    let file = world.folder.path().join("calls.jsonl");
    world.config.record = Some(file.display().to_string());
    (world, file)
}

fn read(file: &PathBuf) -> Vec<Recorded> {
    let Recording { records, torn } = record::read(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(torn, Vec::<usize>::new());
    records
}

fn call(library: &Library, dtype: &str, hidden: i64) -> Result<(), Error> {
    let op = library.op("rmsnorm").unwrap();
    norm(library, "rmsnorm", dtype, 3, hidden).run(library, op, Place::Host).map(drop)
}

/// Warnings of a thread, by their messages.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn what_is_called_is_recorded_once_with_where_it_came_from() {
    let (world, file) = recording();
    let library = world.library();
    assert!(!file.exists(), "nothing was asked for yet");
    (0..3).for_each(|_| call(&library, "f32", 64).unwrap());
    call(&library, "f16", 64).unwrap();
    let records = read(&file);
    let seen: Vec<_> = records.iter().map(|r| (r.op.as_str(), r.axes[0].1.as_str(), r.from.as_deref())).collect();
    assert_eq!(seen, [("rmsnorm", "f32", Some("jit")), ("rmsnorm", "f16", Some("jit"))]);
    assert!(records.iter().all(|r| r.target == Target::Host && r.library == parbake::model::VERSION));
    // It names the same as the library's own list, and the next process appends.
    assert_eq!(records[0].locked(), library.used().specs[1]);
    call(&world.library(), "f32", 64).unwrap();
    assert_eq!(read(&file)[2], Recorded { from: Some("store".to_owned()), ..records[0].clone() });
}

#[test]
fn what_nothing_serves_is_recorded_with_the_reason() {
    let (mut world, file) = recording();
    world.config.jit = false;
    let library = world.library();
    (0..2).for_each(|_| drop(call(&library, "f32", 64).unwrap_err()));
    // Only the best choice, although all were looked for.
    let records = read(&file);
    assert_eq!((records.len(), records[0].from.as_deref()), (1, None));
    let why = records[0].missing.as_deref().unwrap();
    assert!(why.contains("bundles: not covered") && why.contains("jit: switched off"), "{why}");
    // What is prepared was asked for too, also for another machine; what exists nowhere was not.
    let op = library.op("rmsnorm").unwrap();
    let legal = |legal| space::specs(library.definition(op)).find(|(_, l)| l.is_ok() == legal).unwrap().0;
    let site = Site::Target("sm_90a".parse().unwrap());
    library.prepare(&[Wanted { op, spec: legal(true), site }]).unwrap_err();
    library.prepare(&[Wanted { op, spec: legal(false), site }]).unwrap_err();
    let records = read(&file);
    assert_eq!((records.len(), records[1].target.to_string().as_str()), (2, "sm_90a"));
}

#[test]
fn second_best_and_the_best_are_both_recorded_and_shapes_do_with_what_is_covered() {
    let (mut world, file) = recording();
    // The store has the one tactic that rows of 2048 bytes want.
    world.config.record = None;
    call(&world.library(), "f32", 512).unwrap();
    world.config.record = Some(file.display().to_string());
    world.config.jit = false;
    let library = world.library();
    for hidden in [512, 64, 512, 128, 64, 16384] {
        call(&library, "f32", hidden).unwrap_or_else(|e| panic!("{hidden}: {e}"));
    }
    let records = read(&file);
    let origins: Vec<_> = records.iter().map(|r| r.from.as_deref()).collect();
    // Served; then the best tactics of 64, 128 and 16384 columns, which are not there.
    assert_eq!((origins[0], origins[1..].iter().all(Option::is_none)), (Some("store"), true), "{records:?}");
    let mut ids: Vec<Digest> = records.iter().map(|r| r.spec_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), library.used().specs.len()), (records.len(), 1));
    assert!(records.len() >= 3, "{records:?}");
}

#[test]
fn a_recording_that_cannot_be_written_is_one_warning_and_the_job_goes_on() {
    let (mut world, file) = recording();
    world.config.record = Some(file.join("below/a/file").display().to_string());
    std::fs::write(&file, "").unwrap();
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        let library = world.library();
        call(&library, "f32", 64).unwrap();
        call(&library, "f16", 64).unwrap();
    });
    assert_eq!(warnings.0.lock().unwrap().as_slice(), ["what this program asks for is not recorded"]);
    // A full disk, as far as a test can have one.
    if std::path::Path::new("/dev/full").exists() {
        world.config.record = Some("/dev/full".to_owned());
        call(&world.library(), "f32", 64).unwrap();
    }
}

#[test]
fn the_process_id_may_be_in_the_name_and_many_may_share_a_file() {
    let (mut world, file) = recording();
    call(&world.library(), "f32", 64).unwrap();
    std::fs::remove_file(&file).unwrap();
    let libraries: Vec<Library> = (0..8).map(|_| world.library()).collect();
    std::thread::scope(|scope| {
        for library in &libraries {
            scope.spawn(move || call(library, "f32", 64).unwrap());
        }
    });
    assert_eq!(read(&file).len(), 8);
    world.config.record = Some(format!("{}-%p.jsonl", file.display()));
    call(&world.library(), "f32", 64).unwrap();
    let own = PathBuf::from(format!("{}-{}.jsonl", file.display(), std::process::id()));
    assert_eq!(read(&own).len(), 1);
}
