//! How far a fetch is: a bar on a terminal, nothing elsewhere.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

pub(super) struct Meter(Option<ProgressBar>);

impl Meter {
    pub(super) fn new(total: u64, out: Output) -> Self {
        let shown = std::io::stderr().is_terminal() && !out.json;
        Self(shown.then(|| {
            let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            ProgressBar::new(total).with_style(style.expect("bug: a fixed template"))
        }))
    }

    pub(super) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }

    /// Bytes that were of no use.
    pub(super) fn sub(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(bar.position().saturating_sub(bytes));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
