//! What a dump says of a call beside the values: `call.json`.

use super::line::alignment;
use super::sink;
use crate::call::Prepared;
use crate::code::Place;
use crate::driver;
use crate::library::Library;
use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use parbake_model::identity::Profile;
use parbake_model::op::{Op, Role};
use parbake_model::settings::{Config, SETTINGS};
use parbake_model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION, owner};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format of dumps that this library writes and reads.
pub const FORMAT: u32 = 1;
/// Addresses are told apart within that many bytes: memory of a replay is aligned to it.
pub(super) const BOUNDARY: u64 = 256;

/// How far a call came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was about to be launched. A dump that stays so is of a process that died in the call.
    Launched,
    /// It returned.
    Done,
    /// It returned an error.
    Failed,
}

/// A call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// How far it came.
    pub state: State,
    /// What it failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `family/op`.
    pub op: String,
    /// When its kernel was about to be launched, in UTC.
    pub time: String,
    /// The host.
    pub host: String,
    /// The process.
    pub process: u32,
    /// The number of the call in the log of that process.
    pub sequence: u64,
    /// The version of the library.
    pub library: String,
    /// Its launch ABI.
    pub launch_abi: u32,
    /// `host`, or `cuda:0`.
    pub place: String,
    /// The device, on a GPU.
    pub device: Option<Device>,
    /// The driver, on a GPU.
    pub driver: Option<Driver>,
    /// Whether the stream was being captured: then there are no values.
    pub captured: bool,
    /// The tensors that were given, in the op's order.
    pub tensors: Vec<Argument>,
    /// The memories that the tensors lie in; tensors that share bytes lie in the same one.
    pub memories: Vec<Memory>,
    /// Scalar → value, as the shortest decimal that reads back as the same number.
    pub scalars: BTreeMap<String, String>,
    /// The kernel.
    pub kernel: Kernel,
    /// All settings.
    pub settings: Vec<Setting>,
}

/// A GPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub target: Target,
    /// Bytes of memory.
    pub memory: u64,
}

/// A driver.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// The newest toolkit that it supports.
    pub version: Toolkit,
    /// The version of its kernel module, where the system tells it.
    pub module: Option<String>,
}

/// A tensor argument.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Which way its data went.
    pub role: Role,
    /// Its element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// The address of the first element, for a person.
    pub address: String,
    /// The largest power of two that divides the address, up to 4096.
    pub alignment: u64,
    /// Which of the memories it lies in.
    pub memory: usize,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Memory that tensors lie in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Its address, modulo 256.
    pub misalignment: u64,
    /// Bytes from the first element in it to past the last.
    pub bytes: u64,
}

/// The kernel that was launched.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The spec's URI.
    pub uri: String,
    /// The spec, as a person writes it.
    pub spec: String,
    /// Its `extern "C"` name.
    pub entry: String,
    /// The identity that survives edits.
    pub spec_id: Digest,
    /// The identity of what was compiled.
    pub source_key: Digest,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// SHA-256 of the artifact.
    pub image: Digest,
    /// What it was compiled for.
    pub target: Option<Target>,
    /// What a compiler would have been asked for.
    pub wanted: Target,
    /// The toolkit that compiled it; none for the host target.
    pub toolkit: Option<Toolkit>,
    /// The toolchain; a bundle tells it only in its details.
    pub toolchain: Option<String>,
    /// Its options, as the toolchain spells them.
    pub compile_options: Option<Vec<String>>,
    /// The op's options.
    pub options: BTreeMap<String, String>,
    /// Which kind of build.
    pub profile: Profile,
    /// Tactic → value.
    pub tactic: BTreeMap<String, u32>,
    /// `tuned` or `forced`, if it was not the launcher who chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// Where it came from for this call.
    pub from: String,
    /// Where it came from when it was loaded.
    pub loaded_from: String,
    /// The version bypass by which it was taken.
    pub version_bypass: Option<String>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Blocks of a cluster.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cluster: u32,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

/// A setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// `environment` or `default`.
    pub origin: String,
}

pub(super) fn settings(config: &Config) -> Vec<Setting> {
    let setting = |s| {
        let (value, origin) = config.shown(s);
        Setting { name: s.name.to_owned(), value, origin: origin.to_owned() }
    };
    SETTINGS.iter().map(setting).collect()
}

