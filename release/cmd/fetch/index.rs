//! Reads the index of a source: its signature first, and on the bytes that are parsed then.

use super::source::Open;
use crate::published::{INDEX, Index, MAX_BYTES};
use crate::seal::{Seal, Trust};
use parbake::signature::{self, SignatureError};
use parbake_model::Digest;
use std::time::Duration;

/// Whoever publishes replaces signature and index one after the other: between two looks both are done.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

pub(super) struct Read {
    pub(super) index: Index,
    pub(super) digest: Digest,
    pub(super) seal: Seal,
}

/// Reads an index; an error says why it is refused.
pub(super) fn read(source: &Open, trust: &Trust, pinned: Option<Digest>) -> Result<Read, String> {
    let mut pauses = PAUSES.iter();
    let (text, seal) = loop {
        let text = source.small(INDEX, MAX_BYTES).map_err(|r| r.why)?;
        let place = format!("{INDEX}{}", signature::SUFFIX);
        let signed = match trust.looks().then(|| source.small(&place, signature::MAX_BYTES)) {
            Some(Ok(bytes)) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Some(Err(refusal)) if refusal.absent => None,
            Some(Err(refusal)) => return Err(refusal.why),
            None => None,
        };
        match trust.judge_text(&place, signed.as_deref(), &text) {
            Ok(seal) => break (text, seal),
            Err(SignatureError::Wrong { .. }) if pauses.len() > 0 => {
                std::thread::sleep(*pauses.next().expect("bug: there is one"));
            }
            Err(e) => return Err(format!("{INDEX}: {}: {}", e.code(), e.words())),
        }
    };
    let digest = Digest::of(&text);
    if let Some(pinned) = pinned.filter(|p| *p != digest) {
        return Err(format!("{INDEX}: expected SHA-256 {pinned} (--index), got {digest}"));
    }
    let index = Index::from_json(&text).map_err(|why| format!("{INDEX}: {why}"))?;
    Ok(Read { index, digest, seal })
}
