//! `parbake cache`: what the store of a workspace holds, whether it is whole, and what may go.

use crate::age;
use crate::output::{Failure, Output};
use crate::select;
use crate::text::{self, Table};
use parbake::cache::{Cache, Entry, Limits, Listing, Pruned, Reason, Removed, SETTLED, Standing};
use parbake::store::StoreError;
use parbake::workspace::Workspace;
use parbake::{Collected, Library};
use parbake_model::glob::glob;
use parbake_model::metadata::Metadata;
use parbake_model::op::Op;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Target};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Lists, verifies and removes what was compiled on this machine; other processes may use it meanwhile.
///
///   parbake cache list --op 'norm/*'
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    List(ListArgs),
    Show(ShowArgs),
    Verify(VerifyArgs),
    Prune(PruneArgs),
    Clear(ClearArgs),
    Path(PathArgs),
}

#[derive(clap::Args)]
struct Filter {
    /// Ops, as in `rmsnorm` or `norm/*`
    #[arg(long, value_name = "PATTERN")]
    op: Option<String>,
    /// A target, as in `90a` or `host`
    #[arg(long)]
    target: Option<Target>,
}

/// Lists the entries of the store, with size, time since they were last loaded, and whether the library still uses them.
///
///   parbake cache list --target host
#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    filter: Filter,
}

/// Shows the metadata of entries: how each was made, and what it takes.
///
///   parbake cache show rmsnorm-bf16 --json
#[derive(clap::Args)]
struct ShowArgs {
    /// A URI, a source key or a build key, or the beginning of one
    #[arg(value_name = "URI|KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    what: String,
}

/// Hashes every entry of the store anew and lists those that are damaged.
///
/// Ends with status 1 if any is, and with 3 if some could not be read, which says nothing about their contents.
///
///   parbake cache verify --op rmsnorm
#[derive(clap::Args)]
struct VerifyArgs {
    #[command(flatten)]
    filter: Filter,
}

/// Removes entries by use, size and age, and what killed processes left; those of the last minute stay.
///
/// Without a limit only leftovers are removed. Entries that were loaded longest ago go first.
///
///   parbake cache prune --max-size 1G --max-age 30d --stale
#[derive(clap::Args)]
struct PruneArgs {
    /// What all entries may take, as in `512M` or `1G`
    #[arg(long, value_name = "SIZE", value_parser = select::size)]
    max_size: Option<u64>,
    /// How long an entry may be left unused, as in `12h` or `30d`
    #[arg(long, value_name = "AGE", value_parser = duration)]
    max_age: Option<Duration>,
    /// Entries of sources or library versions that this library does not use
    #[arg(long)]
    stale: bool,
    /// Entries whose contents are damaged; all are read for it
    #[arg(long)]
    damaged: bool,
    /// Only says what would be removed
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Removes every entry and all generated sources; asks first on a terminal.
///
///   parbake cache clear --yes
#[derive(clap::Args)]
struct ClearArgs {
    /// Does not ask
    #[arg(short, long)]
    yes: bool,
}

/// Prints the folders of the workspace, or only the one that is named.
///
///   parbake cache path store
#[derive(clap::Args)]
struct PathArgs {
    /// Which one; its path is all that is printed
    #[arg(value_parser = ["workspace", "store", "generated", "temporary", "host"])]
    which: Option<String>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    // Bundles have no say in what the store holds.
    config = config.without_bundles();
    let workspace = Workspace::of(&config);
    // Without readable definitions entries can still be listed, verified and removed.
    let library = Library::open(config).ok();
    let cache = library.as_ref().map_or_else(|| Cache::new(workspace.clone()), Cache::of);
    match args.action {
        Action::Path(args) => path(&args, &workspace, out),
        Action::List(args) => list(&select(&cache, library.as_ref(), &args.filter), &cache, out),
        Action::Show(args) => show(&args.what, &cache, out),
        Action::Verify(args) => verify(select(&cache, library.as_ref(), &args.filter), &cache, out),
        Action::Prune(args) => prune(&args, &cache, out),
        Action::Clear(args) => clear(&args, &cache, out),
    }
}

/// A length of time.
fn duration(text: &str) -> Result<Duration, String> {
    age::parse(text).ok_or_else(|| "expected an age, as in `30m`, `12h`, `30d` or `4w`".to_owned())
}

fn path(args: &PathArgs, workspace: &Workspace, out: Output) -> Result<(), Failure> {
    let folders = [
        ("workspace", workspace.root().to_owned()),
        ("store", workspace.store()),
        ("generated", workspace.generated()),
        ("temporary", workspace.temporary()),
        ("host", workspace.host()),
    ];
    let shown: Vec<_> = folders.iter().filter(|(name, _)| args.which.as_ref().is_none_or(|w| w == name)).collect();
    let json: serde_json::Map<_, _> =
        shown.iter().map(|(name, path)| ((*name).to_owned(), path.display().to_string().into())).collect();
    out.show(&json, || match (&args.which, shown.as_slice()) {
        (Some(_), [(_, path)]) => path.display().to_string(),
        _ => {
            let mut table = Table::plain();
            for (name, path) in shown {
                table.row([*name, &path.display().to_string()]);
            }
            table.text()
        }
    });
    Ok(())
}

/// An entry, as `list` and `prune` print it.
#[derive(Serialize)]
struct Row {
    uri: Option<String>,
    target: Target,
    profile: Option<String>,
    toolchain: Option<String>,
    library: Option<String>,
    bytes: u64,
    /// Seconds since it was published or last loaded, to the day.
    idle_s: u64,
    source_key: Digest,
    build_key: Digest,
    standing: &'static str,
    /// Why it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<String>,
    /// Why its metadata cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    folder: PathBuf,
}

impl Row {
    fn new(entry: &Entry, now: SystemTime) -> Self {
        let metadata = entry.metadata.as_ref().ok();
        let (standing, stale) = match &entry.standing {
            Standing::Current => ("current", None),
            Standing::Stale(why) => ("stale", Some(why.clone())),
            Standing::Unknown => ("unknown", None),
        };
        Self {
            uri: metadata.map(|m| m.uri.clone()),
            target: entry.target,
            profile: metadata.map(|m| m.profile.to_string()),
            toolchain: metadata.map(|m| m.toolchain.clone()),
            library: metadata.map(|m| m.library.clone()),
            bytes: entry.bytes,
            idle_s: entry.idle(now).as_secs(),
            source_key: entry.source_key,
            build_key: entry.build_key,
            standing,
            stale,
            unreadable: entry.metadata.as_ref().err().cloned(),
            folder: entry.folder.clone(),
        }
    }

