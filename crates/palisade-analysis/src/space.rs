//! The ends of flows of one family, sorted into classes that no policy tells apart, and what the
//! policies of a state allow between two classes.
//!
//! What is allowed is never worked out here: ports, types and protocols are cut wherever a rule that
//! could match names one, and the oracle is asked once inside each piece. No rule can tell two flows
//! of one piece apart, so the sets are exact.

use crate::plane::{Plane, spans_between};
use crate::region::{Region, address, number};
use crate::traffic::TrafficSet;
use palisade_model::{
    Direction, Endpoint, Family, L4, Origin, PortMatch, PortSpec, Prefix, Protocol, Rule, State,
    Str, Traffic,
};
use palisade_oracle::{End, Options, Prepared, Question};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// A rule with the direction it is for.
struct Placed<'a> {
    direction: Direction,
    rule: &'a Rule,
}

/// Every rule of a state, and the lists they stand in.
pub(crate) struct Rules<'a> {
    all: Vec<Placed<'a>>,
    /// For each policy its rules in `all`, in the order of the state's policies.
    of_policies: Vec<std::ops::Range<usize>>,
    of_profiles: BTreeMap<&'a Str, std::ops::Range<usize>>,
    /// The names of ports that some rule uses.
    port_names: BTreeSet<&'a Str>,
}

impl<'a> Rules<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        let mut rules = Rules {
            all: Vec::new(),
            of_policies: Vec::new(),
            of_profiles: BTreeMap::new(),
            port_names: BTreeSet::new(),
        };
        for policy in state.policies.values() {
            let start = rules.all.len();
            for direction in Direction::BOTH {
                let list = policy.rules(direction).map_or(&[][..], |r| &r.rules);
                rules.add(direction, list);
            }
            rules.of_policies.push(start..rules.all.len());
        }
        for profile in state.profiles.values() {
            let start = rules.all.len();
            rules.add(Direction::Ingress, &profile.ingress);
            rules.add(Direction::Egress, &profile.egress);
            rules
                .of_profiles
                .insert(&profile.name, start..rules.all.len());
        }
        rules
    }

    fn add(&mut self, direction: Direction, rules: &'a [Rule]) {
        for rule in rules {
            self.all.push(Placed { direction, rule });
            for term in &rule.traffic {
                self.port_names.extend(names_in(&term.destination));
                self.port_names.extend(names_in(&term.source));
            }
        }
    }

    /// Every prefix that some rule names.
    fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let peers = self.all.iter().flat_map(|placed| {
            let rule = placed.rule;
            rule.peers.iter().chain(rule.own.as_ref())
        });
        peers.flat_map(|peer| {
            let nets = peer.nets.iter().flatten();
            nets.chain(&peer.not_nets).copied()
        })
    }
}

fn names_in(ports: &PortMatch) -> impl Iterator<Item = &Str> {
    let specs = ports.is.iter().flatten().chain(&ports.not);
    specs.filter_map(|spec| match spec {
        PortSpec::Named(name) => Some(name),
        PortSpec::Range(_) => None,
    })
}

/// Everything about an end that a policy can see.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    is_endpoint: bool,
    /// For each rule whether the end matches as peer.
    as_peer: Vec<bool>,
    /// For each rule whether the end matches as the endpoint's own address.
    as_own: Vec<bool>,
    /// For each policy whether it selects the endpoint.
    selected: Vec<bool>,
    profiles: Vec<Str>,
    /// For each name in use and each protocol with ports the number behind it.
    ports: Vec<Option<u16>>,
}

/// Ends that no policy tells apart.
struct Class<'a> {
    signature: Signature,
    /// One of them, for all.
    end: End,
    endpoint: Option<&'a Endpoint>,
    /// How many workload addresses are in it.
    members: usize,
}

type DirectionKey = (usize, Direction, Vec<usize>, Vec<Option<u16>>);

