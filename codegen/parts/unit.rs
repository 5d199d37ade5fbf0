//! One compilation as a file: everything that a compiler is given, so that whoever has the compiler can run it.

use super::PART_LEVEL;
use crate::artifact;
use crate::baking::provenance;
use crate::spill;
use crate::toolchain::{CompileManifest, Nvfatbin, Toolchain};
use parbake_model::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
use parbake_model::identity::build_key;
use parbake_model::op::Options;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The schema that is written, and the only one that is read.
const SCHEMA: u32 = 1;

/// No longer text is read: sources and headers of one kernel are far below it.
pub const MAX_UNIT: usize = 64 << 20;

/// A compilation that needs nothing but the compiler that it names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitFile {
    schema: u32,
    /// SHA-256 over this file with zeros in this place.
    digest: Digest,
    /// The version of the library that planned it.
    library: String,
    /// The launch ABI that it follows.
    launch_abi: u32,
    /// The spec, without images.
    pub spec: SpecDetails,
    /// Semantic options: the toolchain must spell them as the manifest does.
    options: Options,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// The toolkit of the toolchain; none for the host.
    pub toolkit: Option<Toolkit>,
    /// The id of the packer; none for the host.
    packer: Option<String>,
    /// For the host target the shim's texts, by include name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shim: BTreeMap<String, String>,
    /// What the compiler is given.
    pub compile: CompileManifest,
}

/// What of a unit's file is not in the manifest.
#[derive(Debug)]
pub struct Planned {
    /// The spec.
    pub spec: SpecDetails,
    /// Semantic options.
    pub options: Options,
    /// The toolkit of the toolchain; none for the host.
    pub toolkit: Option<Toolkit>,
    /// The id of the packer; none for the host.
    pub packer: Option<String>,
    /// For the host target the shim's texts.
    pub shim: BTreeMap<String, String>,
}

impl UnitFile {
    /// The file of a compilation.
    #[must_use]
    pub fn new(planned: Planned, compile: CompileManifest) -> Self {
        let Planned { spec, options, toolkit, packer, shim } = planned;
        let CompileManifest { target, toolchain, options: spelled, profile, .. } = &compile;
        let build_key = build_key(spec.source_key, *target, toolchain, spelled, *profile).digest;
        let (library, launch_abi) = (VERSION.to_owned(), LAUNCH_ABI);
        let none = Digest([0; 32]);
        let unit = Self {
            schema: SCHEMA,
            digest: none,
            library,
            launch_abi,
            spec,
            options,
            build_key,
            toolkit,
            packer,
            shim,
            compile,
        };
        Self { digest: Digest::of(unit.to_json().as_bytes()), ..unit }
    }

