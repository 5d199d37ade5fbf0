//! A dump that is read. It may come from anywhere: nothing in it is believed before it was compared with the rest, and
//! nothing outside of its folder is opened.

use super::dump::{CALL, INPUTS, OUTPUTS};
use super::record::{Argument, BOUNDARY, FORMAT, Record, State};
use super::tensors;
use crate::error::Error;
use crate::library::{Library, OpId};
use crate::tensor::{MAX_RANK, Tensor};
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The most that `call.json` may take.
const MOST_CALL: u64 = 1 << 20;

/// Why a dump was not replayed.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A file cannot be read.
    #[error("cannot read {path}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} is not part of a whole dump: {why}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There are no values.
    #[error("{path} holds no values: the stream was being captured", path = .path.display())]
    Captured {
        /// The dump.
        path: PathBuf,
    },
    /// The op is another one by now.
    #[error("`{op}` has another signature than the dump: {why}")]
    Signature {
        /// The op.
        op: String,
        /// What differs.
        why: String,
    },
    /// The call was one of several ranks.
    #[error("{path} is of a call of {ranks} ranks: alone it would wait for the others, at addresses that were theirs", path = .path.display())]
    Group {
        /// The dump.
        path: PathBuf,
        /// How many.
        ranks: i64,
    },
    /// It is too large.
    #[error("a replay of {path} needs {bytes} bytes of memory", path = .path.display())]
    Memory {
        /// The dump.
        path: PathBuf,
        /// How many.
        bytes: u128,
        /// How many are free.
        free: Option<u64>,
    },
    /// The op cannot be called here.
    #[error(transparent)]
    Call(#[from] Error),
}

impl DumpError {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let new = |code, class| Report::new(code, class, self.to_string());
        match self {
            Self::Io { error, .. } => new("PB-2130", Class::Environment)
                .caused_by(error)
                .help("name the folder of a dump: the one that holds call.json"),
            Self::Malformed { .. } => new("PB-2131", Class::Failed).help("copy or make the dump again"),
            Self::Captured { .. } => {
                new("PB-2132", Class::Failed).help("make the call without a CUDA graph, with PARBAKE_LOG=10")
            }
            Self::Signature { .. } => new("PB-2133", Class::Failed).help("replay it with the library that made it"),
            Self::Group { .. } => {
                new("PB-2135", Class::Failed).help("its inputs are in the dump: run all ranks on them again")
            }
            Self::Memory { free, .. } => {
                let free = free.map_or_else(|| "unknown".to_owned(), |bytes| format!("{bytes} bytes"));
                new("PB-2134", Class::Environment).with("free", free).help("replay it on a machine with more memory")
            }
            Self::Call(error) => error.report(),
        }
    }
}

/// A dump, read and compared with itself.
#[derive(Debug)]
pub struct Dumped {
    pub(super) folder: PathBuf,
    pub(super) record: Record,
}

impl Dumped {
    /// Reads what a dump says. Values are read when they are needed.
    ///
    /// # Errors
    /// A file that cannot be read, or is not what this library writes.
    pub fn open(folder: &Path) -> Result<Self, DumpError> {
        let path = folder.join(CALL);
        let malformed = |why: String| DumpError::Malformed { path: path.clone(), why };
        let mut text = Vec::new();
        let file = open(&path)?;
        file.take(MOST_CALL + 1).read_to_end(&mut text).map_err(|error| DumpError::Io { path: path.clone(), error })?;
        if text.len() as u64 > MOST_CALL {
            return Err(malformed(format!("it is larger than {MOST_CALL} bytes")));
        }
        let dumped = Self { folder: folder.to_owned(), record: parse(&text).map_err(malformed)? };
        Ok(dumped)
    }

    /// What it says.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The memory that a replay takes on the host: values, copies of the memories, and the reference in float64.
    #[must_use]
    pub fn needs(&self) -> u128 {
        let elements = |a: &Argument| a.shape.iter().map(|n| *n as u128).product::<u128>();
        let values = self.record.tensors.iter().map(|a| elements(a) * (4 * a.dtype.bytes() as u128 + 3 * 8));
        values.sum::<u128>() + self.record.memories.iter().map(|m| 4 * u128::from(m.bytes)).sum::<u128>()
    }

    /// Refuses a dump whose replay would take most of the memory that is free.
    ///
    /// # Errors
    /// What it needs and what there is.
    pub fn fits(&self, free: Option<u64>) -> Result<(), DumpError> {
        match free {
            Some(free) if self.needs() > u128::from(free / 4 * 3) => Err(self.too_large(Some(free))),
            _ => Ok(()),
        }
    }

    pub(super) fn too_large(&self, free: Option<u64>) -> DumpError {
        DumpError::Memory { path: self.folder.clone(), bytes: self.needs(), free }
    }

    /// The op, if its signature is that of the dump, and the scalars.
    pub(super) fn call(&self, library: &Library) -> Result<(OpId, Vec<f64>), DumpError> {
        let op = library.op(&self.record.op)?;
        let def = library.definition(op);
        let pools = self.record.tensors.iter().find(|a| def.family == "collective" && a.name == "pools");
        if let Some(ranks) = pools.and_then(|a| a.shape.first().copied()).filter(|ranks| *ranks > 1) {
            return Err(DumpError::Group { path: self.folder.clone(), ranks });
        }
        let scalars = signature(def, &self.record);
        Ok((op, scalars.map_err(|why| DumpError::Signature { op: def.name.clone(), why })?))
    }

