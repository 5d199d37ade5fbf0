//! Writes or checks everything that is generated and committed: `--write`, `--check` or `--diff`. With `--read` it prints
//! what bindgen makes of somebody else's headers, for the test that compares our structs with theirs.

use parbake_codegen::{bindings, manifest, registry::Registry};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "--read" {
        find_libclang();
        return read(std::env::args().skip(2));
    }
    if !["--write", "--check", "--diff"].contains(&mode.as_str()) {
        eprintln!("usage: parbake-codegen --write | --check | --diff | --read ITEMS HEADER FOLDER…");
        return ExitCode::from(2);
    }
    find_libclang();
    match run(&mode) {
        Ok(fresh) => ExitCode::from(u8::from(!fresh)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Prints the bindings of the items of a header that a pattern chooses.
#[allow(clippy::print_stdout, reason = "it is the answer")]
fn read(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let (items, header) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let folders: Vec<std::path::PathBuf> = arguments.map(Into::into).collect();
    match bindings::of_header(&items, &header, &folders) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

/// Points bindgen at the installed libclang, unless the caller points it elsewhere.
fn find_libclang() {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return;
    }
    let config = parbake_model::settings::Config::from_env().ok();
    if let Some(folder) = config.and_then(|c| parbake_codegen::bindings::installed_libclang(&c.toolchains)) {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
    }
}

fn run(mode: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("bug: the crate lies below the root");
    let registry = Registry::read(&root.join("kernels"))?;
    // A check makes the bindings anew if it can, so that bindings edited by hand are found.
    let files = manifest::render(&registry, root, mode != "--write")?;
    let differences = manifest::differences(&files, root);
    for d in &differences {
        let what = match (&d.old, &d.new) {
            (None, _) => "new",
            (_, None) => "no longer generated",
            _ => "changed",
        };
        eprintln!("{}: {what}", d.path);
        if mode == "--diff" {
            show(d.old.as_deref().unwrap_or_default(), d.new.as_deref().unwrap_or_default());
        }
    }
    match mode {
        "--write" => manifest::write(&differences, root)?,
        _ if differences.is_empty() => {}
        _ => {
            eprintln!("error: generated files are not fresh; run: {}", parbake_codegen::bindings::REGENERATE);
            return Ok(false);
        }
    }
    eprintln!("{} generated files, {} differed", files.len(), differences.len());
    Ok(true)
}

/// Prints what lies between the common head and the common tail.
fn show(old: &str, new: &str) {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    eprintln!("@@ line {}", head + 1);
    old[head..old.len() - tail].iter().for_each(|line| eprintln!("-{line}"));
    new[head..new.len() - tail].iter().for_each(|line| eprintln!("+{line}"));
}
