//! The page about bundles.

use super::Facts;
use super::matrix::{Hole, Matrix};
use super::treemap::{self, Node};
use crate::difference::{Difference, Held};
use crate::html::{Html, breakable, escape};
use crate::text;
use parbake_codegen::baking::costs::Costs;
use parbake_model::Target;
use parbake_model::cubin::Resources;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const STYLE: &str = "\
.map{width:100%}.map.narrow{display:none}.map rect{stroke:var(--paper);stroke-width:1}\
.matrix td.c{text-align:center;font-variant-numeric:tabular-nums}.matrix td.full{background:#2b8a3e38}\
.matrix td.part{background:#f0a02048}.matrix td.none{background:#d6303a40}.matrix th.c{text-align:center}\
.matrix td:first-child,.matrix th:first-child{position:sticky;left:0;background:var(--paper)}table,.map{margin-bottom:.7em}\
@media(max-width:600px){.map.wide{display:none}.map.narrow{display:block}}\
summary{cursor:pointer;padding:3px 0}h2{margin-top:1.8em}";

/// Renders the page. `changes` is there if an earlier release was named.
pub(super) fn render(facts: &Facts<'_>, matrix: &Matrix, costs: &Costs, changes: Option<&Difference>) -> String {
    let mut page = Html::new("Parbake: bundles", "Bundles", STYLE);
    head(&mut page, facts);
    coverage(&mut page, facts, matrix);
    sizes(&mut page, facts);
    compile_times(&mut page, facts, costs);
    resources(&mut page, facts);
    if let Some(changes) = changes {
        differences(&mut page, facts, changes);
    }
    page.finish()
}

fn head(page: &mut Html, facts: &Facts<'_>) {
    let rows = facts.bundles.iter().map(|bundle| {
        vec![
            bundle.name.clone(),
            text::bytes(bundle.bytes),
            bundle.signature.clone(),
            format!("{}, launch ABI {}", bundle.details.library, bundle.details.launch_abi),
            bundle.index.clone(),
        ]
    });
    page.table(&["bundle", ">size", "signature", "made by parbake", "index"], rows.collect());
    let all = |of: &dyn Fn(&super::Listed<'_>) -> Vec<String>| {
        text::list(facts.bundles.iter().flat_map(of).collect::<BTreeSet<_>>())
    };
    let targets: BTreeSet<Target> = facts.bundles.iter().flat_map(|b| b.details.targets.clone()).collect();
    let mut rows = vec![
        vec!["targets".to_owned(), text::list(targets)],
        vec!["toolchains".to_owned(), all(&|b| b.details.toolchains.clone())],
    ];
    let names: BTreeSet<&String> = facts.bundles.iter().flat_map(|b| b.details.provenance.keys()).collect();
    for name in names {
        rows.push(vec![name.clone(), all(&|b| b.details.provenance.get(name).cloned().into_iter().collect())]);
    }
    page.table(&["", "~"], rows);
}

fn coverage(page: &mut Html, facts: &Facts<'_>, matrix: &Matrix) {
    page.heading("Coverage");
    page.say(
        "Images of each op for each target. Where other targets have more, the second number says how many there would be; \
         the reasons are below. A dash: not asked for.",
    );
    let mut html = "<table class=\"matrix\"><thead><tr><th>op</th>".to_owned();
    for target in &matrix.targets {
        let _ = write!(html, "<th class=\"c\">{}</th>", escape(&target.to_string()));
    }
    html += "</tr></thead><tbody>\n";
    let mut ops: Vec<&String> = matrix.ops.iter().collect();
    ops.sort_by_key(|op| facts.path(op));
    for op in ops {
        let _ = write!(html, "<tr><td>{}</td>", breakable(&facts.path(op)));
        for target in &matrix.targets {
            let cell = matrix.cells.get(&(op.clone(), *target)).copied().unwrap_or_default();
            let all = cell.images + cell.holes;
            let (class, words) = match (cell.images, cell.holes) {
                (0, 0) if !cell.asked => ("", "–".to_owned()),
                (0, 0) => ("none", "0".to_owned()),
                (0, _) => ("none", format!("0 / {all}")),
                (images, 0) => ("full", images.to_string()),
                (images, _) => ("part", format!("{images} / {all}")),
            };
            let _ = write!(html, "<td class=\"c {class}\">{words}</td>");
        }
        html += "</tr>\n";
    }
    page.raw(&(html + "</tbody></table>\n"));
    if matrix.holes.is_empty() {
        page.say("Every combination that one target has exists for all of them.");
    } else {
        page.say("What some targets have and others lack:");
        holes(page, facts, &matrix.holes);
    }
    if !matrix.nowhere.is_empty() {
        let count: usize = matrix.nowhere.iter().map(|h| h.targets.values().max().copied().unwrap_or(0)).sum();
        page.folded(&format!("{count} combinations that no target here has, and why"), |page| {
            holes(page, facts, &matrix.nowhere);
        });
    }
}

