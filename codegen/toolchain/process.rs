//! Child compilers: own process group, bounded output, a time limit.
//!
//! A compiler driver starts further processes. Killing only the driver leaves them running and their temporary files
//! behind, so the whole group is killed: at the limit, when the driver has ended, and when the runner is dropped.
//!
//! A compiler that dies of a lack of memory is told from one that found errors, and is run once more alone: beside
//! others it had less than the machine has.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Output beyond this many bytes is read and dropped.
const MAX_OUTPUT: usize = 1 << 20;
/// How long a process that outlives the driver and holds its pipes is waited for.
const PIPE_GRACE: Duration = Duration::from_millis(500);

/// The variables that a child compiler is given, besides those that [`compiler`] sets: where programs and homes are.
///
/// A list of what to keep and not of what to remove, because the latter is never complete. Seen by interposing
/// `getenv`, and documented nowhere in full: nvcc takes options from `PTXAS_FLAGS`, `NVVM_FLAGS` or `OCG_FLAGS` and
/// another compiler from `CICC_PATH`; GCC reads `G++_ROOT`, `BINUTILS_ROOT` and `GCC_EXEC_PREFIX`; ld reads
/// `LDEMULATION` and `GNUTARGET`. `LD_LIBRARY_PATH` and `LD_PRELOAD` stay out too, as they decide which compiler runs: one
/// that needs them is wrapped in a script that sets them, and named in `CXX`.
pub const PASSED: &[&str] = &["HOME", "PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];

/// Beginnings of the names that compiler caches and distributors read: they run the compiler that they are told to run
/// and are in front of it when it is asked for its version. The last one is what our tests tell compilers of their own.
pub const PASSED_PREFIXES: &[&str] = &["CCACHE_", "DISTCC_", "ICECC_", "SCCACHE_", "PARBAKE_TEST_"];

fn is_passed(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    PASSED.iter().any(|p| p.as_bytes() == name) || PASSED_PREFIXES.iter().any(|p| name.starts_with(p.as_bytes()))
}

/// A child process that could not be run to its end. A non-zero exit status is no such error.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be started.
    #[error("cannot start `{program}`")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Waiting for it failed.
    #[error("cannot wait for `{program}`")]
    Wait {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ran past its limit; its group was killed.
    #[error("`{program}` did not end within {limit:?} and was killed\n{output}")]
    TimedOut {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
        /// What it had said by then.
        output: String,
    },
    /// It died because memory ran out.
    #[error("`{program}` ran out of memory ({how}), also when it ran alone\n{output}")]
    OutOfMemory {
        /// The program.
        program: String,
        /// What shows it.
        how: String,
        /// What it said.
        output: String,
    },
    /// It, or a process that it started, was killed by a signal.
    #[error("`{program}` crashed or was killed ({how})\n{output}")]
    Died {
        /// The program.
        program: String,
        /// What shows it.
        how: String,
        /// What it said.
        output: String,
    },
    /// It could not write its output.
    #[error("`{program}` found no room for its files in {folder}\n{output}", folder = .folder.display())]
    NoRoom {
        /// The program.
        program: String,
        /// Where it worked.
        folder: PathBuf,
        /// What it said.
        output: String,
    },
}

impl ProcessError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start { .. } | Self::Wait { .. } => "PB-1513",
            Self::TimedOut { .. } => "PB-1514",
            Self::OutOfMemory { .. } => "PB-1525",
            Self::Died { .. } => "PB-1526",
            Self::NoRoom { .. } => "PB-1527",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Start { .. } | Self::Wait { .. } | Self::Died { .. } => None,
            Self::TimedOut { .. } => Some("give it more time with PARBAKE_COMPILE_TIMEOUT, in seconds"),
            Self::OutOfMemory { .. } => Some("free memory, or raise the limit of the container or control group"),
            Self::NoRoom { .. } => Some("make room, or set PARBAKE_TMP to a folder with more"),
        }
    }
}

