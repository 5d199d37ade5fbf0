//! Every op on small shapes under several schedules of the host target: lanes in reverse, in a random order, preempted.
//!
//! tests/host/utilities.py runs this test once more with kernels that a sanitizer instruments, and with kernels that have
//! a bug. It sets PARBAKE_TEST_KERNELS to other kernels than the checkout's, and PARBAKE_TEST_ONLY to one op.

use super::collective;
use super::harness::{Case, library};
use parbake::{Library, Place};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// 0 is lanes in order, 1 in reverse; any other number is a random order with preemption.
const SCHEDULES: [u64; 4] = [77, 0, 1, 2];

/// Ops that have hundreds of blocks however small the tensor is: of them one schedule, for a sanitizer's sake.
const BUSY: [&str; 2] = ["amax", "fp8_quantize_per_tensor_dynamic"];

fn cases() -> Vec<Case> {
    let new = |op: &str, dims: &[(&str, i64)]| Case::new(op).dims(dims);
    let row_norm = [("rows", 3), ("hidden", 200)];
    let state = [("rows", 3), ("heads", 2), ("head_dim", 80)];
    let paged = [("tokens", 9), ("page_size", 5), ("pages", 5), ("kv_pages", 6), ("batch", 3)];
    let heads = [("tokens", 5), ("q_heads", 4), ("kv_heads", 2), ("head_dim", 64)];
    let parts = [("tokens", 5), ("q_heads", 4), ("kv_heads", 2), ("rotary_dim", 64), ("max_position", 50)];
    let nope = [("q_nope_dim", 24), ("k_nope_dim", 24)];
    let matrix = [("rows", 5), ("hidden", 260)];
    let scales = |columns: i64| [("rows", 5), ("hidden", 128), ("scale_rows", 128), ("scale_columns", columns)];
    let draws = [("rows", 3), ("sources", 3), ("vocab", 2000), ("seed_count", 1), ("offset_count", 1)];
    let chain = [("rows", 3), ("drafts", 4), ("vocab", 1030), ("seed_count", 1), ("offset_count", 3)];
    let vocab = [("rows", 3), ("vocab", 1111)];
    let attention = |rows: f64, tokens: i64| {
        let pages = [("page_size", 5), ("kv_pages", 30), ("pages", 31), ("mask_bytes", 2000)];
        let case = new("batch_attention", &[("tokens", tokens), ("batch", 3), ("plan_words", 1000)]).dims(&pages);
        let case = case.dims(&[("partial_words", 100_000)]).scalar("processors", 2.0).scalar("rows", rows);
        case.with("lse").with("kv_indices").with("kv_last_page_len")
    };
    let all = vec![
        new("attention_plan", &[("batch", 5), ("plan_words", 1000)])
            .scalar("processors", 3.0)
            .scalar("split_tiles", 2.0),
        attention(16.0, 3).with("sinks"),
        attention(64.0, 20).with("qo_indptr").scalar("causal", 1.0),
        attention(128.0, 20).with("qo_indptr").scalar("score", 1.0).with("mask").with("mask_indptr"),
        attention(64.0, 6).with("qo_indptr").scalar("score", 1.0).scalar("rope_theta", 1e4).scalar("sm_scale", 0.02),
        new(
            "mla_attention",
            &[("tokens", 4), ("batch", 2), ("heads", 5), ("page_size", 16), ("kv_pages", 9), ("pages", 10)],
        )
        .dims(&[("plan_words", 1000), ("partial_words", 200_000)])
        .scalar("processors", 2.0)
        .scalar("rows", 16.0)
        .with("kv_indices")
        .with("kv_last_page_len"),
        new("act_and_mul", &row_norm),
        new("silu_and_mul_quant", &row_norm),
        new("all_reduce", &[("elements", 520), ("pool_words", 68_736)]),
        new("all_gather", &[("elements", 520), ("pool_words", 68_736)]),
        new("reduce_scatter", &[("elements", 520), ("pool_words", 68_736)]),
        new("all_reduce_rmsnorm", &[("rows", 3), ("hidden", 200), ("pool_words", 68_736)]).with("out").with("quant"),
        new("merge_state", &state),
        new("merge_state_in_place", &state).with("mask"),
        new("merge_states", &state).dims(&[("states", 3)]),
        new("append_paged_kv_cache", &paged).dims(&[("heads", 2), ("head_dim", 40)]),
        new("append_paged_mla_kv_cache", &paged).dims(&[("ckv_dim", 48), ("kpe_dim", 16)]),
        new("concat_mla_k", &[("tokens", 5), ("heads", 3), ("nope_dim", 16), ("rope_dim", 8)]),
        new("copy_blocks", &[("blocks", 9), ("block", 100), ("pairs", 4)]),
        new("embedding", &[("tokens", 9), ("vocab", 33), ("hidden", 100)]),
        new("get_batch_indices_positions", &[("nnz", 100), ("batch", 7)]),
        new("get_seq_lens", &[("batch", 7)]),
        new("bmm", &[("batch", 2), ("m", 5), ("n", 70), ("k", 72)]),
        new("bmm", &[("batch", 1), ("m", 17), ("n", 65), ("k", 1032), ("partial_words", 60_000)])
            .with("partial")
            .with("tickets"),
        new("group_mm", &[("m", 40), ("tokens", 40), ("n", 70), ("k", 72), ("groups", 3), ("matrices", 3)])
            .with("indptr"),
        new("group_mm", &[("m", 40), ("tokens", 40), ("n", 9), ("k", 72), ("groups", 3), ("matrices", 3)])
            .with("ids")
            .with("rows"),
        new("moe_route", &[("tokens", 5), ("experts", 40), ("k", 3)])
            .with("bias")
            .scalar("groups", 4.0)
            .scalar("kept_groups", 2.0),
        new("moe_align", &[("tokens", 9), ("k", 3), ("experts", 4), ("capacity", 90), ("tiles", 6)])
            .with("tile_experts")
            .scalar("tile", 16.0),
        new("moe_gate_up", &[("m", 20), ("tokens", 9), ("experts", 3), ("hidden", 136), ("inner", 40)]),
        new("moe_gate_up_quant", &[("m", 20), ("tokens", 9), ("experts", 3), ("hidden", 144), ("inner", 128)])
            .scalar("processors", 1.0),
        new("moe_finalize", &[("tokens", 5), ("k", 3), ("hidden", 72), ("capacity", 16)]),
        new("apply_rope", &heads).with("pos_ids"),
        new("apply_rope", &heads).with("indptr").with("offsets").dims(&[("batch", 3)]).scalar("interleave", 1.0),
        new("rope_cos_sin_cache", &heads).dims(&[("rotary_dim", 64), ("max_position", 33)]),
        new("rope_quantize", &parts).dims(&nope).with("q_nope").with("q_nope_out").with("k_nope").with("k_nope_out"),
        new("rope_quantize_append", &parts)
            .dims(&nope)
            .dims(&paged[1..])
            .dims(&[("v_dim", 32)])
            .with("v")
            .with("v_cache")
            .with("q_nope")
            .with("q_nope_out")
            .with("k_nope")
            .with("k_nope_cache"),
        new("amax", &matrix),
        new("fp8_quantize_per_tensor", &matrix),
        new("fp8_quantize_per_tensor_dynamic", &matrix),
        new("fp8_quantize_per_token", &matrix),
        new("fp8_quantize_per_token_group", &matrix),
        new("fp8_quantize_per_block", &matrix),
        new("mxfp8_quantize", &scales(4)).scalar("layout", 0.0),
        new("mxfp8_dequantize", &scales(4)).scalar("layout", 0.0),
        new("fp4_quantize", &scales(8)).scalar("layout", 0.0).with("global_scale"),
        new("fp4_dequantize", &scales(8)).dims(&[("pairs", 64)]).scalar("layout", 0.0).with("global_scale"),
        new("packbits", &[("n", 500)]),
        new("packed_indptr", &[("batch", 1025)]),
        new("segment_packbits", &[("batch", 7), ("n", 300), ("packed", 50)]),
        new("block_scale_interleave", &[("rows", 130), ("columns", 5)]),
        new("softmax", &vocab),
        new("sample", &draws).scalar("top_k", 40.0).scalar("top_p", 0.8).scalar("top_k_first", 1.0),
        new("sample", &draws).scalar("logits", 1.0).scalar("min_p", 0.1),
        new("chain_speculative_sampling", &chain),
        new("top_k", &[("rows", 3), ("cols", 1111), ("k", 100)]).scalar("sorted", 1.0).scalar("tie_break", 1.0),
        new("top_k_page_table_transform", &[("rows", 3), ("batch", 3), ("max_len", 600), ("k", 64)]),
        new("top_k_ragged_transform", &[("rows", 3), ("max_len", 600), ("k", 64)]),
        new("top_k_mask_logits", &vocab).scalar("top_k", 50.0),
        new("top_k_renorm_probs", &vocab).scalar("top_k", 50.0),
        new("top_p_renorm_probs", &vocab).scalar("top_p", 0.9),
    ];
    let only = std::env::var("PARBAKE_TEST_ONLY").ok();
    all.into_iter().filter(|c| only.as_ref().is_none_or(|op| c.op() == op)).collect()
}

