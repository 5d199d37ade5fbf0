//! Snippets: a caller's own score of attention is part of the spec, compiled once, and says on which line it is wrong.

mod common;

use common::World;
use parbake::decision::Origin;
use parbake::model::dtype::DType;
use parbake::model::identity::Spec;
use parbake::model::lock::Lock;
use parbake::model::record;
use parbake::model::snippet::{ParamType, Snippet};
use parbake::model::{Target, space};
use parbake::{Error, Library, Place, Stream, Tensor, Value, ops};

const TOKENS: i64 = 6;
const HEADS: i64 = 4;
const DIM: i64 = 64;
/// Sixteen keys a page, two pages for each of the two requests.
const PAGES: i64 = 4;
const PROCESSORS: i32 = 2;

fn snippet(name: &str, params: &[(&str, ParamType)], functions: &[(&str, &str)]) -> Snippet {
    Snippet {
        name: name.into(),
        params: params.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
        functions: functions.iter().map(|(n, b)| ((*n).to_owned(), (*b).to_owned())).collect(),
    }
}

fn soft_cap() -> Snippet {
    snippet("soft_cap", &[("cap", ParamType::F32)], &[("score", "return cap * tanhf(x / cap);")])
}

/// Memory of one small batch, with its plan.
struct Batch {
    q: Vec<u8>,
    k: Vec<u8>,
    v: Vec<u8>,
    plan: Vec<i32>,
    partial: Vec<f32>,
}

fn view<T>(data: &mut [T], dtype: DType, shape: &[i64]) -> Tensor {
    Tensor::dense(data.as_mut_ptr().cast(), dtype, shape).unwrap()
}

impl Batch {
    fn new(library: &Library) -> Self {
        let halves = |count: i64, step: i64| -> Vec<u8> {
            let mut bytes = vec![0; 2 * count as usize];
            bytes.chunks_exact_mut(2).enumerate().for_each(|(i, raw)| {
                DType::F16.store(((i as i64 * step % 101) as f64 - 50.0) / 25.0, raw);
            });
            bytes
        };
        let (q, k, v) =
            (halves(TOKENS * HEADS * DIM, 37), halves(PAGES * 16 * 2 * DIM, 53), halves(PAGES * 16 * 2 * DIM, 71));
        let (mut plan, mut indptr) = (vec![0; 4096], [0, 2, 4]);
        let (words, pointers) = (view(&mut plan, DType::I32, &[4096]), view(&mut indptr, DType::I32, &[3]));
        // SAFETY: the vectors outlive the call, which is done when it returns.
        unsafe {
            ops::attention_plan(
                library,
                Place::Host,
                Stream::DEFAULT,
                words,
                pointers,
                None,
                None,
                TOKENS as i32,
                HEADS as i32,
                2,
                DIM as i32,
                16,
                true,
                -1,
                0,
                PROCESSORS,
                0,
            )
        }
        .unwrap();
        Self { q, k, v, plan, partial: vec![0.0; 100_000] }
    }

    /// Calls with a score, by its number.
    fn call(
        &mut self,
        library: &Library,
        score: i32,
        cap: f64,
        values: &[(&str, Value)],
    ) -> Result<(Vec<f64>, Origin), Error> {
        let (mut o, mut indptr) = (vec![0u8; 2 * (TOKENS * HEADS * DIM) as usize], [0, 2, 4]);
        let paged = [PAGES, 16, 2, DIM];
        let mut tensors = vec![
            view(&mut o, DType::F16, &[TOKENS, HEADS, DIM]),
            Tensor::ABSENT,
            view(&mut self.plan, DType::I32, &[4096]),
            view(&mut self.partial, DType::F32, &[100_000]),
            view(&mut self.q, DType::F16, &[TOKENS, HEADS, DIM]),
            view(&mut self.k, DType::F16, &paged),
            view(&mut self.v, DType::F16, &paged),
            view(&mut indptr, DType::I32, &[3]),
        ];
        tensors.resize(15, Tensor::ABSENT);
        let scalars = [0.0, 1.0, f64::from(score), cap, 0.0, 1.0, 1.0, -1.0, 0.0, f64::from(PROCESSORS)];
        let op = library.op("batch_attention").unwrap();
        // SAFETY: the vectors outlive the call, which is done when it returns.
        let called = unsafe { library.call_snippet(op, (&tensors, &scalars), values, Place::Host, Stream::DEFAULT) }?;
        Ok((o.chunks_exact(2).map(|raw| DType::F16.load(raw)).collect(), called.from))
    }
}

fn number(library: &Library, snippet: &Snippet) -> i32 {
    library.snippet(library.op("batch_attention").unwrap(), snippet).unwrap()
}

