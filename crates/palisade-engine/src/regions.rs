//! Regions: the networks that active rules ask for, or that matched network sets hold.
//!
//! Only lengths that there are are looked at, so that an address is found in few steps. Nothing here
//! knows what an identity means.

use crate::columns::Slot;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use palisade_model::{Family, Prefix};

/// A network that matters.
#[derive(Debug, Default)]
pub(crate) struct Region {
    pub(crate) asked: bool,
    pub(crate) sets: BTreeSet<Slot>,
    pub(crate) identity: u32,
}

impl Region {
    pub(crate) fn lives(&self) -> bool {
        self.asked || !self.sets.is_empty()
    }
}

/// Every region.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    all: BTreeMap<Prefix, Region>,
    /// How many there are of each family and length.
    lengths: BTreeMap<(Family, u8), usize>,
}

impl Regions {
    pub(crate) fn get(&self, prefix: Prefix) -> Option<&Region> {
        self.all.get(&prefix)
    }

    pub(crate) fn get_mut(&mut self, prefix: Prefix) -> Option<&mut Region> {
        self.all.get_mut(&prefix)
    }

    /// The region of a prefix, a new one if there is none.
    pub(crate) fn entry(&mut self, prefix: Prefix) -> &mut Region {
        let lengths = &mut self.lengths;
        self.all.entry(prefix).or_insert_with(|| {
            *lengths
                .entry((prefix.family(), prefix.length()))
                .or_default() += 1;
            Region::default()
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

    /// The families and lengths that there are.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (Family, u8)> {
        self.lengths.keys().copied()
    }

    /// The regions inside a network, itself included.
    pub(crate) fn within(&self, net: Prefix) -> impl Iterator<Item = Prefix> {
        let from = self.all.range(net..).map(|(prefix, _)| *prefix);
        from.take_while(move |prefix| net.covers(*prefix))
    }

    /// The regions around an address that are at most so long, the longest first.
    pub(crate) fn around(
        &self,
        address: IpAddr,
        longest: u8,
    ) -> impl Iterator<Item = (Prefix, &Region)> {
        let family = Family::of(address);
        let lengths = self.lengths.range((family, 0)..=(family, longest)).rev();
        lengths.filter_map(move |((_, length), _)| {
            let prefix = Prefix::new(address, *length);
            Some((prefix, self.all.get(&prefix)?))
        })
    }
}
