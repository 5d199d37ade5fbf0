//! The bundles that this process looks kernels up in.
//!
//! Three tiers: named by the settings or on the command line, installed beside the library, embedded in it. A tier is
//! asked as a whole, so that an exact image in its second bundle is preferred to a baseline one in its first; the next
//! tier is asked only if this one has nothing that fits.
//!
//! Who names a bundle wants that one, so one that cannot be used is an error. Installed ones are looked for where data
//! wheels and distributions put them. One of another version, launch ABI or format, or a damaged one, is an error too:
//! it is an installation that went wrong, most programs print no warnings, and to compile around it on every machine
//! would hide it. One that is not signed, or cannot be read, is passed over with a warning, and every decision says so:
//! the first must not be believed, and the second may be whole.

use crate::decision::{Decision, Miss};
use crate::error::Error;
use crate::fault::{self, Fault};
use crate::goal::Goal;
use crate::signature::{self, Keys};
use crate::version;
use parbake_model::bundle::{Bundle, BundleError, Entry, Opening, Part, SpecDetails};
use parbake_model::identity::Spec;
use parbake_model::settings::{Config, SignaturePolicy, VersionBypass};
use parbake_model::{Digest, LAUNCH_ABI, Target, VERSION};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a bundle comes from, in look-up order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tier {
    Explicit,
    Installed,
    Embedded,
}

/// An open bundle that fits this library.
pub(crate) struct OpenBundle {
    pub(crate) name: String,
    path: PathBuf,
    tier: Tier,
    bundle: Bundle,
    /// Its version does not fit, and was let pass.
    bypassed: bool,
    /// Why it is no longer looked into.
    unusable: OnceLock<(Miss, String)>,
}

impl std::fmt::Debug for OpenBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenBundle").field(&self.name).finish()
    }
}

/// All bundles of a library.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    open: Vec<OpenBundle>,
    /// Installed bundles, or folders of them, that cannot be used, and why.
    refused: Vec<(String, String)>,
    bypass: Option<VersionBypass>,
}

/// What is looked up.
pub(crate) struct Wanted<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) source_key: Digest,
    /// The digest of the parameters, if there is a bypass that needs it.
    pub(crate) params: Option<Digest>,
    /// Whether to say why there is nothing.
    pub(crate) thorough: bool,
    /// Whether PTX may serve a device.
    pub(crate) ptx: bool,
}

/// The candidates of one bundle: where there are none, why.
type Candidates<'a> = Result<Vec<&'a Entry>, (Miss, String)>;

impl Bundles {
    /// Opens the bundles of the settings, those installed, and the embedded one. Nothing is written.
    ///
    /// # Errors
    /// A bundle of the settings that cannot be used, installed ones that are damaged or belong to another version, or
    /// public keys that are none.
    pub(crate) fn open(config: &Config) -> Result<Self, Error> {
        let checked = config.signature != SignaturePolicy::Off;
        let keys = if checked { Keys::of(config).map_err(Error::PublicKey)? } else { Keys::default() };
        let admission = Admission { keys, signature: config.signature, bypass: config.version_bypass.clone() };
        let open = |path: &PathBuf| admission.file(path, Tier::Explicit);
        let mut all = Self {
            open: config.bundles.iter().map(open).collect::<Result<_, _>>()?,
            refused: Vec::new(),
            bypass: config.version_bypass.clone(),
        };
        let mut unfit = Vec::new();
        for folder in &config.installed {
            all.install(folder, &admission, &mut unfit);
        }
        if !unfit.is_empty() {
            return Err(Error::Installed(unfit));
        }
        if let Some(bytes) = crate::embedded::bundle() {
            let path = PathBuf::from("(embedded)");
            let bundle = Bundle::open(bytes).map_err(|source| Error::Bundle { path: path.clone(), source })?;
            // It is part of the program, which is as trusted as what checks signatures.
            all.open.push(admission.bundle("embedded bundle".to_owned(), path, Tier::Embedded, bundle)?);
        }
        Ok(all)
    }

