//! Reference of rmsnorm_quant_per_token in float64.

use super::norm;
use crate::binding::{Expected, Problem};

pub(crate) fn reference(problem: &Problem) -> Vec<Expected> {
    let mut y = norm::rms_normalised(problem, &problem.inputs["x"]);
    let scales = norm::scaled_rows(problem, &mut y);
    vec![Expected::close("out", y), Expected::close("scale", scales)]
}
