//! `parbake fetch`: brings the bundles that this machine needs to where the library looks for them.

mod choose;
mod index;
mod meter;
mod partial;
mod source;
mod transfer;
#[cfg(feature = "network")]
mod web;

use crate::output::{self, Failure, Output};
use crate::seal::{Seal, Trust};
use crate::text;
use choose::{Job, Want};
use meter::Meter;
use parbake::Library;
use parbake::context::TargetContext;
use parbake_model::bundle::{Bundle, Details};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::target::known_targets;
use parbake_model::{Digest, Target, VERSION, glob};
use serde::Serialize;
use source::{Open, Source};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use transfer::{Done, Place, State, Stop};

/// Fetches the bundles that this library needs for some targets from folders and web servers that `parbake publish` filled.
///
/// Folders are asked first, then web servers, both in the order in which they are given. Sizes, SHA-256 and signatures
/// are checked, and a bundle gets its name when all of it is right. A source that fails is named, and the next one is
/// asked; what was received of a bundle is gone on with. What is there already is not fetched again.
///
///   parbake fetch --from https://bundles.example --arch 90a --op 'norm/*'
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder, or an `http://`, `https://` or `file://` address; may be repeated [default: PARBAKE_SOURCES]
    #[arg(long = "from", value_name = "SOURCE")]
    from: Vec<String>,
    /// Architectures to fetch for, as in `80,90a` [default: PARBAKE_ARCHS and the GPUs of this machine]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    /// Ops to fetch, by `op` or `family/op`; `*` and `?` are wildcards
    #[arg(long, value_name = "GLOB", default_value = "*")]
    op: String,
    /// The folder that gets the bundles [default: parbake/bundles in $XDG_DATA_HOME, where the library looks]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// An address to ask instead of every web server; hashes stay those of the index [default: PARBAKE_MIRROR]
    #[arg(long, value_name = "ADDRESS")]
    mirror: Option<String>,
    /// The SHA-256 that `index.json` must have: what is fetched is then known before
    #[arg(long, value_name = "SHA256")]
    index: Option<Digest>,
    /// The version of parbake whose bundles are fetched, and no other [default: this one, or the newest that fits it]
    #[arg(long, value_name = "VERSION", value_parser = choose::release)]
    release: Option<String>,
    /// How many bundles are fetched at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}

/// What became of a source.
#[derive(Serialize)]
struct Asked {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_signature: Option<Seal>,
    /// What was wrong with it.
    refused: Vec<String>,
    /// What it does not have.
    lacks: Vec<Want>,
    /// It was not asked, because it is on the network.
    withheld: bool,
}

#[derive(Serialize)]
struct Got {
    source: String,
    #[serde(flatten)]
    done: Done,
}

#[derive(Serialize)]
struct Fetched {
    library: &'static str,
    folder: PathBuf,
    targets: BTreeSet<Target>,
    op: String,
    /// `off` if the hashes of the index did not count.
    checksum: &'static str,
    sources: Vec<Asked>,
    files: Vec<Got>,
    missing: BTreeSet<Want>,
}

pub(crate) fn run(args: Args, config: Config, out: Output) -> Result<(), Failure> {
    let sources = sources(&args, &config)?;
    let targets = targets(args.arch.as_deref(), &config)?;
    let folder = folder(&args, &config)?;
    let trust = Trust::of(&config)?;
    if !config.checksum {
        let what = "the hashes of the index do not count for this command (PARBAKE_CHECKSUM=off)";
        output::note(format!("warning: {what}; bundles check themselves, and signatures count"));
    }
    let want = |op: &str, target: &Target| Want { op: op.to_owned(), target: *target };
    let wants = glob::parts(&args.op).flat_map(|op| targets.iter().map(move |target| want(op, target)));
    let mut result = Fetched {
        library: VERSION,
        folder: folder.clone(),
        targets: targets.clone(),
        op: args.op.clone(),
        checksum: if config.checksum { "on" } else { "off" },
        sources: Vec::new(),
        files: Vec::new(),
        missing: wants.collect(),
    };
    partial::sweep(&folder);
    for source in &sources {
        if result.missing.is_empty() {
            break;
        }
        let asked = ask(source, &args, &config, &trust, &mut result, out)?;
        result.sources.push(asked);
    }
    unfit(&result);
    let failure = (!result.missing.is_empty()).then(|| incomplete(&result));
    // Of nothing that was fetched there is nothing to say to people.
    if out.json || failure.is_none() || !result.files.is_empty() {
        out.show(&result, || describe(&result));
    }
    failure.map_or(Ok(()), |report| Err(Failure::shown(vec![report])))
}

