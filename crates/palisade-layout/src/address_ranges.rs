//! Nested prefixes as disjoint ranges, updated incrementally.
//!
//! Maps of intervals refuse overlaps, and tries are slow or missing, so longest prefix match is resolved here. Ranges
//! are maximal: two adjacent ranges have different values. So the encoding of the prefixes is unique.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::iter;
use palisade_model::{Family, Prefix};
use palisade_tables::{IdentityId, Tables};

/// The disjoint ranges of one family: first address → (last address, value), addresses as numbers.
/// Addresses in no prefix, or with the default value, have no range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRanges<V> {
    ranges: BTreeMap<u128, (u128, V)>,
}

impl<V> Default for AddressRanges<V> {
    fn default() -> Self {
        AddressRanges {
            ranges: BTreeMap::new(),
        }
    }
}

/// A range: first address, last address, value.
pub type ValueRange<V> = (u128, u128, V);

impl<V: Copy + Ord + Default> AddressRanges<V> {
    /// The ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = ValueRange<V>> + '_ {
        self.ranges.iter().map(|(a, (b, id))| (*a, *b, *id))
    }

    /// Accepts ranges that are disjoint, maximal and have a value that is not the default; `None` otherwise.
    pub fn from_ranges(runs: impl IntoIterator<Item = ValueRange<V>>) -> Option<Self> {
        let mut flat = AddressRanges::default();
        let mut before: Option<(u128, V)> = None;
        let mut sorted: Vec<ValueRange<V>> = runs.into_iter().collect();
        sorted.sort_unstable();
        for (first, last, id) in sorted {
            let clash = before
                .is_some_and(|(end, other)| first <= end || (first - 1 == end && other == id));
            if clash || last < first || id == V::default() {
                return None;
            }
            flat.ranges.insert(first, (last, id));
            before = Some((last, id));
        }
        Some(flat)
    }

    /// Recomputes the ranges inside the prefix `within`. Calls `on_change` for each range that was removed
    /// (`false`) or added (`true`).
    pub fn recompute(
        &mut self,
        networks: &BTreeMap<Prefix, V>,
        within: Prefix,
        mut on_change: impl FnMut(ValueRange<V>, bool),
    ) {
        let (low, high) = within.bounds();
        // Adjacent ranges are included: they may be joined or split.
        let from = low.saturating_sub(1);
        let to = high.saturating_add(1);
        let start = self
            .ranges
            .range(..=from)
            .next_back()
            .filter(|(_, (last, _))| *last >= from)
            .map_or(from, |(first, _)| *first);
        let old: Vec<ValueRange<V>> = self
            .ranges
            .range(start..=to)
            .map(|(a, (b, id))| (*a, *b, *id))
            .collect();
        let mut pieces: Vec<ValueRange<V>> = Vec::new();
        for (a, b, id) in &old {
            if *a < low {
                pieces.push((*a, (*b).min(low.wrapping_sub(1)), *id));
            }
        }
        pieces.extend(ranges_within(networks, within));
        for (a, b, id) in &old {
            if *b > high {
                pieces.push(((*a).max(high.wrapping_add(1)), *b, *id));
            }
        }
        let new = merge(pieces);
        for run in &old {
            if new.binary_search(run).is_err() {
                self.ranges.remove(&run.0);
                on_change(*run, false);
            }
        }
        for run in &new {
            if old.binary_search(run).is_err() {
                self.ranges.insert(run.0, (run.1, run.2));
                on_change(*run, true);
            }
        }
    }
}

/// Prefixes of one family with their values, and the ranges that follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixRanges<V> {
    prefixes: BTreeMap<Prefix, V>,
    ranges: AddressRanges<V>,
}

impl<V> Default for PrefixRanges<V> {
    fn default() -> Self {
        PrefixRanges {
            prefixes: BTreeMap::new(),
            ranges: AddressRanges::default(),
        }
    }
}

impl<V: Copy + Ord + Default> PrefixRanges<V> {
    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Sets or removes the value of a prefix. Calls `on_change` for each range that was removed (`false`) or added
    /// (`true`).
    pub fn change(
        &mut self,
        prefix: Prefix,
        value: Option<V>,
        on_change: impl FnMut(ValueRange<V>, bool),
    ) {
        match value {
            Some(value) => self.prefixes.insert(prefix, value),
            None => self.prefixes.remove(&prefix),
        };
        self.ranges.recompute(&self.prefixes, prefix, on_change);
    }
}

/// The ranges of each family in which tables give addresses an identity, without the addresses that have an entry of
/// their own.
pub fn identity_ranges(tables: &Tables) -> [AddressRanges<IdentityId>; 2] {
    let mut networks = [BTreeMap::new(), BTreeMap::new()];
    for (prefix, id) in tables.addresses.iter() {
        if !prefix.is_host() {
            networks[prefix.family() as usize].insert(prefix, *id);
        }
    }
    Family::BOTH.map(|family| {
        let mut ranges = AddressRanges::default();
        let networks = &networks[family as usize];
        ranges.recompute(networks, Prefix::all(family), |_, _| {});
        ranges
    })
}

