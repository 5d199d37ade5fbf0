//! The index of a folder that `parbake publish` writes and `parbake fetch` reads.
//!
//! Canonical JSON: keys in alphabetical order, two spaces, one newline at the end. Files of versions that a program does
//! not know the like of are kept as they are, so that an older one publishes beside a newer one's.

use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Target, Toolkit};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The schema that is written, and the only one that is read.
pub(crate) const SCHEMA: u32 = 1;

/// The name of the index, in the folder that is published.
pub(crate) const INDEX: &str = "index.json";

/// No longer index is read: some ten thousand files.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// What a folder holds. Fields here and below are in alphabetical order, as they are written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) schema: u32,
    /// Versions of the library, ascending.
    pub(crate) versions: Vec<Version>,
}

/// What there is for a version of the library.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    /// A [`File`] each, by path.
    files: Vec<serde_json::Value>,
    pub(crate) launch_abi: u32,
    pub(crate) library: String,
}

/// A published file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) kind: Kind,
    /// The kind of processor that images for the host run on; none if there are no such images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    /// `family/op` → targets, of a bundle and of a wheel with bundles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ops: BTreeMap<String, BTreeSet<Target>>,
    /// Below the folder: `v0.1.0/norm.pbk`.
    pub(crate) path: String,
    pub(crate) sha256: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) targets: BTreeSet<Target>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) toolkits: BTreeSet<Toolkit>,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Bundle,
    /// Of the bundle whose path it begins with.
    Signature,
    Wheel,
    /// Something that a later version publishes.
    #[serde(other)]
    Other,
}

/// What every row has, whatever it is about.
#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) sha256: Digest,
}

/// What is inside a bundle, or inside several.
#[derive(Default)]
pub(crate) struct Contents {
    ops: BTreeMap<String, BTreeSet<Target>>,
    targets: BTreeSet<Target>,
    toolkits: BTreeSet<Toolkit>,
}

impl Contents {
    /// Adds a bundle that was verified; `path_of` gives `family/op` for an op.
    pub(crate) fn add(&mut self, bundle: &Bundle, path_of: &dyn Fn(&str) -> String) {
        self.targets.extend(bundle.entries().iter().map(|e| e.target));
        self.toolkits.extend(bundle.entries().iter().filter_map(|e| e.toolkit));
        let details = bundle.details().expect("bug: the bundle was verified");
        for spec in &details.specs {
            self.ops.entry(path_of(&spec.op)).or_default().extend(spec.images.iter().map(|i| i.target));
        }
    }

    /// The row of a file that holds this.
    pub(crate) fn file(self, kind: Kind, path: String, size: u64, sha256: Digest) -> File {
        let machine = self.targets.contains(&Target::Host).then(|| std::env::consts::ARCH.to_owned());
        File { kind, machine, ops: self.ops, path, sha256, size, targets: self.targets, toolkits: self.toolkits }
    }
}

impl File {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The folder of a version.
pub(crate) fn folder(library: &str) -> String {
    format!("v{library}")
}

/// Whether a name can be that of a file on any server and in any shell, hidden by none.
pub(crate) fn plain(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-+,".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(good) && name.len() <= 200
}

/// Older versions first. A pre-release is older than its release.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let key = |version: &str| {
        let (release, pre) = version.split_once('-').map_or((version, None), |(r, p)| (r, Some(p.to_owned())));
        let numbers: Vec<u64> = release.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        (numbers, pre.is_none(), pre)
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

impl Version {
    /// The files that this program understands.
    pub(crate) fn files(&self) -> Result<Vec<File>, String> {
        let file = |value: &serde_json::Value| File::deserialize(value).map_err(|e| e.to_string());
        self.files.iter().map(file).collect()
    }

    /// Path and hash of every file.
    fn rows(&self) -> impl Iterator<Item = Result<Row, String>> {
        self.files.iter().map(|value| Row::deserialize(value).map_err(|e| e.to_string()))
    }
}

impl Index {
    /// One without files.
    pub(crate) fn empty() -> Self {
        Self { schema: SCHEMA, versions: Vec::new() }
    }

    /// Reads an index; an error says what is wrong with it.
    pub(crate) fn from_json(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct OnlySchema {
            schema: u64,
        }
        let start = String::from_utf8_lossy(&text[..text.len().min(64)]).trim_start().to_ascii_lowercase();
        if start.starts_with("<!doctype") || start.starts_with("<html") {
            return Err("it is a page of HTML".to_owned());
        }
        let OnlySchema { schema } = serde_json::from_slice(text).map_err(|e| format!("it is no index: {e}"))?;
        if schema != u64::from(SCHEMA) {
            return Err(format!("it has schema {schema}; this program reads schema {SCHEMA}"));
        }
        let index: Self = serde_json::from_slice(text).map_err(|e| format!("it is no index: {e}"))?;
        for version in &index.versions {
            let folder = folder(&version.library);
            for row in version.rows() {
                let path = row.map_err(|e| format!("it is no index: a file of {}: {e}", version.library))?.path;
                let name = path.strip_prefix(&folder).and_then(|rest| rest.strip_prefix('/'));
                if !plain(&folder) || !name.is_some_and(plain) {
                    return Err(format!("it names `{path}`; expected a plain name in {folder}/"));
                }
            }
        }
        Ok(index)
    }

