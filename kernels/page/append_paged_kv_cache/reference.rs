//! Reference of append_paged_kv_cache.

use super::page;
use crate::binding::{Draw, Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let appended = |cache, name: &str| Expected::exact(cache, page::appended(problem, cache, &problem.inputs[name]));
    vec![appended("k_cache", "key"), appended("v_cache", "value")]
}

pub(crate) fn draw(draw: &mut Draw<'_>) {
    page::draw(draw);
}
