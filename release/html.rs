//! Pages: one HTML file each with its style inside, nothing fetched and nothing run.

use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--ink:#222;--paper:#fff;--bad:#b00020;--good:#19703a}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181c;--bad:#ff7b86;--good:#6fcf97}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;font-size:13px;display:block;width:fit-content;max-width:100%;overflow-x:auto;\
background:linear-gradient(90deg,var(--paper) 40%,transparent) left/48px 100% no-repeat local,\
linear-gradient(270deg,var(--paper) 40%,transparent) right/48px 100% no-repeat local,\
linear-gradient(90deg,#8887,transparent) left/16px 100% no-repeat scroll,\
linear-gradient(270deg,#8887,transparent) right/16px 100% no-repeat scroll}\
th,td{padding:3px 9px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}\
td.long{white-space:normal;min-width:22em;overflow-wrap:anywhere}\
@media(max-width:600px){th,td{padding:3px 6px}th{white-space:normal;vertical-align:bottom}\
th:first-child,td:first-child{white-space:normal;position:sticky;left:0;background:var(--paper)}\
.prose{background:none}.prose tbody{display:block}.prose thead{display:none}.prose tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--line);padding:3px 0}\
.prose td{border:0;padding:0 6px}.prose td.long{flex-basis:100%;min-width:0}\
.prose td.n[data-of]::after{content:\" \" attr(data-of)}.prose td.long[data-of]::before{content:attr(data-of) \" \";opacity:.65}}\
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

/// The same for a name, which may be broken behind `/` and `_`.
pub(crate) fn breakable(name: &str) -> String {
    escape(name).replace('/', "/<wbr>").replace('_', "_<wbr>")
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

    /// A table. A heading that starts with `>` is of numbers, one that starts with `~` of sentences, which on a narrow
    /// screen stand below the rest of their row. A cell that starts with `-:` or `+:` is bad or good.
    pub(crate) fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) {
        let columns: Vec<(&str, &str)> = headings
            .iter()
            .map(|heading| match (heading.strip_prefix('>'), heading.strip_prefix('~')) {
                (Some(numbers), _) => ("n", numbers),
                (_, Some(sentences)) => ("long", sentences),
                _ => ("", *heading),
            })
            .collect();
        let class = |kind: &str, mark: &str| match [kind, mark].join(" ").trim() {
            "" => String::new(),
            both => format!(" class=\"{both}\""),
        };
        // Where there are sentences, headings are not seen on a narrow screen.
        let prose = columns.iter().any(|(kind, _)| *kind == "long");
        self.0 += if prose { "<table class=\"prose\"><thead><tr>" } else { "<table><thead><tr>" };
        for (kind, heading) in &columns {
            let kind = if *kind == "n" { "n" } else { "" };
            let _ = write!(self.0, "<th{}>{}</th>", class(kind, ""), escape(heading));
        }
        self.0 += "</tr></thead><tbody>\n";
        for row in rows {
            self.0 += "<tr>";
            for (at, (cell, (kind, heading))) in row.iter().zip(&columns).enumerate() {
                let (mark, text) = match (cell.strip_prefix("-:"), cell.strip_prefix("+:")) {
                    (Some(text), _) => ("bad", text),
                    (_, Some(text)) => ("good", text),
                    _ => ("", cell.as_str()),
                };
                let text = if at == 0 { breakable(text) } else { escape(text) };
                let of = if prose && !kind.is_empty() && !heading.is_empty() {
                    format!(" data-of=\"{}\"", escape(heading))
                } else {
                    String::new()
                };
                let _ = write!(self.0, "<td{}{of}>{text}</td>", class(kind, mark));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</tbody></table>\n";
    }
}