/// What a process left.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status; success is no proof of output.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Both streams as one log.
    #[must_use]
    pub fn log(&self) -> String {
        let texts = [self.stderr.trim_end(), self.stdout.trim_end()];
        texts.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

/// A compiler's command: an environment of what is passed only, texts in one language, temporary files in `folder`.
#[must_use]
pub fn compiler(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed(name)));
    command.current_dir(folder).env("TMPDIR", folder).env("LC_ALL", "C").env("PWD", folder);
    command
}

/// Held for reading by every compiler that runs, and for writing by one that must be alone.
static ALONE: RwLock<()> = RwLock::new(());

/// Runs a compiler to its end. One that runs out of memory is run once more with no other compiler of this process
/// beside it. A non-zero exit status that means errors in the sources is no error here.
///
/// # Errors
/// As [`run`]; also if the compiler crashed, was killed, or ran out of memory or room.
pub fn compile(mut command: Command, limit: Duration) -> Result<Outcome, ProcessError> {
    let folder = command.get_current_dir().unwrap_or(Path::new(".")).to_owned();
    let first = {
        let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        judge(spawn(&mut command, limit)?, &command, &folder)
    };
    match first {
        Err(ProcessError::OutOfMemory { program, how, .. }) => {
            tracing::warn!("`{program}` ran out of memory ({how}); it is run once more, alone");
            let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
            judge(spawn(&mut command, limit)?, &command, &folder)
        }
        first => first,
    }
}

/// What a compiler that failed died of, if it did not find errors.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Death {
    Memory(String),
    Signal(String),
    Room,
}

fn judge(outcome: Outcome, command: &Command, folder: &Path) -> Result<Outcome, ProcessError> {
    let Some(death) = death(outcome.status, &outcome.log()) else { return Ok(outcome) };
    let (program, output) = (command.get_program().to_string_lossy().into_owned(), outcome.log());
    Err(match death {
        Death::Memory(how) => ProcessError::OutOfMemory { program, how, output },
        Death::Signal(how) => ProcessError::Died { program, how, output },
        Death::Room => ProcessError::NoRoom { program, folder: folder.to_owned(), output },
    })
}

/// Drivers report the death of a part in words of their own and exit with a status of their own. Lines that quote
/// sources (`unit.cu:3: …`) do not count: a program may well print "out of memory".
fn death(status: ExitStatus, log: &str) -> Option<Death> {
    if status.success() {
        return None;
    }
    let quoted =
        |line: &str| line.contains(".cu") || line.contains(".cuh") || line.trim_start().starts_with(['|', '^']);
    let said = |words: &[&str]| {
        let lines = log.lines().filter(|line| !quoted(line));
        lines.map(str::trim).find(|line| words.iter().any(|w| line.to_ascii_lowercase().contains(w))).map(str::to_owned)
    };
    // What the kernel does when memory runs out; others who kill a compiler use gentler signals.
    let killed = [
        (status.signal() == Some(libc::SIGKILL), "killed by signal 9"),
        (status.code() == Some(137), "exit status 137"),
    ];
    let killed = killed.into_iter().find_map(|(is, how)| is.then(|| how.to_owned()));
    let memory = [
        "signal 9",
        "killed signal",
        "out of memory",
        "virtual memory exhausted",
        "cannot allocate memory",
        "std::bad_alloc",
    ];
    if let Some(how) = killed.or_else(|| said(&memory)) {
        return Some(Death::Memory(how));
    }
    if said(&["no space left on device", "disk quota exceeded", "could not write file"]).is_some() {
        return Some(Death::Room);
    }
    let signal = status.signal().map(|signal| format!("signal {signal}"));
    signal.or_else(|| said(&["died due to signal", "signal terminated program"])).map(Death::Signal)
}

/// Runs a command to its end, or kills it and everything it started.
///
/// # Errors
/// If it cannot be started, or runs past the limit.
pub fn run(mut command: Command, limit: Duration) -> Result<Outcome, ProcessError> {
    spawn(&mut command, limit)
}

