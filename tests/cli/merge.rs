//! Bundles that are merged. Nothing here is compiled: that the parts of real bakes merge into the very bytes of one bake
//! is tested in `parts.rs`.

use crate::machine::Machine;
use crate::points::{Points, quick};
use parbake::model::bundle::{BundleWriter, Details, ImageDetails, Item, Skipped, SpecDetails};
use parbake::model::{Digest, LAUNCH_ABI, Target, VERSION, space};
use parbake_codegen::parts::{Label, PART_LEVEL, Shard, Statement, Unit, divide};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Some images for the host, each of so many bytes that no compressor likes.
fn items(machine: &Machine, count: usize, bytes: usize) -> Vec<Item> {
    let library = machine.library();
    let op = library.op("rmsnorm").unwrap();
    let (def, params) = (library.definition(op), library.params_digest(op).unwrap());
    let specs = space::specs(def).filter(|(_, legal)| legal.is_ok()).take(count);
    let item = |(spec, _): (parbake::model::identity::Spec, _)| {
        let key = spec.source_key(def, library.sources_digest(op).unwrap()).digest;
        let noise = (0u64..).flat_map(|i| Digest::of(format!("{} {}", spec.uri, i / 3).as_bytes()).0);
        let image = ImageDetails {
            target: Target::Host,
            toolkit: None,
            toolchain: "host test".to_owned(),
            build_key: Digest::of(spec.uri.as_bytes()),
            size: 0,
            resources: None,
        };
        Item { spec: SpecDetails::new(&spec, key, params, &def.options), image, bytes: noise.take(bytes).collect() }
    };
    let items: Vec<Item> = specs.map(item).collect();
    assert_eq!(items.len(), count);
    items
}

fn details(provenance: BTreeMap<String, String>) -> Details {
    let absent = Skipped { op: "x".into(), spec: "x a=1".into(), target: Target::Host, reason: "no".into() };
    let targets = vec![Target::Host, "sm_90a".parse().unwrap()];
    let (library, launch_abi, skipped) = (VERSION.to_owned(), LAUNCH_ABI, vec![absent]);
    Details { library, launch_abi, targets, skipped, provenance, ..Details::default() }
}

fn pack<'a>(items: impl IntoIterator<Item = &'a Item>, details: Details, level: i32) -> Vec<u8> {
    let mut writer = BundleWriter::new(details, level);
    items.into_iter().for_each(|item| writer.push(item.clone()).unwrap());
    writer.finish().unwrap()
}

fn level(level: i32) -> BTreeMap<String, String> {
    BTreeMap::from([("level".to_owned(), level.to_string())])
}

/// Writes the shards of a plan, and gives their names and the bytes of the whole.
fn shards(machine: &Machine, name: &str, items: &[Item], costs: Option<&[u64]>, of: u32) -> (Vec<String>, Vec<u8>) {
    let unit = |item: &Item| Unit {
        source_key: item.spec.source_key,
        target: item.image.target,
        build_key: item.image.build_key,
        uri: item.spec.uri.clone(),
    };
    let whole = details(level(9));
    let Details { library, launch_abi, targets, skipped, provenance, .. } = whole.clone();
    let units = items.iter().map(unit).collect();
    let plan = Statement { library, launch_abi, targets, skipped, provenance, units }.sorted();
    let assigned = divide(&plan.units, costs, of);
    let file = |number| {
        let own: Vec<Digest> =
            plan.units.iter().zip(&assigned).filter(|(_, s)| **s == number).map(|(u, _)| u.source_key).collect();
        let label = Label::new(Shard { number, of }, &plan, &assigned);
        let own = items.iter().filter(|item| own.contains(&item.spec.source_key));
        machine.write(&format!("{name}-{number}.pbk"), pack(own, details(label.provenance()), PART_LEVEL))
    };
    ((1..=of).map(file).collect(), pack(items, whole, 9))
}

fn merge(machine: &Machine, files: &[&str], more: &[&str]) -> crate::machine::Ran {
    machine.run(&[&["merge", "-o", "all.pbk"], more, files].concat())
}

fn names(files: &[String]) -> Vec<&str> {
    files.iter().map(String::as_str).collect()
}

#[test]
fn shards_become_the_bundle_of_one_build() {
    let machine = Machine::new();
    let all = items(&machine, 7, 900);
    // With more shards than images some are empty.
    for of in [1, 5, 9] {
        let (files, whole) = shards(&machine, "part", &all, None, of);
        let mut files = names(&files);
        files.reverse();
        let json = merge(&machine, &files, &["--json"]).ok().json();
        assert_eq!((&json["images"], &json["merged"]), (&7.into(), &of.into()), "{json}");
        assert!(std::fs::read(machine.path("all.pbk")).unwrap() == whole, "{of} shards");
    }
    let text = machine.say("verify all.pbk").ok().stdout;
    assert!(text.contains("7 images of 7 specs"), "{text}");
    // A shard by itself is a bundle as any other.
    let shard = machine.say("inspect part-2.pbk --json").ok().json();
    assert_eq!(shard["provenance"]["shard"], "2/9", "{shard}");
    assert_eq!(machine.say("inspect all.pbk --json").ok().json()["provenance"], serde_json::json!({"level": "9"}));
    assert!(!machine.workspace().exists());
}

