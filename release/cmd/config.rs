//! `parbake config`: every setting, its value and where that comes from.

use crate::output::{Failure, Output};
use crate::text::Table;
use parbake_model::settings::{Config, SETTINGS};
use serde::Serialize;

/// Shows every setting with its value and origin; `--json` adds what each does.
///
///   PARBAKE_JIT=off parbake config
#[derive(clap::Args)]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    value: String,
    origin: &'static str,
    kind: &'static str,
    default: &'static str,
    since: &'static str,
    summary: &'static str,
}

pub(crate) fn run(_: Args, config: Config, out: Output) -> Result<(), Failure> {
    let rows: Vec<Row> = SETTINGS
        .iter()
        .map(|setting| {
            let (value, origin) = config.shown(setting);
            let (name, kind, default) = (setting.name, setting.kind, setting.default);
            Row { name, value, origin, kind, default, since: setting.since, summary: setting.summary }
        })
        .collect();
    // Unknown variables were warned about on standard error, as by every command.
    let (installed, warnings) = (&config.installed, &config.warnings);
    let all = serde_json::json!({ "settings": rows, "installed_bundles": installed, "warnings": warnings });
    out.show(&all, || {
        let mut table = Table::new(&["SETTING", "ORIGIN", "VALUE"]);
        for row in &rows {
            table.row([row.name, row.origin, &row.value]);
        }
        let folders = config.installed.iter().map(|folder| format!("  {}\n", folder.display()));
        format!("{}\ninstalled bundles are each `*.pbk` in\n{}", table.text(), folders.collect::<String>())
    });
    Ok(())
}
