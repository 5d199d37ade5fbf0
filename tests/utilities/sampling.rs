//! Softmax and the ops that draw tokens. Draws are compared with a reference that is given the same random numbers, and
//! their frequencies with the probabilities.

use crate::harness::{Case, gpu, library};
use parbake::binding::{Random, Tensor};
use parbake::model::dtype::DType;
use parbake::{Place, Stream};

/// What the peers' tests take, then what is odd.
fn vocabularies() -> &'static [i64] {
    if gpu() { &[111, 32000, 128_256, 1, 512, 513, 8192, 8196, 50257, 151_936] } else { &[111, 1, 513, 8192, 9001] }
}
fn batches() -> &'static [i64] {
    if gpu() { &[1, 99, 989] } else { &[1, 7] }
}

fn softmax(rows: i64, vocab: i64) -> impl Iterator<Item = Case> {
    let case = move |dtype: &&str| Case::new("softmax").axis("dtype", dtype).dims(&[("rows", rows), ("vocab", vocab)]);
    ["f32", "f16", "bf16"].iter().map(case)
}

#[test]
fn softmax_is_right() {
    for (&rows, &vocab) in batches().iter().flat_map(|r| vocabularies().iter().map(move |v| (r, v))) {
        for (i, case) in softmax(rows, vocab).enumerate() {
            case.clone().seed(i as u64).check();
            case.clone().strided(3, 1).scalar("temperature", 0.7).check();
            case.with("temperatures").strided(8, 0).check();
        }
    }
}

/// Bug 38: a temperature that marks a row as greedy.
#[test]
fn a_temperature_of_0_or_below_is_greedy() {
    for temperature in [0.0, -1.0, 1e-42, 1e-3, 3e38] {
        softmax(3, 1000).for_each(|case| case.scalar("temperature", temperature).check());
    }
}

fn sample(rows: i64, vocab: i64) -> Case {
    let dims = [("rows", rows), ("sources", rows), ("vocab", vocab), ("seed_count", 1), ("offset_count", 1)];
    Case::new("sample").axis("index", "i32").dims(&dims)
}

/// Names of filters, and their scalars.
const FILTERS: [&[(&str, f64)]; 9] = [
    &[],
    &[("top_p", 0.1)],
    &[("top_p", 0.9)],
    &[("top_k", 10.0)],
    &[("top_k", 500.0), ("top_p", 0.5)],
    &[("top_k", 100.0), ("top_p", 0.9), ("top_k_first", 1.0)],
    &[("min_p", 0.1)],
    &[("min_p", 0.05), ("top_k", 20.0), ("top_p", 0.8), ("top_k_first", 1.0)],
    &[("top_k", 1.0), ("top_p", 0.0)],
];

#[test]
fn samples_are_those_of_their_random_numbers() {
    for (&rows, &vocab) in batches().iter().flat_map(|r| vocabularies().iter().map(move |v| (r, v))) {
        for (i, filter) in FILTERS.iter().enumerate() {
            for logits in [0.0, 1.0] {
                let mut case = sample(rows, vocab).scalar("logits", logits).scalar("seed", 77.0).seed(i as u64);
                for (name, value) in *filter {
                    case = case.scalar(name, *value);
                }
                if i % 3 == 1 {
                    case = case.strided(1, 1);
                }
                case.check();
            }
        }
    }
}

#[test]
fn thresholds_and_seeds_come_from_memory() {
    for vocab in [111, 2000] {
        for index in ["i32", "i64"] {
            let case = sample(20, vocab).axis("index", index).dims(&[("sources", 9)]).with("indices");
            case.clone().check();
            let case = case.with("top_ks").with("top_ps").with("min_ps").with("seeds").with("offsets");
            case.clone().check();
            case.clone().scalar("top_k_first", 1.0).check();
            case.dims(&[("seed_count", 20), ("offset_count", 20)]).check();
        }
    }
}

#[test]
fn chains_are_verified() {
    let vocabs: &[i64] = if gpu() { &[1, 111, 32000, 128_256] } else { &[1, 111, 1030] };
    for (i, &vocab) in vocabs.iter().enumerate() {
        for (rows, drafts) in [(1, 1), (7, 5), (3, 40)] {
            let dims =
                [("rows", rows), ("drafts", drafts), ("vocab", vocab), ("seed_count", 1), ("offset_count", rows)];
            let case = Case::new("chain_speculative_sampling").dims(&dims).scalar("seed", i as f64);
            case.clone().check();
            case.with("seeds").with("offsets").strided(3, 1).check();
        }
    }
}

/// Draws from rows of one vocabulary.
struct Draws<'a> {
    x: &'a mut [f32],
    indices: &'a mut [i32],
    scalars: &'a [(&'a str, f64)],
}

impl Draws<'_> {
    fn run(&mut self, vocab: i64) -> (Vec<i32>, Vec<u8>) {
        let rows = self.indices.len();
        let (mut tokens, mut valid) = (vec![-1i32; rows], vec![9u8; rows]);
        let op = library().op("sample").unwrap();
        let def = library().definition(op);
        let of = |scalar: &str| self.scalars.iter().find(|(n, _)| *n == scalar).map(|(_, v)| *v);
        let scalars: Vec<f64> = def.scalars.iter().map(|s| of(&s.name).or(s.default).unwrap()).collect();
        let dense = |data: *mut std::ffi::c_void, dtype, shape: &[i64]| {
            Tensor::new(data, dtype, shape, &[vocab, 1][2 - shape.len()..]).unwrap()
        };
        let n = rows as i64;
        let sources = self.x.len() as i64 / vocab;
        let tensor = |t: &parbake::model::op::Tensor| match t.name.as_str() {
            "tokens" => dense(tokens.as_mut_ptr().cast(), DType::I32, &[n]),
            "valid" => dense(valid.as_mut_ptr().cast(), DType::Bool, &[n]),
            "x" => dense(self.x.as_mut_ptr().cast(), DType::F32, &[sources, vocab]),
            "indices" => dense(self.indices.as_mut_ptr().cast(), DType::I32, &[n]),
            _ => Tensor::ABSENT,
        };
        let tensors: Vec<Tensor> = def.tensors.iter().map(tensor).collect();
        // SAFETY: the vectors live until the host target has run, which is when the call returns.
        unsafe { library().call(op, &tensors, &scalars, Place::Host, Stream::DEFAULT) }.unwrap();
        (tokens, valid)
    }
}

