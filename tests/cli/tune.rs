//! Tuning on the host target: real times of real runs, and kernels that are planted to hang and to crash.

use crate::machine::{Machine, Ran};
use serde_json::Value;

/// A call of rmsnorm with four legal tactics: its rows are no multiple of a vector.
const CALL: &str = "rmsnorm dtype=f32 --shape rows=3 --shape hidden=7 --target host";
/// What its launcher takes first.
const FIRST: &str = "block=128 rows=8 vec=16 peel=1";
/// What it takes last.
const LAST: &str = "block=512 rows=1 vec=4 peel=0";

fn say(machine: &Machine, settings: &[(&str, &str)], words: &str) -> Ran {
    let words: Vec<&str> = words.split(' ').collect();
    let output = machine.command(&words).envs(settings.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().expect("killed"), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The tactic that a run's API log names, with who chose it.
fn tactic(machine: &Machine, settings: &[(&str, &str)]) -> String {
    let log = [settings, &[("PARBAKE_LOG", "3")]].concat();
    let ran = say(machine, &log, &format!("run {CALL}")).ok();
    let line = ran.stderr.lines().find(|l| l.contains(", tactic ")).unwrap_or_else(|| panic!("{ran:?}"));
    line.split(", tactic ").nth(1).unwrap().split(", grid").next().unwrap().to_owned()
}

fn failed(ran: &Ran, status: i32, parts: &[&str]) {
    assert_eq!(ran.status, status, "{ran:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
    }
}

/// An entry about rmsnorm.
fn list(fields: &str) -> String {
    format!(r#"{{"schema":1,"entries":[{{"op":"rmsnorm","what":"hang","reason":"seen"{fields}}}]}}"#)
}

#[test]
fn results_are_used_where_they_fit_and_named_where_they_do_not() {
    let machine = Machine::new();
    let file = machine.path("tuned.json").display().to_string();
    let tune = format!("--json tune {CALL} --samples 3 --most 2 --out tuned.json");
    let measured = machine.say(&tune).ok().json();
    let rows = measured[0]["rows"].as_array().unwrap();
    assert!(rows.len() > 4 && rows.iter().all(|r| r["timing"].is_null() != r["why"].is_null()), "{rows:?}");
    assert_eq!(rows.iter().filter(|r| !r["timing"].is_null()).count(), 2);
    assert_eq!((&rows[0]["tactic"], &rows[0]["rank"]), (&Value::from(FIRST), &Value::from(1)));
    let why = |text: &str| rows.iter().any(|r| r["why"].as_str().is_some_and(|why| why.contains(text)));
    assert!(why("the launcher has 2 before it") && why("an access is at least one element"), "{rows:?}");
    let (timer, us) = (&rows[0]["timing"]["timer"], rows[0]["timing"]["median_us"].as_f64().unwrap());
    assert!(timer == "clock" && us > 0.0, "{timer} {us}");

    let text = std::fs::read_to_string(&file).unwrap();
    let kept: Value = serde_json::from_str(&text).unwrap();
    let result = &kept["results"][0];
    let best: Vec<String> =
        result["tactic"].as_array().unwrap().iter().map(|t| format!("{}={}", t[0].as_str().unwrap(), t[1])).collect();
    assert_eq!(
        (result["machine"]["target"].as_str(), result["candidates"].as_array().unwrap().len()),
        (Some("host"), 2)
    );

    // Nothing is used that no setting names; then calls of that bucket take it, and say so.
    assert_eq!(tactic(&machine, &[]), FIRST);
    let tuned = [("PARBAKE_TUNED", file.as_str())];
    assert_eq!(tactic(&machine, &tuned), format!("{} (tuned)", best.join(" ")));
    let listed = say(&machine, &tuned, "--json tune --list --target host").ok().json();
    assert!(listed[0]["unfit"].is_null(), "{listed}");

    // The same calls again replace the result, others are added.
    machine.say(&tune.replace("rows=3", "rows=2")).ok();
    machine.say(&tune.replace("rows=3", "rows=1")).ok();
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept["results"].as_array().unwrap().len(), 2);

    // What was measured of another state of things is named, and not used.
    let edit = |field: &[&str], value: &str| {
        let mut all: Value = serde_json::from_str(&text).unwrap();
        let place = field.iter().fold(&mut all["results"][0], |at, name| &mut at[*name]);
        *place = Value::from(value);
        std::fs::write(&file, all.to_string()).unwrap();
    };
    let digest = "0".repeat(64);
    for (field, value, why) in [
        (&["machine", "device"][..], "Another GPU", "measured on Another GPU"),
        (&["machine", "driver"], "570.1", "measured under driver 570.1; here it is none"),
        (&["machine", "library"], "0.0.1", "measured with library 0.0.1"),
        (&["machine", "target"], "sm_90a", "measured for sm_90a"),
        (&["artifact", "source_key"], &digest, "the kernel's sources are others now"),
        (&["artifact", "spec_id"], &digest, "the op has other options now"),
        (&["op"], "rmsnorm2", "there is no op `rmsnorm2`"),
    ] {
        edit(field, value);
        let listed = say(&machine, &tuned, "--json tune --list --target host").ok().json();
        assert!(listed[0]["unfit"].as_str().is_some_and(|text| text.contains(why)), "{why}: {listed}");
        assert_eq!(tactic(&machine, &tuned), FIRST, "{why}");
    }
    edit(&["artifact", "image"], &digest);
    assert_eq!(tactic(&machine, &tuned), FIRST);
    let ran = say(&machine, &tuned, &format!("run {CALL}")).ok();
    assert!(ran.stderr.contains("a tuned result is not used: it is of another image"), "{ran:?}");

    // A file that is anything else is not used, and not written over.
    std::fs::write(&file, "{}").unwrap();
    failed(&say(&machine, &tuned, &format!("run {CALL}")), 1, &["PB-2211", "tuned.json"]);
    failed(&machine.say(&tune), 1, &["PB-2211"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
    failed(&say(&machine, &[("PARBAKE_TUNED", "/nowhere.json")], "ops"), 3, &["PB-2200", "/nowhere.json"]);
}

#[test]
fn a_forced_tactic_is_taken_and_told_or_is_an_error() {
    let machine = Machine::new();
    let force = |text: &'static str| [("PARBAKE_TACTICS", text)];
    assert_eq!(tactic(&machine, &force("rmsnorm:block=512,rows=1,peel=0")), format!("{LAST} (forced)"));
    let why = say(&machine, &force("norm/rmsnorm:vec=4,peel=0"), "why rmsnorm dtype=f32 --target host").ok();
    assert!(why.stdout.contains("vec=4 peel=0, by PARBAKE_TACTICS (diagnosis)"), "{why:?}");
    assert!(why.stderr.contains("PARBAKE_TACTICS forces a tactic"), "{why:?}");
    let run = format!("run {CALL}");
    failed(&say(&machine, &force("rmsnorm:block=1024"), &run), 2, &["PB-2220", "block=1024", LAST]);
    failed(&say(&machine, &force("rmsnorm:block=7"), &run), 2, &["PB-1108", "block=7"]);
    failed(&say(&machine, &force("rmsnrm:block=512"), &run), 2, &["PB-1107", "did you mean `rmsnorm`?"]);
    failed(&say(&machine, &force("rmsnorm"), &run), 2, &["PB-1001", "PARBAKE_TACTICS"]);
}

#[test]
fn what_a_blocklist_names_is_not_launched_and_a_list_that_is_not_understood_stops_everything() {
    let machine = Machine::new();
    let path = machine.write("blocked.json", list(r#","tactic":{"rows":8}"#));
    let blocklist = [("PARBAKE_BLOCKLIST", path.as_str())];
    // Ranges and targets decide whether an entry is about this machine; what is not known of it counts as meant.
    let second = "block=512 rows=1 vec=16 peel=1";
    for (more, expected) in [
        ("", second),
        (r#","targets":["host"],"axes":{"dtype":"f32"}"#, second),
        (r#","toolkit":{"from":"13.0"}"#, second),
        (r#","library":{"from":"0.1"}"#, second),
        (r#","targets":["sm_90a"]"#, FIRST),
        (r#","axes":{"dtype":"bf16"}"#, FIRST),
        (r#","driver":{"below":"999"}"#, FIRST),
        (r#","library":{"below":"0.1"}"#, FIRST),
    ] {
        machine.write("blocked.json", list(&format!(r#","tactic":{{"rows":8}}{more}"#)));
        assert_eq!(tactic(&machine, &blocklist), expected, "{more}");
    }

    machine.write("blocked.json", list(r#","axes":{"dtype":"f32"}"#));
    let run = format!("run {CALL}");
    failed(&say(&machine, &blocklist, &run), 1, &["PB-2204", "it hangs", "entry 1: seen", FIRST, LAST]);
    let supports = say(&machine, &blocklist, "supports rmsnorm dtype=f32 --target host");
    assert!(supports.status == 1 && supports.stdout.starts_with("blocked: rmsnorm"), "{supports:?}");
    let why = say(&machine, &blocklist, "why rmsnorm dtype=f32 --target host").ok();
    assert!(why.stdout.contains("not looked up\n  blocked: it hangs ("), "{why:?}");
    let prepare = say(&machine, &blocklist, "prepare rmsnorm dtype=f32 --target host");
    failed(&prepare, 1, &["PB-2204"]);

    // It fails closed: also what has nothing to do with the entry.
    for (text, parts) in [
        (list(r#","tactics":{"rows":8}"#), ["PB-2202", "entry 1", "unknown field `tactics`"]),
        (list(r#","tactic":{"rows":9}"#), ["PB-2203", "entry 1", "no value 9"]),
        (list(r#","axes":{"type":"f32"}"#), ["PB-2203", "entry 1", "no axis `type`"]),
        (list("").replace("rmsnorm", "rmsnrm"), ["PB-2203", "entry 1", "no op `rmsnrm`"]),
        (list("")[1..].to_owned(), ["PB-2201", "blocked.json", "no blocklist"]),
        (list("").replace(":1,", ":2,"), ["PB-2201", "blocked.json", "schema 2"]),
    ] {
        machine.write("blocked.json", &text);
        failed(&say(&machine, &blocklist, "run softmax dtype=f32 --target host"), 1, &parts);
    }
    failed(&say(&machine, &[("PARBAKE_BLOCKLIST", "/nowhere.json")], &run), 3, &["PB-2200"]);
    // An entry of another version may name what is not there.
    machine.write("blocked.json", list(r#","library":{"below":"0.1"}"#).replace("rmsnorm", "gone"));
    assert_eq!(tactic(&machine, &blocklist), FIRST);
}

#[test]
fn a_probe_finds_what_hangs_crashes_and_is_wrong() {
    let machine = Machine::with_own_kernels();
    let header = machine.path("kernels/norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    let start = "    using Tile = ";
    let planted = text.replacen(
        start,
        &format!(
            "    if constexpr (kRows == 8 && kPeel) for (;;) asm volatile(\"\");\n    \
             if constexpr (kRows == 8 && !kPeel) __builtin_trap();\n{start}"
        ),
        1,
    );
    let wrong = planted.replacen("rsqrt_fast(", "(kPeel ? 2.f : 1.f) * rsqrt_fast(", 1);
    assert!(planted != text && wrong != planted);
    std::fs::write(&header, wrong).unwrap();

    // Measuring is watched over, but cannot go on.
    let stuck = machine.say(&format!("tune {CALL} --limit 2"));
    failed(&stuck, 1, &["PB-2230", FIRST, "within 2 s", "--probe"]);

    let probed = machine.say(&format!("--json tune {CALL} --limit 5 --probe --out blocked.json")).ok().json();
    let tried: Vec<(&str, Option<&str>)> =
        probed.as_array().unwrap().iter().map(|t| (t["tactic"].as_str().unwrap(), t["what"].as_str())).collect();
    assert_eq!(
        tried,
        [
            (FIRST, Some("hang")),
            ("block=512 rows=1 vec=16 peel=1", Some("wrong")),
            ("block=128 rows=8 vec=4 peel=0", Some("crash")),
            (LAST, None),
        ]
    );
    let path = machine.path("blocked.json").display().to_string();
    let list: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let entries = list["entries"].as_array().unwrap();
    assert!(entries.len() == 3 && entries.iter().all(|e| e["targets"][0] == "host"), "{list}");
    assert!(entries[2]["reason"].as_str().unwrap().contains("signal 4"), "{list}");

    let blocklist = [("PARBAKE_BLOCKLIST", path.as_str())];
    assert_eq!(tactic(&machine, &blocklist), LAST);
    let tuned = say(&machine, &blocklist, &format!("--json tune {CALL} --samples 1")).ok().json();
    let rows = tuned[0]["rows"].as_array().unwrap();
    assert!(rows[..3].iter().all(|r| r["why"].as_str().unwrap().starts_with("blocked: it ")), "{rows:?}");
    assert!(!rows[3]["timing"].is_null());

    // Once it is mended the entries stay, and it is said that they need not.
    std::fs::write(&header, &text).unwrap();
    let again = machine.say(&format!("tune {CALL} --probe --out blocked.json")).ok();
    assert!(again.stderr.contains("entry 1 of blocked.json bars"), "{again:?}");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(kept, list);
}
