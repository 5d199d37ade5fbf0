//! Targets: one GPU architecture with its suffix (`sm_90a`, `sm_100f`, `sm_80`, `compute_90`), or the host.
//!
//! A target is parsed, never compared as text: `12.1` contains `2.1`, and `90b` starts like `90`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A GPU architecture number: `90` is compute capability 9.0, `121` is 12.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Arch(pub u16);

impl Arch {
    /// The major compute capability.
    #[must_use]
    pub fn major(self) -> u16 {
        self.0 / 10
    }
    /// The minor compute capability.
    #[must_use]
    pub fn minor(self) -> u16 {
        self.0 % 10
    }
    /// The table row of this architecture, if it is one we know.
    #[must_use]
    pub fn facts(self) -> Option<&'static ArchFacts> {
        ARCHS.iter().find(|a| a.arch == self)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What is known of an architecture.
#[derive(Debug)]
pub struct ArchFacts {
    /// The number.
    pub arch: Arch,
    /// Whether the suffix `a` (this chip only) exists.
    pub specific: bool,
    /// Whether the suffix `f` (this family, this minor or later) exists.
    pub family: bool,
    /// First toolkit that compiles for it under this number.
    pub since: Toolkit,
    /// First driver (as a CUDA version) that can load code for it.
    pub min_driver: Toolkit,
    /// An integrated chip: desktop binaries of the same major are not promised to run there.
    pub integrated: bool,
}

const fn row(arch: u16, specific: bool, family: bool, since: (u16, u16), min_driver: (u16, u16)) -> ArchFacts {
    ArchFacts {
        arch: Arch(arch),
        specific,
        family,
        since: Toolkit { major: since.0, minor: since.1 },
        min_driver: Toolkit { major: min_driver.0, minor: min_driver.1 },
        integrated: matches!(arch, 87 | 88 | 110),
    }
}

/// Every architecture that can be named, in ascending order.
pub const ARCHS: &[ArchFacts] = &[
    row(75, false, false, (10, 0), (10, 0)),
    row(80, false, false, (11, 0), (11, 0)),
    row(86, false, false, (11, 1), (11, 1)),
    row(87, false, false, (11, 4), (11, 4)),
    row(88, false, false, (13, 0), (13, 0)),
    row(89, false, false, (11, 8), (11, 8)),
    row(90, true, false, (12, 0), (11, 8)),
    row(100, true, true, (12, 9), (12, 8)),
    row(103, true, true, (12, 9), (12, 9)),
    row(110, true, true, (13, 0), (13, 0)),
    row(120, true, true, (12, 9), (12, 8)),
    row(121, true, true, (12, 9), (12, 9)),
];

/// How far an image reaches beyond the architecture that it was compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Suffix {
    /// Runs on this minor and later ones of the same major.
    Baseline,
    /// `f`: this minor and later ones of the same family.
    Family,
    /// `a`: exactly this chip.
    Specific,
}

impl Suffix {
    fn letter(self) -> &'static str {
        match self {
            Self::Baseline => "",
            Self::Family => "f",
            Self::Specific => "a",
        }
    }
}

/// What an image is compiled for. Ordered as bundles are: by architecture, then suffix; PTX after machine code; host first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// The CPU of this machine, through the host target's shim.
    Host,
    /// Machine code, `sm_90a`.
    Sm(Arch, Suffix),
    /// PTX, `compute_90`.
    Compute(Arch, Suffix),
}

impl Target {
    /// Hopper with all that it has: wgmma and the whole copy engine.
    pub const SM_90A: Self = Self::Sm(Arch(90), Suffix::Specific);

    /// The architecture, unless this is the host.
    #[must_use]
    pub fn arch(self) -> Option<Arch> {
        match self {
            Self::Host => None,
            Self::Sm(arch, _) | Self::Compute(arch, _) => Some(arch),
        }
    }
    /// The suffix; the host has none.
    #[must_use]
    pub fn suffix(self) -> Suffix {
        match self {
            Self::Host => Suffix::Baseline,
            Self::Sm(_, suffix) | Self::Compute(_, suffix) => suffix,
        }
    }
    /// Architecture and suffix as compilers spell them after `sm_`: `90a`.
    #[must_use]
    pub fn digits(self) -> String {
        self.arch().map(|a| format!("{a}{}", self.suffix().letter())).unwrap_or_default()
    }
    /// Parses a comma- or space-separated list; repeated entries count once; the result is sorted.
    ///
    /// # Errors
    /// The first entry that is not a target, or an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, BadTarget> {
        let words = text.split([',', ' ', ';']).filter(|w| !w.is_empty());
        let mut list = words.map(str::parse).collect::<Result<Vec<Self>, _>>()?;
        if list.is_empty() {
            return Err(BadTarget { given: text.to_owned(), why: "the list is empty".into() });
        }
        list.sort();
        list.dedup();
        Ok(list)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Sm(..) => write!(f, "sm_{}", self.digits()),
            Self::Compute(..) => write!(f, "compute_{}", self.digits()),
        }
    }
}

