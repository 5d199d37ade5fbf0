//! Kernel sources: where they come from, which files a unit includes, and the digest over them.
//!
//! Kernel code includes by literal `#include "…"` only, spelled relative to `kernels/include` or to `kernels`. The
//! scanner ignores `#if`, so the closure is a superset of what a compiler opens. Files of the host shim are reached
//! only on the host and are no part of a device closure; they enter the host toolchain's identity instead.
//!
//! Kernels in Triton import by `from a.b import c`, where `a/b.py` lies in the tree.

mod python;

use crate::digest::{Digest, KeyFields};
use crate::language::Language;
use crate::op::Op;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Raised when the renderer would produce other text from the same template and context.
pub const RENDERER_SCHEMA: u32 = 1;

/// The folder that holds the host shim, below the kernel tree.
pub const HOST: &str = "host/";

/// The only file of the host shim that kernel code may include.
pub const HOST_HEADER: &str = "host/pb_host.h";

/// Where kernel sources are read from. Paths are relative to the tree, with `/`.
///
/// A tree reads each file once and hashes it at most once; its clones share what was read. So everything that is made
/// of one tree is made of one state of the files, whatever an editor does meanwhile.
#[derive(Clone, Debug)]
pub struct KernelTree {
    place: Place,
    read: Arc<Mutex<HashMap<String, Arc<Source>>>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// A folder, as in a checkout.
    Folder(PathBuf),
    /// Texts inside the library, sorted by path.
    Embedded(&'static [(&'static str, &'static str)]),
}

/// A source file as it was when it was read.
#[derive(Debug)]
pub struct Source {
    text: Cow<'static, str>,
    digest: OnceLock<Digest>,
}

impl Source {
    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The digest of its text.
    #[must_use]
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of(self.text.as_bytes()))
    }
}

/// A source that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("cannot read kernel source `{path}`")]
    Read {
        /// Path below the tree.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An include that names no file of the tree.
    #[error("{file}:{line}: `#include \"{name}\"` names no file under kernels/include or kernels")]
    Missing {
        /// The including file.
        file: String,
        /// Its line.
        line: usize,
        /// What it includes.
        name: String,
    },
    /// An include of a file of the host shim that is not for kernel code.
    #[error("{file}:{line}: `#include \"{name}\"`: of the host shim, kernel code includes `{HOST_HEADER}` only")]
    HostFile {
        /// The including file.
        file: String,
        /// Its line.
        line: usize,
        /// What it includes.
        name: String,
    },
    /// An import of a kernel in Triton that names neither Triton nor a file of the tree.
    #[error(
        "{file}:{line}: kernels in Triton import `triton` and, by `from a.b import c`, files a/b.py under kernels; got `{text}`"
    )]
    Import {
        /// The importing file.
        file: String,
        /// Its line.
        line: usize,
        /// The line's text, or the module.
        text: String,
    },
    /// An include that is not literal, or is a system header.
    #[error("{file}:{line}: kernel code includes by literal `#include \"…\"` only, got `{text}`")]
    NotLiteral {
        /// The including file.
        file: String,
        /// Its line.
        line: usize,
        /// The line's text.
        text: String,
    },
}

impl KernelTree {
    /// The tree in a folder. Nothing is read yet.
    #[must_use]
    pub fn folder(root: PathBuf) -> Self {
        Self { place: Place::Folder(root), read: Arc::default() }
    }

    /// A tree inside the library: texts sorted by path.
    #[must_use]
    pub fn embedded(files: &'static [(&'static str, &'static str)]) -> Self {
        Self { place: Place::Embedded(files), read: Arc::default() }
    }

    /// A file: what the tree saw of it first.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn read(&self, path: &str) -> Result<Arc<Source>, SourceError> {
        // Held while reading: of two threads one reads.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = read.get(path) {
            return Ok(Arc::clone(source));
        }
        let refuse = |source| SourceError::Read { path: path.to_owned(), source };
        let text = match &self.place {
            Place::Folder(root) => Cow::Owned(std::fs::read_to_string(root.join(path)).map_err(refuse)?),
            Place::Embedded(files) => match files.binary_search_by_key(&path, |f| f.0) {
                Ok(i) => Cow::Borrowed(files[i].1),
                Err(_) => return Err(refuse(std::io::ErrorKind::NotFound.into())),
            },
        };
        let source = Arc::new(Source { text, digest: OnceLock::new() });
        read.insert(path.to_owned(), Arc::clone(&source));
        Ok(source)
    }

    /// Whether a file is there.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        if self.read.lock().unwrap_or_else(PoisonError::into_inner).contains_key(path) {
            return true;
        }
        match &self.place {
            Place::Folder(root) => root.join(path).is_file(),
            Place::Embedded(files) => files.binary_search_by_key(&path, |f| f.0).is_ok(),
        }
    }
}