/// Bugs 35, 37, 40: NaN, nothing, one token, values that are not normal, an index outside, among good rows.
#[test]
fn rows_with_nothing_to_draw_from_say_so() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let tiny = f32::from_bits(1);
    let mut x = [
        [0.0; 4],
        [nan, 1.0, 0.0, 0.0],
        [0.0, 0.0, tiny, 0.0],
        [inf, 1.0, 0.0, 0.0],
        [-1.0, -2.0, -0.0, 0.5],
        [0.25; 4],
    ];
    let mut indices = [0, 1, 2, 3, 4, 6, -1];
    for filter in FILTERS {
        let (tokens, valid) = Draws { x: x.as_flattened_mut(), indices: &mut indices, scalars: filter }.run(4);
        assert_eq!((&tokens[..], &valid[..]), (&[0, 0, 2, 0, 3, 0, 0][..], &[0, 0, 1, 0, 1, 0, 0][..]), "{filter:?}");
    }
    // Bug 84 and ties: equal weights are kept by index.
    let (tokens, _) = Draws { x: &mut [0.25; 4], indices: &mut [0; 200], scalars: &[("top_k", 2.0)] }.run(4);
    assert!(tokens.iter().all(|t| *t < 2) && tokens.contains(&0) && tokens.contains(&1));
    // -inf everywhere, and everywhere but once.
    let mut x = [[-inf; 4], [-inf, -inf, -3e38, -inf]];
    let scalars = [("logits", 1.0), ("top_k", 3.0), ("top_p", 0.5)];
    let (tokens, valid) = Draws { x: x.as_flattened_mut(), indices: &mut [0, 1], scalars: &scalars }.run(4);
    assert_eq!((&tokens[..], &valid[..]), (&[0, 2][..], &[0, 1][..]));
}

/// Standard deviations by which a χ² statistic of merged bins is too large (Wilson and Hilferty).
fn excess(tokens: &[i32], probs: &[f64]) -> f64 {
    let mut counts = vec![0.0; probs.len()];
    tokens.iter().for_each(|t| counts[*t as usize] += 1.0);
    let (mut chi, mut bins, mut seen, mut expected) = (0.0, 0.0, 0.0, 0.0);
    for (count, p) in counts.iter().zip(probs) {
        seen += count;
        expected += p * tokens.len() as f64;
        if expected >= 50.0 {
            chi += (seen - expected).powi(2) / expected;
            bins += 1.0;
            (seen, expected) = (0.0, 0.0);
        }
    }
    let (degrees, spread) = (bins - 1.0, 2.0 / (9.0 * (bins - 1.0)));
    ((chi / degrees).cbrt() - (1.0 - spread)) / f64::sqrt(spread)
}

/// One-sided: a probability of 1e-6.
const LIMIT: f64 = 4.753;

/// The test that runs on a GPU with five million draws, tests/gpu/sampling.py, in small.
#[test]
fn frequencies_are_the_probabilities() {
    let mut random = Random::new(3);
    let mut weights: Vec<f64> = (0..111).map(|_| random.normal().exp()).collect();
    weights[40] = weights.iter().sum();
    let sum: f64 = weights.iter().sum();
    let mut x: Vec<f32> = weights.iter().map(|w| (w / sum) as f32).collect();
    let mut indices = vec![0; 200_000];
    let scalars = [("seed", 1.0)];
    let (mut tokens, _) = Draws { x: &mut x, indices: &mut indices, scalars: &scalars }.run(111);
    let probs: Vec<f64> = x.iter().map(|p| f64::from(*p)).collect();
    assert!(excess(&tokens, &probs) < LIMIT);
    // One bin off by 2 %.
    tokens.iter_mut().filter(|t| **t == 40).step_by(50).for_each(|t| *t = 41);
    assert!(excess(&tokens, &probs) > LIMIT);

    // Of equal draws other filters keep other tokens.
    let mut order: Vec<usize> = (0..111).collect();
    order.sort_by(|a, b| x[*b].total_cmp(&x[*a]));
    let filters: [(&[(&str, f64)], usize); 2] = [(&[("top_k", 20.0)], 20), (&[("top_p", 0.9)], usize::MAX)];
    for (scalars, k) in filters {
        let (mut kept, mut mass) = (vec![0.0; 111], 0.0);
        for (rank, token) in order.iter().enumerate() {
            if rank < k && (k < 111 || mass < 0.9) {
                kept[*token] = probs[*token];
            }
            mass += probs[*token];
        }
        let sum: f64 = kept.iter().sum();
        kept.iter_mut().for_each(|p| *p /= sum);
        let (tokens, _) = Draws { x: &mut x, indices: &mut indices[..50_000], scalars }.run(111);
        assert!(tokens.iter().all(|t| kept[*t as usize] > 0.0), "{scalars:?}");
        assert!(excess(&tokens, &kept) < LIMIT, "{scalars:?}");
    }
}
