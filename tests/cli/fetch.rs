//! Bundles that are fetched: from good sources, from bad ones, and by processes that are killed.

#![allow(clippy::print_stdout, reason = "a test that needs a right or a tool says so")]

use crate::machine::{Machine, Ran};
use crate::points::{Points, quick};
use crate::server::{Mode, Server};
use parbake::model::{Digest, VERSION};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes that do not get smaller.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

/// A folder with published bundles `b0.pbk`, `b1.pbk` … of a few hundred KiB, all of the same op.
fn published(machine: &Machine, bundles: usize) -> PathBuf {
    for n in 0..bundles {
        let bundle = machine.bundle_of(&format!("b{n}.pbk"), VERSION, noise(300_000, n as u64));
        machine.run(&["publish", &bundle, "-o", "public"]).ok();
    }
    machine.path("public")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Fetches for the host from some sources into `here`.
fn fetch(machine: &Machine, sources: &[&str]) -> Ran {
    let mut words = vec!["fetch", "--arch", "host", "-o", "here", "--json"];
    sources.iter().for_each(|s| words.extend(["--from", s]));
    machine.run(&words)
}

fn same(machine: &Machine, name: &str) {
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    assert_eq!(read(machine.path("here").join(name)), read(machine.path(name)), "{name}");
}

#[test]
fn what_is_fetched_is_found_and_not_fetched_again() {
    let machine = Machine::new();
    let public = published(&machine, 1);
    let asked = ["why", "rmsnorm", "dtype=f32", "--target", "host"];
    let from = public.display().to_string();
    let ran = machine.run(&["fetch", "--from", &from, "--arch", "host"]).ok();
    assert!(ran.stdout.contains("1 fetched, 0 there already") && ran.stderr.is_empty(), "{ran:?}");
    assert!(machine.run(&asked).ok().stdout.contains("→ bundle, host"));
    assert_eq!(names(&machine.path("data/parbake/bundles")), ["b0.pbk"]);

    // By the settings, from a server: there is nothing to do, and nothing but the index is asked for.
    let server = Server::start(public, Mode::Fine);
    let machine = machine.set("PARBAKE_SOURCES", &server.address()).set("PARBAKE_ARCHS", "host");
    let ran = machine.run(&["fetch"]).ok();
    assert!(ran.stdout.contains("0 fetched, 1 there already"), "{ran:?}");
    assert_eq!((server.seen("index.json").len(), server.seen(".pbk").len()), (1, 0));
    // What was altered since is fetched.
    std::fs::write(machine.path("data/parbake/bundles/b0.pbk"), "x").unwrap();
    assert!(machine.run(&["fetch"]).ok().stdout.contains("1 fetched"));
    assert!(machine.run(&asked).ok().stdout.contains("→ bundle, host"));
    // An architecture or an op that nobody has.
    let ran = machine.run(&["fetch", "--arch", "host,120f"]);
    assert!(ran.status == 1 && ran.stderr.contains("PB-3426") && ran.stderr.contains("`*` for sm_120f"), "{ran:?}");
    let ran = machine.run(&["fetch", "--op", "rmsnorm,moe/*"]);
    assert!(ran.status == 1 && ran.stderr.contains("`moe/*` for host") && !ran.stderr.contains("`rmsnorm`"), "{ran:?}");
}

#[test]
fn folders_come_first_and_no_more_is_fetched_at_once_than_was_said() {
    let machine = Machine::new();
    let public = published(&machine, 5);
    let server = Server::start(public.clone(), Mode::Slow);
    let from = public.display().to_string();
    let json = fetch(&machine, &[&server.address(), &from]).ok().json();
    assert_eq!(json["sources"][0]["source"], from.as_str(), "{json}");
    assert!(server.seen("").is_empty() && json["files"].as_array().unwrap().len() == 5, "{json}");
    std::fs::remove_dir_all(machine.path("here")).unwrap();
    machine.run(&["fetch", "--arch", "host", "-o", "here", "--jobs", "2", "--from", &server.address()]).ok();
    assert!(server.at_once() <= 2, "{}", server.at_once());
    (0..5).for_each(|n| same(&machine, &format!("b{n}.pbk")));
    assert_eq!(names(&machine.path("here")).len(), 5);
}

#[test]
fn a_bad_source_is_refused_by_name_and_the_next_one_is_asked() {
    let machine = Machine::new().set("PARBAKE_FETCH_STALL", "1");
    let public = published(&machine, 1);
    let good = Server::start(public.clone(), Mode::Fine);
    for (mode, says) in [
        (Mode::Truncate, "broke off after"),
        (Mode::Flip, "expected SHA-256"),
        (Mode::Stall, "stalled after"),
        (Mode::Longer, "bytes; the index says"),
        (Mode::LongerChunked, "more than the"),
        (Mode::Html, "a page of HTML"),
        (Mode::HtmlIndex, "index.json: it is a page of HTML"),
        (Mode::NotFound, "404 Not Found"),
        (Mode::Broken, "500 Internal Server Error"),
        (Mode::Loop, "elsewhere more than 5 times"),
        (Mode::Changing, "expected SHA-256"),
        (Mode::ChangingTagged, "expected SHA-256"),
    ] {
        let bad = Server::start(public.clone(), mode);
        // Alone, it is an error that says why, and nothing has the name of a bundle.
        let ran = fetch(&machine, &[&bad.address()]);
        assert!(ran.status == 3 && ran.stderr.contains("PB-3423") && ran.stderr.contains(says), "{mode:?}: {ran:?}");
        assert!(ran.stderr.contains(&bad.address()), "{mode:?}: {ran:?}");
        assert!(!names(&machine.path("here")).iter().any(|n| !n.starts_with(".part-")), "{mode:?}");
        let _ = std::fs::remove_dir_all(machine.path("here"));

        let bad = Server::start(public.clone(), mode);
        let asked = good.seen(".pbk").len();
        let ran = fetch(&machine, &[&bad.address(), &good.address()]).ok();
        let json = ran.json();
        let refused = json["sources"][0]["refused"][0].as_str().unwrap_or_else(|| panic!("{mode:?}: {json}"));
        assert!(refused.contains(says), "{mode:?}: {refused}");
        assert_eq!(json["files"][0]["source"], good.address(), "{mode:?}: {json}");
        assert_eq!(names(&machine.path("here")), ["b0.pbk"], "{mode:?}");
        same(&machine, "b0.pbk");
        // What was right of it is gone on with.
        let resumes = good.seen(".pbk")[asked..].iter().any(|head| head.to_ascii_lowercase().contains("range: bytes="));
        assert_eq!(resumes, matches!(mode, Mode::Truncate | Mode::Stall), "{mode:?}");
        std::fs::remove_dir_all(machine.path("here")).unwrap();
    }
    // Nobody is there, or nobody who speaks TLS.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("http://127.0.0.1:{port}");
    let plain = good.address().replace("http://", "https://");
    let json = fetch(&machine, &[&nobody, &plain, "nowhere", &good.address()]).ok().json();
    let refused = |n: usize| json["sources"][n]["refused"][0].as_str().unwrap().to_owned();
    assert!(refused(0).contains("nowhere/index.json"), "{json}");
    assert!(refused(1).to_lowercase().contains("refused"), "{json}");
    assert!(refused(2).contains("TLS"), "{json}");
    same(&machine, "b0.pbk");
}

#[test]
fn servers_without_ranges_and_with_detours_serve() {
    let machine = Machine::new();
    let public = published(&machine, 1);
    let whole = std::fs::read(machine.path("b0.pbk")).unwrap();
    let part = format!("here/.part-{}", Digest::of(&whole));
    for mode in [Mode::Fine, Mode::NoRanges, Mode::Redirect] {
        // A whole beginning, a torn one, one that is too long.
        for (torn, left) in [(false, whole[..1000].to_vec()), (true, vec![7; 1000]), (true, vec![7; whole.len() + 1])] {
            let server = Server::start(public.clone(), mode);
            std::fs::create_dir_all(machine.path("here")).unwrap();
            machine.write(&part, &left);
            let json = fetch(&machine, &[&server.address()]).ok().json();
            let resumed = json["files"][0]["resumed"].as_u64().unwrap();
            assert_eq!(resumed > 0 && !torn, mode != Mode::NoRanges && !torn, "{mode:?} {torn}: {json}");
            same(&machine, "b0.pbk");
            assert_eq!(names(&machine.path("here")), ["b0.pbk"]);
            std::fs::remove_dir_all(machine.path("here")).unwrap();
        }
    }
}

#[test]
fn signatures_come_before_anything_is_believed() {
    let machine = Machine::new();
    let key = machine.run(&["sign", "--generate-key", "key", "--no-password", "--json"]).ok().json();
    let bundle = machine.bundle_of("b0.pbk", VERSION, noise(1000, 1));
    machine.run(&["publish", &bundle, "-o", "unsigned"]).ok();
    machine.run(&["publish", &bundle, "-o", "half", "--key", "key.key", "--no-password"]).ok();
    machine.run(&["sign", &bundle, "--key", "key.key", "--no-password"]).ok();
    machine.run(&["publish", &bundle, "-o", "signed", "--key", "key.key", "--no-password"]).ok();
    let machine = machine.set("PARBAKE_PUBLIC_KEYS", key["text"].as_str().unwrap());
    let refused = |from: &str, says: &[&str]| {
        let ran = fetch(&machine, &[from]);
        assert_eq!(ran.status, 3, "{ran:?}");
        says.iter().for_each(|s| assert!(ran.stderr.contains(s), "no {s} in {}", ran.stderr));
        assert!(!machine.path("here/b0.pbk").exists());
    };
    refused("unsigned", &["index.json", "PB-1361"]);
    refused("half", &["b0.pbk", "PB-1361"]);
    let json = fetch(&machine, &["signed"]).ok().json();
    assert_eq!(json["files"][0]["signature"], "valid", "{json}");
    assert_eq!(json["sources"][0]["index_signature"]["signature"], "valid", "{json}");
    assert_eq!(names(&machine.path("here")), ["b0.pbk", "b0.pbk.minisig"]);
    // The signature alone was lost.
    std::fs::remove_file(machine.path("here/b0.pbk.minisig")).unwrap();
    fetch(&machine, &["signed"]).ok();
    assert_eq!(names(&machine.path("here")), ["b0.pbk", "b0.pbk.minisig"]);
    std::fs::remove_dir_all(machine.path("here")).unwrap();
    // Garbage is told by its signature: nothing of it was parsed.
    machine.write("signed/index.json", "garbage");
    refused("signed", &["index.json", "PB-1366"]);

    let machine = machine.set("PARBAKE_SIGNATURE", "warn");
    let ran = fetch(&machine, &["unsigned"]).ok();
    assert!(ran.stderr.contains("PB-1361") && ran.json()["files"][0]["signature"] == "invalid", "{ran:?}");
}

/// The version before or after ours that fits it all the same.
fn neighbour(patch: u32) -> String {
    let (range, _) = VERSION.rsplit_once('.').unwrap();
    format!("{range}.{patch}")
}

#[test]
fn an_index_of_earlier_days_is_named_and_replaces_nothing_newer() {
    let machine = Machine::new();
    let key = machine.run(&["sign", "--generate-key", "key", "--no-password", "--json"]).ok().json();
    let publish = |version: &str, seed, to: &str| {
        let bundle = machine.bundle_of("b0.pbk", version, noise(1000, seed));
        machine.run(&["sign", &bundle, "--key", "key.key", "--no-password"]).ok();
        machine.run(&["publish", &bundle, "-o", to, "--key", "key.key", "--no-password"]).ok();
        std::fs::read(bundle).unwrap()
    };
    let (older, newer) = (neighbour(77), neighbour(78));
    // A mirror keeps what was published then, index and signature, when the next version is out.
    let old = publish(&older, 1, "public");
    crate::machine::copy_folder(&machine.path("public"), &machine.path("replay"));
    let new = publish(&newer, 2, "public");
    let machine = machine.set("PARBAKE_PUBLIC_KEYS", key["text"].as_str().unwrap());
    let fetch = |from: &str, more: &[&str]| {
        let words = ["fetch", "--arch", "host", "-o", "here", "--json", "--from", from];
        machine.run(&[&words[..], more].concat())
    };
    let here = || std::fs::read(machine.path("here/b0.pbk")).ok();
    // Who says which version it is to be gets no other, and is told both.
    let ran = fetch("replay", &["--release", &newer]);
    assert_eq!((ran.status, here()), (3, None), "{ran:?}");
    for says in ["PB-3423", &format!("nothing of version {newer} (--release)"), &older] {
        assert!(ran.stderr.contains(says), "no {says} in {}", ran.stderr);
    }
    // Else what is not our own version is named.
    let ran = fetch("replay", &[]).ok();
    let says = format!("nothing of version {VERSION}, so bundles of {older} are taken");
    assert!(ran.stderr.contains(&says) && here().unwrap() == old, "{ran:?}");
    let ran = fetch("public", &["--release", &newer]).ok();
    assert!(!ran.stderr.contains("warning") && here().unwrap() == new, "{ran:?}");
    // What is newer stays, unless somebody wants the older one.
    let ran = fetch("replay", &[]);
    assert_eq!((ran.status, here().unwrap() == new), (3, true), "{ran:?}");
    assert!(ran.stderr.contains(&format!("of {newer}, which is newer; to go back: --release {older}")), "{ran:?}");
    let ran = fetch("replay", &["--release", &older]).ok();
    assert!(here().unwrap() == old && ran.json()["sources"][0]["version"] == older.as_str(), "{ran:?}");
    let ran = fetch("replay", &["--release", "99.0.0"]);
    assert!(ran.status == 2 && ran.stderr.contains("caret range"), "{ran:?}");
}

#[test]
fn a_mirror_replaces_the_address_and_never_a_hash() {
    let machine = Machine::new();
    let public = published(&machine, 1);
    let index = Digest::of(&std::fs::read(public.join("index.json")).unwrap()).to_string();
    let mirror = Server::start(public.clone(), Mode::Fine);
    let words = ["fetch", "--from", "http://bundles.invalid/x", "--arch", "host", "-o", "here", "--index", &index];
    let machine = machine.set("PARBAKE_MIRROR", &mirror.address());
    machine.run(&words).ok();
    same(&machine, "b0.pbk");
    std::fs::remove_dir_all(machine.path("here")).unwrap();
    // One that has other bundles, and an index that goes with them.
    let other = machine.bundle_of("b0.pbk", VERSION, noise(300_000, 9));
    machine.run(&["publish", &other, "-o", "other"]).ok();
    let other = Server::start(machine.path("other"), Mode::Fine);
    let ran = machine.run(&[&words[..], &["--mirror", &other.address()]].concat());
    assert!(ran.status == 3 && ran.stderr.contains(&format!("expected SHA-256 {index}")), "{ran:?}");
    assert!(names(&machine.path("here")).is_empty());
}

#[test]
fn without_checksums_a_bundle_still_checks_itself_and_every_file_is_told() {
    let machine = Machine::new();
    let public = published(&machine, 2);
    // Another bundle than the index says, and one that is damaged.
    let other = machine.bundle_of("other.pbk", VERSION, noise(300_000, 9));
    std::fs::copy(other, public.join(format!("v{VERSION}/b0.pbk"))).unwrap();
    let from = public.display().to_string();
    let ran = fetch(&machine, &[&from]);
    assert!(ran.status == 3 && ran.stderr.contains("expected SHA-256"), "{ran:?}");
    assert_eq!(names(&machine.path("here")), ["b1.pbk"]);
    std::fs::remove_dir_all(machine.path("here")).unwrap();

    let machine = machine.set("PARBAKE_CHECKSUM", "off");
    let ran = fetch(&machine, &[&from]).ok();
    assert_eq!(ran.stderr.matches("PARBAKE_CHECKSUM=off").count(), 3, "{ran:?}");
    let json = ran.json();
    assert_eq!((&json["checksum"], &json["files"][0]["checksum"]), (&"off".into(), &false.into()), "{json}");
    assert_ne!(json["files"][0]["sha256"], Digest::of(&std::fs::read(machine.path("b0.pbk")).unwrap()).to_string());
    std::fs::remove_dir_all(machine.path("here")).unwrap();
    let flips = Server::start(public, Mode::Flip);
    let ran = fetch(&machine, &[&flips.address()]);
    assert!(ran.status == 3 && ran.stderr.contains("is damaged: PB-13"), "{ran:?}");
    assert!(!names(&machine.path("here")).iter().any(|n| n.ends_with(".pbk")));
}

#[test]
fn offline_nothing_is_asked_not_even_for_a_name() {
    let machine = Machine::new().set("PARBAKE_OFFLINE", "on");
    let public = published(&machine, 1);
    let address = "https://bundles.invalid/parbake";
    let words = ["fetch", "--from", address, "--arch", "host,90a", "-o", "here"];
    let install = ["toolchain", "install", "12.9"];
    let told = |ran: Ran, says: &[&str]| {
        assert_eq!(ran.status, 3, "{ran:?}");
        says.iter().for_each(|s| assert!(ran.stderr.contains(s), "no {s} in {}", ran.stderr));
    };
    told(machine.run(&words), &["PB-3424", address, "`*` for host", "`*` for sm_90a"]);
    told(machine.run(&install), &["PB-1540", "nvidia-cuda-nvrtc-cu12"]);
    // A folder serves all the same.
    let from = public.display().to_string();
    machine.run(&[&words[..], &["--from", &from]].concat()).ok();
    same(&machine, "b0.pbk");
    std::fs::remove_dir_all(machine.path("here")).unwrap();

    if !Path::new("/usr/bin/strace").exists() {
        println!("skipped: needs strace");
        return;
    }
    for words in [&words[..], &install[..]] {
        let log = machine.path("trace");
        let script = "exec strace -f -qq -e trace=connect,socket -o trace \"$0\" \"$@\"";
        assert_eq!(wrapped(&machine, &["/bin/sh", "-c"], script, words).status, 3);
        let calls = std::fs::read_to_string(&log).unwrap();
        assert!(!calls.contains("AF_"), "{words:?}: {calls}");
    }
}

#[test]
fn two_at_once_fetch_a_bundle_once() {
    let machine = Machine::new();
    let server = Server::start(published(&machine, 2), Mode::Slow);
    let start = || {
        let words = ["fetch", "--arch", "host", "-o", "here", "--from", &server.address()];
        machine.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut both = [start(), start()];
    both.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    assert_eq!(names(&machine.path("here")), ["b0.pbk", "b1.pbk"]);
    (0..2).for_each(|n| same(&machine, &format!("b{n}.pbk")));
    assert_eq!(server.seen(".pbk").len(), 2, "the second one waits for the first");
}

#[test]
fn a_killed_fetch_is_gone_on_with() {
    let machine = Machine::new();
    let server = Server::start(published(&machine, 2), Mode::Slow);
    let words = ["fetch", "--arch", "host", "-o", "here", "--from", &server.address()];
    let start = Instant::now();
    machine.run(&words).ok();
    let whole = start.elapsed();
    let wanted = [0, 1].map(|n| std::fs::read(machine.path(&format!("b{n}.pbk"))).unwrap());
    let (mut resumed, mut points) = (0, Points::of("fetch"));
    for point in 0..if quick() { 8 } else { 50 } {
        std::fs::remove_dir_all(machine.path("here")).unwrap();
        let mut child = machine.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(points.part()));
        child.kill().unwrap();
        child.wait().unwrap();
        // What has its name is whole.
        for (n, bytes) in wanted.iter().enumerate() {
            let there = std::fs::read(machine.path(&format!("here/b{n}.pbk")));
            assert!(there.is_err() || there.is_ok_and(|there| there == *bytes), "point {point}");
        }
        let json = machine.run(&[&words[..], &["--json"]].concat()).ok().json();
        resumed += json["files"].as_array().unwrap().iter().filter(|f| f["resumed"] != 0).count();
        assert_eq!(names(&machine.path("here")), ["b0.pbk", "b1.pbk"], "point {point}");
        (0..2).for_each(|n| same(&machine, &format!("b{n}.pbk")));
    }
    assert!(resumed > 0, "no point was in the middle of a bundle");
}

/// Runs `parbake` by some words that end in a shell's `-c`, and a script of it.
fn wrapped(machine: &Machine, before: &[&str], script: &str, words: &[&str]) -> Ran {
    let command = machine.command(words);
    let mut wrapped = Command::new(before[0]);
    wrapped.args(&before[1..]).arg(script).arg(command.get_program()).args(command.get_args());
    wrapped.current_dir(machine.path(""));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    let output = wrapped.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_full_disk_and_a_read_only_folder_are_told_as_such() {
    let machine = Machine::new();
    let public = published(&machine, 1);
    let (from, good) = (public.display().to_string(), Server::start(public.clone(), Mode::Fine));
    let words = ["fetch", "--arch", "host", "-o", "here", "--from", &from, "--from", &good.address()];
    // No file may be longer than 64 KiB; another source would not help.
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let ran = wrapped(&machine, &["/bin/sh", "-c"], script, &words);
    assert!(ran.status == 3 && ran.stderr.contains("PB-3425") && ran.stderr.contains("make room"), "{ran:?}");
    assert!(names(&machine.path("here")).is_empty() && good.seen("").is_empty());

    let here = machine.path("here").display().to_string();
    for (options, says) in [("size=64k", "make room"), ("ro", "`-o FOLDER`")] {
        let script = format!(
            "mount -t tmpfs -o {options} none '{here}' || exit 99; \"$0\" \"$@\"; code=$?; ls -A '{here}'; exit $code"
        );
        let before = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c"];
        if !Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|o| o.status.success()) {
            println!("skipped: needs the right to mount file systems");
            return;
        }
        let ran = wrapped(&machine, &before, &script, &words);
        if ran.status == 99 {
            println!("skipped: needs the right to mount file systems");
            return;
        }
        assert!(ran.status == 3 && ran.stderr.contains("PB-3425") && ran.stderr.contains(says), "{ran:?}");
        assert_eq!(ran.stdout, "", "nothing is left in the folder");
    }
}
