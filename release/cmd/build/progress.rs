//! How a bake goes: a bar on a terminal, a line every now and then elsewhere.

use crate::output::{Output, note};
use crate::text;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how many units are done, how fast, with how much memory, and how long it will take.
pub(super) struct Meter {
    bar: Option<ProgressBar>,
    lines: bool,
    total: usize,
    done: usize,
    skipped: usize,
    /// What all units are expected to take, and those that are done, in milliseconds of one compiler.
    cost: u64,
    cost_done: u64,
    began: Instant,
    told: Instant,
}

impl Meter {
    /// `skipped` of the units need no work.
    pub(super) fn new(total: usize, skipped: usize, cost: u64, out: Output) -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = (terminal && total > skipped).then(|| {
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").expect("bug: a fixed template");
            ProgressBar::new(total as u64).with_style(style).with_position(skipped as u64)
        });
        let now = Instant::now();
        Self {
            lines: bar.is_none() && !out.json,
            bar,
            total,
            done: 0,
            skipped: 0,
            cost,
            cost_done: 0,
            began: now,
            told: now,
        }
    }

    /// A unit is done that was expected to take this.
    pub(super) fn step(&mut self, name: &str, cost: u64) {
        self.done += 1;
        self.cost_done += cost;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
            bar.set_message(name.to_owned());
        }
    }

    /// What a worker says is passed on.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(line)),
            None => note(line),
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, busy: usize, kib: u64) {
        let due = self.told.elapsed() >= LINE_EVERY || (self.done == self.total && self.total > 0);
        if self.bar.is_none() && !(self.lines && due) {
            return;
        }
        let message = self.message(busy, kib);
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        } else if self.lines {
            note(format!("  {}/{} images, {message}", self.done, self.total));
            self.told = Instant::now();
        }
    }

    fn message(&self, busy: usize, kib: u64) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut message = format!(
            "{:.1} a second, {busy} compilers with {}",
            (self.done - self.skipped) as f64 / seconds.max(0.001),
            text::bytes(kib * 1024)
        );
        if self.cost_done > 0 && self.done < self.total {
            let left = seconds * self.cost.saturating_sub(self.cost_done) as f64 / self.cost_done as f64;
            message += &format!(", {left:.0} s left");
        }
        message
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
