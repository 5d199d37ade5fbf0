//! What does not exist or is refused: each exclusion of a definition and each rule of a launcher, with its reason.

use super::harness::library;
use parbake::model::dtype::DType;
use parbake::model::identity::{Spec, SpecIndex};
use parbake::model::op::Op;
use parbake::model::{Target, space};
use parbake::trial::Trial;
use parbake::{Error, Goal, Support, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Each exclusion decides about some combination, and its reason is the answer to whoever asks for that.
#[test]
fn every_exclusion_is_an_answer() {
    let targets = Target::parse_list("host,75,80,89,90a,120f").unwrap();
    let library = library();
    for (id, op) in library.ops() {
        for exclude in &op.excludes {
            let reason = Err(space::Unsupported(exclude.reason.clone()));
            let all = (0..space::size(op)).map(|i| Spec::at(op, SpecIndex(i as u32)));
            let mut all = all.flat_map(|spec| targets.iter().map(move |target| (spec.clone(), *target)));
            let found = all.find(|(spec, target)| space::check(op, spec, Some(*target)) == reason);
            let (spec, target) = found.unwrap_or_else(|| panic!("{}: excludes nothing: {}", op.name, exclude.reason));
            let answer = library.supports(id, &spec, Goal::Target(target)).unwrap();
            assert_eq!(answer.support, Support::Unsupported, "{spec}");
            assert!(answer.reason.is_some_and(|r| r.contains(&exclude.reason)), "{spec}");
            let report = library.explain(id, &spec, Goal::Target(target)).unwrap_err().report();
            let text = report.to_string();
            assert_eq!(report.code, "PB-1109", "{text}");
            for part in [&op.name, &exclude.reason, &target.to_string()] {
                assert!(text.contains(part), "no {part:?} in {text}");
            }
        }
    }
}

/// A call that a launcher refuses: extents and scalars that differ from those of the example, and what is given.
struct Refused {
    op: &'static str,
    dims: &'static [(&'static str, i64)],
    scalars: &'static [(&'static str, f64)],
    with: &'static [&'static str],
    says: &'static [&'static str],
}

const fn of(
    op: &'static str,
    dims: &'static [(&'static str, i64)],
    scalars: &'static [(&'static str, f64)],
    with: &'static [&'static str],
    says: &'static [&'static str],
) -> Refused {
    Refused { op, dims, scalars, with, says }
}

const MANY: i64 = 2_147_483_647;
const NOPE: &[&str] = &["q_nope", "q_nope_out", "k_nope"];

