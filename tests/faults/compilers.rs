//! Compilers that lie, crash, hang, and run out of memory or room.

use crate::site::{Site, build, root, shared};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nothing was published and nothing left behind; the next run, with a compiler that works, succeeds.
fn recovers(site: &Site, job: &str) {
    assert_eq!((site.entries().len(), site.leftovers()), (0, vec![]));
    assert_eq!(site.run(job).from(), ["jit"]);
    assert_eq!(site.entries().len(), 1);
}

#[test]
fn a_compiler_that_lies_publishes_nothing() {
    for (mode, part) in
        [("partial", "it is cut"), ("empty", "0 bytes"), ("garbage", "5000 bytes"), ("other", "exports")]
    {
        let site = Site::new();
        let done = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", mode).run();
        done.failed("PB-1512", &[part, "compiling: rmsnorm-f32-"]);
        recovers(&site, "load 0");
    }
}

#[test]
fn an_nvrtc_that_lies_publishes_nothing() {
    let folder = shared("nvrtc");
    let library = folder.join("libnvrtc.so.13");
    build("nvrtc.c", &library);
    std::fs::copy(&library, folder.join("libnvrtc-builtins.so.13.0")).unwrap();
    let image = |name: &str| -> PathBuf { root().join("codegen/model/testdata").join(name) };
    for (mode, given, code, part) in [
        ("partial", "13.0-90a.cubin", "PB-1512", "got"),
        ("empty", "13.0-90a.cubin", "PB-1512", "0 bytes"),
        ("garbage", "13.0-90a.cubin", "PB-1512", "5000 bytes"),
        // A good image for another architecture, and for another suffix, and of another kernel.
        ("other", "13.0-80.cubin", "PB-1512", "code for sm_80"),
        ("other", "13.0-90.cubin", "PB-1512", "code for sm_90"),
        ("other", "13.0-90a.cubin", "PB-1512", "kernels"),
        ("lost", "13.0-90a.cubin", "PB-1511", "code 9"),
        ("fail", "13.0-90a.cubin", "PB-1509", "error: boom"),
    ] {
        let site = Site::new();
        let worker = site.worker("obtain 0 sm_90a").set("PARBAKE_NVRTC", &library).set("PARBAKE_TEST_FAKE_MODE", mode);
        worker.set("FAKE_IMAGE", image(given)).run().failed(code, &[part]);
        assert_eq!((site.entries().len(), site.leftovers()), (0, vec![]), "{mode}");
        assert_eq!(std::fs::read_to_string(site.path("log")).unwrap(), format!("nvrtc {mode}\n"));
    }
}

#[test]
fn a_failure_repeats_with_its_whole_log() {
    let site = Site::new();
    for _ in 0..2 {
        let done = site.worker("load 0 times 2").set("PARBAKE_TEST_FAKE_MODE", "fail").run();
        assert_eq!(done.answers.len(), 2);
        done.failed("PB-1509", &["unit.cu:3:5: error: boom"]);
    }
    assert_eq!(site.compiles().len(), 4);
    recovers(&site, "load 0");
}

#[test]
fn who_waited_for_a_failure_is_given_it() {
    let site = Site::new();
    let done = site
        .worker("load 0 threads 16")
        .set("PARBAKE_TEST_FAKE_MODE", "fail")
        .set("PARBAKE_TEST_FAKE_SECONDS", "2")
        .run();
    assert_eq!(done.answers.len(), 16);
    done.failed("PB-1509", &["unit.cu:3:5: error: boom"]);
    assert_eq!(site.compiles().len(), 1);
    recovers(&site, "load 0");
}

#[test]
fn a_lack_of_memory_is_told_from_an_error_and_tried_once_more() {
    for (mode, part) in [("killed", "killed by signal 9"), ("oom", "out of memory allocating")] {
        let site = Site::new();
        let done = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", mode).run();
        done.failed("PB-1525", &["ran out of memory", part, "also when it ran alone"]);
        assert_eq!(site.compiles().len(), 2);
        recovers(&site, "load 0");
    }
    let site = Site::new();
    let done = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "oom-once").run();
    assert_eq!((done.from(), site.compiles().len()), (vec!["jit"], 2));
    done.said("it is run once more, alone", 1);
}

#[test]
fn a_compiler_without_room_says_where() {
    let site = Site::new();
    let done = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "enospc").run();
    done.failed("PB-1527", &["no room for its files in", "No space left on device", "PARBAKE_TMP"]);
    recovers(&site, "load 0");
}

#[test]
fn a_compiler_that_hangs_ends_at_the_limit() {
    // The host target's runtime object is made by the first worker of all, and takes its time.
    assert_eq!(Site::new().run("load 0").from(), ["jit"]);
    let site = Site::new();
    let start = Instant::now();
    let done = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "hang").set("PARBAKE_COMPILE_TIMEOUT", "2").run();
    done.failed("PB-1514", &["did not end within 2s", "about to hang", "PARBAKE_COMPILE_TIMEOUT"]);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(!std::path::Path::new(&format!("/proc/{}", site.compiles()[0].0)).exists());
    recovers(&site, "load 0");
}
