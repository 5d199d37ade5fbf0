//! Dumps hold the whole call, and their replay gives the same bits.

use crate::work::{Site, replay};
use parbake::log::record::State;
use parbake::log::{Dumped, parse};
use parbake::model::LAUNCH_ABI;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn level_5_tells_what_values_are_like_before_and_after() {
    let done = Site::new().worker("fused_add_rmsnorm f32 2 64 pad=3").level("5").run().answered(&["done"]);
    let lines = done.lines();
    let values: Vec<&str> = lines.iter().filter_map(|(_, text)| text.strip_prefix("values ")).collect();
    let named: Vec<&str> = values.iter().map(|v| v.split(' ').next().unwrap()).collect();
    assert_eq!(named, ["x", "residual", "weight", "x", "residual"], "{lines:#?}");
    assert!(values.iter().all(|v| v.contains(" min ") && v.ends_with(" 0 nan 0 inf")), "{values:?}");
    assert!(values[0].contains(", 128 finite") && values[2].contains(", 64 finite"), "{values:?}");
    assert_ne!(values[0], values[3]);
    let at = |start: &str| lines.iter().position(|(_, text)| text.starts_with(start)).unwrap();
    assert!(at("kernel ") < at("values x") && at("values weight") < at("done after "), "{lines:#?}");
}

#[test]
fn a_dump_holds_the_whole_call_and_nobody_else_reads_it() {
    let site = Site::new();
    let done = site.worker("rmsnorm bf16 3 96 pad=5 offset=1 eps=1e-5").level("10").set("PARBAKE_JOBS", "2").run();
    let lines = done.answered(&["done"]).lines();
    let [dump] = site.dumps().try_into().unwrap();
    assert!(lines.iter().any(|(s, text)| *s == 1 && *text == format!("dump {}", dump.display())), "{lines:#?}");
    let name = dump.file_name().unwrap().to_str().unwrap();
    let parts: Vec<&str> = name.split('-').collect();
    assert!(parts.len() == 4 && parts[0].len() == 15 && parts[2] == "1" && parts[3] == "rmsnorm", "{name}");
    assert_eq!(names(&dump), ["call.json", "inputs.safetensors", "outputs.safetensors"]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dump), mode(&site.path("workspace/dumps"))), (0o700, 0o700));
    assert!(names(&dump).iter().all(|file| mode(&dump.join(file)) == 0o600));

    let record = parse(&std::fs::read(dump.join("call.json")).unwrap()).unwrap();
    assert_eq!((record.state, record.op.as_str(), record.place.as_str()), (State::Done, "norm/rmsnorm", "host"));
    assert_eq!((record.launch_abi, record.sequence, record.captured), (LAUNCH_ABI, 1, false));
    assert_eq!(format!("{}@{}", record.process, record.host), parts[1]);
    assert_eq!((&record.device, &record.driver, &record.error), (&None, &None, &None));
    assert_eq!((record.scalars["eps"].as_str(), record.scalars["weight_bias"].as_str()), ("1e-5", "0.0"));
    let x = &record.tensors[1];
    assert_eq!((x.name.as_str(), x.shape.as_slice(), x.strides.as_slice()), ("x", &[3, 96][..], &[101, 1][..]));
    assert_eq!((x.alignment, x.offset, record.memories[x.memory].bytes), (2, 0, (2 * 101 + 96) * 2));
    let kernel = &record.kernel;
    assert!(kernel.uri.starts_with("rmsnorm-bf16-") && kernel.tactic.contains_key("block"), "{kernel:?}");
    assert!(kernel.toolchain.is_some() && kernel.options["fast_math"] == "false", "{kernel:?}");
    let setting = |name: &str| record.settings.iter().find(|s| s.name == name).unwrap();
    assert_eq!((setting("PARBAKE_JOBS").value.as_str(), setting("PARBAKE_JOBS").origin.as_str()), ("2", "environment"));
    assert_eq!(setting("PARBAKE_JIT").origin, "default");
    assert_eq!(record.settings.len(), parbake::model::settings::SETTINGS.len());
    assert_eq!(replay(&site.library(), &dump), "ok out BitExact reference right");
}

#[test]
fn calls_of_every_layout_replay_bit_for_bit() {
    let site = Site::new();
    let calls = [
        "rmsnorm f16 5 100",
        "rmsnorm f32 4 64 pad=4",
        "rmsnorm bf16 7 33 pad=3 offset=5",
        "rmsnorm f32 3 48 inplace",
        "rmsnorm bf16 3 48 inplace pad=9 offset=3",
        "fused_add_rmsnorm f16 6 128 pad=8",
    ];
    let done = site.worker(&calls.join(";")).level("10").run();
    done.answered(&["done"; 6]);
    let dumps = site.dumps();
    let library = site.library();
    for dump in &dumps {
        let record = Dumped::open(dump).unwrap().record().clone();
        let expected = match record.op.as_str() {
            "norm/rmsnorm" => "ok out BitExact reference right",
            _ => "ok x BitExact residual BitExact reference right",
        };
        assert_eq!(replay(&library, dump), expected, "{record:#?}");
        let shared = record.tensors[0].memory == record.tensors[1].memory;
        assert_eq!(shared, ["-4-rmsnorm", "-5-rmsnorm"].iter().any(|n| dump.to_str().unwrap().ends_with(n)));
    }
    assert_eq!(dumps.len(), calls.len());
    // What was the input of a call in place is kept as it was before.
    let inplace = dumps.iter().find(|d| d.to_str().unwrap().ends_with("-4-rmsnorm")).unwrap();
    let [before, after] =
        ["inputs", "outputs"].map(|n| std::fs::read(inplace.join(format!("{n}.safetensors"))).unwrap());
    assert!(!before.windows(64).any(|w| after.ends_with(w)));
}

