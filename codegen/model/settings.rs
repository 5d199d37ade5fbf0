//! Every setting, in one table, and the one place that reads the environment.
//!
//! The environment is read once at start into a [`Config`]; functions take `&Config`, and tests build one from pairs.

mod config;
mod folders;
mod log;
mod nearest;
mod policy;
mod record;
mod tactics;
mod timing;
mod value;

pub use config::Config;
pub use log::{LogDestination, LogLevel};
pub use nearest::{edit_distance, nearest};
pub use policy::{SignaturePolicy, VersionBypass};
pub use tactics::Forced;
pub use timing::{Confidential, TuneTimer};
pub use value::{boolean, bytes};

/// A setting: one environment variable.
#[derive(Debug)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// The form of its value.
    pub kind: &'static str,
    /// What holds if it is not set.
    pub default: &'static str,
    /// The first version that knows it.
    pub since: &'static str,
    /// What it does.
    pub summary: &'static str,
}

const fn setting(name: &'static str, kind: &'static str, default: &'static str, summary: &'static str) -> Setting {
    Setting { name, kind, default, since: "0.1.0", summary }
}

/// All settings, sorted by name.
pub const SETTINGS: &[Setting] = &[
    setting(
        "PARBAKE_AOT_ARCHS",
        "targets",
        "none",
        "Targets that a build with the feature `aot` bakes and embeds, as in `80,90a`; required by it without a lock",
    ),
    setting(
        "PARBAKE_AOT_LOCK",
        "path",
        "none",
        "A lock of the specs that such a build bakes, for its targets unless `PARBAKE_AOT_ARCHS` is set",
    ),
    setting("PARBAKE_AOT_OPS", "globs", "*", "Ops that such a build bakes, as in `norm/*,rope`"),
    setting(
        "PARBAKE_ARCHS",
        "targets",
        "none",
        "Targets that `build` and `expand` take, with those of the GPUs here, if `--arch` is not given",
    ),
    setting(
        "PARBAKE_BLOCKLIST",
        "paths, `:` between",
        "none",
        "Files that name kernels which must not be launched, as `parbake tune --probe` writes them; one that cannot be \
         understood as a whole is an error",
    ),
    setting(
        "PARBAKE_BUNDLES",
        "paths, `:` between",
        "none",
        "Bundles to look kernels up in, before the installed ones (each `*.pbk` of a data wheel, and in \
         `parbake/bundles` below $XDG_DATA_HOME and each of $XDG_DATA_DIRS) and the embedded one",
    ),
    setting(
        "PARBAKE_CACHE",
        "boolean",
        "on",
        "`off` neither reads nor writes the store: every kernel that no bundle covers is compiled anew (diagnosis)",
    ),
    setting(
        "PARBAKE_CHECKSUM",
        "boolean",
        "on",
        "`off` lets `parbake fetch` take bundles whose SHA-256 is not the one of the index, with a warning for each; what \
         a bundle says of itself, and signatures, are checked all the same. For one command, and never in a file",
    ),
    setting(
        "PARBAKE_COMPILE_TIMEOUT",
        "seconds",
        "300",
        "How long a compiler process may run before it and all that it started are killed; NVRTC runs inside this process and is not limited",
    ),
    setting(
        "PARBAKE_CONFIDENTIAL",
        "auto|on|off",
        "auto",
        "Whether GPUs are used for confidential computing, where events are no measure of time: `auto` asks the driver",
    ),
    setting(
        "PARBAKE_DUMPS",
        "path",
        "<workspace>/dumps",
        "Where the API log leaves whole calls at level 10, for `parbake replay`",
    ),
    setting(
        "PARBAKE_DUMP_BYTES",
        "bytes, as in `8G`",
        "10G",
        "The most that dumps take together, whoever wrote them; a call that would not fit is not dumped",
    ),
    setting(
        "PARBAKE_DUMP_COUNT",
        "number",
        "1000",
        "The most dumps that are kept, whoever wrote them; a call beyond them is not dumped",
    ),
    setting(
        "PARBAKE_FETCH_CONNECT",
        "seconds",
        "10",
        "How long `parbake fetch` tries to reach a server, name look-up and TLS included",
    ),
    setting(
        "PARBAKE_FETCH_STALL",
        "seconds",
        "30",
        "How long `parbake fetch` waits for the next byte of a server before it takes the next source",
    ),
    setting("PARBAKE_GEN", "path", "<workspace>/gen", "Where generated sources are left for a person to read"),
    setting(
        "PARBAKE_HOST_SCHEDULE",
        "number",
        "0",
        "The order in which the host target runs threads: 0 as they are numbered, 1 backwards, more by chance of that seed. For finding races in kernels",
    ),
    setting("PARBAKE_JIT", "boolean", "on", "`off` makes an uncovered kernel an error that names the gap"),
    setting(
        "PARBAKE_JOBS",
        "number",
        "the processors at hand, or fewer if memory is short",
        "How many compilers run at once in a bake",
    ),
    setting(
        "PARBAKE_KEEP",
        "boolean",
        "off",
        "`on` lets the folder of a compilation on demand stay, with its intermediate files, and says where: in builds of \
         their own, beside the normal ones (diagnosis)",
    ),
    setting("PARBAKE_KERNELS", "path", "sources inside the library", "Folder of kernel sources to use instead"),
    setting("PARBAKE_LIBRARY", "path", "in the Python package", "Library that the Python package loads instead"),
    setting(
        "PARBAKE_LOADER_LOG",
        "error|warn|info|debug|trace|off",
        "warn",
        "What the command line prints of the artifact loader's log",
    ),
    setting(
        "PARBAKE_LOCK_TIMEOUT",
        "seconds",
        "PARBAKE_COMPILE_TIMEOUT + 30",
        "How long to wait for another process that compiles the same kernel before compiling it here too",
    ),
    setting(
        "PARBAKE_LOG",
        "0|1|3|5|10",
        "0",
        "The API log: 1 names each call, 3 adds arguments and the kernel before it is launched, 5 statistics of the \
         values, 10 a dump of the whole call",
    ),
    setting(
        "PARBAKE_LOG_DEST",
        "stderr|stdout|path",
        "stderr",
        "Where the API log is written; `%p` in a path is the process id",
    ),
    setting(
        "PARBAKE_LOG_EXCLUDE",
        "globs, `,` between",
        "none",
        "Ops, as `family/op` or `op`, that the API log leaves out although PARBAKE_LOG_INCLUDE names them",
    ),
    setting(
        "PARBAKE_LOG_INCLUDE",
        "globs, `,` between",
        "all",
        "Ops, as `family/op` or `op`, that the API log is about",
    ),
    setting(
        "PARBAKE_MEMORY",
        "bytes, as in `8G`",
        "what the machine and the control group have free",
        "How much memory compilers may take together: how many run at once follows from it",
    ),
    setting(
        "PARBAKE_MIRROR",
        "http:// or https:// address",
        "none",
        "What `parbake fetch` asks instead of every web server; hashes and signatures stay those of the index",
    ),
    setting(
        "PARBAKE_NVCC_LAUNCHER",
        "command",
        "none",
        "What to put before `nvcc` in `parbake bench`, as in `sccache`; nothing else runs `nvcc`",
    ),
    setting("PARBAKE_NVRTC", "path", "searched for", "The NVRTC library to compile with"),
    setting(
        "PARBAKE_OFFLINE",
        "boolean",
        "off",
        "`on` asks no network, not even for a name: what would have to be fetched is an error that says from where; local \
         sources of bundles serve",
    ),
    setting(
        "PARBAKE_PROFILE",
        "release|lineinfo|debug",
        "release",
        "What is compiled on demand: `lineinfo` adds source lines for profilers, `debug` is for a device debugger; other than `release`, bundles are not looked at",
    ),
    setting(
        "PARBAKE_PTX",
        "boolean",
        "off",
        "Whether PTX from a bundle serves where no machine code does: the driver compiles it, which takes seconds",
    ),
    setting(
        "PARBAKE_PUBLIC_KEYS",
        "keys or paths, `,` between",
        "none",
        "Minisign public keys (`RW…`, or files that hold one) of those whose bundles are trusted",
    ),
    setting(
        "PARBAKE_RECORD",
        "path of a file",
        "none",
        "Appends a line for each spec that the program asks for, when it first does, with what served it or why nothing \
         did, for `parbake lock`; `%p` is the process id, and many processes may share one file",
    ),
    setting(
        "PARBAKE_SIGNATURE",
        "required|warn|off",
        "`off`; with PARBAKE_PUBLIC_KEYS `required`",
        "What a bundle without a signature by one of the keys is: refused, used with a warning, or used. The embedded \
         one needs none. Nothing else switches it off",
    ),
    setting(
        "PARBAKE_SOURCES",
        "addresses and paths, `,` between",
        "none",
        "Where `parbake fetch` looks if `--from` is not given, folders first: what `parbake publish` wrote",
    ),
    setting(
        "PARBAKE_STORE",
        "path",
        "<workspace>/store",
        "Where compiled kernels are kept, with their locks and what is about to become an entry",
    ),
    setting(
        "PARBAKE_STORE_SHARED",
        "path",
        "none",
        "A folder that several machines share, as a second store: asked after the own one, and what is compiled here is \
         published in both. It is not made, and one that is absent, full or read-only is said once and passed over",
    ),
    setting(
        "PARBAKE_TACTICS",
        "op:tactic=value,…, `;` between",
        "none",
        "Tactics that calls are forced to take, as in `rmsnorm:block=512,rows=1`; a call that has no such tactic is an error \
         (diagnosis)",
    ),
    setting(
        "PARBAKE_TMP",
        "path",
        "<workspace>/tmp",
        "Where compiler processes work; a folder that everybody may write, such as `/tmp`, will do",
    ),
    setting(
        "PARBAKE_TOOLCHAINS",
        "path",
        "$XDG_DATA_HOME/parbake/toolchains",
        "Where `parbake toolchain install` puts compilers; shared by all workspaces",
    ),
    setting(
        "PARBAKE_TRITON_PYTHON",
        "path",
        "searched for",
        "The Python that runs Triton, as in `/opt/env/bin/python3`: with the Triton that it has, else with the installed one",
    ),
    setting(
        "PARBAKE_TUNED",
        "paths, `:` between",
        "none",
        "Results that `parbake tune` wrote: calls of those shapes take the tactics that were fastest, where device, driver, \
         library and kernel are still those that were measured",
    ),
    setting(
        "PARBAKE_TUNE_TIMER",
        "auto|events|globaltimer",
        "auto",
        "What `parbake tune` measures with on a GPU: events of the driver, or the device's own clock. `auto` takes events, \
         and the clock where computing is confidential",
    ),
    setting(
        "PARBAKE_VERBOSE_COMPILER",
        "boolean",
        "off",
        "`on` lets compilers tell registers, spills and steps, in builds of their own: `parbake show` prints the log, \
         and so does PARBAKE_LOADER_LOG=info (diagnosis)",
    ),
    setting(
        "PARBAKE_VERSION_BYPASS",
        "bundle version:library version",
        "none",
        "Lets bundles of exactly that version serve exactly this library although versions or sources differ, where \
         spec and parameters are the same (experiments); every load warns",
    ),
    setting(
        "PARBAKE_WORKSPACE",
        "path",
        "$XDG_CACHE_HOME/parbake",
        "Root of everything written at run time: generated sources, the store, temporary files",
    ),
    setting(
        "PARBAKE_WORKSPACE_SHARED",
        "boolean",
        "off",
        "`on` trusts all members of the group that the workspace belongs to: whoever may write there chooses what runs here",
    ),
];

/// A value that its setting does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {name}: expected {expected}, got `{got}`")]
pub struct BadSetting {
    /// The variable.
    pub name: &'static str,
    /// What it accepts.
    pub expected: String,
    /// What it holds.
    pub got: String,
}

impl BadSetting {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "PB-1001"
    }
}

#[cfg(test)]
mod tests;
