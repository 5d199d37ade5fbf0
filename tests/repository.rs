//! Checks over the repository itself: what a reviewer would otherwise have to remember.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a program prints, run in the root.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().expect("the program starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Tracked files, and those that are new and not ignored; in a source archive without git, there is nothing to check.
fn tracked() -> Vec<String> {
    if !root().join(".git").exists() {
        eprintln!("skipped: needs a git checkout");
        return Vec::new();
    }
    let list = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let files = list.split('\0').filter(|f| root().join(f).is_file()).map(str::to_owned);
    files.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The text of a tracked file; `None` if it is binary.
fn text(file: &str) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(file)).expect("tracked files can be read")).ok()
}

fn is_generated(file: &str) -> bool {
    file.starts_with("generated-manifest/") || file.starts_with("docs/reference/")
}

/// Fails with every finding, not the first only.
fn none(findings: Vec<String>, help: &str) {
    assert!(findings.is_empty(), "\n{}\nhelp: {help}\n", findings.join("\n"));
}

#[test]
fn there_are_no_submodules() {
    if tracked().is_empty() {
        return;
    }
    let modes = output("git", &["ls-files", "--stage"]);
    let links = modes.lines().filter(|l| l.starts_with("160000 ")).map(str::to_owned);
    let modules = tracked().into_iter().filter(|f| f.ends_with(".gitmodules"));
    none(links.chain(modules).collect(), "put what is needed into the tree, or name it in a Cargo.toml");
}

