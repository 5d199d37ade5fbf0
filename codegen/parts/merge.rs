//! Merging: bundles that hold parts become one that holds all. No compiler and no packer is needed for it.

use super::{Label, Statement, Unit};
use crate::baking::on_threads;
use parbake_model::bundle::{self, Bundle, BundleWriter, Details, Entry, Item, LEVEL, Packed, Skipped, SpecDetails};
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Target};
use std::collections::{BTreeMap, BTreeSet, btree_map};

/// A bundle that was verified, and the name under which a person knows it.
#[derive(Debug)]
pub struct Part {
    /// The file.
    pub name: String,
    /// What is in it.
    pub bundle: Bundle,
    /// Its details.
    pub details: Details,
}

/// What came of a merge.
#[derive(Debug)]
pub struct Merged {
    /// The bundle.
    pub bytes: Vec<u8>,
    /// How many images.
    pub images: usize,
    /// How many specs.
    pub specs: usize,
    /// The targets asked for.
    pub targets: Vec<Target>,
    /// The plan that it is, if there is one.
    pub plan: Option<Digest>,
}

/// No more names than this are listed in one error.
const LISTED: usize = 20;

/// Merges bundles: all shards of a plan, what makes up the plan that is given, or any bundles of one library version.
///
/// # Errors
/// Bundles that do not go together, two builds of one thing, or parts of a plan that are missing: each names the files.
pub fn merge(
    parts: &[Part],
    plan: Option<&Statement>,
    level: Option<i32>,
    threads: usize,
) -> Result<Merged, Vec<Report>> {
    let make = check_make(parts, plan)?;
    let label = check_labels(parts, plan)?;
    let items = collect(parts)?;
    let present = Statement {
        library: make.0,
        launch_abi: make.1,
        targets: union(parts, |details| &details.targets),
        provenance: match (plan, &label) {
            (Some(plan), _) => plan.provenance.clone(),
            (None, Some(label)) => label.provenance.clone(),
            (None, None) => provenance(parts, level.unwrap_or(LEVEL)),
        },
        skipped: still_skipped(parts, &items),
        units: items.values().map(unit).collect(),
    }
    .sorted();
    let whole = match plan {
        Some(plan) => {
            compare(&present.units, plan, &items, parts)?;
            plan.clone()
        }
        None => present,
    };
    if let Some(label) = &label
        && whole.digest() != label.plan
    {
        return Err(vec![
            Report::new("PB-1149", Class::Failed, "all shards are there, and they do not make up their plan")
                .with("expected", format!("plan {}", label.plan))
                .with("got", format!("plan {}, {} images", whole.digest(), whole.units.len()))
                .help("this is a bug in what divided the plan, unless a shard was altered: build the shards again"),
        ]);
    }
    let level = level.or_else(|| whole.provenance.get("level")?.parse().ok()).unwrap_or(LEVEL);
    let mut provenance = whole.provenance.clone();
    provenance.insert("level".to_owned(), level.to_string());
    let details = Details {
        library: whole.library.clone(),
        launch_abi: whole.launch_abi,
        targets: whole.targets.clone(),
        skipped: whole.skipped.clone(),
        provenance,
        ..Details::default()
    };
    let (images, specs) = (items.len(), items.keys().map(|(key, _)| key).collect::<BTreeSet<_>>().len());
    let bytes = pack(parts, items, details, level, threads)?;
    let plan = plan.map(Statement::digest).or(label.map(|label| label.plan));
    Ok(Merged { bytes, images, specs, targets: whole.targets, plan })
}

