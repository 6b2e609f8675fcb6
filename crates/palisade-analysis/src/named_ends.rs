//! Names as ends of connections: what policy allows to the addresses of a name, whether any is known or not.
//!
//! For each name and pattern that a policy selects there is one address in both families that stands for its addresses:
//! it has the name, and the fewest other networks contain it. The listing evaluates it as any address, and reports it by
//! name where more or less is allowed to it than to such an address without a name.
//!
//! Promises: where no policy selects by name, a listing is that of the state alone. Never: lists an address that it
//! made, or changes what is listed of known addresses.

use crate::connection_end::NameAddresses;
use crate::pair_evaluator::TrafficSetInterner;
use crate::reachability::Reachability;
use crate::state_view::StateView;
use palisade_model::{
    DomainName, DomainPattern, Family, LabelKey, NetworkSet, NetworkSetKind, NumberRange, Peer,
    Prefix, RangeSet, Selector, State, address_from_number, reserved,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// The labels that stand for a `*`; the one that fewest other patterns match is used.
const FILLERS: [&str; 4] = ["any", "q0", "0", "z-7-z"];

/// Networks that are nobody's on the outside.
const UNUSUAL: [&str; 6] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "224.0.0.0/3",
    "::/8",
    "fe80::/10",
    "ff00::/8",
];

/// A name or pattern that a policy selects.
struct NamedEnd {
    pattern: DomainPattern,
    report: NameAddresses,
    /// A name that it matches.
    example: DomainName,
    /// The address that stands for its addresses, by family.
    addresses: [Option<u128>; 2],
}

/// The names that the policies of some states select.
#[derive(Default)]
pub(crate) struct NamedEnds {
    ends: Vec<NamedEnd>,
    /// The addresses of all of them, by family.
    addresses: AddressSets,
    /// By family, an address in the same networks that has no name.
    unnamed: [Option<u128>; 2],
}

impl NamedEnds {
    /// Those of the policies of all these states; the last one is that whose known addresses are counted.
    fn new(states: &[&State]) -> Self {
        let mut patterns = BTreeSet::new();
        for peer in states.iter().flat_map(|state| peers(state)) {
            let selectors = peer.selector.iter().chain(&peer.not_selector);
            selectors.for_each(|selector| collect_patterns(selector, &mut patterns));
        }
        if patterns.is_empty() {
            return NamedEnds::default();
        }
        let count = patterns.len() as u128 + 1;
        let first = Family::BOTH.map(|family| find_free_addresses(family, states, count));
        let address = |at: u128| first.map(|first| first.map(|first| first + at));
        let examples = patterns.iter().map(|pattern| {
            let example = example_of(pattern, &patterns)?;
            Some((pattern, example))
        });
        let ends = examples.flatten().zip(1..).map(|((pattern, example), at)| {
            let known = states.last().map(|state| known_addresses(state, pattern));
            NamedEnd {
                pattern: pattern.clone(),
                report: NameAddresses {
                    name: pattern.to_string(),
                    known: known.unwrap_or_default(),
                },
                example,
                addresses: address(at),
            }
        });
        let ends: Vec<NamedEnd> = ends.collect();
        let addresses = Family::BOTH.map(|family| {
            let addresses = ends.iter().filter_map(|end| end.addresses[family as usize]);
            addresses.map(NumberRange::single).collect()
        });
        NamedEnds {
            ends,
            addresses,
            unnamed: address(0),
        }
    }

    /// Those of the policies of some states, and what each state allows to them and to all else.
    pub(crate) fn with_reachability<const N: usize>(
        views: [StateView<'_>; N],
        sets: &Rc<TrafficSetInterner>,
    ) -> (NamedEnds, [Reachability; N]) {
        let names = NamedEnds::new(&views.map(|view| view.state));
        let reachability = views.map(|view| {
            let state = &names.add_to(view.state);
            Reachability::new(StateView { state, ..view }, sets)
        });
        (names, reachability)
    }

    /// The state, with the addresses that stand for names.
    fn add_to<'s>(&self, state: &'s State) -> Cow<'s, State> {
        if self.ends.is_empty() {
            return Cow::Borrowed(state);
        }
        let mut named = state.clone();
        for end in &self.ends {
            add_addresses(&mut named, &end.example, end.addresses);
        }
        Cow::Owned(named)
    }

    /// Takes the names out of the addresses of a row: those whose addresses are among these, where addresses without a name
    /// are not. Each with the families in which it is so. Names of which a pattern of the same row has all are left out.
    pub(crate) fn take_from(&self, regions: &mut AddressSets) -> Vec<(NameAddresses, Vec<Family>)> {
        let mut found: Vec<(&NamedEnd, Vec<Family>)> = Vec::new();
        let is_general = Family::BOTH.map(|family| {
            let unnamed = self.unnamed[family as usize];
            unnamed.is_some_and(|unnamed| regions[family as usize].contains(unnamed))
        });
        for end in &self.ends {
            let families = Family::BOTH.into_iter().filter(|family| {
                let address = end.addresses[*family as usize];
                let is_in = |address| regions[*family as usize].contains(address);
                !is_general[*family as usize] && address.is_some_and(is_in)
            });
            let families: Vec<Family> = families.collect();
            if !families.is_empty() {
                found.push((end, families));
            }
        }
        for ((region, own), is_general) in regions.iter_mut().zip(&self.addresses).zip(is_general) {
            *region = if is_general {
                region.union(own)
            } else {
                region.subtract(own)
            };
        }
        let is_pattern = |(end, _): &&(&NamedEnd, Vec<Family>)| end.pattern.only_name().is_none();
        let patterns: Vec<_> = found.iter().filter(is_pattern).collect();
        let is_covered = |(end, families): &(&NamedEnd, Vec<Family>)| {
            let mut others = patterns.iter();
            others.any(|(other, of_other)| of_other == families && other.covers(end))
        };
        let listed = found.iter().filter(|row| !is_covered(row));
        listed
            .map(|(end, families)| (end.report.clone(), families.clone()))
            .collect()
    }
}

