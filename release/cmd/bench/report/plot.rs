//! Plots as SVG in the page.

use super::rows::Row;
use crate::html::{escape, number};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;

/// Colours that are told apart by most eyes, on light and on dark.
fn colour(backend: &str) -> &'static str {
    match backend {
        "parbake" => "#e8590c",
        "torch" => "#1c7ed6",
        "compile" => "#7048e8",
        "triton" => "#2b8a3e",
        "flashinfer" => "#c2255c",
        _ => "#868e96",
    }
}

/// From values to places, by powers of ten or evenly.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (low, high) = ends(values.filter(|v| *v > 0.0))?;
        Some(Self { low: low / 1.3, high: high * 1.3, from, to, log: true })
    }

    fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (_, high) = ends(values)?;
        Some(Self { low: 0.0, high: high * 1.08, from, to, log: false })
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }

    /// Values that are written at the axis.
    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter();
            let step = step.into_iter().find(|s| self.high / s <= 8.0).unwrap_or(self.high / 4.0);
            return (0..=8).map(|i| f64::from(i) * step).filter(|v| *v <= self.high).collect();
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let few = (self.high / self.low).log10() < 2.0;
        let parts: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = decades.flat_map(|d| parts.iter().map(move |p| p * 10f64.powi(d)));
        all.filter(|v| (self.low..=self.high).contains(v)).collect()
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, v| Some(ends.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v)))))
}

/// A size or a rate in few characters: 33.6M.
fn short(value: f64) -> String {
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= unit {
            let scaled = value / unit;
            return if scaled.fract() < 0.05 { format!("{scaled:.0}{name}") } else { format!("{scaled:.1}{name}") };
        }
    }
    if value >= 1.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value}") }
}

struct Svg(String);

impl Svg {
    fn new(height: f64) -> Self {
        Self(format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n"))
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escape(text);
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    fn dot(&mut self, (x, y): (f64, f64), colour: &str, title: &str) {
        let title = escape(title);
        let _ = writeln!(
            self.0,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"><title>{title}</title></circle>"
        );
    }

    fn path(&mut self, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.0, "<polyline class=\"roof\" points=\"{}\"/>", points.join(" "));
    }

    fn axes(&mut self, x: &Scale, y: &Scale, bottom: f64, top: f64, names: (&str, &str)) {
        for tick in x.ticks() {
            self.line("axis", (x.at(tick), bottom), (x.at(tick), top));
            self.text((x.at(tick), bottom + 15.0), "middle", &short(tick));
        }
        for tick in y.ticks() {
            self.line("axis", (LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)));
            self.text((LEFT - 6.0, y.at(tick) + 4.0), "end", &short(tick));
        }
        self.text((WIDTH - RIGHT, bottom + 30.0), "end", names.0);
        self.text((LEFT, top - 6.0), "start", names.1);
    }

    fn legend(&mut self, rows: &[&Row], y: f64) {
        let mut seen: Vec<&str> = Vec::new();
        for row in rows {
            if !seen.contains(&row.backend.as_str()) {
                self.dot((LEFT + 110.0 * seen.len() as f64 + 4.0, y - 4.0), colour(&row.backend), &row.backend);
                self.text((LEFT + 110.0 * seen.len() as f64 + 14.0, y), "start", &row.backend);
                seen.push(&row.backend);
            }
        }
    }

    fn end(self) -> String {
        self.0 + "</svg>\n"
    }
}

fn title(row: &Row) -> String {
    row.figures.map_or_else(|| row.title(), |f| format!("{}: {} µs", row.title(), number(f.median)))
}

