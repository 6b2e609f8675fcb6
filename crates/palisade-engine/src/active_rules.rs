//! The rules of active policies and profiles, with their selectors resolved to numbers.
//!
//! A source (policy or profile) is active while it applies to a local endpoint. Policies with equal
//! rules share them. References to peers are counted, so that only selectors, networks and
//! named ports of active rules distinguish identities.

use crate::selector_index::SelectorNumber;
use crate::selectors::ActiveSelectors;
use crate::store::{HashMap, NamedPolicies, PolicyNumber, PolicyRulesKey};
use crate::traffic::{for_each_named_port, merge_port_lists};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, DomainPattern, Peer, PortMatch, Prefix, Profile, Protocol, Rule, RuleOrigin,
    Selector, Str, TrafficMatch,
};

/// A test of the peer's address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PeerTest {
    pub(crate) selector: Option<SelectorNumber>,
    pub(crate) not_selector: Option<SelectorNumber>,
    pub(crate) nets: Option<Vec<Prefix>>,
    pub(crate) not_nets: Vec<Prefix>,
}

impl PeerTest {
    /// Whether every address matches.
    pub(crate) fn is_any(&self) -> bool {
        self.selector.is_none()
            && self.not_selector.is_none()
            && self.nets.is_none()
            && self.not_nets.is_empty()
    }
}

/// A rule with its references resolved, ready for policy sets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResolvedRule {
    pub(crate) action: Action,
    /// Where it was written, without the line.
    pub(crate) origin: RuleOrigin,
    pub(crate) peers: Vec<PeerTest>,
    /// For a rule that tests the local address: its index among such rules of the direction.
    pub(crate) local_test: Option<u32>,
    /// The traffic it matches, in merged terms.
    pub(crate) traffic: Vec<TrafficMatch>,
    /// Whether it uses a named port of the peer.
    pub(crate) uses_peer_named_ports: bool,
    /// The names of the DNS queries that it decides, if it decides by name.
    pub(crate) dns_names: Option<Arc<BTreeSet<DomainPattern>>>,
}

/// What the rules of a direction refer to at the endpoint's local end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalEndReferences {
    /// The tests of the local address, in the order of the rules.
    pub(crate) tests: Vec<Peer>,
    /// Named ports of the endpoint.
    pub(crate) ports: BTreeSet<(Str, Protocol)>,
    /// Whether a rule depends on the family of the local address.
    pub(crate) family: bool,
}

/// The resolved rules of one direction.
#[derive(Debug, Default)]
pub(crate) struct ResolvedDirectionRules {
    pub(crate) rules: Vec<ResolvedRule>,
    /// Whether traffic that no rule of the tier matches is denied.
    pub(crate) default_deny: bool,
    pub(crate) local_end: LocalEndReferences,
    /// Whether some rule uses a named port of the peer.
    pub(crate) uses_peer_named_ports: bool,
}

/// What the rules of a source refer to at the peer.
#[derive(Debug, Default)]
struct PeerReferences {
    selectors: Vec<SelectorNumber>,
    nets: Vec<Prefix>,
    ports: Vec<(Str, Protocol)>,
}

/// The resolved rules of one policy or profile.
#[derive(Debug)]
pub(crate) struct ResolvedRules {
    /// `None` where the source does not govern the direction.
    ingress: Option<ResolvedDirectionRules>,
    egress: Option<ResolvedDirectionRules>,
    peers: PeerReferences,
}

impl ResolvedRules {
    pub(crate) fn direction(&self, direction: Direction) -> Option<&ResolvedDirectionRules> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Whether both govern the same directions with the same references to the local end.
    fn has_same_local_end_references(&self, other: &ResolvedRules) -> bool {
        Direction::BOTH.iter().all(|direction| {
            match (self.direction(*direction), other.direction(*direction)) {
                (Some(a), Some(b)) => a.local_end == b.local_end,
                (a, b) => a.is_none() == b.is_none(),
            }
        })
    }
}

/// The rules of all active policies and profiles, with the counted references to peers.
#[derive(Debug, Default)]
pub(crate) struct ActiveRules {
    policies: HashMap<PolicyNumber, PolicyRulesKey>,
    /// The rules of policies, with the number of active policies that have them.
    shared_rules: BTreeMap<PolicyRulesKey, (Arc<ResolvedRules>, usize)>,
    profiles: BTreeMap<Str, Arc<ResolvedRules>>,
    nets: BTreeMap<Prefix, usize>,
    ports: BTreeMap<(Str, Protocol), usize>,
    /// Networks and named ports that rules started or ceased to refer to.
    net_changes: BTreeSet<Prefix>,
    port_changes: BTreeSet<(Str, Protocol)>,
}

