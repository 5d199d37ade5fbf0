//! How many compilers run at once: as many as there are processors, unless memory is short.
//!
//! What is free is the least of what the machine and each control group above this process have free. A share of it is
//! left to everybody else, because whoever runs out of memory kills the largest process, which may not be a compiler.

use super::Kind;
use std::path::{Path, PathBuf};

/// What is left to others, at least.
const RESERVE: u64 = 256 << 20;
/// And as a share of what is free: an eighth.
const RESERVED_SHARE: u64 = 8;

/// What one compilation takes, generously.
#[must_use]
pub fn estimate(kind: Kind) -> u64 {
    match kind {
        Kind::Nvrtc => 150 << 20,
        Kind::Triton => 250 << 20,
        Kind::Nvcc | Kind::Host => 500 << 20,
    }
}

/// How many compilers of that size run at once. `available` is what is free; `limit`, if there is one, is what somebody
/// allows instead, and is used up whole. One always runs: it may need less than was thought.
#[must_use]
pub fn jobs(processors: usize, available: Option<u64>, limit: Option<u64>, estimate: u64) -> usize {
    let free = available.map(spare);
    let Some(budget) = limit.or(free) else { return processors.max(1) };
    let fitting = usize::try_from(budget / estimate.max(1)).unwrap_or(usize::MAX);
    fitting.clamp(1, processors.max(1))
}

/// What of the bytes that are free is not left to others.
#[must_use]
pub fn spare(free: u64) -> u64 {
    free.saturating_sub(RESERVE.max(free / RESERVED_SHARE))
}

/// The memory of a process, in KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// What it has now.
    pub now: u64,
    /// The most that it had since it began, or since [`forget_peak`].
    pub peak: u64,
}

/// The memory of a process, by its id or `self`; `None` if the kernel does not say.
#[must_use]
pub fn resident_kib(process: &str) -> Option<Resident> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    Some(Resident { now: field("VmRSS:")?, peak: field("VmHWM:")? })
}

/// Lets the peak of this process begin anew. Where that is not possible it stays what it was.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that are free for this process; `None` if the kernel does not say.
#[must_use]
pub fn available() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_meminfo(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = folders(&groups, Path::new("/sys/fs/cgroup")).into_iter().filter_map(|folder| in_group(&folder));
    groups.chain(machine).min()
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders of the control groups that bound this process's memory, innermost first: a limit of any of them counts.
/// In a container the path is often one of the host's that is not there; the mount's top is the container's own then.
fn folders(groups: &str, mount: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let tops = match controllers {
            "" => vec![mount.to_owned(), mount.join("unified")],
            c if c.split(',').any(|c| c == "memory") => vec![mount.join("memory")],
            _ => continue,
        };
        for top in tops {
            let below = Path::new(path.trim_start_matches('/'));
            found.extend(below.ancestors().map(|group| top.join(group)));
        }
    }
    found
}

/// What a control group has free: its limit less what is in use, where pages of files that can be dropped do not count.
fn in_group(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, used) = number("memory.max")
        .zip(number("memory.current"))
        .or_else(|| number("memory.limit_in_bytes").zip(number("memory.usage_in_bytes")))?;
    let stat = read("memory.stat").unwrap_or_default();
    let dropped = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let dropped = dropped("total_inactive_file").or_else(|| dropped("inactive_file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(dropped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;

    #[test]
    fn memory_bounds_processors() {
        for (processors, available, limit, estimate, expected) in [
            // 16 GB and 4 processors, where 16 compilers once took the whole machine down.
            (4, Some(16 * GB), None, 500 * MB, 4),
            (4, Some(16 * GB), None, 3 * GB, 4),
            (4, Some(16 * GB), None, 5 * GB, 2),
            // Many processors and little memory, as in a container.
            (64, Some(8 * GB), None, 500 * MB, 14),
            (64, Some(8 * GB), None, 150 * MB, 47),
            (128, Some(2 * GB), None, 500 * MB, 3),
            // One always runs.
            (8, Some(300 * MB), None, 500 * MB, 1),
            (8, Some(0), None, 500 * MB, 1),
            (0, None, None, 500 * MB, 1),
            // What is allowed is used up whole, and may exceed what seems free.
            (64, Some(GB), Some(8 * GB), 500 * MB, 16),
            (64, Some(64 * GB), Some(GB), 500 * MB, 2),
            // Nobody knows.
            (12, None, None, 500 * MB, 12),
        ] {
            let got = jobs(processors, available, limit, estimate);
            assert_eq!(
                got, expected,
                "{processors} processors, {available:?} free, {limit:?} allowed, {estimate} each"
            );
        }
    }

    #[test]
    fn control_groups_bound_what_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(path.join(name), text).unwrap());
        };
        group(
            "a",
            &[("memory.max", "1000\n"), ("memory.current", "600\n"), ("memory.stat", "anon 1\ninactive_file 100\n")],
        );
        group("a/b", &[("memory.max", "max\n"), ("memory.current", "500\n")]);
        group("memory/x", &[("memory.limit_in_bytes", "700\n"), ("memory.usage_in_bytes", "900\n")]);
        let free = |groups: &str| folders(groups, folder.path()).iter().filter_map(|f| in_group(f)).min();
        assert_eq!(free("0::/a/b\n"), Some(500));
        assert_eq!(free("4:memory:/x\n3:cpuset:/\n0::/\n"), Some(0));
        assert_eq!(free("4:memory:/not/here\n"), None);
        assert_eq!(in_meminfo("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 * MB));
        assert!(available().is_none_or(|bytes| bytes > 0));
        let own = resident_kib("self").unwrap();
        assert!(own.now > 0 && own.peak >= own.now / 2 && resident_kib("0").is_none());
    }
}
