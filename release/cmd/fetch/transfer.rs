//! Brings one bundle to its place: fetched, checked, and only then under its name.

use super::choose::Job;
use super::meter::Meter;
use super::partial::{self, Partial};
use super::source::{Open, Refusal, Reply, broken};
use crate::cmd::publish::digest;
use crate::output;
use crate::published::{File as Row, order};
use crate::seal::{Seal, Trust};
use parbake::signature;
use parbake_model::Digest;
use parbake_model::bundle::{Bundle, BundleError, Opening};
use parbake_model::report::{Class, Report};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a connection that broke off after some bytes is made anew before the next source is asked.
const ANEW: usize = 3;

/// Where bundles go, and what they must be.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    /// The version that is taken although nobody asked for it: it replaces no newer one.
    pub(super) fallback: Option<&'a str>,
    pub(super) trust: &'a Trust,
    /// Whether the SHA-256 of the index counts.
    pub(super) checksum: bool,
    /// How long another process may get nowhere with the same file.
    pub(super) patience: Duration,
    pub(super) meter: &'a Meter,
}

/// Why a bundle did not get there.
pub(super) enum Stop {
    /// The source is no good for it.
    Source(String),
    /// This machine is not, so no other source will do.
    Here(Report),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Source(refusal.why)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// It was there, with the right hash.
    Present,
    Fetched,
}

/// A bundle that is where it should be.
#[derive(Serialize)]
pub(super) struct Done {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: Digest,
    pub(super) state: State,
    /// How many of its bytes were there from a fetch that did not come to its end.
    pub(super) resumed: u64,
    /// Whether it was compared with the hash of the index.
    pub(super) checksum: bool,
    #[serde(flatten)]
    pub(super) seal: Seal,
}

/// How the bytes of a complete file came together.
struct Received {
    /// They may be of several states of the file.
    joined: bool,
    /// How many of them were there before.
    kept: u64,
}

