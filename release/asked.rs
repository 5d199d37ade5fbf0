//! What programs ask for, from their recordings and from locks: specs, each with its targets.

use crate::output::{Failure, note};
use parbake::{Library, OpId};
use parbake_model::identity::Spec;
use parbake_model::lock::{Lock, LockError, Locked};
use parbake_model::record::{self, Recording};
use parbake_model::report::{Class, Report};
use parbake_model::{Target, space};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A spec that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) op: OpId,
    pub(crate) spec: Spec,
    pub(crate) target: Target,
}

/// What files ask for, each once, by spec and target.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) asked: Vec<Asked>,
    /// What does not exist for a target that was named instead of the recorded one.
    pub(crate) left_out: Vec<String>,
    /// How many records were cut short by a process that died.
    pub(crate) torn: usize,
}

/// What asked, unread.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pairs: BTreeSet<(Locked, Target)>,
    /// Specs of locks that name no target.
    anywhere: BTreeMap<Locked, PathBuf>,
    torn: usize,
}

impl Sources {
    /// Reads files, each a recording or a lock.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Self, Report> {
        let mut all = Self::default();
        for path in files {
            let text = bytes(path)?;
            if is_lock(&text) { all.lock(path, &lock(path, &text)?) } else { all.recording(path, &text)? }
        }
        Ok(all)
    }

    fn lock(&mut self, path: &Path, lock: &Lock) {
        if lock.targets.is_empty() {
            self.anywhere.extend(lock.specs.iter().map(|locked| (locked.clone(), path.to_owned())));
        }
        let bare = |locked: &Locked| Locked { targets: Vec::new(), ..locked.clone() };
        self.pairs.extend(lock.pairs().map(|(locked, target)| (bare(locked), target)));
    }

    fn recording(&mut self, path: &Path, text: &[u8]) -> Result<(), Report> {
        let Recording { records, torn } = record::read(text).map_err(|error| {
            Report::new(error.code(), Class::Failed, format!("{} is no recording", path.display()))
                .caused_by_chain(&error)
                .help("a program writes one with PARBAKE_RECORD=calls.jsonl")
        })?;
        for line in &torn {
            note(format!(
                "note: {}: line {line} was cut short by a process that died, and is passed over",
                path.display()
            ));
        }
        self.torn += torn.len();
        self.pairs.extend(records.iter().map(|r| (r.locked(), r.target)));
        Ok(())
    }

    /// The specs as this library knows them. With targets of one's own, each is asked for on those where it exists, instead
    /// of where the files say.
    pub(crate) fn resolve(self, library: &Library, instead: Option<&[Target]>) -> Result<Wishes, Failure> {
        if let (Some((_, path)), None) = (self.anywhere.iter().next(), instead) {
            return Err(Report::new("PB-3301", Class::Usage, format!("{} names no targets", path.display()))
                .with("expected", "--arch with what the job runs on, as in `--arch 80,90a`")
                .into());
        }
        let specs: BTreeSet<Locked> =
            self.anywhere.into_keys().chain(self.pairs.iter().map(|(locked, _)| locked.clone())).collect();
        let pairs: BTreeSet<(Locked, Target)> = match instead {
            Some(targets) => specs.iter().flat_map(|s| targets.iter().map(|t| (s.clone(), *t))).collect(),
            None => self.pairs,
        };
        let lock = Lock { specs: specs.into_iter().collect(), ..Lock::new([], []) };
        let known = library.resolved(&lock)?;
        let known: BTreeMap<&Locked, (OpId, Spec)> = lock.specs.iter().zip(known).collect();
        let mut wishes = Wishes { torn: self.torn, ..Wishes::default() };
        for (locked, target) in &pairs {
            let (op, spec) = known[locked].clone();
            match space::check(library.definition(op), &spec, Some(*target)) {
                Err(why) if instead.is_some() => wishes.left_out.push(format!("{spec} for {target}: {}", why.0)),
                // That the files ask for what does not exist is for whoever asks to say.
                _ => wishes.asked.push(Asked { op, spec, target: *target }),
            }
        }
        Ok(wishes)
    }
}

impl Wishes {
    /// Every legal tactic of what is asked for, so that calls of other shapes are covered too.
    pub(crate) fn widen(&mut self, library: &Library) {
        let mut seen: BTreeSet<_> = self.asked.iter().map(|a| (a.spec.spec_id, a.target)).collect();
        let mut places = BTreeSet::new();
        for Asked { op, spec, target } in std::mem::take(&mut self.asked) {
            if places.insert((spec.op.clone(), spec.axes.clone(), target)) {
                let def = library.definition(op);
                let alike = space::alike(def, &spec).into_iter();
                let legal = alike.filter(|other| space::check(def, other, Some(target)).is_ok());
                let new: Vec<Spec> = legal.filter(|other| seen.insert((other.spec_id, target))).collect();
                self.asked.extend(new.into_iter().map(|spec| Asked { op, spec, target }));
            }
            self.asked.push(Asked { op, spec, target });
        }
    }

    /// A lock of exactly this.
    pub(crate) fn lock(&self) -> Lock {
        Lock::of(self.asked.iter().map(|asked| (Locked::from(&asked.spec), asked.target)))
    }
}

/// Reads a lock file; `-` is standard input.
pub(crate) fn read_lock(path: &Path) -> Result<Lock, Report> {
    lock(path, &bytes(path)?)
}

fn lock(path: &Path, text: &[u8]) -> Result<Lock, Report> {
    Lock::from_json(text).map_err(|error: LockError| {
        Report::new(error.code(), Class::Failed, format!("{} is no lock", path.display())).caused_by_chain(&error)
    })
}

/// A lock is one value, mostly over many lines; a recording has one a line, each with the identity of a spec.
fn is_lock(text: &[u8]) -> bool {
    let mut lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    match lines.next().map(|line| (line, serde_json::from_slice::<serde_json::Value>(line))) {
        Some((_, Ok(value))) => value.get("spec_id").is_none() && value.get("specs").is_some(),
        Some((line, Err(_))) => line == b"{",
        None => false,
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, Report> {
    let refuse = |error: std::io::Error| {
        Report::new("PB-3145", Class::Environment, format!("cannot read {}", path.display())).caused_by(error)
    };
    let mut text = Vec::new();
    // One byte more than is allowed tells that there is more.
    let most = parbake_model::lock::MAX_BYTES.max(record::MAX_BYTES) as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut text).map_err(refuse)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut text)).map_err(refuse)?;
    }
    Ok(text)
}