    /// Opens what is installed in a folder and in the folders in it, of which each data wheel has one. A folder that is
    /// not there is none.
    fn install(&mut self, folder: &Path, admission: &Admission, unfit: &mut Vec<Unfit>) {
        for path in self.installed(folder) {
            match admission.file(&path, Tier::Installed) {
                Ok(bundle) => self.open.push(bundle),
                Err(e) if passed_over(&e) => self.refuse(&path, &e.one_line()),
                Err(e) => unfit.push(Unfit::of(path, &e)),
            }
        }
    }

    /// The bundle files below a folder, those in it first, each folder by name.
    fn installed(&mut self, root: &Path) -> Vec<PathBuf> {
        let mut bundles = Vec::new();
        let mut folders = vec![root.to_owned()];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            let listed = std::fs::read_dir(&folder)
                .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>());
            let mut paths = match listed {
                Ok(paths) => paths,
                Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(e) => {
                    self.refuse(&folder, &format!("the folder cannot be listed: {e}"));
                    continue;
                }
            };
            paths.sort();
            for path in paths {
                if path.extension().is_some_and(|e| e == "pbk") {
                    bundles.push(path);
                } else if at == 1 && path.is_dir() {
                    folders.push(path);
                }
            }
        }
        bundles
    }

    fn refuse(&mut self, place: &Path, why: &str) {
        tracing::warn!(path = %place.display(), why, "installed bundles are not used");
        self.refused.push((format!("installed {}", place.display()), format!("not used: {why}")));
    }

    /// Names of the bundles in use, in look-up order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(|b| b.name.as_str())
    }

    /// The same with the targets of their images.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (&str, BTreeSet<Target>)> {
        self.open.iter().map(|b| (b.name.as_str(), b.bundle.entries().iter().map(|e| e.target).collect()))
    }

    /// What is installed and not used, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&str, &str)> {
        self.refused.iter().map(|(place, why)| (place.as_str(), why.as_str()))
    }

    /// The best image for a spec; every candidate of the tiers that were asked is noted.
    pub(crate) fn find(
        &self,
        wanted: &Wanted<'_>,
        goal: Goal,
        decision: &mut Decision,
    ) -> Option<(&OpenBundle, &Entry)> {
        for (place, why) in &self.refused {
            decision.miss(place, None, Miss::Unreadable, why);
        }
        if self.open.is_empty() && self.refused.is_empty() {
            let why = "none: PARBAKE_BUNDLES is not set, none is installed, and none is embedded";
            decision.miss("bundles", None, Miss::NotCovered, why);
        }
        for tier in [Tier::Explicit, Tier::Installed, Tier::Embedded] {
            let bundles = || self.open.iter().filter(|b| b.tier == tier);
            let plain: Vec<_> = bundles().map(|b| (b, b.candidates(wanted))).collect();
            if let Some(found) = choose(&plain, wanted, goal, None, decision) {
                return Some(found);
            }
            // What needs no bypass was preferred, whatever its target.
            let Some(bypass) = &self.bypass else { continue };
            let named = bundles().filter(|b| b.bundle.library() == bypass.bundle);
            let stretched: Vec<_> = named.map(|b| (b, b.stretched(wanted))).collect();
            if let Some(found) = choose(&stretched, wanted, goal, Some(bypass), decision) {
                decision.version_bypass = Some(bypass.to_string());
                return Some(found);
            }
        }
        None
    }
}

/// The best of the candidates of several bundles. All are noted, bundle by bundle.
fn choose<'a>(
    all: &[(&'a OpenBundle, Candidates<'a>)],
    wanted: &Wanted<'_>,
    goal: Goal,
    bypass: Option<&VersionBypass>,
    decision: &mut Decision,
) -> Option<(&'a OpenBundle, &'a Entry)> {
    let pairs = all.iter().flat_map(|(b, c)| c.iter().flatten().map(move |e| (e.judged(), (*b, *e))));
    let (best, trace) = goal.select(pairs, wanted.ptx);
    let mut trace = trace.into_iter();
    for (bundle, candidates) in all {
        let place = match bypass {
            Some(bypass) => format!("{} by version bypass {bypass}", bundle.name),
            None => bundle.name.clone(),
        };
        match candidates {
            Ok(entries) => decision.note_all(&place, trace.by_ref().take(entries.len()).collect()),
            Err((miss, why)) => decision.miss(place, None, *miss, why),
        }
    }
    best
}