/// The one version and launch ABI that all are made for.
fn check_make(parts: &[Part], plan: Option<&Statement>) -> Result<(String, u32), Vec<Report>> {
    let made = parts.iter().map(|part| (part.name.as_str(), part.details.library.as_str(), part.details.launch_abi));
    let mut all = plan.map(|plan| ("the plan", plan.library.as_str(), plan.launch_abi)).into_iter().chain(made);
    let Some((first, library, abi)) = all.next() else {
        return Err(vec![Report::new("PB-1146", Class::Usage, "there is nothing to merge").with("got", "no bundle")]);
    };
    let differs = |text: String, other: &str, got: String| {
        Report::new("PB-1146", Class::Failed, "the bundles are of different makes").with(first, text).with(other, got)
    };
    let say = |library: &str, abi: u32| format!("library {library}, launch ABI {abi}");
    let mut reports: Vec<Report> = all
        .filter(|(_, l, a)| (*l, *a) != (library, abi))
        .map(|(name, l, a)| differs(say(library, abi), name, say(l, a)))
        .collect();
    // A fatbin by another packer may be other bytes for the same cubin.
    for (plan, part) in plan.into_iter().flat_map(|plan| parts.iter().map(move |part| (plan, part))) {
        let (wanted, got) = (packers([&plan.provenance]), packers([&part.details.provenance]));
        if !got.is_subset(&wanted) {
            let list = |packers: &BTreeSet<&str>| format!("packed by {}", join(packers));
            reports.push(differs(list(&wanted), &part.name, list(&got)));
        }
    }
    let help = "build those that differ again, with the same version of Parbake and the same toolchains";
    if reports.is_empty() { Ok((library.to_owned(), abi)) } else { Err(helped(reports, help)) }
}

/// The label of one of the shards, if they are shards: of one plan, divided in one way, each once, all of them; or of the
/// plan that is given.
fn check_labels(parts: &[Part], plan: Option<&Statement>) -> Result<Option<Label>, Vec<Report>> {
    let labels: Vec<(&str, Option<Label>)> = parts.iter().map(|p| (p.name.as_str(), Label::of(&p.details))).collect();
    let wrong = |what: &str| Report::new("PB-1147", Class::Failed, what.to_owned());
    if let Some(plan) = plan {
        let plan = plan.digest();
        let foreign =
            labels.iter().filter_map(|(name, label)| Some((name, label.as_ref()?))).filter(|l| l.1.plan != plan);
        let reports: Vec<Report> = foreign
            .map(|(name, label)| {
                let report = wrong("a shard belongs to another plan").with("the plan", plan);
                report.with(*name, format!("shard {} of plan {}", label.shard, label.plan))
            })
            .collect();
        return if reports.is_empty() { Ok(None) } else { Err(helped(reports, "name the shards of that plan")) };
    }
    let Some((first, label)) = labels.iter().find_map(|(name, label)| Some((*name, label.as_ref()?))) else {
        return Ok(None);
    };
    let mut reports = Vec::new();
    let mut places: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, other) in &labels {
        let differs = |what: &str, mine: String, other: String| wrong(what).with(first, mine).with(*name, other);
        match other {
            None => reports.push(differs(
                "a shard and something else are not merged",
                format!("shard {} of plan {}", label.shard, label.plan),
                "no shard".to_owned(),
            )),
            Some(other) if other.plan != label.plan => reports.push(differs(
                "the shards are of different plans",
                format!("plan {}", label.plan),
                format!("plan {}", other.plan),
            )),
            Some(other) if (other.shard.of, other.division) != (label.shard.of, label.division) => {
                let say = |l: &Label| format!("{} shards, division {}", l.shard.of, l.division.short(12));
                let what = "the shards are of one plan, and it was divided in different ways";
                reports.push(differs(what, say(label), say(other)).help("give each of them the same --costs, or none"));
            }
            Some(other) => places.entry(other.shard.number).or_default().push(name),
        }
    }
    let list = |numbers: Vec<u32>| {
        let shards: Vec<String> = numbers.iter().map(|n| format!("{n}/{}", label.shard.of)).collect();
        more(&shards)
    };
    for (number, names) in places.iter().filter(|(_, names)| names.len() > 1) {
        let report = wrong("a shard is there twice").with("shard", list(vec![*number]));
        reports.push(report.with("files", names.join(", ")));
    }
    let missing: Vec<u32> = (1..=label.shard.of).filter(|n| !places.contains_key(n)).collect();
    if !missing.is_empty() && reports.is_empty() {
        let report = wrong("shards are missing").with("plan", label.plan).with("missing", list(missing.clone()));
        reports.push(report.help(format!("parbake build --shard {}/{} …", missing[0], label.shard.of)));
    }
    if reports.is_empty() { Ok(Some(label.clone())) } else { Err(reports) }
}

