//! What kinds of flush a run has tried: told of each flush by its content, not by what the generator
//! meant to make.

use palisade_model::{Object, PortSpec, State, Update};
use palisade_tables::{CheckSummary, Delta, Phase, TableChange, Tables};
use std::collections::{BTreeMap, BTreeSet};

/// Every kind that a run must have tried, and the least share of flushes in a hundred.
const WANTED: [(&str, f64); 18] = [
    ("changes something", 50.0),
    ("coalesced: several objects", 30.0),
    ("coalesced: one object twice", 5.0),
    ("splits an identity", 5.0),
    ("merges identities", 5.0),
    ("tightens", 20.0),
    ("loosens", 20.0),
    ("tightens and loosens", 10.0),
    ("revokes", 20.0),
    ("deletes", 20.0),
    ("a network comes or goes", 5.0),
    ("a network inside another comes or goes", 2.0),
    ("an endpoint of several addresses changes", 5.0),
    ("named ports stand in a policy in force", 10.0),
    ("named ports of an endpoint change", 5.0),
    ("both endpoints are local", 20.0),
    ("an address changes hands", 2.0),
    ("IPv4 and IPv6 at once", 5.0),
];

/// How many flushes were of each kind.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) flushes: usize,
    pub(crate) packets: u64,
    pub(crate) pairs: usize,
    /// Flushes of which not every pair of histories was judged, and how many were not.
    pub(crate) sampled: (usize, usize),
    by_kind: BTreeMap<&'static str, usize>,
}

impl Kinds {
    /// Takes in a flush: its updates, the objects and tables before it, and what was judged.
    pub(crate) fn add(
        &mut self,
        batch: &[Update],
        state: &State,
        (old, delta, new): (&Tables, &Delta, &Tables),
        checked: &CheckSummary,
    ) {
        self.flushes += 1;
        self.packets += checked.packets;
        self.pairs += checked.pairs - checked.skipped;
        if checked.skipped > 0 {
            self.sampled.0 += 1;
            self.sampled.1 += checked.skipped;
        }
        if delta.is_empty() {
            return;
        }
        let mut found: BTreeSet<&'static str> = BTreeSet::from(["changes something"]);
        let keys: Vec<_> = batch.iter().map(key).collect();
        let different: BTreeSet<_> = keys.iter().collect();
        if different.len() > 1 {
            found.insert("coalesced: several objects");
        }
        if different.len() < keys.len() {
            found.insert("coalesced: one object twice");
        }
        of_steps(delta, &mut found);
        of_networks(old, delta, new, &mut found);
        of_points(old, delta, new, &mut found);
        of_ports(batch, state, &mut found);
        if checked.both_ends > 0 {
            found.insert("both endpoints are local");
        }
        for kind in found {
            *self.by_kind.entry(kind).or_default() += 1;
        }
    }

    /// Takes in what another thread counted.
    pub(crate) fn merge(&mut self, other: Kinds) {
        self.flushes += other.flushes;
        self.packets += other.packets;
        self.pairs += other.pairs;
        self.sampled.0 += other.sampled.0;
        self.sampled.1 += other.sampled.1;
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
    }

    fn percent(&self, kind: &str) -> f64 {
        let count = self.by_kind.get(kind).copied().unwrap_or_default();
        100.0 * count as f64 / self.flushes.max(1) as f64
    }

    /// A line for each kind, and how much was judged.
    pub(crate) fn told(&self) -> String {
        let mut out = format!(
            "{} flushes, every intermediate state judged: {} pairs of histories, {} kinds of packet; \
             0 verdicts neither old nor new; sampled beyond the bound: {} pairs in {} flushes\n",
            self.flushes, self.pairs, self.packets, self.sampled.1, self.sampled.0
        );
        for (kind, _) in WANTED {
            out += &format!("  {:5.1} %  {kind}\n", self.percent(kind));
        }
        out
    }

    /// The kinds of which there were too few.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let rare = |(kind, least): &(&'static str, f64)| self.percent(kind) < *least;
        WANTED.iter().filter(|w| rare(w)).map(|w| w.0).collect()
    }
}