fn far(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn the_identity_is_the_text_and_the_types() {
    let library = World::new().library();
    let op = library.op("batch_attention").unwrap();
    let def = library.definition(op);
    let plain = space::specs(def).find(|(_, legal)| legal.is_ok()).unwrap().0;
    let spec = |snippet: Snippet| plain.clone().with_snippet(def, snippet).unwrap();
    let own = spec(soft_cap());
    let sources = library.sources_digest(op).unwrap();
    let keys = |spec: &Spec| (spec.spec_id, spec.source_key(def, sources).digest);
    assert_eq!(keys(&own), keys(&spec(soft_cap())));
    assert!(own.uri.contains("-ssoft_cap_") && own.to_string().contains("score=soft_cap_"), "{own}");
    let [name, kind, code] = [
        Snippet { name: "softcap".into(), ..soft_cap() },
        snippet("soft_cap", &[("cap", ParamType::I32)], &[("score", "return cap * tanhf(x / cap);")]),
        snippet("soft_cap", &[("cap", ParamType::F32)], &[("score", "return cap * tanhf(x / cap) ;")]),
    ]
    .map(spec);
    for other in [&plain, &name, &kind, &code] {
        let (a, b) = (keys(other), keys(&own));
        assert!(a.0 != b.0 && a.1 != b.1 && other.uri != own.uri, "{other}");
    }
    // Every spec that calls reach is one that a bake of the snippet makes.
    let all = space::of_snippet(def, &soft_cap()).unwrap();
    assert!(all.contains(&own) && all.iter().all(|s| s.snippet.is_some()));
    let back: Spec = serde_json::from_str(&serde_json::to_string(&own).unwrap()).unwrap();
    assert_eq!(back, own);
}

#[test]
fn a_snippet_computes_what_the_built_in_variant_does() {
    let world = World::new();
    let library = world.library();
    let mut batch = Batch::new(&library);
    let (builtin, _) = batch.call(&library, 1, 1.5, &[]).unwrap();
    let (plain, _) = batch.call(&library, 0, 0.0, &[]).unwrap();
    let own = number(&library, &soft_cap());
    assert_eq!(own, number(&library, &soft_cap()), "the same snippet has the same number");
    let cap = [("cap", Value::Number(1.5))];
    let (ours, from) = batch.call(&library, own, 0.0, &cap).unwrap();
    assert_eq!(from, Origin::Jit);
    assert!(
        far(&ours, &builtin) < 2e-3 && far(&ours, &plain) > 2e-2,
        "{} {}",
        far(&ours, &builtin),
        far(&ours, &plain)
    );

    // Another process finds it in the store, and other values are no other kernel.
    let again = world.library();
    let (_, from) = batch.call(&again, number(&again, &soft_cap()), 0.0, &[("cap", Value::Number(3.0))]).unwrap();
    assert_eq!(from, Origin::Store);
    let (same, from) = batch.call(&again, number(&again, &soft_cap()), 0.0, &cap).unwrap();
    assert_eq!((from, same), (Origin::Registry, ours));
}

#[test]
fn the_example_of_the_page_is_right() {
    let page = std::fs::read_to_string(common::root().join("docs/attention.md")).unwrap();
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    assert_eq!(table.remove("op").unwrap().as_str(), Some("batch_attention"));
    let example: Snippet = table.try_into().unwrap();

    let library = World::new().library();
    let mut batch = Batch::new(&library);
    let score = number(&library, &example);
    let (mut bias, width) = (vec![0f32; HEADS as usize], 8.0);
    let given = |bias: &mut Vec<f32>, width: f64| {
        [("bias", Value::Tensor(view(bias, DType::F32, &[HEADS]))), ("width", Value::Number(width))]
    };
    // A bias of all keys of a head changes nothing, and what is wider than all keys hides nothing.
    let (plain, _) = batch.call(&library, 0, 0.0, &[]).unwrap();
    let (wide, _) = batch.call(&library, score, 0.0, &given(&mut bias, 64.0)).unwrap();
    assert!(far(&plain, &wide) < 2e-3, "{}", far(&plain, &wide));
    let (narrow, _) = batch.call(&library, score, 0.0, &given(&mut bias, width)).unwrap();
    assert!(far(&plain, &narrow) > 2e-2);
    // Only the head whose bias is steep sees other weights.
    bias[3] = 0.5;
    let (steep, _) = batch.call(&library, score, 0.0, &given(&mut bias, 64.0)).unwrap();
    let of = |all: &[f64], head: i64| -> Vec<f64> {
        let rows = all.chunks_exact(DIM as usize).enumerate().filter(|(i, _)| *i as i64 % HEADS == head);
        rows.flat_map(|(_, row)| row.to_vec()).collect()
    };
    assert!(far(&of(&steep, 3), &of(&wide, 3)) > 2e-2 && far(&of(&steep, 2), &of(&wide, 2)) < 1e-6);
}

#[test]
fn what_is_wrong_is_said_by_name() {
    let library = World::new().library();
    let op = library.op("batch_attention").unwrap();
    let refused = |snippet: Snippet| library.snippet(op, &snippet).unwrap_err().report().to_string();
    let many: Vec<String> = (0..9).map(|i| format!("p{i}")).collect();
    let many: Vec<(&str, ParamType)> = many.iter().map(|name| (name.as_str(), ParamType::F32)).collect();
    let text = refused(snippet("many", &many, &[("score", "return x;"), ("mask", "return true;")]));
    assert!(text.contains("PB-2040") && text.contains("snippet `many`") && text.contains("at most 8, got 9"), "{text}");
    assert!(text.contains("expected score or sees, got `mask`"), "{text}");
    let text = refused(snippet("own", &[("x", ParamType::F32)], &[("score", "return x;\n#include <math.h>\n")]));
    assert!(text.contains("none of x, at, user, got `x`") && text.contains("score, line 2"), "{text}");
    let norm = library.op("rmsnorm").unwrap();
    assert!(library.snippet(norm, &soft_cap()).unwrap_err().to_string().contains("for `rmsnorm`"));

    // Of calls: nothing is compiled for them.
    let mut batch = Batch::new(&library);
    let own = number(&library, &soft_cap());
    let mut tensor = [0f32; 4];
    let tensor = Value::Tensor(view(&mut tensor, DType::F32, &[4]));
    for (score, values, words) in [
        (own, vec![], "a value of cap"),
        (own, vec![("cap", Value::Number(1.0)), ("cup", Value::Number(1.0))], "expected cap, got `cup`"),
        (own, vec![("cap", tensor)], "a number, as of type f32"),
        (0, vec![("cap", Value::Number(1.0))], "no parameters without a snippet"),
        (own + 7, vec![], "1 (modified), or the number of a snippet of this op"),
    ] {
        let text = batch.call(&library, score, 0.0, &values).unwrap_err().report().to_string();
        assert!(text.contains("PB-2001") && text.contains(words), "{text}");
    }
    let text = batch.call(&library, own, 1.0, &[("cap", Value::Number(1.0))]).unwrap_err().report().to_string();
    assert!(text.contains("logits_soft_cap"), "{text}");

    // The compiler names the snippet and the line.
    let own = number(&library, &snippet("typo", &[], &[("score", "float y = x;\n\nreturn why;")]));
    let error = batch.call(&library, own, 0.0, &[]).unwrap_err().report().to_string();
    assert!(error.contains("typo.score:3:") && error.contains("why"), "{error}");
    // Behind it, lines are those of the unit again.
    let own = number(&library, &snippet("open", &[], &[("sees", "return true; {")]));
    let error = batch.call(&library, own, 0.0, &[]).unwrap_err().report().to_string();
    assert!(error.contains("batch_attention-f16-") && error.contains(".cu:"), "{error}");
}

#[test]
fn what_is_recorded_can_be_locked_and_covers_a_process_that_may_not_compile() {
    let mut world = World::new();
    let file = world.folder.path().join("asked.jsonl");
    world.config.record = Some(file.display().to_string());
    let library = world.library();
    let mut batch = Batch::new(&library);
    let cap = [("cap", Value::Number(1.5))];
    let mut strict = world.config.clone();
    strict.jit = false;
    strict.workspace = world.folder.path().join("other");
    let offline = Library::open(strict).unwrap();
    let error = batch.call(&offline, number(&offline, &soft_cap()), 0.0, &cap).unwrap_err();
    let text = error.report().to_string();
    assert!(text.contains("PB-2002") && text.contains("score=soft_cap_"), "{text}");
    assert!(text.contains("parbake build --lock asked.lock -o batch_attention-host.pbk"), "{text}");

    // What was asked for in vain is recorded with its source, which is all that another library needs.
    let records = record::read(&std::fs::read(&file).unwrap()).unwrap().records;
    let asked = records.iter().find(|r| r.snippet.is_some()).unwrap();
    assert_eq!((asked.from.as_deref(), asked.snippet.as_deref()), (None, Some(&soft_cap())));
    let lock = Lock::of([(asked.locked(), Target::Host)]);
    assert_eq!(lock.schema, 3);
    let lock = Lock::from_json(lock.to_json().as_bytes()).unwrap();
    let wanted = library.locked(&lock, &[parbake::Site::Place(Place::Host)]).unwrap();
    let readied = library.prepare(&wanted).unwrap();
    assert_eq!((readied.len(), readied[0].from), (1, Origin::Jit));
    // Another text under that identity is none of it.
    let mut forged = lock.clone();
    forged.specs[0].snippet.as_mut().unwrap().functions.insert("score".into(), "return x;".into());
    let error = library.resolved(&forged).unwrap_err().report().to_string();
    assert!(error.contains("PB-2006"), "{error}");
}
