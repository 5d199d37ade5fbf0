//! Reference of get_batch_indices_positions.

use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let integers = |name: &str| problem.inputs[name].iter().map(|x| *x as i64).collect::<Vec<_>>();
    let (indptr, lengths) = (integers("append_indptr"), integers("seq_lens"));
    let of = |token: i64| {
        let request = indptr.windows(2).position(|w| w[0] <= token && token < w[1])?;
        Some((request as f64, (token - indptr[request + 1] + lengths[request]) as f64))
    };
    let (requests, positions) = (0..problem.dims["nnz"]).map(|token| of(token).unwrap_or((-1.0, -1.0))).unzip();
    vec![Expected::exact("batch_indices", requests), Expected::exact("positions", positions)]
}

/// Requests of all lengths, none among them, that may leave tokens out.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let nnz = draw.dims["nnz"] as u64;
    let mut indptr: Vec<f64> = (0..=draw.dims["batch"]).map(|_| draw.random.below(nnz + 1) as f64).collect();
    indptr.sort_by(f64::total_cmp);
    let lengths = indptr.windows(2).map(|w| w[1] - w[0] + draw.random.below(1000) as f64).collect();
    draw.tensors.insert("append_indptr".to_owned(), indptr);
    draw.tensors.insert("seq_lens".to_owned(), lengths);
}
