//! The library of this process: opened at the first call, from the settings in the environment.

use parbake::model::settings::Config;
use parbake::{Error, Library, WHEEL_FOLDER};
use parbake_codegen::toolchain::site;
use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing_subscriber::filter::LevelFilter;

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// What a host said before the library was opened.
#[derive(Default)]
struct Ahead {
    /// Folders of installed bundles; none if nothing was said of them.
    bundles: Option<Vec<PathBuf>>,
    /// Settings that hold unless the environment sets them.
    defaults: Vec<(String, String)>,
}

impl Ahead {
    /// Bundles that were installed together with this library come before others: those that a host named, else those
    /// beside it.
    fn install(&self, config: &mut Config) {
        let beside = || site::of_library().map(|folder| folder.join(WHEEL_FOLDER)).into_iter().collect();
        config.installed.splice(0..0, self.bundles.clone().unwrap_or_else(beside));
    }
}

static AHEAD: Mutex<Ahead> = Mutex::new(Ahead { bundles: None, defaults: Vec::new() });

/// The library, opened by whoever needs it first. A failure is not kept: what was wrong may be mended.
pub(crate) fn default() -> Result<&'static Library, Error> {
    match LIBRARY.get() {
        Some(library) => Ok(library),
        None => open(),
    }
}

/// The library, if it is open already.
pub(crate) fn opened() -> Option<&'static Library> {
    LIBRARY.get()
}

/// A library besides it, with settings of its own.
pub(crate) fn open_own(mut config: Config) -> Result<Library, Error> {
    AHEAD.lock().unwrap_or_else(PoisonError::into_inner).install(&mut config);
    log(&config);
    Library::open(config)
}

#[cold]
fn open() -> Result<&'static Library, Error> {
    // Also the lock under which one thread opens while others wait.
    let ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    // Earlier pairs give way to later ones of the same name.
    let known = ahead.defaults.iter().cloned();
    let environment = std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
    let environment = environment.filter(|(name, value)| !(name.starts_with("PARBAKE_") && value.is_empty()));
    // What is no text is refused with its name.
    Config::from_env()?;
    let mut config = Config::from_pairs(known.chain(environment))?;
    ahead.install(&mut config);
    log(&config);
    let library = Library::open(config)?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// The loader's log goes to standard error, as `PARBAKE_LOADER_LOG` of the first library says: the subscriber is this
/// file's own, whatever else in the process uses the same crate. What is odd about settings is said of each library.
fn log(config: &Config) {
    let level = config.loader_log.parse().unwrap_or(LevelFilter::WARN);
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time();
    // Fails where one is there already.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// # Safety
/// `pointer` is null or a NUL-terminated text.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    // SAFETY: as the caller vouches.
    if pointer.is_null() { None } else { unsafe { CStr::from_ptr(pointer) }.to_str().ok() }
}

/// Folders whose bundles are installed, `:` between, for every library that is opened from then on: what a package that
/// brings this file found beside itself. Gives 0, or 1 if the library is already open and it is too late, or there is no text.
///
/// # Safety
/// `folders` is null or a NUL-terminated text.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn parbake_use_bundles(folders: *const c_char) -> c_int {
    // SAFETY: as the caller vouches.
    let Some(text) = (unsafe { text(folders) }) else { return 1 };
    let mut ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    ahead.bundles = Some(text.split(':').filter(|f| !f.is_empty()).map(PathBuf::from).collect());
    c_int::from(LIBRARY.get().is_some())
}

/// The value of a setting unless the environment sets it. Gives 0, or 1 if the library is already open and it is too
/// late, or there is no text.
///
/// # Safety
/// Both are null or NUL-terminated texts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn parbake_set_default(setting: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: as the caller vouches.
    let (Some(setting), Some(value)) = (unsafe { (text(setting), text(value)) }) else { return 1 };
    let mut ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    ahead.defaults.push((setting.to_owned(), value.to_owned()));
    c_int::from(LIBRARY.get().is_some())
}