/// The classes of one family, and what is allowed between them.
pub(crate) struct Space<'a> {
    family: Family,
    prepared: Rc<Prepared<'a>>,
    rules: Rc<Rules<'a>>,
    classes: Vec<Class<'a>>,
    by_signature: BTreeMap<Signature, usize>,
    outside: Vec<(Region, usize)>,
    held: Region,
    directions: RefCell<BTreeMap<DirectionKey, Rc<TrafficSet>>>,
    pairs: RefCell<BTreeMap<(usize, usize), Rc<TrafficSet>>>,
}

impl<'a> Space<'a> {
    /// The space of a state; the outside is every address that no endpoint of `held` has.
    pub(crate) fn new(
        family: Family,
        prepared: Rc<Prepared<'a>>,
        rules: Rc<Rules<'a>>,
        held: &[IpAddr],
    ) -> Self {
        let of_family = held.iter().filter(|a| Family::of(**a) == family);
        let held = of_family.map(|a| (number(*a), number(*a))).collect();
        let mut space = Space {
            family,
            prepared,
            rules,
            classes: Vec::new(),
            by_signature: BTreeMap::new(),
            outside: Vec::new(),
            held: Region::of_ranges(family, held),
            directions: RefCell::default(),
            pairs: RefCell::default(),
        };
        space.outside = space.outside_classes();
        space
    }

    /// The addresses that workloads hold.
    pub(crate) fn held(&self) -> &Region {
        &self.held
    }

    /// Every address that no workload holds, by class.
    pub(crate) fn outside(&self) -> &[(Region, usize)] {
        &self.outside
    }

    /// The class of a workload at one of its addresses, or of one whose address is unknown.
    pub(crate) fn add_workload(&mut self, end: End) -> usize {
        let class = self.class_of(end);
        self.classes[class].members += 1;
        class
    }

    fn class_of(&mut self, end: End) -> usize {
        let signature = self.signature(&end);
        let next = self.classes.len();
        let class = *self.by_signature.entry(signature.clone()).or_insert(next);
        if class == next {
            self.classes.push(Class {
                endpoint: self.prepared.endpoint_at(&end),
                signature,
                end,
                members: 0,
            });
        }
        class
    }

    fn signature(&self, end: &End) -> Signature {
        let prepared = &self.prepared;
        let endpoint = prepared.endpoint_at(end);
        let state = prepared.state();
        let as_peer = self.rules.all.iter().map(|placed| {
            let mut peers = placed.rule.peers.iter();
            peers.any(|peer| prepared.peer_matches(peer, end))
        });
        let as_own = self.rules.all.iter().map(|placed| {
            let own = placed.rule.own.as_ref();
            own.is_none_or(|own| prepared.peer_matches(own, end))
        });
        let policies = state.policies.values();
        let selected = policies.map(|p| endpoint.is_some_and(|e| prepared.selects(p, e)));
        let names = self.rules.port_names.iter();
        let ports = names.flat_map(|name| {
            Protocol::WITH_PORTS.map(|p| endpoint.and_then(|e| e.named_port(name, p)))
        });
        Signature {
            is_endpoint: endpoint.is_some(),
            as_peer: as_peer.collect(),
            as_own: as_own.collect(),
            selected: selected.collect(),
            profiles: endpoint.map_or_else(Vec::new, |e| e.profiles.clone()),
            ports: ports.collect(),
        }
    }

    /// Cuts the address space at every prefix that something names, leaves out what workloads hold,
    /// and joins what falls into one class.
    fn outside_classes(&mut self) -> Vec<(Region, usize)> {
        let mut cuts = BTreeSet::from([0]);
        for prefix in self.named_prefixes() {
            let (first, last) = prefix.bounds();
            cuts.insert(first);
            cuts.extend(last.checked_add(1));
        }
        let (_, end) = Prefix::all(self.family).bounds();
        let firsts: Vec<u128> = cuts.into_iter().filter(|cut| *cut <= end).collect();
        let lasts = firsts.iter().skip(1).map(|first| first - 1).chain([end]);
        let mut by_class: BTreeMap<usize, Vec<(u128, u128)>> = BTreeMap::new();
        for (first, last) in firsts.iter().copied().zip(lasts) {
            let free = Region::of_ranges(self.family, vec![(first, last)]).without(&self.held);
            if let Some((representative, _)) = free.ranges().first() {
                let end = End::Address(address(self.family, *representative));
                let class = self.class_of(end);
                by_class.entry(class).or_default().extend(free.ranges());
            }
        }
        let regions = by_class.into_iter();
        regions
            .map(|(class, ranges)| (Region::of_ranges(self.family, ranges), class))
            .collect()
    }

