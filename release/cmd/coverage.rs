//! `parbake coverage`: what will serve a job's calls, before it starts.

use crate::asked::{Asked, Sources, Wishes};
use crate::output::{Failure, Output, note};
use crate::select;
use crate::text::{self, Table};
use parbake::decision::{Decision, Origin, Step};
use parbake::tactic::{Block, TacticError};
use parbake::{Error, Goal, Library};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use parbake_model::{Digest, Target, Toolkit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Says what would serve each call of a job: a bundle, the store, the JIT compiler, or nothing, with the reason.
///
/// Needs no GPU, compiles nothing and loads nothing. Ends with status 1 if anything would be compiled or is missing.
///
///   parbake coverage --lock parbake.lock --bundle fleet.pbk
///
///   parbake coverage --calls calls.jsonl --bundle fleet.pbk --arch 80,90a
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A lock, as `parbake lock` writes it; `-` is standard input
    #[arg(long, value_name = "FILE", required_unless_present = "calls")]
    lock: Option<PathBuf>,
    /// Recordings, as a program writes them with PARBAKE_RECORD
    #[arg(long, value_name = "FILE", num_args = 1..)]
    calls: Vec<PathBuf>,
    /// Bundles to look in before those of PARBAKE_BUNDLES and the installed ones
    #[arg(long = "bundle", value_name = "FILE", num_args = 1..)]
    bundles: Vec<PathBuf>,
    /// What the job runs on, as in `80,90a` [default: what the files name]
    #[arg(long, value_name = "LIST")]
    arch: Option<String>,
    /// The CUDA version of the driver there, for devices of exactly the architectures asked about: newer toolkits may be too
    /// new for it
    #[arg(long, value_name = "VERSION")]
    driver: Option<Toolkit>,
    /// Counts this machine's store too: for a job that runs here
    #[arg(long)]
    store: bool,
    /// Ends with status 0 if nothing is missing, also if something would be compiled
    #[arg(long)]
    allow_jit: bool,
}

/// What would serve a spec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Served {
    Bundle,
    Store,
    Jit,
    Missing,
}

impl Served {
    const ALL: [Self; 4] = [Self::Bundle, Self::Store, Self::Jit, Self::Missing];

    fn word(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Store => "store",
            Self::Jit => "jit",
            Self::Missing => "missing",
        }
    }
}

/// A spec for a target.
#[derive(Debug, Serialize)]
struct Call {
    op: String,
    spec: String,
    uri: String,
    spec_id: Digest,
    target: Target,
    served: Served,
    /// The bundle, store or compiler that serves it.
    by: Option<String>,
    /// What the image there was compiled for.
    image: Option<Target>,
    /// Why no bundle serves it.
    why: Option<String>,
    /// Whether a bake could make it.
    exists: bool,
}

#[derive(Serialize)]
struct Answer {
    calls: Vec<Call>,
    counts: BTreeMap<Served, usize>,
    bundles: Vec<String>,
    left_out: Vec<String>,
    torn: usize,
    /// Whether the job can start as it was asked.
    covered: bool,
    /// The commands that close the gaps.
    help: Option<String>,
}

pub(crate) fn run(args: Args, mut config: Config, out: Output) -> Result<(), Failure> {
    let files: Vec<PathBuf> = args.lock.iter().chain(&args.calls).cloned().collect();
    let sources = Sources::read(&files)?;
    let instead = args.arch.as_deref().map(|arch| select::targets(Some(arch), &config)).transpose()?;
    // Whose store it would be is not known unless it is said.
    config.cache &= args.store;
    let library = Library::open(select::with_bundles(config, &args.bundles)?)?;
    let Wishes { asked, left_out, torn } = sources.resolve(&library, instead.as_deref())?;
    for left in &left_out {
        note(format!("note: not asked about: {left}"));
    }
    let calls = asked.iter().map(|asked| judge(&library, asked, &args)).collect::<Result<Vec<_>, _>>()?;
    let mut counts: BTreeMap<Served, usize> = Served::ALL.into_iter().map(|served| (served, 0)).collect();
    calls.iter().for_each(|call| *counts.entry(call.served).or_default() += 1);
    let open = |call: &&Call| call.served == Served::Missing || (call.served == Served::Jit && !args.allow_jit);
    let gaps: Vec<&Call> = calls.iter().filter(open).collect();
    let (covered, help) = (gaps.is_empty(), remedy(&args, &files, &gaps));
    let report = (!covered).then(|| complaint(&gaps, calls.len(), help.as_deref()));
    let bundles = library.bundles().map(str::to_owned).collect();
    let answer = Answer { calls, counts, bundles, left_out, torn, covered, help };
    out.show(&answer, || describe(&answer));
    report.map_or(Ok(()), |report| Err(Failure::shown(vec![report])))
}

fn goal(target: Target, driver: Option<Toolkit>) -> Goal {
    match (target, driver) {
        (Target::Host, _) => Goal::Host,
        (Target::Sm(arch, _), Some(driver)) => Goal::Device(arch, driver),
        (target, _) => Goal::Target(target),
    }
}