fn spawn(command: &mut Command, limit: Duration) -> Result<Outcome, ProcessError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|source| ProcessError::Start { program: program.clone(), source })?;
    let mut group = Group { child, reaped: false };
    let stdout = Pipe::read(group.child.stdout.take());
    let stderr = Pipe::read(group.child.stderr.take());
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match group.ended() {
            Ok(true) => break group.end(),
            Ok(false) if started.elapsed() < limit => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
            Ok(false) => {
                let _ = group.end();
                let output = format!("{}{}", stderr.text(), stdout.text());
                return Err(ProcessError::TimedOut { program, limit, output: output.trim_end().to_owned() });
            }
            Err(source) => break Err(source),
        }
    };
    let status = status.map_err(|source| ProcessError::Wait { program, source })?;
    Ok(Outcome { status, stdout: stdout.text(), stderr: stderr.text() })
}

/// A process and its group; dropping it leaves neither behind.
struct Group {
    child: Child,
    reaped: bool,
}

impl Group {
    /// Whether the leader has ended. It is not reaped here: until it is, its id cannot be given to anybody else, so
    /// that killing the group by that id hits only this group.
    fn ended(&self) -> io::Result<bool> {
        // SAFETY: all-zero is a valid `siginfo_t`, and the call writes to nothing else.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` lives through the call; the id is that of a child that was not reaped.
        let code = unsafe { libc::waitid(libc::P_PID, self.child.id(), &raw mut info, options) };
        match code {
            // SAFETY: after `waitid` the field is set: 0 if nothing has ended.
            0 => Ok(unsafe { info.si_pid() } != 0),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            // SAFETY: a plain system call; the group's id is ours until the leader is reaped below.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
            self.reaped = true;
        }
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.end();
        }
    }
}

