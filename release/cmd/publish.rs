//! `parbake publish`: a folder of bundles and wheels that any web server or shared folder serves.

mod shelf;

pub(super) use shelf::digest;

use super::{inspect, sign, wheel};
use crate::output::{self, Failure, Output};
use crate::published::{self, Contents, File, INDEX, Index, Kind};
use crate::seal::{Seal, Trust};
use crate::text;
use minisign::SecretKey;
use parbake::Library;
use parbake::signature::{self, Keys};
use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, LAUNCH_ABI};
use serde::Serialize;
use shelf::Shelf;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Puts bundles and wheels into a folder that any web server or shared folder serves to `parbake fetch`.
///
/// Each version of the library has a folder of its own in it, and what is there already stays. Bundles, also those in
/// wheels, are verified first; the signature beside a bundle goes with it. `index.json` lists every file with its size
/// and SHA-256, `SHA256SUMS` does so for `sha256sum -c`. A file is never replaced by another one of the same name, and
/// the index is written last.
///
///   parbake publish norm.pbk dist/parbake_bundle_cu129_sm90a-0.1.0-py3-none-any.whl -o public --key release.key
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles (`.pbk`) and wheels (`.whl`)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The folder; it is made if it is not there
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Signs the index with this secret key of minisign: `index.json.minisig`
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    password: sign::Password,
}

/// A file that is to be published.
struct Item {
    source: PathBuf,
    library: String,
    launch_abi: u32,
    file: File,
}

#[derive(Serialize)]
struct Published {
    path: String,
    bytes: u64,
    sha256: Digest,
    /// Whether it was there.
    known: bool,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let trust = Trust::of(&config)?;
    let key = args.key.as_deref().map(|path| sign::secret_key(path, &args.password)).transpose()?;
    let families = families(config);
    let path_of = |op: &str| families.get(op).cloned().unwrap_or_else(|| op.to_owned());
    let (mut items, mut bad) = (Vec::new(), Vec::new());
    for path in &args.files {
        match items_of(path, &trust, key.is_some(), &path_of) {
            Ok(found) => items.extend(found),
            Err(report) => bad.push(report),
        }
    }
    if !bad.is_empty() {
        return Err(bad.into());
    }
    let published = publish(&args.output, &items, key.as_ref())?;
    let json = serde_json::json!({ "folder": args.output, "files": published, "signed": key.is_some() });
    out.show(&json, || {
        let line = |p: &Published| {
            let state = if p.known { "there already" } else { "published" };
            format!("{}: {state}, {}\n", args.output.join(&p.path).display(), text::bytes(p.bytes))
        };
        let signed = if key.is_some() { ", signed" } else { "" };
        let lines: String = published.iter().map(line).collect();
        format!("{lines}{}: complete{signed}\n", args.output.join(INDEX).display())
    });
    Ok(())
}

/// `family/op` of the ops that this library knows.
fn families(config: Config) -> HashMap<String, String> {
    let library = Library::open(config.without_bundles());
    library.map(|l| l.ops().map(|(_, op)| (op.name.clone(), op.path())).collect()).unwrap_or_default()
}

/// The name under which a file is published.
fn name(path: &Path) -> Result<&str, Report> {
    let name = path.file_name().unwrap_or_default().to_str().filter(|n| published::plain(n));
    let kind = name.filter(|n| n.ends_with(".pbk") || n.ends_with(".whl"));
    kind.ok_or_else(|| {
        Report::new("PB-3401", Class::Usage, format!("`{}` cannot be published", path.display()))
            .with("expected", "a name of letters, digits and `._-+,` that ends in `.pbk` or `.whl`")
            .help("rename it; a signature names no file")
    })
}

/// A file and the signature beside it, both checked.
fn items_of(path: &Path, trust: &Trust, keyed: bool, path_of: &dyn Fn(&str) -> String) -> Result<Vec<Item>, Report> {
    let name = name(path)?;
    let (digest, size) = shelf::digest(path).map_err(|e| unreadable(path).caused_by(e))?;
    if name.ends_with(".whl") {
        return Ok(vec![wheel_item(path, name, (digest, size), path_of)?]);
    }
    let (bundle, seal) = inspect::open_trusted(path, trust)?;
    whole(&path.display().to_string(), &bundle)?;
    let library = bundle.library().to_owned();
    let place = |name: &str| format!("{}/{name}", published::folder(&library));
    let mut contents = Contents::default();
    contents.add(&bundle, path_of);
    let item = |source: &Path, file| Item {
        source: source.to_owned(),
        library: library.clone(),
        launch_abi: bundle.launch_abi(),
        file,
    };
    let mut items = vec![item(path, contents.file(Kind::Bundle, place(name), size, digest))];
    let beside = signature::beside(path);
    if beside.is_file() {
        let (digest, size) = shelf::digest(&beside).map_err(|e| unreadable(&beside).caused_by(e))?;
        let place = place(&format!("{name}{}", signature::SUFFIX));
        items.push(item(&beside, Contents::default().file(Kind::Signature, place, size, digest)));
    } else if keyed || matches!(seal, Seal::Invalid { .. }) {
        let sign = format!("parbake sign {} --key …", path.display());
        output::note(format!("warning: {} is not signed: who requires signatures refuses it ({sign})", path.display()));
    }
    Ok(items)
}

