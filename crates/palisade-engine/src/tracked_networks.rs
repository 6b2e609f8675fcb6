//! Tracked networks: those that active rules name or that matched network sets contain.
//!
//! A lookup tries only the prefix lengths in use, so it takes few steps. Nothing here interprets
//! identities.

use crate::store::AddressOwnerSlot;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use palisade_model::{Family, Prefix};
use palisade_tables::IdentityId;

/// A network with an identity of its own.
#[derive(Debug)]
pub(crate) struct TrackedNetwork {
    pub(crate) referenced: bool,
    pub(crate) network_sets: BTreeSet<AddressOwnerSlot>,
    pub(crate) identity: IdentityId,
}

impl Default for TrackedNetwork {
    fn default() -> Self {
        TrackedNetwork {
            referenced: false,
            network_sets: BTreeSet::new(),
            identity: IdentityId::UNKNOWN,
        }
    }
}

impl TrackedNetwork {
    pub(crate) fn is_used(&self) -> bool {
        self.referenced || !self.network_sets.is_empty()
    }
}

/// All tracked networks.
#[derive(Debug, Default)]
pub(crate) struct TrackedNetworks {
    all: BTreeMap<Prefix, TrackedNetwork>,
    /// The number of networks of each family and length.
    lengths: BTreeMap<(Family, u8), usize>,
}

impl TrackedNetworks {
    pub(crate) fn get(&self, prefix: Prefix) -> Option<&TrackedNetwork> {
        self.all.get(&prefix)
    }

    pub(crate) fn get_mut(&mut self, prefix: Prefix) -> Option<&mut TrackedNetwork> {
        self.all.get_mut(&prefix)
    }

    /// The tracked network of a prefix, added if it is new.
    pub(crate) fn entry(&mut self, prefix: Prefix) -> &mut TrackedNetwork {
        let lengths = &mut self.lengths;
        self.all.entry(prefix).or_insert_with(|| {
            *lengths
                .entry((prefix.family(), prefix.length()))
                .or_default() += 1;
            TrackedNetwork::default()
        })
    }

    pub(crate) fn remove(&mut self, prefix: Prefix) {
        if self.all.remove(&prefix).is_none() {
            return;
        }
        let length = (prefix.family(), prefix.length());
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    /// The families and prefix lengths in use.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (Family, u8)> {
        self.lengths.keys().copied()
    }

    /// The tracked networks inside a network, itself included.
    pub(crate) fn within(&self, net: Prefix) -> impl Iterator<Item = Prefix> {
        let from = self.all.range(net..).map(|(prefix, _)| *prefix);
        from.take_while(move |prefix| net.covers(*prefix))
    }

    /// The tracked networks that contain an address, up to a prefix length, the longest first.
    pub(crate) fn covering(
        &self,
        address: IpAddr,
        longest: u8,
    ) -> impl Iterator<Item = (Prefix, &TrackedNetwork)> {
        let family = Family::of(address);
        let lengths = self.lengths.range((family, 0)..=(family, longest)).rev();
        lengths.filter_map(move |((_, length), _)| {
            let prefix = Prefix::new(address, *length);
            Some((prefix, self.all.get(&prefix)?))
        })
    }
}
