//! What killed processes leave in a workspace, and its collection by age.
//!
//! Something is removed only if it is old by the clock of its own file system, its owner holds no lock on it, and the
//! process in its name does not live on this host. A clock that jumps can therefore not take anything from a live
//! process here, and times in the future are never old.

use crate::workspace::Workspace;
use parbake_model::owner::Owner;
use parbake_model::trust;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How old leftovers are when they are collected unasked.
const AGE: Duration = Duration::from_secs(24 * 3600);
/// How long a lock file was not taken before it goes. They are empty but for a line.
const LOCK_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long compressed frames are kept that no bake used.
const FRAME_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How the name of an entry begins that is being removed.
pub(crate) const PRUNED: &str = "pruned-";
/// Its time says when leftovers were last collected.
const STAMP: &str = "collected";

/// What was removed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Collected {
    /// Files and folders.
    pub count: usize,
    /// Bytes in them.
    pub bytes: u64,
}

impl Workspace {
    /// Removes what killed processes left and is older than that: unfinished entries, entries that were put aside
    /// because they are damaged or were being removed, folders of compilers, files of locks that nobody took for a week,
    /// compressed frames that no bake used for a month.
    /// What cannot be removed stays.
    pub fn collect_leftovers(&self, older_than: Duration) -> Collected {
        let mut collected = Collected::default();
        let Some(now) = self.stamp() else { return collected };
        for path in self.find_leftovers(now, older_than) {
            collected.remove(&path);
        }
        for path in self.idle_locks(now, older_than) {
            // Held while removing: whoever waits for it sees, once it gets the lock, that its file is no longer there.
            if let Ok(lock) = File::options().write(true).open(&path)
                && lock.try_lock().is_ok()
            {
                collected.remove(&path);
            }
        }
        if collected.count > 0 {
            let Collected { count, bytes } = collected;
            tracing::info!(workspace = %self.root().display(), count, bytes, "leftovers of killed processes were removed");
        }
        collected
    }

    /// What would be collected now, by this host's clock. Only reads.
    #[must_use]
    pub fn leftovers(&self, older_than: Duration) -> Collected {
        let now = SystemTime::now();
        let free = |path: &PathBuf| File::open(path).is_ok_and(|lock| lock.try_lock().is_ok());
        let locks = self.idle_locks(now, older_than).filter(free).collect::<Vec<_>>();
        let all = self.find_leftovers(now, older_than).into_iter().chain(locks);
        all.fold(Collected::default(), |sum, path| Collected { count: sum.count + 1, bytes: sum.bytes + size(&path) })
    }

    fn find_leftovers(&self, now: SystemTime, older_than: Duration) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for (folder, prefixes) in [
            (self.staging(), &["stage-", "damaged-", PRUNED][..]),
            (self.temporary(), &["compile-"]),
            (self.generated(), &["stage-"]),
        ] {
            // Where compilers work may be everybody's.
            let anybodys = folder == self.temporary() && self.works_elsewhere();
            if !anybodys && self.trusted(&folder).is_err() {
                continue;
            }
            found.extend(entries(&folder).filter(|path| {
                let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                let ours = prefixes.iter().any(|prefix| name.starts_with(prefix)) && (!anybodys || trust::is_own(path));
                ours && is_old(path, now, demanded(name, older_than)) && !is_used(path, name)
            }));
        }
        if self.trusted(&self.frames()).is_ok() {
            found.extend(entries(&self.frames()).filter(|path| is_old(path, now, FRAME_AGE.max(older_than))));
        }
        found
    }

    fn idle_locks(&self, now: SystemTime, older_than: Duration) -> impl Iterator<Item = PathBuf> {
        entries(&self.locks()).filter(move |path| is_old(path, now, older_than.max(LOCK_AGE)))
    }

    /// Collects leftovers at most once in a process and once a day for each store: after something was published, when a folder or
    /// two more to look at cost nothing beside the compilation.
    pub(crate) fn collect_now_and_then(&self) {
        static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        if !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(self.staging()) {
            return;
        }
        let last = std::fs::metadata(self.staging().join(STAMP)).and_then(|m| m.modified());
        // A stamp in the future, left while the clock was wrong, is no reason to wait for that day.
        let recent = last.is_ok_and(|last| SystemTime::now().duration_since(last).is_ok_and(|age| age < AGE));
        if !recent {
            self.collect_leftovers(AGE);
        }
    }

    /// Writes the stamp and gives its time: what now is for the file system, which may be another host's.
    fn stamp(&self) -> Option<SystemTime> {
        let path = self.make(self.staging()).ok()?.join(STAMP);
        let mut file = self.create().truncate(true).open(&path).ok()?;
        self.share(&path, 0o660);
        std::io::Write::write_all(&mut file, b"\n").ok()?;
        file.metadata().and_then(|m| m.modified()).ok()
    }
}

