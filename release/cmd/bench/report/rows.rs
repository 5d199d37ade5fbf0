//! Reads rows. What claims a figure without a passed check is refused, whoever wrote it.

use parbake_model::report::{Class, Report};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The form of rows that this program reads; `row` says it.
const FORM: u32 = 1;
/// No file of rows is larger.
const MOST: u64 = 256 << 20;

/// One backend at one workload.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    row: u32,
    pub(super) run: String,
    pub(super) workload: String,
    pub(super) op: String,
    pub(super) function: String,
    pub(super) backend: String,
    pub(super) shape: BTreeMap<String, i64>,
    pub(super) dtype: String,
    pub(super) target: Option<String>,
    pub(super) gpu: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) versions: BTreeMap<String, String>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) check: Check,
    pub(super) bytes: f64,
    pub(super) flop: f64,
    #[serde(default)]
    pub(super) artifacts: Option<Vec<Artifact>>,
    /// The mechanism that timed it. A row of a wrong result has none.
    #[serde(default)]
    pub(super) timer: Option<String>,
    #[serde(default)]
    median_us: Option<f64>,
    #[serde(default)]
    p10_us: Option<f64>,
    #[serde(default)]
    p90_us: Option<f64>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    pub(super) roof_us: Option<f64>,
    #[serde(skip)]
    pub(super) figures: Option<Figures>,
}

/// What the check of the result gave.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Check {
    pub(super) ok: bool,
    /// In units of what is allowed.
    pub(super) error: Option<f64>,
    pub(super) elements: u64,
    pub(super) tolerance: String,
    pub(super) why: Option<String>,
}

/// What served a call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Artifact {
    pub(super) uri: String,
    pub(super) image: String,
    pub(super) build_key: Option<String>,
    pub(super) toolchain: Option<String>,
    pub(super) tactic: BTreeMap<String, u32>,
}

/// Microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
    pub(super) n: u64,
}

/// What makes two rows of different runs comparable.
pub(super) type Key<'a> = (&'a str, &'a str, &'a str, &'a str, &'a BTreeMap<String, i64>, &'a str, Option<&'a str>);

impl Row {
    pub(super) fn key(&self) -> Key<'_> {
        let (timer, gpu) = (self.timer.as_deref().unwrap_or(""), self.gpu.as_deref());
        (&self.workload, &self.function, &self.backend, &self.dtype, &self.shape, timer, gpu)
    }

    /// `U3 parbake bf16 hidden=8192 rows=4096`.
    pub(super) fn title(&self) -> String {
        format!("{} {} {} {}", self.workload, self.backend, self.dtype, self.extents())
    }

    pub(super) fn extents(&self) -> String {
        self.shape.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn family(&self) -> &str {
        self.op.split('/').next().unwrap_or(&self.op)
    }

    /// Whether the figure may stand beside another: not one by the clock of a CPU.
    pub(super) fn compared(&self) -> bool {
        self.figures.is_some() && self.timer.as_deref() != Some("wall")
    }

    /// Terabytes a second.
    pub(super) fn rate(&self) -> Option<f64> {
        self.figures.filter(|_| self.compared()).map(|f| self.bytes / f.median / 1e6)
    }

    /// What part of the measured roof it reaches.
    pub(super) fn share(&self) -> Option<f64> {
        Some(self.roof_us? / self.figures.filter(|_| self.compared())?.median)
    }
}

/// Reads a file of rows.
pub(super) fn read(path: &Path) -> Result<Vec<Row>, Report> {
    let refuse = || Report::new("PB-3201", Class::Usage, format!("cannot read {}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| refuse().caused_by(e))?.len();
    if size > MOST {
        return Err(refuse().with("expected", format!("at most {MOST} bytes")).with("got", size));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse().caused_by(e))?;
    parse(&path.display().to_string(), &text)
}

/// Reads rows; `file` is what they are said to be from.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Row>, Report> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{file}:{}", number + 1);
        let bad = |why: String| {
            Report::new("PB-3202", Class::Usage, format!("{place}: this is no row of a benchmark")).caused_by(why)
        };
        let mut row: Row = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        if row.row != FORM {
            return Err(bad(format!("`row` is {}, and this program reads rows of form {FORM}", row.row)));
        }
        row.figures = figures(&row).map_err(bad)?;
        if row.figures.is_some() && !passed(&row.check) {
            return Err(Report::new("PB-3203", Class::Failed, format!("{place}: a figure without a passed check"))
                .with("row", row.title())
                .with(
                    "expected",
                    "a check of at least one element, with an error of at most 1 unit of a named tolerance",
                )
                .with("got", check_words(&row.check)));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn passed(check: &Check) -> bool {
    let right = check.error.is_some_and(|e| (0.0..=1.0).contains(&e));
    check.ok && right && check.elements > 0 && !check.tolerance.trim().is_empty()
}

fn check_words(check: &Check) -> String {
    let error = check.error.map_or("no bound".to_owned(), |e| e.to_string());
    let why = check.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
    format!("ok = {}, {} elements, error {error} of `{}`{why}", check.ok, check.elements, check.tolerance)
}

/// All figures or none, and such as a clock can give.
fn figures(row: &Row) -> Result<Option<Figures>, String> {
    let (median, p10, p90, n) = match (row.median_us, row.p10_us, row.p90_us, row.n) {
        (Some(median), Some(p10), Some(p90), Some(n)) => (median, p10, p90, n),
        (None, None, None, None) => return Ok(None),
        _ => return Err("`median_us`, `p10_us`, `p90_us` and `n` come together".into()),
    };
    if row.timer.as_deref().is_none_or(|t| t.trim().is_empty()) {
        return Err("a figure names its `timer`".into());
    }
    // NaN is in no order.
    if !(0.0 < p10 && p10 <= median && median <= p90 && p90.is_finite() && n > 0) {
        return Err(format!("no times: 0 < {p10} ≤ {median} ≤ {p90} of {n} samples does not hold"));
    }
    let positive = row.bytes >= 0.0 && row.flop >= 0.0 && row.roof_us.is_none_or(|r| r > 0.0);
    if positive { Ok(Some(Figures { median, p10, p90, n })) } else { Err("a size or a roof that is negative".into()) }
}