#[test]
fn the_version_is_stated_once() {
    let mut findings = Vec::new();
    for file in tracked().iter().filter(|f| f.ends_with("Cargo.toml")) {
        let text = text(file).unwrap();
        let lines: BTreeSet<&str> = text.lines().collect();
        let inherited =
            ["version", "edition", "rust-version", "license", "publish"].map(|k| format!("{k}.workspace = true"));
        let missing = inherited.iter().filter(|line| lines.contains("[package]") && !lines.contains(line.as_str()));
        findings.extend(missing.map(|line| format!("{file}: `{line}` is missing")));
    }
    // `since` columns name the version that brought something: they stay when the version moves on.
    let stated = format!("\"{}\"", parbake::model::VERSION);
    let allowed =
        ["Cargo.toml", "Cargo.lock", "tests/fuzz/Cargo.lock", "codegen/model/settings.rs", "runtime/bundles.rs"];
    for file in tracked().iter().filter(|f| !allowed.contains(&f.as_str()) && !is_generated(f)) {
        for (i, line) in text(file).unwrap_or_default().lines().enumerate() {
            if line.contains("version") && line.contains(&stated) {
                findings.push(format!("{file}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    none(findings, "derive the version from [workspace.package] in the root Cargo.toml");
}

/// What stands between two texts in a file, the first time.
fn between(file: &str, start: &str, end: &str) -> String {
    let text = text(file).expect("text");
    let rest = text.split_once(start).unwrap_or_else(|| panic!("{file} has no {start}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("{file} has no {end} behind {start}")).0.to_owned()
}

#[test]
fn the_range_of_tvm_ffi_is_the_same_everywhere() {
    let range = between("wheels/pyproject.toml", "dependencies = [\"apache-tvm-ffi", "\"]");
    let said = text("wheels/python/parbake/_load.py").unwrap();
    assert!(
        said.contains(&format!("apache-tvm-ffi{range}")),
        "wheels/python/parbake/_load.py does not ask for {range}"
    );
    let oldest = range.trim_start_matches(">=").split(',').next().unwrap();
    assert!(
        said.contains(&format!("{oldest} or newer")),
        "wheels/python/parbake/_load.py expects another than {oldest}"
    );
    let tested = between("tests/wheel/run.py", "OLDEST = \"", "\"");
    assert_eq!(tested, oldest, "tests/wheel/run.py tests another than the oldest");
}

#[test]
fn kinds_of_errors_have_the_same_numbers_in_rust_c_and_python() {
    use parbake::door::Kind;
    let kinds = [
        (Kind::Type, "PARBAKE_ERROR_TYPE", Some("TypeError")),
        (Kind::Value, "PARBAKE_ERROR_VALUE", Some("ValueError")),
        (Kind::NotImplemented, "PARBAKE_ERROR_NOT_IMPLEMENTED", Some("NotImplementedError")),
        (Kind::NotCovered, "PARBAKE_ERROR_NOT_COVERED", Some("NotCoveredError")),
        (Kind::Other, "PARBAKE_ERROR_OTHER", None),
    ];
    let declared = between("codegen/header.h", "PARBAKE_OK = 0", "}");
    let declared: BTreeSet<String> = declared
        .lines()
        .map(|line| line.trim().trim_end_matches(',').to_owned())
        .filter(|line| line.starts_with("PARBAKE_"))
        .collect();
    assert_eq!(declared, kinds.iter().map(|(kind, name, _)| format!("{name} = {}", kind.number())).collect());
    let raised = between("wheels/python/parbake/_ask.py", "_EXCEPTIONS = {", "}");
    let expected = kinds.iter().filter_map(|(kind, _, class)| Some(format!("{}: {}", kind.number(), (*class)?)));
    assert_eq!(raised, expected.collect::<Vec<_>>().join(", "));
    // Those of the package are the ones that it registers.
    for (kind, _, class) in kinds {
        let name = kind.name().to_str().unwrap();
        assert_eq!(name.trim_start_matches("parbake."), class.unwrap_or("Error"));
    }
}

#[test]
fn python_knows_every_element_type() {
    use parbake::model::dtype::DType;
    let known = between("wheels/python/parbake/_ask.py", "_DTYPES = {", "}");
    let known: BTreeSet<&str> = known.split(", ").filter_map(|pair| pair.split_once(": ")).map(|(_, v)| v).collect();
    assert_eq!(known, DType::ALL.map(|t| format!("\"{}\"", t.name())).iter().map(String::as_str).collect());
}

#[test]
fn files_are_of_one_noun() {
    let mut findings = Vec::new();
    for file in tracked() {
        let kinds = [".rs", ".cuh", ".cu", ".cpp", ".h", ".py", ".sh", ".tera"];
        if !kinds.iter().any(|k| file.ends_with(k)) || is_generated(&file) {
            continue;
        }
        let lines = text(&file).unwrap_or_default().lines().count();
        if lines > 800 {
            findings.push(format!("{file}: {lines} lines"));
        }
    }
    none(findings, "split what has outgrown one noun (800 lines)");
}

#[test]
fn nothing_is_left_for_later_in_the_sources() {
    // Spelled in two parts, so that this file passes its own check.
    let marks = ["TO\u{44}O", "FIX\u{4d}E", "XX\u{58}", "todo\u{21}(", "unimplemented\u{21}("];
    let mut findings = Vec::new();
    for file in tracked().iter().filter(|f| !["Cargo.lock", "LICENSE"].contains(&f.as_str())) {
        for (i, line) in text(file).unwrap_or_default().lines().enumerate() {
            findings.extend(marks.iter().filter(|m| line.contains(**m)).map(|m| format!("{file}:{}: {m}", i + 1)));
        }
    }
    none(findings, "do it, or file an issue and say in the code what holds today");
}

#[test]
fn no_path_of_a_machine_is_tracked() {
    let homes = ["/ro\u{6f}t/", "/hom\u{65}/", "/Use\u{72}s/", "/wor\u{6b}/", "C:\\Use\u{72}s"];
    let mut findings = Vec::new();
    for file in tracked() {
        for (i, line) in text(&file).unwrap_or_default().lines().enumerate() {
            // `$HOME/…`, `<root>/…` and URLs are no paths of a machine.
            let is_path = |home: &&&str| {
                line.match_indices(**home)
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || ">}_-.~*".contains(c)))
            };
            findings.extend(homes.iter().filter(is_path).map(|h| format!("{file}:{}: {h}", i + 1)));
        }
    }
    none(findings, "name folders by what they are for: `$HOME`, the workspace, a temporary folder");
}

/// What cargo knows of the workspace and of everything it depends on.
fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let arguments = ["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform"];
    let json = output(&cargo, &[&arguments[..], &["x86_64-unknown-linux-gnu"]].concat());
    serde_json::from_str(&json).expect("cargo metadata prints JSON")
}

/// Other people's crates that our manifests name.
fn declared() -> BTreeSet<String> {
    let metadata = metadata();
    let ours = metadata["packages"].as_array().unwrap().iter().filter(|p| p["source"].is_null());
    let dependencies = ours.flat_map(|p| p["dependencies"].as_array().unwrap());
    let named: BTreeSet<String> =
        dependencies.filter_map(|d| d["source"].as_str().and(d["name"].as_str())).map(str::to_owned).collect();
    // The workspace of the fuzz targets is not built here; its manifest names its crates one a line.
    let fuzz = text("tests/fuzz/Cargo.toml").unwrap();
    let fuzz = fuzz.split("[dependencies]").nth(1).and_then(|t| t.split("\n\n").next()).unwrap_or_default().to_owned();
    let fuzz = fuzz.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name.to_owned());
    // A row of the shared table that no crate takes is a leftover too.
    let manifest = text("Cargo.toml").unwrap();
    let shared =
        manifest.split("[workspace.dependencies]").nth(1).and_then(|t| t.split("\n[").next()).unwrap_or_default();
    let shared = shared.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name.to_owned());
    named.into_iter().chain(shared.chain(fuzz).filter(|n| n != "parbake" && !n.starts_with("parbake-"))).collect()
}

#[test]
fn every_dependency_has_its_reason() {
    if tracked().is_empty() {
        return;
    }
    let page = text("docs/dependencies.md").unwrap();
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let documented: BTreeSet<String> = page.lines().filter_map(row).collect();
    let declared = declared();
    let missing = declared.difference(&documented).map(|d| format!("`{d}` is declared, but has no row"));
    let leftover = documented.difference(&declared).map(|d| format!("`{d}` has a row, but nothing declares it"));
    none(missing.chain(leftover).collect(), "docs/dependencies.md has one row for each dependency, with its reason");
}

#[test]
fn licences_of_all_dependencies_are_permissive() {
    let allowed = [
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    ];
    let metadata = metadata();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none");
        // One alternative is enough, and it needs all of its parts.
        let fits = |all: &str| all.split(" AND ").all(|l| allowed.contains(&l.trim_matches(['(', ')', ' '])));
        if !licence.replace('/', " OR ").split(" OR ").any(fits) {
            findings.push(format!("{} {}: {licence}", package["name"], package["version"]));
        }
    }
    none(findings, "choose another crate, or argue for the licence in docs/dependencies.md and add it here");
}

/// Commands of fenced `console` blocks, without the prompt.
fn commands(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text(page).unwrap().lines() {
        inside = if line.starts_with("```") { line == "```console" } else { inside };
        found.extend(line.strip_prefix("$ ").filter(|_| inside).map(str::to_owned));
    }
    found
}

#[test]
fn commands_in_the_readme_exist() {
    if tracked().is_empty() {
        return;
    }
    let alias = text(".cargo/config.toml").unwrap().contains("parbake = \"run");
    assert!(alias, "`cargo parbake` is an alias in .cargo/config.toml, and the README relies on it");
    let modules = text("release/cmd/mod.rs").unwrap();
    let mut findings = Vec::new();
    let mut seen = 0;
    for page in ["README.md", "CONTRIBUTING.md", "docs/add-a-kernel.md"] {
        for command in commands(page) {
            let words: Vec<&str> = command.split_whitespace().skip_while(|w| w.contains('=')).collect();
            let rest = match words.as_slice() {
                ["cargo", "parbake", rest @ ..] | ["parbake", rest @ ..] => rest,
                _ => continue,
            };
            seen += 1;
            let known =
                rest.iter().find(|w| !w.starts_with("--")).is_some_and(|c| modules.contains(&format!("mod {c};")));
            if !known {
                findings.push(format!("{page}: `{command}`: there is no such command"));
            }
        }
    }
    none(findings, "commands are the modules of release/cmd");
    assert!(seen > 5, "the pages show {seen} commands in ```console blocks: the check has lost them");
}

/// Files by the error codes that they define. Tests quote codes; a comment shows one.
fn codes() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    let sources = tracked().into_iter().filter(|f| f.ends_with(".rs") && !f.contains("tests"));
    // The table says what codes mean; it gives none.
    for file in sources.filter(|f| !f.starts_with("codegen/model/codes/")) {
        let text = text(&file).unwrap();
        // Unit tests stand at the end of a file.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|l| !l.trim_start().starts_with("//") && !l.contains("code() == ")) {
            for (at, _) in line.match_indices("\"PB-") {
                let code: String = line[at + 1..].chars().take_while(|c| *c != '"').collect();
                found.entry(code).or_default().insert(file.clone());
            }
        }
    }
    found
}

