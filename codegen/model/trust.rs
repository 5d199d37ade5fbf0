//! Whether a folder may be trusted: what is found in a store or among compilers is run, so whoever may write there
//! runs code as whoever reads there.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who this process is to the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Effective user.
    pub user: u32,
    /// Effective group and the supplementary ones.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Of this process, as the kernel says it. No name is looked up: that fails in containers that run under a number.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().filter_map(|n| n.parse().ok()).collect()
        };
        // Real, effective, saved, file system.
        let effective = |name| numbers(name).get(1).copied().ok_or(io::ErrorKind::InvalidData);
        let mut groups = numbers("Groups:");
        groups.insert(0, effective("Gid:")?);
        Ok(Self { user: effective("Uid:")?, groups })
    }
}

/// A folder that is not trusted: what is found there is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untrusted {
    /// The folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: what is found there is not run", self.path.display(), self.why)
    }
}

impl std::error::Error for Untrusted {}

/// Owner, group and permission bits of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Permission bits.
    pub mode: u32,
}

/// Why a folder is not trusted, if so. Its owner must be this user or the administrator, and nobody else may write into
/// it. `shared` says that the members of one group trust each other: a folder of a group of ours may then belong to any
/// of them, and all of them may write.
#[must_use]
pub fn distrust(folder: Ownership, me: &Identity, shared: bool) -> Option<String> {
    let group = shared && me.groups.contains(&folder.group);
    if folder.mode & 0o002 != 0 {
        return Some(format!("may be written by everybody (mode {:04o})", folder.mode & 0o7777));
    }
    if folder.user != me.user && folder.user != 0 && !group {
        return Some(format!("belongs to user {}, this is user {}", folder.user, me.user));
    }
    if folder.mode & 0o020 != 0 && !group {
        return Some(format!("may be written by group {} (mode {:04o})", folder.group, folder.mode & 0o7777));
    }
    None
}

/// Checks a folder; one that does not exist is fine, because whoever makes it decides who may write.
///
/// # Errors
/// Why it is not trusted.
pub fn check(path: &Path, shared: bool) -> Result<(), Untrusted> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let folder = Ownership { user: metadata.uid(), group: metadata.gid(), mode: metadata.mode() };
    let why = match Identity::of_this_process() {
        Ok(me) => distrust(folder, &me, shared),
        Err(error) => Some(format!("cannot be judged, because /proc cannot be read ({error})")),
    };
    why.map_or(Ok(()), |why| Err(Untrusted { path: path.to_owned(), why }))
}

/// Checks a folder in which private ones are made: it may be everybody's if its sticky bit keeps others from renaming
/// what is not theirs, as that of `/tmp` does.
///
/// # Errors
/// Why what is in it is not safe there.
pub fn check_scratch(path: &Path, shared: bool) -> Result<(), Untrusted> {
    let Err(untrusted) = check(path, shared) else { return Ok(()) };
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let Ok(me) = Identity::of_this_process() else { return Err(untrusted) };
    let sticky = metadata.mode() & 0o1000 != 0;
    if sticky && (metadata.uid() == 0 || metadata.uid() == me.user) { Ok(()) } else { Err(untrusted) }
}

/// Whether something belongs to this user. A link is looked at itself.
#[must_use]
pub fn is_own(path: &Path) -> bool {
    let owner = std::fs::symlink_metadata(path).map(|m| m.uid());
    owner.is_ok_and(|owner| Identity::of_this_process().is_ok_and(|me| me.user == owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_write_decides() {
        let me = Identity { user: 1000, groups: vec![1000, 50] };
        for (user, group, mode, alone, shared) in [
            (1000, 1000, 0o700, true, true),
            (1000, 1000, 0o755, true, true),
            (1000, 7, 0o755, true, true),
            (0, 0, 0o755, true, true),
            (1000, 1000, 0o775, false, true),
            (1000, 7, 0o775, false, false),
            (1001, 50, 0o2770, false, true),
            (1001, 50, 0o755, false, true),
            (1001, 7, 0o755, false, false),
            (0, 0, 0o775, false, false),
            (1000, 1000, 0o777, false, false),
            (0, 0, 0o1777, false, false),
        ] {
            let folder = Ownership { user, group, mode: mode | 0o040_000 };
            let judged = [false, true].map(|shared| distrust(folder, &me, shared).is_none());
            assert_eq!(judged, [alone, shared], "{user}:{group} {mode:o}");
        }
    }

    #[test]
    fn this_process_has_an_identity() {
        let folder = std::fs::metadata("/proc/self").unwrap();
        let me = Identity::of_this_process().unwrap();
        assert_eq!((me.user, me.groups[0]), (folder.uid(), folder.gid()));
        assert!(check(Path::new("/nonexistent"), false).is_ok());
    }
}
