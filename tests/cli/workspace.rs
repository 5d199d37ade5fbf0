//! What `show` finds in a workspace.

use crate::machine::{Machine, sample};
use parbake::model::identity::{self, Profile};
use parbake::model::metadata::{self, Metadata};
use parbake::model::source::Closure;
use parbake::model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION};
use parbake::store::Store;
use parbake_codegen::toolchain::{CompileManifest, Unit};

/// Publishes an entry as a compiler would have left it.
pub(crate) fn publish(machine: &Machine, dtype: &str, target: &str) -> String {
    let target: Target = target.parse().unwrap();
    let (spec, source_key) = machine.spec(&[("dtype", dtype)], target);
    let host = target == Target::Host;
    let bytes = if host { b"\x7fELF of a host".to_vec() } else { std::fs::read(sample("13.0-90a.cubin")).unwrap() };
    let unit = Unit {
        name: format!("{}.cu", spec.uri),
        text: "// the rendered unit\n".to_owned(),
        entry: spec.entry(),
        closure: Closure::default(),
    };
    let toolchain = "nvrtc test".to_owned();
    let (options, profile) = (vec!["--an-option".to_owned()], Profile::Release);
    let metadata = Metadata {
        schema: metadata::SCHEMA,
        op: spec.op.clone(),
        uri: spec.uri.clone(),
        entry: spec.entry(),
        target,
        source_key,
        build_key: identity::build_key(source_key, target, &toolchain, &options, profile).digest,
        launch_abi: LAUNCH_ABI,
        library: VERSION.to_owned(),
        toolchain: toolchain.clone(),
        toolkit: (!host).then_some(Toolkit { major: 13, minor: 0 }),
        options: options.clone(),
        profile,
        image: Digest::of(&bytes),
        size: bytes.len() as u64,
        file: Metadata::file_for(target).to_owned(),
        resources: None,
        compile_ms: 7,
        log: "a warning".to_owned(),
        spec,
    };
    let command = vec!["nvrtc".to_owned(), "--an-option".to_owned()];
    let manifest = CompileManifest { unit, target, options, toolchain, profile, command };
    let store = Store::new(machine.library().workspace().clone());
    store.publish(&metadata, &bytes, &serde_json::to_string(&manifest).unwrap()).unwrap();
    metadata.uri
}

#[test]
fn show_puts_source_command_and_image_together() {
    let machine = Machine::with_own_kernels();
    let uri = publish(&machine, "f32", "90a");
    assert_eq!(publish(&machine, "f32", "host"), uri);
    for words in [format!("show {uri}"), format!("show {}", &uri[..13])] {
        let text = machine.say(&words).ok().stdout;
        for part in [
            &uri,
            "rmsnorm dtype=f32",
            "the library's own now",
            "// the rendered unit",
            "nvrtc --an-option",
            "image for sm_90a",
            "image for host",
            "kernel.cubin",
            "kernel.so",
            "registers",
            "in 7 ms",
            "a warning",
        ] {
            assert!(text.contains(part), "{words}: no {part:?} in {text}");
        }
    }
    assert!(!machine.say(&format!("show {uri} --no-source")).ok().stdout.contains("the rendered unit"));
    let json = machine.say(&format!("show {uri} --json")).ok().json();
    let state = json["states"].as_object().unwrap().values().next().unwrap();
    assert_eq!(state["images"].as_array().unwrap().len(), 2, "{json}");

    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    assert!(machine.say(&format!("show {uri}")).ok().stdout.contains("stale"));
}

#[test]
fn show_finds_images_of_bundles_and_says_what_is_missing() {
    let machine = Machine::new();
    let bundle = machine.good_bundle();
    let broken = machine.write("broken.pbk", "text");
    let (spec, _) = machine.spec(&[("dtype", "f32")], "90a".parse().unwrap());
    let machine = machine.set("PARBAKE_BUNDLES", &format!("{bundle}:{broken}"));
    let uri = &spec.uri;
    for words in [format!("show {uri}"), "show rmsnorm dtype=f32".to_owned(), "show norm/rmsnorm".to_owned()] {
        let text = machine.say(&words).ok().stdout;
        for part in [
            uri,
            "rmsnorm dtype=f32",
            "generated sources: not in this workspace",
            "(rendered now)",
            "image for sm_90a in a bundle",
            "image for host in a bundle",
            "command, log and source: a bundle does not hold them",
            "compiled for",
            &format!("not looked at: bundle {broken}"),
        ] {
            assert!(text.contains(part), "{words}: no {part:?} in {text}");
        }
    }
    // Beside it, what the store has.
    let stored = Machine::new();
    publish(&stored, "f32", "90a");
    let json = stored.run(&["show", uri, "--json", "--bundle", &bundle]).ok().json();
    let state = json["states"].as_object().unwrap().values().next().unwrap();
    let images = state["images"].as_array().unwrap();
    assert_eq!(images.iter().filter(|i| i["from_bundle"] == true).count(), 2, "{json}");
    assert_eq!((images.len(), &state["unit"]["from"]), (3, &"as it was compiled".into()), "{json}");
    // An image for a bundle alone is found if the bundle is named.
    let empty = Machine::new();
    assert_eq!(empty.say(&format!("show {uri}")).status, 1);
    assert!(empty.run(&["show", uri, "--bundle", &bundle]).ok().stdout.contains("in a bundle"));
    for (words, says) in [("show rmsnorm dtype=f64", "f16, bf16, f32"), ("show rmsnrm dtype=f32", "did you mean")] {
        let ran = machine.say(words);
        assert!(ran.status == 2 && ran.stderr.contains(says), "{words}: {ran:?}");
    }
}

