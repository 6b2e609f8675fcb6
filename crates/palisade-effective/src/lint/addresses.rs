//! Pods that share an address with another pod. The youngest pod gets the address; among equally old ones,
//! the last by namespace and name.

use super::{PodFacts, PodLookup};
use crate::SharedId;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use palisade_manifest::{Location, Problem};

/// The addresses of a pod: one of a family, one of each, or others. There is one for each pod of a cluster, so
/// the usual ones are held in place.
#[derive(Debug)]
pub(super) enum PodAddresses {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Both(Ipv4Addr, Ipv6Addr),
    Others(Box<[IpAddr]>),
}

impl PodAddresses {
    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let (v4, v6, others) = match self {
            PodAddresses::V4(v4) => (Some(*v4), None, &[][..]),
            PodAddresses::V6(v6) => (None, Some(*v6), &[][..]),
            PodAddresses::Both(v4, v6) => (Some(*v4), Some(*v6), &[][..]),
            PodAddresses::Others(others) => (None, None, &**others),
        };
        let usual = v4.map(IpAddr::from).into_iter();
        let usual = usual.chain(v6.map(IpAddr::from));
        usual.chain(others.iter().copied())
    }
}

impl From<&[IpAddr]> for PodAddresses {
    fn from(addresses: &[IpAddr]) -> Self {
        match *addresses {
            [IpAddr::V4(v4)] => PodAddresses::V4(v4),
            [IpAddr::V6(v6)] => PodAddresses::V6(v6),
            [IpAddr::V4(v4), IpAddr::V6(v6)] | [IpAddr::V6(v6), IpAddr::V4(v4)] => {
                PodAddresses::Both(v4, v6)
            }
            _ => PodAddresses::Others(addresses.into()),
        }
    }
}

/// One pod of an address, which is kept as its hash. Two addresses of one hash are taken for contested; the
/// warnings look at the addresses themselves.
#[derive(Debug)]
struct AddressHolder {
    hash: u64,
    pod: SharedId,
}

/// The pods that claim each address.
#[derive(Debug, Default)]
pub(super) struct ContestedAddresses {
    holders: HashTable<AddressHolder>,
    /// All pods of an address that several claim.
    contested: BTreeMap<IpAddr, BTreeSet<SharedId>>,
}

impl ContestedAddresses {
    pub(super) fn add(&mut self, address: IpAddr, pod: &SharedId) {
        match self.holder(address) {
            Entry::Occupied(other) => {
                let other = other.get().pod.clone();
                let claims = self.contested.entry(address).or_default();
                claims.insert(other);
                claims.insert(pod.clone());
            }
            Entry::Vacant(free) => {
                free.insert(AddressHolder {
                    hash: hash_of(address),
                    pod: pod.clone(),
                });
            }
        }
    }

    pub(super) fn remove(&mut self, address: IpAddr, pod: &SharedId) {
        let mut last = None;
        if let Some(claims) = self.contested.get_mut(&address) {
            claims.remove(pod);
            last = claims.first().cloned();
            if claims.len() < 2 {
                self.contested.remove(&address);
            }
        }
        if let Entry::Occupied(mut holder) = self.holder(address) {
            match last {
                Some(last) => holder.get_mut().pod = last,
                None => drop(holder.remove()),
            }
        }
    }

    fn holder(&mut self, address: IpAddr) -> Entry<'_, AddressHolder> {
        let hash = hash_of(address);
        let is_same = |holder: &AddressHolder| holder.hash == hash;
        self.holders.entry(hash, is_same, |holder| holder.hash)
    }

    /// The warnings: one for each pod and address that another pod gets.
    pub(super) fn warnings(&self, pod: &PodLookup<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (address, claims) in &self.contested {
            let mut claims: Vec<(&SharedId, (&PodFacts, Location))> = claims
                .iter()
                .filter_map(|id| Some((id, pod(id)?)))
                .filter(|(_, (pod, _))| pod.addresses.iter().any(|own| own == *address))
                .collect();
            claims.sort_unstable_by_key(|(id, (pod, _))| (pod.created, *id));
            let Some(((holder, _), others)) = claims.split_last() else {
                continue;
            };
            problems.extend(others.iter().map(|(id, (_, location))| Problem {
                location: location.clone(),
                object: Some(id.to_string()),
                field: "status".to_owned(),
                reason: format!("address {address} is also claimed by {holder}, which gets it"),
            }));
        }
        problems
    }
}

fn hash_of(address: IpAddr) -> u64 {
    FixedState::default().hash_one(address)
}