/// Takes for each axis that nothing else decides the type that is used most, or its first value.
fn complete(case: Case) -> Case {
    let def = library().definition(library().op(case.op()).unwrap());
    let free = def.axes.iter().filter(|a| a.dim.is_none() && a.scalar.is_none());
    free.fold(case, |case, axis| {
        let usual = axis.values.iter().find(|v| v.value == "bf16").unwrap_or(&axis.values[0]);
        case.axis(&axis.name, &usual.value)
    })
}

#[test]
fn every_op_under_several_schedules() {
    let cases: Vec<Case> = cases().into_iter().map(complete).collect();
    let mut config = library().config().clone();
    config.kernels = std::env::var_os("PARBAKE_TEST_KERNELS").map(Into::into).or(config.kernels);
    let libraries = SCHEDULES.map(|schedule| {
        let mut config = config.clone();
        config.host_schedule = schedule;
        Library::open(config).unwrap()
    });
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let check = |case: &Case| {
        let schedules = if BUSY.contains(&case.op()) { 1 } else { SCHEDULES.len() };
        for (library, schedule) in libraries.iter().zip(SCHEDULES).take(schedules) {
            // Rows that are dense, and rows that begin anywhere; tiles of scales are always dense.
            // Those of attention and of experts are read and written in vectors, and so are pieces of products.
            let (pad, offset) = match case.op() {
                "batch_attention" | "attention_plan" | "mla_attention" => (16, 0),
                "bmm" | "moe_gate_up" | "moe_gate_up_quant" => (16, 0),
                "all_reduce" | "all_gather" | "reduce_scatter" | "all_reduce_rmsnorm" => (16, 16),
                _ if case.tiled() => (0, 1),
                _ => (3, 1),
            };
            let apart = case.clone().seed(schedule + 2).strided(pad, offset);
            for case in [case, &apart] {
                match case.try_by(library, Place::Host) {
                    Ok(outcome) if outcome.ok => {}
                    Ok(outcome) => wrong.lock().unwrap().push(format!("{case:?} by {schedule}: {outcome:#?}")),
                    Err(error) => wrong.lock().unwrap().push(format!("{case:?}: {}", error.report())),
                }
            }
            // Alone they have nobody to race with.
            if library.definition(library.op(case.op()).unwrap()).family == "collective" {
                collective::by_two_ranks(library, case.op());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Each kernel keeps stacks for the thread that called it: those of all ops would be too many.
                    scope.spawn(|| check(case)).join().expect("a case does not panic");
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The row norms have tests of their own, by all of their tactics.
#[test]
fn no_op_is_left_out() {
    let there: BTreeSet<_> = cases().iter().map(|c| c.op().to_owned()).collect();
    let all = library().ops().filter(|(_, op)| op.family != "norm").map(|(_, op)| op.name.clone());
    let missing: Vec<_> = all.filter(|op| !there.contains(op)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
