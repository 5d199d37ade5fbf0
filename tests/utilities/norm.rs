//! Norms beyond rmsnorm and fused_add_rmsnorm, which tests/norms.rs has.

use crate::harness::{Case, gpu, library, pairs};
use parbake::model::dtype::DType;
use parbake::{Place, Stream, Tensor};

/// Rows, hidden size, elements between rows, elements before the first: every tactic is reached, and its edges.
const SHAPES: &[(i64, i64, i64, usize)] = &[
    (1, 1, 0, 0),
    (3, 7, 1, 1),
    (33, 32, 0, 0),
    (3, 111, 1, 1),
    (9, 120, 8, 0),
    (5, 500, 12, 0),
    (2, 1000, 3, 5),
    (2, 4096, 8, 0),
    (1, 8191, 0, 3),
    (1, 20_000, 0, 0),
    (1, 65_535, 0, 1),
    (0, 64, 0, 0),
];
/// The peers' list: rows and hidden sizes.
const ROWS: &[i64] = &[1, 19, 99, 989];
const HIDDEN: &[i64] = &[111, 500, 1024, 3072, 3584, 4096, 8192, 16_384];

fn check(case: &Case) {
    for (seed, &(rows, hidden, pad, offset)) in SHAPES.iter().enumerate() {
        case.clone().dims(&[("rows", rows), ("hidden", hidden)]).strided(pad, offset).seed(seed as u64).check();
    }
    if gpu() {
        for (rows, hidden) in pairs(ROWS, HIDDEN) {
            for (pad, offset) in [(0, 0), (16, 0), (3, 1)] {
                case.clone().dims(&[("rows", rows), ("hidden", hidden)]).strided(pad, offset).large().check();
            }
        }
    }
}

#[test]
fn layernorm_is_right() {
    for dtype in ["f16", "bf16", "f32"] {
        check(&Case::new("layernorm").axis("dtype", dtype));
    }
}

fn quantised(op: &str, scale: bool) {
    for (dtype, out) in [("f16", "e4m3"), ("bf16", "e4m3"), ("bf16", "e5m2")] {
        let case = Case::new(op).axis("dtype", dtype).axis("out_dtype", out);
        match (scale, out) {
            (true, "e4m3") => check(&case.with("scale")),
            // Large and small scales, so that values saturate and vanish.
            (true, _) => check(&case.scalar("scale_value", 1e-5)),
            (false, _) => check(&case),
        }
    }
}

#[test]
fn rmsnorm_quant_is_right() {
    quantised("rmsnorm_quant", true);
}

#[test]
fn fused_add_rmsnorm_quant_is_right() {
    quantised("fused_add_rmsnorm_quant", true);
}

#[test]
fn layernorm_quant_is_right() {
    quantised("layernorm_quant", true);
}

#[test]
fn rmsnorm_quant_per_token_is_right() {
    quantised("rmsnorm_quant_per_token", false);
}

#[test]
fn fused_add_rmsnorm_quant_per_token_is_right() {
    quantised("fused_add_rmsnorm_quant_per_token", false);
}

#[test]
fn every_norm_takes_weights_stored_as_their_difference_from_one() {
    for op in
        ["rmsnorm_quant", "fused_add_rmsnorm_quant", "rmsnorm_quant_per_token", "fused_add_rmsnorm_quant_per_token"]
    {
        for hidden in [96, 2048, 2049] {
            let dims = [("rows", 3), ("hidden", hidden)];
            Case::new(op).axis("dtype", "f16").axis("out_dtype", "e4m3").dims(&dims).scalar("weight_bias", 1.0).check();
        }
    }
}

#[test]
fn qk_rmsnorm_is_right() {
    let shapes: &[(i64, i64, i64, i64, i64, usize)] = &[
        (3, 32, 8, 128, 0, 0),
        (1, 5, 1, 64, 8, 0),
        (70, 1, 1, 16, 0, 0),
        (3, 3, 2, 256, 16, 0),
        (2, 4, 4, 512, 0, 0),
        (2, 3, 1, 111, 1, 1),
        (2, 2, 1, 1000, 0, 3),
        (33, 1, 1, 1, 0, 0),
        (0, 2, 1, 128, 0, 0),
    ];
    for (dtype, &(tokens, q, kv, dim, pad, offset)) in
        pairs(&["f16", "bf16", "f32"], &shapes.iter().collect::<Vec<_>>())
    {
        let dims = [("tokens", tokens), ("q_heads", q), ("kv_heads", kv), ("head_dim", dim)];
        Case::new("qk_rmsnorm").axis("dtype", dtype).dims(&dims).strided(pad, offset).seed(dim as u64).check();
    }
    let dims = [("tokens", 16_384), ("q_heads", 32), ("kv_heads", 8), ("head_dim", 128)];
    Case::new("qk_rmsnorm").axis("dtype", "bf16").dims(&dims).scalar("weight_bias", 1.0).large().check();
}

/// A dense tensor over these elements.
pub(crate) fn dense<T>(data: &mut [T], dtype: DType, shape: &[i64]) -> Tensor {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    assert_eq!(data.len() as i64, shape.iter().product::<i64>());
    Tensor::new(data.as_mut_ptr().cast(), dtype, shape, &strides).unwrap()
}

/// Calls an op on memory of the host.
pub(crate) fn call(op: &str, tensors: &[Tensor], scalars: &[f64]) {
    let library = library();
    // SAFETY: the tensors were made from slices that the caller still has, with their extents.
    unsafe { library.call(library.op(op).unwrap(), tensors, scalars, Place::Host, Stream::DEFAULT) }.unwrap();
}

