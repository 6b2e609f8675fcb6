//! What the tables should hold for the objects of now, computed whole.

use crate::faults::{Fault, on};
use crate::numbers::Numbers;
use crate::program::{Sequence, Step, compile};
use crate::traffic::{End, named_ports};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Action, Direction, Endpoint, EndpointId, Family, NetworkSet, Node, Order, Peer, Policy,
    PolicyId, PortMatch, Prefix, Profile, Protocol, Rule, RuleOrigin, Selector, State, Str,
    TierDefault, Traffic,
};
use palisade_tables::{
    ClassId, Credit, IdentityId, Point, PolicySet, Program, RuleId, SetId, Tables, Verdict,
};

/// What makes an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdentityKey {
    pub(crate) selectors: BTreeSet<u32>,
    pub(crate) net: Option<Prefix>,
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
}

/// What makes a policy set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    pub(crate) direction: Direction,
    pub(crate) policies: Vec<PolicyId>,
    pub(crate) profiles: Vec<Str>,
    /// For each rule that tests the own address, whether the test holds.
    pub(crate) own: Vec<bool>,
    /// The own named ports that a rule asks for.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
    /// The family, where a rule asks for it.
    pub(crate) family: Option<Family>,
}

/// Everything numbered.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) selectors: Numbers<Selector>,
    pub(crate) identities: Numbers<IdentityKey>,
    pub(crate) sets: Numbers<SetKey>,
    pub(crate) rules: Numbers<Arc<Credit>>,
    pub(crate) programs: Numbers<Arc<Program>>,
}

impl Default for Registry {
    fn default() -> Self {
        Registry {
            selectors: Numbers::from(0),
            identities: Numbers::from(1),
            sets: Numbers::from(0),
            rules: Numbers::from(0),
            programs: Numbers::from(0),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    Endpoint(&'a Endpoint),
    NetworkSet(&'a NetworkSet),
    Node(&'a Node),
}

impl Holder<'_> {
    fn matches(self, state: &State, selector: &Selector) -> bool {
        match self {
            Holder::Endpoint(e) => selector.matches(&state.endpoint_labels(e)),
            Holder::NetworkSet(s) => selector.matches(&state.network_set_labels(s)),
            Holder::Node(n) => selector.matches(&state.node_labels(n)),
        }
    }
}

/// Where a tier stands: those that do not exist come last, by name.
type TierPlace = (bool, Order, Str);

fn tier_place(state: &State, name: &Str) -> (TierPlace, TierDefault) {
    match state.tier(name) {
        Some(tier) => ((false, tier.order, tier.name), tier.default),
        None => ((true, Order::Last, name.clone()), TierDefault::Deny),
    }
}

/// Every policy in the order in which they decide.
pub(crate) fn ordered_policies(state: &State) -> Vec<&Policy> {
    let mut policies: Vec<(TierPlace, &Policy)> = state
        .policies
        .values()
        .map(|p| (tier_place(state, &p.tier).0, p))
        .collect();
    policies.sort_by(|(a, p), (b, q)| {
        let tiers = if on(Fault::TierOrderReversed) {
            b.cmp(a)
        } else {
            a.cmp(b)
        };
        let places = if on(Fault::PolicyOrderIgnored) {
            q.id.cmp(&p.id)
        } else {
            (p.precedence, &p.id).cmp(&(q.precedence, &q.id))
        };
        tiers.then(places)
    });
    policies.into_iter().map(|(_, policy)| policy).collect()
}

/// Who holds the address among endpoints.
pub(crate) fn owners(state: &State) -> BTreeMap<IpAddr, &Endpoint> {
    let mut owners: BTreeMap<IpAddr, &Endpoint> = BTreeMap::new();
    let strength = |e: &Endpoint| {
        let age = if on(Fault::OldestClaimWins) {
            u64::MAX - e.created
        } else {
            e.created
        };
        (e.interface.is_some(), age)
    };
    for endpoint in state.endpoints.values().filter(|e| !e.template) {
        let known = if on(Fault::SecondAddressIgnored) {
            1
        } else {
            usize::MAX
        };
        for address in endpoint.addresses.iter().take(known) {
            let holder = owners.entry(*address).or_insert(endpoint);
            if (strength(endpoint), &endpoint.id) > (strength(holder), &holder.id) {
                *holder = endpoint;
            }
        }
    }
    owners
}

fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.interface.is_some() && !endpoint.template
}

/// A resolved peer.
struct PeerTest<'a> {
    selector: Option<u32>,
    not_selector: Option<u32>,
    peer: &'a Peer,
}

impl PeerTest<'_> {
    fn matches(&self, who: &IdentityKey) -> bool {
        let within = |nets: &[Prefix]| {
            who.net
                .is_some_and(|at| nets.iter().any(|net| net.covers(at)))
        };
        self.selector.is_none_or(|s| who.selectors.contains(&s))
            && (on(Fault::NotSelectorIgnored)
                || self
                    .not_selector
                    .is_none_or(|s| !who.selectors.contains(&s)))
            && self.peer.nets.as_ref().is_none_or(|nets| within(nets))
            && (on(Fault::NotNetsIgnored) || !within(&self.peer.not_nets))
    }
}

/// A rule of a set, its own-address test resolved.
struct SetRule<'a> {
    peers: Vec<PeerTest<'a>>,
    traffic: Vec<&'a Traffic>,
}

