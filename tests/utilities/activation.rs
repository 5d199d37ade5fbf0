//! Gated activations.

use crate::harness::{Case, gpu, pairs};
use crate::norm::{call, dense};
use parbake::model::dtype::DType;

/// Rows, hidden size, elements between rows, elements before the first: every width of access, odd sizes, many rows.
const SHAPES: &[(i64, i64, i64, usize)] = &[
    (1, 1, 0, 0),
    (3, 40, 8, 0),
    (5, 111, 1, 1),
    (700, 8, 0, 0),
    (2, 3420, 0, 0),
    (3, 1024, 16, 8),
    (2, 14_336, 0, 0),
    (9, 130, 2, 0),
    (70_000, 1, 0, 0),
    (0, 64, 0, 0),
];

fn check(case: &Case) {
    for (seed, &(rows, hidden, pad, offset)) in SHAPES.iter().enumerate() {
        case.clone().dims(&[("rows", rows), ("hidden", hidden)]).strided(pad, offset).seed(seed as u64).check();
    }
    if gpu() {
        for (rows, hidden) in pairs(&[1, 19, 99, 989], &[128, 3420, 2048, 11_008, 14_336, 16_384]) {
            case.clone().dims(&[("rows", rows), ("hidden", hidden)]).large().check();
        }
    }
}

#[test]
fn act_and_mul_is_right() {
    for (dtype, activation) in pairs(&["f16", "bf16", "f32"], &["silu", "gelu", "gelu_tanh"]) {
        check(&Case::new("act_and_mul").axis("dtype", dtype).axis("activation", activation));
    }
}

#[test]
fn silu_and_mul_quant_is_right() {
    for dtype in ["f16", "bf16"] {
        check(&Case::new("silu_and_mul_quant").axis("dtype", dtype));
    }
}

/// The value of bf16 bits.
fn value(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

#[test]
fn silu_of_every_bf16_is_within_one_unit_in_the_last_place() {
    // Large factors bring products back whose gate is below the range of f32.
    for factor in [0x3f80u16, 0xc06d, 0x7149, 0x7f00, 0x2400] {
        let mut x: Vec<u16> = (0..=u16::MAX).chain(std::iter::repeat_n(factor, 65_536)).collect();
        let mut out = vec![0u16; 65_536];
        let tensors = [dense(&mut out, DType::Bf16, &[1, 65_536]), dense(&mut x, DType::Bf16, &[1, 131_072])];
        call("act_and_mul", &tensors, &[0.0]);
        for (bits, got) in (0..=u16::MAX).zip(&out) {
            let x = value(bits);
            let want = DType::Bf16.round(x / (1.0 + (-x).exp()) * value(factor));
            let got = value(*got);
            let same = got == want || (got.is_nan() && want.is_nan());
            assert!(
                same || (got - want).abs() <= DType::Bf16.ulp(want),
                "silu({x:e}) · {factor:#x}: {got:e}, {want:e}"
            );
        }
    }
}

#[test]
fn groups_of_zeros_and_with_a_nan_have_defined_codes() {
    // 200 columns: the second group of a row has 72.
    let (rows, hidden) = (3usize, 200usize);
    let mut x = vec![0x3f80u16; rows * 2 * hidden];
    x[..hidden].fill(0);
    x[2 * hidden + 130] = 0x7fc0;
    let (mut out, mut scale) = (vec![0xaau8; rows * hidden], vec![-1f32; rows * 2]);
    let tensors = [
        dense(&mut out, DType::E4m3, &[3, 200]),
        dense(&mut scale, DType::F32, &[3, 2]),
        dense(&mut x, DType::Bf16, &[3, 400]),
    ];
    call("silu_and_mul_quant", &tensors, &[1e-10]);
    assert!(out[..hidden].iter().all(|c| *c == 0), "{:?}", &out[..hidden]);
    assert_eq!(scale[..2], [1e-10f32 / 448.0; 2]);
    let silu = 1.0 / (1.0 + (-1f32).exp());
    for (i, code) in out[hidden..].iter().enumerate() {
        assert_eq!(*code, if i == 130 { 0x7f } else { 0x7e }, "column {i}");
    }
    assert!(scale[2..].iter().all(|s| (s * 448.0 / silu - 1.0).abs() < 1e-5), "{scale:?}");
}

#[test]
fn scales_may_be_column_major() {
    let (rows, hidden) = (6usize, 384usize);
    let bits = |i: usize| (((i * 29 % 64) as f32 - 31.0) / 8.0).to_bits().wrapping_shr(16) as u16;
    let mut x: Vec<u16> = (0..rows * 2 * hidden).map(bits).collect();
    let run = |x: &mut Vec<u16>, strides: [i64; 2]| {
        let (mut out, mut scale) = (vec![0u8; rows * hidden], vec![-1f32; 3 * 8]);
        let placed = parbake::Tensor::new(scale.as_mut_ptr().cast(), DType::F32, &[6, 3], &strides).unwrap();
        let tensors = [dense(&mut out, DType::E4m3, &[6, 384]), placed, dense(x, DType::Bf16, &[6, 768])];
        call("silu_and_mul_quant", &tensors, &[1e-10]);
        (out, scale)
    };
    let (by_rows, by_columns) = (run(&mut x, [3, 1]), run(&mut x, [1, 8]));
    assert_eq!(by_rows.0, by_columns.0);
    for row in 0..rows {
        for group in 0..3 {
            assert_eq!(by_rows.1[row * 3 + group], by_columns.1[row + group * 8]);
        }
    }
    assert!(by_columns.1.chunks(8).all(|c| c[6..] == [-1.0, -1.0]), "the padding between columns was written");
}
