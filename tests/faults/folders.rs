//! Folders that are full, read-only, somebody else's or everybody's.

use crate::site::{Mounted, Site, tree};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_disk_that_is_full_keeps_kernels_in_memory() {
    let site = Site::new();
    let Some(disk) = Mounted::new(&site.workspace, "size=64k,mode=0700") else { return };
    let done = site.run("load 0,1,0");
    assert_eq!(done.from(), ["jit", "jit", "registry"]);
    done.said("kept in memory only", 1);
    assert!(done.log.contains("no room for the ") && done.log.contains("No space left on device"), "{}", done.log);
    assert_eq!((site.entries().len(), site.leftovers()), (0, vec![]));
    disk.remount("size=64m");
    assert_eq!(site.run("load 0").from(), ["jit"]);
    assert_eq!(site.run("load 0").from(), ["store"]);
}

#[test]
fn a_disk_that_is_read_only_serves_what_it_holds() {
    let site = Site::new();
    let Some(disk) = Mounted::new(&site.workspace, "size=64m,mode=0700") else { return };
    assert_eq!(site.run("load 0").from(), ["jit"]);
    disk.remount("ro");
    let before = tree(&site.workspace);
    let done = site.run("load 0,1,2");
    assert_eq!(done.from(), ["store", "jit", "jit"]);
    done.said("kept in memory only", 1);
    assert_eq!(site.worker("load 0").set("PARBAKE_JIT", "off").run().from(), ["store"]);
    disk.remount("rw");
    std::fs::write(site.entries()[0].join("kernel.so"), "cut").unwrap();
    disk.remount("ro");
    let done = site.run("load 0");
    assert_eq!(done.from(), ["jit"]);
    done.said("a damaged entry of the store is put aside", 0);
    assert!(done.log.contains("a damaged entry of the store cannot be put aside"), "{}", done.log);
    assert_eq!(tree(&site.workspace), before);
}

#[test]
fn a_disk_from_which_nothing_may_be_executed_serves() {
    let site = Site::new();
    let Some(_disk) = Mounted::new(&site.workspace, "size=64m,mode=0700,noexec") else { return };
    assert_eq!(site.run("load 0").from(), ["jit"]);
    assert_eq!(site.run("load 0").from(), ["store"]);
}

/// A workspace that is refused: named once, left as it is, and an error only if the kernel is nowhere else.
fn refused(site: &Site, why: &str) {
    let before = tree(&site.store());
    let done = site.worker("load 0").set("PARBAKE_JIT", "off").run();
    done.failed("PB-2002", &["what is found there is not run", why, &site.workspace.display().to_string()]);
    let done = site.run("load 0,1");
    assert_eq!(done.from(), ["jit", "jit"]);
    done.said("; the folder is left alone", 1);
    assert_eq!(tree(&site.store()), before);
}

#[test]
fn a_workspace_that_others_may_write_is_refused_and_named() {
    let site = Site::new();
    assert_eq!(site.run("load 0").from(), ["jit"]);
    for (mode, why) in [(0o777, "may be written by everybody (mode 0777)"), (0o770, "may be written by group ")] {
        set_mode(&site.workspace, mode);
        refused(&site, why);
    }
    set_mode(&site.workspace, 0o755);
    set_mode(&site.store(), 0o777);
    refused(&site, "may be written by everybody");
    set_mode(&site.store(), 0o755);
    assert_eq!(site.run("load 0").from(), ["store"]);
}

#[test]
fn a_workspace_of_somebody_else_is_refused_and_named() {
    let site = Site::new();
    assert_eq!(site.run("load 0").from(), ["jit"]);
    if chown(&site.workspace, Some(1234), None).is_err() {
        println!("skipped: needs the right to give files away");
        return;
    }
    refused(&site, "belongs to user 1234, this is user 0");
}

#[test]
fn a_bundle_serves_beside_a_workspace_that_is_refused() {
    let site = Site::new();
    let bundle = site.path("one.pbk");
    assert_eq!(site.run(&format!("bake 0 {}", bundle.display())).from(), ["jit"]);
    set_mode(&site.workspace, 0o777);
    for jit in ["on", "off"] {
        let done = site.worker("load 0").set("PARBAKE_BUNDLES", &bundle).set("PARBAKE_JIT", jit).run();
        assert_eq!(done.from(), ["bundle"]);
        done.said("; the folder is left alone", 1);
    }
}

