//! The best of several images.

use super::{Accept, Image, Reject, covers, verdict};
use crate::target::{Arch, Target, Toolkit};
use std::borrow::Borrow;

/// The verdict on each candidate, in the order given.
pub type Trace = Vec<(Target, Result<Accept, Reject>)>;

/// Takes the best candidate that runs: exact, then family, then baseline, then PTX if it is allowed, each with the
/// highest architecture first; of equals the one that comes first. The trace holds the verdict on every candidate.
pub fn select<I: Borrow<Image>, T>(
    candidates: impl Iterator<Item = (I, T)>,
    device: Option<Arch>,
    driver: Option<Toolkit>,
    allow_ptx: bool,
) -> (Option<(Accept, T)>, Trace) {
    select_by(candidates, |image| match verdict(image, device, driver) {
        Ok(Accept::Ptx) if !allow_ptx => Err(Reject::PtxNotAllowed { image: image.target }),
        result => result,
    })
}

/// Takes the best candidate that serves every device of a target, in the order of [`select`].
pub fn select_covering<I: Borrow<Image>, T>(
    candidates: impl Iterator<Item = (I, T)>,
    wanted: Target,
) -> (Option<(Accept, T)>, Trace) {
    select_by(candidates, |image| covers(image, wanted))
}

fn select_by<I: Borrow<Image>, T>(
    candidates: impl Iterator<Item = (I, T)>,
    judge: impl Fn(&Image) -> Result<Accept, Reject>,
) -> (Option<(Accept, T)>, Trace) {
    let mut best: Option<(Accept, Target, T)> = None;
    let mut trace = Vec::new();
    for (image, payload) in candidates {
        let target = image.borrow().target;
        let result = judge(image.borrow());
        trace.push((target, result));
        if let Ok(accept) = result
            && best.as_ref().is_none_or(|(a, t, _)| accept < *a || (accept == *a && target > *t))
        {
            best = Some((accept, target, payload));
        }
    }
    (best.map(|(accept, _, payload)| (accept, payload)), trace)
}
