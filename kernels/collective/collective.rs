//! What the collectives share: how a pool is laid out and what of it a call needs.
//!
//! A pool is the same on all ranks: words by which ranks say how far they are (u64 for each block and rank), the calls of
//! each block (u32), and two halves of data with a region for each block.

use super::gemm::div_ceil;
use crate::binding::{Checked, Wrong};
use crate::params::pb_group;

/// Bytes of an access.
pub(crate) const UNIT: i64 = 16;
/// Blocks of a launch at most.
pub(crate) const BLOCKS: i64 = 128;
/// Threads of a block at most.
pub(crate) const THREADS: i64 = 512;
/// Ranks that a pool has words for, as in group.cuh.
const RANKS: i64 = 8;
/// Where the calls and the halves begin.
const CALLS: i64 = BLOCKS * RANKS * 8;
const DATA: i64 = CALLS + BLOCKS * 4;

/// How the units of a call are spread over blocks: as many blocks as give a thread one, then more for each.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    /// Units of a block; the last one may have fewer.
    pub per: i64,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl Spread {
    pub(crate) fn new(units: i64) -> Self {
        let per = div_ceil(units, div_ceil(units, THREADS).clamp(1, BLOCKS)).max(1);
        let threads = (div_ceil(per, 32) * 32).min(THREADS) as u32;
        Self { per, blocks: div_ceil(units, per) as u32, threads }
    }
}

/// Bytes of a block's region in a pool of so many words.
fn region(words: i64) -> i64 {
    (words * 4 - DATA).max(0) / 2 / BLOCKS / UNIT * UNIT
}

/// The rank is one of the ranks, and the pool has room for what a block exchanges.
pub(crate) fn check(call: &Checked<'_>, exchanged: i64, wrong: &mut Wrong) {
    let (rank, ranks, words) = (call.int("rank"), call.dim("ranks"), call.dim("pool_words"));
    if rank >= ranks {
        wrong.add("rank", "value", format!("less than the {ranks} ranks of pools"), rank.to_string());
    }
    let needed = DATA + 2 * BLOCKS * exchanged;
    if region(words) < exchanged {
        wrong.add("pool", "shape", format!("at least {needed} bytes for this call"), format!("{} bytes", words * 4));
    }
    aligned(call, "pool", UNIT, wrong);
}

/// A tensor begins where an access of so many bytes may.
pub(crate) fn aligned(call: &Checked<'_>, name: &str, bytes: i64, wrong: &mut Wrong) {
    let data = call.tensor(name).data as i64;
    if data % bytes != 0 {
        wrong.add(name, "alignment", format!("an address that is a multiple of {bytes} bytes"), format!("{data:#x}"));
    }
}

/// A tensor of rows of so many elements is accessed in units: each row is a whole number of them.
pub(crate) fn whole(call: &Checked<'_>, name: &str, elements: i64, wrong: &mut Wrong) {
    let lane = UNIT / call.tensor(name).dtype.bytes() as i64;
    if elements % lane != 0 {
        wrong.add(
            name,
            "shape",
            format!("a multiple of {lane} elements, which are {UNIT} bytes"),
            elements.to_string(),
        );
    }
    aligned(call, name, UNIT, wrong);
}

/// What a launch knows of the group. `facts` are what all ranks must agree on beside pool and ranks.
pub(crate) fn group(call: &Checked<'_>, facts: &[i64]) -> pb_group {
    let words = call.dim("pool_words");
    let region = region(words);
    // FNV-1a, folded.
    let mut tag = 0xcbf2_9ce4_8422_2325u64;
    for fact in facts.iter().chain(&[call.dim("ranks"), words]) {
        for byte in fact.to_le_bytes() {
            tag = (tag ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    pb_group {
        pool: call.tensor("pool").data,
        pools: call.tensor("pools").data,
        calls: CALLS,
        data: DATA,
        half: BLOCKS * region,
        region,
        patience: call.int("timeout_ms") as u64 * 1_000_000,
        tag: (tag ^ tag >> 32) as u32,
        rank: call.int("rank") as i32,
        ranks: call.dim("ranks") as i32,
    }
}
