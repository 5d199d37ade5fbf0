//! What a unit in Python imports: `triton`, and files of the kernel tree, spelled as packages below it.
//!
//! Anything else would decide what is compiled without being in a key, so a line that imports is read as one of a few
//! plain forms or refused. A line is read on its own: one in a text that imports nothing may be refused too, and that
//! is the safe side.

use super::{Closure, KernelTree, SourceError};

/// What reaches a module without the word `import`, or a file, or the text of a program.
const REFUSED: [&str; 7] = ["__import__", "__builtins__", "importlib", "eval", "exec", "open", "sys"];

/// The modules that a text imports and that must be files of the tree, by line.
fn imports(file: &str, text: &str) -> Result<Vec<(usize, String)>, SourceError> {
    let mut found = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let line = raw.trim();
        if line.starts_with('#') {
            continue;
        }
        let refuse = || SourceError::Import { file: file.to_owned(), line: i + 1, text: line.to_owned() };
        let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words().any(|word| REFUSED.contains(&word)) {
            return Err(refuse());
        }
        if !words().any(|word| word == "import") {
            continue;
        }
        let module = module(line).ok_or_else(refuse)?;
        if module != "triton" && !module.starts_with("triton.") {
            found.push((i + 1, module.to_owned()));
        }
    }
    Ok(found)
}

/// The module of `import triton.language as tl` or `from a.b import c, d`; only the latter may name files of the tree.
fn module(line: &str) -> Option<&str> {
    if line.contains([';', '\\']) {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    let (module, whole) = match words.next()? {
        "import" => {
            let module = words.next()?;
            let named = match words.next() {
                None => true,
                Some(word) => word == "as" && words.next().is_some() && words.next().is_none(),
            };
            (module, named && (module == "triton" || module.starts_with("triton.")))
        }
        "from" => (words.next()?, words.next() == Some("import")),
        _ => return None,
    };
    let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (whole && module.split('.').all(plain)).then_some(module)
}

/// The closure of a text: every file of the tree that it imports, and what those import. Their names are their paths.
///
/// # Errors
/// An import of something else, or one that is not plainly spelled.
pub(super) fn closure(tree: &KernelTree, file: &str, text: &str) -> Result<Closure, SourceError> {
    let mut closure = Closure::default();
    let mut queue = vec![(file.to_owned(), text.to_owned())];
    while let Some((file, text)) = queue.pop() {
        for (line, module) in imports(&file, &text)? {
            let path = format!("{}.py", module.replace('.', "/"));
            if closure.headers.contains_key(&path) {
                continue;
            }
            if !tree.has(&path) {
                return Err(SourceError::Import { file, line, text: module });
            }
            let text = tree.read(&path)?.text().to_owned();
            closure.headers.insert(path.clone(), text.clone());
            closure.paths.insert(path.clone(), path.clone());
            queue.push((path, text));
        }
    }
    Ok(closure)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &[(&str, &str)] = &[
        ("norm/a/a.py", "import triton\nimport triton.language as tl\nfrom norm.shared import f\n"),
        ("norm/shared.py", "from triton.language import constexpr\n# import os\n\"\"\"Nothing else.\"\"\"\n"),
    ];

    fn scan(text: &str) -> Result<Vec<String>, SourceError> {
        closure(&KernelTree::embedded(TREE), "u.py", text).map(|c| c.headers.into_keys().collect())
    }

    #[test]
    fn files_of_the_tree_are_followed() {
        assert_eq!(scan("from norm.a.a import (\n    a,\n)\n").unwrap(), ["norm/a/a.py", "norm/shared.py"]);
        assert_eq!(scan("KERNEL = 1\nimportant = 2\n").unwrap(), [""; 0]);
    }

    #[test]
    fn everything_else_is_refused_with_its_line() {
        for refused in [
            "import os",
            "import triton, os",
            "import triton; import os",
            "import norm.a.a",
            "from os import path",
            "from . import a",
            "from .a import a",
            "from norm.b import c",
            "from norm.a.a \\",
            "import\\",
            "    import os",
            "if 1: import os",
            "x = __import__('os')",
            "exec('x')",
            "open('/etc/passwd')",
            "tritonx = 1; import tritonx",
            "import tritonx",
        ] {
            let text = format!("x = 1\n{refused}\nimport triton\n");
            match scan(&text) {
                Err(SourceError::Import { line: 2, .. }) => {}
                // Its other half is on the next line.
                Err(SourceError::Import { line: 3, .. }) if refused.ends_with('\\') => {}
                // Without the word `import` on its line it imports nothing, and the next line is read on its own.
                Ok(found) if refused == "from norm.a.a \\" && found.is_empty() => {}
                other => panic!("{refused}: {other:?}"),
            }
        }
    }
}
