//! What differs between two lots of bundles, and why.

use parbake_model::bundle::{Bundle, BundleError, Details, ImageDetails, SpecDetails};
use parbake_model::cubin::Resources;
use parbake_model::{Digest, Target};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An image and its spec.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) spec: &'a SpecDetails,
    pub(crate) image: &'a ImageDetails,
    digest: Option<Digest>,
    /// The version and the launch ABI of its bundle.
    made: (&'a str, u32),
}

/// Bundles that are looked at together. What several of them hold counts once.
pub(crate) struct Side<'a> {
    pub(crate) images: BTreeMap<(Digest, Target), Held<'a>>,
    facts: BTreeMap<String, BTreeSet<String>>,
    index: Vec<Digest>,
}

impl<'a> Side<'a> {
    pub(crate) fn of(bundles: &'a [Bundle]) -> Result<Self, BundleError> {
        let mut side = Self { images: BTreeMap::new(), facts: BTreeMap::new(), index: Vec::new() };
        for bundle in bundles {
            let details = bundle.details()?;
            side.note(details);
            side.index.push(bundle.index_digest());
            for spec in &details.specs {
                for image in &spec.images {
                    let digest = bundle.find(spec.source_key, image.target).map(|entry| entry.image);
                    let made = (details.library.as_str(), details.launch_abi);
                    side.images.entry((spec.spec_id, image.target)).or_insert(Held { spec, image, digest, made });
                }
            }
        }
        side.index.sort();
        Ok(side)
    }

    fn note(&mut self, details: &Details) {
        let mut add = |name: &str, value: String| {
            self.facts.entry(name.to_owned()).or_default().insert(value);
        };
        add("library", details.library.clone());
        add("launch ABI", details.launch_abi.to_string());
        details.targets.iter().for_each(|target| add("targets", target.to_string()));
        details.toolchains.iter().for_each(|toolchain| add("toolchains", toolchain.clone()));
        details.provenance.iter().for_each(|(name, value)| add(&format!("provenance: {name}"), value.clone()));
    }

    fn fact(&self, name: &str) -> String {
        self.facts.get(name).map_or(String::new(), |all| all.iter().cloned().collect::<Vec<_>>().join(", "))
    }

    /// Bytes by op and target.
    fn sizes(&self) -> BTreeMap<(&'a str, Target), u64> {
        let mut sizes = BTreeMap::new();
        for ((_, target), held) in &self.images {
            *sizes.entry((held.spec.op.as_str(), *target)).or_default() += held.image.size;
        }
        sizes
    }
}

/// A value that is another one now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// An image that only one side has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lone {
    pub(crate) op: String,
    pub(crate) spec: String,
    pub(crate) uri: String,
    pub(crate) target: Target,
    pub(crate) bytes: u64,
    /// Whether the other side has the spec for other targets.
    pub(crate) spec_is_known: bool,
}

impl Lone {
    /// What is alone about it.
    pub(crate) fn why(&self) -> &'static str {
        if self.spec_is_known { "of this target; the spec is on both sides" } else { "of this spec" }
    }
}

/// A number that changed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) name: &'static str,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// An image that was built otherwise.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changed {
    pub(crate) op: String,
    pub(crate) spec: String,
    pub(crate) uri: String,
    pub(crate) target: Target,
    /// What went into it and differs.
    pub(crate) why: Vec<String>,
    /// Whether the machine code, or what holds it, is still the same.
    pub(crate) same_bytes: bool,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) resources: Vec<Change>,
}