impl NamedEnd {
    /// Whether its pattern has all names of the other's, and not the other way round.
    fn covers(&self, other: &NamedEnd) -> bool {
        self.pattern.matches(other.example.as_str())
            && !other.pattern.matches(self.example.as_str())
    }
}

/// The state; if it knows no address of the name, with one in each family that stands for its addresses.
pub(crate) fn with_name<'s>(state: &'s State, name: &DomainName) -> Cow<'s, State> {
    let known = state.network_sets.get(&name.network_set_id());
    if known.is_some_and(|set| !set.nets.is_empty()) {
        return Cow::Borrowed(state);
    }
    let addresses = Family::BOTH.map(|family| find_free_addresses(family, &[state], 1));
    let mut named = state.clone();
    add_addresses(&mut named, name, addresses);
    Cow::Owned(named)
}

/// Gives a name addresses, by family.
fn add_addresses(state: &mut State, name: &DomainName, addresses: [Option<u128>; 2]) {
    let id = name.network_set_id();
    let set = state.network_sets.entry(id.clone());
    let set = set.or_insert_with(|| NetworkSet {
        id,
        kind: NetworkSetKind::DomainName,
        labels: Default::default(),
        nets: Vec::new(),
    });
    let own = Family::BOTH.into_iter().zip(addresses);
    let own = own
        .filter_map(|(family, address)| Some(Prefix::host(address_from_number(family, address?))));
    set.nets.extend(own);
}

/// Addresses of both families.
type AddressSets = [RangeSet<u128>; 2];

fn peers(state: &State) -> impl Iterator<Item = &Peer> {
    let policies = state.policies.values();
    let lists = policies.flat_map(|policy| policy.ingress.iter().chain(&policy.egress));
    let rules = lists.flat_map(|list| &list.rules);
    rules.flat_map(|rule| rule.peers.iter().chain(&rule.local))
}

/// Collects the names and patterns that a selector tests.
fn collect_patterns(selector: &Selector, found: &mut BTreeSet<DomainPattern>) {
    let is_domain = |key: &LabelKey| *key == LabelKey::reserved(reserved::DOMAIN);
    match selector {
        Selector::In(key, values) if is_domain(key) => {
            found.extend(
                values
                    .iter()
                    .filter_map(|name| DomainPattern::glob(name).ok()),
            );
        }
        Selector::Domain(key, pattern) if is_domain(key) => {
            found.insert(pattern.clone());
        }
        Selector::Has(key) if is_domain(key) => {
            found.insert(DomainPattern::Any);
        }
        Selector::Not(inner) => collect_patterns(inner, found),
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().for_each(|part| collect_patterns(part, found));
        }
        _ => {}
    }
}

/// A name that a pattern matches, and as few of the others as possible.
fn example_of(pattern: &DomainPattern, all: &BTreeSet<DomainPattern>) -> Option<DomainName> {
    if let Some(name) = pattern.only_name() {
        return name.parse().ok();
    }
    let examples = FILLERS.iter().filter_map(|filler| {
        let text = match pattern {
            DomainPattern::Any => format!("{filler}.invalid"),
            DomainPattern::Glob(glob) => glob.replace('*', filler),
            DomainPattern::Below(glob) => format!("{filler}.{}", glob.replace('*', filler)),
        };
        let name: DomainName = text.parse().ok()?;
        pattern.matches(name.as_str()).then_some(name)
    });
    examples.min_by_key(|name| {
        let matching = all.iter().filter(|other| other.matches(name.as_str()));
        matching.count()
    })
}

