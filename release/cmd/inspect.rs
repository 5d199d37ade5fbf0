//! `parbake inspect`: what a bundle, a fatbin or a cubin holds.

use crate::extract::extract;
use crate::output::{Failure, Output};
use crate::seal::{Seal, Trust};
use crate::text::{self, Table};
use parbake::Library;
use parbake_model::bundle::{Bundle, BundleError, Details, MAGIC, Opening, ReadAt, Skipped};
use parbake_model::cubin::{self, CubinFacts, Resources};
use parbake_model::fatbin::{self, FatbinError, Kind};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Target, Toolkit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Shows what a bundle, a fatbin or a cubin holds; `parbake verify` checks every byte of a bundle.
///
///   parbake inspect norm.pbk --images
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A `.pbk`, a fatbin or a cubin
    file: PathBuf,
    /// Lists each image of a bundle
    #[arg(long)]
    images: bool,
    /// Writes the images of a bundle into this folder, with a list of what they are
    #[arg(long, value_name = "FOLDER")]
    extract: Option<PathBuf>,
}

/// Larger files than these are no images.
const LARGEST: u64 = 256 << 20;

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let path = &args.file;
    let refuse = |e: std::io::Error| unreadable(path).caused_by(e);
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(refuse)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(refuse)?;
    let fatbin = start.starts_with(b"\x50\xed\x55\xba");
    let elf = start.starts_with(b"\x7fELF");
    if !fatbin && !elf {
        return bundle(path, &Trust::of(&config)?, &args, out);
    }
    if std::fs::metadata(path).map_err(refuse)?.len() > LARGEST {
        let what = format!("`{}` is larger than {}", path.display(), text::bytes(LARGEST));
        return Err(Report::new("PB-3112", Class::Failed, what).into());
    }
    let bytes = std::fs::read(path).map_err(refuse)?;
    if fatbin { show_fatbin(path, &bytes, out) } else { show_cubin(path, &bytes, out) }
}

/// What is wrong with a file, and what it should have been.
pub(super) fn foreign(path: &Path, code: &'static str, error: &dyn std::error::Error) -> Report {
    Report::new(code, Class::Failed, format!("`{}` cannot be used", path.display()))
        .caused_by_chain(error)
        .help("expected a bundle (.pbk), a fatbin or a cubin")
}

pub(super) fn unreadable(path: &Path) -> Report {
    Report::new("PB-3110", Class::Environment, format!("cannot read `{}`", path.display()))
}

/// Opens a bundle file, whoever signed it.
pub(super) fn open(path: &Path) -> Result<Bundle, Report> {
    refused(path, opening(path)?.open())
}

/// Opens a bundle file; its signature is judged before anything of it is believed.
pub(super) fn open_trusted(path: &Path, trust: &Trust) -> Result<(Bundle, Seal), Report> {
    let mut opening = opening(path)?;
    let seal = trust.judge(path, refused(path, opening.signed())?).map_err(|e| e.report(path))?;
    Ok((refused(path, opening.open())?, seal))
}

/// The same for one of very many: it is opened for each read, so that all of them need no more descriptors than one.
/// Whatever is read is compared with the index, so it does not matter that another file may have that name by then.
pub(super) fn open_by_name(path: &Path, trust: &Trust) -> Result<Bundle, Report> {
    let (bundle, _) = open_trusted(path, trust)?;
    let signed = bundle.index_digest();
    drop(bundle);
    let named = refused(path, Bundle::open(ByName(path.to_owned())))?;
    if named.index_digest() == signed {
        return Ok(named);
    }
    Err(unreadable(path).caused_by("it was replaced meanwhile"))
}

struct ByName(PathBuf);

impl ReadAt for ByName {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        ReadAt::read_exact_at(&std::fs::File::open(&self.0)?, buf, offset)
    }
    fn len(&self) -> std::io::Result<u64> {
        std::fs::metadata(&self.0).map(|m| m.len())
    }
}

fn opening(path: &Path) -> Result<Opening, Report> {
    let file = std::fs::File::open(path).map_err(|e| unreadable(path).caused_by(e))?;
    if path.is_dir() {
        return Err(unreadable(path).caused_by("it is a folder"));
    }
    refused(path, Opening::read(file))
}

fn refused<T>(path: &Path, result: Result<T, BundleError>) -> Result<T, Report> {
    result.map_err(|e| match e {
        BundleError::Io { .. } => unreadable(path).caused_by_chain(&e),
        e => foreign(path, e.code(), &e),
    })
}

#[derive(Serialize)]
struct Part<'a> {
    op: &'a str,
    target: Target,
    images: usize,
    raw_bytes: u64,
}

#[derive(Serialize)]
struct ImageRow<'a> {
    uri: &'a str,
    target: Target,
    toolkit: Option<Toolkit>,
    toolchain: &'a str,
    size: u64,
    resources: Option<Resources>,
}

#[derive(Serialize)]
struct SkippedRow<'a> {
    reason: &'a str,
    combinations: usize,
    targets: BTreeSet<Target>,
}