/// Bandwidth over bytes, below what elementwise work reaches.
pub(super) fn bandwidth(rows: &[&Row]) -> String {
    let shown: Vec<&Row> = rows.iter().copied().filter(|r| r.rate().is_some() && r.bytes > 0.0).collect();
    let mut roof: Vec<(f64, f64)> = shown.iter().filter_map(|r| Some((r.bytes, r.bytes / r.roof_us? / 1e6))).collect();
    roof.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (top, bottom) = (40.0, 360.0);
    let rates = shown.iter().filter_map(|r| r.rate()).chain(roof.iter().map(|r| r.1));
    let x = Scale::log(shown.iter().map(|r| r.bytes), LEFT, WIDTH - RIGHT);
    let (Some(x), Some(y)) = (x, Scale::linear(rates, bottom, top)) else { return nothing() };
    let mut svg = Svg::new(400.0);
    svg.axes(&x, &y, bottom, top, ("bytes", "TB/s"));
    svg.path(&roof.iter().map(|(bytes, rate)| (x.at(*bytes), y.at(*rate))).collect::<Vec<_>>());
    for row in &shown {
        let place = (x.at(row.bytes), y.at(row.rate().unwrap_or_default()));
        svg.dot(place, colour(&row.backend), &title(row));
        if row.backend == "parbake" {
            svg.text((place.0 + 6.0, place.1 - 6.0), "start", &row.workload);
        }
    }
    svg.legend(&shown, 18.0);
    svg.end()
}

/// Operations a second over operations a byte; nothing where nothing is computed.
pub(super) fn roofline(rows: &[&Row]) -> Option<String> {
    let shown: Vec<(&Row, f64, f64)> = rows
        .iter()
        .filter(|r| r.flop > 0.0 && r.bytes > 0.0)
        .filter_map(|r| Some((*r, r.flop / r.bytes, r.rate()? * r.flop / r.bytes * 1e12)))
        .collect();
    let (_, best) = ends(rows.iter().filter(|r| r.compared()).filter_map(|r| Some(r.bytes / r.roof_us? / 1e6)))?;
    let (top, bottom) = (40.0, 360.0);
    let x = Scale::log(shown.iter().map(|s| s.1), LEFT, WIDTH - RIGHT)?;
    let roof = [x.low, x.high].map(|intensity| (intensity, best * 1e12 * intensity));
    let y = Scale::log(shown.iter().map(|s| s.2).chain(roof.map(|r| r.1)), bottom, top)?;
    let mut svg = Svg::new(400.0);
    svg.axes(&x, &y, bottom, top, ("FLOP a byte", "FLOP/s"));
    svg.path(&roof.map(|(intensity, rate)| (x.at(intensity), y.at(rate))));
    for (row, intensity, rate) in &shown {
        svg.dot((x.at(*intensity), y.at(*rate)), colour(&row.backend), &title(row));
    }
    svg.legend(&shown.iter().map(|s| s.0).collect::<Vec<_>>(), 18.0);
    Some(svg.end())
}

/// The spread of each row, under the name of its workload.
pub(super) fn distribution(rows: &[&Row]) -> String {
    let shown: Vec<&Row> = rows.iter().copied().filter(|r| r.figures.is_some()).collect();
    let figures = shown.iter().filter_map(|r| r.figures);
    let (top, step) = (40.0, 16.0);
    let bottom = top + step * (shown.len() as f64 + 1.0);
    let Some(x) = Scale::log(figures.flat_map(|f| [f.p10, f.p90]), LEFT + 40.0, WIDTH - RIGHT) else {
        return nothing();
    };
    let mut svg = Svg::new(bottom + 40.0);
    for tick in x.ticks() {
        svg.line("axis", (x.at(tick), bottom), (x.at(tick), top));
        svg.text((x.at(tick), bottom + 15.0), "middle", &short(tick));
    }
    svg.text((WIDTH - RIGHT, bottom + 30.0), "end", "µs");
    let mut last = "";
    for (i, row) in shown.iter().enumerate() {
        let Some(f) = row.figures else { continue };
        let y = top + step * (i as f64 + 1.0);
        if row.workload != last {
            svg.text((4.0, y + 4.0), "start", &row.workload);
            last = &row.workload;
        }
        let (from, to, colour) = (x.at(f.p10), x.at(f.p90), colour(&row.backend));
        let _ = writeln!(
            svg.0,
            "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"5\" \
             stroke-opacity=\".45\"/>",
            to.max(from + 1.0)
        );
        svg.dot((x.at(f.median), y), colour, &title(row));
    }
    svg.legend(&shown, 18.0);
    svg.end()
}

fn nothing() -> String {
    "<p>No figures of a GPU.</p>\n".to_owned()
}