#[test]
fn queries_and_keys_may_be_slices_of_one_tensor() {
    const TOKENS: usize = 5;
    const DIM: usize = 64;
    let (q_heads, kv_heads) = (3, 2);
    let width = (q_heads + 2 * kv_heads) * DIM;
    let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 16.0;
    let mut packed: Vec<f32> = (0..TOKENS * width).map(value).collect();
    let before = packed.clone();
    let mut weight: Vec<f32> = (0..DIM).map(|i| 1.0 + i as f32 / 64.0).collect();
    let slice = |packed: &mut Vec<f32>, first: usize, heads: usize| {
        let shape = [TOKENS as i64, heads as i64, DIM as i64];
        let data = packed[first * DIM..].as_mut_ptr().cast();
        Tensor::new(data, DType::F32, &shape, &[width as i64, DIM as i64, 1]).unwrap()
    };
    let (q, k) = (slice(&mut packed, 0, q_heads), slice(&mut packed, q_heads, kv_heads));
    let mut other = weight.clone();
    let weights = [&mut weight, &mut other].map(|w| dense(w, DType::F32, &[DIM as i64]));
    call("qk_rmsnorm", &[q, k, weights[0], weights[1]], &[1e-6, 0.0]);
    for (i, (old, new)) in before.chunks(DIM).zip(packed.chunks(DIM)).enumerate() {
        if i % (width / DIM) >= q_heads + kv_heads {
            assert_eq!(old, new, "a value is no head to be normalised");
            continue;
        }
        let mean_square = old.iter().map(|v| f64::from(v * v)).sum::<f64>() / DIM as f64;
        for ((old, new), w) in old.iter().zip(new).zip(&weight) {
            let want = f64::from(*old) / (mean_square + 1e-6).sqrt() * f64::from(*w);
            assert!((f64::from(*new) - want).abs() <= 1e-6 + 1e-5 * want.abs(), "head {i}: {new} is not {want}");
        }
    }
}

/// f16 with these bits, and what a row of them gives with weights of one.
const ONE: u16 = 0x3c00;
const INFINITE: u16 = 0x7c00;
const NAN: u16 = 0x7e00;

#[test]
fn rows_of_zeros_with_a_nan_and_with_an_infinity_have_defined_codes() {
    for hidden in [3usize, 64, 2000] {
        let mut x = vec![0u16; 4 * hidden];
        x[hidden..].fill(ONE);
        x[2 * hidden + 1] = NAN;
        x[3 * hidden + 2] = INFINITE;
        let mut weight = vec![ONE; hidden];
        let (mut out, mut scale) = (vec![0xaau8; 4 * hidden], vec![-1f32; 4]);
        let shape = [4, hidden as i64];
        let tensors = [
            dense(&mut out, DType::E4m3, &shape),
            dense(&mut scale, DType::F32, &[4]),
            dense(&mut x, DType::F16, &shape),
            dense(&mut weight, DType::F16, &[hidden as i64]),
        ];
        call("rmsnorm_quant_per_token", &tensors, &[1e-6, 0.0, 1e-10]);
        let rows: Vec<_> = out.chunks(hidden).collect();
        assert!(rows[0].iter().all(|c| *c == 0) && scale[0] == 1e-10f32 / 448.0, "zeros: {} {:?}", scale[0], rows[0]);
        assert!(rows[1].iter().all(|c| *c == 0x7e) && (scale[1] * 448.0 - 1.0).abs() < 1e-5, "ones: {}", scale[1]);
        assert!(rows[2].iter().all(|c| c & 0x7f == 0x7f), "a NaN is in every mean square: {:?}", rows[2]);
        let infinite = |(i, c): (usize, &u8)| if i == 2 { c & 0x7f == 0x7f } else { *c == 0 };
        assert!(rows[3].iter().enumerate().all(infinite), "infinity times zero: {:?}", rows[3]);
        assert!(scale.iter().all(|s| s.is_finite()), "{scale:?}");
    }
}

#[test]
fn layernorm_of_equal_and_of_shifted_values_does_not_cancel() {
    // The mean of squares less the square of the mean has no correct digit here.
    for hidden in [5usize, 256, 3000] {
        let shifted = |i: usize| 30_000.0 + (i % 5) as f32 / 4.0;
        let mut x: Vec<f32> = (0..hidden).map(|_| 12_345.678).chain((0..hidden).map(shifted)).collect();
        let (mut weight, mut bias, mut out) = (vec![2f32; hidden], vec![0.5f32; hidden], vec![0f32; 2 * hidden]);
        let shape = [2, hidden as i64];
        let tensors = [
            dense(&mut out, DType::F32, &shape),
            dense(&mut x, DType::F32, &shape),
            dense(&mut weight, DType::F32, &[hidden as i64]),
            dense(&mut bias, DType::F32, &[hidden as i64]),
        ];
        call("layernorm", &tensors, &[1e-6]);
        assert!(out[..hidden].iter().all(|v| (v - 0.5).abs() < 1e-5), "equal values: {:?}", &out[..5]);
        let row = &x[hidden..];
        let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / hidden as f64;
        let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / hidden as f64;
        for (v, got) in row.iter().zip(&out[hidden..]) {
            let want = (f64::from(*v) - mean) / (variance + 1e-6).sqrt() * 2.0 + 0.5;
            assert!((f64::from(*got) - want).abs() < 2e-6 + 1e-5 * want.abs(), "{hidden}: {got} is not {want}");
        }
    }
}
