//! Replays: the call of a dump once more, and what came of it.

use super::dumped::{DumpError, Dumped};
use super::line::one_line;
use super::record::{self, Argument, State};
use crate::binding::{MAX_TACTICS, Rule, Tactic};
use crate::call::Also;
use crate::code::{Kernel, Place, Stream};
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::memory::Memory;
use crate::tensor::Tensor;
use crate::trial::Judge;
use parbake_model::VERSION;
use parbake_model::op::{Op, Role};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes around each memory that must stay as they are. A multiple of the boundary that addresses are told apart by.
const GUARD: usize = 512;
const POISON: u8 = 0xff;

/// How values compare with the recorded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every bit is the same.
    BitExact,
    /// Every element is within the op's tolerance.
    WithinTolerance,
    /// An element is not.
    Differs,
}

/// A tensor that was written, compared with the recorded one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// How it compares.
    pub verdict: Verdict,
    /// The largest distance.
    pub max_abs_err: f64,
    /// The first element that is too far away.
    pub wrong: Option<String>,
}

/// The values compared with the float64 reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Against {
    /// The largest distance from it.
    pub max_abs_err: f64,
    /// The largest distance, as a share of it.
    pub max_rel_err: f64,
    /// What is allowed.
    pub tolerance: String,
    /// The first thing that is wrong.
    pub wrong: Option<String>,
}

/// Something that is not as it was when the call was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// What it was.
    pub recorded: String,
    /// What it is.
    pub now: String,
}

/// What came of a replay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Replayed {
    /// The dump.
    pub dump: String,
    /// `family/op`.
    pub op: String,
    /// Where it ran.
    pub place: String,
    /// How far the recorded call came.
    pub recorded: State,
    /// What the recorded call failed with.
    pub recorded_error: Option<String>,
    /// The kernel that ran.
    pub uri: String,
    /// How often it ran.
    pub runs: u32,
    /// What it failed with.
    pub error: Option<String>,
    /// Each tensor that it wrote, compared with the recorded values; empty if there are none.
    pub outputs: Vec<Compared>,
    /// The comparison with the reference.
    pub reference: Option<Against>,
    /// Whether all runs gave the same bits.
    pub repeatable: bool,
    /// What is not as it was.
    pub differences: Vec<Difference>,
    /// Whether it gave the recorded values, and what the reference allows.
    pub ok: bool,
}

/// What one run left.
struct Run {
    /// Each tensor that was written, dense.
    written: BTreeMap<String, Vec<u8>>,
    /// What was written and belongs to no tensor that may be.
    stray: Option<String>,
}

impl Dumped {
    /// Calls the op with the recorded arguments, laid out as they were: strides, alignment and shared memory. The recorded
    /// tactic is tried first, whatever would be chosen now; if it is not legal any more, the differences say so.
    ///
    /// A kernel that fails is no error but a [`Replayed`] that is not `ok`. One that takes the process down does so again.
    ///
    /// # Errors
    /// A dump that is not whole or does not fit; an op that cannot be called here.
    pub fn replay(&self, library: &Library, place: Place, times: u32) -> Result<Replayed, DumpError> {
        let (op, scalars) = self.call(library)?;
        let def = library.definition(op);
        let inputs = self.inputs()?;
        let recorded = self.outputs()?;
        let tactic = self.tactic(def);
        let kernel = self.kernel(library, op, &scalars, place, tactic.as_ref())?;
        let mut replayed = Replayed {
            dump: self.folder.display().to_string(),
            op: def.path(),
            place: place.to_string(),
            recorded: self.record.state,
            recorded_error: self.record.error.clone(),
            uri: kernel.uri.clone(),
            runs: 0,
            error: None,
            outputs: Vec::new(),
            reference: None,
            repeatable: true,
            differences: [self.kernel_differences(&kernel), self.surroundings(library, place)].concat(),
            ok: false,
        };
        let mut first: Option<Run> = None;
        for _ in 0..times.max(1) {
            let run = match self.run(library, op, (&inputs, &scalars), place, tactic.as_ref()) {
                Err(DumpError::Call(error @ (Error::Driver(_) | Error::Host { .. }))) => {
                    replayed.error = Some(one_line(&error));
                    return Ok(replayed);
                }
                other => other?,
            };
            replayed.runs += 1;
            match &first {
                Some(first) => replayed.repeatable &= first.written == run.written,
                None => first = Some(run),
            }
        }
        let run = first.expect("bug: a replay of no run");
        if let Some(recorded) = &recorded {
            replayed.outputs = self.compare(def, recorded, &run);
        }
        let mut reference = self.judge(library, op, &inputs, &scalars, &run)?;
        reference.wrong = reference.wrong.or(run.stray);
        let same = replayed.outputs.iter().all(|o| o.verdict != Verdict::Differs);
        replayed.ok = same && reference.wrong.is_none() && replayed.repeatable;
        replayed.reference = Some(reference);
        Ok(replayed)
    }

