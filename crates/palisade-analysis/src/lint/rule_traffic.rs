//! The traffic of rules as sets, between the ends of a pair of classes.
//!
//! Promises: a set contains a packet if and only if one of the rule's traffic terms matches it, and of a rule that
//! decides DNS queries by name if they can be read. Each set is computed once for all pairs whose ends resolve port
//! names alike.

use super::classified_state::{ClassPair, ClassifiedState};
use crate::pair_set::PairSet;
use crate::traffic::TrafficSet;
use palisade_model::{
    Direction, Encapsulation, Endpoint, Family, IcmpMatch, NumberRange, PortMatch, PortRange,
    PortSpec, Protocol, RangeSet, TrafficMatch,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of a rule's action and terms, the family, and the named ports that the terms use at each end.
type TrafficKey = (u32, Family, [Vec<(u32, u8, u16)>; 2]);

/// The traffic of rules, computed once.
#[derive(Default)]
pub(super) struct RuleTraffic {
    sets: RefCell<BTreeMap<TrafficKey, Rc<TrafficSet>>>,
}

impl RuleTraffic {
    /// The traffic of a rule between the ends of a pair.
    pub(super) fn of(
        &self,
        classified: &ClassifiedState<'_>,
        pair: &ClassPair<'_>,
        rule: u32,
    ) -> Rc<TrafficSet> {
        let rule = &classified.rules.all[rule as usize];
        let decides_queries = rule.rule.dns_names.is_some();
        if decides_queries && pair.direction == Direction::Ingress {
            return Rc::new(TrafficSet::none());
        }
        let (from, to) = match pair.direction {
            Direction::Egress => (pair.subject, pair.peer),
            Direction::Ingress => (pair.peer, pair.subject),
        };
        let classes = &classified.ends[pair.family as usize].classes;
        let ends = [from, to].map(|class| &classes[class as usize]);
        let ports = [0, 1].map(|end| {
            if rule.names_ports[end] {
                ends[end].signature.ports.clone()
            } else {
                Vec::new()
            }
        });
        let key = (rule.effect, pair.family, ports);
        if let Some(known) = self.sets.borrow().get(&key) {
            return Rc::clone(known);
        }
        let endpoints = ends.map(|class| class.endpoint);
        let set = traffic_of(&rule.rule.traffic, pair.family, endpoints);
        let set = Rc::new(if decides_queries {
            set.intersect(&readable_traffic())
        } else {
            set
        });
        self.sets.borrow_mut().insert(key, Rc::clone(&set));
        set
    }
}

/// What DNS queries can be read of: TCP and UDP without encapsulated packets.
fn readable_traffic() -> TrafficSet {
    let encapsulations = Encapsulation::ALL
        .into_iter()
        .flat_map(Encapsulation::ports);
    let encapsulations = encapsulations
        .map(|port| PortRange::single(*port))
        .collect();
    let every = RangeSet::from(PortRange::ALL);
    TrafficSet::from_parts(
        |protocol| match protocol {
            Protocol::TCP => PairSet::from_product(&every, &every),
            Protocol::UDP => PairSet::from_product(&every, &every.subtract(&encapsulations)),
            _ => PairSet::empty(),
        },
        |_| PairSet::empty(),
        |_| false,
    )
}

/// The packets of a family that one of the terms matches. `ends` are source and destination.
fn traffic_of(terms: &[TrafficMatch], family: Family, ends: [Option<&Endpoint>; 2]) -> TrafficSet {
    let terms: Vec<&TrafficMatch> = terms
        .iter()
        .filter(|term| term.family.is_none_or(|f| f == family))
        .collect();
    let of_protocol = |protocol: Protocol| {
        let is_of_protocol = move |term: &&&TrafficMatch| {
            term.protocol.is_none_or(|p| p == protocol) && !term.not_protocols.contains(&protocol)
        };
        terms.iter().filter(is_of_protocol).copied()
    };
    TrafficSet::from_parts(
        |protocol| {
            // A list of thousands of ports has the same source test in each term.
            let mut by_sources: BTreeMap<RangeSet<u16>, Vec<NumberRange<u16>>> = BTreeMap::new();
            for term in of_protocol(protocol).filter(|term| term.icmp.is_none()) {
                let sources = matching_ports(&term.source, ends[0], protocol);
                let ports = matching_ports(&term.destination, ends[1], protocol);
                let list = by_sources.entry(sources).or_default();
                list.extend(ports.ranges());
            }
            let parts = by_sources.into_iter().map(|(sources, ports)| {
                PairSet::from_product(&sources, &ports.into_iter().collect())
            });
            parts.fold(PairSet::empty(), |all, part| part.union(&all))
        },
        |protocol| {
            let messages = of_protocol(protocol)
                .filter(|term| term.source.is_any() && term.destination.is_any())
                .map(|term| {
                    let all = || PairSet::full(u8::MAX.into(), u8::MAX.into());
                    let messages_matched = term.icmp.map_or_else(all, messages);
                    term.not_icmp.map_or(messages_matched.clone(), |not| {
                        messages_matched.subtract(&messages(not))
                    })
                });
            messages.fold(PairSet::empty(), |all, part| part.union(&all))
        },
        |protocol| {
            of_protocol(protocol).any(|term| {
                term.icmp.is_none() && term.source.is_any() && term.destination.is_any()
            })
        },
    )
}

/// The ports that a test matches at an end. A name that does not resolve there is no port.
fn matching_ports(test: &PortMatch, at: Option<&Endpoint>, protocol: Protocol) -> RangeSet<u16> {
    let range = |spec: &PortSpec| match spec {
        PortSpec::Range(range) => Some(*range),
        PortSpec::Named(name) => {
            let port = at.and_then(|endpoint| endpoint.named_port(name, protocol));
            port.map(NumberRange::single)
        }
    };
    let listed: RangeSet<u16> = match &test.any_of {
        None => PortRange::ALL.into(),
        Some(specs) => specs.iter().filter_map(range).collect(),
    };
    if test.not.is_empty() {
        listed
    } else {
        listed.subtract(&test.not.iter().filter_map(range).collect())
    }
}

/// The ICMP messages that a test matches.
fn messages(test: IcmpMatch) -> PairSet {
    let codes = match test.code {
        Some(code) => NumberRange::single(u16::from(code)),
        None => NumberRange {
            first: 0,
            last: u8::MAX.into(),
        },
    };
    PairSet::from_product(
        &NumberRange::single(u16::from(test.kind)).into(),
        &codes.into(),
    )
}
