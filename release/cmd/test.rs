//! `parbake test`: everything that can be tested on this machine.

use crate::checkout;
use crate::output::{Failure, Output, note};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs all tests that this machine supports, and counts what was skipped and why.
///
/// Compilers that are missing are installed first, as pinned Python wheels.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only quick variants of the long tests
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let root = checkout::root(&config)?;
    out.say("Compilers for the tests (missing ones are installed, as pinned Python wheels):");
    checkout::need(&config, &[("12.9", false), ("13.0", true), ("13.5", false), ("libclang", false)], out)?;
    // The largest of all, and for some Pythons there is none: its tests are skipped without it.
    if let Err(failure) = checkout::need(&config, &[("triton", false)], out) {
        let why: Vec<&str> = failure.reports.iter().map(|report| report.what.as_str()).collect();
        note(format!("tests of kernels in Triton will be skipped: {}", why.join("; ")));
    }
    let mut tally = Tally::default();
    let result = steps(&args, &root, &mut tally, out);
    tally.ok = result.is_ok();
    let text = || format!("\n{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    out.show(&tally, text);
    result.map_err(|report| Failure::shown(vec![report]))
}

/// All of them, until one fails.
fn steps(args: &Args, root: &Path, tally: &mut Tally, out: Output) -> Result<(), Report> {
    let mut generated = Command::new("cargo");
    generated.args(["run", "--quiet", "-p", "parbake-codegen", "--features", "bindings", "--", "--check"]);
    step("Generated files are fresh", generated, root, tally, out)?;

    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--quiet", "--", "--nocapture"]);
    cargo.env("PARBAKE_TEST_QUICK", if args.quick { "1" } else { "0" });
    step("Rust tests", cargo, root, tally, out)?;

    let mut host = Command::new("python3");
    host.arg("tests/host/run.py");
    if args.quick {
        host.arg("--quick");
    }
    step("Kernels under sanitizers and random schedules", host, root, tally, out)?;

    let mut wheel = Command::new("python3");
    wheel.arg("tests/wheel/run.py");
    step("The wheel, data wheels and the Python layer in clean environments", wheel, root, tally, out)
}

#[derive(Default, Serialize)]
struct Tally {
    ok: bool,
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Of the present step: lines that say so, and what its summaries say.
    #[serde(skip)]
    skips: (u64, u64),
}

/// Runs one command, shows what it prints, and counts from its closing lines and its skips.
fn step(what: &str, mut command: Command, root: &Path, tally: &mut Tally, out: Output) -> Result<(), Report> {
    // The document is alone on standard output.
    let say = |line: &str| if out.json { note(line) } else { out.say(line) };
    say(&format!("\n== {what}"));
    let start = std::time::Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let cannot =
        |e: std::io::Error| Report::new("PB-3003", Class::Environment, format!("cannot run {program}")).caused_by(e);
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return Err(cannot(e)),
    };
    for line in BufReader::new(child.stdout.take().expect("bug: it was piped")).lines().map_while(Result::ok) {
        tally.read(&line);
        say(&line);
    }
    let status = child.wait().map_err(cannot)?;
    tally.end_step();
    say(&format!("   {:.0} s", start.elapsed().as_secs_f64()));
    if status.success() {
        Ok(())
    } else {
        Err(Report::new("PB-3004", Class::Failed, format!("{what}: failed")).with("command", format!("{command:?}")))
    }
}

impl Tally {
    /// The harness of Rust knows nothing of what the capability helper skips; scripts count what they say.
    fn end_step(&mut self) {
        let (lines, counted) = std::mem::take(&mut self.skips);
        self.skipped += lines.max(counted);
    }

    /// Understands `test result: ok. 9 passed; 0 failed; 0 ignored; …`, `9 passed, 0 failed, 1 skipped`, and the
    /// capability helper's `skipped: needs …`.
    fn read(&mut self, line: &str) {
        // The harness prints a dot for each test that passed, without ending the line.
        if line.trim_start_matches(['.', ' ']).starts_with("skipped: needs ") {
            self.skips.0 += 1;
        }
        let summary = line.starts_with("test result:") || line.contains(" passed, ");
        if !summary {
            return;
        }
        let words: Vec<&str> = line.split([' ', ',', ';', '.']).filter(|w| !w.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(n) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "skipped" | "ignored" => self.skips.1 += n,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn what_a_step_skips_is_counted_once() {
        let mut tally = Tally::default();
        for step in [
            // The harness of Rust.
            &[".... skipped: needs a GPU", "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured"][..],
            // A script that says what it skips, and that of another, behind a bar.
            &[
                "skipped: needs strace",
                "| skipped: needs torch",
                "| 5 passed, 0 failed, 1 skipped",
                "3 passed, 1 failed, 1 skipped",
            ],
        ] {
            step.iter().for_each(|line| tally.read(line));
            tally.end_step();
        }
        assert_eq!((tally.passed, tally.failed, tally.skipped), (15, 1, 3));
    }
}
