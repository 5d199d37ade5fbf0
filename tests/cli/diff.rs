//! What differs between bundles, why, and what does not.

use crate::machine::{Machine, sample};
use parbake::model::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
use parbake::model::cubin::Resources;
use parbake::model::lock::{Lock, Locked};
use parbake::model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION, space};
use serde_json::Value;

/// What goes into a bundle of rmsnorm for 90a.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) version: &'static str,
    pub(crate) sources: &'static str,
    pub(crate) options: &'static str,
    pub(crate) toolkit: u16,
    pub(crate) registers: u32,
    /// How many of the op's specs, from which one on.
    pub(crate) specs: (usize, usize),
    pub(crate) level: i32,
}

pub(crate) const PLAIN: Recipe =
    Recipe { version: VERSION, sources: "a", options: "-O3", toolkit: 0, registers: 32, specs: (0, 3), level: 3 };

/// Writes a bundle, whose images all have the same kernel.
pub(crate) fn bundle(machine: &Machine, name: &str, recipe: &Recipe) -> String {
    let library = machine.library();
    let op = library.op("rmsnorm").unwrap();
    let def = library.definition(op);
    let target: Target = "sm_90a".parse().unwrap();
    let details = Details {
        library: recipe.version.to_owned(),
        launch_abi: LAUNCH_ABI,
        targets: vec![target],
        ..Details::default()
    };
    let mut writer = BundleWriter::new(details, recipe.level);
    let legal = space::specs(def).filter(|(_, legal)| legal.is_ok()).map(|(spec, _)| spec);
    for spec in legal.skip(recipe.specs.0).take(recipe.specs.1) {
        let key = Digest::of(format!("{} {}", spec.uri, recipe.sources).as_bytes());
        let build = format!("{key} {} {} {}", recipe.options, recipe.toolkit, recipe.version);
        let image = ImageDetails {
            target,
            toolkit: Some(Toolkit { major: 13, minor: recipe.toolkit }),
            toolchain: format!("nvrtc 13.{}", recipe.toolkit),
            build_key: Digest::of(build.as_bytes()),
            size: 0,
            resources: Some(Resources { registers: recipe.registers, ..Resources::default() }),
        };
        let params = library.params_digest(op).unwrap();
        let spec = SpecDetails { entry: "sample".to_owned(), ..SpecDetails::new(&spec, key, params, &def.options) };
        writer
            .push(Item {
                spec,
                image,
                bytes: std::fs::read(sample(&format!("13.{}-90a.fatbin", recipe.toolkit))).unwrap(),
            })
            .unwrap();
    }
    machine.write(name, writer.finish().unwrap())
}

fn diff(machine: &Machine, before: &str, after: &str, status: i32) -> (String, Value) {
    let text = machine.run(&["diff", before, after]);
    assert_eq!(text.status, status, "{text:?}");
    let json = machine.run(&["diff", before, after, "--json"]);
    assert_eq!((json.status, json.stderr.as_str()), (status, ""), "{json:?}");
    (text.stdout, json.json())
}

#[test]
fn the_same_is_no_difference_and_another_packing_is_one() {
    let machine = Machine::new();
    let (a, b) = (bundle(&machine, "a.pbk", &PLAIN), bundle(&machine, "b.pbk", &PLAIN));
    let (text, json) = diff(&machine, &a, &b, 0);
    assert_eq!((text.as_str(), &json["same"]), ("no difference\n", &true.into()));
    let c = bundle(&machine, "c.pbk", &Recipe { level: 19, ..PLAIN });
    let (text, json) = diff(&machine, &a, &c, 1);
    assert_eq!(
        (json["facts"][0]["name"].as_str(), &json["changed"]),
        (Some("packing"), &serde_json::json!([])),
        "{text}"
    );
}