/// An image that is to be merged.
#[derive(Clone, Debug)]
struct Found<'a> {
    /// The number of the part that it is taken from.
    part: usize,
    entry: &'a Entry,
    told: bundle::Unit,
}

type Items<'a> = BTreeMap<(Digest, Target), Found<'a>>;

/// All images, each once. Only indexes and details are read for it.
fn collect(parts: &[Part]) -> Result<Items<'_>, Vec<Report>> {
    let (mut items, mut reports) = (Items::new(), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        for spec in &part.details.specs {
            for image in &spec.images {
                let told = SpecDetails { images: Vec::new(), ..spec.clone() };
                let told = bundle::Unit { spec: told, image: image.clone() };
                let entry = part.bundle.find(spec.source_key, image.target).expect("bug: verified before");
                let found = Found { part: number, entry, told };
                match items.entry((spec.source_key, image.target)) {
                    btree_map::Entry::Vacant(place) => drop(place.insert(found)),
                    btree_map::Entry::Occupied(have) => {
                        let identity = |f: &Found<'_>| (f.entry.build_key, f.entry.image);
                        if identity(have.get()) != identity(&found) {
                            reports.push(two_builds(parts, have.get(), &found));
                        }
                    }
                }
            }
        }
    }
    reports.truncate(LISTED);
    if reports.is_empty() { Ok(items) } else { Err(reports) }
}

fn two_builds(parts: &[Part], first: &Found<'_>, second: &Found<'_>) -> Report {
    let say = |found: &Found<'_>| {
        let (build, bytes) = (found.entry.build_key.short(12), found.entry.image.short(12));
        format!("build {build} by {}, bytes {bytes}", found.told.image.toolchain)
    };
    let what = format!("two builds of {} for {}", first.told.spec.uri, first.entry.target);
    let report = Report::new("PB-1148", Class::Failed, what);
    let report = report.with(&*parts[first.part].name, say(first)).with(&*parts[second.part].name, say(second));
    report.help("leave one of the files out, or build both with the same toolchains")
}

fn unit(found: &Found<'_>) -> Unit {
    let Entry { source_key, target, build_key, .. } = *found.entry;
    Unit { source_key, target, build_key, uri: found.told.spec.uri.clone() }
}

/// Packs the images: only those of one op and target a thread are in memory at a time.
fn pack(
    parts: &[Part],
    items: Items<'_>,
    details: Details,
    level: i32,
    threads: usize,
) -> Result<Vec<u8>, Vec<Report>> {
    let mut images: Vec<Found<'_>> = items.into_values().collect();
    images.sort_by(|a, b| a.told.order().cmp(&b.told.order()));
    let group = |f: &Found<'_>| (f.told.spec.op.clone(), f.entry.target);
    let groups: Vec<&[Found<'_>]> = images.chunk_by(|a, b| group(a) == group(b)).collect();
    let wrong = |e: &dyn std::error::Error, code| {
        vec![Report::new(code, Class::Failed, "the bundles cannot be merged").caused_by_chain(e)]
    };
    let one = |group: &&[Found<'_>]| {
        let item = |found: &Found<'_>| {
            let bytes = parts[found.part].bundle.image(found.entry).map_err(|e| wrong(&e, e.code()))?;
            let bundle::Unit { spec, image } = found.told.clone();
            Ok(Item { spec, image, bytes })
        };
        let items = group.iter().map(item).collect::<Result<Vec<_>, Vec<Report>>>()?;
        Packed::of(&items, level).map_err(|e| wrong(&e, e.code()))
    };
    let mut writer = BundleWriter::new(details, level);
    for (group, packed) in groups.iter().zip(on_threads(threads, &groups, &one)) {
        writer.push_packed(group.iter().map(|found| found.told.clone()).collect(), packed?);
    }
    writer.finish().map_err(|e| wrong(&e, e.code()))
}