/// Folders first; a mirror stands for every web server.
fn sources(args: &Args, config: &Config) -> Result<Vec<Source>, Report> {
    let given = if args.from.is_empty() { &config.sources } else { &args.from };
    let mirror = args.mirror.as_ref().or(config.mirror.as_ref()).map(|text| Source::parse(text)).transpose()?;
    let mut sources = given.iter().map(|text| Source::parse(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some(mirror) = mirror {
        if sources.is_empty() {
            sources.push(mirror.clone());
        }
        for source in sources.iter_mut().filter(|s| s.is_web()) {
            *source = mirror.clone();
        }
    }
    let mut ordered: Vec<Source> = Vec::new();
    sources.sort_by_key(Source::is_web);
    for source in sources {
        if !ordered.contains(&source) {
            ordered.push(source);
        }
    }
    if ordered.is_empty() {
        return Err(Report::new("PB-3420", Class::Usage, "there is nowhere to fetch from")
            .with("expected", "--from SOURCE or PARBAKE_SOURCES: what `parbake publish` wrote, or a server of it")
            .help("parbake fetch --from /srv/parbake --arch 90a"));
    }
    Ok(ordered)
}

fn targets(option: Option<&str>, config: &Config) -> Result<BTreeSet<Target>, Report> {
    if let Some(text) = option {
        let report = |e| parbake::Error::Target(e).report().with("expected", "--arch with a list such as 80,90a");
        return Target::parse_list(text).map(|list| list.into_iter().collect()).map_err(report);
    }
    let targets: BTreeSet<Target> = TargetContext::find(config).targets().into_iter().collect();
    if targets.is_empty() {
        return Err(Report::new("PB-3422", Class::Usage, "it is not known what to fetch for")
            .with("expected", "--arch 80,90a or PARBAKE_ARCHS=80,90a, or a GPU in this machine")
            .with("got", "neither")
            .help(format!("known are {}, and host", known_targets())));
    }
    Ok(targets)
}

fn folder(args: &Args, config: &Config) -> Result<PathBuf, Report> {
    let folder = args.output.as_ref().unwrap_or(&config.user_bundles);
    if args.output.is_none() && !config.installed.contains(folder) {
        return Err(Report::new(
            "PB-3427",
            Class::Usage,
            "there is no folder in which this user's bundles are looked for",
        )
        .with("expected", "$XDG_DATA_HOME or $HOME, or -o FOLDER")
        .with("got", "none of them"));
    }
    std::fs::create_dir_all(folder).map_err(|e| transfer::cannot_use(folder, &e))?;
    Ok(folder.clone())
}

/// Brings from one source whatever is missing and can be had there.
fn ask(
    source: &Source,
    args: &Args,
    config: &Config,
    trust: &Trust,
    result: &mut Fetched,
    out: Output,
) -> Result<Asked, Report> {
    let mut asked = Asked {
        source: source.shown(),
        index: None,
        version: None,
        index_signature: None,
        refused: Vec::new(),
        lacks: Vec::new(),
        withheld: config.offline && source.is_web(),
    };
    if asked.withheld {
        return Ok(asked);
    }
    let open = match source.open(config) {
        Ok(open) => open,
        Err(refusal) => {
            asked.refused.push(refusal.why);
            return Ok(asked);
        }
    };
    let read = match index::read(&open, trust, args.index) {
        Ok(read) => read,
        Err(why) => {
            asked.refused.push(why);
            return Ok(asked);
        }
    };
    asked.index = Some(read.digest);
    if let Seal::Invalid { code, why } = &read.seal {
        output::note(format!("warning: the index of {}: {code}: {why}", asked.source));
    }
    asked.index_signature = Some(read.seal);
    let picked = choose::version(&read.index, args.release.as_deref()).and_then(|version| {
        asked.version = Some(version.library.clone());
        choose::pick(version, &result.missing).map_err(|e| format!("its files of {}: {e}", version.library))
    });
    let picked = match picked {
        Ok(picked) => picked,
        Err(why) => {
            asked.refused.push(why);
            return Ok(asked);
        }
    };
    let fallback = asked.version.as_deref().filter(|version| args.release.is_none() && *version != VERSION);
    if let Some(version) = fallback {
        let what = format!(
            "the index of {} has nothing of version {VERSION}, so bundles of {version} are taken",
            asked.source
        );
        output::note(format!("warning: {what}; an index of earlier days looks like this (--release takes no other)"));
    }
    asked.lacks = result.missing.iter().filter(|want| !picked.contains_key(want)).cloned().collect();
    let mut jobs: Vec<Job> = Vec::new();
    for job in picked.values().flatten() {
        if !jobs.contains(job) {
            jobs.push(job.clone());
        }
    }
    let meter = Meter::new(jobs.iter().map(|j| j.bundle.size).sum(), out);
    let patience = 2 * config.fetch_stall;
    let place = Place { folder: &result.folder, fallback, trust, checksum: config.checksum, patience, meter: &meter };
    let outcomes = transfers(&place, &open, &jobs, usize::from(args.jobs));
    meter.end();
    let mut failed = BTreeSet::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        match outcome {
            Some(Ok(done)) => {
                // From an earlier source, for another want.
                result.files.retain(|got| got.done.path != done.path);
                result.files.push(Got { source: asked.source.clone(), done });
            }
            Some(Err(Stop::Source(why))) => {
                failed.insert(job.bundle.path.clone());
                asked.refused.push(why);
            }
            Some(Err(Stop::Here(report))) => return Err(report),
            None => {}
        }
    }
    let brought = |jobs: &Vec<Job>| jobs.iter().all(|job| !failed.contains(&job.bundle.path));
    result.missing.retain(|want| !picked.get(want).is_some_and(brought));
    Ok(asked)
}

/// Brings bundles, some at once. If this machine refuses one, no other is begun: those have no outcome.
fn transfers(place: &Place<'_>, open: &Open, jobs: &[Job], at_once: usize) -> Vec<Option<Result<Done, Stop>>> {
    let queue = Mutex::new(jobs.iter().enumerate());
    let outcomes = Mutex::new(jobs.iter().map(|_| None).collect::<Vec<_>>());
    let work = || {
        loop {
            let next = queue.lock().expect("bug: no thread panics").next();
            let Some((at, job)) = next else { return };
            let outcome = place.bring(open, job);
            if matches!(outcome, Err(Stop::Here(_))) {
                *queue.lock().expect("bug: no thread panics") = [].iter().enumerate();
            }
            outcomes.lock().expect("bug: no thread panics")[at] = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    outcomes.into_inner().expect("bug: no thread panics")
}

/// Warns of bundles in the folder that this library does not take: installed, they stop every call.
fn unfit(result: &Fetched) {
    for entry in std::fs::read_dir(&result.folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "pbk") || result.files.iter().any(|got| got.done.path == path) {
            continue;
        }
        let Some(bundle) = std::fs::File::open(&path).ok().and_then(|file| Bundle::open(file).ok()) else { continue };
        let (library, launch_abi) = (bundle.library().to_owned(), bundle.launch_abi());
        if !Library::accepts(&Details { library, launch_abi, ..Details::default() }) {
            let (path, made) = (path.display(), bundle.library());
            output::note(format!(
                "warning: {path} is of version {made} and no use to this library ({VERSION}): remove it"
            ));
        }
    }
}

/// The one error for what could not be had: with the reasons of every source.
fn incomplete(result: &Fetched) -> Report {
    let missing = text::list(&result.missing);
    let withheld = result.sources.iter().any(|s| s.withheld);
    let refused = result.sources.iter().any(|s| !s.refused.is_empty());
    let mut report = if withheld {
        let what = format!("nothing may be fetched from the network, and no folder has bundles of {missing}");
        Report::new("PB-3424", Class::Environment, what).with("PARBAKE_OFFLINE", "on")
    } else if refused {
        Report::new("PB-3423", Class::Environment, format!("bundles of {missing} could not be fetched"))
    } else {
        Report::new("PB-3426", Class::Failed, format!("no source has bundles of {missing}"))
    };
    for asked in &result.sources {
        if asked.withheld {
            report = report.with("not asked", format!("{}, for {missing}", asked.source));
        }
        for why in &asked.refused {
            report = report.with(&asked.source, why);
        }
        if !asked.lacks.is_empty() {
            report = report.with(&asked.source, format!("it has nothing of {}", text::list(&asked.lacks)));
        }
    }
    let arch: BTreeSet<Target> = result.missing.iter().map(|w| w.target).collect();
    let arch: Vec<String> = arch.iter().map(|t| t.to_string().replace("sm_", "")).collect();
    if withheld {
        report = report.help("unset PARBAKE_OFFLINE, or name a folder that holds them: --from FOLDER");
    }
    report.help(format!("parbake build --arch {} --op '{}' builds them", arch.join(","), result.op))
}

fn describe(result: &Fetched) -> String {
    let mut text = String::new();
    for got in &result.files {
        let done = &got.done;
        let state = match (done.state, done.resumed) {
            (State::Present, _) => "there already".to_owned(),
            (State::Fetched, 0) => format!("from {}", got.source),
            (State::Fetched, had) => format!("from {}, {} were there", got.source, text::bytes(had)),
        };
        let seal =
            if matches!(done.seal, Seal::None) { String::new() } else { format!("; signature {}", done.seal.text()) };
        let checksum = if done.checksum { "" } else { "; SHA-256 NOT REQUIRED" };
        text += &format!("{}: {}, {state}{seal}{checksum}\n", done.path.display(), text::bytes(done.bytes));
    }
    // What is missing is an error, which has the reasons.
    for asked in result.sources.iter().filter(|_| result.missing.is_empty()) {
        text += &asked.refused.iter().map(|why| format!("refused: {}: {why}\n", asked.source)).collect::<String>();
    }
    if result.missing.is_empty() {
        let (fetched, there) = counts(&result.files);
        text += &format!("{}: complete, {fetched} fetched, {there} there already\n", result.folder.display());
    }
    text
}

fn counts(files: &[Got]) -> (usize, usize) {
    let fetched = files.iter().filter(|got| got.done.state == State::Fetched).count();
    (fetched, files.len() - fetched)
}
