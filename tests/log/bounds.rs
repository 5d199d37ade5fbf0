//! How many dumps there are and what they take is bounded, and a folder that cannot be written fails no call.

use crate::work::{Done, Site, Worker};
use parbake::log::Dumped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system of its own at a folder, until dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&at).output();
        if !mount.is_ok_and(|output| output.status.success()) {
            println!("skipped: needs the right to mount file systems");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Runs workers at the same time.
fn at_once(workers: impl Iterator<Item = Worker>) -> Vec<Done> {
    let spawn = |mut w: Worker| w.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let running: Vec<_> = workers.map(spawn).collect();
    running.into_iter().map(|child| Done::of(child.wait_with_output().unwrap())).collect()
}

fn size(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().flatten().map(|f| f.metadata().unwrap().len()).sum()
}

#[test]
fn the_number_of_dumps_holds_over_processes() {
    let site = Site::new();
    site.worker("rmsnorm f32 2 64").run().answered(&["done"]);
    let job = ["rmsnorm f32 2 64"; 4].join(";");
    let done = at_once((0..8).map(|_| site.worker(&job).level("10").set("PARBAKE_DUMP_COUNT", "5")));
    for done in done {
        assert!(done.said.matches("WARN calls are not dumped any more: 5 dumps").count() <= 1, "{done:?}");
        done.answered(&["done"; 4]);
    }
    assert_eq!(site.dumps().len(), 5);
    assert!(site.dumps().iter().all(|dump| dump.join("outputs.safetensors").is_file()));
    // Making room helps.
    std::fs::remove_dir_all(&site.dumps()[0]).unwrap();
    site.worker(&job).level("10").set("PARBAKE_DUMP_COUNT", "5").run().answered(&["done"; 4]);
    assert_eq!(site.dumps().len(), 5);
}

#[test]
fn the_bytes_of_dumps_hold_over_processes_with_what_is_still_to_be_written() {
    let site = Site::new();
    // 512 KiB of values in each: three fit.
    let job = ["rmsnorm f32 64 1024"; 2].join(";");
    let done = at_once((0..8).map(|_| site.worker(&job).level("10").set("PARBAKE_DUMP_BYTES", "2M")));
    let mut warned = 0;
    for done in done {
        warned += done.said.matches("WARN calls are not dumped any more: ").count();
        done.answered(&["done"; 2]);
    }
    let dumps = site.dumps();
    assert_eq!(dumps.len(), 3, "{dumps:?}");
    assert!(dumps.iter().map(|d| size(d)).sum::<u64>() <= 2 << 20);
    assert!((1..=8).contains(&warned), "{warned}");
}

#[test]
fn what_a_dead_process_left_unfinished_is_removed_and_its_dumps_count() {
    let site = Site::new();
    let stage =
        site.path("workspace/dumps").join(".stage-4194303.1@HOST-1-0".replace("HOST", &parbake::model::owner::host()));
    std::fs::create_dir_all(&stage).unwrap();
    std::fs::set_permissions(site.path("workspace/dumps"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    std::fs::write(stage.join("inputs.safetensors"), [0; 100]).unwrap();
    // One that was launched and never came back keeps what it reserved.
    let dead = site.path("workspace/dumps/20260101T000000-1-1-rmsnorm");
    std::fs::create_dir(&dead).unwrap();
    std::fs::write(dead.join(".reserved"), (1u64 << 20).to_string()).unwrap();
    let worker = || site.worker("rmsnorm f32 2 64").level("10");
    worker().set("PARBAKE_DUMP_BYTES", "1M").run().answered(&["done"]);
    assert!(!stage.exists());
    assert_eq!(site.dumps(), [dead]);
    worker().set("PARBAKE_DUMP_BYTES", "2M").run().answered(&["done"]);
    assert_eq!(site.dumps().len(), 2);
}

#[test]
fn a_disk_that_is_full_fails_no_call_and_leaves_nothing_half_done() {
    let site = Site::new();
    site.worker("rmsnorm f32 64 1024").run().answered(&["done"]);
    let Some(_disk) = Mounted::new(site.path("workspace/dumps"), "size=320k,mode=0700") else { return };
    let done = site.worker("rmsnorm f32 64 1024; rmsnorm f32 64 1024").level("10").run();
    assert_eq!(done.said.matches("WARN ").count(), 1, "{done:?}");
    assert!(done.said.contains("No space left on device"), "{done:?}");
    done.answered(&["done", "done"]);
    // Inputs fitted, outputs did not: what is there says so.
    let [dump] = site.dumps().try_into().unwrap();
    assert!(!dump.join("outputs.safetensors").exists() && !dump.join(".outputs").exists());
    assert_eq!(crate::work::replay(&site.library(), &dump), "ok reference right");
    let left = std::fs::read_dir(site.path("workspace/dumps")).unwrap().flatten();
    let staged = left.filter(|e| e.file_name().to_string_lossy().starts_with(".stage-"));
    assert_eq!(staged.count(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_one_warning() {
    let site = Site::new();
    let worker = || site.worker("rmsnorm f32 2 64; rmsnorm f32 2 64").level("10");
    let done = worker().set("PARBAKE_DUMPS", "/proc/dumps").run();
    assert_eq!(done.said.matches("WARN a call is not dumped to /proc/dumps: ").count(), 1, "{done:?}");
    done.answered(&["done", "done"]);
    let Some(disk) = Mounted::new(site.path("dumps"), "size=1m,mode=0700") else { return };
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status().unwrap().success());
    let done = worker().set("PARBAKE_DUMPS", &disk.0).run();
    assert!(done.said.matches("WARN ").count() == 1 && done.said.contains("Read-only file system"), "{done:?}");
    done.answered(&["done", "done"]);
}

#[test]
fn a_folder_that_others_may_write_is_not_used() {
    let site = Site::new();
    let dumps = site.path("dumps");
    std::fs::create_dir(&dumps).unwrap();
    std::fs::set_permissions(&dumps, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let done = site.worker("rmsnorm f32 2 64").level("10").set("PARBAKE_DUMPS", &dumps).run().answered(&["done"]);
    assert!(done.said.contains("may be written by everybody"), "{done:?}");
    assert_eq!(std::fs::read_dir(&dumps).unwrap().count(), 0);
    // With its sticky bit, as `/tmp`, it will do: the dumps are private.
    std::fs::set_permissions(&dumps, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    site.worker("rmsnorm f32 2 64").level("10").set("PARBAKE_DUMPS", &dumps).run().answered(&["done"]);
    let made = std::fs::read_dir(&dumps).unwrap().flatten().map(|e| e.path()).find(|p| p.is_dir()).unwrap();
    assert!(Dumped::open(&made).is_ok());
}
