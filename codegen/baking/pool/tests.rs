//! Workers that crash, hang, talk nonsense or are killed: shell scripts that do it on request.

use super::*;
use parbake_model::Digest;
use parbake_model::identity::{Profile, Spec};
use parbake_model::metadata::{self, Metadata};
use std::cell::Cell;
use std::path::Path;

const WORKER: &str = r#"
echo '"ready"'
while read -r line; do
    case $line in
        *'"op":"crash"'*) echo "about to crash" >&2; kill -SEGV $$ ;;
        *'"op":"short"'*) echo x >>short; test "$(wc -l <short)" -gt 1 || kill -9 $$; cat made ;;
        *'"op":"starve"'*) kill -9 $$ ;;
        *'"op":"hang"'*) sleep 97 & wait ;;
        *'"op":"nonsense"'*) echo hello ;;
        *'"op":"refuse"'*) cat failed ;;
        *'"op":"slow"'*) sleep 0.2; cat made ;;
        *) echo $$ >>pids; cat made ;;
    esac
done
"#;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spec = Spec {
            op: "a".into(),
            axes: vec![],
            tactic: vec![],
            snippet: None,
            spec_id: Digest::of(b""),
            uri: "a-000000000000".into(),
        };
        let metadata = Metadata {
            schema: metadata::SCHEMA,
            op: "a".into(),
            uri: spec.uri.clone(),
            entry: spec.entry(),
            spec,
            target: Target::Host,
            source_key: Digest::of(b"s"),
            build_key: Digest::of(b"b"),
            launch_abi: 1,
            library: "0.1.0".into(),
            toolchain: "test".into(),
            toolkit: None,
            options: vec![],
            profile: Profile::Release,
            image: Digest::of(b"i"),
            size: 1,
            file: "kernel.so".into(),
            resources: None,
            compile_ms: 1,
            log: String::new(),
        };
        let unit = Unit { metadata, file: "kernel.so".into(), compiled: true, peak_kib: 1 };
        let write = |name: &str, answer: Answer| {
            std::fs::write(folder.path().join(name), serde_json::to_string(&answer).unwrap() + "\n").unwrap();
        };
        write("made", Answer::Made(Box::new(unit)));
        write("failed", Answer::Failed(Box::new(Report::new("PB-1512", Class::Failed, "no"))));
        Self { folder }
    }

    fn run(&self, script: &str, jobs: usize, limit: Duration, ops: &[&str]) -> Outcome {
        self.run_until(script, jobs, limit, ops, &AtomicBool::new(false), &|_| {})
    }

    fn run_until(
        &self,
        script: &str,
        jobs: usize,
        limit: Duration,
        ops: &[&str],
        stop: &AtomicBool,
        progress: &dyn Fn(&Progress<'_>),
    ) -> Outcome {
        let worker = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).current_dir(self.folder.path());
            command
        };
        let task = |op: &&str| Task {
            name: format!("{op} for host"),
            request: Request {
                spec: Locked {
                    op: (*op).into(),
                    axes: vec![],
                    tactic: vec![],
                    snippet: None,
                    spec_id: Digest::of(op.as_bytes()),
                    targets: vec![],
                },
                target: Target::Host,
                toolkit: None,
                profile: Profile::Release,
                scratch: PathBuf::new(),
            },
            need_kib: 1,
        };
        let tasks: Vec<Task> = ops.iter().map(task).collect();
        let governor = Governor { limit_kib: None };
        Pool { jobs, governor, limit, worker: &worker, stop, progress }.run(&tasks)
    }

    fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default().lines().count()
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn one_that_crashes_costs_one_unit() {
    let place = Place::new();
    let outcome = place.run(WORKER, 2, LONG, &["a", "crash", "b", "refuse", "nonsense", "c", "d"]);
    let made: Vec<bool> = outcome.made.iter().map(Option::is_some).collect();
    assert_eq!(made, [true, false, true, false, false, true, true], "{outcome:?}");
    let failed: Vec<(usize, &str)> = outcome.failed.iter().map(|(task, report)| (*task, report.code)).collect();
    assert_eq!(failed, [(1, "PB-1526"), (3, "PB-1512"), (4, "PB-1526")]);
    let crash = outcome.failed[0].1.to_string();
    for part in ["crash for host", "signal 11", "about to crash"] {
        assert!(crash.contains(part), "{crash}");
    }
    assert!(outcome.failed[2].1.to_string().contains("\"hello\""), "{}", outcome.failed[2].1);
    assert!(!outcome.stopped && outcome.left == 0);
}

