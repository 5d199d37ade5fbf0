//! Dumps that are cut, changed or made up: each is refused with a code, and nothing of it is run.

use crate::work::{Site, copy, replay};
use parbake::log::{Dumped, parse};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A dump of a small call.
fn dump(site: &Site) -> PathBuf {
    site.worker("rmsnorm f32 3 96 pad=4").level("10").run().answered(&["done"]);
    let [dump] = site.dumps().try_into().unwrap();
    dump
}

fn changed(dump: &Path, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut call: Value = serde_json::from_slice(&std::fs::read(dump.join("call.json")).unwrap()).unwrap();
    change(&mut call);
    serde_json::to_vec(&call).unwrap()
}

#[test]
fn a_call_that_contradicts_itself_is_refused() {
    let site = Site::new();
    let dump = dump(&site);
    let whole = changed(&dump, |_| {});
    assert!(parse(&whole).is_ok());
    for cut in (0..whole.len()).step_by(97) {
        assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let huge = json!(1i64 << 62);
    let changes: [(&str, Value); 16] = [
        ("/format", json!(2)),
        ("/state", json!("maybe")),
        ("/tensors/0/shape/0", json!(-1)),
        ("/tensors/0/shape/0", huge.clone()),
        ("/tensors/0/shape", json!([3])),
        ("/tensors/0/shape", json!([1, 1, 1, 1, 1, 1, 1, 1, 1])),
        ("/tensors/0/strides/0", json!(-100)),
        ("/tensors/0/strides/0", huge.clone()),
        ("/tensors/0/strides/0", json!(101)),
        ("/tensors/0/memory", json!(9)),
        ("/tensors/0/offset", json!(u64::MAX)),
        ("/tensors/0/dtype", json!("f64")),
        ("/tensors/0/role", json!("out/../in")),
        ("/memories/0/misalignment", json!(256)),
        ("/memories/0/bytes", huge),
        ("/memories", json!([])),
    ];
    for (at, value) in changes {
        let call = changed(&dump, |call| *call.pointer_mut(at).unwrap() = value.clone());
        assert!(parse(&call).is_err(), "{at} = {value}");
    }
    assert!(parse(&changed(&dump, |call| call["more"] = json!(1))).is_err());
}

#[test]
fn files_that_are_not_what_the_call_says_are_refused_with_a_code() {
    let site = Site::new();
    let (dump, library) = (dump(&site), site.library());
    let with = |change: &dyn Fn(&Path)| {
        let folder = site.path("changed");
        let _ = std::fs::remove_dir_all(&folder);
        copy(&dump, &folder);
        change(&folder);
        replay(&library, &folder)
    };
    let rewrite = |folder: &Path, at: &str, value: Value| {
        let call = changed(folder, |call| *call.pointer_mut(at).unwrap() = value);
        std::fs::write(folder.join("call.json"), call).unwrap();
    };
    assert_eq!(with(&|_| {}), "ok out BitExact reference right");
    for (code, change) in [
        ("PB-2130", &(|f: &Path| std::fs::remove_file(f.join("call.json")).unwrap()) as &dyn Fn(&Path)),
        ("PB-2130", &|f| std::fs::remove_file(f.join("inputs.safetensors")).unwrap()),
        ("PB-2131", &|f| std::fs::write(f.join("call.json"), " ".repeat(2 << 20)).unwrap()),
        ("PB-2131", &|f| std::fs::write(f.join("inputs.safetensors"), [0xff; 2000]).unwrap()),
        ("PB-2131", &|f| {
            let file = std::fs::File::options().write(true).open(f.join("outputs.safetensors")).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        }),
        // A file that claims to be enormous is not read.
        ("PB-2131", &|f| {
            let file = std::fs::File::options().write(true).open(f.join("inputs.safetensors")).unwrap();
            file.set_len(1 << 42).unwrap();
        }),
        ("PB-2131", &|f| {
            std::fs::rename(f.join("inputs.safetensors"), f.join("x")).unwrap();
            std::fs::create_dir(f.join("inputs.safetensors")).unwrap();
        }),
        // Values of other files are not what a link makes them.
        ("PB-2130", &|f| {
            std::fs::rename(f.join("inputs.safetensors"), f.join("x")).unwrap();
            std::os::unix::fs::symlink(f.join("x"), f.join("inputs.safetensors")).unwrap();
        }),
        // Nobody writes to that pipe.
        ("PB-2131", &|f| {
            std::fs::remove_file(f.join("call.json")).unwrap();
            let made = std::process::Command::new("mkfifo").arg(f.join("call.json")).status();
            assert!(made.unwrap().success());
        }),
        ("PB-2131", &|f| rewrite(f, "/tensors/1/dtype", json!("f16"))),
        ("PB-1107", &|f| rewrite(f, "/op", json!("../../etc/passwd"))),
        ("PB-2133", &|f| rewrite(f, "/op", json!("norm/fused_add_rmsnorm"))),
        ("PB-2133", &|f| rewrite(f, "/tensors/1/name", json!("y"))),
        ("PB-2133", &|f| rewrite(f, "/scalars/eps", json!("small"))),
        ("PB-2133", &|f| rewrite(f, "/scalars", json!({}))),
        ("PB-2001", &|f| rewrite(f, "/scalars/eps", json!("-1"))),
        ("PB-2132", &|f| rewrite(f, "/captured", json!(true))),
    ] {
        assert_eq!(with(change), code);
    }
}

#[test]
fn a_dump_larger_than_memory_is_refused_before_it_is_read() {
    let site = Site::new();
    let dump = dump(&site);
    let call = changed(&dump, |call| {
        call["tensors"][1]["strides"][0] = json!(1i64 << 40);
        let memory = call["tensors"][1]["memory"].as_u64().unwrap() as usize;
        call["memories"][memory]["bytes"] = json!(((2i64 << 40) + 96) * 4);
    });
    std::fs::write(dump.join("call.json"), call).unwrap();
    let dump = Dumped::open(&dump).unwrap();
    assert!(dump.fits(Some(1 << 40)).unwrap_err().report().code == "PB-2134" && dump.fits(None).is_ok());
}