    fn cells(&self) -> [String; 8] {
        // A digest of what the version does not say follows kind and version.
        let toolchain = self.toolchain.as_deref().unwrap_or("?").split(' ').take(2).collect::<Vec<_>>().join(" ");
        let standing = if self.unreadable.is_some() { "DAMAGED" } else { self.standing };
        [
            self.uri.clone().unwrap_or_else(|| "?".to_owned()),
            self.target.to_string(),
            self.profile.clone().unwrap_or_else(|| "?".to_owned()),
            text::bytes(self.bytes),
            age::words(Duration::from_secs(self.idle_s)),
            self.source_key.short(12),
            toolchain,
            standing.to_owned(),
        ]
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["URI", "TARGET", "PROFILE", ">SIZE", ">USED", "SOURCES", "TOOLCHAIN", "STANDING"]);
    rows.iter().for_each(|row| table.row(row.cells()));
    table.text()
}

/// The entries that a filter lets through. An op that the library no longer has is matched by its own name.
fn select(cache: &Cache, library: Option<&Library>, filter: &Filter) -> Listing {
    let ops: Vec<&Op> = library.into_iter().flat_map(Library::ops).map(|(_, op)| op).collect();
    let fits = |pattern: &str, name: &str| match ops.iter().find(|op| op.name == name) {
        Some(op) => glob(pattern, op),
        None => pattern == name,
    };
    let mut listing = cache.list();
    listing.entries.retain(|entry| {
        // What cannot be read may be of any op, so no pattern hides it.
        let op = filter.op.as_deref().zip(entry.metadata.as_ref().ok()).is_none_or(|(p, m)| fits(p, &m.op));
        op && filter.target.is_none_or(|target| entry.target == target)
    });
    listing
}

/// What the file system refused, as reports.
fn reports(errors: &[StoreError]) -> Vec<Report> {
    errors.iter().map(StoreError::report).collect()
}

fn finish(errors: &[StoreError]) -> Result<(), Failure> {
    if errors.is_empty() { Ok(()) } else { Err(Failure::shown(reports(errors))) }
}

fn list(listing: &Listing, cache: &Cache, out: Output) -> Result<(), Failure> {
    let now = SystemTime::now();
    let mut rows: Vec<Row> = listing.entries.iter().map(|e| Row::new(e, now)).collect();
    rows.sort_by(|a, b| (&a.uri, a.target, a.idle_s).cmp(&(&b.uri, b.target, b.idle_s)));
    let bytes: u64 = rows.iter().map(|r| r.bytes).sum();
    let leftovers = cache.workspace().leftovers(SETTLED);
    let store = cache.workspace().store();
    let json = serde_json::json!({
        "store": store, "entries": rows, "bytes": bytes, "leftovers": collected(leftovers),
    });
    out.show(&json, || {
        let mut text = if rows.is_empty() { String::new() } else { table(&rows) };
        let number = text::entries(rows.len());
        text += &format!("{number}, {} in {}\n", text::bytes(bytes), store.display());
        if leftovers.count > 0 {
            text += &format!("{}; `parbake cache prune` removes them\n", leftovers_text(leftovers));
        }
        text
    });
    finish(&listing.unread)
}

fn collected(what: Collected) -> serde_json::Value {
    serde_json::json!({ "count": what.count, "bytes": what.bytes })
}

fn leftovers_text(leftovers: Collected) -> String {
    let number = text::count(leftovers.count, "leftover");
    format!("{number} of killed processes, {}", text::bytes(leftovers.bytes))
}

fn show(what: &str, cache: &Cache, out: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Shown {
        #[serde(flatten)]
        row: Row,
        metadata: Option<Metadata>,
    }
    let now = SystemTime::now();
    let listing = cache.list();
    let named = |e: &&Entry| {
        let uri = e.metadata.as_ref().is_ok_and(|m| m.uri.starts_with(what));
        uri || [e.source_key, e.build_key].iter().any(|key| key.to_string().starts_with(what))
    };
    let found: Vec<Shown> = listing
        .entries
        .iter()
        .filter(named)
        .map(|e| Shown { row: Row::new(e, now), metadata: e.metadata.clone().ok() })
        .collect();
    if found.is_empty() {
        let what = format!("the store has no entry whose URI, source key or build key begins with `{what}`");
        return Err(Report::new("PB-3151", Class::Failed, what)
            .with("store", cache.workspace().store().display())
            .with("entries", listing.entries.len())
            .help("`parbake cache list` lists them; `parbake show` also looks into bundles")
            .into());
    }
    out.show(&serde_json::json!({ "entries": found }), || {
        let blocks = found.iter().map(|s| details(&s.row, s.metadata.as_ref()));
        blocks.collect::<Vec<_>>().join("\n")
    });
    finish(&listing.unread)
}

fn details(row: &Row, metadata: Option<&Metadata>) -> String {
    let mut table = Table::plain();
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    if let Some(m) = metadata {
        line("spec", m.spec.to_string());
        line("kernel", m.entry.clone());
        line("made by", format!("{}, library {}, launch ABI {}", m.toolchain, m.library, m.launch_abi));
        line("options", format!("{} ({})", m.options.join(" "), m.profile));
        line("image", format!("{}, {}, SHA-256 {}", m.file, text::bytes(m.size), m.image));
        line("compiled", format!("in {} ms", m.compile_ms));
    }
    if let Some(why) = &row.unreadable {
        line("DAMAGED", why.clone());
    }
    let stale = row.stale.as_ref().map_or(String::new(), |why| format!(": {why}"));
    line("standing", format!("{}{stale}", row.standing));
    line("used", format!("{} ago, to the day", age::words(Duration::from_secs(row.idle_s))));
    line("takes", text::bytes(row.bytes));
    line("source key", row.source_key.to_string());
    line("build key", row.build_key.to_string());
    line("folder", row.folder.display().to_string());
    if let Some(m) = metadata.filter(|m| !m.log.is_empty()) {
        line("log", m.log.clone());
    }
    format!("{} for {}\n{}", row.uri.as_deref().unwrap_or("an unknown spec"), row.target, table.text())
}

fn verify(listing: Listing, cache: &Cache, out: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Damaged {
        #[serde(flatten)]
        row: Row,
        why: String,
    }
    let now = SystemTime::now();
    let Listing { entries, mut unread } = listing;
    let mut damaged = Vec::new();
    let before = unread.len();
    for entry in &entries {
        match cache.verify(entry) {
            Ok(()) => {}
            Err(StoreError::Damaged { why, .. }) => damaged.push(Damaged { row: Row::new(entry, now), why }),
            Err(error) => unread.push(error),
        }
    }
    let whole = entries.len() - damaged.len() - (unread.len() - before);
    let unreadable: Vec<String> = unread.iter().map(ToString::to_string).collect();
    let json = serde_json::json!({
        "entries": entries.len(), "whole": whole, "damaged": damaged, "unreadable": unreadable,
    });
    out.show(&json, || {
        let mut text = String::new();
        for d in &damaged {
            let uri = d.row.uri.as_deref().unwrap_or("?");
            text += &format!("DAMAGED  {uri} {}: {}\n         {}\n", d.row.target, d.why, d.row.folder.display());
        }
        for error in &unreadable {
            text += &format!("UNREAD   {error}\n");
        }
        text + &format!(
            "{}: {whole} whole, {} damaged, {} not read\n",
            text::entries(entries.len()),
            damaged.len(),
            unread.len()
        )
    });
    let mut failed = reports(&unread);
    if !damaged.is_empty() {
        let what = format!("the store has {} damaged", text::entries(damaged.len()));
        let report = Report::new("PB-3152", Class::Failed, what)
            .help("none of them is run; each is made anew when it is next compiled, or goes with: parbake cache prune --damaged");
        failed.push(report);
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::shown(failed)) }
}

