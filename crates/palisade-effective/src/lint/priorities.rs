//! Cluster-wide policies of equal priority: the standard leaves their order open.
//!
//! Which comes first is not decided here but by the precedence that the dialect gives them: by kind, then name.

use crate::SharedId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use palisade_model::{Order, Policy, Str};

/// The place of a policy that has a priority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PriorityPlace {
    tier: Str,
    priority: Order,
    rank: u8,
}

impl PriorityPlace {
    pub(super) fn of(policy: &Policy) -> Self {
        PriorityPlace {
            tier: policy.tier.clone(),
            priority: policy.precedence.order,
            rank: policy.precedence.rank,
        }
    }
}

/// The policies that have a priority, by tier and priority, in their order.
#[derive(Debug, Default)]
pub(super) struct PolicyPriorities {
    by_place: BTreeMap<(Str, Order), BTreeSet<(u8, SharedId)>>,
}

impl PolicyPriorities {
    pub(super) fn add(&mut self, id: &SharedId, place: &PriorityPlace) {
        let key = (place.tier.clone(), place.priority);
        let group = self.by_place.entry(key).or_default();
        group.insert((place.rank, id.clone()));
    }

    pub(super) fn remove(&mut self, id: &SharedId, place: &PriorityPlace) {
        let key = (place.tier.clone(), place.priority);
        if let Some(group) = self.by_place.get_mut(&key) {
            group.remove(&(place.rank, id.clone()));
            if group.is_empty() {
                self.by_place.remove(&key);
            }
        }
    }

    /// The policies that have an equal before them, each with the reason to warn.
    pub(super) fn ties(&self) -> impl Iterator<Item = (&SharedId, String)> {
        self.by_place.values().flat_map(|group| {
            let mut before: Option<&SharedId> = None;
            group.iter().filter_map(move |(_, id)| {
                let former = before.replace(id)?;
                let reason = format!(
                    "{former} has the same priority: the API leaves open which comes first; here it is {former} \
                     (by kind, then name)"
                );
                Some((id, reason))
            })
        })
    }
}