fn holes(page: &mut Html, facts: &Facts<'_>, holes: &[Hole]) {
    let row = |hole: &Hole| {
        let most = hole.targets.values().max().copied().unwrap_or(0);
        vec![facts.path(&hole.op), text::list(hole.targets.keys()), most.to_string(), hole.reason.clone()]
    };
    page.table(&["op", "targets", ">combinations", "~because"], holes.iter().map(row).collect());
}

/// Images and bytes, by target.
type Sums = BTreeMap<Target, (usize, u64)>;

fn sizes(page: &mut Html, facts: &Facts<'_>) {
    page.heading("Size");
    let (mut tree, mut targets) = (BTreeMap::<String, BTreeMap<String, Sums>>::new(), Sums::new());
    for ((_, target), held) in &facts.side.images {
        let op = &held.spec.op;
        let family = tree.entry(facts.family(op)).or_default();
        let sum = family.entry(op.clone()).or_default().entry(*target).or_default();
        *sum = (sum.0 + 1, sum.1 + held.image.size);
        let sum = targets.entry(*target).or_default();
        *sum = (sum.0 + 1, sum.1 + held.image.size);
    }
    let total: u64 = targets.values().map(|(_, bytes)| bytes).sum();
    let packed: u64 = facts.bundles.iter().map(|b| b.bytes).sum();
    let images = facts.side.images.len();
    page.say(&format!(
        "{} of {} before compression, {} in the files. Families around ops around targets:",
        text::count(images, "image"),
        text::bytes(total),
        text::bytes(packed)
    ));
    let ops: Vec<(String, usize, u64)> = tree
        .iter()
        .flat_map(|(family, ops)| ops.iter().map(move |(op, sums)| (format!("{family}/{op}"), sums)))
        .map(|(path, sums)| (path, sums.values().map(|s| s.0).sum(), sums.values().map(|s| s.1).sum()))
        .collect();
    page.raw(&treemap::draw(&nodes(tree)));
    let share = |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / total.max(1) as f64);
    let row = |(target, (images, bytes)): (&Target, &(usize, u64))| {
        vec![target.to_string(), images.to_string(), text::bytes(*bytes), share(*bytes)]
    };
    page.table(&["target", ">images", ">bytes", ">share"], targets.iter().map(row).collect());
    page.folded("Each op", |page| {
        let row = |(path, images, bytes): (String, usize, u64)| {
            vec![path, images.to_string(), text::bytes(bytes), share(bytes)]
        };
        page.table(&["op", ">images", ">bytes", ">share"], ops.into_iter().map(row).collect());
    });
}

type Tree = BTreeMap<String, BTreeMap<String, Sums>>;

