//! Every error code, in one table: what it means, and what to do about it.
//!
//! A code is given by one file of the sources and has one row here; `tests/repository.rs` compares the two. The rows are
//! what `parbake explain` prints and what `docs/reference/errors.md` is generated from.

mod bundles;
mod commands;
mod definitions;
mod getting;
mod images;
mod runtime;
mod tactics;
mod targets;
mod toolchains;

/// An error code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// `PB-1512`.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// What it means, and how it comes about.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Codes about one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// How they begin: `PB-15`.
    pub prefix: &'static str,
    /// What they are about.
    pub about: &'static str,
    /// The codes, sorted.
    pub codes: &'static [Code],
}

const fn row(code: &'static str, title: &'static str, meaning: &'static str, remedy: &'static str) -> Code {
    Code { code, title, meaning, remedy }
}

/// All areas, sorted by their codes.
pub const AREAS: &[Area] = &[
    Area { prefix: "PB-10", about: "Settings", codes: definitions::SETTINGS },
    Area { prefix: "PB-11", about: "Definitions, specs and bakes", codes: definitions::DEFINITIONS },
    Area { prefix: "PB-12", about: "Targets and verdicts", codes: targets::TARGETS },
    Area { prefix: "PB-13", about: "Bundles and metadata", codes: bundles::BUNDLES },
    Area { prefix: "PB-14", about: "Cubins and fatbins", codes: images::IMAGES },
    Area { prefix: "PB-15", about: "Toolchains", codes: toolchains::TOOLCHAINS },
    Area { prefix: "PB-16", about: "The store and the workspace", codes: runtime::STORE },
    Area { prefix: "PB-20", about: "Calls and coverage", codes: runtime::CALLS },
    Area { prefix: "PB-21", about: "The driver, and dumps of calls", codes: runtime::DRIVER },
    Area { prefix: "PB-22", about: "Tactics: blocked, tuned, forced", codes: tactics::TACTICS },
    Area { prefix: "PB-30", about: "Commands of a checkout", codes: commands::CHECKOUT },
    Area { prefix: "PB-31", about: "The command line", codes: commands::COMMANDS },
    Area { prefix: "PB-32", about: "Benchmarks of ops", codes: commands::BENCHMARKS },
    Area { prefix: "PB-33", about: "What to bake, and what was baked", codes: commands::FLEET },
    Area { prefix: "PB-34", about: "Publishing and fetching", codes: getting::GETTING },
];

/// All codes, sorted.
pub fn all() -> impl Iterator<Item = &'static Code> {
    AREAS.iter().flat_map(|area| area.codes)
}

/// The code that a person names as `PB-1512`, `pb-1512`, `pb1512` or `1512`.
#[must_use]
pub fn find(text: &str) -> Option<&'static Code> {
    let text = text.trim().to_ascii_uppercase();
    let digits = text.strip_prefix("PB").map_or(text.as_str(), |rest| rest.trim_start_matches('-'));
    all().find(|c| &c.code[3..] == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_unique_and_in_their_area() {
        let codes: Vec<&str> = all().map(|c| c.code).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        for area in AREAS {
            assert!(!area.codes.is_empty() && area.codes.iter().all(|c| c.code.starts_with(area.prefix)), "{area:?}");
        }
    }

    #[test]
    fn every_row_is_whole_sentences() {
        for c in all() {
            assert!(c.code.len() == 7 && c.code[3..].bytes().all(|b| b.is_ascii_digit()), "{c:?}");
            assert!(!c.title.is_empty() && !c.title.ends_with('.'), "{c:?}");
            // A row of a Markdown page: no cell and no paragraph ends in it.
            assert!([c.title, c.meaning, c.remedy].iter().all(|t| !t.contains(['\n', '|']) && t.trim() == *t), "{c:?}");
            assert!(c.meaning.ends_with('.') && c.remedy.ends_with('.'), "{c:?}");
        }
    }

    #[test]
    fn a_code_is_found_however_it_is_typed() {
        for text in ["PB-1512", "pb-1512", "pb1512", "1512", " PB-1512 "] {
            assert_eq!(find(text).map(|c| c.code), Some("PB-1512"), "{text}");
        }
        for text in ["", "PB-", "PB-9999", "512", "PB-15120", "PB-151"] {
            assert_eq!(find(text), None, "{text}");
        }
    }
}