fn prune(args: &PruneArgs, cache: &Cache, out: Output) -> Result<(), Failure> {
    if args.stale && !cache.knows_sources() {
        return Err(Report::new("PB-3153", Class::Environment, "it is not known which entries are stale")
            .with("expected", "op definitions and kernel sources that can be read")
            .help("`parbake doctor` says what is wrong with them")
            .into());
    }
    let limits = Limits { size: args.max_size, age: args.max_age, stale: args.stale, damaged: args.damaged };
    let pruned = if args.dry_run { cache.plan(&limits) } else { cache.prune(&limits) };
    told(&pruned, args.dry_run, limits == Limits::default(), out)
}

fn clear(args: &ClearArgs, cache: &Cache, out: Output) -> Result<(), Failure> {
    let root = cache.workspace().root().display();
    if !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        let number = text::entries(cache.list().entries.len());
        let mut screen = std::io::stderr().lock();
        let _ = write!(screen, "Remove {number} and all generated sources below {root}? [y/N] ");
        let mut answer = String::new();
        let _ = std::io::stdin().read_line(&mut answer);
        if !["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
            return Err(Report::new("PB-3154", Class::Failed, "nothing was removed").into());
        }
    } else if !args.yes {
        return Err(Report::new("PB-3154", Class::Usage, "nothing was removed: nobody can be asked here")
            .with("expected", "a terminal, or --yes")
            .help("parbake cache clear --yes")
            .into());
    }
    told(&cache.clear(), false, false, out)
}

