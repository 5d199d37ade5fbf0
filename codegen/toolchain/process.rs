//! Child compilers: own process group, bounded output, a time limit.
//!
//! A compiler driver starts further processes. Killing only the driver leaves them running and their temporary files
//! behind, so the whole group is killed: at the limit, when the driver has ended, and when the runner is dropped.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
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
}

impl ProcessError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start { .. } | Self::Wait { .. } => "PB-1513",
            Self::TimedOut { .. } => "PB-1514",
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

/// Runs a command to its end, or kills it and everything it started.
///
/// # Errors
/// If it cannot be started, or runs past the limit.
pub fn run(mut command: Command, limit: Duration) -> Result<Outcome, ProcessError> {
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
    fn a_missing_program_is_named() {
        let error = run(Command::new("/nonexistent/cc"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/cc"));
    }
}
