//! Reference of append_paged_mla_kv_cache.

use super::page;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let appended = |cache, name: &str| Expected::exact(cache, page::appended(problem, cache, &problem.inputs[name]));
    vec![appended("ckv_cache", "ckv"), appended("kpe_cache", "kpe")]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    page::draw(draw);
}