/// A wheel. What it carries below `parbake_bundles` is verified as a bundle is.
fn wheel_item(
    path: &Path,
    name: &str,
    (digest, size): (Digest, u64),
    path_of: &dyn Fn(&str) -> String,
) -> Result<Item, Report> {
    let mut contents = Contents::default();
    let mut versions = Vec::new();
    for (inside, bundle) in wheel::bundles(path)? {
        whole(&format!("{inside} in {}", path.display()), &bundle)?;
        contents.add(&bundle, path_of);
        versions.push((bundle.library().to_owned(), bundle.launch_abi()));
    }
    versions.sort();
    versions.dedup();
    let (library, launch_abi) = match versions.as_slice() {
        [] => (wheel::library(path, name)?, LAUNCH_ABI),
        [one] => one.clone(),
        _ => {
            let said = versions.iter().map(|(library, abi)| format!("{library} (launch ABI {abi})"));
            let what = format!("`{}` has bundles of several versions", path.display());
            return Err(Report::new("PB-3406", Class::Failed, what)
                .with("got", text::list(said))
                .help("pack them again: parbake wheel"));
        }
    };
    let place = format!("{}/{name}", published::folder(&library));
    let file = contents.file(Kind::Wheel, place, size, digest);
    Ok(Item { source: path.to_owned(), library, launch_abi, file })
}

/// Checks all of a bundle.
fn whole(what: &str, bundle: &Bundle) -> Result<(), Report> {
    let Err(errors) = bundle.verify() else { return Ok(()) };
    let report = Report::new("PB-3402", Class::Failed, format!("{what} is not published: it is damaged"));
    let report = errors.iter().fold(report, |report, e| report.caused_by(format!("{}: {e}", e.code())));
    Err(report.help("parbake verify FILE"))
}

fn unreadable(path: &Path) -> Report {
    Report::new("PB-3408", Class::Environment, format!("cannot read `{}`", path.display()))
}

/// Puts the files where they belong, and the index last.
fn publish(folder: &Path, items: &[Item], key: Option<&SecretKey>) -> Result<Vec<Published>, Report> {
    let shelf = Shelf::open(folder)?;
    let before = shelf.index()?;
    let mut index = before.clone();
    for item in items {
        clash(&index, item, folder)?;
        index.add(&item.library, item.launch_abi, &item.file)?;
    }
    if key.is_none() && index != before && shelf.signed() {
        let what = format!("the index in {} is signed, and its new one would not be", folder.display());
        return Err(Report::new("PB-3405", Class::Usage, what)
            .help("pass `--key FILE`, or remove index.json.minisig if nobody is to check it any more"));
    }
    let mut published = Vec::new();
    for item in items {
        let known = shelf.put(&item.source, &item.file)?;
        let File { path, sha256, size: bytes, .. } = item.file.clone();
        published.push(Published { path, bytes, sha256, known });
    }
    let text = index.to_json();
    shelf.write("SHA256SUMS", index.sums().as_bytes())?;
    if let Some(key) = key {
        let comment = format!("file:{INDEX}\tsha256:{}", Digest::of(text.as_bytes()));
        let (signature, public) = sign::signature_of(text.as_bytes(), key, &comment, "an index of parbake")?;
        // No two signatures are the same, and one that is right stays.
        let keys = Keys::read(&[public.to_base64()]).map_err(|e| e.report())?;
        if signature::check(&keys, &folder.join(INDEX), text.as_bytes()).is_err() {
            shelf.write(&format!("{INDEX}{}", signature::SUFFIX), signature.as_bytes())?;
        }
    }
    shelf.write(INDEX, text.as_bytes())?;
    Ok(published)
}

/// Another file under a name that is recorded.
fn clash(index: &Index, item: &Item, folder: &Path) -> Result<(), Report> {
    match index.hash(&item.file.path) {
        Some(there) if there != item.file.sha256 => {
            Err(shelf::different(&folder.join(&item.file.path), &item.source, there, item.file.sha256))
        }
        _ => Ok(()),
    }
}
