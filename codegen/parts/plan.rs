//! A plan as a folder: each compilation as an action with named inputs, a command and one output, so that any engine
//! runs it. Paths are relative to the folder, which can be moved to other machines as it is.

use super::{Statement, Unit};
use parbake_model::bundle::Skipped;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema that is written, and the only one that is read.
const SCHEMA: u32 = 1;

/// No longer text is read: a quarter of a million units.
pub const MAX_PLAN: usize = 256 << 20;

/// The name of a plan's file in its folder.
pub const PLAN_FILE: &str = "plan.json";

/// A file that an action reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Where it is, from the plan's folder.
    pub path: String,
    /// What it holds.
    pub sha256: Digest,
}

/// One compilation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Readable name of the spec.
    pub uri: String,
    /// What it is compiled for.
    pub target: Target,
    /// The identity of what is compiled.
    pub source_key: Digest,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// The id of the one toolchain that it is for.
    pub toolchain: String,
    /// All that it reads besides toolchain and program.
    pub inputs: Vec<Input>,
    /// What to run in the plan's folder.
    pub command: Vec<String>,
    /// The one file that it writes.
    pub output: String,
}

/// The last action: it reads the outputs of all others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Last {
    /// What to run in the plan's folder.
    pub command: Vec<String>,
    /// The bundle.
    pub output: String,
}

/// A plan and how it is carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    schema: u32,
    /// The digest of the plan.
    pub digest: Digest,
    library: String,
    launch_abi: u32,
    targets: Vec<Target>,
    provenance: BTreeMap<String, String>,
    /// The compilations.
    pub units: Vec<Action>,
    /// Packs what they wrote.
    pub merge: Last,
    skipped: Vec<Skipped>,
}

/// Where the file of a unit is, and where its bundle goes.
#[must_use]
pub fn places(uri: &str, target: Target) -> (String, String) {
    (format!("units/{uri}.{target}.json"), format!("built/{uri}.{target}.pbk"))
}

impl PlanFile {
    /// The plan that a statement and its units' files make: for each unit, in its place, the id of its toolchain and the
    /// digest of its file.
    ///
    /// # Panics
    /// If there are other files than units.
    #[must_use]
    pub fn new(plan: &Statement, files: &[(String, Digest)], output: &str) -> Self {
        assert_eq!(plan.units.len(), files.len(), "bug: a file for each unit");
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let action = |(unit, (toolchain, sha256)): (&Unit, &(String, Digest))| {
            let (input, output) = places(&unit.uri, unit.target);
            Action {
                uri: unit.uri.clone(),
                target: unit.target,
                source_key: unit.source_key,
                build_key: unit.build_key,
                toolchain: toolchain.clone(),
                command: words(&["parbake", "compile", &input, "-o", &output]),
                inputs: vec![Input { path: input, sha256: *sha256 }],
                output,
            }
        };
        let command = words(&["parbake", "merge", "--plan", PLAN_FILE, "-o", output]);
        Self {
            schema: SCHEMA,
            digest: plan.digest(),
            library: plan.library.clone(),
            launch_abi: plan.launch_abi,
            targets: plan.targets.clone(),
            provenance: plan.provenance.clone(),
            units: plan.units.iter().zip(files).map(action).collect(),
            merge: Last { command, output: output.to_owned() },
            skipped: plan.skipped.clone(),
        }
    }

    /// What decides the result.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let unit = |action: &Action| Unit {
            source_key: action.source_key,
            target: action.target,
            build_key: action.build_key,
            uri: action.uri.clone(),
        };
        Statement {
            library: self.library.clone(),
            launch_abi: self.launch_abi,
            targets: self.targets.clone(),
            provenance: self.provenance.clone(),
            skipped: self.skipped.clone(),
            units: self.units.iter().map(unit).collect(),
        }
        .sorted()
    }

    /// The canonical text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("bug: a plan is plain data") + "\n"
    }

    /// Reads a text; `name` is what a person knows it by.
    ///
    /// # Errors
    /// A text that is no plan of this schema, or whose content is not what its digest names.
    pub fn from_json(text: &[u8], name: &str) -> Result<Self, Report> {
        let bad = || {
            let report = Report::new("PB-1141", Class::Failed, format!("`{name}` is no plan that can be used"));
            report.help("write it again: parbake build --plan json")
        };
        if text.len() > MAX_PLAN {
            return Err(bad().with("expected", format!("at most {MAX_PLAN} bytes")).with("got", text.len()));
        }
        let plan: Self = serde_json::from_slice(text).map_err(|e| bad().caused_by(e))?;
        if plan.schema != SCHEMA {
            return Err(bad().with("expected", format!("schema {SCHEMA}")).with("got", plan.schema));
        }
        let got = plan.statement().digest();
        if got == plan.digest { Ok(plan) } else { Err(bad().with("expected", plan.digest).with("got", got)) }
    }

    /// The same as a file of ninja. Outputs are made anew whenever their input is newer, and nothing else is known of
    /// them: a unit's file is all that it depends on.
    #[must_use]
    pub fn to_ninja(&self) -> String {
        let mut text = format!(
            "# Plan {}: {} compilations and a merge. Run by `ninja` in this folder; `parbake` is looked up in PATH.\n\
             ninja_required_version = 1.5\n\
             parbake = parbake\n\n\
             rule compile\n  command = $parbake compile $in -o $out\n  description = $out\n\n\
             rule merge\n  command = $parbake merge --plan $in -o $out\n  description = $out\n\n",
            self.digest,
            self.units.len()
        );
        for action in &self.units {
            let inputs: Vec<String> = action.inputs.iter().map(|input| escape(&input.path)).collect();
            text += &format!("build {}: compile {}\n", escape(&action.output), inputs.join(" "));
        }
        text += &format!("\nbuild {}: merge {PLAN_FILE} |", escape(&self.merge.output));
        for action in &self.units {
            text += &format!(" $\n  {}", escape(&action.output));
        }
        text + &format!("\n\ndefault {}\n", escape(&self.merge.output))
    }
}

/// A path as ninja reads it.
fn escape(path: &str) -> String {
    path.chars().fold(String::new(), |text, c| match c {
        '$' | ' ' | ':' => text + "$" + &c.to_string(),
        c => text + &c.to_string(),
    })
}