    /// The recorded tactic, if the op still has its parts.
    fn tactic(&self, op: &Op) -> Option<Tactic> {
        let (recorded, mut tactic) = (&self.record.kernel.tactic, Tactic([0; MAX_TACTICS]));
        for (place, declared) in tactic.0.iter_mut().zip(&op.tactics) {
            *place = *recorded.get(&declared.name)?;
        }
        (recorded.len() == op.tactics.len()).then_some(tactic)
    }

    /// The op's tensors; those that were given lie in memories that begin at these addresses.
    fn tensors(&self, def: &Op, bases: &[usize]) -> Vec<Tensor> {
        let at = |t: &parbake_model::op::Tensor| {
            let given = self.record.tensors.iter().find(|a| a.name == t.name);
            given.map_or(Tensor::ABSENT, |a| a.at(bases[a.memory]))
        };
        def.tensors.iter().map(at).collect()
    }

    /// Addresses such as the call will have; nothing is there.
    fn bases(&self) -> Result<Vec<usize>, DumpError> {
        let mut bases = Vec::new();
        let mut free = record::BOUNDARY;
        for memory in &self.record.memories {
            let base = free + memory.misalignment;
            bases.push(base as usize);
            let end = base.checked_add(memory.bytes).and_then(|end| end.checked_next_multiple_of(record::BOUNDARY));
            free = end.filter(|end| *end < u64::MAX / 2).ok_or_else(|| self.too_large(None))?;
        }
        Ok(bases)
    }

    /// The kernel that the call will use, found before it runs: it may take the process down. Nothing is launched.
    fn kernel(
        &self,
        library: &Library,
        op: OpId,
        scalars: &[f64],
        place: Place,
        tactic: Option<&Tactic>,
    ) -> Result<Arc<Kernel>, DumpError> {
        let tensors = self.tensors(library.definition(op), &self.bases()?);
        let prepared = library.prepare_with(op, &tensors, scalars, place, Also { tactic, ..Also::default() })?;
        let empty = || DumpError::Signature { op: self.record.op.clone(), why: "it writes nothing".to_owned() };
        Ok(prepared.ok_or_else(empty)?.kernel)
    }