/// Bytes of an op on a target.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) op: String,
    pub(crate) target: Target,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// All that differs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) facts: Vec<Fact>,
    pub(crate) added: Vec<Lone>,
    pub(crate) removed: Vec<Lone>,
    pub(crate) changed: Vec<Changed>,
    /// Those that differ.
    pub(crate) sizes: Vec<Size>,
    /// All bytes of images.
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Difference {
    pub(crate) fn between(before: &Side<'_>, after: &Side<'_>) -> Self {
        let names: BTreeSet<&String> = before.facts.keys().chain(after.facts.keys()).collect();
        let fact = |name: &String| Fact { name: name.clone(), before: before.fact(name), after: after.fact(name) };
        let mut facts: Vec<Fact> = names.into_iter().map(fact).filter(|f| f.before != f.after).collect();
        let changed: Vec<Changed> =
            after.images.iter().filter_map(|(key, new)| changed(before.images.get(key)?, new)).collect();
        let (added, removed) = (lone(after, before), lone(before, after));
        if facts.is_empty()
            && changed.is_empty()
            && before.index != after.index
            && added.is_empty()
            && removed.is_empty()
        {
            let name = "packing".to_owned();
            facts.push(Fact { name, before: "one way".to_owned(), after: "another, of the same images".to_owned() });
        }
        let (old, new) = (before.sizes(), after.sizes());
        let places: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
        let size = |(op, target): (&str, Target)| Size {
            op: op.to_owned(),
            target,
            before: old.get(&(op, target)).copied().unwrap_or(0),
            after: new.get(&(op, target)).copied().unwrap_or(0),
        };
        Self {
            facts,
            added,
            removed,
            changed,
            sizes: places.into_iter().map(size).filter(|s| s.before != s.after).collect(),
            before: old.values().sum(),
            after: new.values().sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// Bytes by what a function names: op or target.
    pub(crate) fn sizes_by<K: Ord>(&self, key: impl Fn(&Size) -> K) -> BTreeMap<K, (u64, u64)> {
        let mut sums: BTreeMap<K, (u64, u64)> = BTreeMap::new();
        for size in &self.sizes {
            let sum = sums.entry(key(size)).or_default();
            *sum = (sum.0 + size.before, sum.1 + size.after);
        }
        sums
    }
}

/// What one side has and the other lacks.
fn lone(here: &Side<'_>, there: &Side<'_>) -> Vec<Lone> {
    let known: BTreeSet<Digest> = there.images.keys().map(|(spec, _)| *spec).collect();
    let lone = here.images.iter().filter(|(key, _)| !there.images.contains_key(key));
    lone.map(|((spec_id, target), held)| Lone {
        op: held.spec.op.clone(),
        spec: held.spec.spec().to_string(),
        uri: held.spec.uri.clone(),
        target: *target,
        bytes: held.image.size,
        spec_is_known: known.contains(spec_id),
    })
    .collect()
}

fn changed(old: &Held<'_>, new: &Held<'_>) -> Option<Changed> {
    let why = reasons(old, new);
    (!why.is_empty()).then(|| Changed {
        op: new.spec.op.clone(),
        spec: new.spec.spec().to_string(),
        uri: new.spec.uri.clone(),
        target: new.image.target,
        why,
        same_bytes: old.digest == new.digest,
        before: old.image.size,
        after: new.image.size,
        resources: resources(old.image.resources, new.image.resources),
    })
}

/// Why an image is another one, by the fields of its keys.
fn reasons(old: &Held<'_>, new: &Held<'_>) -> Vec<String> {
    let mut why = Vec::new();
    let mut differ = |name: &str, before: String, after: String| {
        if before != after {
            why.push(format!("{name} {before} → {after}"));
        }
    };
    differ("launch ABI", old.made.1.to_string(), new.made.1.to_string());
    // The spec and its options are the same, so what remains of the source key is template, headers and spelling.
    if old.made.1 == new.made.1 {
        differ("sources", old.spec.source_key.short(12), new.spec.source_key.short(12));
    }
    if let (Some(before), Some(after)) = (old.spec.params, new.spec.params) {
        differ("parameters", before.short(12), after.short(12));
    }
    let toolkit = |held: &Held<'_>| held.image.toolkit.map_or("none".to_owned(), |t| t.to_string());
    differ("toolkit", toolkit(old), toolkit(new));
    if toolkit(old) == toolkit(new) {
        differ("toolchain", old.image.toolchain.clone(), new.image.toolchain.clone());
    }
    if old.image.build_key != new.image.build_key {
        differ("library", old.made.0.to_owned(), new.made.0.to_owned());
        if why.is_empty() {
            // Nothing else enters the build key: bundles hold release builds.
            why.push("options of the compiler".to_owned());
        }
    } else if old.digest != new.digest {
        why.push("the same build gave other bytes: another packer, or a compiler that is not reproducible".to_owned());
    }
    why
}

fn resources(old: Option<Resources>, new: Option<Resources>) -> Vec<Change> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let change = |name, before: u32, after: u32| Change { name, before: before.into(), after: after.into() };
    let all = [
        change("registers", old.registers, new.registers),
        change("shared memory", old.shared_bytes, new.shared_bytes),
        change("local memory", old.local_bytes, new.local_bytes),
        change("code", old.code_bytes, new.code_bytes),
    ];
    all.into_iter().filter(|c| c.before != c.after).collect()
}