    /// The canonical text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: a unit is plain data") + "\n"
    }

    /// Reads a text; `name` is what a person knows it by.
    ///
    /// # Errors
    /// A text that is no unit of this schema, was altered, or was planned by another version.
    pub fn from_json(text: &[u8], name: &str) -> Result<Self, Report> {
        let bad = || Report::new("PB-1142", Class::Failed, format!("`{name}` is no unit that can be compiled"));
        let again = "write it again: parbake build --plan json";
        if text.len() > MAX_UNIT {
            return Err(bad().with("expected", format!("at most {MAX_UNIT} bytes")).with("got", text.len()));
        }
        let unit: Self = serde_json::from_slice(text).map_err(|e| bad().caused_by(e).help(again))?;
        if unit.schema != SCHEMA {
            return Err(bad().with("expected", format!("schema {SCHEMA}")).with("got", unit.schema));
        }
        let zeroed = Self { digest: Digest([0; 32]), ..unit.clone() };
        let got = Digest::of(zeroed.to_json().as_bytes());
        if got != unit.digest {
            return Err(bad()
                .with("expected", format!("content of digest {}", unit.digest))
                .with("got", got)
                .help(again));
        }
        if (unit.library.as_str(), unit.launch_abi) != (VERSION, LAUNCH_ABI) {
            let say = |library: &str, abi: u32| format!("library {library}, launch ABI {abi}");
            let what = format!("`{name}` was planned by another version");
            return Err(Report::new("PB-1143", Class::Failed, what)
                .with("expected", say(VERSION, LAUNCH_ABI))
                .with("got", say(&unit.library, unit.launch_abi))
                .help("compile it with the version of Parbake that planned it, or plan again"));
        }
        let CompileManifest { unit: source, target, toolchain, options, profile, .. } = &unit.compile;
        let key = build_key(unit.spec.source_key, *target, toolchain, options, *profile).digest;
        let fields: BTreeMap<String, String> =
            unit.options.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let gpu = *target != Target::Host;
        let disagrees = [
            ("build_key", key != unit.build_key),
            ("entry", source.entry != unit.spec.entry),
            ("options", fields != unit.spec.options),
            ("toolkit", gpu != unit.toolkit.is_some()),
            ("packer", gpu != unit.packer.is_some()),
            ("images", !unit.spec.images.is_empty()),
        ];
        match disagrees.into_iter().find(|(_, wrong)| *wrong) {
            Some((field, _)) => Err(bad().with("got", format!("a `{field}` that does not follow from the rest"))),
            None => Ok(unit),
        }
    }

    /// No toolchain is here that could be the one that was planned with.
    #[must_use]
    pub fn lacks(&self, why: &Report) -> Report {
        let what = "the toolchain that was planned with is not here";
        let report = Report::new("PB-1144", Class::Environment, what).with("expected", &self.compile.toolchain);
        let report = why.details.iter().fold(report, |report, (label, text)| report.with(label, text));
        why.help.iter().fold(report.caused_by(&why.what), |report, help| report.help(help))
    }

    /// Compiles with a toolchain, which must be the very one that was planned with, verifies what came out, and packs
    /// it as a bundle of one image.
    ///
    /// # Errors
    /// Another toolchain or packer, what the compiler said, or output that is not what was asked for.
    pub fn compile(&self, toolchain: &dyn Toolchain, packer: Option<&Nvfatbin>) -> Result<Vec<u8>, Report> {
        let Self { spec, build_key, compile, .. } = self;
        let other = |what: &str, planned: &str, here: &str, found: String| {
            let report =
                Report::new("PB-1144", Class::Environment, format!("{what} is another one than was planned with"));
            let report = report.with("expected", planned).with("got", here).with("found", found);
            report
                .help("install that one (parbake toolchain install), or plan again on a machine with these toolchains")
        };
        if toolchain.id() != compile.toolchain {
            return Err(other("the toolchain", &compile.toolchain, toolchain.id(), toolchain.describe()));
        }
        let here = packer.map(Nvfatbin::id);
        if here != self.packer.as_deref() {
            let found = packer.map_or("nothing".to_owned(), Nvfatbin::describe);
            let planned = self.packer.as_deref().unwrap_or("none");
            return Err(other("the packer", planned, here.unwrap_or("none"), found));
        }
        // The options of a file are not any options: they reach a compiler.
        let spelled = toolchain.spell(compile.target, &self.options, compile.profile);
        if spelled != compile.options {
            return Err(other(
                "the spelling of options",
                &compile.options.join(" "),
                &spelled.join(" "),
                "no file".into(),
            ));
        }
        let made = artifact::compile(&spec.spec(), compile, toolchain, spec.source_key, *build_key)?;
        // As a bake of all of them would.
        spill::refuse(std::slice::from_ref(&made.metadata))?;
        let bytes = match packer {
            Some(packer) => packer.fatbin(&made.bytes, compile.target).map_err(|e| e.report())?,
            None => made.bytes,
        };
        let image = ImageDetails {
            target: compile.target,
            toolkit: made.metadata.toolkit,
            toolchain: made.metadata.toolchain,
            build_key: *build_key,
            size: 0,
            resources: made.metadata.resources,
        };
        let packers: BTreeSet<String> = self.packer.iter().cloned().collect();
        let details = Details {
            library: self.library.clone(),
            launch_abi: self.launch_abi,
            targets: vec![compile.target],
            provenance: provenance(PART_LEVEL, &packers),
            ..Details::default()
        };
        let mut writer = BundleWriter::new(details, PART_LEVEL);
        let item = Item { spec: spec.clone(), image, bytes };
        let packed = writer.push(item).and_then(|()| writer.finish());
        packed.map_err(|e| Report::new(e.code(), Class::Failed, e.to_string()))
    }
}