#[test]
fn a_profile_is_another_build_and_shown_apart() {
    let machine = Machine::new();
    let uri = publish(&machine, "f32", "90a");
    let key = |words: &str| {
        let json = machine.say(format!("why rmsnorm dtype=f32 --target host --json {words}").trim_end()).ok().json();
        json["identities"]["build_key"]["digest"].as_str().unwrap().to_owned()
    };
    let keys = ["", "--profile lineinfo", "--profile debug"].map(key);
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
    assert_eq!(key("--profile release"), keys[0]);
    let set = Machine::new().set("PARBAKE_PROFILE", "debug");
    let text = set.say("why rmsnorm dtype=f32 --target host").ok().stdout;
    assert!(text.contains("PARBAKE_PROFILE is debug"), "{text}");
    assert!(machine.say(&format!("show {uri} --profile release")).ok().stdout.contains("image for sm_90a"));
    assert!(machine.say(&format!("show {uri} --profile debug")).ok().stdout.contains("image: missing"));
    let ran = machine.say("run rmsnorm dtype=f32 --profile fast");
    assert!(ran.status == 2 && ran.stderr.contains("release, lineinfo or debug"), "{ran:?}");
}

#[test]
fn a_lost_manifest_is_said_to_be_missing() {
    let machine = Machine::with_own_kernels();
    let uri = publish(&machine, "f32", "90a");
    let (_, key) = machine.spec(&[("dtype", "f32")], "90a".parse().unwrap());
    let place = machine.workspace().join(format!("store/v1/{key}/sm_90a"));
    let folder = std::fs::read_dir(place).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(folder.join("build.json")).unwrap();
    // Of sources that are gone, nothing can be rendered.
    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    let text = machine.say(&format!("show {uri}")).ok().stdout;
    assert!(text.contains("build.json cannot be read") && text.contains("rendered source: missing"), "{text}");
}

#[test]
fn the_beginning_of_several_uris_lists_them() {
    let machine = Machine::new();
    let (first, second) = (publish(&machine, "f32", "90a"), publish(&machine, "f16", "90a"));
    let ran = machine.say("show rmsnorm");
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains(&first) && ran.stderr.contains(&second), "{ran:?}");
}

#[test]
fn what_was_never_compiled_has_a_command() {
    let machine = Machine::new();
    let (spec, _) = machine.spec(&[("dtype", "bf16")], Target::Host);
    let ran = machine.say(&format!("show {}", spec.uri));
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("parbake run rmsnorm dtype=bf16"), "{ran:?}");
    assert_eq!(machine.say("show something-else").status, 1);
    assert!(!machine.workspace().exists());
}

#[test]
fn a_damaged_entry_is_shown_as_such() {
    let machine = Machine::new();
    let uri = publish(&machine, "f32", "90a");
    let (_, key) = machine.spec(&[("dtype", "f32")], "90a".parse().unwrap());
    let builds = machine.workspace().join(format!("store/v1/{key}/sm_90a"));
    let folder = std::fs::read_dir(builds).unwrap().next().unwrap().unwrap().path();
    std::fs::write(folder.join("kernel.cubin"), "cut").unwrap();
    let text = machine.say(&format!("show {uri}")).ok().stdout;
    assert!(text.contains("DAMAGED") && text.contains("kernel.cubin holds 3 bytes"), "{text}");
}

#[test]
fn a_warm_store_serves_without_a_compiler() {
    let machine = Machine::new().set("PARBAKE_JIT", "off");
    publish(&machine, "f32", "90a");
    assert!(machine.say("supports rmsnorm dtype=f32 --target 90a").ok().stdout.starts_with("store"));
    let why = machine.say("why rmsnorm dtype=f32 --target 90a").ok().stdout;
    assert!(why.contains("→ store, sm_90a"), "{why}");
}
