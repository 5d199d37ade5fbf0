//! Packing artifacts into a bundle.

use super::plan::Plan;
use super::threads::on_threads;
use crate::artifact::Made;
use crate::parts::Label;
use crate::spill;
use crate::toolchain::Nvfatbin;
use parbake_model::bundle::{BundleWriter, Details, ImageDetails, Item, PackError, Packed, SpecDetails, Unit};
use parbake_model::metadata::Metadata;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::verdict::{self, Image};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

/// Whether images of these targets and toolkits run on drivers from a floor on.
///
/// # Errors
/// The targets that do not, and why.
pub fn check_driver_floor(images: impl IntoIterator<Item = (Target, Toolkit)>, floor: Toolkit) -> Result<(), Report> {
    let mut report =
        Report::new("PB-1113", Class::Failed, format!("some images do not run on a driver of CUDA {floor}"));
    for (target, toolkit) in images {
        if let Err(why) = verdict::verdict(&Image { target, toolkit }, target.arch(), Some(floor)) {
            report = report.with(target.to_string(), why);
        }
    }
    if report.details.is_empty() {
        Ok(())
    } else {
        Err(report.help("compile with an older toolkit (--toolkit), or raise --min-driver"))
    }
}

/// What a bundle records of how it was packed: the level of compression, and the packers.
#[must_use]
pub fn provenance(level: i32, packers: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut provenance = BTreeMap::from([("level".to_owned(), level.to_string())]);
    if !packers.is_empty() {
        let packers: Vec<&str> = packers.iter().map(String::as_str).collect();
        provenance.insert("packer".to_owned(), packers.join(", "));
    }
    provenance
}

/// The packer that belongs to a target and a toolkit.
pub type Packer<'a> = dyn Fn(Target, Toolkit) -> Result<Arc<Nvfatbin>, Report> + 'a;

/// Where packed images are kept between bakes.
pub trait Keep: Sync {
    /// What was kept under a key.
    fn get(&self, key: Digest) -> Option<Packed>;
    /// Keeps something; not being able to is no error.
    fn put(&self, key: Digest, packed: &Packed);
}

/// How artifacts are packed.
pub struct Packing<'a> {
    /// The digest of an op's parameters ([`parbake_model::source::params_digest`]).
    pub params: &'a dyn Fn(&Op) -> Result<Digest, Report>,
    /// Wraps images for a GPU.
    pub nvfatbin: &'a Packer<'a>,
    /// Compression.
    pub level: i32,
    /// Threads that compress.
    pub threads: usize,
    /// Where compressed frames are kept, if they are.
    pub keep: Option<&'a dyn Keep>,
}

/// Packs artifacts that were made in memory ([`pack_from`]).
///
/// # Errors
/// As there.
pub fn pack(plan: &Plan<'_>, made: Vec<Made>, packing: &Packing<'_>) -> Result<Vec<u8>, Report> {
    let (bytes, metadata): (Vec<_>, Vec<_>) = made.into_iter().map(|m| (m.bytes, m.metadata)).unzip();
    pack_from(plan, &metadata, &|i| Ok(bytes[i].clone()), packing)
}

/// Packs artifacts into a bundle: `made` says what the plan's artifacts are, in its order, and `bytes` gives the bytes of
/// one. GPU images become fatbins of one image each, by the packer of their own toolkit. Only the images of one op and
/// target a thread are in memory at a time, and what was compressed before is not read.
///
/// # Errors
/// A kernel that spills, a packer that is missing or fails, or an image that is not what its metadata says.
pub fn pack_from(
    plan: &Plan<'_>,
    made: &[Metadata],
    bytes: &(dyn Fn(usize) -> Result<Vec<u8>, Report> + Sync),
    packing: &Packing<'_>,
) -> Result<Vec<u8>, Report> {
    spill::refuse(made)?;
    let wrapped: BTreeSet<(Target, Toolkit)> = made.iter().filter_map(|m| Some((m.target, m.toolkit?))).collect();
    let wrapped = wrapped.into_iter().filter(|(target, _)| *target != Target::Host);
    let packers: BTreeMap<_, _> = wrapped
        .map(|(target, toolkit)| Ok(((target, toolkit), (packing.nvfatbin)(target, toolkit)?)))
        .collect::<Result<_, Report>>()?;
    let ids = packers.values().map(|p| p.id().to_owned()).collect();
    let mut params: BTreeMap<&str, Digest> = BTreeMap::new();
    let mut pieces = Vec::with_capacity(made.len());
    for (place, (job, metadata)) in plan.jobs.iter().zip(made).enumerate() {
        let params = match params.entry(&job.op.name) {
            btree_map::Entry::Occupied(known) => *known.get(),
            btree_map::Entry::Vacant(new) => *new.insert((packing.params)(job.op)?),
        };
        let image = ImageDetails {
            target: metadata.target,
            toolkit: metadata.toolkit,
            toolchain: metadata.toolchain.clone(),
            build_key: metadata.build_key,
            size: 0,
            resources: metadata.resources,
        };
        let spec = SpecDetails::new(&job.spec, metadata.source_key, params, &job.op.options);
        pieces.push((Unit { spec, image }, place));
    }
    pieces.sort_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
    let groups: Vec<&[(Unit, usize)]> =
        pieces.chunk_by(|(a, _), (b, _)| (&a.spec.op, a.image.target) == (&b.spec.op, b.image.target)).collect();

    let (keep, level) = (packing.keep, packing.level);
    let one = |group: &[(Unit, usize)]| -> Result<(Vec<Unit>, Packed), Report> {
        let units: Vec<Unit> = group.iter().map(|(unit, _)| unit.clone()).collect();
        let digests: Vec<Digest> = group.iter().map(|&(_, place)| made[place].image).collect();
        let packer = |unit: &Unit| unit.image.toolkit.and_then(|toolkit| packers.get(&(unit.image.target, toolkit)));
        let key = Packed::key(&units, &digests, packer(&units[0]).map_or("", |p| p.id()), level);
        if let Some(packed) = keep.and_then(|keep| keep.get(key)) {
            return Ok((units, packed));
        }
        let items = group.iter().map(|(unit, place)| {
            let bytes = bytes(*place)?;
            let bytes = match packer(unit) {
                Some(packer) => packer.fatbin(&bytes, unit.image.target).map_err(|e| e.report())?,
                None => bytes,
            };
            Ok(Item { spec: unit.spec.clone(), image: unit.image.clone(), bytes })
        });
        let packed = Packed::of(&items.collect::<Result<Vec<_>, Report>>()?, level).map_err(failed)?;
        if let Some(keep) = keep {
            keep.put(key, &packed);
        }
        Ok((units, packed))
    };
    let details = Details {
        library: VERSION.to_owned(),
        launch_abi: LAUNCH_ABI,
        toolchains: Vec::new(),
        targets: plan.targets.clone(),
        specs: Vec::new(),
        skipped: plan.skipped.clone(),
        provenance: plan.label.as_ref().map_or_else(|| provenance(packing.level, &ids), Label::provenance),
    };
    let mut writer = BundleWriter::new(details, packing.level);
    for packed in on_threads(packing.threads, &groups, &|group: &&[(Unit, usize)]| one(group)) {
        let (units, packed) = packed?;
        writer.push_packed(units, packed);
    }
    writer.finish().map_err(failed)
}

fn failed(error: PackError) -> Report {
    let report = Report::new(error.code(), Class::Failed, error.to_string());
    std::error::Error::source(&error).map_or(report.clone(), |source| report.caused_by_chain(source))
}