fn nodes(tree: Tree) -> Vec<Node> {
    fn sorted(mut nodes: Vec<Node>) -> Vec<Node> {
        nodes.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.name.cmp(&b.name)));
        nodes
    }
    fn around(name: String, path: &str, parts: Vec<Node>) -> Node {
        let size = parts.iter().map(|part| part.size).sum();
        Node { title: format!("{path}: {}", text::bytes(size)), name, size, parts: sorted(parts) }
    }
    let families = tree.into_iter().map(|(family, ops)| {
        let ops = ops.into_iter().map(|(op, targets)| {
            let path = format!("{family}/{op}");
            let target = |(target, (images, size)): (Target, (usize, u64))| Node {
                name: target.to_string(),
                title: format!("{path} for {target}: {}, {}", text::bytes(size), text::count(images, "image")),
                size,
                parts: Vec::new(),
            };
            let parts = targets.into_iter().map(target).collect();
            around(op.clone(), &path, parts)
        });
        let ops = ops.collect();
        around(family.clone(), &family, ops)
    });
    sorted(families.collect())
}

fn compile_times(page: &mut Html, facts: &Facts<'_>, costs: &Costs) {
    page.heading("Compile time");
    let mut rows: BTreeMap<(String, Target), Vec<(u64, &str)>> = BTreeMap::new();
    let mut known = 0;
    for ((_, target), held) in &facts.side.images {
        let Some(ms) = costs.known(&held.spec.op, held.spec.spec_id, *target).map(|cost| cost.ms) else { continue };
        known += 1;
        rows.entry((facts.path(&held.spec.op), *target)).or_default().push((ms, &held.spec.uri));
    }
    if known == 0 {
        page.say("Not known: there are no figures of these specs. A bake leaves them in its store; --costs names another file.");
        return;
    }
    let total: u64 = rows.values().flatten().map(|(ms, _)| ms).sum();
    page.say(&format!(
        "{:.1} s of one compiler for {known} of {}. What each took when it was last compiled, on the machine that did it.",
        total as f64 / 1e3,
        text::count(facts.side.images.len(), "image")
    ));
    let mut body: Vec<(u64, Vec<String>)> = Vec::new();
    for ((op, target), mut all) in rows {
        all.sort_unstable();
        let sum: u64 = all.iter().map(|(ms, _)| ms).sum();
        let (most, uri) = all[all.len() - 1];
        let cells = [
            op,
            target.to_string(),
            all.len().to_string(),
            format!("{:.1}", sum as f64 / 1e3),
            all[all.len() / 2].0.to_string(),
            most.to_string(),
            uri.to_owned(),
        ];
        body.push((sum, cells.to_vec()));
    }
    body.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
    let headings = ["op", "target", ">images", ">s", ">median ms", ">longest ms", "of"];
    page.table(&headings, body.into_iter().map(|(_, cells)| cells).collect());
}

