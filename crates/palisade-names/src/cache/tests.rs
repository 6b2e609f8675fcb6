//! The cache's tests: its rules one by one, and a naive cache beside it on random histories.

use super::*;
use alloc::format;
use alloc::vec;
use palisade_model::ObjectKind;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

fn workload(text: &str) -> EndpointId {
    EndpointId {
        namespace: Some("shop".into()),
        name: text.into(),
        kind: ObjectKind::new("", "Pod"),
    }
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn answer(question: &str, to: &str, addresses: &[(u8, u64)]) -> NameAnswer {
    NameAnswer {
        name: name(question),
        workload: workload(to),
        addresses: addresses
            .iter()
            .map(|(last, ttl)| AnsweredAddress {
                address: address(*last),
                ttl: Duration::from_secs(*ttl),
            })
            .collect(),
    }
}

/// Without grace, and with small bounds.
fn limits() -> NameLimits {
    NameLimits {
        grace: Duration::ZERO,
        addresses_of_name: 3,
        addresses_of_workload: 5,
        addresses: 8,
        ..NameLimits::default()
    }
}

/// Flows of any workload to these addresses are open.
#[derive(Default)]
struct Used(BTreeSet<IpAddr>);

impl ConnectionLookup for Used {
    fn has_connection(&self, _: &EndpointId, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

fn used(addresses: &[u8]) -> Used {
    Used(addresses.iter().copied().map(address).collect())
}

fn addresses(cache: &NameCache, text: &str) -> Vec<IpAddr> {
    let set = cache.network_set(&name(text));
    set.map(|set| set.nets.iter().map(|net| net.address()).collect())
        .unwrap_or_default()
}

#[test]
fn an_address_stays_for_its_ttl_with_floor_and_grace() {
    let limits = NameLimits {
        min_ttl: Duration::from_secs(5),
        max_ttl: Duration::from_secs(100),
        grace: Duration::from_secs(2),
        ..NameLimits::default()
    };
    for (ttl, stays) in [(0, 7), (5, 7), (30, 32), (1_000, 102)] {
        let mut cache = NameCache::new(limits.clone());
        let changed = cache.learn(1_000, &answer("a.b", "web", &[(1, ttl)]), &Used::default());
        assert_eq!(changed, BTreeSet::from([name("a.b")]));
        assert_eq!(
            cache.next_deadline(),
            Some(1_000 + stays * 1_000),
            "TTL {ttl}"
        );
        assert!(
            cache
                .expire(999 + stays * 1_000, &Used::default())
                .is_empty()
        );
        assert_eq!(
            cache.expire(1_000 + stays * 1_000, &Used::default()).len(),
            1
        );
        assert_eq!((cache.name_count(), cache.address_count()), (0, 0));
        assert_eq!(cache.network_set(&name("a.b")), None);
    }
}

#[test]
fn another_answer_prolongs_and_never_shortens() {
    let mut cache = NameCache::new(limits());
    cache.learn(0, &answer("a", "web", &[(1, 60)]), &Used::default());
    assert!(
        cache
            .learn(10_000, &answer("a", "web", &[(1, 10)]), &Used::default())
            .is_empty()
    );
    assert_eq!(cache.next_deadline(), Some(60_000));
    cache.learn(10_000, &answer("a", "web", &[(1, 60)]), &Used::default());
    assert_eq!(
        (cache.next_deadline(), cache.counts().added),
        (Some(70_000), 1)
    );
}

#[test]
fn an_address_that_a_flow_uses_stays_until_the_flow_ends() {
    let mut cache = NameCache::new(limits());
    cache.learn(0, &answer("a", "web", &[(1, 1), (2, 1)]), &Used::default());
    assert_eq!(
        cache.expire(5_000, &used(&[1])),
        BTreeSet::from([name("a")])
    );
    assert_eq!(addresses(&cache, "a"), [address(1)]);
    assert_eq!(cache.next_deadline(), Some(35_000));
    assert_eq!(cache.expire(35_000, &Used::default()).len(), 1);
    assert_eq!(
        cache.counts(),
        NameCounts {
            added: 2,
            expired: 2,
            evicted: 0
        }
    );
}

#[test]
fn two_workloads_hold_one_address_of_a_name() {
    let mut cache = NameCache::new(limits());
    cache.learn(0, &answer("a", "web", &[(1, 10)]), &Used::default());
    // The name has no address more, so there is no change of policy.
    assert!(
        cache
            .learn(0, &answer("a", "db", &[(1, 20)]), &Used::default())
            .is_empty()
    );
    assert!(cache.expire(10_000, &Used::default()).is_empty());
    assert_eq!(cache.entry(&name("a")).unwrap().addresses.len(), 1);
    assert_eq!(
        cache.remove_workload(&workload("db")),
        BTreeSet::from([name("a")])
    );
    assert!(cache.remove_workload(&workload("db")).is_empty());
    assert_eq!(cache.names().count(), 0);
}

#[test]
fn a_name_that_has_too_many_addresses_loses_the_oldest_unused() {
    let mut cache = NameCache::new(limits());
    cache.learn(
        0,
        &answer("a", "web", &[(1, 1), (2, 2), (3, 3)]),
        &used(&[1]),
    );
    cache.learn(0, &answer("a", "web", &[(4, 4)]), &used(&[1]));
    assert_eq!(addresses(&cache, "a"), [address(1), address(3), address(4)]);
    // All are in use: the oldest goes, since the bound holds.
    cache.learn(0, &answer("a", "web", &[(5, 9)]), &used(&[1, 3, 4, 5]));
    assert_eq!(addresses(&cache, "a"), [address(3), address(4), address(5)]);
    assert_eq!(cache.counts().evicted, 2);
    // Of an answer with more than are held for a name, the first are taken.
    let giant: Vec<(u8, u64)> = (10..200).map(|last| (last, 60)).collect();
    cache.learn(0, &answer("b", "web", &giant), &Used::default());
    assert_eq!(
        addresses(&cache, "b"),
        [address(10), address(11), address(12)]
    );
}

#[test]
fn a_flood_of_names_costs_the_workload_that_sends_it() {
    let mut cache = NameCache::new(limits());
    cache.learn(
        0,
        &answer("shop.example", "web", &[(200, 1), (201, 1)]),
        &Used::default(),
    );
    for number in 0..100 {
        let text = format!("x{number}.flood.example");
        cache.learn(0, &answer(&text, "evil", &[(number, 60)]), &Used::default());
        assert!(cache.address_count() <= 7);
    }
    assert_eq!(addresses(&cache, "shop.example").len(), 2);
    assert_eq!((cache.name_count(), cache.counts().evicted), (6, 95));
    assert_eq!(cache.take_evicted(), BTreeSet::from([workload("evil")]));
    assert_eq!(cache.take_evicted(), BTreeSet::new());
    // At the bound of all workloads the one with the most addresses pays.
    cache.learn(
        0,
        &answer("db.example", "db", &[(210, 1), (211, 1)]),
        &Used::default(),
    );
    assert_eq!(
        (addresses(&cache, "db.example").len(), cache.address_count()),
        (2, 8)
    );
    assert_eq!(addresses(&cache, "shop.example").len(), 2);
}

#[test]
fn an_answer_without_addresses_teaches_nothing() {
    let mut cache = NameCache::new(limits());
    assert!(
        cache
            .learn(0, &answer("a", "web", &[]), &Used::default())
            .is_empty()
    );
    assert_eq!((cache.name_count(), cache.next_deadline()), (0, None));
}

#[test]
fn what_is_stored_is_restored() {
    let mut cache = NameCache::new(limits());
    cache.learn(
        0,
        &answer("a.b", "web", &[(1, 10), (2, 20)]),
        &Used::default(),
    );
    cache.learn(5, &answer("a.b", "db", &[(1, 30)]), &Used::default());
    cache.learn(5, &answer("c", "db", &[(3, 30)]), &Used::default());
    let text = serde_json::to_string(&cache.store()).unwrap();
    let stored: Vec<StoredName> = serde_json::from_str(&text).unwrap();
    let mut restored = NameCache::restore(limits(), stored);
    assert_eq!(restored.store(), cache.store());
    assert_eq!(restored.next_deadline(), cache.next_deadline());
    // An address that expired while nobody looked stays while a flow uses it.
    restored.expire(60_000, &used(&[3]));
    assert_eq!(
        restored.store(),
        [StoredName {
            name: name("c"),
            addresses: vec![StoredAddress {
                address: address(3),
                workload: workload("db"),
                expires: 90_000
            }],
        }]
    );
}

/// A name, a workload, an address, and when it expires.
type NaiveEntry = (DomainName, EndpointId, IpAddr, u64);

/// A cache that does the same with one list and no index.
struct NaiveCache {
    limits: NameLimits,
    entries: Vec<NaiveEntry>,
    /// When each name got its first address: what expires at one time goes in this order.
    begun: BTreeMap<DomainName, u64>,
}

impl NaiveCache {
    fn learn(&mut self, now: u64, answer: &NameAnswer, connections: &Used) {
        if self.nets(&answer.name).is_empty() {
            self.begun.insert(answer.name.clone(), now);
        }
        let taken = answer.addresses.iter().take(self.limits.addresses_of_name);
        for AnsweredAddress { address, ttl } in taken {
            let life = (*ttl).clamp(self.limits.min_ttl, self.limits.max_ttl) + self.limits.grace;
            let expires = now + u64::try_from(life.as_millis()).unwrap();
            let known = self.entries.iter_mut().find(|(name, workload, known, _)| {
                (name, workload, known) == (&answer.name, &answer.workload, address)
            });
            match known {
                Some((.., known)) => *known = expires.max(*known),
                None => self.entries.push((
                    answer.name.clone(),
                    answer.workload.clone(),
                    *address,
                    expires,
                )),
            }
        }
        let (of_name, of_workload, all) = (
            self.limits.addresses_of_name,
            self.limits.addresses_of_workload,
            self.limits.addresses,
        );
        self.keep(of_name, connections, |entry| {
            entry.0 == answer.name && entry.1 == answer.workload
        });
        self.keep(of_workload, connections, |entry| entry.1 == answer.workload);
        assert!(
            self.entries.len() <= all,
            "the bound of all is tested by itself"
        );
    }

    /// Removes of what is chosen the first to expire that are unused, and then the first, until so many are left.
    fn keep(&mut self, many: usize, connections: &Used, is_chosen: impl Fn(&NaiveEntry) -> bool) {
        loop {
            let mut chosen: Vec<_> = self
                .entries
                .iter()
                .filter(|entry| is_chosen(entry))
                .cloned()
                .collect();
            if chosen.len() <= many {
                return;
            }
            chosen.sort_by_key(|entry| {
                (
                    connections.0.contains(&entry.2),
                    entry.3,
                    self.begun[&entry.0],
                    entry.2,
                )
            });
            self.entries.retain(|entry| *entry != chosen[0]);
        }
    }

    fn expire(&mut self, now: u64, connections: &Used) {
        let recheck = u64::try_from(self.limits.recheck.as_millis()).unwrap();
        for entry in &mut self.entries {
            if entry.3 <= now && connections.0.contains(&entry.2) {
                entry.3 = now + recheck;
            }
        }
        self.entries.retain(|entry| entry.3 > now);
    }

    fn nets(&self, name: &DomainName) -> Vec<Prefix> {
        let entry = self.entries.iter().filter(|entry| entry.0 == *name);
        let nets: BTreeSet<Prefix> = entry.map(|entry| Prefix::host(entry.2)).collect();
        nets.into_iter().collect()
    }
}

#[test]
fn random_histories_end_as_in_a_naive_cache() {
    for seed in palisade_generators::seeds(1) {
        for case in 0..300 {
            compare_history(
                SmallRng::seed_from_u64(seed ^ (case << 32)),
                &format!("seed {seed}, case {case}"),
            );
        }
    }
}

fn compare_history(mut dice: SmallRng, case: &str) {
    let limits = NameLimits {
        min_ttl: Duration::from_secs(dice.random_range(0..5)),
        grace: Duration::from_secs(dice.random_range(0..3)),
        addresses_of_name: dice.random_range(1..5),
        addresses_of_workload: dice.random_range(1..8),
        addresses: 1_000,
        ..NameLimits::default()
    };
    let mut cache = NameCache::new(limits.clone());
    let mut naive = NaiveCache {
        limits,
        entries: Vec::new(),
        begun: BTreeMap::new(),
    };
    let names = ["a", "b.a", "c"];
    let mut known: BTreeMap<DomainName, Vec<Prefix>> = BTreeMap::new();
    let mut now = 0;
    for _ in 0..60 {
        now += dice.random_range(1..4_000) * 2;
        let connections = used(
            &(0..12)
                .filter(|_| dice.random_bool(0.2))
                .collect::<Vec<u8>>(),
        );
        let changed = match dice.random_range(0..10) {
            0..7 => {
                let mut addresses = BTreeMap::new();
                for _ in 0..dice.random_range(0..4) {
                    addresses.insert(
                        dice.random_range(0..12),
                        addresses.len() as u64 * 3 + dice.random_range(0..3),
                    );
                }
                let addresses: Vec<(u8, u64)> = addresses.into_iter().collect();
                let to = ["web", "db"][dice.random_range(0..2)];
                let answer = answer(names[dice.random_range(0..3)], to, &addresses);
                naive.learn(now, &answer, &connections);
                cache.learn(now, &answer, &connections)
            }
            7..9 => {
                naive.expire(now, &connections);
                cache.expire(now, &connections)
            }
            _ => {
                naive.entries.retain(|entry| entry.1 != workload("db"));
                cache.remove_workload(&workload("db"))
            }
        };
        for known_name in names.map(name) {
            let nets = cache
                .network_set(&known_name)
                .map(|set| set.nets)
                .unwrap_or_default();
            assert_eq!(nets, naive.nets(&known_name), "{case}: {known_name}");
            // Whoever is told of a change needs no other.
            let before = known
                .insert(known_name.clone(), nets.clone())
                .unwrap_or_default();
            assert!(
                before == nets || changed.contains(&known_name),
                "{case}: {known_name} changed unseen"
            );
        }
        assert_eq!(cache.address_count(), naive.entries.len(), "{case}");
    }
}