/// The files that a unit includes, by the name under which it includes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closure {
    /// Include name → text.
    pub headers: BTreeMap<String, String>,
    /// Include name → path below the tree.
    pub paths: BTreeMap<String, String>,
}

/// Include names written in a text, with their line numbers.
///
/// Whatever a preprocessor would take as a directive that opens a file is either found or refused, however it is
/// spelled: over spliced lines, behind a comment, with `%:` for `#`, as `#import`. A header that is missed here would be
/// outside of the key.
fn includes(file: &str, text: &str) -> Result<Vec<(usize, String)>, SourceError> {
    let mut found = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate();
    while let Some((i, raw)) = lines.next() {
        let mut line = Cow::Borrowed(raw);
        while let Some(spliced) = line.trim_end().strip_suffix('\\') {
            let next = lines.next().map_or("", |(_, next)| next);
            line = Cow::Owned(format!("{spliced}{next}"));
        }
        let refuse = || SourceError::NotLiteral { file: file.to_owned(), line: i + 1, text: raw.trim().to_owned() };
        // What exists outside of the tree would decide what is compiled.
        if line.contains("__has_include") || line.contains("__has_embed") {
            return Err(refuse());
        }
        // A comment that ends here may have a directive behind it.
        let starts = std::iter::once(0).chain(line.match_indices("*/").map(|(at, _)| at + 2));
        for rest in starts.filter_map(|start| directive(&line[start..])) {
            let literal = rest.strip_prefix("include").map(str::trim_start).and_then(|r| r.strip_prefix('"'));
            match literal.and_then(|r| r.split_once('"')) {
                Some((name, _)) => found.push((i + 1, name.to_owned())),
                None => return Err(refuse()),
            }
        }
    }
    Ok(found)
}

/// What follows the `#` of a directive that opens a file, or that cannot be told from one.
fn directive(text: &str) -> Option<&str> {
    let mut text = text.trim_start();
    // Comments that end before the `#` are cut away by the caller; an open one hides the line, or does not.
    let marked = text.strip_prefix('#').map(str::trim_start);
    if let Some(rest) = marked {
        let opens = |word| rest.starts_with(word);
        return (["include", "import", "embed", "/*"].into_iter().any(opens)).then_some(rest);
    }
    text = text.strip_prefix("%:").or_else(|| text.strip_prefix("??="))?.trim_start();
    // Left as it is: no literal include begins with its mark, so it is refused.
    ["include", "import", "embed", "/*"].into_iter().any(|word| text.starts_with(word)).then_some("%:")
}

/// The device closure of a text: every file it includes, and what those include.
///
/// # Errors
/// An include that is not literal, or that names no file of the tree.
pub fn closure(tree: &KernelTree, file: &str, text: &str) -> Result<Closure, SourceError> {
    let mut closure = Closure::default();
    let mut queue = vec![(file.to_owned(), Cow::Borrowed(text).into_owned())];
    while let Some((file, text)) = queue.pop() {
        for (line, name) in includes(&file, &text)? {
            if name == HOST_HEADER || closure.headers.contains_key(&name) {
                continue;
            }
            if name.starts_with(HOST) {
                return Err(SourceError::HostFile { file, line, name });
            }
            let candidates = [format!("include/{name}"), name.clone()];
            let plain = !name.split('/').any(|part| part.is_empty() || part.starts_with('.'));
            let Some(path) = candidates.iter().find(|p| plain && tree.has(p)) else {
                return Err(SourceError::Missing { file, line, name });
            };
            let text = tree.read(path)?.text().to_owned();
            closure.headers.insert(name.clone(), text.clone());
            closure.paths.insert(name, path.clone());
            queue.push((path.clone(), text));
        }
    }
    Ok(closure)
}

/// The sources of an op: its template and the closure of what the template includes.
#[derive(Clone, Debug)]
pub struct OpSources {
    /// The template's text.
    pub template: String,
    /// What it includes.
    pub closure: Closure,
    /// The digest over all of it.
    pub digest: Digest,
}