/// Compares what is there with what the plan asks for.
fn compare(present: &[Unit], plan: &Statement, items: &Items<'_>, parts: &[Part]) -> Result<(), Vec<Report>> {
    let say = |unit: &Unit| format!("{} for {}, build {}", unit.uri, unit.target, unit.build_key.short(12));
    let (have, want): (BTreeSet<&Unit>, BTreeSet<&Unit>) = (present.iter().collect(), plan.units.iter().collect());
    let missing: Vec<String> = want.difference(&have).map(|unit| say(unit)).collect();
    let foreign = have.difference(&want).map(|unit| {
        let found = &items[&(unit.source_key, unit.target)];
        format!("{} ({})", say(unit), parts[found.part].name)
    });
    let foreign: Vec<String> = foreign.collect();
    if missing.is_empty() && foreign.is_empty() {
        return Ok(());
    }
    let mut report = Report::new("PB-1149", Class::Failed, "the bundles do not make up the plan");
    for (label, list) in [("missing", missing), ("not of the plan", foreign)] {
        if !list.is_empty() {
            report = report.with(label, format!("{}: {}", list.len(), more(&list)));
        }
    }
    Err(vec![report.help("compile what is missing, and what was compiled by another plan, again: parbake compile")])
}

fn union<T: Clone + Ord>(parts: &[Part], of: impl Fn(&Details) -> &Vec<T>) -> Vec<T> {
    parts.iter().flat_map(|part| of(&part.details)).cloned().collect::<BTreeSet<T>>().into_iter().collect()
}

/// What all lack: what one of them says does not exist and another one has is there.
fn still_skipped(parts: &[Part], items: &Items<'_>) -> Vec<Skipped> {
    let there: BTreeSet<(String, Target)> =
        items.values().map(|f| (f.told.spec.spec().to_string(), f.entry.target)).collect();
    let skipped = union(parts, |details| &details.skipped).into_iter();
    skipped.filter(|s| !there.contains(&(s.spec.clone(), s.target))).collect()
}

fn packers<'a>(provenances: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> BTreeSet<&'a str> {
    let named = provenances.into_iter().filter_map(|provenance| provenance.get("packer"));
    named.flat_map(|packers| packers.split(", ")).collect()
}

fn join(packers: &BTreeSet<&str>) -> String {
    packers.iter().copied().collect::<Vec<_>>().join(", ")
}

/// What bundles that are no shards say of where they come from: all packers, and what they agree on.
fn provenance(parts: &[Part], level: i32) -> BTreeMap<String, String> {
    let all = || parts.iter().map(|part| &part.details.provenance);
    let mut provenance = all().next().cloned().unwrap_or_default();
    provenance.retain(|name, value| all().all(|other| other.get(name) == Some(value)));
    let packers = packers(all());
    if !packers.is_empty() {
        provenance.insert("packer".to_owned(), join(&packers));
    }
    provenance.insert("level".to_owned(), level.to_string());
    provenance
}

/// The first of a list, and how many more there are.
fn more(list: &[String]) -> String {
    let shown = list.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if list.len() > LISTED { format!("{shown} and {} more", list.len() - LISTED) } else { shown }
}

fn helped(reports: Vec<Report>, help: &str) -> Vec<Report> {
    reports.into_iter().map(|report| report.help(help)).collect()
}