#[derive(Serialize)]
struct BundleFacts<'a> {
    kind: &'static str,
    file: String,
    format: u32,
    library: &'a str,
    launch_abi: u32,
    /// Whether this library may use it.
    fits: bool,
    index: String,
    #[serde(flatten)]
    seal: Seal,
    /// How many bytes from the start a signature covers.
    signed_bytes: u64,
    bytes: u64,
    raw_bytes: u64,
    specs: usize,
    toolchains: &'a [String],
    targets: &'a [Target],
    parts: Vec<Part<'a>>,
    skipped: Vec<SkippedRow<'a>>,
    provenance: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<Vec<ImageRow<'a>>>,
}

fn bundle(path: &Path, trust: &Trust, args: &Args, out: Output) -> Result<(), Failure> {
    let (bundle, seal) = open_trusted(path, trust)?;
    if let Some(folder) = &args.extract {
        let count = extract(&bundle, folder)?;
        crate::output::note(format!("{count} images are in {}", folder.display()));
    }
    let details = bundle.details().map_err(|e| foreign(path, e.code(), &e))?;
    let facts = BundleFacts {
        kind: "bundle",
        file: path.display().to_string(),
        format: bundle.format(),
        library: &details.library,
        launch_abi: details.launch_abi,
        fits: Library::accepts(details),
        index: bundle.index_digest().to_string(),
        seal,
        signed_bytes: bundle.signed_size(),
        bytes: bundle.file_size(),
        raw_bytes: bundle.entries().iter().map(|e| u64::from(e.size)).sum(),
        specs: details.specs.len(),
        toolchains: &details.toolchains,
        targets: &details.targets,
        parts: parts(details),
        skipped: skipped(&details.skipped),
        provenance: &details.provenance,
        images: args.images.then(|| images(details)),
    };
    out.show(&facts, || describe(&facts));
    Ok(())
}

fn parts(details: &Details) -> Vec<Part<'_>> {
    let mut parts: BTreeMap<(&str, Target), (usize, u64)> = BTreeMap::new();
    for spec in &details.specs {
        for image in &spec.images {
            let part = parts.entry((&spec.op, image.target)).or_default();
            part.0 += 1;
            part.1 += image.size;
        }
    }
    let part = |((op, target), (images, raw_bytes))| Part { op, target, images, raw_bytes };
    parts.into_iter().map(part).collect()
}

fn images(details: &Details) -> Vec<ImageRow<'_>> {
    let mut rows = Vec::new();
    for spec in &details.specs {
        rows.extend(spec.images.iter().map(|image| ImageRow {
            uri: &spec.uri,
            target: image.target,
            toolkit: image.toolkit,
            toolchain: &image.toolchain,
            size: image.size,
            resources: image.resources,
        }));
    }
    rows
}

fn skipped(all: &[Skipped]) -> Vec<SkippedRow<'_>> {
    let mut by_reason: BTreeMap<&str, (usize, BTreeSet<Target>)> = BTreeMap::new();
    for skipped in all {
        let row = by_reason.entry(&skipped.reason).or_default();
        row.0 += 1;
        row.1.insert(skipped.target);
    }
    let row = |(reason, (combinations, targets))| SkippedRow { reason, combinations, targets };
    let mut rows: Vec<SkippedRow<'_>> = by_reason.into_iter().map(row).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.combinations));
    rows
}

fn describe(facts: &BundleFacts<'_>) -> String {
    let mut head = Table::plain();
    let fits = if facts.fits { "" } else { ", which this library does not accept" };
    head.row(["made by", &format!("parbake {}, launch ABI {}{fits}", facts.library, facts.launch_abi)]);
    head.row(["toolchains", &text::list(facts.toolchains)]);
    head.row(["targets", &text::list(facts.targets)]);
    let ratio = facts.raw_bytes as f64 / facts.bytes.max(1) as f64;
    let size = text::bytes(facts.bytes);
    head.row(["size", &format!("{size}, holds {} ({ratio:.1}×)", text::bytes(facts.raw_bytes))]);
    head.row(["index", &facts.index]);
    head.row(["signature", &facts.seal.text()]);
    head.row(["signed part", &format!("the first {} bytes", facts.signed_bytes)]);
    for (name, value) in facts.provenance {
        head.row([name, value]);
    }
    let mut text = format!("{}: bundle of format {}\n{}\n", facts.file, facts.format, head.text());
    let mut table = Table::new(&["OP", "TARGET", ">IMAGES", ">RAW"]);
    for part in &facts.parts {
        table.row([part.op.to_owned(), part.target.to_string(), part.images.to_string(), text::bytes(part.raw_bytes)]);
    }
    let images: usize = facts.parts.iter().map(|p| p.images).sum();
    let total = format!("of {}", text::count(facts.specs, "spec"));
    table.row(["total".to_owned(), total, images.to_string(), text::bytes(facts.raw_bytes)]);
    text += &table.text();
    if !facts.skipped.is_empty() {
        let mut table = Table::new(&[">SKIPPED", "WHERE", "BECAUSE"]);
        for row in &facts.skipped {
            let everywhere = row.targets.len() == facts.targets.len();
            let place = if everywhere { "every target".to_owned() } else { text::list(&row.targets) };
            table.row([&row.combinations.to_string(), &place, row.reason]);
        }
        text += &format!("\n{}", table.text());
    }
    if let Some(images) = &facts.images {
        let mut table = Table::new(&["URI", "TARGET", "TOOLKIT", ">REGISTERS", ">SHARED", ">SIZE"]);
        for image in images {
            let used = |of: fn(Resources) -> u32| image.resources.map_or("–".to_owned(), |r| of(r).to_string());
            table.row([
                image.uri.to_owned(),
                image.target.to_string(),
                image.toolkit.map_or("–".to_owned(), |t| t.to_string()),
                used(|r| r.registers),
                used(|r| r.shared_bytes),
                text::bytes(image.size),
            ]);
        }
        text += &format!("\n{}", table.text());
    }
    text
}

