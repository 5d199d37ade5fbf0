//! Who made a temporary file: process and host are part of its name, so that whoever finds it later can tell what is
//! still in use from what a killed process left.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of folders begin that stay after a compilation, because somebody asked for them: they have no owner, and
/// are collected by nobody.
pub const KEPT: &str = "parbake-kept-";

/// The process that made something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its id.
    pub process: u32,
    /// When it started, in clock ticks since the system did: ids are used again, by threads too.
    pub started: u64,
    /// Its host, as [`host`] spells it.
    pub host: String,
}

/// The name of this host, reduced to letters, digits, `.` and `_`.
#[must_use]
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let name: String = name.trim().chars().take(64).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// When a process started, by the 22nd field of its `stat`; `None` if there is none of that id. The second field is a
/// name in brackets, which may hold anything.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let end = stat.iter().rposition(|&c| c == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace().nth(19)?.parse().ok()
}

impl Owner {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        let process = std::process::id();
        Self { process, started: started(process).unwrap_or(0), host: host() }
    }

    /// The part of a name that tells the owner: `4711.90210@node7`.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("{}.{}@{}", self.process, self.started, self.host)
    }

    /// A name that no other process and no other thread takes: `stage-4711.90210@node7-1700000000000000000-3`.
    #[must_use]
    pub fn name(&self, prefix: &str) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{}-{}-{count}", self.tag(), since.as_nanos())
    }

    /// The owner that a name tells, whatever stands before and after it.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let (before, after) = name.split_once('@')?;
        let (process, started) = before.rsplit('-').next()?.split_once('.')?;
        let (process, started) = (process.parse().ok()?, started.parse().ok()?);
        let host = after.split('-').next().filter(|host| !host.is_empty())?;
        Some(Self { process, started, host: host.to_owned() })
    }

    /// Whether it is alive; `None` if it is on another host, where nobody here can tell.
    #[must_use]
    pub fn alive(&self) -> Option<bool> {
        (self.host == host()).then(|| started(self.process) == Some(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner() {
        let me = Owner::this();
        let (first, second) = (me.name("stage-"), me.name("stage-"));
        assert_ne!(first, second);
        assert_eq!(Owner::of(&first), Some(me.clone()));
        assert_eq!(me.alive(), Some(true));
        let tagged = Owner::of("compile-12.34@node7.example-x8sFq1").unwrap();
        assert_eq!((tagged.process, tagged.started, tagged.host.as_str()), (12, 34, "node7.example"));
        assert_eq!(tagged.alive(), None);
        for foreign in ["stage-abc", "compile-@x", "compile-1.2@", "x@y", "compile-1@x", "compile-1.@x"] {
            assert_eq!(Owner::of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_dead_are_not_alive() {
        // Process ids end at 2^22.
        let dead = Owner { process: u32::MAX, ..Owner::this() };
        assert_eq!(dead.alive(), Some(false));
        // Nor are those whose id somebody else has now.
        let other = Owner { started: 1, ..Owner::this() };
        assert_eq!(other.alive(), Some(false));
    }
}
