//! Arguments that several commands share.

use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::path::PathBuf;

/// Splits `name=value` texts.
pub(crate) fn pairs(texts: &[String]) -> Result<Vec<(String, String)>, Report> {
    let split = |text: &String| {
        let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        pair.map(|(n, v)| (n.to_owned(), v.to_owned())).ok_or_else(|| {
            Report::new("PB-3005", Class::Usage, "an argument is not `name=value`")
                .with("expected", "dtype=bf16")
                .with("got", text)
        })
    };
    texts.iter().map(split).collect()
}

/// Puts bundles named on the command line before those of the settings.
pub(crate) fn with_bundles(mut config: Config, bundles: &[PathBuf]) -> Result<Config, Report> {
    config.bundles.splice(0..0, bundles.iter().cloned());
    Ok(config)
}