const REFUSED: &[Refused] = &[
    of("silu_and_mul_quant", &[("rows", MANY), ("hidden", 1 << 20)], &[], &[], &["x", "rows of 2097152 columns"]),
    of("merge_state", &[("rows", MANY), ("heads", 64)], &[], &[], &["with so many heads", "2147483647"]),
    of("merge_state_in_place", &[("rows", MANY), ("heads", 64)], &[], &[], &["with so many heads"]),
    of("merge_states", &[("rows", MANY), ("heads", 64)], &[], &[], &["with so many heads"]),
    of("qk_rmsnorm", &[("tokens", MANY), ("q_heads", 64)], &[], &[], &["q", "tokens of"]),
    of("append_paged_kv_cache", &[("tokens", MANY), ("heads", 64)], &[], &[], &["rows of this size"]),
    of("append_paged_mla_kv_cache", &[("tokens", MANY), ("ckv_dim", 4096)], &[], &[], &["rows of this size"]),
    of("concat_mla_k", &[("tokens", MANY), ("heads", 128)], &[], &[], &["rows of this size"]),
    of("copy_blocks", &[("pairs", MANY), ("block", 1 << 20)], &[], &[], &["rows of this size"]),
    of("embedding", &[("tokens", MANY), ("hidden", 1 << 20)], &[], &[], &["rows of this size"]),
    of("mxfp8_quantize", &[("hidden", 100)], &[], &[], &["whole blocks of 32", "hidden = 100"]),
    of("mxfp8_quantize", &[("scale_rows", 7)], &[], &[], &["scale", "for layout 2"]),
    of("mxfp8_dequantize", &[("scale_columns", 3)], &[("layout", 0.0)], &[], &["scale", "for layout 0"]),
    of("fp4_quantize", &[("hidden", 40)], &[], &[], &["whole blocks of 16"]),
    of("fp4_quantize", &[], &[("format", 1.0)], &["global_scale"], &["global_scale", "MXFP4 has no such factor"]),
    of("fp4_dequantize", &[("scale_rows", 7)], &[], &[], &["scale", "for layout"]),
    of("apply_rope", &[], &[("rotary_dim", 7.0)], &["pos_ids"], &["an even number up to head_dim = 128", "7"]),
    of("apply_rope", &[], &[("rotary_dim", 256.0)], &["pos_ids"], &["an even number up to head_dim = 128", "256"]),
    of("apply_rope", &[], &[], &[], &["pos_ids, or indptr and offsets", "none of them"]),
    of("apply_rope", &[], &[], &["pos_ids", "indptr"], &["pos_ids, or indptr and offsets", "pos_ids, indptr"]),
    of(
        "apply_rope",
        &[],
        &[("old_context_len", 8192.0), ("low_freq_factor", 4.0)],
        &["pos_ids"],
        &["more than low_freq"],
    ),
    of("apply_rope", &[("tokens", MANY)], &[], &["pos_ids"], &["q", "with heads of this size"]),
    of("rope_cos_sin_cache", &[("rotary_dim", 31)], &[], &[], &["cos_sin_cache", "31"]),
    of("rope_quantize", &[("rotary_dim", 63)], &[], &[], &["an even number", "63"]),
    of("rope_quantize", &[], &[], NOPE, &["k_nope_out", "a tensor, as of `k_nope`"]),
    of("rope_quantize_append", &[("rotary_dim", 63)], &[], &[], &["an even number", "63"]),
    of("rope_quantize_append", &[], &[], NOPE, &["k_nope_cache", "a tensor, as of `k_nope`"]),
    of("sample", &[("rows", 3), ("sources", 2)], &[], &[], &["3 rows, one for each token", "2"]),
    of("sample", &[("rows", 3), ("sources", 3), ("seed_count", 2)], &[], &["seeds"], &["seeds", "1 or 3 elements"]),
    of("chain_speculative_sampling", &[("rows", 3), ("offset_count", 2)], &[], &["offsets"], &["1 or 3 elements"]),
    of("attention_plan", &[], &[("rows", 32.0)], &[], &["rows", "one of 0, 16, 64, 128", "32"]),
    of(
        "attention_plan",
        &[],
        &[("qo_heads", 3.0), ("kv_heads", 2.0)],
        &[],
        &["qo_heads", "a multiple of kv_heads = 2"],
    ),
    of("attention_plan", &[], &[("tokens", 7.0)], &[], &["tokens", "a multiple of the 4 requests"]),
    of("attention_plan", &[("plan_words", 100)], &[], &[], &["plan", "words for these shapes", "100"]),
    of("batch_attention", &[("tokens", 23)], &[], &[], &["tokens", "a multiple of the 4 requests", "23"]),
    of("batch_attention", &[("qo_heads", 3)], &[], &[], &["qo_heads", "a multiple of kv_heads = 2"]),
    of("batch_attention", &[("plan_words", 100)], &[], &[], &["plan", "words for these shapes", "100"]),
    of("batch_attention", &[("partial_words", 100)], &[], &[], &["partial", "words for these shapes", "100"]),
    of("batch_attention", &[], &[("logits_soft_cap", 30.0)], &[], &["logits_soft_cap", "score = modified"]),
    of("batch_attention", &[], &[("score", 1.0)], &["mask"], &["mask_indptr", "one with mask"]),
    of("batch_attention", &[], &[("rows", 48.0)], &[], &["rows", "one of 0, 16, 64, 128", "48"]),
    of("mla_attention", &[("plan_words", 16)], &[], &[], &["plan", "at least", "words for these shapes"]),
    of("mla_attention", &[("partial_words", 7)], &[], &[], &["partial", "at least", "words for these shapes"]),
    of("mla_attention", &[], &[("rows", 32.0)], &[], &["rows", "one of 0, 16, 64", "32"]),
    of("mla_attention", &[("tokens", 7)], &[], &[], &["a multiple of the 4 requests", "7"]),
    of("bmm", &[("a_scale_rows", 3)], &[], &["a_scale"], &["a_scale", "one for each row", "3"]),
    of("bmm", &[("b_scale_blocks", 2)], &[], &["b_scale"], &["b_scale", "1 in dimension 2", "2"]),
    of("bmm", &[], &[], &["partial"], &["tickets", "one with partial"]),
    of("bmm", &[("m", MANY), ("n", 1 << 20)], &[], &[], &["out", "tiles of 16 × 64"]),
    of("group_mm", &[], &[], &[], &["one of indptr, lengths and ids", "none of them"]),
    of("group_mm", &[], &[], &["indptr", "ids"], &["one of indptr, lengths and ids", "indptr, ids"]),
    of("group_mm", &[("tokens", 1)], &[], &["indptr"], &["a", "where rows is absent", "1"]),
    of("group_mm", &[("matrices", 1)], &[], &["indptr"], &["b", "where weights is absent", "1"]),
    of("group_mm", &[("m", 1001), ("tokens", 1001)], &[], &["lengths"], &["out", "a multiple of the", "1001"]),
    of("group_mm", &[], &[("tile_rows", 48.0)], &["indptr"], &["tile_rows", "one of 0, 16, 64, 128", "48"]),
    of("moe_route", &[("experts", 60)], &[("groups", 8.0)], &[], &["groups", "a divisor of the 60 experts", "8"]),
    of("moe_route", &[], &[("groups", 4.0), ("kept_groups", 5.0)], &[], &["kept_groups", "at most the 4 groups", "5"]),
    of("moe_route", &[("k", 9)], &[("groups", 32.0)], &[], &["k", "at most the 8 experts that may be chosen", "9"]),
    of("moe_align", &[("capacity", 511)], &[], &[], &["rows", "at least 512 elements for 512 choices in tiles of 1"]),
    of(
        "moe_align",
        &[("capacity", 2432), ("tiles", 151)],
        &[("tile", 16.0)],
        &["tile_experts"],
        &["tile_experts", "at least 152 elements"],
    ),
    of("moe_align", &[("tokens", MANY)], &[], &[], &["ids", "at most 2147483647 choices"]),
    of("moe_gate_up", &[("hidden", 100)], &[], &[], &["x", "a multiple of 8", "100"]),
    of("moe_gate_up", &[("m", MANY - 255), ("inner", 4096)], &[], &[], &["out", "tiles of 16 × 32"]),
    of("moe_gate_up_quant", &[("hidden", 100)], &[], &[], &["x", "a multiple of 16", "100"]),
    of("moe_gate_up_quant", &[("inner", 200)], &[], &[], &["out", "a multiple of 128", "200"]),
    of("moe_finalize", &[("tokens", MANY)], &[], &[], &["out", "tokens of 2048 elements"]),
    of("all_reduce", &[("elements", 1001)], &[], &[], &["x", "a multiple of 8 elements", "1001"]),
    of("all_reduce", &[], &[("rank", 1.0)], &[], &["rank", "less than the 1 ranks", "1"]),
    of("all_reduce", &[("pool_words", 2176)], &[], &[], &["pool", "at least 532992 bytes", "8704 bytes"]),
    of("all_gather", &[("elements", 1001)], &[], &[], &["x", "a multiple of 8 elements", "1001"]),
    of("all_gather", &[("pool_words", 2176)], &[], &[], &["pool", "at least 532992 bytes", "8704 bytes"]),
    of("reduce_scatter", &[("elements", 1001)], &[], &[], &["x", "a multiple of 8 elements", "1001"]),
    of("reduce_scatter", &[("ranks", 8)], &[], &[], &["pool", "at least 4203008 bytes", "1057280 bytes"]),
    of("all_reduce_rmsnorm", &[("hidden", 1001)], &[], &["out"], &["x", "a multiple of 8 elements", "1001"]),
    of("all_reduce_rmsnorm", &[], &[], &[], &["out", "out, quant, or both", "neither"]),
    of("all_reduce_rmsnorm", &[("rows", 257)], &[], &["out"], &["pool", "at least 1581568 bytes", "1057280 bytes"]),
    of("top_k", &[("cols", 5000), ("k", 4097)], &[("sorted", 1.0)], &[], &["at most 4096 with `sorted`", "4097"]),
];

