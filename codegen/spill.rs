//! Spills: registers that a kernel kept in local memory, by what the compiler says. A bundle holds none; what is compiled
//! on demand runs with them, because slow is better than not at all.

use crate::toolchain::{CompileManifest, Toolchain, diagnosis};
use parbake_model::Target;
use parbake_model::identity::Profile;
use parbake_model::metadata::Metadata;
use parbake_model::report::{Class, Report};
use std::fmt;

/// What was spilled, in bytes of each thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill {
    /// Written to local memory.
    pub stores: u64,
    /// Read again.
    pub loads: u64,
}

impl fmt::Display for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of spill stores, {} bytes of spill loads", self.stores, self.loads)
    }
}

/// What a compiler says of a kernel that has local memory, for the log of its artifact. A cubin does not tell its stack
/// from its spills, so the compiler is asked once more, verbosely; that costs a second compilation of few kernels.
pub(crate) fn ask(manifest: &CompileManifest, toolchain: &dyn Toolchain) -> String {
    let mut verbose = manifest.clone();
    verbose.options.push(diagnosis::verbose(toolchain.kind()).to_owned());
    toolchain.compile(&verbose).map(|compiled| compiled.log).unwrap_or_default()
}

/// The numbers of `0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads`.
fn told(log: &str) -> Option<Spill> {
    let before = |words: &str| {
        let numbers = log.match_indices(words).filter_map(|(at, _)| log[..at].rsplit([' ', '\t', '\n']).next());
        numbers.filter_map(|n| n.parse::<u64>().ok()).reduce(u64::max)
    };
    Some(Spill { stores: before(" bytes spill stores")?, loads: before(" bytes spill loads")? })
}

/// What a release build for a GPU spills. Local memory that the compiler said nothing of counts as spilled; that of which
/// it says that it is a stack does not. Other profiles trade registers for something else.
#[must_use]
pub fn of(metadata: &Metadata) -> Option<Spill> {
    let local = u64::from(metadata.resources.map_or(0, |r| r.local_bytes));
    let judged = metadata.profile == Profile::Release && matches!(metadata.target, Target::Sm(..)) && local > 0;
    let spill = judged.then(|| told(&metadata.log).unwrap_or(Spill { stores: local, loads: local }))?;
    (spill.stores + spill.loads > 0).then_some(spill)
}

/// Whether artifacts may go into a bundle.
///
/// # Errors
/// All that spill: spec, target, bytes, compiler.
pub fn refuse<'a>(artifacts: impl IntoIterator<Item = &'a Metadata>) -> Result<(), Report> {
    let spilled: Vec<_> = artifacts.into_iter().filter_map(|m| Some((m, of(m)?))).collect();
    let what = format!("{} of the kernels spill registers: nothing was packed", spilled.len());
    let report = spilled.iter().fold(Report::new("PB-1130", Class::Failed, what), |report, (metadata, spill)| {
        let Metadata { spec, target, toolchain, .. } = metadata;
        report.with(format!("{spec} for {target}"), format!("{spill}, by {toolchain}"))
    });
    let Some((first, _)) = spilled.first() else { return Ok(()) };
    Err(report
        .help("let the tactic hold less in registers for this type, or exclude it with its reason in op.toml")
        .help(format!("`parbake show {}` shows source and compiler output", first.uri)))
}

#[cfg(test)]
mod tests {
    use super::{Spill, ask, told};
    use crate::toolchain::{Toolchain, testing};
    use parbake_model::cubin;
    use parbake_model::identity::Profile;
    use parbake_model::op::Options;

    #[test]
    fn the_numbers_are_those_of_the_compiler() {
        let log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'k' for 'sm_80'\n\
                   ptxas info    : Function properties for k\n    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 32 registers, used 1 barriers, 16 bytes cumulative stack size";
        assert_eq!(told(log), Some(Spill { stores: 8, loads: 12 }));
        assert_eq!(told("nothing of the kind"), None);
        // Of several functions the worst.
        let two = "4 bytes spill stores, 0 bytes spill loads\n20 bytes spill stores, 24 bytes spill loads";
        assert_eq!(told(two), Some(Spill { stores: 20, loads: 24 }));
    }
    #[test]
    fn a_stack_is_no_spill() {
        let indexed = "extern \"C\" __global__ void k(float* y, int n) {\n    float a[32];\n    for (int i = 0; i < 32; i++) \
                       a[i * n & 31] = y[i];\n    y[0] = a[n & 31];\n}\n";
        let hungry = "extern \"C\" __global__ void k(float* y) {\n    float a[64];\n#pragma unroll\n    for (int i = 0; i < \
                      64; i++) a[i] = y[i * 32];\n    __syncthreads();\n#pragma unroll\n    for (int i = 0; i < 64; i++) \
                      y[(63 - i) * 32] = a[i];\n}\n";
        for toolkit in ["12.9", "13.0", "13.5"] {
            let Some((nvrtc, _)) = testing::cuda(toolkit) else { continue };
            for (text, limit, spills) in [(indexed, None, false), (hungry, Some(32), true)] {
                let options = Options { max_registers: limit, ..Options::default() };
                let unit = testing::unit("k", text, &[]);
                let manifest = nvrtc.plan(unit, "sm_80".parse().unwrap(), &options, Profile::Release);
                let bytes = nvrtc.compile(&manifest).unwrap().bytes;
                // The cubin tells them not apart.
                assert!(cubin::read(&bytes).unwrap().resources["k"].local_bytes > 0, "{toolkit} {spills}");
                let log = ask(&manifest, &*nvrtc);
                let Spill { stores, loads } = told(&log).expect(&log);
                assert_eq!((stores > 0, loads > 0), (spills, spills), "{toolkit}: {log}");
            }
        }
    }
}