/// Says what went, or would go.
fn told(pruned: &Pruned, dry: bool, no_limit: bool, out: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Gone<'a> {
        #[serde(flatten)]
        row: Row,
        reason: &'a Reason,
    }
    let now = SystemTime::now();
    let gone = |r: &Removed| Row::new(&r.entry, now);
    let bytes: u64 = pruned.removed.iter().map(|r| r.entry.bytes).sum();
    let removed: Vec<Gone<'_>> = pruned.removed.iter().map(|r| Gone { row: gone(r), reason: &r.why }).collect();
    let json = serde_json::json!({
        "dry_run": dry,
        "removed": removed,
        "bytes": bytes,
        "kept": collected(pruned.kept),
        "too_new": pruned.too_new,
        "leftovers": collected(pruned.leftovers),
        "failed": pruned.failed.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    out.show(&json, || {
        let mut lines = Table::plain();
        for g in &removed {
            let uri = g.row.uri.as_deref().unwrap_or("?");
            lines.row([uri, &g.row.target.to_string(), &text::bytes(g.row.bytes), &reason(g.reason)]);
        }
        let verb = if dry { "would remove" } else { "removed" };
        let number = text::entries(removed.len());
        let mut text = format!("{}{verb} {number}, {}", lines.text(), text::bytes(bytes));
        if pruned.leftovers.count > 0 {
            text += &format!(", and {}", leftovers_text(pruned.leftovers));
        }
        text += &format!("; {} stay, {}\n", text::entries(pruned.kept.count), text::bytes(pruned.kept.bytes));
        if pruned.too_new > 0 {
            text += &format!("{} of the last minute stay for now\n", text::entries(pruned.too_new));
        }
        if no_limit {
            text += "no limit was given: see --max-size, --max-age, --stale and --damaged\n";
        }
        text
    });
    finish(&pruned.failed)
}

fn reason(why: &Reason) -> String {
    match why {
        Reason::Stale(why) => format!("stale: {why}"),
        Reason::Unused => "unused for too long".to_owned(),
        Reason::Damaged(why) => format!("damaged: {why}"),
        Reason::Size => "used longest ago".to_owned(),
        Reason::Cleared => String::new(),
    }
}
