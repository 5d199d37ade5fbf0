//! An op's `api.py`: functions written by hand, which arrange what others call in another way and call ours. They are
//! copied into the family's module.

use crate::definition::{BadDefinition, Complaint};
use parbake_model::function::{TARGET, is_identifier};
use parbake_model::op::Op;
use parbake_model::source::KernelTree;

/// The only module that it may import from.
const HELPERS: &str = "parbake._arrays";

/// What is in one.
#[derive(Default)]
pub(crate) struct Api {
    /// Names that it imports.
    pub(crate) imports: Vec<String>,
    /// Its public functions.
    pub(crate) functions: Vec<Signature>,
    /// Functions and constants that only it uses.
    pub(crate) private: Vec<String>,
    /// Everything but the imports.
    pub(crate) body: String,
}

/// A public function.
pub(crate) struct Signature {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments as they are written, with `*`.
    pub(crate) arguments: Vec<String>,
}

/// Its path below the kernel tree.
pub(crate) fn path(op: &Op) -> String {
    format!("{}/api.py", op.path())
}

/// Reads that of an op.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(op: &Op, tree: &KernelTree) -> Result<Api, BadDefinition> {
    let file = path(op);
    let refuse = |complaints: Vec<(usize, String)>| {
        let complaint = |(line, message)| Complaint { line, column: 1, message };
        Err(BadDefinition { file: file.clone(), complaints: complaints.into_iter().map(complaint).collect() })
    };
    match (tree.has(&file), op.api.is_empty()) {
        (false, true) => return Ok(Api::default()),
        (false, false) => {
            return refuse(vec![(1, "op.toml lists functions in `api`, and the file is not there".to_owned())]);
        }
        (true, true) => return refuse(vec![(1, "op.toml lists no function of it in `api`".to_owned())]),
        (true, false) => {}
    }
    match tree.read(&file) {
        Ok(source) => parse(source.text(), &op.api).or_else(refuse),
        Err(error) => refuse(vec![(1, error.to_string())]),
    }
}

fn parse(text: &str, public: &[String]) -> Result<Api, Vec<(usize, String)>> {
    let (mut api, mut wrong) = (Api::default(), Vec::new());
    let lines: Vec<&str> = text.lines().collect();
    let mut dropped = vec![false; lines.len()];
    let logical = logical_lines(&lines);
    for (i, &(first, last)) in logical.iter().enumerate() {
        let statement = lines[first..=last].join("\n");
        let at = first + 1;
        if statement.starts_with([' ', '\t']) {
            continue;
        }
        if let Some(names) = statement.strip_prefix(&format!("from {HELPERS} import ")) {
            let names = names.replace(['(', ')', '\n'], " ");
            api.imports.extend(names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned));
            dropped[first..=last].fill(true);
        } else if i == 0 && statement.starts_with("\"\"\"") {
            dropped[first..=last].fill(true);
        } else if let Some(rest) = statement.strip_prefix("def ") {
            let name = rest.split('(').next().unwrap_or_default().trim();
            if name.starts_with('_') {
                api.private.push(name.to_owned());
                continue;
            }
            let arguments = arguments(rest);
            let documented = logical.get(i + 1).is_some_and(|&(l, _)| lines[l].trim_start().starts_with("\"\"\""));
            if !public.iter().any(|p| p == name) {
                wrong.push((
                    at,
                    format!("`{name}` is not in `api` of op.toml: what is no public function begins with `_`"),
                ));
            } else if !documented {
                wrong.push((at, format!("`{name}` has no docstring")));
            } else if arguments.last().is_none_or(|a| *a != format!("{TARGET}=None")) {
                wrong.push((at, format!("the last argument of `{name}` is `{TARGET}=None`, which it passes on")));
            }
            api.functions.push(Signature { name: name.to_owned(), arguments });
        } else if let (true, Some((name, _))) = (statement.starts_with('_'), statement.split_once(" = ")) {
            api.private.push(name.trim().to_owned());
        } else {
            wrong.push((
                at,
                format!("not here: only imports from {HELPERS}, functions, and constants that begin with `_`"),
            ));
        }
    }
    if let Some(name) = api.imports.iter().find(|n| !is_identifier(n)) {
        wrong.push((1, format!("`{name}` is no plain name to import")));
    }
    for name in public.iter().filter(|n| api.functions.iter().all(|f| &f.name != *n)) {
        wrong.push((1, format!("op.toml lists `{name}` in `api`, and there is no such function")));
    }
    let kept = lines.iter().zip(&dropped).filter(|(_, dropped)| !**dropped).map(|(line, _)| format!("{line}\n"));
    api.body = kept.collect::<String>().trim_matches('\n').to_owned() + "\n";
    if wrong.is_empty() { Ok(api) } else { Err(wrong) }
}

