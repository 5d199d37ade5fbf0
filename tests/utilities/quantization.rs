//! The quantisers: bit for bit as their contracts say.

use super::harness::{Case, gpu, pairs};

const INPUTS: [&str; 3] = ["f16", "bf16", "f32"];
const OUTPUTS: [&str; 2] = ["e4m3", "e5m2"];

/// Rows, columns, elements between rows, elements before the first: whole vectors, odd sizes, rows that begin anywhere;
/// rows in one block below each other, one row in several blocks.
const SHAPES: &[(i64, i64, i64, usize)] = &[
    (1, 1, 0, 0),
    (3, 7, 1, 1),
    (2, 128, 0, 0),
    (5, 130, 0, 0),
    (9, 256, 16, 16),
    (3, 500, 3, 5),
    (2, 1024, 0, 0),
    (1, 2176, 8, 0),
    (2, 4096, 0, 0),
    (1, 9000, 0, 0),
    (0, 64, 0, 0),
];

/// Shapes of models, from one token to a long prompt.
const LARGE: &[(i64, i64)] =
    &[(1, 7168), (64, 8192), (333, 5120), (4096, 7168), (2048, 4096), (16384, 2048), (70001, 256)];

fn shapes(case: impl Fn(i64, i64) -> Case) {
    for &(rows, hidden, pad, offset) in SHAPES {
        case(rows, hidden).strided(pad, offset).check();
    }
    for &(rows, hidden) in LARGE.iter().filter(|_| gpu()) {
        case(rows, hidden).large().check();
    }
}

fn plain(op: &'static str, input: &'static str, output: &'static str) -> impl Fn(i64, i64) -> Case {
    move |rows, hidden| {
        let case = Case::new(op).axis("dtype", input).axis("out_dtype", output);
        case.dims(&[("rows", rows), ("hidden", hidden)]).seed((rows + hidden) as u64)
    }
}

#[test]
fn fp8_per_tensor() {
    for (input, output) in pairs(&INPUTS, &OUTPUTS) {
        shapes(plain("fp8_quantize_per_tensor", input, output));
        shapes(plain("fp8_quantize_per_tensor_dynamic", input, output));
    }
}

#[test]
fn the_largest_magnitude() {
    for input in INPUTS {
        shapes(|rows, hidden| Case::new("amax").axis("dtype", input).dims(&[("rows", rows), ("hidden", hidden)]));
    }
}

#[test]
fn fp8_per_token() {
    for (input, output) in pairs(&INPUTS, &OUTPUTS) {
        shapes(plain("fp8_quantize_per_token", input, output));
    }
}

#[test]
fn fp8_per_token_group() {
    for (input, output) in pairs(&INPUTS, &OUTPUTS) {
        for (scale, powers) in [("f32", 0.0), ("f32", 1.0), ("u8", 0.0)] {
            let case = plain("fp8_quantize_per_token_group", input, output);
            shapes(|rows, hidden| case(rows, hidden).axis("scale_dtype", scale).scalar("power_of_two", powers));
        }
    }
}

#[test]
fn fp8_per_block() {
    for (input, output) in pairs(&INPUTS, &OUTPUTS) {
        let case = plain("fp8_quantize_per_block", input, output);
        shapes(|rows, hidden| case(rows, hidden).scalar("power_of_two", (rows % 2) as f64));
        case(257, 300).check();
    }
}

/// The dims of an op with block scales. Only linear scales may be strided.
fn blocks(case: Case, rows: i64, hidden: i64, block: i64, layout: i64) -> Case {
    let (high, columns) = match layout {
        0 => ((rows as u64).next_multiple_of(128) as i64, (hidden / block + 3) / 4 * 4),
        1 => ((rows as u64).next_multiple_of(8) as i64, (hidden / block + 3) / 4 * 4),
        _ => (rows, hidden / block),
    };
    let case =
        case.scalar("layout", layout as f64).dims(&[("rows", rows), ("scale_rows", high), ("scale_columns", columns)]);
    if layout == 2 { case.strided(if rows % 2 == 1 { 3 } else { 16 }, (rows % 3) as usize) } else { case }
}

fn block_shapes(block: i64) -> impl Iterator<Item = (i64, i64, i64)> {
    let small = [(1, 1), (3, 3), (2, 4), (9, 5), (130, 2), (5, 64), (0, 4)].map(|(rows, n)| (rows, n * block));
    let large = LARGE.iter().copied().filter(|_| gpu());
    let shapes: Vec<_> = small.into_iter().chain(large).collect();
    shapes.into_iter().flat_map(|(rows, hidden)| [0, 1, 2].map(|layout| (rows, hidden, layout)))
}

#[test]
fn mxfp8_and_back() {
    for input in INPUTS {
        for (rows, hidden, layout) in block_shapes(32) {
            for op in ["mxfp8_quantize", "mxfp8_dequantize"] {
                let case = blocks(Case::new(op).axis("dtype", input), rows, hidden, 32, layout);
                let case = case.dims(&[("hidden", hidden)]).seed((rows + layout) as u64);
                if rows * hidden > 100_000 { case.large().check() } else { case.check() }
            }
        }
    }
}

#[test]
fn fp4_and_back() {
    for (input, (format, block)) in pairs(&INPUTS, &[(0.0, 16), (1.0, 32)]) {
        for (rows, hidden, layout) in block_shapes(block) {
            let case = |op| {
                let case = Case::new(op).axis("dtype", input).scalar("format", format).seed((rows + layout) as u64);
                let case = blocks(case, rows, hidden, block, layout);
                let case = if format == 0.0 && rows != 2 { case.with("global_scale") } else { case };
                if rows * hidden > 100_000 { case.large() } else { case }
            };
            case("fp4_quantize").dims(&[("hidden", hidden)]).check();
            case("fp4_dequantize").dims(&[("pairs", hidden / 2)]).check();
        }
    }
}

#[test]
fn bits() {
    for (element, n) in pairs(&["bool", "u8"], &[1, 7, 8, 9, 31, 32, 33, 500, 8192, 10007, 0]) {
        for (offset, little) in [(0, 0.0), (1, 1.0), (16, 1.0)] {
            let case = Case::new("packbits").axis("dtype", element).dims(&[("n", n)]);
            case.scalar("little", little).strided(0, offset).check();
        }
    }
}

#[test]
fn bits_of_segments() {
    for (index, batch) in pairs(&["i32", "i64"], &[0, 1, 5, 1023, 1024, 1025, 3000]) {
        Case::new("packed_indptr").axis("index", index).dims(&[("batch", batch)]).check();
    }
    for (index, (batch, n)) in pairs(&["i32", "i64"], &[(1, 100), (7, 1000), (40, 333), (3, 0), (0, 8)]) {
        for element in ["bool", "u8"] {
            let dims = [("batch", batch), ("n", n), ("packed", n / 8 + batch + 3)];
            Case::new("segment_packbits").axis("index", index).axis("dtype", element).dims(&dims).check();
        }
    }
}

#[test]
fn block_scales_in_tiles() {
    for (rows, columns) in pairs(&[1, 31, 128, 300], &[1, 4, 6, 33]) {
        Case::new("block_scale_interleave").dims(&[("rows", rows), ("columns", columns)]).check();
    }
    Case::new("block_scale_interleave").dims(&[("rows", 130), ("columns", 5)]).strided(7, 3).check();
}