/// The tables that the state asks for, and who holds which address.
pub(crate) fn tables(state: &State, judge_host_traffic: bool, registry: &mut Registry) -> Tables {
    let mut graph = Graph::new(state, registry);
    let mut tables = Tables {
        judge_host_traffic,
        ..Tables::default()
    };
    graph.points(&mut tables);
    graph.addresses(&mut tables);
    graph.classes(&mut tables);
    tables
}

struct Graph<'a> {
    state: &'a State,
    registry: &'a mut Registry,
    owners: BTreeMap<IpAddr, &'a Endpoint>,
    nodes: BTreeMap<IpAddr, Vec<&'a Node>>,
    /// Selected local endpoints' policies, in order.
    applicable: BTreeMap<&'a EndpointId, Vec<&'a Policy>>,
    identities: BTreeMap<u32, IdentityKey>,
    sets: BTreeMap<u32, SetKey>,
}

impl<'a> Graph<'a> {
    fn new(state: &'a State, registry: &'a mut Registry) -> Self {
        let mut nodes: BTreeMap<IpAddr, Vec<&Node>> = BTreeMap::new();
        for node in state.nodes.values().filter(|_| !on(Fault::NodeIgnored)) {
            for address in &node.addresses {
                nodes.entry(*address).or_default().push(node);
            }
        }
        let policies = ordered_policies(state);
        let applicable = state
            .endpoints
            .values()
            .filter(|e| is_local(e))
            .map(|e| {
                let labels = state.endpoint_labels(e);
                let of = policies
                    .iter()
                    .copied()
                    .filter(|p| p.subject.matches(&labels));
                (&e.id, of.collect())
            })
            .collect();
        Graph {
            state,
            owners: owners(state),
            registry,
            nodes,
            applicable,
            identities: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    fn holders(&self, address: IpAddr) -> Vec<Holder<'a>> {
        let mut holders: Vec<Holder<'a>> = Vec::new();
        holders.extend(self.owners.get(&address).map(|e| Holder::Endpoint(e)));
        let nodes = self.nodes.get(&address).into_iter().flatten();
        holders.extend(nodes.map(|n| Holder::Node(n)));
        if !on(Fault::NetworkSetIgnored) {
            let sets = self.state.network_sets.values();
            holders.extend(
                sets.filter(|s| s.nets.iter().any(|n| n.contains(address)))
                    .map(Holder::NetworkSet),
            );
        }
        holders
    }

    /// The rules of a profile, `None` where it does not exist or is the built-in one.
    fn profile_rules(&self, name: &Str, direction: Direction) -> Option<&'a [Rule]> {
        if **name == *Profile::ALLOW_ALL {
            return None;
        }
        let profile = self.state.profiles.get(name)?;
        Some(match direction {
            Direction::Ingress => &profile.ingress,
            Direction::Egress => &profile.egress,
        })
    }

