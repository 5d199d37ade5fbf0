//! `parbake report`: bundles as one page that needs nothing beside it.

mod matrix;
mod page;
mod treemap;

use crate::cmd::build::write;
use crate::cmd::inspect::{foreign, open_trusted};
use crate::difference::{Difference, Side};
use crate::output::{Failure, Output};
use crate::seal::Trust;
use crate::text::{self, Table};
use matrix::{Hole, Matrix};
use parbake::Library;
use parbake_codegen::baking::costs::Costs;
use parbake_model::bundle::{Bundle, Details};
use parbake_model::settings::Config;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Writes one HTML page about bundles: coverage with a reason for every hole, sizes, compile times, resources, and what
/// changed since an earlier release.
///
/// It fetches nothing and runs no script, so it can be read anywhere.
///
///   parbake report fleet.pbk --html fleet.html --earlier fleet-0.1.pbk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The bundles of one release
    #[arg(required = true, value_name = "BUNDLE")]
    bundles: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// The bundles of the release before, to say what changed
    #[arg(long, value_name = "BUNDLE", num_args = 1..)]
    earlier: Vec<PathBuf>,
    /// What compilations took, as a bake leaves it [default: costs.json in the store]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// A bundle, as the page lists it.
struct Listed<'a> {
    name: String,
    details: &'a Details,
    bytes: u64,
    index: String,
    signature: String,
}

/// All that the page is about.
struct Facts<'a> {
    bundles: Vec<Listed<'a>>,
    side: Side<'a>,
    /// Op → family, as this library has it.
    families: BTreeMap<String, String>,
}

impl Facts<'_> {
    fn family(&self, op: &str) -> String {
        self.families.get(op).cloned().unwrap_or_else(|| "other".to_owned())
    }
    fn path(&self, op: &str) -> String {
        format!("{}/{op}", self.family(op))
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    page: String,
    bundles: usize,
    images: usize,
    bytes: u64,
    holes: &'a [Hole],
    difference: Option<&'a Difference>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let trust = Trust::of(&config)?;
    let opened = args.bundles.iter().map(|path| open_trusted(path, &trust)).collect::<Result<Vec<_>, _>>()?;
    let (bundles, seals): (Vec<Bundle>, Vec<_>) = opened.into_iter().unzip();
    let earlier =
        args.earlier.iter().map(|path| Ok(open_trusted(path, &trust)?.0)).collect::<Result<Vec<_>, Failure>>()?;
    let library = Library::open(config.without_bundles())?;
    let costs = match &args.costs {
        Some(path) => Costs::read(path)?,
        None => Costs::read(&library.workspace().costs()).unwrap_or_default(),
    };
    let refuse = |path: &Path, error: parbake_model::bundle::BundleError| foreign(path, error.code(), &error);
    let mut listed = Vec::new();
    for ((path, bundle), seal) in args.bundles.iter().zip(&bundles).zip(&seals) {
        listed.push(Listed {
            name: path
                .file_name()
                .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned()),
            details: bundle.details().map_err(|e| refuse(path, e))?,
            bytes: bundle.file_size(),
            index: bundle.index_digest().short(16),
            signature: seal.text(),
        });
    }
    let details: Vec<&Details> = listed.iter().map(|b| b.details).collect();
    let facts = Facts {
        side: Side::of(&bundles).map_err(|e| refuse(&args.bundles[0], e))?,
        bundles: listed,
        families: library.ops().map(|(_, op)| (op.name.clone(), op.family.clone())).collect(),
    };
    let before = match args.earlier.first() {
        Some(path) => Some(Side::of(&earlier).map_err(|e| refuse(path, e))?),
        None => None,
    };
    let difference = before.as_ref().map(|before| Difference::between(before, &facts.side));
    let matrix = Matrix::of(&facts.side, &details);
    write(&args.html, page::render(&facts, &matrix, &costs, difference.as_ref()).as_bytes())?;
    let answer = Answer {
        page: args.html.display().to_string(),
        bundles: facts.bundles.len(),
        images: facts.side.images.len(),
        bytes: facts.bundles.iter().map(|b| b.bytes).sum(),
        holes: &matrix.holes,
        difference: difference.as_ref(),
    };
    out.show(&answer, || summary(&answer));
    Ok(())
}

fn summary(answer: &Answer<'_>) -> String {
    let mut table = Table::new(&["OP", "LACKS", "WHERE", "BECAUSE"]);
    for hole in answer.holes {
        let most = hole.targets.values().max().copied().unwrap_or(0);
        table.row([hole.op.as_str(), &most.to_string(), &text::list(hole.targets.keys()), &hole.reason]);
    }
    let holes = if answer.holes.is_empty() { String::new() } else { table.text() + "\n" };
    let images = text::count(answer.images, "image");
    format!("{holes}{}: {images} in {}\n", answer.page, text::bytes(answer.bytes))
}
