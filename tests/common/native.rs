//! The shared library as programs in C find it, and compilers for them.

#![allow(dead_code, reason = "each test uses its own part")]

use crate::common::root;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder of this build: where `libparbake_ffi.so` lies once it is built.
pub(crate) fn build_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).expect("tests lie in `deps`").to_owned()
}

/// The shared library, built by whoever asks first: cargo does not build it for the tests of another package.
pub(crate) fn shared_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built(&["--package", "parbake-ffi"], "libparbake_ffi.so"))
}

/// Has cargo build something for the profile of this test, and says where it is.
pub(crate) fn built(what: &[&str], file: &str) -> PathBuf {
    let folder = build_folder();
    let release = folder.file_name().is_some_and(|n| n == "release");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    // Build scripts that look at what cargo told this test would run anew, and so would all that depends on them.
    let told = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|start| name.starts_with(start));
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_str().is_some_and(told)) {
        command.env_remove(name);
    }
    command.args(["build", "--quiet", "--locked"]).args(what).current_dir(root());
    command.arg("--target-dir").arg(folder.parent().unwrap()).args(release.then_some("--release"));
    good(&command.output().unwrap(), "cargo build");
    folder.join(file)
}

/// Fails with everything that a program said unless it succeeded; its standard output.
pub(crate) fn good(output: &Output, what: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out
}

/// A compiler of the system for C or C++, with every warning an error.
pub(crate) fn compiler(cpp: bool, standard: &str) -> Command {
    let (host, mut build) = ("x86_64-unknown-linux-gnu", cc::Build::new());
    let found = build.cpp(cpp).opt_level(0).target(host).host(host).get_compiler();
    let mut command = Command::new(found.path());
    command.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg(format!("-I{}", root().join("generated-manifest").display()));
    command
}

/// Compiles a source against the shared library, and gives the program.
pub(crate) fn program(source: &str, standard: &str, folder: &Path) -> PathBuf {
    let library = shared_library().parent().unwrap();
    let source = root().join(source);
    let program = folder.join(source.file_stem().unwrap());
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let mut command = compiler(cpp, standard);
    command.arg(&source).arg("-o").arg(&program).arg(format!("-L{}", library.display())).args(["-lparbake_ffi", "-lm"]);
    good(&command.arg(format!("-Wl,-rpath,{}", library.display())).output().unwrap(), "the compiler");
    program
}

/// A command whose library takes kernels from the checkout and writes below a folder only.
pub(crate) fn isolated(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("PARBAKE_")) {
        command.env_remove(name);
    }
    command.env("PARBAKE_KERNELS", root().join("kernels")).env("PARBAKE_WORKSPACE", folder.join("workspace"));
    command.env("XDG_DATA_HOME", folder.join("data")).env("XDG_DATA_DIRS", folder.join("system"));
    command
}