/// Whether an installed bundle that gave this error is passed over: nobody vouches for it, or it could not be looked at.
fn passed_over(error: &Error) -> bool {
    match error {
        Error::Signature { .. } => true,
        Error::Bundle { source, .. } => matches!(source, BundleError::Io { .. }),
        _ => false,
    }
}

/// An installed bundle that is damaged or belongs to another library.
#[derive(Debug)]
pub struct Unfit {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it: of another version, both versions and launch ABIs.
    pub why: String,
    /// The command that mends it.
    pub fix: String,
}

impl Unfit {
    fn of(path: PathBuf, error: &Error) -> Self {
        // A data wheel has a folder of its own, which is named as the wheel is.
        let folder = path.parent().filter(|f| f.parent().is_some_and(|p| p.ends_with(WHEEL_FOLDER)));
        let wheel = folder.and_then(Path::file_name).map(|name| format!("{WHEEL_PREFIX}{}", name.display()));
        let fix = match (&wheel, error) {
            (Some(wheel), Error::BundleVersion { .. }) => {
                format!("pip install --upgrade parbake {wheel}, or pip uninstall {wheel}")
            }
            (Some(wheel), _) => format!("pip install --force-reinstall --no-deps {wheel}, or pip uninstall {wheel}"),
            (None, _) => format!("build it again with this library (parbake build …), or remove {}", path.display()),
        };
        Self { why: error.one_line(), path, fix }
    }
}

/// The folder in site-packages that data wheels put their bundles below, each in a folder of its own.
pub const WHEEL_FOLDER: &str = "parbake_bundles";

/// What precedes the name of that folder in the name of its wheel.
pub const WHEEL_PREFIX: &str = "parbake-bundle-";

/// What a bundle must satisfy.
struct Admission {
    keys: Keys,
    signature: SignaturePolicy,
    bypass: Option<VersionBypass>,
}

impl Admission {
    /// Opens a bundle file: its signature is checked first, and on the bytes that are parsed then.
    fn file(&self, path: &Path, tier: Tier) -> Result<OpenBundle, Error> {
        let refuse = |source| Error::Bundle { path: path.to_owned(), source };
        let file = fault::retried(|| std::fs::File::open(path));
        let file = file.map_err(|source| BundleError::Io { part: Part::Header, source });
        let mut opening = file.and_then(Opening::read).map_err(refuse)?;
        if self.signature != SignaturePolicy::Off {
            match signature::check(&self.keys, path, opening.signed().map_err(refuse)?) {
                Ok(signed) => tracing::debug!(path = %path.display(), key = %signed.key, "signature is right"),
                Err(source) if self.signature == SignaturePolicy::Required => {
                    return Err(Error::Signature { path: path.to_owned(), source });
                }
                Err(e) => tracing::warn!(path = %path.display(), why = e.words(), "a bundle is used unsigned"),
            }
        }
        let word = if tier == Tier::Installed { "installed bundle" } else { "bundle" };
        let bundle = opening.open().map_err(refuse)?;
        self.bundle(format!("{word} {}", path.display()), path.to_owned(), tier, bundle)
    }

    /// The clear error before any look-up: same caret range of versions, same launch ABI. A bypass names one pair of
    /// versions, and never another ABI.
    fn bundle(&self, name: String, path: PathBuf, tier: Tier, bundle: Bundle) -> Result<OpenBundle, Error> {
        let (library, abi) = (bundle.library(), bundle.launch_abi());
        let bypassed = !fits(library, abi);
        let named = self.bypass.as_ref().is_some_and(|b| b.bundle == library);
        if bypassed && (!named || abi != LAUNCH_ABI) {
            return Err(Error::BundleVersion {
                path,
                bundle: format!("made by version {library}, launch ABI {abi}"),
                library: format!("version {VERSION}, launch ABI {LAUNCH_ABI}"),
                bypass: self.bypass.as_ref().map(ToString::to_string),
                pair: (abi == LAUNCH_ABI).then(|| format!("{library}:{VERSION}")),
            });
        }
        Ok(OpenBundle { name, path, tier, bundle, bypassed, unusable: OnceLock::new() })
    }
}