#[test]
fn each_image_says_which_field_of_its_key_changed() {
    let machine = Machine::new();
    let a = bundle(&machine, "a.pbk", &PLAIN);
    let library = format!("library {VERSION} → 0.0.9");
    for (name, recipe, why) in [
        ("sources.pbk", Recipe { sources: "b", ..PLAIN }, "sources "),
        ("toolkit.pbk", Recipe { toolkit: 5, ..PLAIN }, "toolkit 13.0 → 13.5"),
        ("options.pbk", Recipe { options: "-O2", ..PLAIN }, "options of the compiler"),
        ("library.pbk", Recipe { version: "0.0.9", ..PLAIN }, library.as_str()),
    ] {
        let b = bundle(&machine, name, &recipe);
        let (text, json) = diff(&machine, &a, &b, 1);
        let changed = json["changed"].as_array().unwrap();
        assert_eq!(changed.len(), 3, "{name}: {json}");
        let first = changed[0]["why"].as_array().unwrap();
        assert!(first.len() == 1 && first[0].as_str().unwrap().starts_with(why), "{name}: {first:?}");
        assert!(text.contains("changed  rmsnorm  sm_90a") && text.contains(why), "{name}: {text}");
        assert_eq!(changed[0]["same_bytes"], name != "toolkit.pbk");
    }
    let two = Recipe { sources: "b", toolkit: 5, registers: 40, ..PLAIN };
    let (text, json) = diff(&machine, &a, &bundle(&machine, "two.pbk", &two), 1);
    assert_eq!(json["changed"][0]["why"].as_array().unwrap().len(), 2, "{json}");
    let used = serde_json::json!([{ "name": "registers", "before": 32, "after": 40 }]);
    assert_eq!(json["changed"][0]["resources"], used);
    assert!(text.contains("registers      32     40  sm_90a"), "{text}");
}

#[test]
fn specs_that_came_and_went_are_told_with_the_bytes() {
    let machine = Machine::new();
    let a = bundle(&machine, "a.pbk", &PLAIN);
    let b = bundle(&machine, "b.pbk", &Recipe { specs: (1, 4), ..PLAIN });
    let (text, json) = diff(&machine, &a, &b, 1);
    let count = |name: &str| json[name].as_array().unwrap().len();
    assert_eq!((count("added"), count("removed"), count("changed")), (2, 1, 0), "{json}");
    assert_eq!((json["added"][0]["spec_is_known"].as_bool(), count("sizes")), (Some(false), 1));
    assert!(text.contains("+33.3 %") && text.contains("SIZE OF") && !text.contains("IMAGE  "), "{text}");
    let removed = json["removed"][0]["spec"].as_str().unwrap();
    let listed = machine.run(&["diff", &a, &b, "--images"]).stdout;
    assert!(listed.contains(removed) && !text.contains(removed), "{listed}");
}

#[test]
fn locks_are_compared_by_what_they_ask_for() {
    let machine = Machine::new();
    let library = machine.library();
    let specs: Vec<Locked> = space::specs(library.definition(library.op("rmsnorm").unwrap()))
        .take(2)
        .map(|(s, _)| Locked::from(&s))
        .collect();
    let [host, gpu]: [Target; 2] = ["host", "sm_90a"].map(|t| t.parse().unwrap());
    let a = Lock::of([(specs[0].clone(), host), (specs[0].clone(), gpu), (specs[1].clone(), gpu)]);
    let b = Lock::of([(specs[0].clone(), gpu), (specs[1].clone(), gpu), (specs[1].clone(), host)]);
    let (a, b) = (machine.write("a.lock", a.to_json()), machine.write("b.lock", b.to_json()));
    let (text, json) = diff(&machine, &a, &b, 1);
    assert_eq!((&json["added"][0]["target"], &json["removed"][0]["target"]), (&"host".into(), &"host".into()));
    assert_eq!(json["added"][0]["spec"], specs[1].to_string());
    assert!(text.contains(&specs[0].to_string()), "{text}");
    diff(&machine, &a, &a, 0);
    let pbk = bundle(&machine, "a.pbk", &PLAIN);
    for (words, status, code) in [
        ([a.as_str(), pbk.as_str()], 2, "PB-3303"),
        (["nowhere.pbk", pbk.as_str()], 3, "PB-3110"),
        ([pbk.as_str(), &machine.write("x.pbk", "no bundle")], 1, "PB-13"),
    ] {
        let ran = machine.run(&["diff", words[0], words[1]]);
        assert_eq!((ran.status, ran.stderr.contains(code)), (status, true), "{ran:?}");
    }
}
