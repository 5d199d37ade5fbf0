//! The folders that a user's environment gives.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// `$XDG_DATA_HOME`, else `$HOME/.local/share`, else a private folder in the temporary one. Never a user name look-up:
/// it fails in containers that run under a number.
pub(super) fn data_home(vars: &BTreeMap<String, String>) -> PathBuf {
    home(vars, "XDG_DATA_HOME", ".local/share").unwrap_or_else(|| private_temp().join("data"))
}

/// Folders of installed bundles: the user's, then the system's. Without a home there are only the latter: the private
/// folder that stands in for it holds nothing that was installed.
pub(super) fn installed(vars: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let system = vars.get("XDG_DATA_DIRS").map_or("/usr/local/share:/usr/share", String::as_str);
    // What is not absolute is to be ignored, as the rules for these variables say.
    let system = system.split(':').map(PathBuf::from).filter(|p| p.is_absolute());
    let mut found: Vec<PathBuf> = Vec::new();
    for data in home(vars, "XDG_DATA_HOME", ".local/share").into_iter().chain(system) {
        let folder = data.join("parbake/bundles");
        if !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

pub(super) fn cache_home(vars: &BTreeMap<String, String>) -> PathBuf {
    home(vars, "XDG_CACHE_HOME", ".cache").map_or_else(private_temp, |cache| cache.join("parbake"))
}

fn home(vars: &BTreeMap<String, String>, xdg: &str, below: &str) -> Option<PathBuf> {
    let absolute = |name: &str| vars.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute(xdg).or_else(|| absolute("HOME").map(|h| h.join(below)))
}

fn private_temp() -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    // The owner of this process's own entry in /proc is the effective user.
    let uid = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
    std::env::temp_dir().join(format!("parbake-{uid}"))
}
