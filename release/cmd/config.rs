//! `parbake config`: every setting, its value and where that comes from.

use crate::output::{Failure, Output, bad_settings};
use crate::text::Table;
use parbake_model::settings::{BadSetting, Config, SETTINGS};
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
    /// What the setting accepts, if that value is none of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    kind: &'static str,
    default: &'static str,
    since: &'static str,
    summary: &'static str,
}

pub(crate) fn run(_: Args, config: Config, bad: &[BadSetting], out: Output) -> Result<(), Failure> {
    let rows: Vec<Row> = SETTINGS
        .iter()
        .map(|setting| {
            let refused = bad.iter().find(|b| b.name == setting.name);
            let (value, origin) = match refused {
                Some(bad) => (bad.got.clone(), "environment"),
                None => config.shown(setting),
            };
            let refused = refused.map(|bad| bad.expected.clone());
            let (name, kind, default) = (setting.name, setting.kind, setting.default);
            Row { name, value, origin, refused, kind, default, since: setting.since, summary: setting.summary }
        })
        .collect();
    // Unknown variables were warned about on standard error, as by every command.
    let (installed, warnings) = (&config.installed, &config.warnings);
    let all = serde_json::json!({ "settings": rows, "installed_bundles": installed, "warnings": warnings });
    out.show(&all, || {
        let mut table = Table::new(&["SETTING", "ORIGIN", "VALUE"]);
        for row in &rows {
            let refused = row.refused.as_ref().map(|_| "  REFUSED").unwrap_or_default();
            table.row([row.name, row.origin, &format!("{}{refused}", row.value)]);
        }
        let folders = config.installed.iter().map(|folder| format!("  {}\n", folder.display()));
        format!(
            "{}\ninstalled bundles are each `*.pbk` in these, and in the folders in them\n{}",
            table.text(),
            folders.collect::<String>()
        )
    });
    if bad.is_empty() { Ok(()) } else { Err(Failure::shown(bad_settings(bad))) }
}
