//! A store that two machines share: two workspaces, one folder.

use crate::site::{Mounted, Site, Worker, tree, wait};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The shared folder, made as an administrator makes it.
fn shared(site: &Site) -> PathBuf {
    let folder = site.path("shared");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A worker of another machine: a workspace of its own.
fn on<'a>(site: &'a Site, machine: &str, job: &str) -> Worker<'a> {
    site.worker(job).set("PARBAKE_WORKSPACE", site.path(machine)).set("PARBAKE_STORE_SHARED", site.path("shared"))
}

/// How many entries a store has.
fn entries(store: PathBuf) -> usize {
    tree(&store.join("v1")).iter().filter(|name| name.ends_with("/build.json")).count()
}

#[test]
fn two_machines_compile_each_kernel_once_in_total() {
    let site = Site::new();
    let folder = shared(&site);
    let slow = |machine| {
        let worker = on(&site, machine, "load 0,1,2,3").set("PARBAKE_TEST_FAKE_MODE", "slow");
        worker.set("PARBAKE_TEST_FAKE_SECONDS", "0.3")
    };
    let done = site.start(vec![slow("a"), slow("b")]);
    let from: Vec<&str> = done.iter().flat_map(|d| d.from()).collect();
    assert_eq!((from.iter().filter(|f| **f == "jit").count(), from.len()), (4, 8), "{from:?}");
    assert_eq!(site.compiles().len(), 4);
    for store in [folder.clone(), site.path("a/store"), site.path("b/store")] {
        assert_eq!(entries(store.clone()), 4, "{}", store.display());
    }
    // A third machine compiles nothing, and has its own copy afterwards.
    assert_eq!(on(&site, "c", "load 0,1").set("PARBAKE_JIT", "off").run().from(), ["store", "store"]);
    assert_eq!(entries(site.path("c/store")), 2);
    std::fs::rename(&folder, site.path("away")).unwrap();
    let done = on(&site, "c", "load 0,1,4").run();
    assert_eq!(done.from(), ["store", "store", "jit"]);
    done.said("going on without what PARBAKE_STORE_SHARED would save", 1);
    assert!(!folder.exists(), "what is not mounted is not made");
}

#[test]
fn a_machine_waits_for_another_and_takes_over_when_it_dies() {
    let site = Site::new();
    shared(&site);
    let mut holder = on(&site, "a", "load 0").set("PARBAKE_TEST_FAKE_MODE", "hang").spawn();
    wait("the holder to compile", || site.compiles().len() == 1);
    let waiter = on(&site, "b", "load 0").spawn();
    wait("the waiter to wait", || waiter.log().contains(&format!("waiting for process {} on ", holder.id())));
    holder.kill();
    assert_eq!(waiter.end().from(), ["jit"]);
    let orphan = site.compiles()[0].0;
    let _ = std::process::Command::new("kill").args(["-9", &orphan.to_string()]).status();
    // Who waits no longer than a second compiles too.
    let mut holder = on(&site, "a", "load 1").set("PARBAKE_TEST_FAKE_MODE", "hang").spawn();
    wait("the holder to compile", || site.compiles().len() == 3);
    let done = on(&site, "b", "load 1").set("PARBAKE_LOCK_TIMEOUT", "1").run();
    assert_eq!(done.from(), ["jit"]);
    assert!(done.log.contains("compiling rmsnorm") || done.log.contains("here too"), "{}", done.log);
    holder.kill();
    let orphan = site.compiles()[2].0;
    let _ = std::process::Command::new("kill").args(["-9", &orphan.to_string()]).status();
}

