//! Which of the published bundles are needed.

use crate::published::{File, Index, Kind, Version, order};
use parbake::Library;
use parbake_model::bundle::Details;
use parbake_model::verdict::{Image, covers};
use parbake_model::{LAUNCH_ABI, Target, Toolkit, VERSION, glob};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Ops that something must be there for, on a target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub(super) struct Want {
    /// One pattern.
    pub(super) op: String,
    pub(super) target: Target,
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` for {}", self.op, self.target)
    }
}

/// A bundle, and its signature if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) bundle: File,
    pub(super) signature: Option<File>,
}

/// A version whose bundles this library can use.
pub(super) fn release(text: &str) -> Result<String, String> {
    let details = Details { library: text.to_owned(), launch_abi: LAUNCH_ABI, ..Details::default() };
    match Library::accepts(&details) {
        true => Ok(text.to_owned()),
        false => Err(format!("this library is {VERSION} and takes bundles of its caret range only")),
    }
}

/// What this library uses of an index: the version that is asked for and no other, else its own if that is there, else the
/// newest that fits.
pub(super) fn version<'a>(index: &'a Index, asked: Option<&str>) -> Result<&'a Version, String> {
    let fits = |v: &&Version| {
        let details = Details { library: v.library.clone(), launch_abi: v.launch_abi, ..Details::default() };
        Library::accepts(&details)
    };
    let asked_for = |v: &&Version| asked.is_none_or(|asked| v.library == asked);
    let mut fitting: Vec<&Version> = index.versions.iter().filter(fits).filter(asked_for).collect();
    fitting.sort_by(|a, b| (a.library == VERSION).cmp(&(b.library == VERSION)).then(order(&a.library, &b.library)));
    fitting.pop().ok_or_else(|| {
        let all = index.versions.iter().map(|v| format!("{} (launch ABI {})", v.library, v.launch_abi));
        let all: Vec<String> = all.collect();
        let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        match asked {
            Some(asked) => format!("its index has nothing of version {asked} (--release); there is {all}"),
            None => format!("it has nothing for version {VERSION}, launch ABI {LAUNCH_ABI}; there is {all}"),
        }
    })
}

/// The bundles of a version for what is wanted: for each, those that have the best kind of image for an op.
pub(super) fn pick(version: &Version, wants: &BTreeSet<Want>) -> Result<BTreeMap<Want, Vec<Job>>, String> {
    let files = version.files()?;
    let job = |bundle: &File| {
        let place = format!("{}{}", bundle.path, parbake::signature::SUFFIX);
        let signature = files.iter().find(|f| f.kind == Kind::Signature && f.path == place).cloned();
        Job { bundle: bundle.clone(), signature }
    };
    let ours = |f: &&File| f.machine.as_deref().is_none_or(|m| m == std::env::consts::ARCH);
    let bundles: Vec<&File> = files.iter().filter(|f| f.kind == Kind::Bundle && f.path.ends_with(".pbk")).collect();
    let mut picked = BTreeMap::new();
    for want in wants {
        let mut best = BTreeMap::<&str, (Rank, BTreeSet<usize>)>::new();
        for (at, file) in bundles.iter().enumerate().filter(|(_, f)| want.target != Target::Host || ours(f)) {
            for (op, targets) in file.ops.iter().filter(|(op, _)| glob::hits_path(&want.op, op)) {
                let Some(rank) = targets.iter().filter_map(|t| rank(*t, want.target)).min() else { continue };
                let (held, from) = best.entry(op).or_insert_with(|| (rank, BTreeSet::new()));
                if rank < *held {
                    (*held, *from) = (rank, BTreeSet::new());
                }
                if rank == *held {
                    from.insert(at);
                }
            }
        }
        let all: BTreeSet<usize> = best.into_values().flat_map(|(_, from)| from).collect();
        if !all.is_empty() {
            picked.insert(want.clone(), all.into_iter().map(|at| job(bundles[at])).collect());
        }
    }
    Ok(picked)
}

/// Smaller is better; the second part prefers the highest minor version.
type Rank = (parbake_model::verdict::Accept, Reverse<u16>);

/// How an image serves a target, if it does. Which toolkit made it is for the driver to judge, which may be elsewhere.
fn rank(image: Target, wanted: Target) -> Option<Rank> {
    let toolkit = Toolkit { major: 0, minor: 0 };
    let accept = covers(&Image { target: image, toolkit }, wanted).ok()?;
    Some((accept, Reverse(image.arch().map_or(0, |arch| arch.0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::SCHEMA;
    use parbake_model::Digest;

    fn index(files: &[(&str, &str, &str, &str)]) -> Index {
        let mut index = Index { schema: SCHEMA, versions: Vec::new() };
        for (library, name, op, targets) in files {
            let targets: BTreeSet<Target> = Target::parse_list(targets).unwrap().into_iter().collect();
            let file = File {
                kind: if name.ends_with(".pbk") { Kind::Bundle } else { Kind::Signature },
                machine: None,
                ops: [((*op).to_owned(), targets.clone())].into(),
                path: format!("v{library}/{name}"),
                sha256: Digest::default(),
                size: 1,
                targets,
                toolkits: BTreeSet::new(),
            };
            index.add(library, LAUNCH_ABI, &file).unwrap();
        }
        index
    }

    fn names(index: &Index, op: &str, target: &str) -> Vec<String> {
        let want = Want { op: op.to_owned(), target: target.parse().unwrap() };
        let picked = pick(version(index, None).unwrap(), &[want.clone()].into()).unwrap();
        let name = |job: &Job| format!("{}{}", job.bundle.name(), if job.signature.is_some() { "+" } else { "" });
        picked.get(&want).map(|jobs| jobs.iter().map(name).collect()).unwrap_or_default()
    }

    #[test]
    fn what_serves_a_target_best_is_picked_for_each_op() {
        let index = index(&[
            (VERSION, "a.pbk", "norm/rmsnorm", "90a"),
            (VERSION, "a.pbk.minisig", "", "90a"),
            (VERSION, "b.pbk", "norm/rmsnorm", "80,90"),
            (VERSION, "c.pbk", "rope/rope", "90"),
            (VERSION, "d.pbk", "norm/rmsnorm", "90a"),
        ]);
        assert_eq!(names(&index, "*", "sm_90a"), ["a.pbk+", "c.pbk", "d.pbk"]);
        assert_eq!(names(&index, "norm/*", "sm_86"), ["b.pbk"]);
        assert_eq!(names(&index, "rope", "sm_90"), ["c.pbk"]);
        assert!(names(&index, "rope", "sm_80").is_empty() && names(&index, "moe/*", "sm_90a").is_empty());
    }

    #[test]
    fn the_version_is_ours_or_the_newest_that_fits() {
        let (major, rest) = VERSION.split_once('.').unwrap();
        let minor: u32 = rest.split('.').next().unwrap().parse().unwrap();
        let later = |patch: u32| format!("{major}.{minor}.{patch}");
        let of = |versions: &[&str], asked: Option<&str>| {
            let files: Vec<_> = versions.iter().map(|v| (*v, "a.pbk", "norm/rmsnorm", "80")).collect();
            version(&index(&files), asked).map(|v| v.library.clone())
        };
        assert_eq!(of(&["99.0.0", VERSION, &later(77)], None).unwrap(), VERSION);
        assert_eq!(of(&["99.0.0", &later(100), &later(77)], None).unwrap(), later(100));
        assert_eq!(of(&["99.0.0", VERSION, &later(77)], Some(&later(77))).unwrap(), later(77));
        let older = of(&[&later(77), VERSION], Some(&later(100))).unwrap_err();
        assert!([VERSION, &later(77), &later(100)].iter().all(|v| older.contains(*v)), "{older}");
        let nothing = of(&["99.0.0"], None).unwrap_err();
        assert!(nothing.contains(VERSION) && nothing.contains("99.0.0"), "{nothing}");
    }
}
