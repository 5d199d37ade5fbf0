//! `parbake bench`: ops are measured by a Python program that is found or missed, rows become a page.

use crate::machine::{Machine, checkout};
use std::os::unix::fs::PermissionsExt as _;

/// A machine whose only program is a `python3` that does this.
fn with_python(script: &str) -> (Machine, String) {
    let machine = Machine::new();
    let folder = machine.path("bin");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("python3");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    (machine, folder.display().to_string())
}

#[test]
fn the_program_that_measures_gets_the_words_and_its_status_is_ours() {
    let (machine, path) = with_python("case \"$1\" in -c) exit 0;; esac; echo \"$@\"; exit 3");
    for (words, handed) in [
        ("bench", "-m parbake.bench"),
        ("bench --op norm/* --json", "-m parbake.bench --op=norm/* --json=-"),
        (
            "bench --workload U1,U2 --backend torch --rows r.jsonl --device cpu --timer graph --list",
            "-m parbake.bench --workload=U1,U2 --backend=torch --json=r.jsonl --device=cpu --timer=graph --list",
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = machine.command(&words).env("PATH", &path).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), handed);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
    assert_eq!(machine.say("bench --rows r.jsonl --json").status, 2);
    assert_eq!(machine.say("bench --op x bake").status, 2);
}

#[test]
fn a_python_without_the_packages_is_named_with_its_own_words() {
    let (machine, path) = with_python("echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1");
    let bare = machine.path("nothing").display().to_string();
    for (path, says) in [(path, "No module named 'torch'"), (bare, "No such file")] {
        let output = machine.command(&["bench"]).env("PATH", path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("PB-3200") && said.contains(says) && said.contains("python3"), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn rows_become_one_page() {
    let machine = Machine::new();
    let data = |name: &str| checkout().join("tests/data/bench").join(name).display().to_string();
    let (rows, earlier) = (data("rows.jsonl"), data("earlier.jsonl"));
    let ran = machine.run(&["bench", "report", &rows, "--against", &earlier, "-o", "page.html"]).ok();
    assert!(ran.stdout.contains("norm") && ran.stdout.contains("3 rows compared, 1 slower"), "{ran:?}");
    assert!(ran.stderr.contains("no figure of U13 torch"), "{ran:?}");
    let page = std::fs::read_to_string(machine.path("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let answer = machine.run(&["bench", "report", &rows, "-o", "page.html", "--json"]).ok().json();
    assert_eq!((answer["rows"].as_u64(), answer["families"][0]["family"].as_str()), (Some(8), Some("norm")));
    for (bytes, code, status) in [("{\n", "PB-3202", 2), ("", "PB-3204", 2)] {
        let file = machine.write("bad.jsonl", bytes);
        let ran = machine.run(&["bench", "report", &file, "-o", "bad.html"]);
        assert!(ran.status == status && ran.stderr.contains(code), "{ran:?}");
    }
    let ran = machine.run(&["bench", "report", "none.jsonl"]);
    assert!(ran.status == 2 && ran.stderr.contains("PB-3201") && ran.stderr.contains("No such file"), "{ran:?}");
    assert!(!machine.path("bad.html").exists() && !machine.workspace().exists());
}