#[test]
fn a_shared_store_that_fails_is_said_once_and_nothing_else_fails() {
    for rule in [
        "create:EROFS:100 mkdir:EROFS:100 rename:EROFS:100",
        "write:ENOSPC:100",
        "create:EACCES:100 mkdir:EACCES:100",
        "rename:EXDEV:100",
        "open:EIO:100 list:EIO:100",
        "lock:ENOLCK:100",
    ] {
        let site = Site::new();
        let folder = shared(&site);
        assert_eq!(on(&site, "a", "load 0").run().from(), ["jit"]);
        let held = tree(&folder.join("v1"));
        let done = on(&site, "b", "load 0,1,2").faults(&folder, rule).run();
        let read = !rule.starts_with("open");
        assert_eq!(done.from(), [if read { "store" } else { "jit" }, "jit", "jit"], "{rule}\n{}", done.log);
        done.said("kept in memory only", 0);
        assert_eq!(entries(site.path("b/store")), 3, "{rule}");
        let locks_only = rule.starts_with("lock");
        done.said("going on without what PARBAKE_STORE_SHARED would save", usize::from(!locks_only));
        if !locks_only {
            assert_eq!(tree(&folder.join("v1")).iter().filter(|n| n.ends_with("meta.json")).count(), 1, "{rule}");
            assert!(held.iter().all(|name| folder.join("v1").join(name).exists()), "{rule}");
        }
    }
}

#[test]
fn a_read_only_shared_store_serves_what_it_holds() {
    let site = Site::new();
    let folder = shared(&site);
    let Some(disk) = Mounted::new(&folder, "size=64m,mode=0755") else { return };
    assert_eq!(on(&site, "a", "load 0").run().from(), ["jit"]);
    disk.remount("ro");
    let before = tree(&folder);
    let done = on(&site, "b", "load 0,1,2").run();
    assert_eq!(done.from(), ["store", "jit", "jit"]);
    done.said("going on without what PARBAKE_STORE_SHARED would save", 1);
    assert_eq!((tree(&folder), entries(site.path("b/store"))), (before, 3));
    disk.remount("rw");
}

#[test]
fn a_torn_file_in_it_is_put_aside_and_not_copied() {
    let site = Site::new();
    let folder = shared(&site);
    assert_eq!(on(&site, "a", "load 0").run().from(), ["jit"]);
    let torn = |name: &str| {
        let found = tree(&folder.join("v1")).into_iter().find(|path| path.ends_with(name)).unwrap();
        let path = folder.join("v1").join(found);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    };
    for name in ["kernel.so", "meta.json"] {
        torn(name);
        let machine = name.replace('.', "-");
        let done = on(&site, &machine, "load 0").run();
        assert_eq!(done.from(), ["jit"], "{name}");
        done.said("a damaged entry of the store is put aside", 1);
        // Made anew for all.
        assert_eq!((entries(folder.clone()), entries(site.path(&machine).join("store"))), (1, 1), "{name}");
    }
    // What only explains is not copied half; the kernel is whole.
    torn("build.json");
    assert_eq!(on(&site, "d", "load 0").run().from(), ["store"]);
    assert_eq!(entries(site.path("d/store")), 0);
}

#[test]
fn a_shared_store_that_others_may_write_is_left_alone() {
    let site = Site::new();
    let folder = shared(&site);
    assert_eq!(on(&site, "a", "load 0").run().from(), ["jit"]);
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let done = on(&site, "b", "load 0").run();
    assert_eq!(done.from(), ["jit"]);
    done.said("may be written by everybody", 1);
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o775)).unwrap();
    // A group is trusted if that was said, and not else.
    assert_eq!(on(&site, "c", "load 0").run().from(), ["jit"]);
    std::fs::set_permissions(folder.join("v1"), std::fs::Permissions::from_mode(0o2770)).unwrap();
    let done = on(&site, "d", "load 0").set("PARBAKE_WORKSPACE_SHARED", "on").run();
    assert_eq!(done.from(), ["store"]);
    // The own store is no second one.
    let worker = site.worker("load 0").set("PARBAKE_STORE_SHARED", site.store());
    assert_eq!(worker.run().from(), ["jit"]);
    let done = site.worker("load 1").set("PARBAKE_STORE_SHARED", site.store()).run();
    assert_eq!(done.from(), ["jit"]);
    done.said("is this machine's own store", 1);
}
