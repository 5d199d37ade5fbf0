//! One worker process, as the pool sees it.

use super::{Death, Request, Running};
use parbake_model::report::{Class, Report};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No longer line is read.
const MAX_LINE: u64 = 8 << 20;
/// How many lines of a worker's standard error its obituary repeats.
const LAST_WORDS: usize = 8;

/// What comes from a worker.
#[derive(Debug)]
pub(super) enum Words {
    /// A line of its standard output.
    Line(String),
    /// A line of its standard error.
    Said(String),
    /// Its standard output has ended.
    End,
}

/// A worker process.
#[derive(Debug)]
pub(super) struct Worker {
    /// Which one it is: places are used again.
    pub(super) serial: u64,
    pub(super) task: Option<Running>,
    /// Whether it said that it is.
    pub(super) ready: bool,
    child: Child,
    requests: Option<ChildStdin>,
    said: Arc<Mutex<VecDeque<String>>>,
    /// Why it was killed by us.
    killed: Option<(String, Option<Duration>)>,
}

impl Worker {
    /// Starts a worker in a process group of its own, so that an interrupt from the terminal reaches only its master.
    pub(super) fn start(mut command: Command, serial: u64, words: &Sender<(u64, Words)>) -> Result<Self, Report> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command
            .spawn()
            .map_err(|e| Report::new("PB-1151", Class::Environment, "a worker process does not start").caused_by(e))?;
        let said: Arc<Mutex<VecDeque<String>>> = Arc::default();
        if let Some(stream) = child.stderr.take() {
            let (said, words) = (Arc::clone(&said), words.clone());
            std::thread::spawn(move || {
                for line in lines(stream) {
                    let mut last = said.lock().unwrap_or_else(PoisonError::into_inner);
                    last.push_back(line.clone());
                    if last.len() > LAST_WORDS {
                        last.pop_front();
                    }
                    let _ = words.send((serial, Words::Said(line)));
                }
            });
        }
        if let Some(stream) = child.stdout.take() {
            let words = words.clone();
            std::thread::spawn(move || {
                for line in lines(stream) {
                    let _ = words.send((serial, Words::Line(line)));
                }
                let _ = words.send((serial, Words::End));
            });
        }
        let requests = child.stdin.take();
        Ok(Self { serial, task: None, ready: false, child, requests, said, killed: None })
    }

    /// Hands it a unit. If it cannot take it, it has died, and its end is on the way.
    pub(super) fn begin(&mut self, task: usize, alone: bool, request: &Request) {
        self.task = Some(Running { task, alone, since: Instant::now() });
        let line = serde_json::to_string(request).expect("bug: a request is plain data") + "\n";
        if let Some(requests) = &mut self.requests {
            let _ = requests.write_all(line.as_bytes()).and_then(|()| requests.flush());
        }
    }

    /// Lets it go: it ends when it has nothing to do.
    pub(super) fn dismiss(&mut self) {
        self.requests = None;
    }

    /// Whether it was let go.
    pub(super) fn dismissed(&self) -> bool {
        self.requests.is_none()
    }

    /// Kills it because of something that it did.
    pub(super) fn kill(&mut self, why: &str) {
        self.killed.get_or_insert((why.to_owned(), None));
        self.kill_all();
    }

    /// Kills it because its unit takes too long.
    pub(super) fn time_out(&mut self, limit: Duration) {
        self.killed.get_or_insert(("it took too long".to_owned(), Some(limit)));
        self.kill_all();
    }

    /// Its memory now, in KiB; 0 if that is not known.
    pub(super) fn kib(&self) -> u64 {
        crate::toolchain::memory::resident_kib(&self.child.id().to_string()).map_or(0, |memory| memory.now)
    }

    /// How it came to its end. It has closed its standard output, so it is not waited for long.
    pub(super) fn death(&mut self) -> Death {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => Some(status),
            _ => {
                // What closes its output and lives on is of no use.
                std::thread::sleep(Duration::from_millis(50));
                let ended = self.child.try_wait().ok().flatten();
                if ended.is_none() {
                    self.kill_all();
                }
                ended.or_else(|| self.child.wait().ok())
            }
        };
        // Its last words may still be on their way through the other pipe.
        std::thread::sleep(Duration::from_millis(20));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect::<Vec<_>>();
        let signal = status.and_then(|s| s.signal());
        let how = match (&self.killed, signal, status.and_then(|s| s.code())) {
            (Some((why, _)), ..) => why.clone(),
            (None, Some(9), _) => "killed by signal 9, as happens when memory runs out".to_owned(),
            (None, Some(signal), _) => format!("signal {signal}"),
            (None, None, Some(code)) => format!("it ended with status {code}"),
            (None, None, None) => "it is gone".to_owned(),
        };
        let memory = self.killed.is_none() && (signal == Some(9) || status.and_then(|s| s.code()) == Some(137));
        let limit = self.killed.as_ref().and_then(|(_, limit)| *limit);
        Death { how, memory, limit, said: said.join("\n") }
    }

    /// Kills it and what it started: a compiler of its own has a group of its own.
    fn kill_all(&mut self) {
        for process in crate::toolchain::process::descendants(self.child.id()) {
            // SAFETY: a plain system call; a process that is gone meanwhile makes it fail, and nothing else.
            unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
        }
        let _ = self.child.kill();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has nothing to do ends by itself; what it is at is of no use any more.
        if self.task.is_some() {
            self.kill_all();
        }
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// The lines of a stream, each bounded.
fn lines(stream: impl Read) -> impl Iterator<Item = String> {
    let mut reader = BufReader::new(stream);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(1..) => Some(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()),
            _ => None,
        }
    })
}
