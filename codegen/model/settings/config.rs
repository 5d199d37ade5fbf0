//! The settings of a process, read once.

use super::folders::{cache_home, data_home, installed};
use super::{
    BadSetting, Confidential, Forced, LogDestination, LogLevel, SETTINGS, Setting, SignaturePolicy, TuneTimer,
    VersionBypass, boolean, bytes, nearest, record, tactics,
};
use crate::identity::Profile;
use crate::target::Target;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings of this process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Targets to bake in a build with the feature `aot`.
    pub aot_archs: Option<Vec<Target>>,
    /// Ops that such a build bakes.
    pub aot_ops: String,
    /// A lock of what such a build bakes.
    pub aot_lock: Option<PathBuf>,
    /// Targets requested besides those of the devices found.
    pub archs: Option<Vec<Target>>,
    /// Files that name kernels which must not be launched.
    pub blocklist: Vec<PathBuf>,
    /// Explicit bundles.
    pub bundles: Vec<PathBuf>,
    /// Whether the store is read and written.
    pub cache: bool,
    /// Whether what is fetched must have the SHA-256 of the index.
    pub checksum: bool,
    /// How long a compiler process may run.
    pub compile_timeout: Duration,
    /// Whether computing is confidential, or how that is found out.
    pub confidential: Confidential,
    /// Where dumps of calls go, if not below the workspace.
    pub dumps: Option<PathBuf>,
    /// The most bytes that dumps take together.
    pub dump_bytes: u64,
    /// The most dumps there are.
    pub dump_count: u64,
    /// How long a server is tried to be reached.
    pub fetch_connect: Duration,
    /// How long the next byte of a server is waited for.
    pub fetch_stall: Duration,
    /// Where generated sources go, if not below the workspace.
    pub generated: Option<PathBuf>,
    /// The order in which the host target runs threads.
    pub host_schedule: u64,
    /// Whether an uncovered kernel may be compiled.
    pub jit: bool,
    /// How many compilers run at once.
    pub jobs: usize,
    /// Whether the folders of compilations on demand stay.
    pub keep: bool,
    /// Folder of kernel sources.
    pub kernels: Option<PathBuf>,
    /// The shared library that the Python package loads.
    pub library: Option<PathBuf>,
    /// Folders whose `*.pbk`, and those of the folders in them, are the installed bundles, in look-up order.
    pub installed: Vec<PathBuf>,
    /// Filter of the loader's log.
    pub loader_log: String,
    /// How long to wait for another process that compiles the same.
    pub lock_timeout: Duration,
    /// The level of the API log, if it is set.
    pub log: Option<LogLevel>,
    /// Where the API log is written.
    pub log_dest: LogDestination,
    /// Globs of ops that the API log leaves out.
    pub log_exclude: Option<String>,
    /// Globs of ops that the API log is about; all if there are none.
    pub log_include: Option<String>,
    /// Bytes that compilers may take together, if that is not to be found out.
    pub memory: Option<u64>,
    /// What is asked instead of every web server.
    pub mirror: Option<String>,
    /// Prefix of nvcc's command.
    pub nvcc_launcher: Option<String>,
    /// Whether nothing may be fetched.
    pub offline: bool,
    /// The NVRTC library.
    pub nvrtc: Option<PathBuf>,
    /// What is compiled on demand.
    pub profile: Profile,
    /// Minisign public keys: texts that start with `RW`, and absolute paths of files that hold one.
    pub public_keys: Vec<String>,
    /// The file to which the specs that are asked for are appended, in which `%p` stands for the process id.
    pub record: Option<String>,
    /// What becomes of a bundle that none of the keys signed.
    pub signature: SignaturePolicy,
    /// Whether PTX serves where no machine code does.
    pub ptx: bool,
    /// Where bundles are fetched from: addresses and absolute paths.
    pub sources: Vec<String>,
    /// Where the store is, if not below the workspace.
    pub store: Option<PathBuf>,
    /// The store that several machines share.
    pub store_shared: Option<PathBuf>,
    /// Tactics that calls are forced to take.
    pub tactics: Vec<Forced>,
    /// Where compilers work, if not below the workspace.
    pub temporary: Option<PathBuf>,
    /// Where compilers are installed.
    pub toolchains: PathBuf,
    /// The Python that runs Triton.
    pub triton_python: Option<PathBuf>,
    /// What tactics are measured with on a GPU.
    pub tune_timer: TuneTimer,
    /// Files of tuned results.
    pub tuned: Vec<PathBuf>,
    /// Where this user's bundles are installed. Without a home it is none of the folders of installed bundles.
    pub user_bundles: PathBuf,
    /// Whether compilers tell what they do.
    pub verbose_compiler: bool,
    /// Versions that are let serve each other for an experiment.
    pub version_bypass: Option<VersionBypass>,
    /// Root of what is written.
    pub workspace: PathBuf,
    /// Whether the members of the workspace's group trust each other.
    pub workspace_shared: bool,
    /// For each setting that is set: its text.
    pub set: BTreeMap<&'static str, String>,
    /// Things a person should be told: unknown variables.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads this process's environment.
    ///
    /// # Errors
    /// The first value, by name, that its setting does not accept. A value that is not UTF-8 is refused, paths
    /// included: settings are shown, hashed and written to files as text.
    pub fn from_env() -> Result<Self, BadSetting> {
        strict(Self::from_env_lenient())
    }

    /// Reads this process's environment: what is good of it, with the defaults in place of values that their settings
    /// do not accept, and those values, by name. Only for what explains or lists settings: nothing is to run with a
    /// default that a person meant to change.
    #[must_use]
    pub fn from_env_lenient() -> (Self, Vec<BadSetting>) {
        Self::from_os_pairs(std::env::vars_os())
    }

    pub(super) fn from_os_pairs(pairs: impl Iterator<Item = (OsString, OsString)>) -> (Self, Vec<BadSetting>) {
        let mut texts = Vec::new();
        let mut refused = Vec::new();
        for (name, value) in pairs {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => texts.push((name, value)),
                Err(value) => {
                    let setting = SETTINGS.iter().find(|s| s.name == name);
                    refused.extend(setting.map(|s| (s.name, value.to_string_lossy().into_owned())));
                }
            }
        }
        let (config, mut bad) = Self::read(texts);
        let expected = "UTF-8, also in a path";
        bad.extend(refused.into_iter().map(|(name, got)| BadSetting { name, expected: expected.into(), got }));
        bad.sort_by_key(|b| b.name);
        (config, bad)
    }

    /// What a program sets for itself: the environment's own settings do not hold, only the folders of its user and what
    /// finds compilers are taken from it. Later pairs win.
    ///
    /// # Errors
    /// As [`Config::from_pairs`].
    pub fn from_settings<I: IntoIterator<Item = (String, String)>>(settings: I) -> Result<Self, BadSetting> {
        let rest = std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
        Self::from_pairs(rest.filter(|(name, _)| !name.starts_with("PARBAKE_")).chain(settings))
    }

    /// Reads variables given as pairs; empty values count as not set.
    ///
    /// # Errors
    /// The first value, by name, that its setting does not accept.
    pub fn from_pairs<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Result<Self, BadSetting> {
        strict(Self::read(pairs))
    }

    pub(super) fn read<I: IntoIterator<Item = (String, String)>>(pairs: I) -> (Self, Vec<BadSetting>) {
        let vars: BTreeMap<String, String> = pairs.into_iter().filter(|(_, v)| !v.is_empty()).collect();
        let mut config = Self {
            aot_archs: None,
            aot_ops: "*".to_owned(),
            aot_lock: None,
            archs: None,
            blocklist: Vec::new(),
            bundles: Vec::new(),
            cache: true,
            checksum: true,
            compile_timeout: Duration::from_secs(300),
            confidential: Confidential::Auto,
            dumps: None,
            dump_bytes: 10 << 30,
            dump_count: 1000,
            fetch_connect: Duration::from_secs(10),
            fetch_stall: Duration::from_secs(30),
            generated: None,
            host_schedule: 0,
            jit: true,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            keep: false,
            kernels: None,
            library: None,
            installed: installed(&vars),
            loader_log: "warn".to_owned(),
            lock_timeout: Duration::ZERO,
            log: None,
            log_dest: LogDestination::Stderr,
            log_exclude: None,
            log_include: None,
            memory: None,
            mirror: None,
            nvcc_launcher: None,
            offline: false,
            nvrtc: None,
            profile: Profile::Release,
            public_keys: Vec::new(),
            record: None,
            signature: SignaturePolicy::Off,
            ptx: false,
            sources: Vec::new(),
            store: None,
            store_shared: None,
            tactics: Vec::new(),
            temporary: None,
            toolchains: data_home(&vars).join("parbake/toolchains"),
            triton_python: None,
            tune_timer: TuneTimer::Auto,
            tuned: Vec::new(),
            user_bundles: data_home(&vars).join("parbake/bundles"),
            verbose_compiler: false,
            version_bypass: None,
            workspace: cache_home(&vars),
            workspace_shared: false,
            set: BTreeMap::new(),
            warnings: Vec::new(),
        };
        let mut bad = Vec::new();
        for setting in SETTINGS {
            let Some(text) = vars.get(setting.name) else { continue };
            match config.apply(setting, text) {
                Ok(()) => drop(config.set.insert(setting.name, text.clone())),
                Err(error) => bad.push(error),
            }
        }
        if !config.set.contains_key("PARBAKE_LOCK_TIMEOUT") {
            // Whoever gives up before the compiler does compiles the same thing once more.
            config.lock_timeout = config.compile_timeout + Duration::from_secs(30);
        }
        let known = |name: &str| SETTINGS.iter().any(|s| s.name == name);
        // Variables of our own tests and builds are not settings.
        let private = |name: &str| ["PARBAKE_TEST_", "PARBAKE_WHEEL_"].iter().any(|p| name.starts_with(p));
        for name in vars.keys().filter(|n| n.starts_with("PARBAKE_") && !known(n) && !private(n)) {
            // What all names begin with makes none of them near.
            let rest = |name: &'static str| name.trim_start_matches("PARBAKE_");
            let near = nearest(name.trim_start_matches("PARBAKE_"), SETTINGS.iter().map(|s| rest(s.name)));
            config.warnings.push(match near {
                Some(near) => format!("unknown setting {name}; the nearest one is PARBAKE_{near}"),
                None => format!("unknown setting {name}; `parbake config` lists those there are"),
            });
        }
        (config, bad)
    }

    fn apply(&mut self, setting: &'static Setting, text: &str) -> Result<(), BadSetting> {
        let bad = |expected: &str| BadSetting { name: setting.name, expected: expected.into(), got: text.into() };
        let flag = || boolean(text).ok_or_else(|| bad("on or off"));
        let path = |text: &str| {
            let path = PathBuf::from(text);
            if path.is_absolute() { Ok(path) } else { Err(bad("an absolute path (`~` is not expanded)")) }
        };
        let seconds = || {
            let number = text.parse().ok().filter(|s| (1..=86_400).contains(s));
            number.map(Duration::from_secs).ok_or_else(|| bad("a number of seconds from 1 to 86400"))
        };
        let size = || {
            let expected = "a number of bytes above 0, with `K`, `M`, `G` or `T` for powers of 1024";
            bytes(text).ok_or_else(|| bad(expected))
        };
        let targets = || Target::parse_list(text).map_err(|e| bad(&format!("a list of architectures ({e})")));
        match setting.name {
            "PARBAKE_AOT_ARCHS" => self.aot_archs = Some(targets()?),
            "PARBAKE_AOT_LOCK" => self.aot_lock = Some(path(text)?),
            "PARBAKE_AOT_OPS" => self.aot_ops = text.to_owned(),
            "PARBAKE_ARCHS" => self.archs = Some(targets()?),
            "PARBAKE_BLOCKLIST" => self.blocklist = text.split(':').map(path).collect::<Result<_, _>>()?,
            "PARBAKE_BUNDLES" => self.bundles = text.split(':').map(path).collect::<Result<_, _>>()?,
            "PARBAKE_CACHE" => self.cache = flag()?,
            "PARBAKE_CHECKSUM" => self.checksum = flag()?,
            "PARBAKE_COMPILE_TIMEOUT" => self.compile_timeout = seconds()?,
            "PARBAKE_CONFIDENTIAL" => {
                self.confidential = Confidential::parse(text).ok_or_else(|| bad("auto, on or off"))?;
            }
            "PARBAKE_DUMPS" => self.dumps = Some(path(text)?),
            "PARBAKE_DUMP_BYTES" => self.dump_bytes = size()?,
            "PARBAKE_DUMP_COUNT" => {
                let count = text.parse().ok().filter(|n| (1..=1_000_000).contains(n));
                self.dump_count = count.ok_or_else(|| bad("a number from 1 to 1000000"))?;
            }
            "PARBAKE_FETCH_CONNECT" => self.fetch_connect = seconds()?,
            "PARBAKE_FETCH_STALL" => self.fetch_stall = seconds()?,
            "PARBAKE_GEN" => self.generated = Some(path(text)?),
            "PARBAKE_HOST_SCHEDULE" => self.host_schedule = text.parse().map_err(|_| bad("a number"))?,
            "PARBAKE_JIT" => self.jit = flag()?,
            "PARBAKE_JOBS" => {
                self.jobs = text
                    .parse()
                    .ok()
                    .filter(|n| (1..=4096).contains(n))
                    .ok_or_else(|| bad("a number from 1 to 4096"))?;
            }
            "PARBAKE_KEEP" => self.keep = flag()?,
            "PARBAKE_KERNELS" => self.kernels = Some(path(text)?),
            "PARBAKE_LIBRARY" => self.library = Some(path(text)?),
            "PARBAKE_LOADER_LOG" => {
                let levels = ["error", "warn", "info", "debug", "trace", "off"];
                self.loader_log =
                    levels.iter().find(|l| **l == text).ok_or_else(|| bad(&levels.join(", ")))?.to_string();
            }
            "PARBAKE_LOCK_TIMEOUT" => self.lock_timeout = seconds()?,
            "PARBAKE_LOG" => self.log = Some(LogLevel::parse(text).ok_or_else(|| bad(LogLevel::EXPECTED))?),
            "PARBAKE_LOG_DEST" => {
                self.log_dest = LogDestination::parse(text).ok_or_else(|| bad(LogDestination::EXPECTED))?;
            }
            "PARBAKE_LOG_EXCLUDE" => self.log_exclude = Some(text.to_owned()),
            "PARBAKE_LOG_INCLUDE" => self.log_include = Some(text.to_owned()),
            "PARBAKE_MEMORY" => self.memory = Some(size()?),
            "PARBAKE_MIRROR" => {
                let good = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
                self.mirror = Some(good.then(|| text.to_owned()).ok_or_else(|| bad("an http:// or https:// address"))?);
            }
            "PARBAKE_NVCC_LAUNCHER" => self.nvcc_launcher = Some(text.to_owned()),
            "PARBAKE_NVRTC" => self.nvrtc = Some(path(text)?),
            "PARBAKE_OFFLINE" => self.offline = flag()?,
            "PARBAKE_PROFILE" => self.profile = text.parse().map_err(|()| bad("release, lineinfo or debug"))?,
            "PARBAKE_PUBLIC_KEYS" => {
                let key = |text: &str| {
                    let good = text.starts_with("RW") || Path::new(text).is_absolute();
                    let expected = "minisign public keys, `RW…`, or absolute paths of files that hold one";
                    if good { Ok(text.to_owned()) } else { Err(bad(expected)) }
                };
                // Also with keys that cannot be used: nothing that should have been signed passes for that.
                self.signature = SignaturePolicy::Required;
                self.public_keys = text.split(',').map(str::trim).map(key).collect::<Result<_, _>>()?;
            }
            "PARBAKE_PTX" => self.ptx = flag()?,
            "PARBAKE_RECORD" => self.record = Some(record::parse(text).ok_or_else(|| bad(record::EXPECTED))?),
            "PARBAKE_SIGNATURE" => {
                let policies = [SignaturePolicy::Required, SignaturePolicy::Warn, SignaturePolicy::Off];
                let found = policies.into_iter().find(|p| p.word() == text);
                // Keys that are refused say so themselves.
                let refused = self.public_keys.is_empty() && self.signature == SignaturePolicy::Required;
                self.signature = found.ok_or_else(|| bad("required, warn or off"))?;
                if self.public_keys.is_empty() && !refused && self.signature != SignaturePolicy::Off {
                    return Err(bad("`off`, or the keys to check with in PARBAKE_PUBLIC_KEYS"));
                }
            }
            "PARBAKE_SOURCES" => {
                let expected = "http://, https:// or file:// addresses, or absolute paths";
                let good = |text: &&str| ["http://", "https://", "file:///", "/"].iter().any(|s| text.starts_with(s));
                let source = |text: &str| Some(text).filter(good).map(str::to_owned).ok_or_else(|| bad(expected));
                self.sources = text.split(',').map(str::trim).map(source).collect::<Result<_, _>>()?;
            }
            "PARBAKE_STORE_SHARED" => self.store_shared = Some(path(text)?),
            "PARBAKE_STORE" => self.store = Some(path(text)?),
            "PARBAKE_TACTICS" => self.tactics = tactics::parse(text).ok_or_else(|| bad(tactics::EXPECTED))?,
            "PARBAKE_TMP" => self.temporary = Some(path(text)?),
            "PARBAKE_TOOLCHAINS" => self.toolchains = path(text)?,
            "PARBAKE_TRITON_PYTHON" => self.triton_python = Some(path(text)?),
            "PARBAKE_TUNED" => self.tuned = text.split(':').map(path).collect::<Result<_, _>>()?,
            "PARBAKE_TUNE_TIMER" => {
                self.tune_timer = TuneTimer::parse(text).ok_or_else(|| bad("auto, events or globaltimer"))?;
            }
            "PARBAKE_VERBOSE_COMPILER" => self.verbose_compiler = flag()?,
            "PARBAKE_VERSION_BYPASS" => {
                self.version_bypass = Some(VersionBypass::parse(text).map_err(|expected| bad(&expected))?);
            }
            "PARBAKE_WORKSPACE" => self.workspace = path(text)?,
            "PARBAKE_WORKSPACE_SHARED" => self.workspace_shared = flag()?,
            name => unreachable!("bug: setting {name} is in the table but has no field"),
        }
        Ok(())
    }

    /// The same with no bundle but the embedded one.
    #[must_use]
    pub fn without_bundles(self) -> Self {
        Self { bundles: Vec::new(), installed: Vec::new(), ..self }
    }

    /// The value of a setting as text, and where it comes from.
    #[must_use]
    pub fn shown(&self, setting: &Setting) -> (String, &'static str) {
        if let Some(text) = self.set.get(setting.name) {
            return (text.clone(), "environment");
        }
        let value = match setting.name {
            "PARBAKE_DUMPS" => self.workspace.join("dumps").display().to_string(),
            "PARBAKE_GEN" => self.workspace.join("gen").display().to_string(),
            "PARBAKE_HOST_SCHEDULE" => self.host_schedule.to_string(),
            "PARBAKE_JOBS" => self.jobs.to_string(),
            "PARBAKE_LOCK_TIMEOUT" => self.lock_timeout.as_secs().to_string(),
            "PARBAKE_SIGNATURE" => self.signature.word().to_owned(),
            "PARBAKE_STORE" => self.workspace.join("store").display().to_string(),
            "PARBAKE_TMP" => self.workspace.join("tmp").display().to_string(),
            "PARBAKE_TOOLCHAINS" => self.toolchains.display().to_string(),
            "PARBAKE_WORKSPACE" => self.workspace.display().to_string(),
            _ => setting.default.to_owned(),
        };
        (value, "default")
    }
}

/// The settings, if all of them are good.
pub(super) fn strict((config, bad): (Config, Vec<BadSetting>)) -> Result<Config, BadSetting> {
    bad.into_iter().next().map_or(Ok(config), Err)
}