/// The ranges that docs/design.md gives, and where codes of each may be defined.
const RANGES: [(&str, &[&str]); 12] = [
    ("PB-10", &["codegen/model/", "release/"]),
    ("PB-11", &["codegen/", "runtime/", "release/"]),
    ("PB-12", &["codegen/model/", "runtime/", "release/"]),
    ("PB-13", &["codegen/model/", "runtime/"]),
    ("PB-14", &["codegen/model/"]),
    ("PB-15", &["codegen/", "runtime/", "release/"]),
    ("PB-16", &["runtime/"]),
    ("PB-20", &["runtime/", "release/"]),
    ("PB-21", &["runtime/", "release/"]),
    ("PB-30", &["release/"]),
    ("PB-31", &["release/"]),
    ("PB-32", &["release/"]),
];

#[test]
fn error_codes_lie_in_documented_ranges() {
    if tracked().is_empty() {
        return;
    }
    let design = text("docs/design.md").unwrap();
    let mut findings = Vec::new();
    for (range, _) in RANGES.iter().filter(|(r, _)| !design.contains(&format!("{r}xx"))) {
        findings.push(format!("docs/design.md does not name {range}xx"));
    }
    for (code, files) in codes() {
        let well_formed = code.len() == 7 && code[3..].bytes().all(|b| b.is_ascii_digit());
        let range = RANGES.iter().find(|(r, _)| well_formed && code.starts_with(r));
        for file in files {
            if !range.is_some_and(|(_, folders)| folders.iter().any(|f| file.starts_with(f))) {
                findings.push(format!("{file}: `{code}` does not belong there"));
            }
        }
    }
    none(findings, "ranges are listed in docs/design.md and in this test");
}