impl Collected {
    fn remove(&mut self, path: &Path) {
        let bytes = size(path);
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match removed {
            Ok(()) => {
                self.count += 1;
                self.bytes += bytes;
            }
            Err(error) => tracing::debug!(path = %path.display(), %error, "a leftover stays"),
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path())
}

/// Bytes of a file, or of all files below a folder. Links are not followed.
pub(crate) fn size(path: &Path) -> u64 {
    match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_dir() => entries(path).map(|p| size(&p)).sum(),
        Ok(m) => m.len(),
        Err(_) => 0,
    }
}

fn is_old(path: &Path, now: SystemTime, age: Duration) -> bool {
    let modified = std::fs::symlink_metadata(path).and_then(|m| m.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|since| since >= age))
}

/// What was put aside is used by nobody.
fn is_aside(name: &str) -> bool {
    name.starts_with("damaged-") || name.starts_with(PRUNED)
}

/// How old something must be at least. Of a process on another host only the lock tells whether it lives, and locks may
/// not reach from there: it gets the full time, whoever asks.
fn demanded(name: &str, older_than: Duration) -> Duration {
    let here = is_aside(name) || Owner::of(name).is_some_and(|owner| owner.alive().is_some());
    if here { older_than } else { older_than.max(AGE) }
}

/// Whether somebody holds the lock of a folder.
pub(crate) fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn is_used(path: &Path, name: &str) -> bool {
    !is_aside(name) && (is_locked(path) || Owner::of(name).and_then(|owner| owner.alive()).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    struct Place {
        _folder: tempfile::TempDir,
        workspace: Workspace,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { workspace: Workspace::new(folder.path().join("w")), _folder: folder }
        }

        /// A folder with 100 bytes in it, last changed that long ago.
        fn leave(&self, parent: PathBuf, name: &str, age: i64) -> PathBuf {
            let path = self.workspace.make(parent).unwrap().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("kernel.so"), [0; 100]).unwrap();
            set_age(&path, age);
            path
        }
    }

    fn set_age(path: &Path, seconds: i64) {
        let age = Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 { SystemTime::now() + age } else { SystemTime::now() - age };
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn what_is_old_and_dead_goes_and_the_rest_stays() {
        let place = Place::new();
        let (stage, compile) = (place.workspace.staging(), place.workspace.temporary());
        let this = Owner::this();
        let (dead, live) = (Owner { process: u32::MAX, ..this.clone() }.tag(), this.tag());
        let two_days = 2 * 24 * 3600;
        let gone = [
            place.leave(stage.clone(), &format!("stage-{dead}-1-0"), two_days),
            place.leave(stage.clone(), "stage-1.1@elsewhere-1-0", two_days),
            place.leave(stage.clone(), &format!("damaged-{live}-1-0"), two_days),
            place.leave(compile.clone(), &format!("compile-{dead}-abc"), two_days),
        ];
        let kept = [
            place.leave(stage.clone(), &format!("stage-{dead}-2-0"), 3600),
            // A live process on this host, however old its folder looks: the clock may have jumped.
            place.leave(stage.clone(), &format!("stage-{live}-2-0"), 100 * two_days),
            place.leave(compile, &format!("compile-{live}-abc"), 100 * two_days),
            // From the future.
            place.leave(stage.clone(), &format!("stage-{dead}-3-0"), -two_days),
            // Not ours.
            place.leave(stage.clone(), "somebody's", two_days),
        ];
        // Alive on another host, which shows by its lock only.
        let locked = place.leave(stage, "stage-1.1@elsewhere-2-0", two_days);
        let lock = File::open(&locked).unwrap();
        lock.lock().unwrap();
        set_age(&locked, two_days);

        assert_eq!(place.workspace.collect_leftovers(DAY), Collected { count: 4, bytes: 400 });
        assert!(gone.iter().all(|p| !p.exists()));
        assert!(kept.iter().chain([&locked]).all(|p| p.exists()));
        drop(lock);
        assert_eq!(place.workspace.collect_leftovers(DAY).count, 1);
    }

    #[test]
    fn what_another_host_works_in_is_left_for_a_day_whoever_asks() {
        let place = Place::new();
        let (stage, compile) = (place.workspace.staging(), place.workspace.temporary());
        let dead = Owner { process: u32::MAX, ..Owner::this() }.tag();
        let here = place.leave(compile.clone(), &format!("compile-{dead}-abc"), 3600);
        let there = [(&compile, "compile-1.1@elsewhere-abc"), (&stage, "stage-1.1@elsewhere-1-0")]
            .map(|(parent, name)| place.leave(parent.clone(), name, 3600));
        assert_eq!(place.workspace.leftovers(Duration::from_secs(60)).count, 1);
        assert_eq!(place.workspace.collect_leftovers(Duration::from_secs(60)).count, 1);
        assert!(!here.exists() && there.iter().all(|p| p.exists()));
        there.iter().for_each(|p| set_age(p, 2 * 24 * 3600));
        let lock = File::open(&there[0]).unwrap();
        lock.lock().unwrap();
        assert_eq!(place.workspace.collect_leftovers(Duration::from_secs(60)).count, 1);
        assert!(there[0].exists());
    }

    #[test]
    fn what_is_ours_goes_from_a_folder_of_everybody_too() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let settings =
            [("PARBAKE_WORKSPACE", path(folder.path().join("w"))), ("PARBAKE_TMP", path(folder.path().into()))];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let workspace = Workspace::of(&parbake_model::settings::Config::from_pairs(settings).unwrap());
        let dead = Owner { process: u32::MAX, ..Owner::this() }.tag();
        let [ours, foreign] = ["a", "b"].map(|n| folder.path().join(format!("compile-{dead}-{n}")));
        for path in [&ours, &foreign] {
            std::fs::create_dir(path).unwrap();
            set_age(path, 2 * 24 * 3600);
        }
        // Who cannot give files away has two of his own.
        let given = chown(&foreign, Some(1234), None).is_ok();
        assert_eq!(workspace.collect_leftovers(DAY).count, if given { 1 } else { 2 });
        assert_eq!((ours.exists(), foreign.exists()), (false, given));
    }

    #[test]
    fn a_lock_that_is_held_stays_and_an_old_one_goes() {
        let place = Place::new();
        let folder = place.workspace.make(place.workspace.locks()).unwrap();
        let [held, old, new] = ["held", "old", "new"].map(|name| folder.join(name));
        for path in [&held, &old, &new] {
            std::fs::write(path, "process 1\n").unwrap();
        }
        let lock = File::open(&held).unwrap();
        lock.lock().unwrap();
        set_age(&held, 8 * 24 * 3600);
        set_age(&old, 8 * 24 * 3600);
        set_age(&new, 6 * 24 * 3600);
        assert_eq!(place.workspace.collect_leftovers(Duration::ZERO).count, 1);
        assert!(held.exists() && !old.exists() && new.exists());
    }
}
