//! What the log says at each level, and where.

use crate::work::{Done, Site, lines};

/// The texts of a call.
fn of(lines: &[(u64, String)], sequence: u64) -> Vec<&str> {
    lines.iter().filter(|(s, _)| *s == sequence).map(|(_, text)| text.as_str()).collect()
}

/// Whether a text begins with a time in UTC.
fn is_timed(text: &str) -> bool {
    let form = "0000-00-00T00:00:00.000000Z ";
    let fits = |(f, c): (char, char)| if f == '0' { c.is_ascii_digit() } else { f == c };
    text.len() > form.len() && form.chars().zip(text.chars()).all(fits)
}

#[test]
fn level_0_says_nothing_and_makes_nothing() {
    let site = Site::new();
    let file = site.path("calls.log");
    for worker in [site.worker("rmsnorm f32 2 64"), site.worker("rmsnorm f32 2 64").level("0")] {
        let done = worker.set("PARBAKE_LOG_DEST", &file).run().answered(&["done"]);
        assert!(done.lines().is_empty(), "{done:?}");
        assert!(!file.exists() && !site.path("workspace/dumps").exists());
    }
}

#[test]
fn level_1_names_each_call() {
    let done = Site::new().worker("rmsnorm f32 2 64; fused_add_rmsnorm f16 3 64").level("1").run();
    let lines = done.answered(&["done", "done"]).lines();
    let header = of(&lines, 0);
    assert!(is_timed(header[0]) && header[0].contains(" log of parbake "), "{header:?}");
    assert!(header[0].contains(parbake::model::VERSION) && header[0].contains("level 1"), "{header:?}");
    assert!(header.contains(&"setting PARBAKE_LOG=1"), "{header:?}");
    for (sequence, op) in [(1, "norm/rmsnorm"), (2, "norm/fused_add_rmsnorm")] {
        let call = of(&lines, sequence);
        assert!(call.len() == 1 && is_timed(call[0]) && call[0].contains(op), "{call:?}");
    }
}

#[test]
fn level_3_has_arguments_and_kernel_before_the_launch_and_the_end_after_it() {
    let done = Site::new().worker("rmsnorm bf16 3 96 pad=5 offset=1 eps=1e-5").level("3").run().answered(&["done"]);
    let lines = done.lines();
    let call = of(&lines, 1);
    assert_eq!(call.len(), 8, "{call:#?}");
    for (line, name) in call[1..3].iter().zip(["out", "x"]) {
        let start = format!("tensor {name} bf16 [3, 96] strides [101, 1] at 0x");
        assert!(line.starts_with(&start) && line.ends_with(" aligned to 2 on host"), "{line}");
    }
    assert!(call[3].starts_with("tensor weight bf16 [96] strides [1] at 0x"), "{}", call[3]);
    assert_eq!(call[4..6], ["scalar eps 1e-5", "scalar weight_bias 0.0"]);
    let kernel = call[6];
    assert!(kernel.starts_with("kernel rmsnorm-bf16-") && kernel.contains(" for host from "), "{kernel}");
    assert!(kernel.contains(" tactic block=") && kernel.contains(" peel="), "{kernel}");
    let digest = kernel.split_once(" image ").unwrap().1.split_once(',').unwrap().0;
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{kernel}");
    assert!(call[7].starts_with("done after "), "{}", call[7]);
}

#[test]
fn errors_are_told_at_every_level_with_all_that_is_wrong() {
    for level in ["1", "3"] {
        let done = Site::new().worker("rmsnorm f32 2 64 eps=-1; rmsnorm f32 0 64").level(level).run();
        let lines = done.answered(&["PB-2001", "done"]).lines();
        let call = of(&lines, 1);
        let end = call.last().unwrap();
        assert!(end.starts_with("failed after ") && end.contains("PB-2001") && end.contains("eps: value"), "{end}");
        assert_eq!(call.len(), if level == "1" { 2 } else { 7 });
        if level == "3" {
            assert_eq!(of(&lines, 2).last(), Some(&"nothing to do"));
        }
    }
    // A look-up that fails is one line too, although its report has many.
    let done = Site::new()
        .worker("rmsnorm f32 2 64")
        .level("1")
        .set("PARBAKE_JIT", "off")
        .set("PARBAKE_CACHE", "off")
        .run()
        .answered(&["PB-2002"]);
    assert!(of(&done.lines(), 1)[1].contains("PB-2002"), "{done:?}");
}