/// What the arguments are judged to be. There is no memory behind them, so nothing can be read or written either.
fn judge(refused: &Refused) -> Result<Vec<Spec>, Error> {
    let library = library();
    let id = library.op(refused.op).unwrap();
    let op: &Op = library.definition(id);
    let first = op.axes.iter().map(|a| (a.name.clone(), a.values[0].value.clone()));
    let trial = Trial::example(op, first.filter(|(name, _)| decided(op, name)).collect());
    let mut dims = trial.dims.clone();
    dims.extend(refused.dims.iter().map(|(n, v)| ((*n).to_owned(), *v)));
    let scalars: BTreeMap<_, _> = refused.scalars.iter().copied().collect();
    let numbers: Vec<f64> =
        op.scalars.iter().map(|s| scalars.get(s.name.as_str()).copied().or(s.default).unwrap_or(s.min)).collect();
    let place = |i: usize, t: &parbake::model::op::Tensor| {
        if t.optional && !refused.with.contains(&t.name.as_str()) {
            return Tensor::ABSENT;
        }
        let named = t.axis.as_ref().and_then(|axis| trial.axes.get(axis)).and_then(|v| DType::named(v));
        let extents = t.extents().into_iter().map(|e| e.value(&mut |symbol| dims.get(symbol).copied()).unwrap());
        let shape: Vec<i64> = extents.collect();
        Tensor::dense(((i + 1) << 56) as *mut _, named.or(t.dtype).unwrap(), &shape).unwrap()
    };
    let tensors: Vec<Tensor> = op.tensors.iter().enumerate().map(|(i, t)| place(i, t)).collect();
    library.choices(id, &tensors, &numbers, Target::Host)
}

fn decided(op: &Op, axis: &str) -> bool {
    op.axes.iter().any(|a| a.name == axis && a.dim.is_none() && a.scalar.is_none())
}

#[test]
fn every_rule_of_a_launcher_says_what_it_wants() {
    for refused in REFUSED {
        let report = judge(refused).expect_err(refused.op).report();
        let text = report.to_string();
        assert_eq!(report.code, "PB-2001", "{text}");
        for part in refused.says.iter().chain([&refused.op]) {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
    let there: BTreeSet<_> = REFUSED.iter().map(|r| r.op).collect();
    let missing: Vec<_> = library().ops().filter(|(_, op)| op.checks && !there.contains(op.name.as_str())).collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|(_, op)| &op.name).collect::<Vec<_>>());
}