impl OpSources {
    /// Reads and hashes the sources of an op.
    ///
    /// # Errors
    /// A file that cannot be read, or a bad include.
    pub fn read(tree: &KernelTree, op: &Op) -> Result<Self, SourceError> {
        let path = op.template();
        let template = tree.read(&path)?;
        let closure = match op.language {
            Language::Cuda => closure(tree, &path, template.text())?,
            // No file includes the parameters, and whoever changes them makes another kernel.
            Language::Triton => {
                let mut imported = python::closure(tree, &path, template.text())?;
                let params = closure(tree, &path, &format!("#include \"{}/params.h\"\n", op.path()))?;
                imported.headers.extend(params.headers);
                imported.paths.extend(params.paths);
                imported
            }
        };
        let mut key =
            KeyFields::new("parbake.sources.v1").with("renderer", RENDERER_SCHEMA).with("template", template.digest());
        for (name, path) in &closure.paths {
            key = key.with(format!("header {name}"), tree.read(path)?.digest());
        }
        Ok(Self { template: template.text().to_owned(), closure, digest: key.finish().digest })
    }
}

/// The digest over what a launcher and a reference are compiled from: definition, parameter struct, launcher,
/// reference, the launch ABI and what the family shares. A library whose launcher has another digest must not launch
/// kernels of this tree.
///
/// # Errors
/// A file that cannot be read.
pub fn binding_digest(tree: &KernelTree, op: &Op) -> Result<Digest, SourceError> {
    let mut files: Vec<String> = ["op.toml", "params.h", "launch.rs", "reference.rs"]
        .iter()
        .map(|part| format!("{}/{part}", op.path()))
        .collect();
    files.push("include/parbake/abi.h".to_owned());
    let shared = format!("{0}/{0}.rs", op.family);
    if tree.has(&shared) {
        files.push(shared);
    }
    let mut key = KeyFields::new("parbake.binding.v1");
    for file in files {
        key = key.with(format!("file {file}"), tree.read(&file)?.digest());
    }
    Ok(key.finish().digest)
}

