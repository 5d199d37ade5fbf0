//! One artifact: what a toolchain is given, and the judgement on what it gave back.

use crate::layout;
use crate::registry::Entry;
use crate::render::{self, RenderError};
use crate::spill;
use crate::toolchain::{CompileManifest, Toolchain, Unit};
use parbake_model::identity::{self, Profile, Spec};
use parbake_model::metadata::{self, Metadata};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::{Digest, Key, LAUNCH_ABI, Target, VERSION, cubin, fatbin, shared_object};

/// The bytes of an artifact and what they are.
#[derive(Clone, Debug)]
pub struct Made {
    /// A cubin, or a shared object for the host.
    pub bytes: Vec<u8>,
    /// What they are.
    pub metadata: Metadata,
}

/// The key of the build that a toolchain would make. Nothing is rendered for it.
#[must_use]
pub fn build_key(toolchain: &dyn Toolchain, op: &Op, source_key: Digest, target: Target, profile: Profile) -> Key {
    let options = toolchain.spell(target, &op.options, profile);
    identity::build_key(source_key, target, toolchain.id(), &options, profile)
}

/// What a toolchain would be given.
///
/// # Errors
/// A template that cannot be rendered.
pub fn plan(
    entry: &Entry,
    spec: &Spec,
    target: Target,
    toolchain: &dyn Toolchain,
    profile: Profile,
) -> Result<CompileManifest, RenderError> {
    let text = render::unit(entry, spec, &layout::committed())?;
    let closure = entry.sources.closure.clone();
    let unit =
        Unit { name: format!("{}.{}", spec.uri, entry.op.language.extension()), text, entry: spec.entry(), closure };
    Ok(toolchain.plan(unit, target, &entry.op.options, profile))
}

/// Compiles, and judges what came out: exit status 0 is not proof of output.
///
/// # Errors
/// What the compiler said, or how its output differs from what was asked for.
pub fn compile(
    spec: &Spec,
    manifest: &CompileManifest,
    toolchain: &dyn Toolchain,
    source_key: Digest,
    build_key: Digest,
) -> Result<Made, Report> {
    let mut compiled = toolchain.compile(manifest).map_err(|e| e.report())?;
    let target = manifest.target;
    let wrong = |why: String| {
        Report::new("PB-1512", Class::Failed, format!("{} gave output that is not what was asked for", toolchain.id()))
            .with("expected", format!("{} for {target}", spec.entry()))
            .with("got", why)
    };
    let mut resources = None;
    if target == Target::Host {
        let exports = shared_object::exports(&compiled.bytes).map_err(wrong)?;
        if !exports.contains(&spec.entry().as_str()) {
            return Err(wrong(format!("a shared object that exports {exports:?}")));
        }
    }
    if let (Target::Compute(..), Some(toolkit)) = (target, toolchain.toolkit()) {
        fatbin::check_ptx(&compiled.bytes, target, &spec.entry(), toolkit).map_err(|e| wrong(e.to_string()))?;
    }
    if let Target::Sm(..) = target {
        let facts = cubin::read(&compiled.bytes).map_err(|e| wrong(e.to_string()))?;
        let same_arch = facts.target.arch() == target.arch();
        if !same_arch || (facts.suffix_known && facts.target != target) {
            return Err(wrong(format!("code for {}", facts.target)));
        }
        if facts.kernels != [spec.entry()] {
            return Err(wrong(format!("kernels {:?}", facts.kernels)));
        }
        resources = facts.resources.get(&spec.entry()).copied();
        if manifest.profile == Profile::Release && resources.is_some_and(|r| r.local_bytes > 0) {
            compiled.log += &spill::ask(manifest, toolchain);
        }
    }
    let metadata = Metadata {
        schema: metadata::SCHEMA,
        op: spec.op.clone(),
        uri: spec.uri.clone(),
        spec: spec.clone(),
        entry: spec.entry(),
        target,
        source_key,
        build_key,
        launch_abi: LAUNCH_ABI,
        library: VERSION.to_owned(),
        toolchain: toolchain.id().to_owned(),
        toolkit: toolchain.toolkit(),
        options: manifest.options.clone(),
        profile: manifest.profile,
        image: Digest::of(&compiled.bytes),
        size: compiled.bytes.len() as u64,
        file: Metadata::file_for(target).to_owned(),
        resources,
        compile_ms: compiled.milliseconds,
        log: compiled.log,
    };
    Ok(Made { bytes: compiled.bytes, metadata })
}
