//! GPUs by the names that are on their boxes, and what to compile for them.

use crate::settings::nearest;
use crate::target::{Arch, Target};

/// Names and architectures, as NVIDIA lists them (<https://developer.nvidia.com/cuda-gpus>). A name stands for all of its
/// variants, unless a longer one of the table says something else.
const GPUS: &[(u16, &[&str])] = &[
    (
        75,
        &[
            "T4",
            "T4G",
            "RTX 2060",
            "RTX 2070",
            "RTX 2080",
            "TITAN RTX",
            "RTX 4000",
            "RTX 5000",
            "RTX 6000",
            "RTX 8000",
            "GTX 1650",
            "GTX 1660",
        ],
    ),
    (80, &["A100", "A800", "A30"]),
    (
        86,
        &[
            "A2",
            "A10",
            "A10G",
            "A16",
            "A40",
            "RTX 3050",
            "RTX 3060",
            "RTX 3070",
            "RTX 3080",
            "RTX 3090",
            "RTX A2000",
            "RTX A4000",
            "RTX A4500",
            "RTX A5000",
            "RTX A5500",
            "RTX A6000",
        ],
    ),
    (87, &["JETSON ORIN", "ORIN", "JETSON AGX ORIN", "JETSON ORIN NANO", "JETSON ORIN NX"]),
    (
        89,
        &[
            "L4",
            "L20",
            "L40",
            "L40S",
            "RTX 4050",
            "RTX 4060",
            "RTX 4070",
            "RTX 4080",
            "RTX 4090",
            "RTX 2000 ADA",
            "RTX 4000 ADA",
            "RTX 4000 SFF ADA",
            "RTX 4500 ADA",
            "RTX 5000 ADA",
            "RTX 5880 ADA",
            "RTX 6000 ADA",
        ],
    ),
    (90, &["H100", "H200", "H800", "H20", "GH200"]),
    (100, &["B100", "B200", "GB200"]),
    (103, &["B300", "GB300"]),
    (110, &["JETSON THOR", "THOR", "JETSON AGX THOR"]),
    (
        120,
        &[
            "RTX 5050",
            "RTX 5060",
            "RTX 5070",
            "RTX 5080",
            "RTX 5090",
            "RTX PRO 2000",
            "RTX PRO 4000",
            "RTX PRO 4500",
            "RTX PRO 5000",
            "RTX PRO 6000",
        ],
    ),
    (121, &["GB10", "DGX SPARK"]),
];

/// A name that is not in the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownGpu {
    /// The name.
    pub given: String,
    /// The one that may be meant.
    pub nearest: Option<&'static str>,
}

/// What to compile for a GPU of this name, as a person or `nvidia-smi` spells it: the narrowest target that serves its
/// whole architecture, `sm_90a` for Hopper, `sm_100f` for a family that has a suffix of its own.
///
/// # Errors
/// A name that is not in the table.
pub fn target(name: &str) -> Result<Target, UnknownGpu> {
    let words = words(name);
    let stands = |known: &str| {
        let known = self::words(known);
        words.windows(known.len()).any(|part| part == known)
    };
    let all = || GPUS.iter().flat_map(|(arch, names)| names.iter().map(move |name| (*arch, *name)));
    let found = all().filter(|(_, known)| stands(known)).max_by_key(|(_, known)| known.len());
    match found {
        Some((arch, _)) => Ok(narrowest(Arch(arch))),
        None => {
            let nearest = nearest(&words.join(" "), all().map(|(_, name)| name));
            Err(UnknownGpu { given: name.to_owned(), nearest })
        }
    }
}

/// Of a family the first architecture: its code serves all of them.
fn narrowest(arch: Arch) -> Target {
    let arch = match arch.0 {
        103 => 100,
        121 => 120,
        other => other,
    };
    let facts = Arch(arch).facts().expect("bug: the table of GPUs names an architecture that is not known");
    let suffix = match (facts.family, facts.specific) {
        (true, _) => "f",
        (false, true) => "a",
        (false, false) => "",
    };
    format!("sm_{arch}{suffix}").parse().expect("bug: its own name is a target")
}

fn words(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_uppercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_they_are_printed() {
        for (name, expected) in [
            ("NVIDIA H200", "sm_90a"),
            ("NVIDIA H100 80GB HBM3", "sm_90a"),
            ("NVIDIA A100-SXM4-80GB", "sm_80"),
            ("Tesla T4", "sm_75"),
            ("l40s", "sm_89"),
            ("NVIDIA GeForce RTX 4090", "sm_89"),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", "sm_89"),
            // Three generations of one number.
            ("Quadro RTX 6000", "sm_75"),
            ("NVIDIA RTX A6000", "sm_86"),
            ("NVIDIA RTX 6000 Ada Generation", "sm_89"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120f"),
            ("NVIDIA B200", "sm_100f"),
            ("B300", "sm_100f"),
            ("DGX Spark", "sm_120f"),
            ("Jetson AGX Thor", "sm_110f"),
        ] {
            assert_eq!(target(name).map(|t| t.to_string()).as_deref(), Ok(expected), "{name}");
        }
        assert_eq!(target("H20O").unwrap_err().nearest, Some("H200"));
        assert_eq!(target("Radeon").unwrap_err().nearest, None);
        assert!(target("").is_err());
        for (arch, names) in GPUS {
            for name in *names {
                let found = target(name).unwrap();
                let image = crate::verdict::Image { target: found, toolkit: crate::Toolkit { major: 13, minor: 0 } };
                assert!(crate::verdict::verdict(&image, Some(Arch(*arch)), None).is_ok(), "{name}: {found}");
            }
        }
    }
}