#[test]
fn shards_that_do_not_go_together_are_named() {
    let machine = Machine::new();
    let all = items(&machine, 7, 200);
    let (files, _) = shards(&machine, "part", &all, None, 5);
    let files = names(&files);
    let refused = |files: &[&str], code: &str, says: &[&str]| {
        let ran = merge(&machine, files, &[]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.stderr.contains(code), "{ran:?}");
        says.iter().for_each(|says| assert!(ran.stderr.contains(says), "no {says:?} in {}", ran.stderr));
        assert!(!machine.path("all.pbk").exists());
    };
    refused(&[files[0], files[2], files[4]], "PB-1147", &["missing: 2/5, 4/5"]);
    let copy = machine.write("copy.pbk", std::fs::read(files[1]).unwrap());
    refused(&[&files[..], &[&copy]].concat(), "PB-1147", &["twice", "2/5", "part-2.pbk", "copy.pbk"]);
    let (other, _) = shards(&machine, "other", &all[..6], None, 5);
    refused(
        &[&files[..4], &[other[4].as_str()]].concat(),
        "PB-1147",
        &["different plans", "part-1.pbk", "other-5.pbk"],
    );
    let costs = [900, 1, 1, 1, 1, 1, 1];
    let (dear, _) = shards(&machine, "dear", &all, Some(&costs), 5);
    refused(&[&files[..4], &[dear[4].as_str()]].concat(), "PB-1147", &["different ways", "--costs", "dear-5.pbk"]);
    let plain = machine.write("plain.pbk", pack(&all, details(level(3)), 3));
    refused(&[&files[..], &[&plain]].concat(), "PB-1147", &["no shard", "plain.pbk"]);

    // A shard that lacks what it should have, and is whole otherwise.
    let read = |path: &str| std::fs::File::open(path).map(parbake::model::bundle::Bundle::open).unwrap().unwrap();
    let whole = read(files[1]);
    let held: Vec<Item> = whole.items().unwrap().map(Result::unwrap).collect();
    let short = machine.write("short.pbk", pack(&held[1..], whole.details().unwrap().clone(), 3));
    refused(&[files[0], &short, files[2], files[3], files[4]], "PB-1149", &["do not make up"]);

    let mut bytes = std::fs::read(files[3]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let torn = machine.write("torn.pbk", bytes);
    refused(&[files[0], files[1], files[2], &torn, files[4]], "PB-3171", &["torn.pbk", "PB-1305"]);
    let absent = merge(&machine, &["part-1.pbk", "absent.pbk"], &[]);
    assert_eq!(absent.status, 3, "{absent:?}");
}

#[test]
fn bundles_of_one_version_are_merged_and_two_builds_of_one_thing_are_not() {
    let machine = Machine::new();
    let all = items(&machine, 6, 300);
    let first = machine.write("first.pbk", pack(&all[..4], details(level(3)), 3));
    let second = machine.write("second.pbk", pack(&all[2..], details(level(5)), 5));
    // What both have is there once.
    merge(&machine, &[&first, &second], &["--level", "7"]).ok();
    assert!(std::fs::read(machine.path("all.pbk")).unwrap() == pack(&all, details(level(7)), 7));

    std::fs::remove_file(machine.path("all.pbk")).unwrap();
    let mut another = all[3].clone();
    another.bytes.push(1);
    let third = machine.write("third.pbk", pack([&another], details(level(3)), 3));
    let ran = merge(&machine, &[&first, &third], &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    for says in ["PB-1148", &all[3].spec.uri, "first.pbk", "third.pbk"] {
        assert!(ran.stderr.contains(says), "no {says:?} in {}", ran.stderr);
    }
    let older = Details { library: "0.0.9".to_owned(), ..details(level(3)) };
    let older = machine.write("older.pbk", pack(&all[4..], older, 3));
    let ran = merge(&machine, &[&first, &older], &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    for says in ["PB-1146", "0.0.9", VERSION, "first.pbk", "older.pbk"] {
        assert!(ran.stderr.contains(says), "no {says:?} in {}", ran.stderr);
    }
    assert!(!machine.path("all.pbk").exists());
}

#[test]
fn a_merge_that_is_killed_leaves_nothing_and_the_next_one_gives_the_same_bytes() {
    let machine = Machine::new();
    // Enough that a merge takes a while.
    let all = items(&machine, 8, 40_000);
    let (files, whole) = shards(&machine, "part", &all, None, 3);
    let words = [&["merge", "-o", "all.pbk", "--level", "9"], &names(&files)[..]].concat();
    let start = Instant::now();
    machine.run(&words).ok();
    let took = start.elapsed();
    let good = std::fs::read(machine.path("all.pbk")).unwrap();
    assert!(good.len() > 1000 && whole.len() > 1000);
    let (mut killed, mut points) = (0, Points::of("merge"));
    let count = if quick() { 20 } else { 50 };
    for point in 0..count {
        let _ = std::fs::remove_file(machine.path("all.pbk"));
        let mut child = machine.command(&words).stdout(std::process::Stdio::null()).spawn().unwrap();
        // Anywhere in a run, and some points near its end, where the file is written.
        let part = if point % 4 == 0 { 0.9 } else { points.part() };
        std::thread::sleep(Duration::from_secs_f64(took.as_secs_f64() * part));
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
        // All of it, or nothing.
        if let Ok(left) = std::fs::read(machine.path("all.pbk")) {
            assert!(left == good, "point {point}: {} bytes are left", left.len());
        }
    }
    assert!(killed > count / 4, "only {killed} were killed");
    machine.run(&words).ok();
    assert!(std::fs::read(machine.path("all.pbk")).unwrap() == good);
}
