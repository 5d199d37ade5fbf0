//! Puts into the library what its features ask for: kernel sources (`embed-sources`), a bundle (`aot`). Without them
//! nothing is read and nothing is built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "embed-sources")]
    embed_sources();
    #[cfg(feature = "aot")]
    embed_bundle();
}

#[cfg(feature = "embed-sources")]
fn embed_sources() {
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("kernels can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, files);
            } else {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    walk(&root, &mut files);
    let kinds = ["h", "cuh", "cpp", "tera", "py"];
    files.retain(|f| f.extension().and_then(|e| e.to_str()).is_some_and(|e| kinds.contains(&e)));
    // Python that is no kernel's.
    files.retain(|f| !["reference.py", "api.py"].iter().any(|name| f.ends_with(name)));
    let mut names: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|f| (f.strip_prefix(&root).expect("below kernels").to_string_lossy().replace('\\', "/"), f))
        .collect();
    names.sort();
    let mut text = "pub(super) static SOURCES: &[(&str, &str)] = &[\n".to_owned();
    for (name, path) in names {
        let _ = writeln!(text, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    text += "];\n";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("sources.rs");
    std::fs::write(out, text).expect("OUT_DIR can be written");
}

#[cfg(feature = "aot")]
fn embed_bundle() {
    use parbake_bake::{Request, bake};
    use std::path::{Path, PathBuf};
    for name in ["PARBAKE_AOT_ARCHS", "PARBAKE_AOT_LOCK", "PARBAKE_AOT_OPS", "PARBAKE_NVRTC", "PARBAKE_TOOLCHAINS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    if let Some(lock) = std::env::var_os("PARBAKE_AOT_LOCK") {
        println!("cargo::rerun-if-changed={}", Path::new(&lock).display());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed={}", root.join("kernels").display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("embedded.pbk");
    let request = Request::from_env(&root.join("kernels"));
    match request.and_then(|request| bake(&request)) {
        Ok(bytes) => std::fs::write(out, bytes).expect("OUT_DIR can be written"),
        Err(report) => {
            // Cargo shows the last lines of a build script that fails.
            eprintln!("{report}");
            std::process::exit(1);
        }
    }
}