/// The arguments in the first brackets.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut all, mut current) = (0, Vec::new(), String::new());
    for c in text.chars().skip_while(|c| *c != '(') {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            all.push(std::mem::take(&mut current));
        } else if depth > 1 || c != '(' {
            current.push(c);
        }
        if depth == 0 {
            break;
        }
    }
    let plain = all.iter().map(|a| a.split_whitespace().collect::<Vec<_>>().join(" "));
    plain.filter(|a| !a.is_empty()).collect()
}

/// First and last line of each statement, without blank lines and comments.
fn logical_lines(lines: &[&str]) -> Vec<(usize, usize)> {
    let (mut found, mut begun) = (Vec::new(), None);
    let (mut depth, mut quote): (i32, Option<&str>) = (0, None);
    for (number, line) in lines.iter().enumerate() {
        if begun.is_none() && (line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        let first = *begun.get_or_insert(number);
        let mut rest = *line;
        while let Some(c) = rest.chars().next() {
            if let Some(open) = quote {
                if rest.starts_with('\\') {
                    let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
                    rest = &rest[1 + escaped..];
                    continue;
                }
                if let Some(after) = rest.strip_prefix(open) {
                    (quote, rest) = (None, after);
                    continue;
                }
            } else if let Some(open) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|q| rest.starts_with(q)) {
                (quote, rest) = (Some(open), &rest[open.len()..]);
                continue;
            } else {
                match c {
                    '#' => break,
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
            }
            rest = &rest[c.len_utf8()..];
        }
        let continued = depth > 0 || quote.is_some() || line.ends_with('\\');
        if !continued {
            found.push((first, number));
            begun = None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#""""Another way to call it: (unbalanced."""

from parbake._arrays import (
    permute,
    split,
)

# Names of layouts.
_LAYOUTS = {"NHD": 0, "HND": 1}


def append(key, cache=(None, 1), kv_layout="NHD", *, target=None):
    """Appends.

def no_function(): this is text.
    """
    return _inner(key, _LAYOUTS[kv_layout], target=target)


def _order(x):  # )
    return permute(x, (0, 1))
"#;

    fn complaints(text: &str) -> Vec<String> {
        let found = parse(text, &["append".to_owned()]).err().unwrap_or_default();
        found.into_iter().map(|(line, message)| format!("{line}: {message}")).collect()
    }

    #[test]
    fn imports_are_hoisted_and_functions_found() {
        let api = parse(GOOD, &["append".to_owned()]).ok().unwrap();
        assert_eq!(api.imports, ["permute", "split"]);
        assert_eq!(api.private, ["_LAYOUTS", "_order"]);
        let [function] = &api.functions[..] else { panic!("one public function") };
        assert_eq!(function.name, "append");
        assert_eq!(function.arguments, ["key", "cache=(None, 1)", "kv_layout=\"NHD\"", "*", "target=None"]);
        assert!(api.body.starts_with("# Names of layouts.\n_LAYOUTS") && api.body.ends_with("(0, 1))\n"));
        assert!(api.body.contains("def no_function") && !api.body.contains("import"));
    }

    #[test]
    fn what_does_not_belong_is_refused() {
        let table = [
            ("def append", "import torch\ndef append", "not here: only imports"),
            ("def _order", "def order", "`order` is not in `api`"),
            ("_LAYOUTS = ", "LAYOUTS = ", "not here"),
            (", *, target=None", "", "the last argument of `append` is `target=None`"),
            ("    \"\"\"Appends.", "    x = \"\"\"Appends.", "`append` has no docstring"),
            ("def append", "def _append", "there is no such function"),
            ("    split,", "    split as s,", "`split as s` is no plain name"),
        ];
        assert!(complaints(GOOD).is_empty());
        for (from, to, words) in table {
            let altered = GOOD.replace(from, to);
            assert!(complaints(&altered).iter().any(|c| c.contains(words)), "{to}: {:?}", complaints(&altered));
        }
    }
}
