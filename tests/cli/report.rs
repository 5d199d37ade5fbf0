//! The page about bundles: whole in itself, with a reason for every hole.

use crate::diff::{PLAIN, Recipe, bundle};
use crate::machine::Machine;
use parbake::model::bundle::{Bundle, BundleWriter, Details, Skipped};

fn page(machine: &Machine, words: &str) -> String {
    machine.say(&format!("report {words} --html page.html")).ok();
    std::fs::read_to_string(machine.path("page.html")).unwrap()
}

/// A copy of a bundle with other details.
fn with(machine: &Machine, bundle: &str, name: &str, change: impl FnOnce(&mut Details)) -> String {
    let bundle = Bundle::open(std::fs::File::open(bundle).unwrap()).unwrap();
    let mut details = Details { specs: Vec::new(), ..bundle.details().unwrap().clone() };
    change(&mut details);
    let mut writer = BundleWriter::new(details, 3);
    for item in bundle.items().unwrap() {
        writer.push(item.unwrap()).unwrap();
    }
    machine.write(name, writer.finish().unwrap())
}

#[test]
fn the_page_fetches_nothing_runs_nothing_and_escapes_names() {
    let machine = Machine::new();
    let plain = bundle(&machine, "plain.pbk", &PLAIN);
    let odd = with(&machine, &plain, "odd<b>.pbk", |details| {
        details.provenance.insert("<script>alert(1)</script>".to_owned(), "\"'&".to_owned());
        let spec = "odd </td>".to_owned();
        let reason = "<img src=x onerror=alert(1)>".to_owned();
        details.skipped.push(Skipped { op: "odd<i>".to_owned(), spec, target: details.targets[0], reason });
    });
    let html = page(&machine, &format!("{odd} --earlier {plain}"));
    for part in ["http:", "https:", "//", "<script", "<img", "<i>", "<b>", "javascript", "url(", "@import", "<link"] {
        assert!(!html.contains(part), "`{part}` is in the page");
    }
    for part in
        ["&lt;script&gt;alert(1)", "&quot;&#39;&amp;", "odd&lt;b&gt;.pbk", "&lt;img src=x", "prefers-color-scheme:dark"]
    {
        assert!(html.contains(part), "no `{part}` in the page");
    }
    for (open, close) in
        [("<table", "</table>"), ("<details", "</details>"), ("<g>", "</g>"), ("<tr", "</tr>"), ("<svg", "</svg>")]
    {
        assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
    }
}

/// What is there so that the page can be read on a phone too: nothing but the style says which of both it is.
#[test]
fn the_page_fits_wide_and_narrow_screens() {
    let machine = Machine::new();
    let earlier = bundle(&machine, "earlier.pbk", &Recipe { registers: 30, specs: (1, 3), ..PLAIN });
    let plain = bundle(&machine, "plain.pbk", &PLAIN);
    let html = page(&machine, &format!("{plain} --earlier {earlier}"));
    assert!(html.contains("<meta name=\"viewport\" content=\"width=device-width\">"));
    // The same picture in two shapes.
    let pictures: Vec<&str> = html.split("<svg class=\"map ").skip(1).collect();
    let names = |picture: &str| {
        let titles = picture.split("<title>").skip(1);
        let mut titles: Vec<String> = titles.map(|t| t.split('<').next().unwrap().to_owned()).collect();
        titles.sort();
        titles
    };
    assert!(pictures.len() == 2 && pictures[0].starts_with("wide\"") && pictures[1].starts_with("narrow\""));
    assert_eq!(names(pictures[0]), names(pictures[1]));
    for shown in
        [".map.narrow{display:none}", "@media(max-width:600px){.map.wide{display:none}.map.narrow{display:block}}"]
    {
        assert!(html.contains(shown), "no `{shown}`");
    }
    // Long names break at their joints, sentences below their rows, under the words of their heading.
    for part in ["<td>norm/<wbr>rmsnorm</td>", "<table class=\"prose\">", " class=\"long\" data-of=\"because\">"] {
        assert!(html.contains(part), "no `{part}` in {html}");
    }
}

#[test]
fn holes_have_reasons_and_changes_are_told() {
    let machine = Machine::new();
    let earlier = bundle(&machine, "earlier.pbk", &Recipe { registers: 30, sources: "old", specs: (1, 3), ..PLAIN });
    let plain = bundle(&machine, "plain.pbk", &PLAIN);
    let now = with(&machine, &plain, "now.pbk", |details| {
        let target = "sm_80".parse().unwrap();
        details.targets.push(target);
        let spec =
            Bundle::open(std::fs::File::open(&plain).unwrap()).unwrap().details().unwrap().specs[0].spec().to_string();
        let reason = "needs clusters".to_owned();
        details.skipped.push(Skipped { op: "rmsnorm".to_owned(), spec, target, reason });
    });
    let html = page(&machine, &format!("{now} --earlier {earlier}"));
    for part in [
        "<td class=\"c full\">3</td>",
        "<td class=\"c none\">0 / 1</td>",
        "needs clusters",
        "Since the earlier release",
        "norm/rmsnorm",
        "<title>norm/rmsnorm for sm_90a: ",
        "<td>registers</td><td class=\"n\">30</td>",
        "Not known: ",
    ] {
        assert!(html.contains(part), "no `{part}` in {html}");
    }
    let json = machine.say(&format!("report {now} --earlier {earlier} --html page.html --json")).ok().json();
    assert_eq!((&json["holes"][0]["reason"], &json["images"]), (&"needs clusters".into(), &3.into()));
    assert_eq!(json["difference"]["removed"].as_array().unwrap().len(), 1);
    // The same again is the same page, and one that cannot be written is said.
    assert_eq!(page(&machine, &format!("{now} --earlier {earlier}")), html);
    let ran = machine.say(&format!("report {now} --html nowhere/page.html"));
    assert_eq!((ran.status, ran.stderr.contains("PB-1117")), (3, true), "{ran:?}");
}

#[test]
fn compile_times_come_from_the_workspace_or_a_named_file() {
    let machine = Machine::new();
    machine.say("build --arch host --op norm/rmsnorm --only dtype=f32 --level 3 -o host.pbk").ok();
    let html = page(&machine, "host.pbk");
    assert!(html.contains(" s of one compiler") && !html.contains("Not known: "), "{html}");
    let costs = machine.workspace().join("store/costs.json").display().to_string();
    let elsewhere = Machine::new();
    let words = format!("{} --costs {costs}", machine.path("host.pbk").display());
    assert!(page(&elsewhere, &words).contains(" s of one compiler"));
    let broken = elsewhere.write("broken.json", "{");
    let ran = elsewhere.say(&format!("report {} --costs {broken} --html p.html", machine.path("host.pbk").display()));
    assert_eq!((ran.status, elsewhere.path("p.html").exists()), (1, false), "{ran:?}");
}