/// The processes that a process started, and those that these started, as far as they still say so.
#[must_use]
pub fn descendants(process: u32) -> Vec<u32> {
    let parent = |id: u32| -> Option<u32> {
        let stat = std::fs::read(format!("/proc/{id}/stat")).ok()?;
        // The name in brackets may hold anything.
        let end = stat.iter().rposition(|&c| c == b')')?;
        std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pairs: Vec<(u32, u32)> = ids.filter_map(|id| Some((id, parent(id)?))).collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(pairs.iter().filter(|(_, parent)| *parent == above).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

/// A pipe that is read by its own thread, so that a full one never blocks the child.
struct Pipe {
    text: Arc<Mutex<Vec<u8>>>,
    done: mpsc::Receiver<()>,
}

impl Pipe {
    fn read(stream: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (send, done) = mpsc::channel();
        if let Some(mut stream) = stream {
            let text = Arc::clone(&text);
            std::thread::spawn(move || {
                let mut chunk = [0; 8192];
                while let Ok(n @ 1..) = stream.read(&mut chunk) {
                    let mut text = text.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let room = MAX_OUTPUT.saturating_sub(text.len()).min(n);
                    text.extend_from_slice(&chunk[..room]);
                }
                let _ = send.send(());
            });
        }
        Self { text, done }
    }

    /// What was read. A process that left the group may hold the pipe for ever, so waiting has an end.
    fn text(&self) -> String {
        let _ = self.done.recv_timeout(PIPE_GRACE);
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(std::sync::PoisonError::into_inner)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = compiler("/bin/sh", Path::new("/"));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_compiler_is_given_an_environment_of_known_variables_only() {
        let outcome = run(shell("env"), Duration::from_secs(20)).unwrap();
        // The shell adds the last two.
        let set = ["TMPDIR", "LC_ALL", "PWD", "SHLVL", "_"];
        for line in outcome.stdout.lines().filter_map(|l| l.split_once('=')) {
            assert!(is_passed(line.0.as_ref()) || set.contains(&line.0), "{line:?}");
        }
        assert!(outcome.stdout.lines().any(|l| l.starts_with("PATH=")), "{}", outcome.stdout);
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !outcome.stdout.contains("CARGO_MANIFEST_DIR"));
        for name in ["NVCC_APPEND_FLAGS", "PTXAS_FLAGS", "CPATH", "LD_PRELOAD", "PATHS", "MY_CCACHE_DIR", "LC_ALL"] {
            assert!(!is_passed(name.as_ref()), "{name}");
        }
        assert!(is_passed("SCCACHE_SERVER_PORT".as_ref()) && is_passed("HOME".as_ref()));
    }

    #[test]
    fn status_and_both_streams_come_back() {
        let outcome = run(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(20)).unwrap();
        assert_eq!((outcome.status.code(), outcome.log().as_str()), (Some(3), "err\nout"));
    }

    #[test]
    fn output_is_bounded_and_never_blocks() {
        let outcome = run(shell("head -c 3000000 /dev/zero"), Duration::from_secs(20)).unwrap();
        assert_eq!(outcome.stdout.len(), MAX_OUTPUT);
    }

    #[test]
    fn the_whole_group_dies_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("(sleep 1; touch {}/late) & echo started; wait", folder.path().display());
        let error = run(shell(&script), Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.code(), "PB-1514");
        assert!(error.to_string().contains("started"), "{error}");
        std::thread::sleep(Duration::from_millis(1200));
        assert!(!folder.path().join("late").exists());
    }

    #[test]
    fn what_the_driver_leaves_running_dies_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("(sleep 0.5; touch {}/late) >/dev/null 2>&1 & exit 0", folder.path().display());
        assert!(run(shell(&script), Duration::from_secs(20)).unwrap().status.success());
        std::thread::sleep(Duration::from_millis(700));
        assert!(!folder.path().join("late").exists());
    }

    #[test]
    fn deaths_are_told_from_errors() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let memory = |how: &str| Some(Death::Memory(how.to_owned()));
        let nvcc = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)";
        let gcc = "g++: fatal error: Killed signal terminated program cc1plus";
        let crash = "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)";
        for (status, log, expected) in [
            (exit(0), "out of memory", None),
            (ExitStatus::from_raw(9), "", memory("killed by signal 9")),
            (exit(137), "", memory("exit status 137")),
            (exit(9), nvcc, memory(nvcc)),
            (exit(1), gcc, memory(gcc)),
            (
                exit(1),
                "cc1plus: out of memory allocating 65536 bytes",
                memory("cc1plus: out of memory allocating 65536 bytes"),
            ),
            (
                exit(1),
                "virtual memory exhausted: Cannot allocate memory",
                memory("virtual memory exhausted: Cannot allocate memory"),
            ),
            (ExitStatus::from_raw(11), "", Some(Death::Signal("signal 11".into()))),
            (ExitStatus::from_raw(15), "", Some(Death::Signal("signal 15".into()))),
            (exit(255), crash, Some(Death::Signal(crash.into()))),
            (exit(1), "as: unit.o: No space left on device", Some(Death::Room)),
            (exit(1), "fatbinary fatal : Could not write file", Some(Death::Room)),
            (exit(1), "k.cu:3:5: error: boom", None),
            (exit(1), "k.cu:3:5: error: #error out of memory", None),
        ] {
            assert_eq!(death(status, log), expected, "{status:?} {log}");
        }
    }

    #[test]
    fn one_that_runs_out_of_memory_is_run_once_more_alone() {
        let folder = tempfile::tempdir().unwrap();
        let script = |then: &str| {
            format!("cd {}; echo x >>tries; test $(wc -l <tries) -gt 1 || kill -9 $$; {then}", folder.path().display())
        };
        assert!(compile(shell(&script("exit 0")), Duration::from_secs(20)).unwrap().status.success());
        assert_eq!(std::fs::read_to_string(folder.path().join("tries")).unwrap().lines().count(), 2);
        let error = compile(shell("echo said >&2; kill -9 $$"), Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.code(), "PB-1525");
        assert!(error.to_string().contains("said"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(Command::new("/nonexistent/cc"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/cc"));
    }
}
