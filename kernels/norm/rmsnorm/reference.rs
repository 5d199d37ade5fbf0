//! Reference of rmsnorm in float64.

use super::norm;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    vec![Expected::close("out", norm::rms_normalised(problem, &problem.inputs["x"]))]
}