fn judge(library: &Library, asked: &Asked, args: &Args) -> Result<Call, Failure> {
    let Asked { op, spec, target } = asked;
    let mut call = Call {
        op: library.definition(*op).path(),
        spec: spec.to_string(),
        uri: spec.uri.clone(),
        spec_id: spec.spec_id,
        target: *target,
        served: Served::Missing,
        by: None,
        image: None,
        why: None,
        exists: true,
    };
    let mut decision = match library.explain(*op, spec, goal(*target, args.driver)) {
        Ok(decision) => decision,
        Err(Error::Unsupported { reason, .. }) => {
            (call.exists, call.why) = (false, Some(format!("it does not exist for {target}: {reason}")));
            return Ok(call);
        }
        Err(Error::Tactic(TacticError::Blocked(blocks))) => {
            let why = blocks.iter().map(Block::words).collect::<Vec<_>>().join("; ");
            (call.exists, call.why) = (false, Some(format!("it is blocked: {why}")));
            return Ok(call);
        }
        Err(error) => return Err(error.into()),
    };
    if !args.store {
        decision.steps.retain(|step| !step.place.starts_with("store "));
    }
    call.served = match decision.from {
        Some(Origin::Bundle) => Served::Bundle,
        Some(Origin::Store) => Served::Store,
        Some(Origin::Jit | Origin::Registry) => Served::Jit,
        None => Served::Missing,
    };
    let serves = |step: &&Step| step.miss.is_none() && step.target == decision.target;
    let by = decision.steps.iter().find(serves).filter(|_| decision.from.is_some());
    call.by = by.map(|step| if call.served == Served::Jit { step.outcome.clone() } else { step.place.clone() });
    call.image = decision.target;
    call.why = Some(why(&decision)).filter(|_| call.served > Served::Store);
    Ok(call)
}

/// What each place said, in a line.
fn why(decision: &Decision) -> String {
    let misses = decision.steps.iter().filter(|step| step.miss.is_some());
    let words = misses.map(|step| match step.target {
        Some(target) => format!("{} {target}: {}", step.place, step.outcome),
        None => format!("{}: {}", step.place, step.outcome),
    });
    words.collect::<Vec<_>>().join("; ").replace('\n', " ")
}

/// One bake of a lock, exactly for what is open.
fn remedy(args: &Args, files: &[PathBuf], gaps: &[&Call]) -> Option<String> {
    let targets: BTreeSet<Target> = gaps.iter().filter(|call| call.exists).map(|call| call.target).collect();
    if targets.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    let lock = match (&args.lock, args.calls.is_empty()) {
        (Some(lock), true) => text::shell(&lock.display().to_string()),
        _ => {
            let files = files.iter().map(|f| text::shell(&f.display().to_string())).collect::<Vec<_>>().join(" ");
            let arch = args.arch.as_ref().map_or(String::new(), |arch| format!(" --arch {}", text::shell(arch)));
            lines.push(format!("parbake lock {files}{arch} -o parbake.lock"));
            "parbake.lock".to_owned()
        }
    };
    let name = |target: &Target| match target {
        Target::Sm(..) => target.digits(),
        other => other.to_string(),
    };
    let archs = targets.iter().map(name).collect::<Vec<_>>().join(",");
    lines.push(format!("parbake build --lock {lock} --arch {archs} -o parbake.pbk"));
    lines.push("then pass `--bundle parbake.pbk`, and to the job PARBAKE_BUNDLES with its absolute path".to_owned());
    Some(lines.join("\n"))
}

fn complaint(gaps: &[&Call], all: usize, help: Option<&str>) -> Report {
    let missing = gaps.iter().filter(|call| call.served == Served::Missing).count();
    let what = format!(
        "of {}, {missing} would find nothing and {} would be compiled when they first come",
        text::count(all, "call"),
        gaps.len() - missing
    );
    let report = Report::new("PB-3302", Class::Failed, what);
    help.map_or(report.clone(), |help| report.help(help))
}

fn describe(answer: &Answer) -> String {
    /// More specs than these are left to `--json`.
    const SHOWN: usize = 20;
    let targets: BTreeSet<Target> = answer.calls.iter().map(|call| call.target).collect();
    let mut cells: BTreeMap<(&str, Target), BTreeMap<Served, usize>> = BTreeMap::new();
    for call in &answer.calls {
        *cells.entry((&call.op, call.target)).or_default().entry(call.served).or_default() += 1;
    }
    let words = |counts: &BTreeMap<Served, usize>| {
        let some = counts.iter().filter(|(_, count)| **count > 0);
        some.map(|(served, count)| format!("{count} {}", served.word())).collect::<Vec<_>>().join(", ")
    };
    let names: Vec<String> = targets.iter().map(Target::to_string).collect();
    let mut table = Table::new(&std::iter::once("OP").chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
    for op in answer.calls.iter().map(|call| call.op.as_str()).collect::<BTreeSet<_>>() {
        let row = targets.iter().map(|target| cells.get(&(op, *target)).map_or("-".to_owned(), words));
        table.row(std::iter::once(op.to_owned()).chain(row));
    }
    let mut text = table.text();
    // One reason is told once, for all that it holds for.
    let mut gaps: BTreeMap<(Served, Target, &str), Vec<&str>> = BTreeMap::new();
    for call in answer.calls.iter().filter(|call| call.served > Served::Store) {
        let why = call.why.as_deref().unwrap_or_default();
        gaps.entry((call.served, call.target, why)).or_default().push(&call.spec);
    }
    let mut room = SHOWN;
    for ((served, target, why), specs) in &gaps {
        text += &format!("\n{} for {target}:\n", served.word());
        for spec in specs.iter().take(room) {
            text += &format!("  {spec}\n");
        }
        if specs.len() > room {
            text += &format!("  and {} more; --json lists all\n", specs.len() - room);
        }
        room = room.saturating_sub(specs.len());
        text += &format!("  because {}\n", text::wrap(why, 10));
    }
    let looked = if answer.bundles.is_empty() { "no bundle".to_owned() } else { text::list(&answer.bundles) };
    let total = words(&answer.counts);
    text += &format!(
        "\n{}: {}\nlooked in {looked}\n",
        text::count(answer.calls.len(), "call"),
        if total.is_empty() { "none" } else { &total }
    );
    text
}
