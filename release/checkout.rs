//! What `demo`, `test` and `bench` share: the checkout they run in, the compilers they need, and running this program.

use crate::cmd::build::packer;
use crate::output::{Failure, Output};
use parbake::Library;
use parbake_codegen::toolchain::find::default_toolkit;
use parbake_codegen::toolchain::{Toolchain, components, install};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, Toolkit};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout: the folder above the configured kernels.
pub(crate) fn root(config: &Config) -> Result<PathBuf, Report> {
    let root = config.kernels.as_deref().and_then(Path::parent).filter(|r| r.join("Cargo.toml").is_file());
    root.map(Path::to_owned).ok_or_else(|| {
        Report::new("PB-3001", Class::Usage, "this command runs in a checkout of Parbake")
            .with("expected", "PARBAKE_KERNELS names the folder `kernels` of a checkout, as `cargo parbake` sets it")
            .with("got", config.kernels.as_ref().map_or("not set".to_owned(), |k| k.display().to_string()))
    })
}

/// Installs the named toolchains that are missing, saying what is fetched.
pub(crate) fn need(config: &Config, names: &[(&str, bool)], out: Output) -> Result<(), Failure> {
    for (name, with_nvcc) in names {
        for component in components::named(name, *with_nvcc).expect("bug: a name of the table") {
            let mut say = |line: &str| out.say(format!("  {line}"));
            install::install(component, &config.toolchains, config.offline, &mut say).map_err(|e| e.report())?;
        }
    }
    Ok(())
}

/// Installs the toolkits that a bake for these targets needs and this machine lacks: 12.9, and 13.0 where a target is newer.
pub(crate) fn need_for(library: &Library, targets: &[Target], out: Output) -> Result<(), Failure> {
    let has = |&target: &Target| {
        let toolchain = library.toolchain(target, None);
        let packs = |t: &dyn Toolchain| t.toolkit().is_none_or(|toolkit| packer(library, target, toolkit).is_ok());
        toolchain.is_ok_and(|t| packs(&*t))
    };
    let newer = |target: &Target| default_toolkit(*target) > (Toolkit { major: 12, minor: 9 });
    let (new, old): (Vec<&Target>, Vec<&Target>) = targets.iter().partition(|t| newer(t));
    for (targets, name) in [(old, "12.9"), (new, "13.0")] {
        if !targets.into_iter().all(has) {
            need(library.config(), &[(name, false)], out)?;
        }
    }
    Ok(())
}

/// This program, with the settings of this process.
pub(crate) fn itself() -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| "parbake".into()))
}