    fn run(
        &self,
        library: &Library,
        op: OpId,
        (inputs, scalars): (&BTreeMap<String, Vec<u8>>, &[f64]),
        place: Place,
        tactic: Option<&Tactic>,
    ) -> Result<Run, DumpError> {
        let arguments = &self.record.tensors;
        // As for the memory itself, addresses are told apart within the boundary.
        let starts: Vec<usize> = self.record.memories.iter().map(|m| GUARD + m.misalignment as usize).collect();
        let mut before = Vec::new();
        for (memory, start) in self.record.memories.iter().zip(&starts) {
            let mut content = Vec::new();
            let bytes = start + memory.bytes as usize + GUARD;
            content.try_reserve_exact(bytes).map_err(|_| self.too_large(None))?;
            content.resize(bytes, POISON);
            before.push(content);
        }
        for (argument, values) in arguments.iter().filter_map(|a| Some((a, inputs.get(&a.name)?))) {
            let content = &mut before[argument.memory][starts[argument.memory]..];
            let width = argument.dtype.bytes();
            for (at, value) in argument.elements().zip(values.chunks_exact(width)) {
                content[at..at + width].copy_from_slice(value);
            }
        }
        let mut memories =
            before.iter().map(|content| Memory::new(place, content)).collect::<Result<Vec<_>, Error>>()?;
        let bases: Vec<usize> = memories.iter_mut().zip(&starts).map(|(m, s)| m.pointer() as usize + s).collect();
        let tensors = self.tensors(library.definition(op), &bases);
        // SAFETY: the memory of every tensor is as long as its record says, and lives until it is read back below.
        unsafe {
            library.call_with(op, &tensors, scalars, place, Stream::DEFAULT, Also { tactic, ..Also::default() })
        }?;
        let after = memories.iter().map(Memory::read).collect::<Result<Vec<_>, Error>>()?;
        let mut written = BTreeMap::new();
        for argument in arguments.iter().filter(|a| a.is_written()) {
            let (content, width) = (&after[argument.memory][starts[argument.memory]..], argument.dtype.bytes());
            let mut values = Vec::with_capacity(content.len());
            argument.elements().for_each(|at| values.extend_from_slice(&content[at..at + width]));
            written.insert(argument.name.clone(), values);
        }
        Ok(Run { written, stray: self.stray(&starts, &before, &after) })
    }

    /// Tensors that are only read, the gaps between rows, and the guards must be as they were.
    fn stray(&self, starts: &[usize], before: &[Vec<u8>], after: &[Vec<u8>]) -> Option<String> {
        for (i, (before, after)) in before.iter().zip(after).enumerate() {
            let mut may_change = vec![false; after.len()];
            for argument in self.record.tensors.iter().filter(|a| a.memory == i && a.is_written()) {
                let width = argument.dtype.bytes();
                argument.elements().for_each(|at| may_change[starts[i] + at..starts[i] + at + width].fill(true));
            }
            if let Some(at) = (0..after.len()).find(|&at| !may_change[at] && after[at] != before[at]) {
                let names = self.record.tensors.iter().filter(|a| a.memory == i).map(|a| a.name.as_str());
                let (names, at) = (names.collect::<Vec<_>>().join(", "), at as i64 - starts[i] as i64);
                return Some(format!("byte {at} of the memory of {names} was written, which no output has"));
            }
        }
        None
    }

    fn compare(&self, def: &Op, recorded: &BTreeMap<String, Vec<u8>>, run: &Run) -> Vec<Compared> {
        let compare = |argument: &Argument| {
            let (name, dtype) = (&argument.name, argument.dtype);
            let (want, got) = (&recorded[name], &run.written[name]);
            let mut judge = Judge::default();
            if want != got {
                let values =
                    |bytes: &[u8]| bytes.chunks_exact(dtype.bytes()).map(|r| dtype.load(r)).collect::<Vec<_>>();
                let got = values(got).into_iter();
                judge.compare(name, &values(want), &Rule::Close, dtype, got, def.tolerance[&dtype]);
            }
            let verdict = match &judge.wrong {
                Some(_) => Verdict::Differs,
                None if want == got => Verdict::BitExact,
                None => Verdict::WithinTolerance,
            };
            Compared { name: name.clone(), verdict, max_abs_err: judge.max_abs, wrong: judge.wrong }
        };
        self.record.tensors.iter().filter(|a| a.is_written()).map(compare).collect()
    }

    fn judge(
        &self,
        library: &Library,
        op: OpId,
        inputs: &BTreeMap<String, Vec<u8>>,
        scalars: &[f64],
        run: &Run,
    ) -> Result<Against, DumpError> {
        let (def, binding) = (library.definition(op), library.binding(op)?);
        let arguments = &self.record.tensors;
        let values = |a: &Argument| {
            let bytes = inputs[&a.name].chunks_exact(a.dtype.bytes());
            (a.name.clone(), bytes.map(|raw| a.dtype.load(raw)).collect())
        };
        let tensors = self.tensors(def, &self.bases()?);
        let inputs = arguments.iter().filter(|a| a.role != Role::Out).map(values).collect();
        let problem = library.problem(op, &tensors, scalars, inputs)?;
        let mut judge = Judge::default();
        for expected in (binding.reference)(&problem) {
            let argument = arguments.iter().find(|a| a.name == expected.name).expect("bug: a reference of another op");
            let dtype = argument.dtype;
            let got = run.written[expected.name].chunks_exact(dtype.bytes()).map(|raw| dtype.load(raw));
            judge.compare(expected.name, &expected.values, &expected.rule, dtype, got, def.tolerance[&dtype]);
        }
        Ok(Against {
            max_abs_err: judge.max_abs,
            max_rel_err: judge.max_rel,
            tolerance: def.tolerance[&problem.dtype].to_string(),
            wrong: judge.wrong,
        })
    }