/// Codes that several files give, because one thing can go wrong in several places.
const SHARED: [(&str, &str); 6] = [
    ("PB-1101", "a definition is wrong: found in one file, or in a whole registry"),
    ("PB-1104", "a kernel source cannot be read: by the registry, or by the library"),
    ("PB-1117", "a file that was asked for cannot be written"),
    ("PB-1505", "a toolchain does not compile for a target"),
    ("PB-1512", "a compiler's output is not what was asked for"),
    ("PB-3003", "another process cannot be run"),
];

#[test]
fn an_error_code_has_one_meaning() {
    let codes = codes();
    let several: BTreeMap<_, _> = codes.into_iter().filter(|(_, files)| files.len() > 1).collect();
    let shared = |code: &str| SHARED.iter().any(|(c, _)| *c == code);
    let mut findings = Vec::new();
    for (code, files) in several.iter().filter(|(code, _)| !shared(code)) {
        findings.push(format!("{code} is given by {}", files.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    findings
        .extend(SHARED.iter().filter(|(c, _)| !several.contains_key(*c)).map(|(c, _)| format!("{c} is not shared")));
    none(findings, "take the next free number of the range; if it is one meaning in several places, say so in SHARED");
}

#[test]
fn the_table_of_error_codes_is_that_of_the_sources() {
    use parbake::model::codes::{self, AREAS};
    if tracked().is_empty() {
        return;
    }
    let given = codes();
    let mut findings = Vec::new();
    for (code, files) in given.iter().filter(|(code, _)| codes::find(code).is_none()) {
        let files = files.iter().cloned().collect::<Vec<_>>().join(", ");
        let area = AREAS.iter().find(|a| code.starts_with(a.prefix));
        let about = area.map_or("a new area of codes/mod.rs", |a| a.about);
        findings.push(format!(
            "{code} of {files} has no row; add under \u{201c}{about}\u{201d}:\n    \
             row(\"{code}\", \"Title without a full stop\", \"What it means.\", \"What to do.\"),"
        ));
    }
    let leftover = codes::all().filter(|c| !given.contains_key(c.code));
    findings
        .extend(leftover.map(|c| format!("{}: nothing gives it; remove its row \u{201c}{}\u{201d}", c.code, c.title)));
    let help = "rows lie in codegen/model/codes/, sorted by code; then: cargo run -p parbake-codegen -- --write";
    none(findings, help);
    // What a person is told to type and to set exists.
    let modules = text("release/cmd/mod.rs").unwrap();
    let mut findings = Vec::new();
    for c in codes::all() {
        let words = [c.meaning, c.remedy].join(" ");
        for command in words.split("`parbake ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
            if !modules.contains(&format!("mod {command};")) {
                findings.push(format!("{}: there is no command `{command}`", c.code));
            }
        }
        for name in words.split(|ch: char| !ch.is_ascii_uppercase() && ch != '_').filter(|w| w.starts_with("PARBAKE_"))
        {
            if !parbake::model::settings::SETTINGS.iter().any(|s| s.name == name) {
                findings.push(format!("{}: there is no setting {name}", c.code));
            }
        }
    }
    none(findings, "commands are the modules of release/cmd, settings those of codegen/model/settings.rs");
}

#[test]
fn every_op_has_its_whole_set_of_files() {
    let mut findings = Vec::new();
    let files: BTreeSet<String> = tracked().into_iter().collect();
    for file in &files {
        let Some((folder, "op.toml")) = file.rsplit_once('/') else { continue };
        let name = folder.rsplit('/').next().unwrap();
        let own = [format!("{name}.cuh"), format!("{name}.cu.tera")];
        for part in own.iter().map(String::as_str).chain(["params.h", "launch.rs", "reference.rs", "reference.py"]) {
            if !files.contains(&format!("{folder}/{part}")) {
                findings.push(format!("{folder}/{part} is missing"));
            }
        }
        for generated in ["generated-manifest/ops.json", "generated-manifest/modules.rs", "docs/reference/ops.md"] {
            if !text(generated).unwrap().contains(name) {
                findings.push(format!("{generated} does not know `{name}`"));
            }
        }
    }
    none(findings, "docs/add-a-kernel.md lists the files; the generator writes the rest");
}

#[test]
fn kernels_include_nothing_but_kernels() {
    let mut findings = Vec::new();
    for file in tracked().iter().filter(|f| f.starts_with("kernels/")) {
        let device = [".cuh", ".h", ".tera"].iter().any(|k| file.ends_with(k)) && !file.starts_with("kernels/host/");
        for (i, line) in text(file).unwrap_or_default().lines().enumerate().filter(|_| device) {
            let Some(rest) = line.trim_start().strip_prefix('#').map(str::trim_start) else { continue };
            let Some(included) = rest.strip_prefix("include").map(str::trim) else { continue };
            let path = included.strip_prefix('"').and_then(|p| p.split_once('"')).map(|(path, _)| path);
            let there = |p: &str| ["kernels/include", "kernels"].iter().any(|f| root().join(f).join(p).is_file());
            if !path.is_some_and(there) {
                findings.push(format!("{file}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    none(findings, "device code includes files under kernels/include and kernels, in quotes, by their whole path");
}

#[cfg(feature = "jit")]
#[test]
fn generated_files_are_fresh() {
    let registry = parbake_codegen::registry::Registry::read(&root().join("kernels")).unwrap();
    let files = parbake_codegen::manifest::render(&registry, root(), false).unwrap();
    let stale = parbake_codegen::manifest::differences(&files, root());
    let help = format!("run: {}", parbake_codegen::bindings::REGENERATE);
    none(stale.into_iter().map(|d| format!("{} is stale", d.path)).collect(), &help);
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut findings = Vec::new();
    for file in tracked().iter().filter(|f| f.ends_with(".md")) {
        let folder = Path::new(file).parent().unwrap();
        for link in text(file).unwrap().split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(l, _)| l) {
            let target = link.split('#').next().unwrap();
            if !link.contains("://") && !target.is_empty() && !root().join(folder).join(target).exists() {
                findings.push(format!("{file}: {link}"));
            }
        }
    }
    none(findings, "links are relative to the page");
}