#[test]
fn compilers_that_others_may_replace_are_left_alone() {
    let site = Site::new();
    let toolchains = site.path("toolchains");
    std::fs::create_dir(&toolchains).unwrap();
    set_mode(&toolchains, 0o777);
    let worker = |job: &str| {
        let worker = site.worker(job).set("PARBAKE_TOOLCHAINS", &toolchains);
        ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"].into_iter().fold(worker, |w, name| w.set(name, ""))
    };
    let done = worker("obtain 0 sm_90a").run();
    if done.answers[0].from.is_none() {
        done.failed("PB-1501", &["installed toolchains, which are left alone", "may be written by everybody"]);
    }
    assert_eq!(worker("load 0").run().from(), ["jit"]);
    assert_eq!(tree(&toolchains), Vec::<String>::new());
    // The folder of all is fine, that of one compiler or of the kept runtime is not.
    set_mode(&toolchains, 0o755);
    let part = toolchains.join("cuda-12.9");
    std::fs::create_dir_all(part.join("lib")).unwrap();
    set_mode(&part, 0o777);
    let done = worker("obtain 0 sm_90a").run();
    if done.answers[0].from.is_none() {
        done.failed("PB-1501", &["toolchain of CUDA 12.9, which is left alone", "may be written by everybody"]);
    }
    let host = toolchains.join("host");
    std::fs::create_dir(&host).unwrap();
    set_mode(&host, 0o777);
    std::fs::remove_dir_all(site.store()).unwrap();
    assert_eq!(worker("load 0").run().from(), ["jit"]);
    assert_eq!(tree(&host), Vec::<String>::new());
}

#[test]
fn modes_are_documented_and_no_umask_opens_them() {
    for (umask, folders, files) in
        [("077", 0o700, 0o600), ("022", 0o755, 0o644), ("002", 0o755, 0o644), ("000", 0o755, 0o644)]
    {
        let site = Site::new();
        let toolchains = site.path("data/toolchains");
        let worker = site.worker("load 0").set("PARBAKE_TOOLCHAINS", &toolchains);
        assert_eq!(worker.after(&format!("umask {umask}")).run().from(), ["jit"]);
        assert_eq!(mode(&site.workspace), 0o700);
        for made in [site.path("data"), toolchains.clone(), toolchains.join("host")] {
            assert_eq!(mode(&made), folders, "umask {umask}: {}", made.display());
        }
        assert!(tree(&toolchains).iter().any(|name| name.ends_with(".o")));
        for name in tree(&site.workspace) {
            let path = site.workspace.join(&name);
            let expected = if path.is_file() { files } else { folders };
            // Folders of compilers are private.
            let expected = if name == "tmp" { 0o700 } else { expected };
            assert_eq!(mode(&path), expected, "umask {umask}: {name}");
        }
        assert_eq!(site.run("load 0").from(), ["store"]);
    }
}

#[test]
fn a_shared_workspace_is_open_to_its_group_only() {
    let site = Site::new();
    let shared = || site.worker("load 0").set("PARBAKE_WORKSPACE_SHARED", "on").after("umask 077");
    assert_eq!(shared().run().from(), ["jit"]);
    assert_eq!((mode(&site.workspace), mode(&site.entries()[0])), (0o2770, 0o2770));
    assert_eq!(mode(&site.entries()[0].join("kernel.so")), 0o660);
    assert_eq!(shared().run().from(), ["store"]);
    // Whoever does not trust the group does not use it.
    let done = site.worker("load 0").set("PARBAKE_JIT", "off").run();
    done.failed("PB-2002", &["may be written by group "]);
    set_mode(&site.workspace, 0o2777);
    shared().set("PARBAKE_JIT", "off").run().failed("PB-2002", &["may be written by everybody"]);
}

#[test]
fn parts_of_the_workspace_can_be_apart() {
    let site = Site::new();
    let parts = [("PARBAKE_GEN", "sources"), ("PARBAKE_STORE", "kernels"), ("PARBAKE_TMP", "scratch")];
    let worker = || parts.iter().fold(site.worker("load 0"), |worker, (name, part)| worker.set(name, site.path(part)));
    assert_eq!(worker().run().from(), ["jit"]);
    assert_eq!(worker().run().from(), ["store"]);
    assert!(!site.workspace.exists());
    let at = |part: &str| tree(&site.path(part));
    assert!(at("sources").iter().any(|f| f.ends_with(".cu")));
    assert!(at("kernels").iter().any(|f| f.starts_with("v1/") && f.ends_with("/kernel.so")));
    assert!(at("kernels").iter().any(|f| f.starts_with("locks/")));
    assert_eq!(at("scratch"), Vec::<String>::new());
    // On another file system than the store: nothing is renamed from there.
    let Some(_disk) = Mounted::new(&site.path("scratch"), "size=64m,mode=1777") else { return };
    std::fs::remove_dir_all(site.path("kernels")).unwrap();
    let done = worker().run();
    assert_eq!(done.from(), ["jit"]);
    done.said("kept in memory only", 0);
}
