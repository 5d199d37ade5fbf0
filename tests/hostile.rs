//! An environment that is full of variables which compilers listen to does not change a byte of what is compiled.
//!
//! The environment of a process is set before it starts, so the test starts itself again.

#![allow(clippy::print_stdout, reason = "what the second process found is printed; skips are too")]

mod common;

use common::World;
use parbake::model::{Digest, Target};
use parbake_codegen::toolchain::{Toolchain, find};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// Tells the second process which compiler is wanted, by kind and version.
const WANTED: &str = "PARBAKE_TEST_WANTED";
/// Begins the line on which it answers.
const ANSWER: &str = "compiled: ";

const HOST: &str = "host";
const NVCC: &str = "nvcc 13.0";
const NVRTC: [&str; 3] = ["nvrtc 12.9", "nvrtc 13.0", "nvrtc 13.5"];

fn compiler(world: &World, wanted: &str) -> Option<(Arc<dyn Toolchain>, Target)> {
    let library = world.library();
    let gpu: Target = "sm_90a".parse().unwrap();
    let (kind, version) = wanted.split_once(' ').unwrap_or((wanted, ""));
    match kind {
        "host" => Some((library.toolchain(Target::Host, None).unwrap(), Target::Host)),
        "nvrtc" => common::toolchain(&library, "sm_90a", version).map(|t| (t, gpu)),
        _ => {
            let toolchains = world.config.toolchains.clone();
            let search =
                find::Search { explicit: None, toolchains, want: version.parse().ok(), driver: None, target: gpu };
            let found = find::find_nvcc(&search).ok();
            if found.is_none() {
                println!("skipped: needs nvcc-{version} (parbake toolchain install {version} --with-nvcc)");
            }
            found.map(|nvcc| (nvcc as Arc<dyn Toolchain>, gpu))
        }
    }
}

/// Compiles one spec and prints the digest of what came out with the id of what made it, or the error. Does nothing
/// unless it was started by the tests below.
#[test]
fn second_process() {
    let Ok(wanted) = std::env::var(WANTED) else { return };
    let world = World::new();
    let Some((toolchain, target)) = compiler(&world, &wanted) else { return };
    let library = world.library();
    let op = library.op("rmsnorm").unwrap();
    let spec = library.spec(op, &[("dtype".to_owned(), "f32".to_owned())], target).unwrap();
    let manifest = library.plan(op, &spec, target, &*toolchain, parbake::model::identity::Profile::Release).unwrap();
    match toolchain.compile(&manifest) {
        Ok(compiled) => println!("{ANSWER}{} by {}", Digest::of(&compiled.bytes), toolchain.id()),
        Err(error) => println!("{ANSWER}{}", error.report().to_string().replace('\n', " | ")),
    }
}

/// What the second process answers with these variables set; `None` if its compiler is not installed.
fn answer(wanted: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "second_process", "--nocapture"]).env(WANTED, wanted);
    command.envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{wanted}: {text}\n{}", String::from_utf8_lossy(&stderr));
    let found = text.lines().find_map(|l| l.split_once(ANSWER)).map(|(_, answer)| answer.to_owned());
    if found.is_none() {
        println!("{}", text.lines().find(|l| l.starts_with("skipped: ")).expect("an answer or a skip"));
    }
    found
}

/// A folder that is wrong to look into: headers, libraries and programs that break whatever takes them.
fn trap(folder: &Path) {
    let script = "#!/bin/sh\necho trapped >&2\nexit 1\n";
    for name in ["as", "ld", "collect2", "cc1plus", "cicc", "ptxas", "gcc", "g++"] {
        let path = folder.join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    for name in ["math.h", "cstdint", "stdint.h", "vector", "cuda_runtime.h", "crt/host_config.h"] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#error trapped\n").unwrap();
    }
    for name in ["libpthread.so", "libstdc++.so", "libm.so", "libc.so"] {
        std::fs::write(folder.join(name), "trapped\n").unwrap();
    }
}

