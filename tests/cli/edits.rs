//! Editing kernels: sources are known by what they say, not by when they were written.

use crate::machine::Machine;
use parbake::model::settings::Config;

#[test]
fn an_edit_changes_the_source_key_and_a_revert_brings_it_back() {
    let machine = Machine::with_own_kernels();
    let look = |op: &str| {
        let json = machine.say(&format!("why {op} dtype=f32 --target 90a --json")).ok().json();
        let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
        (text(&json["uri"]), text(&json["decision"]["source_key"]))
    };
    let (uri, key) = look("rmsnorm");
    let other = look("fused_add_rmsnorm");

    let own = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, format!("{text}// edited\n")).unwrap();
    let (edited_uri, edited_key) = look("rmsnorm");
    assert_eq!(edited_uri, uri);
    assert_ne!(edited_key, key);
    assert_eq!(look("fused_add_rmsnorm"), other, "another op's header is none of its sources");

    std::fs::write(&own, &text).unwrap();
    assert_eq!(look("rmsnorm"), (uri.clone(), key.clone()), "a revert");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(&own).unwrap().set_modified(later).unwrap();
    assert_eq!(look("rmsnorm"), (uri, key), "a touch");

    // A shared header is a source of both.
    let shared = machine.path("kernels/include/parbake/block.cuh");
    let text = std::fs::read_to_string(&shared).unwrap();
    std::fs::write(&shared, format!("{text}// edited\n")).unwrap();
    assert_ne!(look("rmsnorm").1, edited_key);
    assert_eq!(look("fused_add_rmsnorm").0, other.0);
    assert_ne!(look("fused_add_rmsnorm").1, other.1);
    assert!(!machine.workspace().exists());
}

#[test]
fn a_header_outside_the_tree_is_an_error_with_its_place() {
    let machine = Machine::with_own_kernels();
    let own = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, format!("#include <cuda_fp16.h>\n{text}")).unwrap();
    let ran = machine.say("why rmsnorm dtype=f32 --target 90a");
    assert_ne!(ran.status, 0);
    assert!(ran.stderr.contains("norm/rmsnorm/rmsnorm.cuh:1") && ran.stderr.contains("cuda_fp16.h"), "{ran:?}");
}

#[test]
#[allow(clippy::print_stdout, reason = "the skip is printed")]
fn a_kernel_that_spills_is_served_on_demand_and_refused_by_a_bake() {
    let toolchains = Config::from_env().unwrap().toolchains;
    if !toolchains.join("cuda-12.9").is_dir() {
        println!("skipped: needs cuda-12.9 (parbake toolchain install 12.9)");
        return;
    }
    let machine = Machine::with_own_kernels().set("PARBAKE_TOOLCHAINS", &toolchains.display().to_string());
    // As many blocks as leave 32 registers to a thread.
    let template = machine.path("kernels/norm/rmsnorm/rmsnorm.cu.tera");
    let text = std::fs::read_to_string(&template).unwrap();
    let many = text.replace(" PB_LEAST_BLOCKS", ", 2048 / ${ tactic.block }$");
    assert_ne!(many, text);
    std::fs::write(&template, many).unwrap();

    let one = "prepare rmsnorm dtype=bf16 block=512 rows=1 vec=16 peel=1 --target 80";
    let said = machine.say(one).ok().stderr;
    assert!(said.contains("the kernel spills registers") && said.contains("bytes of spill stores"), "{said}");
    let again = machine.say(one).ok().stderr;
    assert!(!again.contains("spill"), "{again}");

    // What spills is told whether the bake compiles it or finds it in the store, and all of it at once.
    for _ in 0..2 {
        let ran = machine.say("build --arch 80 --op rmsnorm --only dtype=bf16 --toolkit 12.9 -o norm.pbk");
        assert_eq!(ran.status, 1, "{ran:?}");
        let offender = "dtype=bf16 block=512 rows=1 vec=16 peel=1 for sm_80: ";
        for part in ["PB-1130", offender, "bytes of spill stores, ", "by nvrtc 12.9", "parbake show rmsnorm-"] {
            assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
        }
        assert!(!machine.path("norm.pbk").exists());
    }
}