fn key(update: &Update) -> palisade_model::ObjectKey {
    match update {
        Update::Upsert(object) => object.key(),
        Update::Delete(key) => key.clone(),
    }
}

fn of_steps(delta: &Delta, found: &mut BTreeSet<&'static str>) {
    let has = |phase| delta.steps.iter().any(|step| step.phase == phase);
    let splits = |change: &TableChange| matches!(change, TableChange::Address(_, Some(_)));
    let mut split = delta.steps.iter().filter(|s| s.phase == Phase::Split);
    if split.any(|step| step.changes.iter().any(splits)) {
        found.insert("splits an identity");
    }
    for (phase, kind) in [
        (Phase::Tighten, "tightens"),
        (Phase::Loosen, "loosens"),
        (Phase::Revoke, "revokes"),
        (Phase::Merge, "merges identities"),
        (Phase::Delete, "deletes"),
    ] {
        if has(phase) {
            found.insert(kind);
        }
    }
    if has(Phase::Tighten) && has(Phase::Loosen) {
        found.insert("tightens and loosens");
    }
}

fn of_networks(old: &Tables, delta: &Delta, new: &Tables, found: &mut BTreeSet<&'static str>) {
    let all: BTreeSet<_> = old.addresses.keys().chain(new.addresses.keys()).collect();
    let mut families = BTreeSet::new();
    for change in delta.steps.iter().flat_map(|step| &step.changes) {
        let TableChange::Address(prefix, _) = change else {
            continue;
        };
        families.insert(prefix.family());
        let (was, is) = (old.addresses.get(prefix), new.addresses.get(prefix));
        if prefix.is_host() || was.is_some() == is.is_some() {
            continue;
        }
        found.insert("a network comes or goes");
        let around = |other: &&palisade_model::Prefix| {
            !other.is_host()
                && *other != prefix
                && (other.covers(*prefix) || prefix.covers(**other))
        };
        if all.iter().copied().any(|other| around(&other)) {
            found.insert("a network inside another comes or goes");
        }
    }
    if families.len() == 2 {
        found.insert("IPv4 and IPv6 at once");
    }
}

fn of_points(old: &Tables, delta: &Delta, new: &Tables, found: &mut BTreeSet<&'static str>) {
    let mut addresses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for point in old.points.keys().chain(new.points.keys()) {
        addresses
            .entry(&point.interface)
            .or_default()
            .insert(point.address);
    }
    let holders = |tables: &Tables, address| -> BTreeSet<palisade_model::Str> {
        let points = tables.points.keys().filter(|p| p.address == address);
        points.map(|p| p.interface.clone()).collect()
    };
    for change in delta.steps.iter().flat_map(|step| &step.changes) {
        let TableChange::Point(point, _) = change else {
            continue;
        };
        if addresses.get(&point.interface).is_some_and(|a| a.len() > 1) {
            found.insert("an endpoint of several addresses changes");
        }
        let (was, is) = (holders(old, point.address), holders(new, point.address));
        if !was.is_empty() && !is.is_empty() && was != is {
            found.insert("an address changes hands");
        }
    }
}

fn of_ports(batch: &[Update], state: &State, found: &mut BTreeSet<&'static str>) {
    let named = |policy: &palisade_model::Policy| {
        let rules = [&policy.ingress, &policy.egress].into_iter().flatten();
        rules.flat_map(|of| &of.rules).any(|rule| {
            rule.traffic.iter().any(|term| {
                [&term.source, &term.destination].into_iter().any(|ports| {
                    let listed = ports.is.iter().flatten();
                    listed
                        .chain(&ports.not)
                        .any(|spec| matches!(spec, PortSpec::Named(_)))
                })
            })
        })
    };
    if state.policies.values().any(named) {
        found.insert("named ports stand in a policy in force");
    }
    for update in batch {
        if let Update::Upsert(Object::Endpoint(endpoint)) = update {
            let before = state.endpoints.get(&endpoint.id);
            if before.map_or(&[][..], |e| &e.ports) != &endpoint.ports[..] {
                found.insert("named ports of an endpoint change");
            }
        }
    }
}
