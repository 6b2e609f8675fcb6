//! Tracked networks: those that active rules name or that matched network sets contain.
//!
//! A lookup tries only the prefix lengths in use, so it takes few steps. Nearly every network is in at most one network
//! set: it takes two numbers. The sets of all others are in a separate map. Nothing here interprets identities.

use crate::store::AddressOwnerSlot;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use palisade_model::{Family, Prefix, PrefixMap};
use palisade_tables::IdentityId;

/// A network with an identity of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackedNetwork {
    pub(crate) identity: IdentityId,
    /// The only network set that contains it, or [`AddressOwnerSlot::NONE`] or [`AddressOwnerSlot::MULTIPLE`].
    network_set: AddressOwnerSlot,
    /// Whether an active rule names it.
    pub(crate) is_referenced: bool,
}

impl Default for TrackedNetwork {
    fn default() -> Self {
        TrackedNetwork {
            identity: IdentityId::UNKNOWN,
            network_set: AddressOwnerSlot::NONE,
            is_referenced: false,
        }
    }
}

impl TrackedNetwork {
    pub(crate) fn is_used(&self) -> bool {
        self.is_referenced || self.network_set != AddressOwnerSlot::NONE
    }
}

/// All tracked networks.
#[derive(Debug, Default)]
pub(crate) struct TrackedNetworks {
    all: PrefixMap<TrackedNetwork>,
    /// The network sets of each network that is in several.
    multiple: PrefixMap<BTreeSet<AddressOwnerSlot>>,
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
        self.all.get_or_insert_with(prefix, || {
            *lengths
                .entry((prefix.family(), prefix.length()))
                .or_default() += 1;
            TrackedNetwork::default()
        })
    }

    /// Adds a prefix to what a network set contains.
    pub(crate) fn add_to_set(&mut self, prefix: Prefix, set: AddressOwnerSlot) {
        let network = self.entry(prefix);
        match network.network_set {
            AddressOwnerSlot::NONE => network.network_set = set,
            AddressOwnerSlot::MULTIPLE => {
                self.multiple
                    .get_or_insert_with(prefix, BTreeSet::new)
                    .insert(set);
            }
            single if single == set => {}
            single => {
                network.network_set = AddressOwnerSlot::MULTIPLE;
                self.multiple.insert(prefix, BTreeSet::from([single, set]));
            }
        }
    }

    /// Removes a prefix from what a network set contains.
    pub(crate) fn remove_from_set(&mut self, prefix: Prefix, set: AddressOwnerSlot) {
        let Some(network) = self.all.get_mut(&prefix) else {
            return;
        };
        if network.network_set == set {
            network.network_set = AddressOwnerSlot::NONE;
        }
        let Some(sets) = self.multiple.get_mut(&prefix) else {
            return;
        };
        sets.remove(&set);
        if let Some(single) = sets.first().copied().filter(|_| sets.len() == 1) {
            network.network_set = single;
            self.multiple.remove(&prefix);
        }
    }

    /// The network sets that contain a tracked network.
    pub(crate) fn network_sets(
        &self,
        prefix: Prefix,
        network: &TrackedNetwork,
    ) -> impl Iterator<Item = AddressOwnerSlot> {
        let (single, several) = match network.network_set {
            AddressOwnerSlot::NONE => (None, None),
            AddressOwnerSlot::MULTIPLE => (None, self.multiple.get(&prefix)),
            single => (Some(single), None),
        };
        single
            .into_iter()
            .chain(several.into_iter().flatten().copied())
    }

    pub(crate) fn remove(&mut self, prefix: Prefix) {
        if self.all.remove(&prefix).is_none() {
            return;
        }
        self.multiple.remove(&prefix);
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
        self.all.within(net).map(|(prefix, _)| prefix)
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_network_may_be_in_any_number_of_sets() {
        let prefix: Prefix = "192.0.2.1/32".parse().unwrap();
        let mut networks = TrackedNetworks::default();
        let sets = |networks: &TrackedNetworks| -> Vec<u32> {
            let network = networks.get(prefix).unwrap();
            let sets = networks.network_sets(prefix, network);
            sets.map(|set| set.0).collect()
        };
        let set = AddressOwnerSlot;
        networks.remove_from_set(prefix, set(1));
        assert!(networks.get(prefix).is_none());
        for (added, expected) in [(3, &[3][..]), (3, &[3]), (1, &[1, 3]), (2, &[1, 2, 3])] {
            networks.add_to_set(prefix, set(added));
            assert_eq!(sets(&networks), expected);
        }
        for (removed, expected) in [(3, &[1, 2][..]), (3, &[1, 2]), (1, &[2]), (1, &[2])] {
            networks.remove_from_set(prefix, set(removed));
            assert_eq!(sets(&networks), expected);
            assert!(networks.get(prefix).unwrap().is_used());
        }
        networks.add_to_set(prefix, set(4));
        networks.remove_from_set(prefix, set(2));
        networks.remove_from_set(prefix, set(4));
        assert!(sets(&networks).is_empty());
        assert!(!networks.get(prefix).unwrap().is_used());
        assert!(networks.multiple.is_empty());
        networks.add_to_set(prefix, set(1));
        networks.add_to_set(prefix, set(2));
        networks.remove(prefix);
        assert!(networks.multiple.is_empty() && networks.lengths.is_empty());
    }
}