    /// The canonical text.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: an index is plain data") + "\n"
    }

    /// The hash that is recorded for a path.
    pub(crate) fn hash(&self, path: &str) -> Option<Digest> {
        self.rows().find(|row| row.path == path).map(|row| row.sha256)
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.versions.iter().flat_map(|v| v.rows()).map(|row| row.expect("bug: rows were read before"))
    }

    /// What `sha256sum -c` takes.
    pub(crate) fn sums(&self) -> String {
        self.rows().map(|row| format!("{}  {}\n", row.sha256, row.path)).collect()
    }

    /// Adds a file of a version, unless it is there. Another launch ABI of the same version is an error.
    pub(crate) fn add(&mut self, library: &str, launch_abi: u32, file: &File) -> Result<(), Report> {
        let at = match self.versions.binary_search_by(|v| order(&v.library, library)) {
            Ok(at) => at,
            Err(at) => {
                self.versions.insert(at, Version { files: Vec::new(), launch_abi, library: library.to_owned() });
                at
            }
        };
        let version = &mut self.versions[at];
        if version.launch_abi != launch_abi {
            let what = format!("{} is of another launch ABI than what is published of version {library}", file.path);
            return Err(Report::new("PB-3407", Class::Failed, what)
                .with("expected", format!("launch ABI {}", version.launch_abi))
                .with("got", format!("launch ABI {launch_abi}"))
                .help("publish into a folder of its own: one library cannot use both"));
        }
        let path = |value: &serde_json::Value| value["path"].as_str().unwrap_or_default().to_owned();
        if let Err(at) = version.files.binary_search_by_key(&file.path, path) {
            version.files.insert(at, serde_json::to_value(file).expect("bug: a file is plain data"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> File {
        Contents::default().file(Kind::Wheel, path.to_owned(), 3, Digest::of(b"abc"))
    }

    #[test]
    fn an_index_is_sorted_and_survives_a_trip() {
        let mut index = Index::empty();
        for (library, name) in [("0.10.0", "a"), ("0.9.0", "b"), ("0.9.0", "a"), ("0.10.0-rc.1", "c"), ("0.9.0", "a")] {
            index.add(library, 1, &file(&format!("v{library}/{name}"))).unwrap();
        }
        let text = index.to_json();
        assert_eq!(Index::from_json(text.as_bytes()).unwrap().to_json(), text);
        let paths: Vec<String> = index.rows().map(|r| r.path).collect();
        assert_eq!(paths, ["v0.9.0/a", "v0.9.0/b", "v0.10.0-rc.1/c", "v0.10.0/a"]);
        assert_eq!(index.hash("v0.9.0/a"), Some(Digest::of(b"abc")));
        assert_eq!(index.sums().lines().count(), 4);
        assert_eq!(index.add("0.9.0", 2, &file("v0.9.0/d")).unwrap_err().code, "PB-3407");
    }

    #[test]
    fn what_a_later_version_adds_is_kept() {
        let later = r#"{"schema": 1, "versions": [{"files": [{"colour": "red", "kind": "poem", "path": "v9.0.0/a",
            "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "size": 3,
            "targets": ["sm_999"]}], "launch_abi": 7, "library": "9.0.0"}]}"#;
        let mut index = Index::from_json(later.as_bytes()).unwrap();
        index.add("0.1.0", 1, &file("v0.1.0/a")).unwrap();
        assert!(index.to_json().contains("sm_999") && index.to_json().contains("red"));
        assert!(index.versions[1].files().is_err() && index.versions[0].files().is_ok());
    }

    #[test]
    fn what_is_no_index_says_so() {
        let wrong = |text: &str| Index::from_json(text.as_bytes()).unwrap_err();
        assert!(wrong("\n<!DOCTYPE html><html>").contains("HTML"));
        assert!(wrong("{\"schema\": 2}").contains("schema 2"));
        assert!(wrong("{").contains("no index") && wrong("{\"schema\": 1}").contains("versions"));
        let text = Index { versions: vec![], ..Index::empty() };
        let mut text = text;
        text.add("0.1.0", 1, &file("v0.1.0/a.pbk")).unwrap();
        let text = text.to_json();
        for bad in ["/etc/passwd", "v0.1.0/../a", "v0.1.0/.a", "v0.1.0/a b", "v0.2.0/a", "v0.1.0/x/a", "v0.1.0/"] {
            assert!(wrong(&text.replace("v0.1.0/a.pbk", bad)).contains("plain name"), "{bad}");
        }
    }
}
