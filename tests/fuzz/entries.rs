//! What is fuzzed: one function for each reader of bytes that come from elsewhere. Each takes any bytes, returns in
//! bounded time, and panics if something that holds of every input does not.

use parbake_codegen::definition::{self, BadDefinition};
use parbake_codegen::layout;
use parbake_codegen::manifest::OpManifest;
use parbake_codegen::toolchain::CompileManifest;
use parbake_model::bundle::{Bundle, BundleWriter, Details, Item, Summary};
use parbake_model::glob::glob;
use parbake_model::identity::{Profile, build_key};
use parbake_model::metadata::Metadata;
use parbake_model::op::Op;
use parbake_model::settings::{Config, SETTINGS, boolean, nearest};
use parbake_model::source::{KernelTree, closure};
use parbake_model::verdict::{Image, covers, verdict};
use parbake_model::{Arch, Digest, Target, Toolkit, cubin, fatbin, space};
use std::sync::LazyLock;

/// The name of its target and corpus, and the function.
pub type Entry = (&'static str, fn(&[u8]));

/// All of them, sorted by name.
pub const ENTRIES: &[Entry] = &[
    ("bundle", bundle),
    ("cubin", cubin),
    ("definition", definition),
    ("dump", dump),
    ("fatbin", fatbin),
    ("includes", includes),
    ("manifest", manifest),
    ("metadata", metadata),
    ("patterns", patterns),
    ("settings", settings),
    ("targets", targets),
    ("toolkits", toolkits),
];

/// Opens a bundle, takes everything out of it and verifies it. What verifies can be read in full and packed again.
pub fn bundle(data: &[u8]) {
    let Ok(bundle) = Bundle::open(data.to_vec()) else { return };
    for entry in bundle.entries() {
        assert_eq!(bundle.find(entry.source_key, entry.target), Some(entry));
        assert!(bundle.targets_of(entry.source_key).any(|e| e == entry));
        if let Ok(bytes) = bundle.image(entry) {
            assert_eq!((bytes.len(), Digest::of(&bytes)), (entry.size as usize, entry.image));
        }
        let _ = verdict(&entry.judged(), Some(Arch(90)), Some(Toolkit { major: 13, minor: 0 }));
        let _ = covers(&entry.judged(), entry.target);
    }
    let details = bundle.details().ok().cloned();
    let items = bundle.items().ok().map(|items| items.collect::<Vec<_>>());
    match bundle.verify() {
        Ok(summary) => {
            let items = items.expect("its items are told").into_iter().map(|item| item.expect("each can be read"));
            packed_again(&details.expect("they are read"), items.collect(), &summary);
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            errors.iter().for_each(|e| assert!(!e.to_string().is_empty() && e.code().starts_with("PB-13")));
        }
    }
}

fn packed_again(details: &Details, items: Vec<Item>, summary: &Summary) {
    let mut writer = BundleWriter::new(details.clone(), 1);
    items.into_iter().for_each(|item| writer.push(item).expect("what verifies can be packed"));
    let again = Bundle::open(writer.finish().expect("what verifies can be packed")).expect("what is packed opens");
    let again = again.verify().expect("what is packed verifies");
    assert_eq!((again.specs, again.images, &again.targets), (summary.specs, summary.images, &summary.targets));
}

/// Reads a fatbin, and checks it as an image of a few targets.
pub fn fatbin(data: &[u8]) {
    let images = fatbin::read(data);
    if let Ok(images) = &images {
        let mut end = 0;
        for image in images {
            assert!(end < image.range.start && image.range.start <= image.range.end && image.range.end <= data.len());
            end = image.range.end;
        }
        assert!(images.is_empty() || end == data.len());
    }
    let labelled = images.iter().flatten().map(|image| image.target).take(1);
    for target in labelled.chain(["sm_90a", "compute_80"].map(|t| t.parse().expect("a target"))) {
        if let Ok(facts) = fatbin::check_single(data, target, "sample") {
            assert!(facts.target == target && facts.kernels.iter().any(|k| k == "sample"));
        }
        let _ = fatbin::check_single_ptx(data, target, "sample", Toolkit { major: 13, minor: 0 });
    }
}

/// Reads a cubin.
pub fn cubin(data: &[u8]) {
    match cubin::read(data) {
        Ok(facts) => {
            assert!(facts.kernels.is_sorted());
            assert!(facts.kernels.iter().all(|k| facts.resources.contains_key(k)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses an `op.toml`. What is accepted survives the generated manifest and has names that are safe in paths and in C.
pub fn definition(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let op = match definition::parse("norm/rmsnorm/op.toml", text) {
        Ok(op) => op,
        Err(BadDefinition { complaints, .. }) => {
            assert!(!complaints.is_empty() && complaints.iter().all(|c| c.line > 0 && c.column > 0));
            return;
        }
    };
    let json = serde_json::to_string(&op).expect("an op is plain data");
    assert_eq!(serde_json::from_str::<Op>(&json).expect("what was written"), op);
    assert!(space::size(&op) <= space::MAX_COMBINATIONS);
    for (spec, _) in space::specs(&op).take(64) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(spec.uri.starts_with(|c: char| c.is_ascii_lowercase()) && spec.uri.chars().all(plain), "{}", spec.uri);
        assert!(spec.uri.len() < 200, "{}", spec.uri);
        assert!(!spec.source_key(&op, Digest::default()).fields.is_empty());
        for target in [Target::Host, "sm_75".parse().expect("a target"), "sm_121a".parse().expect("a target")] {
            let _ = space::check(&op, &spec, Some(target));
        }
    }
}

/// Reads the generated manifest, a build's manifest and bindings.
pub fn manifest(data: &[u8]) {
    if let Ok(manifest) = serde_json::from_slice::<CompileManifest>(data) {
        let text = serde_json::to_vec(&manifest).expect("a manifest is plain data");
        assert_eq!(serde_json::from_slice::<CompileManifest>(&text).expect("what was written"), manifest);
        let _ = build_key(Digest::default(), manifest.target, &manifest.toolchain, &manifest.options, Profile::Release);
    }
    let _ = serde_json::from_slice::<OpManifest>(data);
    if let Ok(text) = std::str::from_utf8(data) {
        layout::from_bindings(text).iter().for_each(|(name, layout)| drop(layout.assertions(name)));
    }
}

/// Reads the metadata of a store entry. What is read is written as it was, or in its canonical form.
pub fn metadata(data: &[u8]) {
    match Metadata::from_json(data) {
        Ok(metadata) => {
            assert!(metadata.file == Metadata::file_for(metadata.target));
            assert_eq!(Metadata::from_json(metadata.to_json().as_bytes()).expect("what was written"), metadata);
        }
        Err(error) => assert!(!error.to_string().is_empty() && error.code().starts_with("PB-13")),
    }
}

/// Parses targets, one and a list of them. What is accepted is spelled in one way, whatever was typed.
pub fn targets(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Target>() {
        Ok(target) => {
            let spelled = target.to_string();
            assert_eq!(spelled.parse(), Ok(target));
            assert!(spelled == text || spelled.strip_prefix("sm_") == Some(text), "{text}");
            for toolkit in [Toolkit { major: 12, minor: 9 }, Toolkit { major: 0, minor: 0 }] {
                for wanted in ["host", "sm_80", "sm_100f", "sm_121a", "compute_90a"] {
                    let _ = covers(&Image { target, toolkit }, wanted.parse().expect("a target"));
                }
                for device in [0, 75, 90, 103, 999, u16::MAX] {
                    let _ = verdict(&Image { target, toolkit }, Some(Arch(device)), Some(toolkit));
                }
            }
        }
        Err(error) => assert!(!error.why.is_empty() && error.given.chars().count() <= 40),
    }
    if let Ok(list) = Target::parse_list(text) {
        assert!(!list.is_empty() && list.is_sorted_by(|a, b| a < b));
        let spelled = list.iter().map(Target::to_string).collect::<Vec<_>>().join(",");
        assert_eq!(Target::parse_list(&spelled), Ok(list));
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
}

/// Parses a CUDA version; the first four bytes are also what a driver says of itself.
pub fn toolkits(data: &[u8]) {
    if let Some(number) = data.first_chunk::<4>() {
        let _ = Toolkit::from_driver(i32::from_le_bytes(*number)).ptx_isa();
    }
    let Some(toolkit) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Toolkit>().ok()) else { return };
    assert_eq!(toolkit.to_string().parse(), Ok(toolkit));
    let (major, minor) = toolkit.ptx_isa();
    assert!(major <= toolkit.major && minor <= toolkit.minor);
    for image in ["sm_80", "sm_90a", "compute_80", "compute_100f"] {
        let image = Image { target: image.parse().expect("a target"), toolkit };
        for device in [75, 80, 90, 100, 121] {
            let _ = verdict(&image, Some(Arch(device)), Some(toolkit));
        }
    }
}

/// Reads settings, `NAME=VALUE` on each line.
pub fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs = || text.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned()));
    match Config::from_pairs(pairs()) {
        Ok(config) => {
            assert_eq!(Config::from_pairs(pairs()).as_ref(), Ok(&config));
            assert!(config.workspace.is_absolute() && config.toolchains.is_absolute() && config.jobs > 0);
            for setting in SETTINGS {
                let (value, origin) = config.shown(setting);
                let given = pairs().rfind(|(n, v)| n == setting.name && !v.is_empty());
                let given = given.map(|(_, v)| v).unwrap_or_default();
                assert!(origin == "default" && given.is_empty() || value == given, "{}", setting.name);
            }
        }
        Err(bad) => assert!(SETTINGS.iter().any(|s| s.name == bad.name) && !bad.expected.is_empty()),
    }
    for (name, value) in pairs().take(4) {
        let _ = (boolean(&value), nearest(&name, SETTINGS.iter().map(|s| s.name)));
    }
}

/// A tree with a cycle, a header that is not reached, and the shim.
static TREE: LazyLock<KernelTree> = LazyLock::new(|| {
    KernelTree::embedded(&[
        ("a/b.cuh", "#include \"a/c.cuh\"\n#include \"parbake/x.cuh\"\n"),
        ("a/c.cuh", "#include \"a/b.cuh\"\n#include \"host/pb_host.h\"\n"),
        ("host/pb_host.h", "#include <vector>\n"),
        ("include/parbake/x.cuh", "#pragma once\n"),
        ("include/parbake/y.cuh", "#include \"parbake/x.cuh\"\n"),
    ])
});

/// Scans a unit for its includes. Everything in the closure is a file of the tree, and so is all that these include.
pub fn includes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(found) = closure(&TREE, "u.cu", text) else { return };
    assert!(found.headers.keys().eq(found.paths.keys()));
    for (name, text) in &found.headers {
        assert!(TREE.has(&found.paths[name]) && !name.contains("..") && !name.starts_with('/'), "{name}");
        let inner = closure(&TREE, name, text).expect("it was scanned");
        assert!(inner.headers.keys().all(|k| found.headers.contains_key(k)), "{name}");
    }
}

/// Reads what a dump says of a call. What is taken is written and taken again as the same.
pub fn dump(data: &[u8]) {
    let Ok(record) = parbake::log::parse(data) else { return };
    for memory in record.tensors.iter().map(|t| t.memory) {
        assert!(memory < record.memories.len());
    }
    let again = serde_json::to_vec(&record).expect("a record is plain data");
    assert_eq!(parbake::log::parse(&again), Ok(record));
}

/// Matches a pattern, on the first line, against an op whose family and name follow.
pub fn patterns(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines();
    let (pattern, family, name) =
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    const OP: &str = r#"{"name":"o","family":"f","summary":"s","params":"p","since":"sm_80","host":true,
        "tolerance":{},"trace":{"op_type":"o","name_prefix":"o","example":[]}}"#;
    // Reading it takes longer than everything else here.
    static READ: LazyLock<Op> = LazyLock::new(|| serde_json::from_str(OP).expect("an op"));
    let op = Op { family: family.to_owned(), name: name.to_owned(), ..READ.clone() };
    assert!(glob("*", &op) && glob("*/*", &op));
    // A name is a pattern for itself, unless a pattern means more by what is in it, or blanks around it are not read.
    assert!(name.contains(['*', '?', ',']) || name.trim() != name || glob(name, &op));
    let _ = glob(pattern, &op);
}