impl ActiveRules {
    /// The rules of an active policy.
    pub(crate) fn policy(&self, number: PolicyNumber) -> Option<&Arc<ResolvedRules>> {
        let rules_key = self.policies.get(&number)?;
        self.shared_rules.get(rules_key).map(|(bodies, _)| bodies)
    }

    /// The rules of an active profile.
    pub(crate) fn profile(&self, name: &Str) -> Option<&Arc<ResolvedRules>> {
        self.profiles.get(name)
    }

    /// Whether an active rule names this network.
    pub(crate) fn references_net(&self, net: Prefix) -> bool {
        self.nets.contains_key(&net)
    }

    /// The named ports of peers that active rules use.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &(Str, Protocol)> {
        self.ports.keys()
    }

    /// The networks that rules started or ceased to name since the last call.
    pub(crate) fn take_net_changes(&mut self) -> BTreeSet<Prefix> {
        core::mem::take(&mut self.net_changes)
    }

    /// The named ports that rules started or ceased to use since the last call.
    pub(crate) fn take_port_changes(&mut self) -> BTreeSet<(Str, Protocol)> {
        core::mem::take(&mut self.port_changes)
    }

    /// Sets the rules of an active policy. Returns whether the keys of its endpoints' policy sets
    /// may change.
    pub(crate) fn activate_policy(
        &mut self,
        policies: NamedPolicies<'_>,
        number: PolicyNumber,
        selectors: &mut ActiveSelectors,
    ) -> bool {
        let Some(rules_key) = policies.rules_key(number) else {
            return false;
        };
        if self.policies.get(&number) == Some(&rules_key) {
            return false;
        }
        let shared = match self.shared_rules.get_mut(&rules_key) {
            Some((bodies, uses)) => {
                *uses += 1;
                bodies.clone()
            }
            None => {
                let shape = policies.rules(number);
                let rules = |direction| {
                    let rules = shape?.direction(direction)?;
                    Some((rules.rules.as_slice(), rules.default_deny))
                };
                let absolute = |selector: &Selector| policies.absolute_selector(number, selector);
                let bodies = self.resolve_rules(rules, absolute, selectors);
                self.shared_rules.insert(rules_key, (bodies.clone(), 1));
                bodies
            }
        };
        let previous = self.policies.insert(number, rules_key);
        let Some(previous) = previous else {
            return true;
        };
        let same = self.shared_rules.get(&previous);
        let same = same.is_some_and(|(bodies, _)| bodies.has_same_local_end_references(&shared));
        self.release_shared(previous, selectors);
        !same
    }

    /// Removes the rules of a policy that is no longer active.
    pub(crate) fn deactivate_policy(
        &mut self,
        number: PolicyNumber,
        selectors: &mut ActiveSelectors,
    ) {
        if let Some(rules_key) = self.policies.remove(&number) {
            self.release_shared(rules_key, selectors);
        }
    }

    fn release_shared(&mut self, rules_key: PolicyRulesKey, selectors: &mut ActiveSelectors) {
        let Some((_, uses)) = self.shared_rules.get_mut(&rules_key) else {
            return;
        };
        *uses -= 1;
        if *uses == 0
            && let Some((gone, _)) = self.shared_rules.remove(&rules_key)
        {
            self.release_rules(&gone, selectors);
        }
    }

    /// Sets the rules of an active profile.
    pub(crate) fn activate_profile(&mut self, profile: &Profile, selectors: &mut ActiveSelectors) {
        let rules = |direction| {
            let rules = match direction {
                Direction::Ingress => profile.ingress.as_slice(),
                Direction::Egress => profile.egress.as_slice(),
            };
            Some((rules, false))
        };
        let bodies = self.resolve_rules(rules, Selector::clone, selectors);
        if let Some(previous) = self.profiles.insert(profile.name.clone(), bodies) {
            self.release_rules(&previous, selectors);
        }
    }

    /// Removes the rules of a profile that is no longer active.
    pub(crate) fn deactivate_profile(&mut self, name: &Str, selectors: &mut ActiveSelectors) {
        if let Some(previous) = self.profiles.remove(name) {
            self.release_rules(&previous, selectors);
        }
    }

    /// Resolves rules and counts their references.
    fn resolve_rules<'a>(
        &mut self,
        rules: impl Fn(Direction) -> Option<(&'a [Rule], bool)>,
        absolute: impl Fn(&Selector) -> Selector,
        selectors: &mut ActiveSelectors,
    ) -> Arc<ResolvedRules> {
        let mut peer_references = PeerReferences::default();
        let mut resolve_side = |direction| -> Option<ResolvedDirectionRules> {
            let (rules, default_deny) = rules(direction)?;
            let mut side = ResolvedDirectionRules {
                default_deny,
                rules: Vec::with_capacity(rules.len()),
                ..ResolvedDirectionRules::default()
            };
            for rule in rules {
                let body = resolve_rule(
                    rule,
                    direction,
                    &mut side,
                    &mut peer_references,
                    &absolute,
                    selectors,
                );
                side.rules.push(body);
            }
            Some(side)
        };
        let bodies = ResolvedRules {
            ingress: resolve_side(Direction::Ingress),
            egress: resolve_side(Direction::Egress),
            peers: peer_references,
        };
        for net in &bodies.peers.nets {
            add_reference(&mut self.nets, &mut self.net_changes, net);
        }
        for port in &bodies.peers.ports {
            add_reference(&mut self.ports, &mut self.port_changes, port);
        }
        Arc::new(bodies)
    }

    fn release_rules(&mut self, gone: &ResolvedRules, selectors: &mut ActiveSelectors) {
        for number in &gone.peers.selectors {
            selectors.release(*number);
        }
        for net in &gone.peers.nets {
            remove_reference(&mut self.nets, &mut self.net_changes, net);
        }
        for port in &gone.peers.ports {
            remove_reference(&mut self.ports, &mut self.port_changes, port);
        }
    }
}

