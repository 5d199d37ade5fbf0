//! The registry of all ops: every `op.toml` under the kernel tree, sorted by family and name.

use crate::definition::{self, BadDefinition};
use crate::python;
use parbake_model::op::Op;

pub use parbake_model::glob::glob;
use parbake_model::source::{KernelTree, OpSources, SourceError};
use std::path::Path;

/// A registry that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The kernel folder cannot be listed.
    #[error("cannot list the kernel folder {path}")]
    List {
        /// The folder.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Definitions that cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Definitions(Vec<BadDefinition>),
    /// Two ops of one name.
    #[error("op `{name}` is defined in family `{first}` and in family `{second}`; names are unique")]
    Twice {
        /// The name.
        name: String,
        /// A family.
        first: String,
        /// Another family.
        second: String,
    },
    /// Two Python functions of one name.
    #[error("the Python function `parbake.{name}` would be that of {first} and of {second}; names are unique")]
    Function {
        /// The name.
        name: String,
        /// What bears it.
        first: String,
        /// What also would.
        second: String,
    },
    /// A source of an op cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl RegistryError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::List { .. } => "PB-1102",
            Self::Definitions(_) => "PB-1101",
            Self::Twice { .. } => "PB-1103",
            Self::Function { .. } => "PB-1121",
            Self::Source(_) => "PB-1104",
        }
    }
}

/// An op and its sources.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The definition.
    pub op: Op,
    /// Template, headers and their digest.
    pub sources: OpSources,
}

/// All ops of a kernel tree.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Where they were read from.
    pub tree: KernelTree,
    /// Sorted by family, then name.
    pub entries: Vec<Entry>,
}

impl Registry {
    /// Reads every op under a kernel folder, with its sources.
    ///
    /// # Errors
    /// All definitions that are wrong, or the first source that cannot be read.
    pub fn read(folder: &Path) -> Result<Self, RegistryError> {
        let tree = KernelTree::folder(folder.to_owned());
        let entry = |op| Ok(Entry { sources: OpSources::read(&tree, &op)?, op });
        let entries = definitions(folder, &tree)?.into_iter().map(entry).collect::<Result<_, SourceError>>()?;
        Ok(Self { tree, entries })
    }

    /// The op of that name, or of that `family/name`.
    #[must_use]
    pub fn op(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.op.name == name || e.op.path() == name)
    }
}

/// The definition of every op under a kernel folder, sorted by family and name. Of other sources nothing is read.
///
/// # Errors
/// All definitions that are wrong.
pub fn definitions(folder: &Path, tree: &KernelTree) -> Result<Vec<Op>, RegistryError> {
    let mut ops = Vec::new();
    let mut bad = Vec::new();
    for file in files(folder)? {
        match definition::parse(&file, tree.read(&file)?.text()) {
            Ok(op) => ops.push(op),
            Err(e) => bad.push(e),
        }
    }
    if !bad.is_empty() {
        return Err(RegistryError::Definitions(bad));
    }
    ops.sort_by_key(Op::path);
    let mut by_name: Vec<_> = ops.iter().collect();
    by_name.sort_by_key(|op| &op.name);
    if let Some(w) = by_name.windows(2).find(|w| w[0].name == w[1].name) {
        let (first, second) = (w[0].family.clone(), w[1].family.clone());
        return Err(RegistryError::Twice { name: w[0].name.clone(), first, second });
    }
    python::check(&ops, tree)?;
    Ok(ops)
}

/// Paths of all `op.toml`, two folders down, sorted.
fn files(folder: &Path) -> Result<Vec<String>, RegistryError> {
    let list = |path: &Path| -> Result<Vec<String>, RegistryError> {
        let refuse = |source| RegistryError::List { path: path.display().to_string(), source };
        let names = std::fs::read_dir(path).map_err(refuse)?.filter_map(Result::ok).filter(|e| e.path().is_dir());
        let mut names: Vec<String> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    };
    let mut files = Vec::new();
    for family in list(folder)? {
        for op in list(&folder.join(&family))? {
            let file = format!("{family}/{op}/op.toml");
            if folder.join(&file).is_file() {
                files.push(file);
            }
        }
    }
    Ok(files)
}
