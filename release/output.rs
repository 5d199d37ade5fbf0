//! How commands speak: text or one JSON document on standard output, reports on standard error, exit statuses.

use parbake_model::report::{Class, Report};
use parbake_model::settings::{BadSetting, Config};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

/// What a command ends with if it does not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What went wrong, all of it.
    pub(crate) reports: Vec<Report>,
    /// Whether standard output has the result already: then no second JSON document follows.
    shown: bool,
}

impl Failure {
    /// The result was shown, and it is that something does not hold. Without reports the exit status is 1.
    pub(crate) fn shown(reports: Vec<Report>) -> Self {
        Self { reports, shown: true }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        vec![report].into()
    }
}

impl From<Vec<Report>> for Failure {
    fn from(reports: Vec<Report>) -> Self {
        Self { reports, shown: false }
    }
}

impl From<parbake::Error> for Failure {
    fn from(error: parbake::Error) -> Self {
        error.report().into()
    }
}

/// One report for each value that its setting does not accept.
pub(crate) fn bad_settings(bad: &[BadSetting]) -> Vec<Report> {
    bad.iter().map(|b| parbake::Error::from(b.clone()).report()).collect()
}

/// Text or JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result: the value as JSON, or the text.
    pub(crate) fn show<T: Serialize>(self, value: &T, text: impl FnOnce() -> String) {
        if self.json {
            print(&serde_json::to_string_pretty(value).expect("bug: results are plain data"));
        } else {
            print(text().trim_end());
        }
    }

    /// A line about progress, for people only.
    pub(crate) fn say(self, line: impl AsRef<str>) {
        if !self.json {
            print(line.as_ref());
        }
    }

    /// Prints what went wrong; the exit status follows from whose fault it is.
    pub(crate) fn fail(self, failure: &Failure) -> ExitCode {
        #[derive(Serialize)]
        struct Json<'a> {
            code: &'a str,
            error: &'a str,
            details: Vec<(&'a str, &'a str)>,
            caused_by: &'a [String],
            help: &'a [String],
        }
        for report in &failure.reports {
            note(report.to_string());
        }
        let codes: BTreeSet<&str> = failure.reports.iter().map(|r| r.code).collect();
        if !codes.is_empty() && !self.json {
            note(format!("more: parbake explain {}", codes.into_iter().collect::<Vec<_>>().join(" ")));
        }
        if self.json && !failure.shown {
            let json = |r: &Report| {
                let details = r.details.iter().map(|(l, t)| (l.as_str(), t.as_str())).collect();
                serde_json::to_value(Json {
                    code: r.code,
                    error: &r.what,
                    details,
                    caused_by: &r.causes,
                    help: &r.help,
                })
            };
            let errors: Vec<_> = failure.reports.iter().filter_map(|r| json(r).ok()).collect();
            print(&serde_json::json!({ "errors": errors }).to_string());
        }
        let status = |report: &Report| match report.class {
            Class::Failed => 1,
            Class::Usage => 2,
            Class::Environment => 3,
        };
        ExitCode::from(failure.reports.iter().map(status).max().unwrap_or(1))
    }
}

/// A line on standard output. A reader that went away is no error: the status still says how the command ended.
fn print(line: &str) {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            note(format!("error: cannot write standard output: {e}"));
            std::process::exit(3)
        }
        _ => {}
    }
}

/// A line on standard error, for people. That nobody reads it must not break what it is about.
pub(crate) fn note(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", line.as_ref());
}

/// Sends the loader's log to standard error.
pub(crate) fn start_log(config: &Config) {
    let level = match config.loader_log.as_str() {
        "off" => return,
        level => level.parse().unwrap_or(tracing::Level::WARN),
    };
    let log =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time().with_target(false);
    log.with_ansi(false).init();
}