/// Joins adjacent ranges of one value; drops those with the default value.
fn merge<V: Copy + Ord + Default>(pieces: Vec<ValueRange<V>>) -> Vec<ValueRange<V>> {
    let mut out: Vec<ValueRange<V>> = Vec::with_capacity(pieces.len());
    for (a, b, id) in pieces {
        if id == V::default() {
            continue;
        }
        match out.last_mut() {
            Some((_, end, same)) if *same == id && a > 0 && *end == a - 1 => *end = b,
            _ => out.push((a, b, id)),
        }
    }
    out
}

/// The ranges inside one prefix, in order, by a sweep over the prefixes in it.
fn ranges_within<V: Copy + Ord + Default>(
    nets: &BTreeMap<Prefix, V>,
    within: Prefix,
) -> Vec<ValueRange<V>> {
    let (low, high) = within.bounds();
    let mut above = iter::successors(within.parent(), |prefix| prefix.parent());
    let outer = above.find_map(|prefix| nets.get(&prefix));
    let mut out = Vec::new();
    let mut next = Some(low);
    // Gives the addresses up to this one, as far as they have none yet, a value.
    let mut assign = |last: u128, id: V| {
        if let Some(first) = next.filter(|first| *first <= last) {
            out.push((first, last, id));
            next = last.checked_add(1);
        }
    };
    // The prefixes that contain the current position, the longest last.
    let mut open = vec![(high, outer.copied().unwrap_or(V::default()))];
    for (prefix, id) in nets.range(within..=Prefix::host(within.last())) {
        let (first, last) = prefix.bounds();
        while let Some((end, id)) = open.pop_if(|(end, _)| *end < first) {
            assign(end, id);
        }
        if let (Some(before), Some((_, id))) = (first.checked_sub(1), open.last()) {
            assign(before, *id);
        }
        open.push((last, *id));
    }
    while let Some((end, id)) = open.pop() {
        assign(end, id);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use palisade_model::address_from_number;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn all_ranges(
        family: Family,
        nets: &BTreeMap<Prefix, IdentityId>,
    ) -> AddressRanges<IdentityId> {
        let mut flat = AddressRanges::default();
        flat.recompute(nets, Prefix::all(family), |_, _| {});
        flat
    }

    fn longest(nets: &BTreeMap<Prefix, IdentityId>, address: IpAddr) -> IdentityId {
        nets.iter()
            .filter(|(prefix, _)| prefix.contains(address))
            .max_by_key(|(prefix, _)| prefix.length())
            .map_or(IdentityId::UNKNOWN, |(_, id)| *id)
    }

    #[test]
    fn changes_lead_where_a_recomputation_does() {
        let families = [(Family::V4, 0u128), (Family::V6, u128::MAX - 255)];
        for (seed, (family, base)) in (palisade_generators::seeds(7).into_iter())
            .flat_map(|seed| families.map(|family| (seed, family)))
        {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut nets = BTreeMap::new();
            let mut flat = AddressRanges::default();
            let mut kernel: BTreeMap<u128, ValueRange<IdentityId>> = BTreeMap::new();
            for _ in 0..2000 {
                let short = if rng.random_bool(0.05) {
                    family.bits()
                } else {
                    8
                };
                let size = rng.random_range(1..=short);
                let address = address_from_number(family, base + rng.random_range(0..256));
                let prefix = Prefix::new(address, family.bits() - size);
                if rng.random_bool(0.5) {
                    nets.insert(prefix, IdentityId(rng.random_range(0..4)));
                } else {
                    nets.remove(&prefix);
                }
                let mut gone = Vec::new();
                let mut come = Vec::new();
                flat.recompute(&nets, prefix, |run, added| {
                    if added { &mut come } else { &mut gone }.push(run);
                });
                for run in gone {
                    assert_eq!(kernel.remove(&run.0), Some(run));
                }
                for run in come {
                    assert_eq!(kernel.insert(run.0, run), None);
                }
                assert_eq!(flat, all_ranges(family, &nets));
                assert!(kernel.values().copied().eq(flat.ranges()));
                assert_eq!(
                    AddressRanges::from_ranges(flat.ranges()),
                    Some(flat.clone())
                );
                for offset in 0..256 {
                    let number = base + offset;
                    let id = flat.ranges().find(|(a, b, _)| *a <= number && number <= *b);
                    let id = id.map_or(IdentityId::UNKNOWN, |(_, _, id)| id);
                    assert_eq!(id, longest(&nets, address_from_number(family, number)));
                }
            }
        }
    }
}