    /// The rules of a point, in order.
    fn rules_of(
        &self,
        policies: &[&'a Policy],
        profiles: &[Str],
        direction: Direction,
    ) -> Vec<&'a Rule> {
        let of_policies = policies
            .iter()
            .filter_map(|p| p.rules(direction))
            .flat_map(|r| &r.rules);
        let of_profiles = profiles
            .iter()
            .filter_map(|name| self.profile_rules(name, direction))
            .flatten();
        of_policies.chain(of_profiles).collect()
    }

    fn own_matches(&self, own: &Peer, address: IpAddr, holders: &[Holder<'a>]) -> bool {
        let any = |s: &Selector| holders.iter().any(|h| h.matches(self.state, s));
        let within = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
        on(Fault::OwnAddressIgnored)
            || own.selector.as_ref().is_none_or(any)
                && !own.not_selector.as_ref().is_some_and(any)
                && own.nets.as_ref().is_none_or(|nets| within(nets))
                && !within(&own.not_nets)
    }

    fn points(&mut self, tables: &mut Tables) {
        let applicable = core::mem::take(&mut self.applicable);
        for (id, policies) in &applicable {
            let Some(endpoint) = self.state.endpoints.get(*id) else {
                continue;
            };
            let Some(interface) = &endpoint.interface else {
                continue;
            };
            tables.interfaces.insert(interface.clone());
            for address in &endpoint.addresses {
                let holders = self.holders(*address);
                for direction in Direction::BOTH {
                    let key = self.set_key(endpoint, policies, *address, &holders, direction);
                    let number = self.registry.sets.of(&key);
                    self.sets.insert(number, key);
                    let point = Point {
                        interface: interface.clone(),
                        address: *address,
                        direction,
                    };
                    // Of two endpoints on one interface the one that holds the address judges.
                    let owner = self.owners.get(address).is_some_and(|o| o.id == **id);
                    if owner || !tables.points.contains_key(&point) {
                        tables.points.insert(point, SetId(number));
                    }
                }
            }
        }
        let used: BTreeSet<u32> = tables.points.values().map(|set| set.0).collect();
        self.sets.retain(|number, _| used.contains(number));
        self.applicable = applicable;
    }

    fn set_key(
        &self,
        endpoint: &Endpoint,
        policies: &[&'a Policy],
        address: IpAddr,
        holders: &[Holder<'a>],
        direction: Direction,
    ) -> SetKey {
        let policies: Vec<&Policy> = policies
            .iter()
            .filter(|p| p.rules(direction).is_some())
            .copied()
            .collect();
        let rules = self.rules_of(&policies, &endpoint.profiles, direction);
        let mut ports = BTreeSet::new();
        let mut family = None;
        for term in rules.iter().flat_map(|r| &r.traffic) {
            named_ports(term, own_test(term, direction), &mut |name, protocol| {
                let port = endpoint.named_port(name, protocol);
                ports.extend(port.map(|port| (name.clone(), protocol, port)));
            });
            if term.family.is_some() {
                family = Some(Family::of(address));
            }
        }
        let own = rules.iter().filter_map(|r| r.own.as_ref());
        SetKey {
            direction,
            policies: policies.iter().map(|p| p.id.clone()).collect(),
            profiles: endpoint.profiles.clone(),
            own: own
                .map(|own| self.own_matches(own, address, holders))
                .collect(),
            ports: ports.into_iter().collect(),
            family,
        }
    }

    /// The rules of active policies and of the profiles of local endpoints.
    fn active_rules(&self) -> Vec<(Direction, &'a Rule)> {
        let mut policies: BTreeMap<&PolicyId, &Policy> = BTreeMap::new();
        let mut profiles: BTreeSet<&Str> = BTreeSet::new();
        for (id, of) in &self.applicable {
            policies.extend(of.iter().map(|p| (&p.id, *p)));
            if let Some(endpoint) = self.state.endpoints.get(*id) {
                profiles.extend(&endpoint.profiles);
            }
        }
        let mut rules = Vec::new();
        for direction in Direction::BOTH {
            for policy in policies.values() {
                let of = policy.rules(direction).into_iter().flat_map(|r| &r.rules);
                rules.extend(of.map(|rule| (direction, rule)));
            }
            for name in &profiles {
                let of = self.profile_rules(name, direction).into_iter().flatten();
                rules.extend(of.map(|rule| (direction, rule)));
            }
        }
        rules
    }

    fn addresses(&mut self, tables: &mut Tables) {
        let rules = self.active_rules();
        let mut selectors: BTreeMap<&Selector, u32> = BTreeMap::new();
        let mut nets: BTreeSet<Prefix> = BTreeSet::new();
        let mut ports: BTreeSet<(&Str, Protocol)> = BTreeSet::new();
        for (direction, rule) in &rules {
            for peer in &rule.peers {
                for selector in peer.selector.iter().chain(&peer.not_selector) {
                    selectors.insert(selector, self.registry.selectors.of(selector));
                }
                nets.extend(peer.nets.iter().flatten().chain(&peer.not_nets));
            }
            for term in &rule.traffic {
                named_ports(term, peer_test(term, *direction), &mut |name, protocol| {
                    ports.insert((name, protocol));
                });
            }
        }
        let state = self.state;
        let matched = |holder: Holder<'_>| -> BTreeSet<u32> {
            let of = selectors.iter().filter(|(s, _)| holder.matches(state, s));
            of.map(|(_, number)| *number).collect()
        };
        let mut set_nets: BTreeMap<Prefix, BTreeSet<u32>> = BTreeMap::new();
        for set in state.network_sets.values() {
            let found = matched(Holder::NetworkSet(set));
            if found.is_empty() || on(Fault::NetworkSetIgnored) {
                continue;
            }
            for net in &set.nets {
                set_nets.entry(*net).or_default().extend(&found);
            }
        }
        let mut hosts: BTreeMap<IpAddr, (BTreeSet<u32>, Vec<(Str, Protocol, u16)>)> =
            BTreeMap::new();
        for (address, owner) in &self.owners {
            let numbers = ports.iter().filter_map(|(name, protocol)| {
                let port = owner.named_port(name, *protocol)?;
                Some(((*name).clone(), *protocol, port))
            });
            let found = matched(Holder::Endpoint(owner));
            hosts.insert(*address, (found, numbers.collect()));
        }
        for (address, nodes) in &self.nodes {
            for node in nodes {
                let found = matched(Holder::Node(node));
                hosts.entry(*address).or_default().0.extend(found);
            }
        }
        let mut prefixes: BTreeSet<Prefix> = nets.clone();
        prefixes.extend(set_nets.keys());
        prefixes.extend(hosts.keys().map(|address| Prefix::host(*address)));
        for prefix in &prefixes {
            let mut key = IdentityKey::default();
            let mut at = Some(*prefix);
            while let Some(covering) = at {
                if let Some(found) = set_nets.get(&covering) {
                    key.selectors.extend(found);
                }
                if nets.contains(&covering) && (key.net.is_none() || on(Fault::LongestPrefixLost)) {
                    key.net = Some(covering);
                }
                at = covering.parent();
            }
            if prefix.is_host()
                && let Some((found, numbers)) = hosts.get(&prefix.address())
            {
                key.selectors.extend(found);
                key.ports = numbers.clone();
            }
            let number = if key == IdentityKey::default() {
                0
            } else {
                let number = self.registry.identities.of(&key);
                self.identities.insert(number, key);
                number
            };
            let above = prefix.parent().map(|p| covering_identity(tables, p));
            if above.unwrap_or(IdentityId::NOBODY) != IdentityId(number) {
                tables.addresses.insert(*prefix, IdentityId(number));
            }
        }
        let used: BTreeSet<u32> = tables.addresses.values().map(|i| i.0).collect();
        self.identities.retain(|number, _| used.contains(number));
    }

    fn classes(&mut self, tables: &mut Tables) {
        let nobody = IdentityKey::default();
        let sets = core::mem::take(&mut self.sets);
        for (number, key) in &sets {
            let sequence = self.sequence(key);
            let set = SetId(*number);
            let default = self.class(key, &sequence, &nobody, tables);
            tables.sets.insert(set, PolicySet { default });
            let identities = core::mem::take(&mut self.identities);
            for (identity, who) in &identities {
                let class = self.class(key, &sequence, who, tables);
                if class != default {
                    tables.classes.insert((set, IdentityId(*identity)), class);
                }
            }
            self.identities = identities;
        }
        let mut rules: BTreeSet<RuleId> = BTreeSet::new();
        for program in tables.programs.values() {
            program.for_each_cell(|cell| rules.extend(&cell.hits));
        }
        for (credit, number) in self.registry.rules.iter() {
            if rules.contains(&RuleId(number)) {
                tables.rules.insert(RuleId(number), credit.clone());
            }
        }
    }

    fn class(
        &mut self,
        key: &SetKey,
        sequence: &Sequence<SetRule<'a>>,
        who: &IdentityKey,
        tables: &mut Tables,
    ) -> ClassId {
        let own_end = match key.direction {
            Direction::Ingress => End::Destination,
            Direction::Egress => End::Source,
        };
        let named = |end: End, name: &Str, protocol: Protocol| {
            let ports = if end == own_end {
                &key.ports
            } else {
                &who.ports
            };
            let any = on(Fault::NamedPortAnyProtocol);
            ports
                .iter()
                .find(|(n, p, _)| n == name && (any || *p == protocol))
                .map(|(_, _, port)| *port)
        };
        let terms = |rule: &'_ SetRule<'a>| {
            let hit = rule.peers.iter().any(|peer| peer.matches(who));
            hit.then(|| rule.traffic.clone())
        };
        let program = Arc::new(compile(sequence, terms, named));
        let class = ClassId(self.registry.programs.of(&program));
        tables.programs.insert(class, program);
        class
    }

    fn sequence(&mut self, key: &SetKey) -> Sequence<SetRule<'a>> {
        let direction = key.direction;
        let mut own = key.own.iter();
        let mut steps: Vec<Step<SetRule<'a>>> = Vec::new();
        let policies: Vec<&Policy> = key
            .policies
            .iter()
            .filter_map(|id| self.state.policies.get(id))
            .collect();
        for tier in policies.chunk_by(|a, b| a.tier == b.tier) {
            let begin = steps.len();
            let mut isolating = Vec::new();
            for policy in tier {
                let Some(rules) = policy.rules(direction) else {
                    continue;
                };
                if rules.default_deny {
                    isolating.push(policy.id.clone());
                }
                for rule in &rules.rules {
                    let credit = Credit::Rule {
                        policy: policy.id.clone(),
                        direction,
                        origin: rule.origin.clone(),
                    };
                    steps.extend(self.step(rule, rule.action, credit, key.family, &mut own));
                }
            }
            let name = &tier[0].tier;
            let default = match tier_place(self.state, name).1 {
                TierDefault::Pass if on(Fault::TierDefaultPassLost) => TierDefault::Deny,
                other => other,
            };
            let denies = default == TierDefault::Deny && !on(Fault::DefaultDenyIgnored);
            if denies && !isolating.is_empty() {
                let credit = Credit::TierDefault {
                    tier: name.clone(),
                    direction,
                    policies: isolating,
                };
                steps.push(self.stop(credit, Verdict::Deny));
            }
            let end = steps.len();
            for step in &mut steps[begin..] {
                if let Step::Rule { next, .. } = step {
                    *next = end;
                }
            }
        }
        self.profiles(key, &mut own, &mut steps);
        Sequence { steps }
    }

    fn profiles(
        &mut self,
        key: &SetKey,
        own: &mut core::slice::Iter<'_, bool>,
        steps: &mut Vec<Step<SetRule<'a>>>,
    ) {
        let direction = key.direction;
        for name in &key.profiles {
            let allows = **name == *Profile::ALLOW_ALL || on(Fault::ProfileAllowAlways);
            if allows {
                let credit = Credit::ProfileRule {
                    profile: name.clone(),
                    direction,
                    origin: RuleOrigin {
                        index: 0,
                        name: None,
                        line: None,
                    },
                };
                steps.push(self.stop(credit, Verdict::Allow));
                continue;
            }
            let Some(rules) = self.profile_rules(name, direction) else {
                let credit = Credit::MissingProfile {
                    profile: name.clone(),
                    direction,
                };
                let verdict = if on(Fault::MissingProfileAllows) {
                    Verdict::Allow
                } else {
                    Verdict::Deny
                };
                steps.push(self.stop(credit, verdict));
                continue;
            };
            for rule in rules {
                let credit = Credit::ProfileRule {
                    profile: name.clone(),
                    direction,
                    origin: rule.origin.clone(),
                };
                let action = match rule.action {
                    Action::Pass if on(Fault::PassInProfileAllows) => Action::Allow,
                    Action::Pass => Action::Deny,
                    other => other,
                };
                steps.extend(self.step(rule, action, credit, key.family, own));
            }
        }
        let credit = Credit::NoProfileMatch { direction };
        let stop = self.stop(credit, Verdict::Deny);
        steps.push(stop);
    }

    fn stop(&mut self, credit: Credit, verdict: Verdict) -> Step<SetRule<'a>> {
        Step::Stop {
            id: RuleId(self.registry.rules.of(&Arc::new(credit))),
            verdict,
        }
    }