/// A text that names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an architecture: {why}")]
pub struct BadTarget {
    /// What was given.
    pub given: String,
    /// What is wrong with it.
    pub why: String,
}

impl BadTarget {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1200"
    }
}

/// All spellings that exist, for messages: `75, 80, … 90, 90a, 100, 100a, 100f …`.
#[must_use]
pub fn known_targets() -> String {
    let mut names = Vec::new();
    for facts in ARCHS {
        names.push(facts.arch.to_string());
        names.extend(facts.specific.then(|| format!("{}a", facts.arch)));
        names.extend(facts.family.then(|| format!("{}f", facts.arch)));
    }
    names.join(", ")
}

impl FromStr for Target {
    type Err = BadTarget;
    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let bad = |why: String| BadTarget { given: text.chars().take(40).collect(), why };
        if text == "host" {
            return Ok(Self::Host);
        }
        let (ptx, rest) = match text.strip_prefix("compute_") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("sm_").unwrap_or(text)),
        };
        if let Some((major, minor)) = rest.split_once('.') {
            let without = format!("{major}{minor}");
            return Err(bad(match without.parse::<Self>() {
                Ok(_) => format!("architectures are written without a dot: `{without}`"),
                Err(_) => format!("architectures are written without a dot, and are one of {}", known_targets()),
            }));
        }
        let (number, suffix) = match rest.as_bytes().last() {
            Some(b'a') => (&rest[..rest.len() - 1], Suffix::Specific),
            Some(b'f') => (&rest[..rest.len() - 1], Suffix::Family),
            Some(b'0'..=b'9') => (rest, Suffix::Baseline),
            _ => {
                return Err(bad(format!(
                    "expected a number with the suffix `a`, `f` or none; known are {}",
                    known_targets()
                )));
            }
        };
        let plain = !number.is_empty()
            && number.len() <= 3
            && number.bytes().all(|c| c.is_ascii_digit())
            && !number.starts_with('0');
        let facts = plain.then(|| number.parse().ok().and_then(|n| Arch(n).facts())).flatten();
        let facts = facts.ok_or_else(|| bad(format!("known are {}, and `host`", known_targets())))?;
        let exists = match suffix {
            Suffix::Baseline => true,
            Suffix::Family => facts.family,
            Suffix::Specific => facts.specific,
        };
        if !exists {
            return Err(bad(format!(
                "{} has no suffix `{}`; known are {}",
                facts.arch,
                suffix.letter(),
                known_targets()
            )));
        }
        Ok(if ptx { Self::Compute(facts.arch, suffix) } else { Self::Sm(facts.arch, suffix) })
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A CUDA version of two parts. Drivers are described by the newest toolkit that they support.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Toolkit {
    /// The major version.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
}

impl Toolkit {
    /// From the number `cuDriverGetVersion` gives: 13000 is 13.0, 12040 is 12.4.
    #[must_use]
    pub fn from_driver(version: i32) -> Self {
        let version = u32::try_from(version).unwrap_or(0);
        Self { major: (version / 1000) as u16, minor: (version % 1000 / 10) as u16 }
    }

    /// The PTX ISA that this toolkit writes and a driver of this version reads: 12.9 → 8.8, 13.0 → 9.0.
    #[must_use]
    pub fn ptx_isa(self) -> (u16, u16) {
        match (self.major, self.minor) {
            (12, minor @ 0..=5) => (8, minor),
            (12, minor) => (8, minor - 1),
            (major, minor) => (major.saturating_sub(4), minor),
        }
    }
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is not `MAJOR.MINOR`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a CUDA version as `MAJOR.MINOR`, got `{0}`")]
pub struct NotAToolkit(pub String);

impl FromStr for Toolkit {
    type Err = NotAToolkit;
    fn from_str(text: &str) -> Result<Self, NotAToolkit> {
        let part = |t: &str| {
            (!t.is_empty() && t.len() <= 3 && t.bytes().all(|c| c.is_ascii_digit())).then(|| t.parse().ok()).flatten()
        };
        let parts = text.split_once('.').and_then(|(major, minor)| part(major).zip(part(minor)));
        parts.map(|(major, minor)| Self { major, minor }).ok_or_else(|| NotAToolkit(text.chars().take(40).collect()))
    }
}

impl Serialize for Toolkit {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Toolkit {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_not_matched() {
        for good in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_121a", "compute_90", "compute_90a", "host"] {
            assert_eq!(good.parse::<Target>().unwrap().to_string(), good);
        }
        assert_eq!("90a".parse(), Ok(Target::Sm(Arch(90), Suffix::Specific)));
        for bad in [
            "99", "12.1", "2.1", "90b", "90f", "80a", "", "a", "sm_", "0", "090", "+90", "9000", "sm90", "SM_90",
            "hosts", "9é",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
        assert!("12.1".parse::<Target>().unwrap_err().to_string().contains("`121`"));
        assert!(!"2.1".parse::<Target>().unwrap_err().to_string().contains("`21`"));
    }

