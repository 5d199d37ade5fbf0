//! `parbake compile`: runs one compilation of a plan.

use super::build;
use crate::output::{Failure, Output};
use parbake::Library;
use parbake_codegen::parts::{MAX_UNIT, UnitFile};
use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Language, Target};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Compiles one unit of a plan that `parbake build --plan` wrote, and writes a bundle of that one image.
///
/// The file holds all sources: no kernel folder and no store are looked at. The toolchain must be the one that was
/// planned with. `parbake merge --plan` packs what all of them wrote.
///
///   parbake compile units/UNIT.json -o built/UNIT.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A unit's file
    #[arg(value_name = "FILE")]
    unit: PathBuf,
    /// The bundle to write; its folder is made if it is not there
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Done {
    bundle: PathBuf,
    uri: String,
    target: Target,
    build_key: Digest,
    toolchain: String,
    bytes: usize,
    seconds: f64,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let start = Instant::now();
    let unit = UnitFile::from_json(&read(&args.unit)?, &args.unit.display().to_string())?;
    // What is compiled is in the file, and nothing else is.
    config.kernels = None;
    let library = Library::open(config.without_bundles())?;
    let target = unit.compile.target;
    let toolchain = match target {
        Target::Host => library.host_toolchain(unit.shim.clone())?,
        _ => {
            let language = Language::of_unit(&unit.compile.unit.name);
            library.toolchain_of(language, target, unit.toolkit).map_err(|report| unit.lacks(&report))?
        }
    };
    let packer = unit.toolkit.map(|toolkit| build::packer(&library, target, toolkit)).transpose()?;
    if let Some(folder) = args.output.parent() {
        std::fs::create_dir_all(folder).map_err(|e| build::cannot_write(&args.output).caused_by(e))?;
    }
    build::check_output(&args.output)?;
    let bytes = unit.compile(&*toolchain, packer.as_deref())?;
    let whole = Bundle::open(bytes.clone()).map_err(|e| vec![e]).and_then(|bundle| bundle.verify());
    whole.map_err(|errors| {
        let report = Report::new("PB-3172", Class::Failed, "the bundle that was packed does not verify");
        errors.iter().fold(report, |report, e| report.with(e.code(), e))
    })?;
    build::write(&args.output, &bytes)?;
    let done = Done {
        bundle: args.output,
        uri: unit.spec.uri,
        target,
        build_key: unit.build_key,
        toolchain: unit.compile.toolchain,
        bytes: bytes.len(),
        seconds: start.elapsed().as_secs_f64(),
    };
    out.show(&done, || {
        format!("{}: {} for {} by {}, {:.1} s", done.bundle.display(), done.uri, target, done.toolchain, done.seconds)
    });
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Report> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path);
    // One byte more than is accepted, so that a longer file is told from one that fits.
    let read = file.and_then(|file| file.take(MAX_UNIT as u64 + 1).read_to_end(&mut text));
    read.map(|_| text).map_err(|e| {
        Report::new("PB-3173", Class::Environment, format!("cannot read `{}`", path.display()))
            .with("expected", "a file of the folder `units` that `parbake build --plan json` wrote")
            .caused_by(e)
    })
}
