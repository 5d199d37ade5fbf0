//! Many processes and threads at once, and processes that are killed.

use crate::points::{Points, quick};
use crate::site::{Site, tree, wait};
use std::fs::File;
use std::time::{Duration, SystemTime};

/// Kills a fake compiler that was left hanging.
fn end(process: i32) {
    let _ = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
}

#[test]
fn sixteen_processes_compile_a_missing_kernel_once_and_none_waits_silently() {
    let site = Site::new();
    let worker = || site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "slow").set("PARBAKE_TEST_FAKE_SECONDS", "2");
    let worker = || worker().set("PARBAKE_TEST_LOG", "warn");
    let done = site.start((0..16).map(|_| worker()).collect());
    assert_eq!(site.compiles().len(), 1);
    let jit: Vec<_> = done.iter().filter(|d| d.from() == ["jit"]).collect();
    let others: Vec<_> = done.iter().filter(|d| d.from() == ["store"]).collect();
    assert_eq!((jit.len(), others.len()), (1, 15));
    jit[0].said("waiting for", 0);
    for done in others {
        done.said("waiting for process ", 1);
        assert!(done.log.contains(", which compiles rmsnorm-f32-"), "{}", done.log);
        assert!(done.log.contains("locks/") && done.log.contains(" since "), "{}", done.log);
    }
    assert_eq!((site.entries().len(), site.leftovers()), (1, vec![]));
}

#[test]
fn sixty_four_threads_compile_a_missing_kernel_once_and_none_waits_silently() {
    let site = Site::new();
    let done = site.worker("load 0 threads 64").set("PARBAKE_TEST_FAKE_MODE", "slow").run();
    assert_eq!(done.from().len(), 64);
    assert_eq!(site.compiles().len(), 1);
    done.said("waiting for another thread of this process that loads it", 63);
    let site = Site::new();
    let worker = site.worker("load 0 threads 64").set("PARBAKE_TEST_FAKE_MODE", "slow");
    let done = worker.set("PARBAKE_TEST_FAKE_SECONDS", "2.5").set("PARBAKE_TEST_LOG", "warn").run();
    assert_eq!((done.from().len(), site.compiles().len()), (64, 1));
    done.said("waiting for another thread of this process, which still loads it", 1);

    let site = Site::new();
    let done = site.worker("load 0 libraries 4").set("PARBAKE_TEST_FAKE_MODE", "slow").run();
    assert_eq!(done.from().iter().filter(|from| **from == "jit").count(), 1);
    assert_eq!(site.compiles().len(), 1);
}

#[test]
fn when_a_holder_is_killed_the_next_proceeds_within_a_second() {
    let site = Site::new();
    let mut holder = site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "hang").spawn();
    wait("the holder to compile", || site.compiles().len() == 1);
    let waiter = site.worker("load 0").spawn();
    let named = format!("waiting for process {} on ", holder.id());
    wait("the waiter to wait", || waiter.log().contains(&named));
    holder.kill();
    let took = wait("the waiter to compile", || site.compiles().len() == 2);
    assert!(took < Duration::from_secs(1), "{took:?}");
    // The compiler that the holder left behind hangs on, and holds nothing.
    let orphan = site.compiles()[0].0;
    assert!(std::path::Path::new(&format!("/proc/{orphan}/exe")).exists());
    assert_eq!(waiter.end().from(), ["jit"]);
    end(orphan);
}

/// Verifies every published entry; gives how many there are.
fn verify(site: &Site) -> usize {
    let store = parbake::store::Store::new(parbake::workspace::Workspace::new(site.workspace.clone()));
    let entries = site.entries();
    for entry in &entries {
        let mut names = entry.iter().rev().map(|name| name.to_str().unwrap());
        let [build, target, source] = [(); 3].map(|()| names.next().unwrap());
        let found = store.get(source.parse().unwrap(), target.parse().unwrap(), build.parse().unwrap());
        assert!(matches!(found, Ok(Some(_))), "{}: {found:?}", entry.display());
    }
    entries.len()
}