impl OpenBundle {
    /// Images of exactly these sources.
    fn candidates(&self, wanted: &Wanted<'_>) -> Candidates<'_> {
        if let Some(why) = self.unusable.get() {
            return Err(why.clone());
        }
        if self.bypassed {
            let why = format!("made by version {}, which does not fit {VERSION}", self.bundle.library());
            return Err((Miss::OtherVersion, why));
        }
        let entries: Vec<&Entry> = self.bundle.targets_of(wanted.source_key).collect();
        if entries.is_empty() { Err(self.absence(wanted)) } else { Ok(entries) }
    }

    /// Images of the same spec with the same parameters, whatever sources and version.
    fn stretched(&self, wanted: &Wanted<'_>) -> Candidates<'_> {
        if let Some(why) = self.unusable.get() {
            return Err(why.clone());
        }
        let spec = self.spec(wanted)?;
        match spec.params {
            None => {
                let why = "its details do not say what parameters its kernels take";
                return Err((Miss::OtherVersion, why.to_owned()));
            }
            theirs if theirs != wanted.params => {
                let why = "its kernels take other parameters than the library's launchers fill";
                return Err((Miss::OtherVersion, why.to_owned()));
            }
            Some(_) => {}
        }
        Ok(self.bundle.targets_of(spec.source_key).collect())
    }

    fn spec(&self, wanted: &Wanted<'_>) -> Result<&SpecDetails, (Miss, String)> {
        let unknown = |e| (Miss::Integrity, format!("what else it holds is not known: {e}"));
        let details = self.bundle.details().map_err(unknown)?;
        let found = details.specs.iter().find(|s| s.spec_id == wanted.spec.spec_id);
        found.ok_or_else(|| (Miss::NotCovered, "not covered: it does not hold this spec".to_owned()))
    }

    /// Why there is no image of a source: another build of the same spec is told from none at all.
    fn absence(&self, wanted: &Wanted<'_>) -> (Miss, String) {
        if !wanted.thorough {
            return (Miss::NotCovered, "no image of these sources".to_owned());
        }
        match self.spec(wanted) {
            Ok(spec) => {
                let (theirs, ours) = (spec.source_key.short(12), wanted.source_key.short(12));
                let why = format!("source changed: it holds this spec from sources {theirs}, the library's are {ours}");
                (Miss::SourceChanged, why)
            }
            Err(why) => why,
        }
    }

    /// Reads an image; again, with the file opened anew, while that fails as it may on a network file system. A file that
    /// is another one by then is not read.
    fn read(&self, entry: &Entry) -> Result<Vec<u8>, BundleError> {
        let passing = |error: &BundleError| matches!(error, BundleError::Io { source, .. } if Fault::of(source) == Fault::Passing);
        let mut result = self.bundle.image(entry);
        for pause in fault::PAUSES {
            match &result {
                Err(error) if passing(error) && self.tier != Tier::Embedded => std::thread::sleep(pause),
                _ => break,
            }
            let again = std::fs::File::open(&self.path)
                .map_err(|source| BundleError::Io { part: Part::Header, source })
                .and_then(Bundle::open);
            match again {
                Ok(again) if again.entries() == self.bundle.entries() => result = again.image(entry),
                Ok(_) => break,
                Err(error) if passing(&error) => {}
                Err(_) => break,
            }
        }
        result
    }

    /// The bytes of an image; none if an installed bundle cannot be read and is looked into no more.
    pub(crate) fn image(&self, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
        match self.read(entry) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) => {
                let unreadable = matches!(source, BundleError::Io { .. });
                let error = Error::Bundle { path: self.path.clone(), source };
                match self.tier {
                    // No damage, but what stays unreadable through all tries is no use either.
                    Tier::Installed if unreadable => {
                        self.unusable.get_or_init(|| {
                            let why = error.one_line();
                            tracing::warn!(path = %self.path.display(), why, "an installed bundle is used no more");
                            (Miss::Unreadable, format!("not used: {why}"))
                        });
                        Ok(None)
                    }
                    Tier::Installed => Err(Error::Installed(vec![Unfit::of(self.path.clone(), &error)])),
                    _ => Err(error),
                }
            }
        }
    }
}

/// Whether a bundle of this version and launch ABI may be used by this library at all.
pub(crate) fn fits(library: &str, launch_abi: u32) -> bool {
    launch_abi == LAUNCH_ABI && version::compatible(library, VERSION)
}