#[test]
fn one_that_is_killed_is_tried_once_more_alone() {
    let place = Place::new();
    let busiest = Cell::new(0);
    let outcome = place.run_until(WORKER, 2, LONG, &["short", "slow", "a", "b"], &AtomicBool::new(false), &|now| {
        busiest.set(busiest.get().max(now.busy));
    });
    assert!(outcome.failed.is_empty() && outcome.made.iter().all(Option::is_some), "{outcome:?}");
    assert_eq!((place.lines("short"), busiest.get()), (2, 2));

    let outcome = place.run(WORKER, 2, LONG, &["starve", "a"]);
    assert_eq!((outcome.failed[0].0, outcome.failed[0].1.code), (0, "PB-1525"), "{outcome:?}");
    assert!(outcome.made[1].is_some());
}

#[test]
fn one_that_hangs_is_killed_with_what_it_started() {
    let place = Place::new();
    let outcome = place.run(WORKER, 2, Duration::from_millis(300), &["hang", "a"]);
    assert_eq!((outcome.failed[0].0, outcome.failed[0].1.code), (0, "PB-1514"), "{outcome:?}");
    assert!(outcome.made[1].is_some());
    let sleeps = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(entry.unwrap().path().join("cmdline")).is_ok_and(|line| line == b"sleep\x0097\0")
    };
    assert!(!std::fs::read_dir("/proc").unwrap().any(sleeps));
}

#[test]
fn workers_are_used_again() {
    let place = Place::new();
    let outcome = place.run(WORKER, 1, LONG, &["a"; 12]);
    assert!(outcome.made.iter().all(Option::is_some));
    let pids = std::fs::read_to_string(place.folder.path().join("pids")).unwrap();
    let first = pids.lines().next().unwrap();
    assert!(pids.lines().count() == 12 && pids.lines().all(|pid| pid == first), "{pids}");
}

#[test]
fn work_ends_when_it_is_asked_to() {
    let place = Place::new();
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let outcome = place.run_until(WORKER, 2, LONG, &["a", "b", "hang", "hang", "c"], &stop, &|now| {
        if now.busy == 2 && now.made.is_none() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(outcome.stopped && outcome.failed.is_empty() && began.elapsed() < Duration::from_secs(20), "{outcome:?}");
    assert_eq!(outcome.left, outcome.made.iter().filter(|made| made.is_none()).count());
}

#[test]
fn workers_that_do_not_start_end_the_work() {
    let place = Place::new();
    for (script, says) in [("echo nope >&2; exit 3", "status 3"), ("echo hello; sleep 9", "no answer")] {
        let outcome = place.run(script, 1, LONG, &["a", "b", "c"]);
        assert_eq!((outcome.failed.len(), outcome.failed[0].1.code, outcome.left), (1, "PB-1151", 2), "{outcome:?}");
        assert!(outcome.failed[0].1.to_string().contains(says), "{}", outcome.failed[0].1);
    }
    let worker = || Command::new(Path::new("/nowhere/worker"));
    let task = Task {
        name: "a".into(),
        request: Request {
            spec: Locked {
                op: "a".into(),
                axes: vec![],
                tactic: vec![],
                snippet: None,
                spec_id: Digest::of(b""),
                targets: vec![],
            },
            target: Target::Host,
            toolkit: None,
            profile: Profile::Release,
            scratch: PathBuf::new(),
        },
        need_kib: 1,
    };
    let (governor, stop) = (Governor { limit_kib: None }, AtomicBool::new(false));
    let pool = Pool { jobs: 1, governor, limit: LONG, worker: &worker, stop: &stop, progress: &|_| {} };
    assert_eq!(pool.run(&[task]).failed[0].1.code, "PB-1151");
}

#[test]
fn many_failures_end_the_work() {
    let outcome = Place::new().run(WORKER, 2, LONG, &["refuse"; 60]);
    assert!(outcome.failed.len() >= MAX_FAILURES && outcome.left >= 30, "{outcome:?}");
}
