//! The command line of Parbake: everything a person types.
//!
//! Exit status: 0 done, 1 the thing asked for does not hold, 2 wrong usage, 3 the environment lacks something.

mod age;
mod asked;
mod checkout;
mod cmd;
mod difference;
mod extract;
mod fleet;
mod html;
mod output;
mod published;
mod seal;
mod select;
mod text;

use clap::{Parser, Subcommand};
use output::{Failure, Output};
use parbake::WHEEL_FOLDER;
use parbake_codegen::toolchain::site;
use parbake_model::settings::Config;
use std::process::ExitCode;

/// GPU kernels baked ahead for the architectures you have, and finished on demand.
#[derive(Parser)]
#[command(name = "parbake", version, max_term_width = 110)]
struct Cli {
    /// Prints one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ops(cmd::ops::Args),
    Expand(cmd::expand::Args),
    Supports(cmd::supports::Args),
    Why(cmd::why::Args),
    Lock(cmd::lock::Args),
    Coverage(cmd::coverage::Args),
    Prepare(cmd::prepare::Args),
    Build(cmd::build::Args),
    Compile(cmd::compile::Args),
    Merge(cmd::merge::Args),
    #[command(hide = true)]
    Worker(cmd::worker::Args),
    Inspect(cmd::inspect::Args),
    Verify(cmd::verify::Args),
    Diff(cmd::diff::Args),
    Report(cmd::report::Args),
    Sign(cmd::sign::Args),
    Wheel(cmd::wheel::Args),
    Publish(cmd::publish::Args),
    Fetch(cmd::fetch::Args),
    Show(cmd::show::Args),
    Run(cmd::run::Args),
    Replay(cmd::replay::Args),
    Demo(cmd::demo::Args),
    Test(cmd::test::Args),
    Bench(cmd::bench::Args),
    Tune(cmd::tune::Args),
    Cache(cmd::cache::Args),
    Toolchain(cmd::toolchain::Args),
    Doctor(cmd::doctor::Args),
    Explain(cmd::explain::Args),
    Config(cmd::config::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output { json: cli.json };
    match run(cli.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output.fail(&failure),
    }
}

fn run(command: Command, out: Output) -> Result<(), Failure> {
    let command = match command {
        // What explains an error works whatever is wrong.
        Command::Explain(args) => return cmd::explain::run(&args, out),
        other => other,
    };
    let (mut config, bad) = Config::from_env_lenient();
    // As the Python package does for the library: data wheels beside this program.
    config.installed.splice(0..0, site::packages().into_iter().map(|folder| folder.join(WHEEL_FOLDER)));
    output::start_log(&config);
    for warning in &config.warnings {
        output::note(format!("warning: {warning}"));
    }
    match command {
        Command::Config(args) => return cmd::config::run(args, config, &bad, out),
        Command::Doctor(args) => return cmd::doctor::run(args, config, &bad, out),
        _ if !bad.is_empty() => return Err(output::bad_settings(&bad).into()),
        _ => {}
    }
    match command {
        Command::Ops(args) => cmd::ops::run(args, config, out),
        Command::Expand(args) => cmd::expand::run(args, config, out),
        Command::Supports(args) => cmd::supports::run(args, config, out),
        Command::Why(args) => cmd::why::run(args, config, out),
        Command::Lock(args) => cmd::lock::run(args, config, out),
        Command::Coverage(args) => cmd::coverage::run(args, config, out),
        Command::Prepare(args) => cmd::prepare::run(args, config, out),
        Command::Build(args) => cmd::build::run(args, config, out),
        Command::Compile(args) => cmd::compile::run(args, config, out),
        Command::Merge(args) => cmd::merge::run(args, config, out),
        Command::Worker(args) => cmd::worker::run(args, config, out),
        Command::Inspect(args) => cmd::inspect::run(args, config, out),
        Command::Verify(args) => cmd::verify::run(args, config, out),
        Command::Diff(args) => cmd::diff::run(args, config, out),
        Command::Report(args) => cmd::report::run(args, config, out),
        Command::Sign(args) => cmd::sign::run(args, config, out),
        Command::Wheel(args) => cmd::wheel::run(args, config, out),
        Command::Publish(args) => cmd::publish::run(args, config, out),
        Command::Fetch(args) => cmd::fetch::run(args, config, out),
        Command::Show(args) => cmd::show::run(args, config, out),
        Command::Run(args) => cmd::run::run(args, config, out),
        Command::Replay(args) => cmd::replay::run(args, config, out),
        Command::Demo(args) => cmd::demo::run(args, config, out),
        Command::Test(args) => cmd::test::run(args, config, out),
        Command::Bench(args) => cmd::bench::run(args, config, out),
        Command::Tune(args) => cmd::tune::run(args, config, out),
        Command::Cache(args) => cmd::cache::run(args, config, out),
        Command::Toolchain(args) => cmd::toolchain::run(args, config, out),
        Command::Doctor(_) | Command::Explain(_) | Command::Config(_) => unreachable!("bug: they ran already"),
    }
}