    /// What the kernel read, dense.
    pub(super) fn inputs(&self) -> Result<BTreeMap<String, Vec<u8>>, DumpError> {
        if self.record.captured {
            return Err(DumpError::Captured { path: self.folder.clone() });
        }
        self.values(INPUTS, Argument::is_read)
    }

    /// What it wrote, dense; none if the call did not return, or they could not be saved.
    pub(super) fn outputs(&self) -> Result<Option<BTreeMap<String, Vec<u8>>>, DumpError> {
        if self.record.state != State::Done {
            return Ok(None);
        }
        match self.values(OUTPUTS, Argument::is_written) {
            Err(DumpError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    fn values(&self, name: &str, of: fn(&Argument) -> bool) -> Result<BTreeMap<String, Vec<u8>>, DumpError> {
        let path = self.folder.join(name);
        let chosen = self.record.tensors.iter().filter(|a| of(a));
        let expected: Vec<_> = chosen.map(|a| (a.name.as_str(), a.dtype, a.shape.as_slice())).collect();
        tensors::read(open(&path)?, &expected).map_err(|why| DumpError::Malformed { path, why })
    }
}

/// A regular file in the folder, and not one that a link names.
fn open(path: &Path) -> Result<File, DumpError> {
    let wrap = |error| DumpError::Io { path: path.to_owned(), error };
    // Without waiting for whoever might write to a pipe of that name.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(wrap)?;
    if !file.metadata().map_err(wrap)?.is_file() {
        return Err(DumpError::Malformed { path: path.to_owned(), why: "it is no file".to_owned() });
    }
    Ok(file)
}

/// Reads `call.json` and compares it with itself; what is wrong is said in words.
pub fn parse(text: &[u8]) -> Result<Record, String> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if format != FORMAT {
        return Err(format!("it has format {format}, this library reads {FORMAT}"));
    }
    let record: Record = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let mut ends = vec![0; record.memories.len()];
    for argument in &record.tensors {
        let wrong = |why: &str| format!("tensor `{}`: {why}", argument.name);
        let end = end(argument).map_err(wrong)?;
        let memory = ends.get_mut(argument.memory).ok_or_else(|| wrong("it lies in no memory"))?;
        *memory = end.max(*memory);
    }
    for (i, (memory, end)) in record.memories.iter().zip(ends).enumerate() {
        if memory.misalignment >= BOUNDARY || memory.bytes != end {
            return Err(format!("memory {i}: it does not end where its tensors end, or begins nowhere"));
        }
    }
    Ok(record)
}

/// Where a tensor's last element ends, as an offset in its memory.
fn end(argument: &Argument) -> Result<u64, &'static str> {
    let Argument { shape, strides, .. } = argument;
    if shape.len() > MAX_RANK || shape.len() != strides.len() {
        return Err("it has too many dimensions, or another number of strides");
    }
    let counts = |n: &i64, s: &i64| *n > 1 && *s < 0;
    if shape.iter().any(|n| *n < 0) || shape.iter().zip(strides).any(|(n, s)| counts(n, s)) {
        return Err("an extent or a stride is negative");
    }
    let large = "it is larger than any memory";
    let width = argument.dtype.bytes() as u64;
    let elements = shape.iter().try_fold(width, |n, d| n.checked_mul(*d as u64)).ok_or(large)?;
    let mut last = 0u64;
    for (n, s) in shape.iter().zip(strides).filter(|(n, _)| **n > 1) {
        let step = (*n as u64 - 1).checked_mul(*s as u64).ok_or(large)?;
        last = last.checked_add(step).ok_or(large)?;
    }
    let extent = if elements == 0 { Some(0) } else { (last + 1).checked_mul(width) };
    let end = extent.and_then(|extent| extent.checked_add(argument.offset)).ok_or(large)?;
    if i64::try_from(end).is_err() || i64::try_from(elements).is_err() { Err(large) } else { Ok(end) }
}

fn signature(op: &Op, record: &Record) -> Result<Vec<f64>, String> {
    // What was not given is optional, and the rest stands in the op's order.
    let given = |t: &&parbake_model::op::Tensor| !t.optional || record.tensors.iter().any(|a| a.name == t.name);
    let now = op.tensors.iter().filter(given).map(|t| (&t.name, t.role));
    if !now.eq(record.tensors.iter().map(|a| (&a.name, a.role))) {
        let names: Vec<&str> = record.tensors.iter().map(|a| a.name.as_str()).collect();
        return Err(format!("its tensors are {}", names.join(", ")));
    }
    if record.scalars.len() != op.scalars.len() {
        return Err(format!("it has {} scalars, the op {}", record.scalars.len(), op.scalars.len()));
    }
    let value = |name: &String| {
        let text = record.scalars.get(name).ok_or_else(|| format!("it has no scalar `{name}`"))?;
        text.parse().map_err(|_| format!("scalar `{name}`: `{text}` is no number"))
    };
    op.scalars.iter().map(|s| value(&s.name)).collect()
}

impl Argument {
    /// The tensor in memory that begins at an address.
    pub(super) fn at(&self, memory: usize) -> Tensor {
        let data = (memory + self.offset as usize) as *mut std::ffi::c_void;
        Tensor::new(data, self.dtype, &self.shape, &self.strides).expect("bug: the rank was checked")
    }

    /// Where each element lies in the memory, in bytes, in order.
    pub(super) fn elements(&self) -> impl Iterator<Item = usize> {
        let count: i64 = self.shape.iter().product();
        (0..count).map(|mut i| {
            let mut at = 0;
            for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
                at += i % extent * stride;
                i /= extent;
            }
            self.offset as usize + at as usize * self.dtype.bytes()
        })
    }
}
