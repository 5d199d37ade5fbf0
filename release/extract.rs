//! Takes the images out of a bundle, for disassemblers, profilers and checks that are not ours.

use parbake_model::Target;
use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// An image beside its file.
#[derive(Serialize)]
struct Extracted<'a> {
    file: String,
    op: &'a str,
    uri: &'a str,
    entry: &'a str,
    target: Target,
    axes: BTreeMap<&'a str, &'a str>,
    tactic: BTreeMap<&'a str, u32>,
}

/// Writes every image of a bundle into a folder, and `images.json`, which says what each file is.
///
/// # Errors
/// A damaged image, or a folder that cannot be written.
pub(crate) fn extract(bundle: &Bundle, folder: &Path) -> Result<usize, Report> {
    let refuse = |e: std::io::Error| {
        Report::new("PB-3008", Class::Environment, format!("cannot write into {}", folder.display())).caused_by(e)
    };
    let damaged = |e: parbake_model::bundle::BundleError| {
        Report::new(e.code(), Class::Failed, "the bundle is damaged").caused_by_chain(&e)
    };
    std::fs::create_dir_all(folder).map_err(refuse)?;
    let items = bundle.items().map_err(damaged)?.collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    let mut list = Vec::new();
    for item in &items {
        let kind = if item.image.target == Target::Host { "so" } else { "fatbin" };
        let file = format!("{}.{}.{kind}", item.spec.uri, item.image.target);
        std::fs::write(folder.join(&file), &item.bytes).map_err(refuse)?;
        list.push(Extracted {
            file,
            op: &item.spec.op,
            uri: &item.spec.uri,
            entry: &item.spec.entry,
            target: item.image.target,
            axes: item.spec.axes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect(),
            tactic: item.spec.tactic.iter().map(|(n, v)| (n.as_str(), *v)).collect(),
        });
    }
    let json = serde_json::to_string_pretty(&list).expect("bug: plain data") + "\n";
    std::fs::write(folder.join("images.json"), json).map_err(refuse)?;
    Ok(list.len())
}
