//! The workspace, its parts, and the store in it.

use super::{Finding, Section, Severity, open};
use crate::text;
use parbake::cache::{Cache, SETTLED, Standing};
use parbake::store::StoreError;
use parbake::workspace::Workspace;
use parbake_model::Target;
use parbake_model::settings::Config;
use parbake_model::trust;
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Below this, compiling may fail half-way.
const ENOUGH: u64 = 256 << 20;

/// The root, and each part that lies elsewhere.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let workspace = Workspace::of(config);
    let root = workspace.root().to_owned();
    let parts = [
        ("root", "PARBAKE_WORKSPACE", root.clone()),
        ("generated sources", "PARBAKE_GEN", workspace.generated()),
        ("store", "PARBAKE_STORE", workspace.store()),
        ("temporary files", "PARBAKE_TMP", workspace.temporary()),
    ];
    let apart = parts.into_iter().enumerate().filter(|(i, (.., path))| *i == 0 || !path.starts_with(&root));
    let parts = apart.map(|(_, (name, setting, path))| part(&workspace, name, setting, &path));
    parts.chain(Workspace::of_shared_store(config).as_ref().map(shared)).collect()
}

/// The store that several machines share: it is not made, and nothing fails without it.
fn shared(workspace: &Workspace) -> Finding {
    let (setting, folder) = ("PARBAKE_STORE_SHARED", workspace.root());
    if folder.is_dir() {
        return part(workspace, "shared store", setting, folder);
    }
    let what = format!("shared store {}: no folder, or not there; it saves nothing", folder.display());
    let fix = format!("mount it, make it with mkdir, or unset {setting}");
    Finding::not_ok(Section::Workspace, Severity::Warning, what, fix)
}

fn part(workspace: &Workspace, name: &str, setting: &str, path: &Path) -> Finding {
    let section = Section::Workspace;
    let shown = format!("{name} {}", path.display());
    let there = existing(path);
    let (free, system) = (free(&there), file_system(&there));
    let owner = std::fs::metadata(path).ok().map(|m| (m.uid(), m.mode() & 0o7777));
    let facts = json!({
        "part": name, "path": path, "exists": owner.is_some(), "uid": owner.map(|o| o.0),
        "mode": owner.map(|o| format!("{:04o}", o.1)), "free_bytes": free, "file_system": system,
    });
    let mut about = owner.map_or("made when something must be written".to_owned(), |(uid, mode)| {
        format!("of user {uid}, mode {mode:04o}")
    });
    if let Some(bytes) = free {
        about += &format!(", {} free", text::bytes(bytes));
    }
    if let Some(system) = &system {
        about += &format!(", {system}");
    }
    let elsewhere = format!("set {setting} to a folder of yours");
    let not_ok = |severity, what: String, fix: String| Finding::not_ok(section, severity, what, fix);
    // Compilers work in private folders: where these are, anybody may be.
    let scratch = setting == "PARBAKE_TMP";
    let trusted = if scratch { trust::check_scratch(path, workspace.shared()) } else { workspace.trusted(path) };
    let finding = if let Err(untrusted) = trusted {
        let bad = &untrusted.path;
        let fix = match trust::is_own(bad) {
            true if scratch => format!("chmod +t {}, or {elsewhere}", bad.display()),
            true => {
                format!("chmod go-w {}, or {elsewhere}; PARBAKE_WORKSPACE_SHARED=on trusts its group", bad.display())
            }
            false => elsewhere,
        };
        not_ok(Severity::Problem, format!("{untrusted} ({about})"), fix)
    } else if let Err(error) = tempfile::tempfile_in(&there) {
        let what = format!("{shown}: cannot be written ({error}); compiled kernels stay in memory ({about})");
        not_ok(Severity::Warning, what, elsewhere)
    } else if free.is_some_and(|bytes| bytes < ENOUGH) {
        let fix = format!("parbake cache prune --max-size 128M, or {elsewhere}");
        not_ok(Severity::Warning, format!("{shown}: little space: {about}"), fix)
    } else if let Some(hint) = system.as_deref().and_then(hint) {
        not_ok(Severity::Note, format!("{shown}: {about}: {hint}"), format!("for speed, {elsewhere} on a local disk"))
    } else {
        Finding::ok(section, format!("{shown}: {about}"))
    };
    finding.facts(facts)
}

/// The nearest folder above a path that is there.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// What is worth knowing about a file system.
fn hint(system: &str) -> Option<&'static str> {
    match system {
        s if s.starts_with("nfs") || ["cifs", "smb3", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"].contains(&s) => {
            Some(
                "a network file system: entries are safe there, but look-ups cost a round trip, and locks may not reach other hosts, so that two of them compile the same thing",
            )
        }
        s if s.starts_with("fuse") => Some("a file system in user space: look-ups are slower, and locks may not work"),
        "tmpfs" | "ramfs" => Some("it lies in memory: kernels are compiled again after a restart"),
        "overlay" => Some("the writable layer of a container: kernels are compiled again in the next one"),
        _ => None,
    }
}