fn resources(page: &mut Html, facts: &Facts<'_>) {
    page.heading("Resources");
    page.say(
        "Of one thread or block, from the images themselves: registers, static shared memory, local memory (the stack and \
         what was spilled). Images for the host have none.",
    );
    let mut groups: BTreeMap<(String, Target), Vec<(&Held<'_>, Resources)>> = BTreeMap::new();
    for ((_, target), held) in &facts.side.images {
        if let Some(used) = held.image.resources {
            groups.entry((facts.path(&held.spec.op), *target)).or_default().push((held, used));
        }
    }
    let range = |all: &[(&Held<'_>, Resources)], of: fn(&Resources) -> u32| {
        let (low, high) = (all.iter().map(|(_, r)| of(r)).min(), all.iter().map(|(_, r)| of(r)).max());
        match (low.unwrap_or(0), high.unwrap_or(0)) {
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low}–{high}"),
        }
    };
    let rows = groups.iter().map(|((op, target), all)| {
        let local = all.iter().filter(|(_, r)| r.local_bytes > 0).count();
        vec![
            op.clone(),
            target.to_string(),
            all.len().to_string(),
            range(all, |r| r.registers),
            range(all, |r| r.shared_bytes),
            range(all, |r| r.local_bytes),
            if local > 0 { format!("-:{local}") } else { "0".to_owned() },
            range(all, |r| r.code_bytes),
        ]
    });
    let headings = ["op", "target", ">images", ">registers", ">shared B", ">local B", ">with local", ">code B"];
    page.table(&headings, rows.collect());
    let mut ops: BTreeMap<&String, Vec<(&Held<'_>, Resources)>> = BTreeMap::new();
    for ((op, _), all) in &groups {
        ops.entry(op).or_default().extend(all.iter().copied());
    }
    for (op, all) in ops {
        page.folded(&format!("{op}: each image"), |page| {
            let row = |(held, r): &(&Held<'_>, Resources)| {
                vec![
                    held.spec.uri.clone(),
                    held.image.target.to_string(),
                    held.image.toolkit.map_or("–".to_owned(), |t| t.to_string()),
                    r.registers.to_string(),
                    r.shared_bytes.to_string(),
                    if r.local_bytes > 0 { format!("-:{}", r.local_bytes) } else { "0".to_owned() },
                    r.param_bytes.to_string(),
                    r.code_bytes.to_string(),
                    held.image.size.to_string(),
                ]
            };
            let headings = [
                "image",
                "target",
                "CUDA",
                ">registers",
                ">shared B",
                ">local B",
                ">parameters B",
                ">code B",
                ">size B",
            ];
            page.table(&headings, all.iter().map(row).collect());
        });
    }
}

fn differences(page: &mut Html, facts: &Facts<'_>, d: &Difference) {
    page.heading("Since the earlier release");
    if d.is_empty() {
        page.say("Nothing differs.");
        return;
    }
    let percent = |before: u64, after: u64| {
        if before == 0 { "new".to_owned() } else { format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0) }
    };
    page.say(&format!("Images: {} then, {} now.", text::bytes(d.before), text::bytes(d.after)));
    if !d.facts.is_empty() {
        let row = |f: &crate::difference::Fact| vec![f.name.clone(), f.before.clone(), f.after.clone()];
        page.table(&["", "~earlier", "~now"], d.facts.iter().map(row).collect());
    }
    let mut rows: BTreeMap<(&str, String, String), BTreeMap<Target, usize>> = BTreeMap::new();
    let mut count = |what, op: &str, target, why| {
        *rows.entry((what, facts.path(op), why)).or_default().entry(target).or_default() += 1;
    };
    for (what, list) in [("added", &d.added), ("removed", &d.removed)] {
        for lone in list {
            count(what, &lone.op, lone.target, lone.why().to_owned());
        }
    }
    for changed in &d.changed {
        count("changed", &changed.op, changed.target, changed.why.join("; "));
    }
    let row = |((what, op, why), targets): ((&str, String, String), BTreeMap<Target, usize>)| {
        vec![what.to_owned(), op, text::list(targets.keys()), targets.values().sum::<usize>().to_string(), why]
    };
    page.table(&["", "op", "targets", ">images", "~because"], rows.into_iter().map(row).collect());
    let sizes = d.sizes.iter().map(|s| {
        let mark = if s.after > s.before { "-:" } else { "+:" };
        let change = format!("{mark}{}", percent(s.before, s.after));
        vec![facts.path(&s.op), s.target.to_string(), text::bytes(s.before), text::bytes(s.after), change]
    });
    page.folded("Sizes that changed", |page| {
        page.table(&["op", "target", ">earlier", ">now", ">change"], sizes.collect());
    });
    let used: Vec<Vec<String>> = d
        .changed
        .iter()
        .flat_map(|c| c.resources.iter().filter(|r| r.name != "code").map(move |r| (c, r)))
        .map(|(c, r)| {
            let mark = if r.after > r.before { "-:" } else { "+:" };
            vec![
                c.uri.clone(),
                c.target.to_string(),
                r.name.to_owned(),
                r.before.to_string(),
                format!("{mark}{}", r.after),
            ]
        })
        .collect();
    if !used.is_empty() {
        page.say("Images that need other resources than before:");
        page.table(&["image", "target", "resource", ">earlier", ">now"], used);
    }
}