    /// Every prefix of the family that could tell two outside addresses apart.
    fn named_prefixes(&self) -> Vec<Prefix> {
        let state = self.prepared.state();
        let sets = state.network_sets.values().flat_map(|set| &set.nets);
        let nodes = state.nodes.values().flat_map(|node| &node.addresses);
        let hosts = self.prepared.claims().iter().filter(|(_, e)| e.host);
        let addresses = nodes.chain(hosts.map(|(address, _)| address));
        let prefixes = self.rules.prefixes().chain(sets.copied());
        prefixes
            .chain(addresses.map(|address| Prefix::host(*address)))
            .filter(|prefix| prefix.family() == self.family)
            .collect()
    }

    /// What is allowed from one class to another.
    pub(crate) fn allowed(&self, source: usize, destination: usize) -> Rc<TrafficSet> {
        let key = (source, destination);
        if let Some(known) = self.pairs.borrow().get(&key) {
            return known.clone();
        }
        let egress = self.direction(source, destination, Direction::Egress);
        let ingress = self.direction(source, destination, Direction::Ingress);
        let both = if egress == ingress || ingress.is_all() {
            egress
        } else if egress.is_all() {
            ingress
        } else {
            Rc::new(egress.and(&ingress))
        };
        self.pairs.borrow_mut().insert(key, both.clone());
        both
    }

    fn direction(&self, source: usize, destination: usize, direction: Direction) -> Rc<TrafficSet> {
        let (subject, peer) = match direction {
            Direction::Egress => (source, destination),
            Direction::Ingress => (destination, source),
        };
        let relevant = self.relevant(subject, peer, direction);
        let peer_ports = self.classes[peer].signature.ports.clone();
        let key = (subject, direction, relevant, peer_ports);
        if let Some(known) = self.directions.borrow().get(&key) {
            return known.clone();
        }
        let set = Rc::new(self.asked(source, destination, direction, &key.2));
        self.directions.borrow_mut().insert(key, set.clone());
        set
    }

    /// The rules of a direction that can match between these two, whatever the traffic.
    fn relevant(&self, subject: usize, peer: usize, direction: Direction) -> Vec<usize> {
        let (subject, peer) = (
            &self.classes[subject].signature,
            &self.classes[peer].signature,
        );
        let of_policies = self.rules.of_policies.iter().zip(&subject.selected);
        let of_policies = of_policies.filter(|(_, selected)| **selected);
        let profiles = subject.profiles.iter();
        let of_profiles = profiles.filter_map(|name| self.rules.of_profiles.get(name));
        of_policies
            .map(|(range, _)| range)
            .chain(of_profiles)
            .flat_map(Clone::clone)
            .filter(|rule| self.rules.all[*rule].direction == direction)
            .filter(|rule| subject.as_own[*rule] && peer.as_peer[*rule])
            .collect()
    }