impl Kernel {
    pub(super) fn of(library: &Library, op: &Op, prepared: &Prepared) -> Self {
        let (kernel, launch) = (&prepared.kernel, &prepared.launch);
        let (toolchain, compile_options) = kernel.made_by.clone().unzip();
        let tactics = op.tactics.iter().zip(prepared.tactic.0);
        Self {
            uri: kernel.uri.clone(),
            spec: kernel.spec.to_string(),
            entry: kernel.entry.clone(),
            spec_id: kernel.spec.spec_id,
            source_key: kernel.decision.source_key,
            build_key: kernel.build_key,
            image: kernel.image,
            target: kernel.decision.target,
            wanted: kernel.wanted,
            toolkit: kernel.toolkit,
            toolchain,
            compile_options,
            options: op.options.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            profile: library.config.profile,
            tactic: tactics.map(|(t, value)| (t.name.clone(), value)).collect(),
            chosen: prepared.chosen.word().map(str::to_owned),
            from: prepared.from.to_string(),
            loaded_from: kernel.origin.to_string(),
            version_bypass: kernel.decision.version_bypass.clone(),
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            cluster: launch.cluster,
        }
    }
}

impl Record {
    /// A call that was checked and is about to be launched.
    pub(super) fn of(
        library: &Library,
        op: &Op,
        (tensors, scalars): (&[Tensor], &[f64]),
        place: Place,
        prepared: &Prepared,
        (sequence, captured): (u64, bool),
    ) -> Self {
        let given: Vec<_> = op.tensors.iter().zip(tensors).filter(|(_, t)| !t.is_absent()).collect();
        let (memories, places) = lay_out(&given.iter().map(|(_, t)| **t).collect::<Vec<_>>());
        let argument = |((def, tensor), (memory, offset)): ((&parbake_model::op::Tensor, &Tensor), (usize, u64))| {
            let address = tensor.data as u64;
            Argument {
                name: def.name.clone(),
                role: def.role,
                dtype: tensor.dtype,
                shape: tensor.shape().to_vec(),
                strides: tensor.strides().to_vec(),
                address: format!("{address:#x}"),
                alignment: alignment(address),
                memory,
                offset,
            }
        };
        let (device, driver) = machine(place);
        Self {
            format: FORMAT,
            state: State::Launched,
            error: None,
            op: op.path(),
            time: sink::now(),
            host: owner::host(),
            process: std::process::id(),
            sequence,
            library: VERSION.to_owned(),
            launch_abi: LAUNCH_ABI,
            place: place.to_string(),
            device,
            driver,
            captured,
            tensors: given.into_iter().zip(places).map(argument).collect(),
            memories,
            scalars: op.scalars.iter().zip(scalars).map(|(s, v)| (s.name.clone(), format!("{v:?}"))).collect(),
            kernel: Kernel::of(library, op, prepared),
            settings: settings(&library.config),
        }
    }
}

/// Device and driver of a place.
pub(super) fn machine(place: Place) -> (Option<Device>, Option<Driver>) {
    let Place::Cuda(ordinal) = place else { return (None, None) };
    let Ok((ready, device)) = driver::device(ordinal) else { return (None, None) };
    let target = Target::Sm(device.arch, parbake_model::Suffix::Baseline);
    let module = driver::kernel_module();
    let device = Device { name: device.name.clone(), target, memory: device.memory };
    (Some(device), Some(Driver { version: ready.version, module }))
}

/// Groups tensors that share bytes: the memory of each, and where in it.
fn lay_out(tensors: &[Tensor]) -> (Vec<Memory>, Vec<(usize, u64)>) {
    let range = |t: &Tensor| (t.data as u64, t.data as u64 + u64::try_from(t.extent()).unwrap_or(0));
    let mut sorted: Vec<usize> = (0..tensors.len()).collect();
    // Those without bytes come last, so that none stands between two that share some.
    sorted.sort_by_key(|&i| (tensors[i].is_empty(), range(&tensors[i])));
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut places = vec![(0, 0); tensors.len()];
    for i in sorted {
        let (start, end) = range(&tensors[i]);
        match ranges.last_mut() {
            Some(last) if start < last.1 && end > start => last.1 = last.1.max(end),
            _ => ranges.push((start, end)),
        }
        places[i] = (ranges.len() - 1, start - ranges[ranges.len() - 1].0);
    }
    let memory = |(start, end): (u64, u64)| Memory { misalignment: start % BOUNDARY, bytes: end - start };
    (ranges.into_iter().map(memory).collect(), places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_share_bytes_lie_in_one_memory() {
        let at = |address: usize, shape: &[i64]| Tensor::dense(address as *mut _, DType::F32, shape).unwrap();
        let tensors =
            [at(4096, &[4, 4]), at(1000, &[2]), at(4096, &[4, 4]), at(4128, &[20]), at(1008, &[1]), at(1004, &[0])];
        let (memories, places) = lay_out(&tensors);
        let of = |misalignment, bytes| Memory { misalignment, bytes };
        assert_eq!(memories, [of(232, 8), of(240, 4), of(0, 112), of(236, 0)]);
        assert_eq!(places, [(2, 0), (0, 0), (2, 0), (2, 32), (1, 0), (3, 0)]);
    }
}