    #[test]
    fn other_peoples_spellings_are_a_value_or_an_error_and_never_a_guess() {
        // What users of other builders type, and what it is here: a list, or the reason why not.
        let table: &[(&str, Result<&str, &str>)] = &[
            ("80", Ok("sm_80")),
            ("sm_80", Ok("sm_80")),
            ("compute_80", Ok("compute_80")),
            ("8.0", Err("written without a dot: `80`")),
            ("9.0a", Err("written without a dot: `90a`")),
            ("9.0+PTX", Err("written without a dot, and are one of 75,")),
            ("90+PTX", Err("expected a number with the suffix")),
            ("10.0f;12.0", Err("written without a dot: `100f`")),
            ("100f;120", Ok("sm_100f,sm_120")),
            ("12.1", Err("written without a dot: `121`")),
            ("2.1", Err("are one of 75,")),
            ("21", Err("known are 75,")),
            ("100,100a", Ok("sm_100,sm_100a")),
            ("100a 100,100", Ok("sm_100,sm_100a")),
            ("90,90a,90-real", Err("expected a number with the suffix")),
            ("", Err("the list is empty")),
            (" ", Err("the list is empty")),
            (",;", Err("the list is empty")),
            ("native", Err("expected a number with the suffix")),
            ("all", Err("expected a number with the suffix")),
            ("all-major", Err("expected a number with the suffix")),
            ("99.9", Err("are one of 75,")),
            ("999", Err("known are 75,")),
            ("-90", Err("known are 75,")),
            ("0x5a", Err("known are 75,")),
            ("90\t", Err("expected a number with the suffix")),
            ("\u{ff19}\u{ff10}", Err("expected a number with the suffix")),
            ("sm_sm_90", Err("known are 75,")),
            ("host,90", Ok("host,sm_90")),
            ("Host", Err("expected a number with the suffix")),
        ];
        for (text, expected) in table {
            match (Target::parse_list(text), expected) {
                (Ok(list), Ok(spelled)) => {
                    let again = list.iter().map(Target::to_string).collect::<Vec<_>>().join(",");
                    assert_eq!(again, *spelled, "{text:?}");
                    assert_eq!(Target::parse_list(&again), Ok(list), "{text:?}");
                }
                (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{text:?}: {error}"),
                (got, _) => panic!("{text:?}: {got:?}"),
            }
        }
        for facts in ARCHS {
            for suffix in [Suffix::Baseline, Suffix::Family, Suffix::Specific] {
                for target in [Target::Sm(facts.arch, suffix), Target::Compute(facts.arch, suffix)] {
                    let exists = match suffix {
                        Suffix::Baseline => true,
                        Suffix::Family => facts.family,
                        Suffix::Specific => facts.specific,
                    };
                    assert_eq!(target.to_string().parse::<Target>().ok(), exists.then_some(target), "{target}");
                }
            }
        }
    }

    #[test]
    fn lists_are_sorted_sets() {
        let list = Target::parse_list("120f,80,90a,80").unwrap();
        assert_eq!(list.iter().map(Target::to_string).collect::<Vec<_>>(), ["sm_80", "sm_90a", "sm_120f"]);
        assert!(Target::parse_list(" , ").is_err());
        assert!(Target::parse_list("80,99").is_err());
    }

    #[test]
    fn ptx_versions_follow_the_toolkit() {
        for (toolkit, isa) in
            [("12.0", (8, 0)), ("12.4", (8, 4)), ("12.8", (8, 7)), ("12.9", (8, 8)), ("13.0", (9, 0)), ("13.5", (9, 5))]
        {
            assert_eq!(toolkit.parse::<Toolkit>().unwrap().ptx_isa(), isa);
        }
        assert_eq!(Toolkit::from_driver(12040).to_string(), "12.4");
    }
}