fn add_reference<K: Ord + Clone>(
    uses: &mut BTreeMap<K, usize>,
    changes: &mut BTreeSet<K>,
    key: &K,
) {
    let uses = uses.entry(key.clone()).or_default();
    *uses += 1;
    if *uses == 1 {
        changes.insert(key.clone());
    }
}

fn remove_reference<K: Ord + Clone>(
    uses: &mut BTreeMap<K, usize>,
    changes: &mut BTreeSet<K>,
    key: &K,
) {
    if let Some(count) = uses.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            uses.remove(key);
            changes.insert(key.clone());
        }
    }
}

fn resolve_rule(
    rule: &Rule,
    direction: Direction,
    direction_rules: &mut ResolvedDirectionRules,
    peer_references: &mut PeerReferences,
    absolute: &impl Fn(&Selector) -> Selector,
    selectors: &mut ActiveSelectors,
) -> ResolvedRule {
    let mut number = |selector: &Selector| {
        let number = selectors.acquire(&absolute(selector));
        peer_references.selectors.push(number);
        number
    };
    let peers = rule.peers.iter().map(|peer| PeerTest {
        selector: peer.selector.as_ref().map(&mut number),
        not_selector: peer.not_selector.as_ref().map(&mut number),
        nets: peer.nets.clone(),
        not_nets: peer.not_nets.clone(),
    });
    let peers: Vec<PeerTest> = peers.collect();
    for peer in &peers {
        let nets = peer.nets.iter().flatten().chain(&peer.not_nets);
        peer_references.nets.extend(nets);
    }
    let mut asks_ports = false;
    for term in &rule.traffic {
        for_each_named_port(
            term,
            peer_port_test(term, direction),
            &mut |name, protocol| {
                peer_references.ports.push((name.clone(), protocol));
                asks_ports = true;
            },
        );
        for_each_named_port(
            term,
            local_port_test(term, direction),
            &mut |name, protocol| {
                direction_rules
                    .local_end
                    .ports
                    .insert((name.clone(), protocol));
            },
        );
        direction_rules.local_end.family |= term.family.is_some();
    }
    direction_rules.uses_peer_named_ports |= asks_ports;
    let own = rule.local.as_ref().map(|own| {
        let mut own = own.clone();
        for selector in own.selector.iter_mut().chain(&mut own.not_selector) {
            *selector = absolute(selector);
        }
        direction_rules.local_end.tests.push(own);
        u32::try_from(direction_rules.local_end.tests.len() - 1).unwrap_or(u32::MAX)
    });
    ResolvedRule {
        action: rule.action,
        origin: without_line(&rule.origin),
        peers,
        local_test: own,
        traffic: merge_port_lists(&rule.traffic),
        uses_peer_named_ports: asks_ports,
        dns_names: rule.dns_names.clone().map(Arc::new),
    }
}

/// The origin without the line, so that a rule is the same wherever it is in its file: an edit that
/// only moves it must neither reset its counters nor write to the kernel.
fn without_line(origin: &RuleOrigin) -> RuleOrigin {
    RuleOrigin {
        line: None,
        ..origin.clone()
    }
}

/// The port test at the local end of a local endpoint.
fn local_port_test(term: &TrafficMatch, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.destination,
        Direction::Egress => &term.source,
    }
}

/// The port test at the peer.
fn peer_port_test(term: &TrafficMatch, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.source,
        Direction::Egress => &term.destination,
    }
}
