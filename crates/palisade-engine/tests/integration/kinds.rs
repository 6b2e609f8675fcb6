//! The kinds of flush that a run has covered, determined from the content of each flush, not from
//! what the generator intended.

use palisade_model::{Object, PortSpec, State, Update};
use palisade_tables::{Delta, Phase, TableChange, Tables};
use palisade_verification::CheckSummary;
use std::collections::{BTreeMap, BTreeSet};

/// The kinds that a run must cover, with the least share of flushes in percent.
const WANTED: [(&str, f64); 18] = [
    ("changes something", 50.0),
    ("batch with several objects", 30.0),
    ("batch with one object twice", 5.0),
    ("splits an identity", 5.0),
    ("merges identities", 5.0),
    ("tightens", 20.0),
    ("loosens", 20.0),
    ("tightens and loosens", 10.0),
    ("revokes", 20.0),
    ("deletes", 20.0),
    ("adds or removes a network", 5.0),
    ("adds or removes a nested network", 2.0),
    ("changes an endpoint with several addresses", 5.0),
    ("an active policy uses named ports", 10.0),
    ("changes named ports of an endpoint", 5.0),
    ("both endpoints are local", 20.0),
    ("changes the owner of an address", 2.0),
    ("changes both IPv4 and IPv6", 5.0),
];

/// Counts of flushes by kind.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) flushes: usize,
    pub(crate) packets: u64,
    pub(crate) pairs: usize,
    /// Flushes of which not all pairs of histories were checked, and the number of pairs left out.
    pub(crate) sampled: (usize, usize),
    by_kind: BTreeMap<&'static str, usize>,
}

impl Kinds {
    /// Counts a flush: its updates, the objects and tables before it, and what was checked.
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
            found.insert("batch with several objects");
        }
        if different.len() < keys.len() {
            found.insert("batch with one object twice");
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

    /// Adds the counts of another thread.
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

    /// One line for each kind, after the totals of what was checked.
    pub(crate) fn told(&self) -> String {
        let mut out = format!(
            "{} flushes, every intermediate state checked: {} pairs of histories, {} kinds of packet; \
             0 verdicts neither old nor new; not checked: {} pairs in {} flushes\n",
            self.flushes, self.pairs, self.packets, self.sampled.1, self.sampled.0
        );
        for (kind, _) in WANTED {
            out += &format!("  {:5.1} %  {kind}\n", self.percent(kind));
        }
        out
    }

    /// The kinds with too few flushes.
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
        found.insert("adds or removes a network");
        let around = |other: &palisade_model::Prefix| {
            !other.is_host() && other != prefix && (other.covers(*prefix) || prefix.covers(*other))
        };
        if all.iter().any(around) {
            found.insert("adds or removes a nested network");
        }
    }
    if families.len() == 2 {
        found.insert("changes both IPv4 and IPv6");
    }
}

fn of_points(old: &Tables, delta: &Delta, new: &Tables, found: &mut BTreeSet<&'static str>) {
    let mut addresses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let points = old.points.keys().chain(new.points.keys());
    for (interface, address) in points.filter_map(|point| point.workload()) {
        addresses.entry(interface).or_default().insert(address);
    }
    let owners = |tables: &Tables, address| -> BTreeSet<palisade_model::Str> {
        let points = tables.points.keys().filter_map(|point| point.workload());
        let points = points.filter(|(_, own)| *own == address);
        points.map(|(interface, _)| interface.clone()).collect()
    };
    for change in delta.steps.iter().flat_map(|step| &step.changes) {
        let TableChange::Point(point, _) = change else {
            continue;
        };
        let Some((interface, own)) = point.workload() else {
            continue;
        };
        if addresses.get(interface).is_some_and(|a| a.len() > 1) {
            found.insert("changes an endpoint with several addresses");
        }
        let (was, is) = (owners(old, own), owners(new, own));
        if !was.is_empty() && !is.is_empty() && was != is {
            found.insert("changes the owner of an address");
        }
    }
}

fn of_ports(batch: &[Update], state: &State, found: &mut BTreeSet<&'static str>) {
    let named = |policy: &palisade_model::Policy| {
        let rules = [&policy.ingress, &policy.egress].into_iter().flatten();
        rules.flat_map(|of| &of.rules).any(|rule| {
            rule.traffic.iter().any(|term| {
                [&term.source, &term.destination].into_iter().any(|ports| {
                    let listed = ports.any_of.iter().flatten();
                    listed
                        .chain(&ports.not)
                        .any(|spec| matches!(spec, PortSpec::Named(_)))
                })
            })
        })
    };
    if state.policies.values().any(named) {
        found.insert("an active policy uses named ports");
    }
    for update in batch {
        if let Update::Upsert(Object::Endpoint(endpoint)) = update {
            let before = state.endpoints.get(&endpoint.id);
            if before.map_or(&[][..], |e| &e.ports) != &endpoint.ports[..] {
                found.insert("changes named ports of an endpoint");
            }
        }
    }
}
