//! What a call looks like in the log. Each line begins with process and number of the call, so that threads and
//! processes may share a file.

use super::sink::{self, Sink};
use crate::call::Prepared;
use crate::code::Place;
use crate::error::Error;
use crate::tactic::words;
use crate::tensor::Tensor;
use parbake_model::op::Op;
use parbake_model::settings::Config;
use std::fmt;
use std::sync::Arc;

/// The largest alignment that is told: a page.
const MOST_ALIGNMENT: u32 = 12;

/// The lines of one call.
pub(super) struct Lines {
    sink: Arc<Sink>,
    pub(super) sequence: u64,
}

impl Lines {
    pub(super) fn new(config: &Config, sequence: u64, place: Place) -> Self {
        let sink = sink::of(config);
        if let Place::Cuda(_) = place {
            sink.describe_devices();
        }
        Self { sink, sequence }
    }

    /// One line.
    pub(super) fn say(&self, text: fmt::Arguments<'_>) {
        self.sink.write(self.sequence, text);
    }

    pub(super) fn call(&self, op: &Op) {
        // SAFETY: it has no arguments, and gives a number.
        let thread = unsafe { libc::gettid() };
        self.say(format_args!("{} {} in thread {thread}", sink::now(), op.path()));
    }

    pub(super) fn arguments(&self, op: &Op, tensors: &[Tensor], scalars: &[f64], place: Place) {
        // A call may have too many arguments, or too few: that is what its error says.
        for (i, tensor) in tensors.iter().enumerate() {
            let name = op.tensors.get(i).map_or("?", |t| &t.name);
            if tensor.is_absent() {
                self.say(format_args!("tensor {name} is absent"));
                continue;
            }
            let (dtype, shape, strides) = (tensor.dtype, tensor.shape(), tensor.strides());
            let (address, aligned) = (tensor.data, alignment(tensor.data as u64));
            self.say(format_args!(
                "tensor {name} {dtype} {shape:?} strides {strides:?} at {address:p} aligned to {aligned} on {place}"
            ));
        }
        for (i, value) in scalars.iter().enumerate() {
            let name = op.scalars.get(i).map_or("?", |s| &s.name);
            self.say(format_args!("scalar {name} {value:?}"));
        }
    }

    pub(super) fn kernel(&self, op: &Op, prepared: &Prepared) {
        let kernel = &prepared.kernel;
        let target = kernel.decision.target.map_or_else(|| "?".to_owned(), |t| t.to_string());
        let chosen = prepared.chosen.word().map(|word| format!(" ({word})")).unwrap_or_default();
        let (launch, from) = (&prepared.launch, prepared.from);
        self.say(format_args!(
            "kernel {} for {target} from {from}, image {}, tactic {}{chosen}, grid {:?} block {:?} shared {} cluster {}",
            kernel.uri,
            kernel.image,
            words(op, &prepared.tactic),
            launch.grid,
            launch.block,
            launch.shared,
            launch.cluster,
        ));
    }

    pub(super) fn failed(&self, error: &Error, ms: f64) {
        self.say(format_args!("failed after {ms:.3} ms: {}", one_line(error)));
    }
}

/// A report without its helps, on one line.
pub(super) fn one_line(error: &Error) -> String {
    let report = error.report();
    let details = report.details.iter().map(|(label, text)| format!("; {label}: {text}"));
    let causes = report.causes.iter().map(|cause| format!("; caused by: {cause}"));
    format!("{} {}{}", report.code, report.what, details.chain(causes).collect::<String>())
}

/// The largest power of two that divides an address, up to a page.
pub(super) fn alignment(address: u64) -> u64 {
    1 << address.trailing_zeros().min(MOST_ALIGNMENT)
}
