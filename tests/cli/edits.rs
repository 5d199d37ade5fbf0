//! Editing kernels: sources are known by what they say, not by when they were written.

use crate::machine::Machine;

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