impl Place<'_> {
    /// Brings a bundle and its signature from a source, unless they are there.
    pub(super) fn bring(&self, source: &Open, job: &Job) -> Result<Done, Stop> {
        let row = &job.bundle;
        let place = self.folder.join(row.name());
        let done = |state, resumed, seal, sha256, checksum| Done {
            path: place.clone(),
            bytes: row.size,
            sha256,
            state,
            resumed,
            checksum,
            seal,
        };
        if let Some(seal) = self.present(&place, job)? {
            self.meter.add(row.size);
            return Ok(done(State::Present, 0, seal, row.sha256, true));
        }
        self.not_older(&place, row)?;
        let signature = job.signature.as_ref().map(|row| self.signature(source, row)).transpose()?;
        let mut part = Partial::take(self.folder, row.sha256, row.name(), self.patience).map_err(|e| self.here(e))?;
        // Whoever it was waited for has brought it.
        if let Some(seal) = self.present(&place, job)? {
            self.meter.add(row.size);
            return Ok(done(State::Present, 0, seal, row.sha256, true));
        }
        let mut again = false;
        let (seal, sha256, resumed) = loop {
            let received = match self.receive(source, row, &mut part) {
                Ok(received) => received,
                Err(Stop::Here(report)) => {
                    part.give_up();
                    return Err(Stop::Here(report));
                }
                Err(stop) => return Err(stop),
            };
            part.sync().map_err(|e| self.here(e))?;
            match self.judge(part.path(), row, signature.as_deref()) {
                Ok((seal, sha256)) => break (seal, sha256, received.kept),
                // The parts may be of different files: once more, all of it from here.
                Err(_) if received.joined && !std::mem::replace(&mut again, true) => {
                    part.clear().map_err(|e| self.here(e))?;
                    self.meter.sub(row.size);
                }
                Err(why) => {
                    part.give_up();
                    return Err(Stop::Source(why));
                }
            }
        };
        self.install(part, &place, signature.as_deref()).map_err(|e| self.here(e))?;
        let checksum = self.checksum;
        if !checksum {
            let what = if sha256 == row.sha256 { "as it happens, it is the one of the index" } else { "IT IS ANOTHER" };
            let name = row.name();
            output::note(format!("warning: {name}: its SHA-256 was not required (PARBAKE_CHECKSUM=off): {what}"));
        }
        Ok(done(State::Fetched, resumed, seal, sha256, checksum))
    }

    /// What is served again from earlier days is signed as well as what replaced it.
    fn not_older(&self, place: &Path, row: &Row) -> Result<(), Stop> {
        let Some(version) = self.fallback else { return Ok(()) };
        let there = File::open(place).ok().and_then(|file| Bundle::open(file).ok());
        let newer = there.filter(|there| order(there.library(), version).is_gt());
        newer.map_or(Ok(()), |there| {
            let (path, there) = (&row.path, there.library());
            let why =
                format!("{path} is of version {version}, and what has its name here is of {there}, which is newer");
            Err(Stop::Source(format!("{why}; to go back: --release {version}")))
        })
    }

    /// Whether a bundle is in its place as it should be, and what its signature is worth.
    fn present(&self, place: &Path, job: &Job) -> Result<Option<Seal>, Stop> {
        let is = |path: &Path, row: &Row| {
            std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == row.size)
                && digest(path).is_ok_and(|(found, _)| found == row.sha256)
        };
        let beside = signature::beside(place);
        if !is(place, &job.bundle) || !job.signature.as_ref().is_none_or(|row| is(&beside, row)) {
            return Ok(None);
        }
        let text = match &job.signature {
            Some(_) => Some(std::fs::read(&beside).map_err(|e| self.here(e))?),
            None => None,
        };
        let judged = self.opened(place, &job.bundle, text.as_deref());
        judged.map(|(_, seal)| Some(seal)).map_err(Stop::Source)
    }

    /// The signature of a bundle, which is small.
    fn signature(&self, source: &Open, row: &Row) -> Result<Vec<u8>, Stop> {
        let bytes = source.small(&row.path, signature::MAX_BYTES)?;
        let found = Digest::of(&bytes);
        if bytes.len() as u64 != row.size {
            let why = format!("{} has {} bytes; the index says {}", row.path, bytes.len(), row.size);
            return Err(Stop::Source(why));
        }
        if self.checksum && found != row.sha256 {
            return Err(Stop::Source(format!("{}: expected SHA-256 {}, got {found}", row.path, row.sha256)));
        }
        Ok(bytes)
    }

    /// Receives what is missing.
    fn receive(&self, source: &Open, row: &Row, part: &mut Partial) -> Result<Received, Stop> {
        let (mut etag, mut anew) = (None, ANEW);
        let mut had = part.len().map_err(|e| self.here(e))?;
        if had > row.size {
            part.clear().map_err(|e| self.here(e))?;
            had = 0;
        }
        let mut received = Received { joined: had > 0, kept: had };
        self.meter.add(had);
        loop {
            if had == row.size {
                return Ok(received);
            }
            let reply = source.get(&row.path, had, etag.as_deref())?;
            self.promising(&reply, row, had)?;
            if reply.start == 0 && had > 0 {
                part.clear().map_err(|e| self.here(e))?;
                self.meter.sub(had);
                (had, received.kept) = (0, 0);
            }
            received.joined = had > 0;
            etag = reply.etag.clone();
            let before = had;
            let broke = self.pour(reply.body, row, part, &mut had)?;
            match broke {
                None => return Ok(received),
                Some(e) => {
                    let stalled = e.kind() == io::ErrorKind::TimedOut;
                    if stalled || had == before || anew == 0 {
                        self.meter.sub(had);
                        return Err(Stop::Source(format!("{}: {}", row.path, broken(&e, had, Some(row.size)))));
                    }
                    anew -= 1;
                }
            }
        }
    }

    /// Whether what is about to come can be what the index says.
    fn promising(&self, reply: &Reply, row: &Row, had: u64) -> Result<(), Stop> {
        if reply.html {
            return Err(Stop::Source(format!("{}: a page of HTML comes instead of the file", row.path)));
        }
        if let Some(total) = reply.total.filter(|total| *total != row.size) {
            return Err(Stop::Source(format!("{} has {total} bytes; the index says {}", row.path, row.size)));
        }
        if reply.start != 0 && reply.start != had {
            let start = reply.start;
            return Err(Stop::Source(format!(
                "{}: asked for bytes from {had} on, it sends them from {start} on",
                row.path
            )));
        }
        Ok(())
    }

    /// Takes bytes until the file is complete; what broke, if it is not.
    fn pour(
        &self,
        mut body: Box<dyn Read + Send>,
        row: &Row,
        part: &mut Partial,
        had: &mut u64,
    ) -> Result<Option<io::Error>, Stop> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) if *had == row.size => return Ok(None),
                Ok(0) => return Ok(Some(io::Error::new(io::ErrorKind::UnexpectedEof, "the source closed it"))),
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // All that is wanted is there.
                Err(_) if *had == row.size => return Ok(None),
                Err(e) => return Ok(Some(e)),
            };
            if read as u64 > row.size - *had {
                part.clear().map_err(|e| self.here(e))?;
                self.meter.sub(*had);
                return Err(Stop::Source(format!("{}: more than the {} bytes of the index come", row.path, row.size)));
            }
            part.add(&buffer[..read]).map_err(|e| self.here(e))?;
            *had += read as u64;
            self.meter.add(read as u64);
        }
    }

    /// Checks a complete file as it lies on the disk: hash, signature, and every byte of the bundle.
    fn judge(&self, path: &Path, row: &Row, signature: Option<&[u8]>) -> Result<(Seal, Digest), String> {
        let (found, _) = digest(path).map_err(|e| format!("{}: cannot be read back: {e}", row.path))?;
        if self.checksum && found != row.sha256 {
            return Err(format!("{}: expected SHA-256 {}, got {found}", row.path, row.sha256));
        }
        let (bundle, seal) = self.opened(path, row, signature)?;
        let Err(errors) = bundle.verify() else { return Ok((seal, found)) };
        let errors = errors.iter().map(|e| format!("{}: {e}", e.code())).collect::<Vec<_>>().join("; ");
        Err(format!("{} is damaged: {errors}", row.path))
    }

    /// Opens a bundle; its signature is judged before anything of it is believed.
    fn opened(&self, path: &Path, row: &Row, signature: Option<&[u8]>) -> Result<(Bundle, Seal), String> {
        let bad = |e: BundleError| format!("{}: {}: {e}", row.path, e.code());
        let file = File::open(path).map_err(|e| format!("{}: cannot be read back: {e}", row.path))?;
        let mut opening = Opening::read(file).map_err(bad)?;
        let text = signature.map(String::from_utf8_lossy);
        let place = format!("{}{}", row.path, signature::SUFFIX);
        let seal = self.trust.judge_text(&place, text.as_deref(), opening.signed().map_err(bad)?);
        let seal = seal.map_err(|e| format!("{}: {}: {}", row.path, e.code(), e.words()))?;
        Ok((opening.open().map_err(bad)?, seal))
    }

    /// Gives both files their names: the signature first, so that no bundle is ever without the one it has.
    fn install(&self, part: Partial, place: &Path, signature: Option<&[u8]>) -> io::Result<()> {
        let beside = signature::beside(place);
        match signature {
            Some(bytes) => {
                let mut staged = partial::scratch(self.folder)?;
                io::Write::write_all(&mut staged, bytes)?;
                staged.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
                staged.as_file().sync_all()?;
                staged.persist(&beside).map_err(|e| e.error)?;
            }
            None if beside.symlink_metadata().is_ok() => std::fs::remove_file(&beside)?,
            None => {}
        }
        part.install(place)?;
        File::open(self.folder)?.sync_all()
    }

    /// Something that this machine refuses.
    fn here(&self, error: io::Error) -> Stop {
        Stop::Here(cannot_use(self.folder, &error))
    }
}

/// What the folder for bundles refuses.
pub(super) fn cannot_use(folder: &Path, error: &io::Error) -> Report {
    let report = Report::new("PB-3425", Class::Environment, format!("cannot put bundles into {}", folder.display()));
    let help = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room, or name another folder with `-o`: what had been fetched was removed"
        }
        _ => "name a folder that you may write to: `-o FOLDER`, and then PARBAKE_BUNDLES for its bundles",
    };
    report.caused_by(error).help(help)
}
