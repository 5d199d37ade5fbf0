//! What a shard says of itself in its bundle, so that it is merged with its like.

use super::{PART_LEVEL, Shard, Statement, shard};
use parbake_model::Digest;
use parbake_model::bundle::Details;
use std::collections::BTreeMap;

const SHARD: &str = "shard";
const PLAN: &str = "plan";
const DIVISION: &str = "division";
const LEVEL: &str = "level";
const MERGE_LEVEL: &str = "merge_level";

/// Which part of which plan a bundle is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Which one.
    pub shard: Shard,
    /// The digest of its plan.
    pub plan: Digest,
    /// The digest of how the plan was divided.
    pub division: Digest,
    /// What the merged bundle will say of where it comes from.
    pub provenance: BTreeMap<String, String>,
}

impl Label {
    /// The label of a shard of a plan, whose units are in these shards.
    #[must_use]
    pub fn new(shard: Shard, plan: &Statement, shards: &[u32]) -> Self {
        let division = shard::name(&plan.units, shards);
        Self { shard, plan: plan.digest(), division, provenance: plan.provenance.clone() }
    }

    /// The provenance of the shard's own bundle.
    #[must_use]
    pub fn provenance(&self) -> BTreeMap<String, String> {
        let mut provenance = self.provenance.clone();
        if let Some(level) = provenance.insert(LEVEL.to_owned(), PART_LEVEL.to_string()) {
            provenance.insert(MERGE_LEVEL.to_owned(), level);
        }
        let own = [(SHARD, self.shard.to_string()), (PLAN, self.plan.to_string())];
        let own = own.into_iter().chain([(DIVISION, self.division.to_string())]);
        provenance.extend(own.map(|(name, value)| (name.to_owned(), value)));
        provenance
    }

    /// The label of a bundle; none if it is no shard.
    #[must_use]
    pub fn of(details: &Details) -> Option<Self> {
        let mut provenance = details.provenance.clone();
        let shard = provenance.remove(SHARD)?.parse().ok()?;
        let plan = provenance.remove(PLAN)?.parse().ok()?;
        let division = provenance.remove(DIVISION)?.parse().ok()?;
        provenance.insert(LEVEL.to_owned(), provenance.get(MERGE_LEVEL)?.clone());
        provenance.remove(MERGE_LEVEL);
        Some(Self { shard, plan, division, provenance })
    }
}