#[test]
fn a_storm_of_kills_leaves_good_entries_and_leftovers_that_are_collected_by_age() {
    let site = Site::new();
    let kills = if quick() { 30 } else { 200 };
    let mut points = Points::of("storm");
    let mut next = |below| points.below(below);
    // Workers say when they are about to look a kernel up; nobody holds them back.
    let line = site.path("line");
    std::fs::create_dir(&line).unwrap();
    std::fs::write(line.join("go"), "").unwrap();
    let mut running = Vec::new();
    let (mut killed, mut verified) = (0, 0);
    while killed < kills {
        while running.len() < 6 {
            let keys: Vec<String> = (0..4).map(|_| next(12).to_string()).collect();
            let worker = site.worker(&format!("load {}", keys.join(","))).set("PARBAKE_TEST_START", &line);
            running.push(worker.set("PARBAKE_TEST_FAKE_MODE", "slow").set("PARBAKE_TEST_FAKE_SECONDS", "0.02").spawn());
        }
        let mut victim = running.remove(next(3) as usize);
        let ready = line.join(format!("ready-{}", victim.id()));
        wait("a worker to be ready", || ready.exists());
        std::thread::sleep(Duration::from_millis(next(80)));
        victim.kill();
        killed += 1;
        // Whatever was published by now is good. Then it goes, so that there is always something to compile.
        if killed % 20 == 0 {
            let old = site.path(&format!("old-{killed}"));
            verified += verify(&site);
            let _ = std::fs::rename(site.store().join("v1"), old);
        }
    }
    running.into_iter().for_each(|r| drop(r.end()));
    let begun = site.compiles().len();
    verified += verify(&site);

    // Every key loads without a compiler or is simply not there: nothing is damaged.
    let keys = (0..12).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let done = site.worker(&format!("load {keys}")).set("PARBAKE_JIT", "off").run();
    assert!(!done.log.contains("damaged"), "{}", done.log);
    for answer in &done.answers {
        assert!(answer.from.is_some() || answer.code == "PB-2002" && !answer.report.contains("damaged"), "{answer:?}");
    }
    let there = done.answers.iter().filter(|a| a.from.is_some()).count();
    assert_eq!(there, site.entries().len());
    assert_eq!(site.run(&format!("load {keys}")).from().len(), 12);
    let done = site.worker(&format!("load {keys}")).set("PARBAKE_JIT", "off").run();
    assert_eq!(done.from(), vec!["store"; 12]);
    assert!(!site.leftovers().iter().any(|name| name.starts_with("damaged-")), "{:?}", site.leftovers());

    let workspace = parbake::workspace::Workspace::new(site.workspace.clone());
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    let top = |part: &str| std::fs::read_dir(site.workspace.join(part)).into_iter().flatten().flatten();
    let sources = top("gen").filter(|e| e.file_name().to_str().unwrap().starts_with("stage-"));
    let left = top("store/stage").chain(top("tmp")).filter(|e| e.file_name() != "collected").chain(sources);
    let left: Vec<_> = left.collect();
    let day = Duration::from_secs(24 * 3600);
    assert_eq!(workspace.collect_leftovers(day).count, 0, "what is young stays");
    for entry in &left {
        File::open(entry.path()).unwrap().set_modified(old).unwrap();
    }
    println!("{killed} kills, {begun} compilations begun, {verified} entries verified, {} leftovers", left.len());
    // Compilers that lost their parent may still hold nothing, so all goes.
    assert_eq!(workspace.collect_leftovers(day).count, left.len());
    assert_eq!(site.leftovers(), Vec::<String>::new());
    assert_eq!(site.entries().len(), 12);
}

#[test]
fn without_locks_all_compile_one_publishes_and_the_others_adopt() {
    for fault in ["ENOLCK", "ENOSYS"] {
        let site = Site::new();
        let worker = || site.worker("load 0").faults(&site.store(), &format!("lock:{fault}:100"));
        let worker = || worker().set("PARBAKE_TEST_FAKE_MODE", "slow").set("PARBAKE_TEST_FAKE_SECONDS", "0.7");
        let done = site.start((0..4).map(|_| worker()).collect());
        assert_eq!(site.compiles().len(), 4);
        for done in done {
            assert_eq!(done.from(), ["jit"]);
            done.said("no lock can be taken here; going on without", 1);
            done.said("kept in memory only", 0);
        }
        assert_eq!((site.entries().len(), site.leftovers()), (1, vec![]));
        assert_eq!(site.worker("load 0").set("PARBAKE_JIT", "off").run().from(), ["store"]);
    }
}

#[test]
fn a_wait_has_an_end_and_a_result_even_then() {
    let site = Site::new();
    let worker = || site.worker("load 0").set("PARBAKE_TEST_FAKE_MODE", "slow").set("PARBAKE_TEST_FAKE_SECONDS", "4");
    let done = site.start((0..3).map(|_| worker().set("PARBAKE_LOCK_TIMEOUT", "1")).collect());
    assert_eq!(site.compiles().len(), 3);
    assert_eq!(done.iter().filter(|d| d.log.contains("waited 1 s for process ")).count(), 2);
    assert!(done.iter().all(|d| d.from() == ["jit"]));
    assert_eq!((site.entries().len(), site.leftovers()), (1, vec![]));
}

#[test]
fn a_holder_on_another_host_is_named() {
    let site = Site::new();
    assert_eq!(site.run("load 0").from(), ["jit"]);
    std::fs::remove_dir_all(site.store().join("v1")).unwrap();
    let locks = site.store().join("locks");
    let path = locks.join(&tree(&locks)[0]);
    std::fs::write(&path, "process 77 on node7 since 1000 compiles that kernel\n").unwrap();
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    let done = site.worker("load 0").set("PARBAKE_LOCK_TIMEOUT", "1").run();
    assert_eq!(done.from(), ["jit"]);
    done.said("waiting for process 77 on node7 (another host) since ", 1);
    done.said("; compiling rmsnorm-f32-", 1);
}

#[test]
fn a_clock_that_is_wrong_changes_nothing() {
    let site = Site::new();
    // A live process that stages something, which a clock in the year 2099 makes look old.
    let live = parbake::model::owner::Owner::this().name("stage-");
    for years in [73, -55] {
        assert_eq!(site.worker("load 0").years(years).run().from()[0], if years > 0 { "jit" } else { "store" });
        std::fs::create_dir_all(site.store().join("stage").join(&live)).unwrap();
        assert_eq!(site.worker("load 1,2").years(years).run().from()[0], if years > 0 { "jit" } else { "store" });
        assert_eq!(site.run("load 0").from(), ["store"]);
        assert_eq!(site.worker("load 0").years(years).set("PARBAKE_JIT", "off").run().from(), ["store"]);
        assert!(site.store().join("stage").join(&live).exists());
    }
    assert_eq!(site.compiles().len(), 3);
    // What was written in 2099 is used today, and a wait that began there ends.
    let locks = site.store().join("locks");
    for name in tree(&locks) {
        std::fs::write(locks.join(name), "process 77 on node7 since 4070908800 compiles that kernel\n").unwrap();
    }
    std::fs::remove_dir_all(site.store().join("v1")).unwrap();
    assert_eq!(site.worker("load 0,1,2").years(73).run().from(), ["jit"; 3]);
}