#[test]
fn a_kernel_that_takes_the_process_down_leaves_the_whole_call() {
    let site = Site::with_own_kernels();
    let own = site.kernels.join("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    let wild =
        "if (threadIdx.x == 0) *(volatile float*)((char*)out + (1ll << 46)) = 1.f;\n    const float r = rsqrt_fast(";
    assert_eq!(text.matches("const float r = rsqrt_fast(").count(), 1);
    std::fs::write(&own, text.replace("const float r = rsqrt_fast(", wild)).unwrap();

    let call = "rmsnorm f32 3 96 pad=4 offset=1";
    let log = site.path("calls.log");
    for level in ["3", "10"] {
        let done = site.worker(call).level(level).set("PARBAKE_LOG_DEST", &log).run();
        assert_eq!(done.status.signal(), Some(libc_sigsegv()), "{done:?}");
    }
    let log = std::fs::read_to_string(log).unwrap();
    for (part, count) in [
        ("norm/rmsnorm in thread ", 2),
        ("tensor x f32 [3, 96] strides [100, 1] at 0x", 2),
        ("tensor weight f32 [96] strides [1] at 0x", 2),
        ("scalar eps 1e-6", 2),
        ("kernel rmsnorm-f32-", 2),
        ("values x min ", 1),
        ("dump ", 1),
        ("done after ", 0),
    ] {
        assert_eq!(log.matches(part).count(), count, "{part}\n{log}");
    }
    let [dump] = site.dumps().try_into().unwrap();
    let dumped = Dumped::open(&dump).unwrap();
    assert_eq!(dumped.record().state, State::Launched);
    assert_eq!(names(&dump), [".reserved", "call.json", "inputs.safetensors"]);
    // The same kernel does the same; the good one is right, and differs.
    let again = site.worker(&format!("replay {}", dump.display())).run();
    assert_eq!(again.status.signal(), Some(libc_sigsegv()), "{again:?}");
    let good = Site::new();
    assert_eq!(replay(&good.library(), &dump), "ok reference right");
    let replayed = dumped.replay(&good.library(), parbake::Place::Host, 1).unwrap();
    let differs: Vec<&str> = replayed.differences.iter().map(|d| d.what.as_str()).collect();
    assert!(["source key", "image", "PARBAKE_KERNELS"].iter().all(|what| differs.contains(what)), "{differs:?}");
    assert!(!differs.contains(&"kernel") && !differs.contains(&"target"), "{differs:?}");
}

fn libc_sigsegv() -> i32 {
    11
}

#[test]
fn a_result_that_changes_is_told_and_so_is_one_that_is_wrong() {
    let site = Site::with_own_kernels();
    site.worker("rmsnorm f32 3 96").level("10").run().answered(&["done"]);
    let [dump] = site.dumps().try_into().unwrap();
    let own = site.kernels.join("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, text.replace("* inv_hidden + p.eps)", "* inv_hidden * 1.1f + p.eps)")).unwrap();
    assert_eq!(replay(&site.library(), &dump), "not ok out Differs reference wrong");
    std::fs::write(&own, text.replace("* inv_hidden + p.eps)", "* (inv_hidden * 1.0000002f) + p.eps)")).unwrap();
    assert_eq!(replay(&site.library(), &dump), "ok out WithinTolerance reference right");
}

#[test]
fn a_call_that_fails_is_dumped_with_its_error_and_fails_again() {
    let site = Site::with_own_kernels();
    let own = site.kernels.join("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    // Half of the threads come to a barrier: the host target says so.
    let rule = "if (threadIdx.x == 0) __syncthreads();\n    const float r = rsqrt_fast(";
    std::fs::write(&own, text.replace("const float r = rsqrt_fast(", rule)).unwrap();
    site.worker("rmsnorm f32 3 96").level("10").run().answered(&["PB-2104"]);
    let [dump] = site.dumps().try_into().unwrap();
    let dumped = Dumped::open(&dump).unwrap();
    assert_eq!(dumped.record().state, State::Failed);
    assert!(dumped.record().error.as_ref().unwrap().contains("PB-2104"));
    let replayed = dumped.replay(&site.library(), parbake::Place::Host, 1).unwrap();
    assert!(!replayed.ok && replayed.error.unwrap().contains("PB-2104"));
    assert!(replayed.uri.starts_with("rmsnorm-f32-") && replayed.runs == 0);
}

#[test]
fn globs_choose_what_is_dumped() {
    let site = Site::new();
    let worker = site.worker("rmsnorm f32 2 64; fused_add_rmsnorm f32 2 64").level("10");
    worker.set("PARBAKE_LOG_EXCLUDE", "fused*").run().answered(&["done", "done"]);
    let [dump] = site.dumps().try_into().unwrap();
    assert!(dump.to_str().unwrap().ends_with("-rmsnorm"));
}