/// The type of the file system that a folder is on, as the kernel lists it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    mount(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
}

/// The type of the mount with the longest path above a folder; of two at the same path the later one hides the other.
fn mount(table: &str, folder: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in table.lines() {
        let Some((place, system)) = line.split_once(" - ") else { continue };
        let point = place.split(' ').nth(4).map(unescape).unwrap_or_default();
        let depth = Path::new(&point).components().count();
        if folder.starts_with(&point) && best.is_none_or(|(deepest, _)| depth >= deepest) {
            best = system.split(' ').next().map(|system| (depth, system));
        }
    }
    best.map(|(_, system)| system.to_owned())
}

/// Spaces and the like are written as octal numbers there.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain += &part[3..];
            }
            None => plain += part,
        }
    }
    plain
}

/// Free bytes of the file system that a folder is on, as `df` tells.
fn free(folder: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(folder).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let kib: u64 = text.lines().nth(1)?.split_whitespace().rev().nth(2)?.parse().ok()?;
    Some(kib * 1024)
}

/// The entries of the store; with `deep` each is hashed. And the targets of those that the library would take.
pub(super) fn store(config: &Config, deep: bool) -> (Vec<Finding>, BTreeSet<Target>) {
    let section = Section::Store;
    let workspace = Workspace::of(config);
    let library = open(config, Vec::new()).ok();
    let cache = library.as_ref().map_or_else(|| Cache::new(workspace.clone()), Cache::of);
    let listing = cache.list();
    let count = listing.entries.len();
    let bytes: u64 = listing.entries.iter().map(|e| e.bytes).sum();
    let stale: Vec<_> = listing.entries.iter().filter(|e| matches!(e.standing, Standing::Stale(_))).collect();
    let stale_bytes: u64 = stale.iter().map(|e| e.bytes).sum();
    let current = listing.entries.iter().filter(|e| e.standing == Standing::Current && config.cache);
    let warm = current.map(|e| e.target).collect();
    let leftovers = workspace.leftovers(SETTLED);
    let (mut damaged, mut unread) = (Vec::new(), listing.unread.iter().map(ToString::to_string).collect::<Vec<_>>());
    for entry in listing.entries.iter().filter(|_| deep) {
        match cache.verify(entry) {
            Ok(()) => {}
            Err(StoreError::Damaged { path, why }) => damaged.push(format!("{}: {why}", path.display())),
            Err(error) => unread.push(error.to_string()),
        }
    }
    let facts = json!({
        "path": workspace.store(), "entries": count, "bytes": bytes, "stale": stale.len(), "stale_bytes": stale_bytes,
        "damaged": deep.then_some(damaged.len()), "leftovers": leftovers.count, "leftover_bytes": leftovers.bytes,
    });
    let looked = if deep { ", all hashed" } else { "" };
    let what = format!("{}, {}{looked}", text::entries(count), text::bytes(bytes));
    let mut found = vec![Finding::ok(section, what).facts(facts)];
    let mut add = |severity, what: String, fix: &str, details| {
        found.push(Finding { details, ..Finding::not_ok(section, severity, what, fix) });
    };
    if !damaged.is_empty() {
        let what = format!("{} damaged", text::entries(damaged.len()));
        add(Severity::Problem, what, "parbake cache prune --damaged; each is compiled anew when it is needed", damaged);
    }
    if !unread.is_empty() {
        let what = format!("{} could not be read", text::entries(unread.len()));
        add(Severity::Warning, what, "check the disk and the permissions below it", unread);
    }
    if !stale.is_empty() {
        let what = format!("{} stale, {}", text::entries(stale.len()), text::bytes(stale_bytes));
        add(Severity::Note, what, "parbake cache prune --stale", Vec::new());
    }
    if leftovers.count > 0 {
        let number = text::count(leftovers.count, "leftover");
        let what = format!("{number} of killed processes, {}", text::bytes(leftovers.bytes));
        add(Severity::Note, what, "parbake cache prune", Vec::new());
    }
    (found, warm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_is_the_one_that_counts() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 22 0:40 / /export rw shared:1 - nfs4 server:/export rw\n\
                     31 30 0:41 / /export/my\\040tmp rw - tmpfs tmpfs rw\n\
                     32 31 0:42 / /export/my\\040tmp rw - ramfs ramfs rw\n\
                     33 22 0:43 / /exported rw - fuse.sshfs x rw\n";
        for (path, system) in [
            ("/", "ext4"),
            ("/etc", "ext4"),
            ("/export", "nfs4"),
            ("/export/a/b", "nfs4"),
            ("/export/my tmp/x", "ramfs"),
            ("/exported/x", "fuse.sshfs"),
        ] {
            assert_eq!(mount(table, Path::new(path)).as_deref(), Some(system), "{path}");
        }
        assert_eq!(mount("", Path::new("/")), None);
        assert!(hint("nfs4").is_some_and(|h| h.contains("network")) && hint("ext4").is_none());
        assert!(file_system(Path::new("/")).is_some() && free(Path::new("/")).is_some());
    }
}
