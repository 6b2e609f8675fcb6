//! A map by network.
//!
//! Promises: the order of [`Prefix`]; the same content is an equal map; an IPv4 network takes 5 bytes and an IPv6
//! network 17, where a [`Prefix`] takes 18. Never: matches by longest prefix; callers do.

use crate::Prefix;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// A network of a family: the octets of its address, and its length.
type Key<const N: usize> = ([u8; N], u8);

/// A value for each of some networks.
#[derive(Clone, PartialEq, Eq)]
pub struct PrefixMap<V> {
    v4: BTreeMap<Key<4>, V>,
    v6: BTreeMap<Key<16>, V>,
}

impl<V> Default for PrefixMap<V> {
    fn default() -> Self {
        PrefixMap::new()
    }
}

/// The key of a network, for the map of its family.
enum FamilyKey {
    V4(Key<4>),
    V6(Key<16>),
}

fn key(prefix: Prefix) -> FamilyKey {
    match prefix.address() {
        IpAddr::V4(address) => FamilyKey::V4((address.octets(), prefix.length())),
        IpAddr::V6(address) => FamilyKey::V6((address.octets(), prefix.length())),
    }
}

fn prefix<const N: usize>((octets, length): &Key<N>) -> Prefix
where
    IpAddr: From<[u8; N]>,
{
    Prefix::new(IpAddr::from(*octets), *length)
}

impl<V> PrefixMap<V> {
    /// An empty map.
    pub const fn new() -> Self {
        PrefixMap {
            v4: BTreeMap::new(),
            v6: BTreeMap::new(),
        }
    }

    /// The number of networks.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are no networks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of exactly this network.
    pub fn get(&self, prefix: &Prefix) -> Option<&V> {
        match key(*prefix) {
            FamilyKey::V4(key) => self.v4.get(&key),
            FamilyKey::V6(key) => self.v6.get(&key),
        }
    }

    /// The value of exactly this network, to change it.
    pub fn get_mut(&mut self, prefix: &Prefix) -> Option<&mut V> {
        match key(*prefix) {
            FamilyKey::V4(key) => self.v4.get_mut(&key),
            FamilyKey::V6(key) => self.v6.get_mut(&key),
        }
    }

    /// Sets the value of a network. Returns the former one.
    pub fn insert(&mut self, prefix: Prefix, value: V) -> Option<V> {
        match key(prefix) {
            FamilyKey::V4(key) => self.v4.insert(key, value),
            FamilyKey::V6(key) => self.v6.insert(key, value),
        }
    }

    /// Removes a network. Returns its value.
    pub fn remove(&mut self, prefix: &Prefix) -> Option<V> {
        match key(*prefix) {
            FamilyKey::V4(key) => self.v4.remove(&key),
            FamilyKey::V6(key) => self.v6.remove(&key),
        }
    }

    /// The value of a network, which `make` makes if there is none.
    pub fn get_or_insert_with(&mut self, prefix: Prefix, make: impl FnOnce() -> V) -> &mut V {
        match key(prefix) {
            FamilyKey::V4(key) => self.v4.entry(key).or_insert_with(make),
            FamilyKey::V6(key) => self.v6.entry(key).or_insert_with(make),
        }
    }

    /// Keeps the networks for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(Prefix) -> bool) {
        self.v4.retain(|key, _| keep(prefix(key)));
        self.v6.retain(|key, _| keep(prefix(key)));
    }

    /// The networks with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &V)> + Clone {
        let v4 = self.v4.iter().map(|(key, value)| (prefix(key), value));
        let v6 = self.v6.iter().map(|(key, value)| (prefix(key), value));
        v4.chain(v6)
    }

    /// The networks, in order.
    pub fn keys(&self) -> impl Iterator<Item = Prefix> + Clone {
        self.iter().map(|(prefix, _)| prefix)
    }

    /// The values, in the order of their networks.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.v4.values().chain(self.v6.values())
    }

    /// The networks inside a network, itself included, with their values, in order.
    pub fn within(&self, net: Prefix) -> impl Iterator<Item = (Prefix, &V)> {
        let (v4, v6) = match key(net) {
            FamilyKey::V4(key) => (Some(self.v4.range(key..)), None),
            FamilyKey::V6(key) => (None, Some(self.v6.range(key..))),
        };
        let v4 = v4.into_iter().flatten();
        let v6 = v6.into_iter().flatten();
        let all = (v4.map(|(key, value)| (prefix(key), value)))
            .chain(v6.map(|(key, value)| (prefix(key), value)));
        all.take_while(move |(prefix, _)| net.covers(*prefix))
    }
}

