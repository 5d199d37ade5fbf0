//! The Python environments in question: the one that this code was installed into, and the active one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders of packages that this code was installed into with pip: those around `parbake/libparbake.so`, or of the
/// environment whose `bin` has this program. Empty if it was not installed so.
#[must_use]
pub fn packages() -> Vec<PathBuf> {
    if let Some(folder) = of_library() {
        return vec![folder];
    }
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().filter(|folder| folder.ends_with("bin")).and_then(Path::parent).map(of).unwrap_or_default()
}

/// The folder of packages around `parbake/libparbake.so`, if this code is that file.
#[must_use]
pub fn of_library() -> Option<PathBuf> {
    let library = own_file().filter(|file| file.ends_with("parbake/libparbake.so"))?;
    library.parent().and_then(Path::parent).map(Path::to_owned)
}

/// Those of the environment that is active in the shell, if there is one.
pub(super) fn active() -> Vec<PathBuf> {
    let environment = std::env::var_os("VIRTUAL_ENV").filter(|v| !v.is_empty());
    environment.map(|root| of(Path::new(&root))).unwrap_or_default()
}

/// The folders of packages of an environment, each Python's.
fn of(environment: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<PathBuf> =
        std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten().map(|e| e.path()).collect();
    pythons.retain(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")));
    pythons.sort();
    // The second is where Debian's Python installs to.
    let folders = pythons.iter().flat_map(|p| ["site-packages", "dist-packages"].map(|name| p.join(name)));
    folders.filter(|path| path.is_dir()).collect()
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is one of this code, and there is room for the answer.
    let found = unsafe { libc::dladdr(own_file as *const libc::c_void, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: the loader filled it in.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the loader's names are terminated, and stay as long as this code is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_an_environment_are_those_of_its_pythons() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["python3.13/site-packages", "python3.9/dist-packages", "python3.12", "pypy3/site-packages"] {
            std::fs::create_dir_all(root.path().join("lib").join(folder)).unwrap();
        }
        let found = of(root.path()).into_iter().map(|p| p.strip_prefix(root.path()).unwrap().display().to_string());
        assert_eq!(found.collect::<Vec<_>>(), ["lib/python3.13/site-packages", "lib/python3.9/dist-packages"]);
        // A test program was installed by nobody.
        assert!(packages().is_empty());
        assert!(own_file().is_some());
    }
}
