//! Reference of get_seq_lens.

use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let (indptr, last) = (&problem.inputs["kv_indptr"], &problem.inputs["kv_last_page_len"]);
    let length =
        |(pages, last): (&[f64], &f64)| (pages[1] - pages[0] - 1.0).max(0.0) * problem.scalars["page_size"] + last;
    vec![Expected::exact("seq_lens", indptr.windows(2).zip(last).map(length).collect())]
}

/// Requests of all lengths, none among them.
pub(crate) fn draw(draw: &mut Draw<'_>) {
    let page_size = draw.scalars["page_size"] as u64;
    let mut indptr: Vec<f64> = (0..=draw.dims["batch"]).map(|_| draw.random.below(500) as f64).collect();
    indptr.sort_by(f64::total_cmp);
    let last = |w: &[f64]| if w[0] == w[1] { 0.0 } else { 1.0 + draw.random.below(page_size) as f64 };
    let last = indptr.windows(2).map(last).collect();
    draw.tensors.insert("kv_last_page_len".to_owned(), last);
    draw.tensors.insert("kv_indptr".to_owned(), indptr);
}