#[test]
fn the_log_goes_where_the_settings_say() {
    let site = Site::new();
    let worker = || site.worker("rmsnorm f32 2 64").level("1");
    let done = worker().set("PARBAKE_LOG_DEST", "stdout").run().answered(&["done"]);
    assert!(done.lines().is_empty());
    // Each process its own file; a second one adds to a file of a fixed name.
    let text = |name: &str| std::fs::read_to_string(site.path(name)).unwrap();
    for _ in 0..2 {
        worker().set("PARBAKE_LOG_DEST", site.path("calls.%p.log")).run().answered(&["done"]);
        worker().set("PARBAKE_LOG_DEST", site.path("all.log")).run().answered(&["done"]);
    }
    let own = std::fs::read_dir(site.folder.path()).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
    let own: Vec<String> = own.filter(|n| n.starts_with("calls.")).collect();
    assert_eq!(own.len(), 2, "{own:?}");
    for name in &own {
        let process = name.trim_start_matches("calls.").trim_end_matches(".log");
        assert!(text(name).lines().all(|l| l.starts_with(&format!("parbake {process}:"))), "{name}");
    }
    assert_eq!(lines(&text("all.log")).iter().filter(|(_, l)| l.contains(" log of parbake ")).count(), 2);
}

#[test]
fn a_log_that_cannot_be_written_is_one_warning_and_no_error() {
    let site = Site::new();
    let worker = || site.worker("rmsnorm f32 2 64; rmsnorm f32 3 64").level("3");
    let done = worker().set("PARBAKE_LOG_DEST", site.path("none/calls.log")).run().answered(&["done", "done"]);
    assert_eq!(done.said.matches("WARN the log cannot be opened at ").count(), 1, "{done:?}");
    assert!(of(&done.lines(), 2).last().unwrap().starts_with("done after "), "{done:?}");
    // A pipe that nobody reads: to open it would wait for ever, with every call behind it.
    let pipe = site.path("pipe");
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
        let mut worker = worker().set("PARBAKE_LOG_DEST", &pipe);
        worker.0.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = worker.0.spawn().unwrap();
        let start = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() && start.elapsed() < std::time::Duration::from_secs(120) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = child.kill();
        let done = Done::of(child.wait_with_output().unwrap()).answered(&["done", "done"]);
        assert_eq!(done.said.matches("WARN the log cannot be opened at ").count(), 1, "{done:?}");
    } else {
        println!("skipped: needs mkfifo");
    }
    let done = worker().set("PARBAKE_LOG_DEST", "/dev/full").run().answered(&["done", "done"]);
    assert_eq!(done.said.matches("WARN lines of the log are lost: No space left").count(), 1, "{done:?}");
}

#[test]
fn globs_choose_ops_and_exclude_wins() {
    let calls = "rmsnorm f32 2 64; fused_add_rmsnorm f32 2 64";
    for (include, exclude, logged) in [
        ("norm/*", "", vec!["norm/rmsnorm", "norm/fused_add_rmsnorm"]),
        ("fused_*,none", "", vec!["norm/fused_add_rmsnorm"]),
        ("", "rmsnorm", vec!["norm/fused_add_rmsnorm"]),
        ("norm/*", "norm/fused*", vec!["norm/rmsnorm"]),
        ("rmsnorm", "*", vec![]),
    ] {
        let worker = Site::new().worker(calls).level("3").set("PARBAKE_LOG_INCLUDE", include);
        let done = worker.set("PARBAKE_LOG_EXCLUDE", exclude).run().answered(&["done", "done"]);
        let lines = done.lines();
        let named: Vec<&str> = lines.iter().filter(|(s, t)| *s > 0 && is_timed(t)).map(|(_, t)| t.as_str()).collect();
        assert_eq!(named.len(), logged.len(), "{include} {exclude}: {named:?}");
        assert!(named.iter().zip(&logged).all(|(t, op)| t.contains(op)), "{named:?}");
    }
}

#[test]
fn the_level_changes_while_the_process_runs() {
    let job = "rmsnorm f32 2 64; level 1; rmsnorm f32 3 64; level 0; rmsnorm f32 4 64";
    let done = Site::new().worker(job).run().answered(&["done"; 3]);
    let lines = done.lines();
    assert_eq!((of(&lines, 1).len(), of(&lines, 2).len()), (1, 0), "{done:?}");
    assert_eq!(parbake::log::set_level(4).unwrap_err().report().code, "PB-1001");
}
