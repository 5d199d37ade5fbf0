//! Pages: one HTML file each with its style inside, nothing fetched and nothing run.

use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--ink:#222;--paper:#fff;--bad:#b00020;--good:#19703a}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181c;--bad:#ff7b86;--good:#6fcf97}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}\
th,td{padding:3px 9px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:var(--bad)}.good{color:var(--good)}\
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:11px system-ui,sans-serif}code{font-size:12px}";

/// Text that is no markup.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

/// A number with about four digits.
pub(crate) fn number(value: f64) -> String {
    let digits = if value.abs() >= 1000.0 {
        0
    } else if value.abs() >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// A page that is being written.
pub(crate) struct Html(String);

impl Html {
    /// The head of a page. `style` is added to what all pages have.
    pub(crate) fn new(title: &str, heading: &str, style: &str) -> Self {
        let (title, heading) = (escape(title), escape(heading));
        Self(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<style>{STYLE}{style}</style></head><body>\n<h1>{heading}</h1>\n"
        ))
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        self.0 + "</body></html>\n"
    }

    /// Adds markup.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.0 += markup;
    }

    pub(crate) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escape(text));
    }

    pub(crate) fn say(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escape(text));
    }

    /// Something that is shown when it is opened.
    pub(crate) fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.0, "<details><summary>{}</summary>", escape(summary));
        inside(self);
        self.0 += "</details>\n";
    }

    /// A table. A heading that starts with `>` is of numbers; a cell that starts with `-:` or `+:` is bad or good.
    pub(crate) fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) {
        let right: Vec<bool> = headings.iter().map(|h| h.starts_with('>')).collect();
        let class = |right: bool, mark: &str| match (right, mark) {
            (false, "") => String::new(),
            (true, "") => " class=\"n\"".to_owned(),
            (false, mark) => format!(" class=\"{mark}\""),
            (true, mark) => format!(" class=\"n {mark}\""),
        };
        self.0 += "<table><thead><tr>";
        for (heading, right) in headings.iter().zip(&right) {
            let _ = write!(self.0, "<th{}>{}</th>", class(*right, ""), escape(heading.trim_start_matches('>')));
        }
        self.0 += "</tr></thead><tbody>\n";
        for row in rows {
            self.0 += "<tr>";
            for (cell, right) in row.iter().zip(&right) {
                let (mark, text) = match (cell.strip_prefix("-:"), cell.strip_prefix("+:")) {
                    (Some(text), _) => ("bad", text),
                    (_, Some(text)) => ("good", text),
                    _ => ("", cell.as_str()),
                };
                let _ = write!(self.0, "<td{}>{}</td>", class(*right, mark), escape(text));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</tbody></table>\n";
    }
}