    /// A rule, unless its test of the own address fails.
    fn step(
        &mut self,
        rule: &'a Rule,
        action: Action,
        credit: Credit,
        family: Option<Family>,
        own: &mut core::slice::Iter<'_, bool>,
    ) -> Option<Step<SetRule<'a>>> {
        if rule.own.is_some() && !own.next().copied().unwrap_or(false) {
            return None;
        }
        let mut number = |s: &Selector| self.registry.selectors.of(s);
        let peers = rule.peers.iter().map(|peer| PeerTest {
            selector: peer.selector.as_ref().map(&mut number),
            not_selector: peer.not_selector.as_ref().map(&mut number),
            peer,
        });
        let peers = peers.collect();
        let fits =
            |t: &&Traffic| t.family.is_none() || t.family == family || on(Fault::FamiliesMixed);
        Some(Step::Rule {
            id: RuleId(self.registry.rules.of(&Arc::new(credit))),
            action,
            next: 0,
            rule: SetRule {
                peers,
                traffic: rule.traffic.iter().filter(fits).collect(),
            },
        })
    }
}

fn covering_identity(tables: &Tables, from: Prefix) -> IdentityId {
    let mut at = Some(from);
    while let Some(prefix) = at {
        if let Some(identity) = tables.addresses.get(&prefix) {
            return *identity;
        }
        at = prefix.parent();
    }
    IdentityId::NOBODY
}

/// The port test at the end of the endpoint that judges.
pub(crate) fn own_test(term: &Traffic, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.destination,
        Direction::Egress => &term.source,
    }
}

/// The port test at the other end.
pub(crate) fn peer_test(term: &Traffic, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.source,
        Direction::Egress => &term.destination,
    }
}