    /// What one direction allows between two classes, by asking the oracle.
    fn asked(
        &self,
        source: usize,
        destination: usize,
        direction: Direction,
        relevant: &[usize],
    ) -> TrafficSet {
        let (from, to) = (&self.classes[source], &self.classes[destination]);
        if [from, to][usize::from(direction == Direction::Ingress)]
            .endpoint
            .is_none()
        {
            return TrafficSet::all();
        }
        let terms: Vec<&Traffic> = relevant
            .iter()
            .flat_map(|rule| &self.rules.all[*rule].rule.traffic)
            .collect();
        let question = RefCell::new(Question {
            source: from.end.clone(),
            destination: to.end.clone(),
            family: self.family,
            protocol: Protocol::TCP,
            l4: L4::None,
            origin: Origin::Network,
        });
        let allows = |protocol: Protocol, l4: L4| {
            let mut question = question.borrow_mut();
            (question.protocol, question.l4) = (protocol, l4);
            self.prepared
                .allows(&question, direction, &Options::default())
        };
        let mut named = BTreeSet::new();
        for term in &terms {
            named.extend(term.protocol);
            named.extend(term.not_protocol);
        }
        let unnamed = (0..=u8::MAX)
            .map(Protocol)
            .find(|p| !p.has_ports() && !p.is_icmp() && !named.contains(p));
        let rest = unnamed.is_some_and(|protocol| allows(protocol, L4::None));
        TrafficSet::of_parts(
            |protocol| {
                let sources = port_cuts(&terms, |t| &t.source, from.endpoint, protocol);
                let ports = port_cuts(&terms, |t| &t.destination, to.endpoint, protocol);
                Plane::of_cells(
                    &spans_between(&sources, u16::MAX),
                    &spans_between(&ports, u16::MAX),
                    |source, destination| {
                        allows(
                            protocol,
                            L4::Ports {
                                source,
                                destination,
                            },
                        )
                    },
                )
            },
            |protocol| {
                let (kinds, codes) = icmp_cuts(&terms);
                let byte = |n: u16| u8::try_from(n).unwrap_or(u8::MAX);
                let max = u16::from(u8::MAX);
                Plane::of_cells(
                    &spans_between(&kinds, max),
                    &spans_between(&codes, max),
                    |kind, code| {
                        let (kind, code) = (byte(kind), byte(code));
                        allows(protocol, L4::Icmp { kind, code })
                    },
                )
            },
            |protocol| match named.contains(&protocol) {
                true => allows(protocol, L4::None),
                false => rest,
            },
        )
    }

    /// Whether two classes of workloads are treated alike in everything: swapping a member of one
    /// with a member of the other changes nothing that is allowed.
    pub(crate) fn alike(&self, a: usize, b: usize) -> bool {
        let across = self.allowed(a, b);
        let within =
            |class: usize| self.classes[class].members < 2 || self.allowed(class, class) == across;
        let others = (0..self.classes.len()).filter(|c| *c != a && *c != b);
        let same = |c: usize| {
            self.allowed(a, c) == self.allowed(b, c) && self.allowed(c, a) == self.allowed(c, b)
        };
        let mut others = others.filter(|c| self.seen(*c));
        a == b || (across == self.allowed(b, a) && within(a) && within(b) && others.all(same))
    }

    /// Whether a class has any member that is listed.
    fn seen(&self, class: usize) -> bool {
        self.classes[class].members > 0 || self.outside.iter().any(|(_, c)| *c == class)
    }
}

/// Where the port tests of these terms change what they say, for one protocol at one end.
fn port_cuts(
    terms: &[&Traffic],
    end: impl Fn(&Traffic) -> &PortMatch,
    at: Option<&Endpoint>,
    protocol: Protocol,
) -> BTreeSet<u32> {
    let mut cuts = BTreeSet::new();
    for term in terms {
        let test = end(term);
        for spec in test.is.iter().flatten().chain(&test.not) {
            let range = match spec {
                PortSpec::Range(range) => Some((range.first, range.last)),
                PortSpec::Named(name) => at
                    .and_then(|endpoint| endpoint.named_port(name, protocol))
                    .map(|port| (port, port)),
            };
            if let Some((first, last)) = range {
                cuts.extend([u32::from(first), u32::from(last) + 1]);
            }
        }
    }
    cuts
}

/// Where the ICMP tests of these terms change what they say: types, codes.
fn icmp_cuts(terms: &[&Traffic]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut kinds, mut codes) = (BTreeSet::new(), BTreeSet::new());
    for message in terms
        .iter()
        .flat_map(|term| [term.icmp, term.not_icmp])
        .flatten()
    {
        let kind = u32::from(message.kind);
        kinds.extend([kind, kind + 1]);
        if let Some(code) = message.code.map(u32::from) {
            codes.extend([code, code + 1]);
        }
    }
    (kinds, codes)
}