/// The digest over the declaration of an op's parameters: `params.h` and what it includes. Kernels and launchers of
/// the same digest agree on every byte of the struct, whatever else has changed.
///
/// # Errors
/// A file that cannot be read, or a bad include.
pub fn params_digest(tree: &KernelTree, op: &Op) -> Result<Digest, SourceError> {
    let path = format!("{}/params.h", op.path());
    let text = tree.read(&path)?;
    let mut key = KeyFields::new("parbake.params.v1").with("params.h", text.digest());
    for (name, path) in &closure(tree, &path, text.text())?.paths {
        key = key.with(format!("header {name}"), tree.read(path)?.digest());
    }
    Ok(key.finish().digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &[(&str, &str)] = &[
        ("a/b.cuh", "#include \"parbake/x.cuh\"\n#if 0\n  #  include \"a/c.cuh\"\n#endif\n"),
        ("a/c.cuh", "#pragma once\n"),
        ("include/parbake/x.cuh", "#include \"host/pb_host.h\"\n"),
    ];

    #[test]
    fn closure_is_a_superset_without_the_host_shim() {
        let closure = closure(&KernelTree::embedded(TREE), "u.cu", "#include \"a/b.cuh\"\n").unwrap();
        assert_eq!(closure.headers.keys().collect::<Vec<_>>(), ["a/b.cuh", "a/c.cuh", "parbake/x.cuh"]);
        assert_eq!(closure.paths["parbake/x.cuh"], "include/parbake/x.cuh");
    }

    #[test]
    fn every_spelling_of_an_include_is_found_or_refused() {
        let scan = |text: &str| closure(&KernelTree::embedded(TREE), "u.cu", text).map(|c| c.headers.len());
        for found in [
            "#include \"a/c.cuh\"",
            "\u{feff}#include \"a/c.cuh\"",
            "/* c */ #include \"a/c.cuh\"",
            "/* c\n*/ #include \"a/c.cuh\" // why",
            "#inc\\\nlude \"a/c.cuh\"",
            "#include \\ \n \\\n\"a/c.cuh\"",
            "\t\x0b#\x0cinclude\"a/c.cuh\"",
            "#include \"a/c.cuh\"\r\n",
        ] {
            assert_eq!(scan(found).unwrap(), 1, "{found:?}");
        }
        for refused in [
            "#define H \"a/c.cuh\"\n#include H",
            "#/* c */include \"a/c.cuh\"",
            "#/*\n*/include \"a/c.cuh\"",
            "%:include \"a/c.cuh\"",
            "??=include \"a/c.cuh\"",
            "#include_next \"a/c.cuh\"",
            "#import \"a/c.cuh\"",
            "#embed \"a/c.cuh\"",
            "#include \"a/c.cuh",
            "#include",
            "#include \\",
            "#if __has_include(\"a/c.cuh\")",
        ] {
            let error = scan(refused).unwrap_err();
            assert!(matches!(error, SourceError::NotLiteral { .. }), "{refused:?}: {error}");
        }
        for nothing in
            ["", "// #include is not here", "x = y # include", "#define include 1", "\"*/\" # if", "%:define x"]
        {
            assert_eq!(scan(nothing).unwrap(), 0, "{nothing:?}");
        }
    }

    #[test]
    fn other_includes_are_errors_with_a_place() {
        let error = |text: &str| closure(&KernelTree::embedded(TREE), "u.cu", text).unwrap_err().to_string();
        assert!(error("\n#include <cuda.h>").starts_with("u.cu:2: "));
        assert!(error("#include NAME").contains("literal"));
        assert!(error("#include \"../a/c.cuh\"").contains("names no file"));
        assert!(error("#include \"a/./c.cuh\"").contains("names no file"));
        assert!(error("#include \"./host/pb_host.h\"").contains("names no file"));
        for other in ["host/pb_host.cpp", "host/other.h", "host/", "host/../a/c.cuh"] {
            let text = error(&format!("\n#include \"{other}\""));
            assert!(
                text.starts_with("u.cu:2: ") && text.ends_with("kernel code includes `host/pb_host.h` only"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_tree_reads_a_file_once() {
        let folder = std::env::temp_dir().join(format!("parbake-tree-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.cuh");
        std::fs::write(&file, "first").unwrap();
        let tree = KernelTree::folder(folder.clone());
        let first = tree.read("a.cuh").unwrap();
        std::fs::write(&file, "second").unwrap();
        // The same reading, hence the same digest: nothing is hashed twice.
        assert!(Arc::ptr_eq(&first, &tree.clone().read("a.cuh").unwrap()));
        assert_eq!(first.digest(), Digest::of(b"first"));
        std::fs::remove_file(&file).unwrap();
        assert!(tree.has("a.cuh") && !KernelTree::folder(folder.clone()).has("a.cuh"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_binding_changes_with_each_of_its_files() {
        const OP: &str = r#"{"name":"o","family":"f","summary":"s","params":"p","since":"sm_80","host":true,
            "tolerance":{},"trace":{"op_type":"o","name_prefix":"o","example":[]}}"#;
        let op: Op = serde_json::from_str(OP).unwrap();
        let folder = std::env::temp_dir().join(format!("parbake-binding-{}", std::process::id()));
        let files =
            ["f/f.rs", "f/o/launch.rs", "f/o/op.toml", "f/o/params.h", "f/o/reference.rs", "include/parbake/abi.h"];
        let write = |file: &str, text: &str| {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let tree = || KernelTree::folder(folder.clone());
        let plain = |file: &str| if file.ends_with("params.h") { "#include \"parbake/abi.h\"\n" } else { "text" };
        files.iter().for_each(|file| write(file, plain(file)));
        write("f/o/o.cuh", "text");
        let (first, params) = (binding_digest(&tree(), &op).unwrap(), params_digest(&tree(), &op).unwrap());
        for file in files {
            write(file, &format!("{}// other", plain(file)));
            assert_ne!(binding_digest(&tree(), &op).unwrap(), first, "{file}");
            let declares = file.ends_with(".h");
            assert_eq!(params_digest(&tree(), &op).unwrap() != params, declares, "{file}");
            write(file, plain(file));
        }
        write("f/o/o.cuh", "other");
        assert_eq!(binding_digest(&tree(), &op).unwrap(), first, "kernels have a digest of their own");
        std::fs::remove_file(folder.join("f/f.rs")).unwrap();
        assert_ne!(binding_digest(&tree(), &op).unwrap(), first);
        std::fs::remove_file(folder.join("f/o/params.h")).unwrap();
        assert!(binding_digest(&tree(), &op).unwrap_err().to_string().contains("params.h"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