/// What our reader tells of a cubin.
#[derive(Serialize)]
struct Facts<'a> {
    target: Target,
    /// Whether the suffix is the real one.
    suffix_known: bool,
    toolkit: Option<Toolkit>,
    kernels: &'a [String],
    resources: &'a BTreeMap<String, Resources>,
}

impl<'a> Facts<'a> {
    fn of(facts: &'a CubinFacts) -> Self {
        let CubinFacts { target, suffix_known, toolkit, kernels, resources } = facts;
        Self { target: *target, suffix_known: *suffix_known, toolkit: *toolkit, kernels, resources }
    }
}

/// Adds the facts of a cubin to a table.
pub(super) fn cubin_rows(facts: &CubinFacts, table: &mut Table) {
    let unknown = if facts.suffix_known { "" } else { ", or the same with a suffix: the file does not tell" };
    table.row(["compiled for".to_owned(), format!("{}{unknown}", facts.target)]);
    table.row(["toolkit".to_owned(), facts.toolkit.map_or("not stated".to_owned(), |t| t.to_string())]);
    for kernel in &facts.kernels {
        let uses = facts.resources.get(kernel).map(|r| format!("\n{}", resources_text(r))).unwrap_or_default();
        table.row(["kernel".to_owned(), format!("{kernel}{uses}")]);
    }
}

fn cubin_text(facts: &CubinFacts) -> String {
    let mut table = Table::plain();
    cubin_rows(facts, &mut table);
    table.text()
}

/// What a kernel uses, on one line.
pub(super) fn resources_text(r: &Resources) -> String {
    let threads = r.max_threads.map_or(String::new(), |n| format!(" · up to {n} threads"));
    let spilled = if r.local_bytes == 0 { "no".to_owned() } else { format!("{} B", r.local_bytes) };
    format!(
        "{} registers · {} B shared · {spilled} local memory · {} B parameters · {} B code{threads}",
        r.registers, r.shared_bytes, r.param_bytes, r.code_bytes
    )
}

fn show_cubin(path: &Path, bytes: &[u8], out: Output) -> Result<(), Failure> {
    let facts = cubin::read(bytes).map_err(|e| foreign(path, e.code(), &e))?;
    let file = path.display().to_string();
    let json = serde_json::json!({ "kind": "cubin", "file": file, "bytes": bytes.len(), "facts": Facts::of(&facts) });
    out.show(&json, || format!("{file}: cubin, {}\n{}", text::bytes(bytes.len() as u64), cubin_text(&facts)));
    Ok(())
}

fn show_fatbin(path: &Path, bytes: &[u8], out: Output) -> Result<(), Failure> {
    let images = fatbin::read(bytes).map_err(|e| foreign(path, e.code(), &e))?;
    let file = path.display().to_string();
    let mut text =
        format!("{file}: fatbin, {}, {}\n", text::bytes(bytes.len() as u64), text::count(images.len(), "image"));
    let (mut json, mut damaged) = (Vec::new(), Vec::new());
    for image in &images {
        let payload = &bytes[image.range.clone()];
        let kind = if image.kind == Kind::Ptx { "PTX" } else { "cubin" };
        let compressed = if image.compressed { ", compressed" } else { "" };
        let size = payload.len();
        text += &format!("\n{kind} labelled {}{compressed}, {}\n", image.target, text::bytes(size as u64));
        let mut row = serde_json::json!({
            "kind": kind, "label": image.target, "compressed": image.compressed, "bytes": size,
        });
        if image.kind == Kind::Elf && !image.compressed {
            match cubin::read(payload) {
                Ok(facts) => {
                    text += &cubin_text(&facts);
                    row["facts"] = serde_json::to_value(Facts::of(&facts)).expect("bug: facts are plain data");
                    if facts.target.arch() != image.target.arch()
                        || (facts.suffix_known && facts.target != image.target)
                    {
                        damaged.push(FatbinError::Contents { expected: image.target, got: facts.target });
                    }
                }
                Err(source) => damaged.push(FatbinError::Cubin { target: image.target, source }),
            }
        }
        json.push(row);
    }
    if damaged.is_empty() {
        out.show(&serde_json::json!({ "kind": "fatbin", "file": file, "bytes": bytes.len(), "images": json }), || text);
        return Ok(());
    }
    Err(damaged.iter().map(|e| foreign(path, e.code(), e)).collect::<Vec<_>>().into())
}
