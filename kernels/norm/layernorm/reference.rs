//! Reference of layernorm in float64.

use super::norm;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    vec![Expected::close("out", norm::layer_normalised(problem))]
}
