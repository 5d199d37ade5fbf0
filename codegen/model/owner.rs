//! Who made a temporary file: process and host are part of its name, so that whoever finds it later can tell what is
//! still in use from what a killed process left.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of folders begin that stay after a compilation, because somebody asked for them: they have no owner, and
/// are collected by nobody.
pub const KEPT: &str = "parbake-kept-";

/// The process that made something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its id.
    pub process: u32,
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

impl Owner {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        Self { process: std::process::id(), host: host() }
    }

    /// A name that no other process and no other thread takes: `stage-4711@node7-1700000000000000000-3`.
    #[must_use]
    pub fn name(&self, prefix: &str) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{}@{}-{}-{count}", self.process, self.host, since.as_nanos())
    }

    /// The owner that a name tells, whatever stands before and after it.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let (before, after) = name.split_once('@')?;
        let process = before.rsplit('-').next()?.parse().ok()?;
        let host = after.split('-').next().filter(|host| !host.is_empty())?;
        Some(Self { process, host: host.to_owned() })
    }

    /// Whether it is alive; `None` if it is on another host, where nobody here can tell.
    #[must_use]
    pub fn alive(&self) -> Option<bool> {
        (self.host == host()).then(|| Path::new("/proc").join(self.process.to_string()).exists())
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
        let tagged = Owner::of("compile-12@node7.example-x8sFq1").unwrap();
        assert_eq!((tagged.process, tagged.host.as_str(), tagged.alive()), (12, "node7.example", None));
        for foreign in ["stage-abc", "compile-@x", "compile-1@", "x@y"] {
            assert_eq!(Owner::of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_dead_are_not_alive() {
        // Process ids end at 2^22.
        let dead = Owner { process: u32::MAX, host: host() };
        assert_eq!(dead.alive(), Some(false));
    }
}
