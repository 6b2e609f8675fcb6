//! Pods that share an address with another pod. The youngest pod gets the address; among equally old ones,
//! the last by namespace and name.

use super::{PodFacts, PodLookup};
use crate::SharedId;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::IpAddr;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use palisade_manifest::{Location, Problem};

/// The pods that claim each address.
#[derive(Debug, Default)]
pub(super) struct ContestedAddresses {
    /// One pod of each address.
    holders: HashMap<IpAddr, SharedId, FixedState>,
    /// All pods of an address that several claim.
    contested: BTreeMap<IpAddr, BTreeSet<SharedId>>,
}

impl ContestedAddresses {
    pub(super) fn add(&mut self, address: IpAddr, pod: &SharedId) {
        match self.holders.entry(address) {
            Entry::Occupied(other) => {
                let claims = self.contested.entry(address).or_default();
                claims.insert(other.get().clone());
                claims.insert(pod.clone());
            }
            Entry::Vacant(free) => drop(free.insert(pod.clone())),
        }
    }

    pub(super) fn remove(&mut self, address: IpAddr, pod: &SharedId) {
        let Some(claims) = self.contested.get_mut(&address) else {
            self.holders.remove(&address);
            return;
        };
        claims.remove(pod);
        let last = claims.first().cloned();
        if claims.len() < 2 {
            self.contested.remove(&address);
        }
        match last {
            Some(last) => drop(self.holders.insert(address, last)),
            None => drop(self.holders.remove(&address)),
        }
    }

    /// The warnings: one for each pod and address that another pod gets.
    pub(super) fn warnings(&self, pod: &PodLookup<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (address, claims) in &self.contested {
            let mut claims: Vec<(&SharedId, (&PodFacts, &Location))> = claims
                .iter()
                .filter_map(|id| Some((id, pod(id)?)))
                .collect();
            claims.sort_by_key(|(id, (pod, _))| (pod.created, *id));
            let Some(((holder, _), others)) = claims.split_last() else {
                continue;
            };
            problems.extend(others.iter().map(|(id, (_, location))| Problem {
                location: (*location).clone(),
                object: Some(id.to_string()),
                field: "status".to_owned(),
                reason: format!("address {address} is also claimed by {holder}, which gets it"),
            }));
        }
        problems
    }
}
