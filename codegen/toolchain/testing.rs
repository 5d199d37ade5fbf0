//! Units and compilers for tests. A test whose compiler is not installed says so and passes.

use super::{Nvfatbin, Nvrtc, Unit, find};
use parbake_model::source::Closure;
use std::path::PathBuf;
use std::sync::Arc;

/// Where tests look for installed toolchains.
pub(super) fn toolchains() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("PARBAKE_TEST_TOOLCHAINS")
        .or_else(|| set("PARBAKE_TOOLCHAINS"))
        .or_else(|| set("XDG_DATA_HOME").map(|d| d.join("parbake/toolchains")))
        .or_else(|| set("HOME").map(|d| d.join(".local/share/parbake/toolchains")))
        .unwrap_or_else(|| "toolchains".into())
}

#[expect(clippy::print_stdout, reason = "the one way in which a test can say that it did nothing")]
pub(super) fn say(text: &str) {
    println!("{text}");
}

/// Says that a test did nothing, and what it needs.
pub(super) fn skipped(folder: &str, install: &str) {
    say(&format!("skipped: needs {folder} (parbake toolchain install {install})"));
}

/// NVRTC and nvFatbin of an installed version.
pub(crate) fn cuda(version: &str) -> Option<(Arc<Nvrtc>, Arc<Nvfatbin>)> {
    let folder = toolchains().join(format!("cuda-{version}"));
    let (nvrtc, nvfatbin) = (find::libraries(&folder, "libnvrtc.so"), find::libraries(&folder, "libnvfatbin.so"));
    let (Some(nvrtc), Some(nvfatbin)) = (nvrtc.first(), nvfatbin.first()) else {
        skipped(&format!("cuda-{version}"), version);
        return None;
    };
    Some((Nvrtc::open(nvrtc).unwrap(), Nvfatbin::open(nvfatbin).unwrap()))
}

/// A unit with headers that lie under `include/`.
pub(crate) fn unit(entry: &str, text: &str, headers: &[(&str, &str)]) -> Unit {
    let mut closure = Closure::default();
    for (name, text) in headers {
        closure.headers.insert((*name).to_owned(), (*text).to_owned());
        closure.paths.insert((*name).to_owned(), format!("include/{name}"));
    }
    Unit { name: format!("{entry}.cu"), text: text.to_owned(), entry: entry.to_owned(), closure }
}

/// A small kernel with a header, for CUDA compilers.
pub(super) fn scale_unit(entry: &str) -> Unit {
    let text = format!(
        "#include \"t/scale.cuh\"\nextern \"C\" __global__ void {entry}(float* y, const float* x, float a) {{\n    \
         scale(y, x, a);\n}}\n"
    );
    let scale = "#pragma once\n#include \"t/index.cuh\"\n__device__ inline void scale(float* y, const float* x, float \
                 a) { y[at()] = x[at()] / a * sinf(a); }\n";
    let index = "#pragma once\n__device__ inline unsigned at() { return blockIdx.x * blockDim.x + threadIdx.x; }\n";
    unit(entry, &text, &[("t/scale.cuh", scale), ("t/index.cuh", index)])
}
