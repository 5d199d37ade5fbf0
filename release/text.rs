//! Text for terminals: aligned columns and sizes.

use std::fmt::Write as _;

/// Lines are broken here, if their last column can be.
const WIDTH: usize = 110;

/// Rows of cells under headings. A heading that starts with `>` has its column aligned to the right.
pub(crate) struct Table {
    right: Vec<bool>,
    indent: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|h| h.starts_with('>')).collect();
        let names = headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect();
        Self { right, indent: 0, rows: vec![names] }
    }

    /// Indented rows without headings.
    pub(crate) fn plain() -> Self {
        Self { right: Vec::new(), indent: 2, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line ended. Only the last column is broken into lines.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(column));
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (column, cell) in row.iter().enumerate() {
                let pad = widths[column] - cell.chars().count();
                if self.right.get(column) == Some(&true) {
                    line += &" ".repeat(pad);
                    line += cell;
                } else if column + 1 == row.len() {
                    let start = line.chars().count();
                    line += &wrap(cell, start);
                } else {
                    line += cell;
                    line += &" ".repeat(pad);
                }
                if column + 1 < row.len() {
                    line += "  ";
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// Breaks a text that starts at a column into lines that start there too.
pub(crate) fn wrap(cell: &str, start: usize) -> String {
    let room = WIDTH.saturating_sub(start).max(40);
    let mut text = String::new();
    for (i, line) in cell.lines().enumerate() {
        let mut used = 0;
        if i > 0 {
            text += &format!("\n{}", " ".repeat(start));
        }
        for word in line.split(' ') {
            let length = word.chars().count();
            // A path that does not fit fits no better on a line of its own.
            if used > 0 && used + 1 + length > room && !word.starts_with('/') {
                text += &format!("\n{}", " ".repeat(start));
                used = 0;
            } else if used > 0 {
                text.push(' ');
                used += 1;
            }
            text += word;
            used += length;
        }
    }
    text
}

/// A size as people read it: `812 B`, `12.3 KiB`.
pub(crate) fn bytes(size: u64) -> String {
    let mut value = size as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{size} B") } else { format!("{value:.1} {unit}") }
}

/// Things as a list: `a, b, c`.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

/// `1 image`, `2 images`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `1 entry`, `2 entries`.
pub(crate) fn entries(number: usize) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}

/// A word as a shell takes it.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-,=:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_quoted_only_if_it_must_be() {
        assert_eq!(["/a/b.lock", "a b", "it's", ""].map(shell), ["/a/b.lock", "'a b'", "'it'\\''s'", "''"]);
    }

    #[test]
    fn columns_are_aligned_and_the_last_is_broken() {
        let mut table = Table::new(&["OP", ">N", "WHY"]);
        table.row(["rmsnorm".to_owned(), "7".to_owned(), "word ".repeat(30)]);
        table.row(["x²", "100", "short"]);
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "OP         N  WHY");
        assert!(lines[1].starts_with("rmsnorm    7  word word") && lines[2].starts_with("              word"));
        assert_eq!(lines[3], "x²       100  short");
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH && !l.ends_with(' ')));
    }

    #[test]
    fn sizes_have_one_digit_after_the_point() {
        assert_eq!([0, 1023, 1024, 1 << 21].map(bytes), ["0 B", "1023 B", "1.0 KiB", "2.0 MiB"]);
    }
}
