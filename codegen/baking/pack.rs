//! Packing artifacts into a bundle.

use super::plan::Plan;
use crate::artifact::Made;
use crate::toolchain::Nvfatbin;
use parbake_model::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::verdict::{self, Image};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use std::collections::{BTreeMap, BTreeSet};
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

/// Packs artifacts into a bundle. GPU images become fatbins of one image each, by the packer of their own toolkit.
/// `params` gives the digest of an op's parameters ([`parbake_model::source::params_digest`]).
///
/// # Errors
/// A packer that is missing or fails, or an image that is not what its metadata says.
pub fn pack(
    plan: &Plan<'_>,
    made: Vec<Made>,
    params: &dyn Fn(&Op) -> Result<Digest, Report>,
    nvfatbin: &dyn Fn(Target, Toolkit) -> Result<Arc<Nvfatbin>, Report>,
    level: i32,
    threads: usize,
) -> Result<Vec<u8>, Report> {
    let failed = |e: &dyn std::error::Error, code| {
        let report = Report::new(code, Class::Failed, e.to_string());
        e.source().map_or(report.clone(), |s| report.caused_by_chain(s))
    };
    let images: BTreeSet<(Target, Toolkit)> =
        made.iter().filter_map(|m| Some((m.metadata.target, m.metadata.toolkit?))).collect();
    let packed = images.into_iter().filter(|(target, _)| *target != Target::Host);
    let packers = packed
        .map(|(target, toolkit)| Ok(nvfatbin(target, toolkit)?.id().to_owned()))
        .collect::<Result<BTreeSet<_>, Report>>()?;
    let details = Details {
        library: VERSION.to_owned(),
        launch_abi: LAUNCH_ABI,
        toolchains: Vec::new(),
        targets: plan.targets.clone(),
        specs: Vec::new(),
        skipped: plan.skipped.clone(),
        provenance: provenance(level, &packers),
    };
    let mut writer = BundleWriter::new(details, level).jobs(threads);
    for (job, Made { bytes, metadata }) in plan.jobs.iter().zip(made) {
        let bytes = match (metadata.target, metadata.toolkit) {
            (Target::Sm(..) | Target::Compute(..), Some(toolkit)) => {
                nvfatbin(metadata.target, toolkit)?.fatbin(&bytes, metadata.target).map_err(|e| e.report())?
            }
            _ => bytes,
        };
        let image = ImageDetails {
            target: metadata.target,
            toolkit: metadata.toolkit,
            toolchain: metadata.toolchain,
            build_key: metadata.build_key,
            size: 0,
            resources: metadata.resources,
        };
        let spec = SpecDetails::new(&job.spec, metadata.source_key, params(job.op)?, &job.op.options);
        writer.push(Item { spec, image, bytes }).map_err(|e| failed(&e, e.code()))?;
    }
    writer.finish().map_err(|e| failed(&e, e.code()))
}
