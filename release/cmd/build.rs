//! `parbake build`.

use crate::output::{Failure, Output};
use parbake_model::settings::Config;

/// To be written.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, _: Config, _: Output) -> Result<(), Failure> {
    Ok(())
}