impl<V> FromIterator<(Prefix, V)> for PrefixMap<V> {
    fn from_iter<I: IntoIterator<Item = (Prefix, V)>>(entries: I) -> Self {
        // A map that is built in one go is dense; by inserts in order it would be half empty.
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, value) in entries {
            match key(prefix) {
                FamilyKey::V4(key) => v4.push((key, value)),
                FamilyKey::V6(key) => v6.push((key, value)),
            }
        }
        PrefixMap {
            v4: v4.into_iter().collect(),
            v6: v6.into_iter().collect(),
        }
    }
}

impl<V> Extend<(Prefix, V)> for PrefixMap<V> {
    fn extend<I: IntoIterator<Item = (Prefix, V)>>(&mut self, entries: I) {
        for (prefix, value) in entries {
            self.insert(prefix, value);
        }
    }
}

impl<V, const N: usize> From<[(Prefix, V); N]> for PrefixMap<V> {
    fn from(entries: [(Prefix, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<V: fmt::Debug> fmt::Debug for PrefixMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn random_prefix(rng: &mut SmallRng) -> Prefix {
        let octets: [u8; 16] = core::array::from_fn(|_| rng.random_range(0..2));
        let address = if rng.random() {
            IpAddr::from([octets[0], octets[1], octets[2], octets[3]])
        } else {
            IpAddr::from(octets)
        };
        Prefix::new(address, rng.random_range(0..=128))
    }

    #[test]
    fn it_is_a_map_by_prefix() {
        for seed in palisade_generators::seeds(1) {
            compare_with_a_map_by_prefix(seed);
        }
    }

    fn compare_with_a_map_by_prefix(seed: u64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut map, mut naive) = (PrefixMap::new(), BTreeMap::new());
        for value in 0..20_000 {
            let prefix = random_prefix(&mut rng);
            match rng.random_range(0..5) {
                0 => assert_eq!(map.remove(&prefix), naive.remove(&prefix)),
                1 => {
                    let (made, expected) = (
                        map.get_or_insert_with(prefix, || value),
                        naive.entry(prefix).or_insert(value),
                    );
                    assert_eq!(made, expected);
                }
                2 => assert_eq!(map.get_mut(&prefix), naive.get_mut(&prefix)),
                _ => assert_eq!(map.insert(prefix, value), naive.insert(prefix, value)),
            }
            assert_eq!(map.get(&prefix), naive.get(&prefix));
            if value % 1_000 == 0 {
                let keep = |prefix: Prefix| !prefix.length().is_multiple_of(7);
                map.retain(keep);
                naive.retain(|prefix, _| keep(*prefix));
            }
            if value % 500 == 0 {
                let net = random_prefix(&mut rng);
                let inside: Vec<_> = map.within(net).map(|(prefix, v)| (prefix, *v)).collect();
                let expected = naive.iter().filter(|(prefix, _)| net.covers(**prefix));
                assert_eq!(inside, Vec::from_iter(expected.map(|(p, v)| (*p, *v))));
                assert_eq!(map.len(), naive.len());
                assert!(map.iter().eq(naive.iter().map(|(p, v)| (*p, v))));
                assert!(map.keys().eq(naive.keys().copied()));
                assert!(map.values().eq(naive.values()));
                let copied: PrefixMap<i32> = naive.iter().map(|(p, v)| (*p, *v)).collect();
                assert_eq!(copied, map);
            }
        }
    }
}