/// Every variable that was seen to be read by a compiler, an assembler or a linker, with the value that hurts most.
fn hostile(trap: &str) -> Vec<(&'static str, String)> {
    let own = |name, value: &str| (name, value.to_owned());
    let mut variables = vec![
        own("NVCC_APPEND_FLAGS", "-G"),
        own("NVCC_PREPEND_FLAGS", "-O0 --bogus"),
        own("NVCC_CCBIN", "/nonexistent/g++"),
        own("PTXAS_FLAGS", "-O0"),
        own("OCG_FLAGS", "-O0"),
        own("NVVM_FLAGS", "-ftz=1"),
        own("CUDAFE_FLAGS", "--bogus"),
        own("LDEMULATION", "elf_i386"),
        own("GNUTARGET", "elf32-i386"),
        own("COLLECT_NO_DEMANGLE", "1"),
        own("GCC_COMPARE_DEBUG", "-gtoggle"),
        own("GCC_COLORS", "error=01;31"),
        own("GCC_EXTRA_DIAGNOSTIC_OUTPUT", "fixits-v1"),
        own("CCC_OVERRIDE_OPTIONS", "#+-O0"),
        own("CFLAGS", "-O0 --bogus"),
        own("CXXFLAGS", "-O0 --bogus"),
        own("CPPFLAGS", "-I/nonexistent"),
        own("LDFLAGS", "-Wl,--bogus"),
        own("SOURCE_DATE_EPOCH", "1"),
        own("LC_ALL", "tr_TR.UTF-8"),
        own("LANG", "tr_TR.UTF-8"),
        own("LANGUAGE", "tr"),
        own("MAKEFLAGS", "-j4 --jobserver-auth=3,4"),
        own("CUDA_FORCE_PTX_JIT", "1"),
        own("NVRTC_DISABLE_PCH", "1"),
        own("LLVM_OVERRIDE_PRODUCER", "trapped"),
    ];
    let folders = [
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "INCLUDES",
        "SYSTEM_INCLUDES",
        "LIBRARY_PATH",
        "LIBRARIES",
        "LPATH",
        "LD_RUN_PATH",
        "COMPILER_PATH",
        "GCC_ROOT",
        "BINUTILS_ROOT",
        "CICC_PATH",
        "NVVMIR_LIBRARY_DIR",
        "EDG_BASE",
        "CUDA_CACHE_PATH",
    ];
    variables.extend(folders.map(|name| (name, trap.to_owned())));
    variables.extend(["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"].map(|n| (n, format!("{trap}/dependencies"))));
    variables.push(("GCC_EXEC_PREFIX", format!("{trap}/")));
    variables.push(("TMPDIR", format!("{trap}/a temporary folder")));
    variables
}

#[test]
fn no_variable_changes_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    let trapped = folder.path().join("trap");
    std::fs::create_dir_all(trapped.join("a temporary folder")).unwrap();
    trap(&trapped);
    let hostile = hostile(trapped.to_str().unwrap());
    let hostile: Vec<_> = hostile.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for wanted in [HOST, NVCC].into_iter().chain(NVRTC) {
        let Some(clean) = answer(wanted, &[]) else { continue };
        assert!(clean.contains(&format!(" by {wanted} ")), "{wanted}: {clean}");
        assert_eq!(answer(wanted, &hostile).as_ref(), Some(&clean), "{wanted}");
    }
    assert!(!trapped.join("dependencies").exists());
}

#[test]
fn a_variable_that_cannot_be_kept_from_nvrtc_is_refused() {
    for wanted in NVRTC {
        for name in [
            "NVRTC_APPEND_FLAGS",
            "NVRTC_PREPEND_FLAGS",
            "FINALIZER_USE_LEGACY_ELF_BUILDER",
            "FINALIZER_CUBIE",
            "NV_NVVM_VERSION",
        ] {
            let Some(answer) = answer(wanted, &[(name, "1")]) else { continue };
            assert!(answer.contains("error[PB-15") && answer.contains(name), "{wanted}: {answer}");
        }
    }
}