    /// Where the kernel differs from the recorded one.
    fn kernel_differences(&self, kernel: &Kernel) -> Vec<Difference> {
        let was = &self.record.kernel;
        let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let toolchain = kernel.made_by.as_ref().map(|(toolchain, _)| toolchain.clone());
        let mut pairs = vec![
            ("kernel", was.uri.clone(), kernel.uri.clone()),
            ("source key", was.source_key.to_string(), kernel.decision.source_key.to_string()),
            ("build key", was.build_key.to_string(), kernel.build_key.to_string()),
            ("image", was.image.to_string(), kernel.image.to_string()),
            ("target", text(was.target.map(|t| t.to_string())), text(kernel.decision.target.map(|t| t.to_string()))),
            ("toolkit", text(was.toolkit.map(|t| t.to_string())), text(kernel.toolkit.map(|t| t.to_string()))),
        ];
        // It was tried first: now it is not legal for these arguments, or not covered where nothing is compiled.
        let words = |pairs: &mut dyn Iterator<Item = (&String, &u32)>| {
            pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let now: BTreeMap<_, _> = kernel.spec.tactic.iter().cloned().collect();
        pairs.push(("tactic", words(&mut was.tactic.iter()), words(&mut now.iter())));
        // Of a kernel from a bundle it is not known without the bundle's details.
        if was.toolchain.is_some() && toolchain.is_some() {
            pairs.push(("toolchain", text(was.toolchain.clone()), text(toolchain)));
        }
        differing(pairs)
    }

    /// Where library, machine and settings differ from the recorded ones.
    fn surroundings(&self, library: &Library, place: Place) -> Vec<Difference> {
        let was = &self.record;
        let (device, driver) = record::machine(place);
        let kind = |place: &str| place.split(':').next().unwrap_or_default().to_owned();
        let device_text = |d: &Option<record::Device>| {
            d.as_ref().map_or_else(|| "none".to_owned(), |d| format!("{} ({})", d.name, d.target))
        };
        let driver_text = |d: &Option<record::Driver>| {
            let module = |d: &record::Driver| d.module.as_ref().map(|m| format!(", {m}")).unwrap_or_default();
            d.as_ref().map_or_else(|| "none".to_owned(), |d| format!("CUDA {}{}", d.version, module(d)))
        };
        let mut found = differing(vec![
            ("library", was.library.clone(), VERSION.to_owned()),
            ("place", kind(&was.place), kind(&place.to_string())),
            ("device", device_text(&was.device), device_text(&device)),
            ("driver", driver_text(&was.driver), driver_text(&driver)),
        ]);
        // What only says how much is told, and where to, changes no result.
        let silent =
            |name: &str| ["PARBAKE_LOG", "PARBAKE_DUMP", "PARBAKE_LOADER_LOG"].iter().any(|p| name.starts_with(p));
        for now in record::settings(&library.config).into_iter().filter(|s| !silent(&s.name)) {
            let before = was.settings.iter().find(|s| s.name == now.name);
            let recorded = before.map_or_else(|| "not known then".to_owned(), |s| s.value.clone());
            if recorded != now.value {
                found.push(Difference { what: now.name, recorded, now: now.value });
            }
        }
        found
    }
}

fn differing(pairs: Vec<(&str, String, String)>) -> Vec<Difference> {
    let unlike = pairs.into_iter().filter(|(_, recorded, now)| recorded != now);
    unlike.map(|(what, recorded, now)| Difference { what: what.to_owned(), recorded, now }).collect()
}
