//! The compilers that can be installed: exact versions with the digests of their wheels.
//!
//! Only what is pinned here is installed. nvcc's parts are pinned one by one, because left alone a resolver takes the
//! newest nvvm and crt for an older nvcc.

/// One wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pin {
    /// The distribution's name.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 of its x86-64 Linux wheels: one, or one for each Python.
    pub sha256: &'static [&'static str],
}

/// A set of wheels that is installed as one folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Component {
    /// `cuda`, `nvcc`, `libclang` or `triton`.
    pub name: &'static str,
    /// The toolkit's version, or the library's.
    pub version: &'static str,
    /// The wheels.
    pub pins: &'static [Pin],
    /// Files that must be there afterwards; each is an ELF file.
    pub files: &'static [&'static str],
    /// The licence that the user accepts by installing.
    pub licence: &'static str,
}

impl Component {
    /// The folder's name: `cuda-12.9`.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

const CUDA: &str = "NVIDIA CUDA Toolkit End User License Agreement (https://docs.nvidia.com/cuda/eula/)";
const TRITON: &str = "MIT; it holds parts of the NVIDIA CUDA Toolkit, whose End User License Agreement applies to them (https://docs.nvidia.com/cuda/eula/)";
const LLVM: &str = "Apache-2.0 WITH LLVM-exception";

const fn pin(package: &'static str, version: &'static str, sha256: &'static [&'static str]) -> Pin {
    Pin { package, version, sha256 }
}

/// Everything that can be installed.
pub const ALL: &[Component] = &[
    Component {
        name: "cuda",
        version: "12.9",
        pins: &[
            pin(
                "nvidia-cuda-nvrtc-cu12",
                "12.9.86",
                &["210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4"],
            ),
            pin(
                "nvidia-nvfatbin-cu12",
                "12.9.82",
                &["16cbfbd12287508212f22f42dff6ff51cf9b528b906f57f615b080da16dea1ea"],
            ),
        ],
        files: &["nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/nvfatbin/lib/libnvfatbin.so.12"],
        licence: CUDA,
    },
    Component {
        name: "cuda",
        version: "13.0",
        pins: &[
            pin("nvidia-cuda-nvrtc", "13.0.88", &["ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575"]),
            pin("nvidia-nvfatbin", "13.0.85", &["5e05287b34c02cb6a7c6d9bbb0bbe6da34665fad49878f30e3a722b4747eb676"]),
        ],
        files: &["nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvfatbin.so.13"],
        licence: CUDA,
    },
    Component {
        name: "cuda",
        version: "13.5",
        pins: &[
            pin("nvidia-cuda-nvrtc", "13.5.37", &["86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc"]),
            pin("nvidia-nvfatbin", "13.5.37", &["35e17e8abcfc1fb5ffe08746ca6bc4e497e9305beab28b17d722a8f2f50f7581"]),
        ],
        files: &["nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvfatbin.so.13"],
        licence: CUDA,
    },
    Component {
        name: "nvcc",
        version: "13.0",
        pins: &[
            pin("nvidia-cuda-nvcc", "13.0.88", &["56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"]),
            pin("nvidia-cuda-crt", "13.0.88", &["2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"]),
            pin(
                "nvidia-cuda-runtime",
                "13.0.96",
                &["7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"],
            ),
            pin("nvidia-cuda-cccl", "13.0.85", &["e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"]),
            pin("nvidia-nvvm", "13.0.88", &["c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"]),
        ],
        files: &["nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/ptxas", "nvidia/cu13/nvvm/bin/cicc"],
        licence: CUDA,
    },
    Component {
        name: "libclang",
        version: "18.1.1",
        pins: &[pin("libclang", "18.1.1", &["c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b"])],
        files: &["clang/native/libclang.so"],
        licence: LLVM,
    },
    Component {
        name: "triton",
        version: "3.6.0",
        pins: &[pin(
            "triton",
            "3.6.0",
            &[
                // CPython 3.10 to 3.14.
                "a6550fae429e0667e397e5de64b332d1e5695b73650ee75a6146e2e902770bea",
                "e8e323d608e3a9bfcc2d9efcc90ceefb764a82b99dea12a86d643c72539ad5d3",
                "74caf5e34b66d9f3a429af689c1c7128daba1d8208df60e81106b115c00d6fca",
                "10c7f76c6e72d2ef08df639e3d0d30729112f47a56b0c81672edc05ee5116ac9",
                "a17a5d5985f0ac494ed8a8e54568f092f7057ef60e1b0fa09d3fd1512064e803",
            ],
        )],
        files: &["triton/_C/libtriton.so", "triton/backends/nvidia/bin/ptxas-blackwell"],
        licence: TRITON,
    },
];

/// A component that is not in the table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{given}` cannot be installed; known are {}", known())]
pub struct UnknownComponent {
    /// What was asked for.
    pub given: String,
}

impl UnknownComponent {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1530"
    }
}

fn known() -> String {
    let names = ALL.iter().map(|c| match c.name {
        "cuda" => c.version.to_owned(),
        "nvcc" => format!("{} --with-nvcc", c.version),
        name => name.to_owned(),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The components that an argument of `parbake toolchain install` names: a toolkit version, `libclang` or `triton`.
///
/// # Errors
/// If there is none of that name.
pub fn named(text: &str, with_nvcc: bool) -> Result<Vec<&'static Component>, UnknownComponent> {
    let find = |name: &str, version: Option<&str>| {
        ALL.iter().find(|c| c.name == name && version.is_none_or(|v| v == c.version))
    };
    let given = if with_nvcc { format!("{text} --with-nvcc") } else { text.to_owned() };
    let version = text.strip_prefix("cuda-").unwrap_or(text);
    let first = if ["libclang", "triton"].contains(&text) { find(text, None) } else { find("cuda", Some(version)) };
    let nvcc = with_nvcc.then(|| find("nvcc", Some(version)));
    match (first, nvcc) {
        (Some(first), None) => Ok(vec![first]),
        (Some(first), Some(Some(nvcc))) => Ok(vec![first, nvcc]),
        _ => Err(UnknownComponent { given }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for component in ALL {
            for pin in component.pins {
                let parsed = |text: &&str| text.parse::<parbake_model::Digest>().is_ok();
                assert!(!pin.sha256.is_empty() && pin.sha256.iter().all(parsed), "{}", pin.package);
            }
            assert!(!component.files.is_empty());
            assert_eq!(ALL.iter().filter(|c| c.folder() == component.folder()).count(), 1);
        }
    }

    #[test]
    fn arguments_name_components() {
        let folders = |text, nvcc| named(text, nvcc).map(|l| l.iter().map(|c| c.folder()).collect::<Vec<_>>());
        assert_eq!(folders("12.9", false).unwrap(), ["cuda-12.9"]);
        assert_eq!(folders("13.0", true).unwrap(), ["cuda-13.0", "nvcc-13.0"]);
        assert_eq!(folders("libclang", false).unwrap(), ["libclang-18.1.1"]);
        assert_eq!(folders("triton", false).unwrap(), ["triton-3.6.0"]);
        let error = folders("12.9", true).unwrap_err().to_string();
        assert!(error.contains("12.9 --with-nvcc") && error.contains("13.0 --with-nvcc"), "{error}");
        assert!(folders("11.8", false).is_err());
    }
}