/// The number of addresses of the known names that a pattern matches.
fn known_addresses(state: &State, pattern: &DomainPattern) -> usize {
    let only: Option<DomainName> = pattern.only_name().and_then(|name| name.parse().ok());
    if let Some(name) = only {
        let set = state.network_sets.get(&name.network_set_id());
        return set.map_or(0, |set| set.nets.len());
    }
    let sets = state.network_sets.values();
    let names =
        sets.filter(|set| set.kind == NetworkSetKind::DomainName && pattern.matches(&set.id.name));
    let addresses: BTreeSet<&Prefix> = names.flat_map(|set| &set.nets).collect();
    addresses.len()
}

/// Consecutive addresses of a family that no workload holds, and that are in as few networks of these states as
/// possible, and in the same: they stand for addresses that are not known. `None` if there are not as many.
#[must_use]
pub fn free_addresses(family: Family, states: &[&State], count: u32) -> Option<Vec<IpAddr>> {
    let first = find_free_addresses(family, states, u128::from(count))?;
    let numbers = (0..u128::from(count)).map(|at| first + at);
    Some(numbers.map(|at| address_from_number(family, at)).collect())
}

/// The first of as many consecutive addresses that no workload holds, and that are in as few networks of policies, network
/// sets and nodes as possible, and in the same.
fn find_free_addresses(family: Family, states: &[&State], count: u128) -> Option<u128> {
    let mut networks: BTreeSet<Prefix> = BTreeSet::new();
    for state in states {
        let of_peers = peers(state);
        networks.extend(of_peers.flat_map(|peer| peer.nets.iter().flatten().chain(&peer.not_nets)));
        networks.extend(state.network_sets.values().flat_map(|set| &set.nets));
        let nodes = state.nodes.values().flat_map(|node| &node.addresses);
        let endpoints = state.endpoints.values();
        let endpoints = endpoints.flat_map(|endpoint| &endpoint.addresses);
        networks.extend(nodes.chain(endpoints).map(|address| Prefix::host(*address)));
    }
    networks.extend(
        UNUSUAL
            .iter()
            .filter_map(|network| network.parse::<Prefix>().ok()),
    );
    let (start, end) = Prefix::all(family).bounds();
    // How many networks more or less contain the addresses from each number on.
    let mut steps = BTreeMap::from([(start, 0_i64)]);
    for network in networks.iter().filter(|network| network.family() == family) {
        let (first, last) = network.bounds();
        *steps.entry(first).or_default() += 1;
        if let Some(next) = last.checked_add(1).filter(|next| *next <= end) {
            *steps.entry(next).or_default() -= 1;
        }
    }
    let ends = steps.keys().skip(1).map(|next| next - 1).chain([end]);
    let mut depth = 0;
    let gaps = steps.iter().zip(ends).map(|((first, step), last)| {
        depth += step;
        (depth, *first, last)
    });
    let gaps = gaps.filter(|(_, first, last)| last - first >= count);
    let (_, first, last) =
        gaps.min_by_key(|(depth, first, last)| (*depth, u128::MAX - (last - first)))?;
    // Not at an end of the gap, where the addresses are that others choose.
    Some(first + (last - first - count) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> DomainPattern {
        DomainPattern::glob(text).unwrap()
    }

    #[test]
    fn an_example_is_of_its_pattern_and_of_no_other() {
        let all = [
            glob("api.example.com"),
            glob("*.example.com"),
            glob("any.example.com"),
            DomainPattern::below("example.com").unwrap(),
            DomainPattern::Any,
        ];
        let set: BTreeSet<DomainPattern> = all.iter().cloned().collect();
        let examples = all.map(|pattern| example_of(&pattern, &set).unwrap().to_string());
        let wanted = [
            "api.example.com",
            "q0.example.com",
            "any.example.com",
            "q0.example.com",
            "any.invalid",
        ];
        assert_eq!(examples, wanted);
    }

    #[test]
    fn free_addresses_are_in_the_fewest_networks() {
        let set = |name: &str, nets: &[&str]| {
            let name: DomainName = name.parse().unwrap();
            NetworkSet {
                id: name.network_set_id(),
                kind: NetworkSetKind::DomainName,
                labels: Default::default(),
                nets: nets.iter().map(|net| net.parse().unwrap()).collect(),
            }
        };
        let mut state = State::default();
        for set in [set("a", &["0.0.0.0/1", "::/0"]), set("b", &["128.0.0.0/2"])] {
            state.network_sets.insert(set.id.clone(), set);
        }
        let first = Family::BOTH.map(|family| find_free_addresses(family, &[&state], 3).unwrap());
        let addresses =
            Family::BOTH.map(|family| address_from_number(family, first[family as usize]));
        // 192.0.0.0 to 223.255.255.255 are in none.
        let wanted: Prefix = "192.0.0.0/3".parse().unwrap();
        assert!(wanted.contains(addresses[0]), "{addresses:?}");
        let full = |count| find_free_addresses(Family::V4, &[&state], count);
        assert_eq!(full(u128::from(u32::MAX) + 5), None);
    }
}
