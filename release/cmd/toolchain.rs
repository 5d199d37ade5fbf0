//! `parbake toolchain`: installs pinned compilers, and shows which ones are used.

use crate::output::{Failure, Output};
use crate::text::{self, Table};
use parbake::{Goal, Library, Place, driver};
use parbake_codegen::toolchain::components::{self, Component};
use parbake_codegen::toolchain::{Toolchain, install};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Language, Target};
use serde::Serialize;
use std::sync::Arc;

/// Installs pinned compilers from Python wheels, or lists what is installed and what is used.
///
///   parbake toolchain install 12.9
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Install(InstallArgs),
    List(ListArgs),
}

/// Fetches a pinned compiler through pip, whose index and mirror settings apply; nothing else is ever fetched.
///
/// Installing accepts the vendor's licence, which is named first.
///
///   parbake toolchain install 13.0 --with-nvcc
#[derive(clap::Args)]
struct InstallArgs {
    /// 12.9, 13.0, 13.5, libclang or triton
    #[arg(default_value = "12.9")]
    what: String,
    /// The nvcc of that toolkit too; only a comparison needs it
    #[arg(long)]
    with_nvcc: bool,
}

/// Lists installed compilers, and which one each kind of target would get now.
///
///   parbake toolchain list --json
#[derive(clap::Args)]
struct ListArgs {}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    match args.action {
        Action::Install(args) => bring(&args, &config, out),
        Action::List(ListArgs {}) => list(config, out),
    }
}

fn bring(args: &InstallArgs, config: &Config, out: Output) -> Result<(), Failure> {
    let wanted = components::named(&args.what, args.with_nvcc)
        .map_err(|e| Report::new(e.code(), Class::Usage, e.to_string()))?;
    let index = std::env::var("PIP_INDEX_URL").unwrap_or_else(|_| "the index that pip is set to".to_owned());
    let missing = wanted.iter().any(|c| !config.toolchains.join(c.folder()).exists());
    if missing && !config.offline {
        out.say(format!("fetching through pip from {index} into {}", config.toolchains.display()));
    }
    for component in &wanted {
        install::install(component, &config.toolchains, config.offline, &mut |line| out.say(format!("  {line}")))
            .map_err(|e| if config.offline { e.report().with("from", &index) } else { e.report() })?;
    }
    let mut installed = install::list(&config.toolchains);
    installed.retain(|i| wanted.iter().any(|c| c.name == i.name && c.version == i.version));
    out.show(&serde_json::json!({ "installed": installed }), || {
        let size = installed.iter().map(|i| i.bytes).sum();
        format!(
            "{} ready, {}",
            text::list(installed.iter().map(|i| format!("{}-{}", i.name, i.version))),
            text::bytes(size)
        )
    });
    Ok(())
}

/// What a look-up would choose now.
#[derive(Serialize)]
struct Choice {
    purpose: String,
    target: String,
    toolchain: Option<String>,
    place: Option<String>,
    /// Why there is none.
    missing: Option<String>,
}

fn list(mut config: Config, out: Output) -> Result<(), Failure> {
    let folder = config.toolchains.clone();
    let installed = install::list(&folder);
    let absent: Vec<&Component> = components::ALL
        .iter()
        .filter(|c| !installed.iter().any(|i| i.name == c.name && i.version == c.version))
        .collect();
    // Bundles have no say in which compiler is used.
    config = config.without_bundles();
    let library = Library::open(config)?;
    let choices = choices(&library);
    let available: Vec<String> = absent.iter().map(|c| c.folder()).collect();
    let json = serde_json::json!({
        "folder": folder, "installed": installed, "available": available, "chosen": choices,
    });
    out.show(&json, || {
        let mut text = format!("installed in {}\n", folder.display());
        let mut table = Table::plain();
        for i in &installed {
            let name = i.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            table.row([name, format!("{} {}", i.name, i.version), text::bytes(i.bytes)]);
        }
        text += if installed.is_empty() { "  nothing\n" } else { "" };
        text += &table.text();
        if !available.is_empty() {
            text += &format!("not installed: {}\n", available.join(", "));
        }
        text += "\nused now\n";
        let mut table = Table::plain();
        for c in &choices {
            let found = c.toolchain.as_ref().zip(c.place.as_ref()).map(|(id, place)| format!("{id}\n{place}"));
            let what = found.or(c.missing.clone()).unwrap_or_default();
            table.row([&c.purpose, &c.target, &what]);
        }
        text + &table.text()
    });
    Ok(())
}

fn choices(library: &Library) -> Vec<Choice> {
    let hopper: Target = "sm_90a".parse().expect("bug: sm_90a is a target");
    let mut choices = vec![choice("bake", hopper, library.toolchain(hopper, None))];
    // Who has no Triton need not be told that it serves nothing.
    let triton = library.toolchain_of(Language::Triton, hopper, None);
    choices.extend(triton.is_ok().then(|| choice("bake of kernels in Triton", hopper, triton)));
    if let Ok(device) = driver::first()
        && let Ok(goal) = library.goal(Place::Cuda(device.ordinal))
    {
        let purpose = format!("device {}", device.ordinal);
        choices.push(choice(&purpose, goal.target(), library.toolchain_for(goal)));
    }
    choices.push(choice("host", Target::Host, library.toolchain_for(Goal::Host)));
    choices
}

fn choice(purpose: &str, target: Target, found: Result<Arc<dyn Toolchain>, Report>) -> Choice {
    let (purpose, target) = (purpose.to_owned(), target.to_string());
    match found {
        Ok(t) => {
            Choice { purpose, target, toolchain: Some(t.id().to_owned()), place: Some(t.describe()), missing: None }
        }
        Err(report) => Choice { purpose, target, toolchain: None, place: None, missing: Some(report.to_string()) },
    }
}
