//! The rules of active policies and profiles, with their selectors resolved to numbers.
//!
//! A source of rules is active while it is about a local endpoint. Policies that say the same share
//! their rules. What rules ask of the other end is counted, so that only what some active rule asks
//! for tells identities apart.

use crate::policies::{Policies, PolicyNumber};
use crate::pool::HashMap;
use crate::selectors::Selectors;
use crate::traffic::{condensed, named_ports};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, Peer, PortMatch, Prefix, Profile, Protocol, Rule, RuleOrigin, Selector, Str,
    Traffic,
};

/// A test of the other end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PeerTest {
    pub(crate) selector: Option<u32>,
    pub(crate) not_selector: Option<u32>,
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

/// A rule, ready to be put into policy sets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) action: Action,
    /// Where it was written, without the line.
    pub(crate) origin: RuleOrigin,
    pub(crate) peers: Vec<PeerTest>,
    /// Its place among the rules of its side that test the own address, if it is one.
    pub(crate) own: Option<u32>,
    /// What it matches of traffic, in as few terms as say the same.
    pub(crate) traffic: Vec<Traffic>,
    /// Whether it asks for a named port at the other end.
    pub(crate) asks_ports: bool,
}

/// What the rules of a side ask of the endpoint's own end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnEnd {
    /// Tests of the own address, rule by rule.
    pub(crate) tests: Vec<Peer>,
    /// Named ports of the endpoint.
    pub(crate) ports: BTreeSet<(Str, Protocol)>,
    /// Whether the family of the own address matters.
    pub(crate) family: bool,
}

/// What a source says of one direction.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) rules: Vec<Body>,
    /// Whether what none of the tier's rules matches is to be denied.
    pub(crate) default_deny: bool,
    pub(crate) own: OwnEnd,
    /// Whether some rule asks for a named port at the other end.
    pub(crate) asks_ports: bool,
}

/// What a source asks of the other end.
#[derive(Debug, Default)]
struct Asked {
    selectors: Vec<u32>,
    nets: Vec<Prefix>,
    ports: Vec<(Str, Protocol)>,
}

/// The rules of one source.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// `None` where the source does not govern the direction.
    ingress: Option<Side>,
    egress: Option<Side>,
    asked: Asked,
}

impl Bodies {
    pub(crate) fn of(&self, direction: Direction) -> Option<&Side> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Whether both ask the same of endpoints: the same directions, and the same of their own end.
    fn asks_endpoints_as(&self, other: &Bodies) -> bool {
        Direction::BOTH.iter().all(
            |direction| match (self.of(*direction), other.of(*direction)) {
                (Some(a), Some(b)) => a.own == b.own,
                (a, b) => a.is_none() == b.is_none(),
            },
        )
    }
}

/// Every active source.
#[derive(Debug, Default)]
pub(crate) struct Active {
    policies: HashMap<PolicyNumber, Saying>,
    /// The rules of policies by what they say, with the number of policies that say it.
    sayings: BTreeMap<Saying, (Arc<Bodies>, usize)>,
    profiles: BTreeMap<Str, Arc<Bodies>>,
    nets: BTreeMap<Prefix, usize>,
    ports: BTreeMap<(Str, Protocol), usize>,
    /// Networks and named ports that began or ended to be asked for.
    net_changes: BTreeSet<Prefix>,
    port_changes: BTreeSet<(Str, Protocol)>,
}

/// A shape, and the namespace it is relative to: see [`Policies::saying`].
type Saying = (u32, u32);

impl Active {
    /// The rules of an active policy.
    pub(crate) fn policy(&self, number: PolicyNumber) -> Option<&Arc<Bodies>> {
        let saying = self.policies.get(&number)?;
        self.sayings.get(saying).map(|(bodies, _)| bodies)
    }

    /// The rules of an active profile.
    pub(crate) fn profile(&self, name: &Str) -> Option<&Arc<Bodies>> {
        self.profiles.get(name)
    }

    /// Whether an active rule asks for this network.
    pub(crate) fn asks_net(&self, net: Prefix) -> bool {
        self.nets.contains_key(&net)
    }

    /// The named ports that an active rule asks for at the other end.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &(Str, Protocol)> {
        self.ports.keys()
    }

    /// The networks that began or ended to be asked for since the last call.
    pub(crate) fn take_net_changes(&mut self) -> BTreeSet<Prefix> {
        core::mem::take(&mut self.net_changes)
    }

    /// The named ports that began or ended to be asked for since the last call.
    pub(crate) fn take_port_changes(&mut self) -> BTreeSet<(Str, Protocol)> {
        core::mem::take(&mut self.port_changes)
    }

    /// Takes in the rules of a policy in place of those it had. Returns whether the policy sets of
    /// its endpoints may be others than before.
    pub(crate) fn begin_policy(
        &mut self,
        policies: &Policies,
        number: PolicyNumber,
        selectors: &mut Selectors,
    ) -> bool {
        let Some(saying) = policies.saying(number) else {
            return false;
        };
        if self.policies.get(&number) == Some(&saying) {
            return false;
        }
        let shared = match self.sayings.get_mut(&saying) {
            Some((bodies, uses)) => {
                *uses += 1;
                bodies.clone()
            }
            None => {
                let shape = policies.said(number);
                let rules = |direction| {
                    let rules = shape?.rules(direction)?;
                    Some((rules.rules.as_slice(), rules.default_deny))
                };
                let meant = |selector: &Selector| policies.meant(number, selector);
                let bodies = self.begin(rules, meant, selectors);
                self.sayings.insert(saying, (bodies.clone(), 1));
                bodies
            }
        };
        let was = self.policies.insert(number, saying);
        let Some(was) = was else { return true };
        let same = self.sayings.get(&was);
        let same = same.is_some_and(|(bodies, _)| bodies.asks_endpoints_as(&shared));
        self.give(was, selectors);
        !same
    }

    /// Forgets the rules of a policy.
    pub(crate) fn end_policy(&mut self, number: PolicyNumber, selectors: &mut Selectors) {
        if let Some(saying) = self.policies.remove(&number) {
            self.give(saying, selectors);
        }
    }

    fn give(&mut self, saying: Saying, selectors: &mut Selectors) {
        let Some((_, uses)) = self.sayings.get_mut(&saying) else {
            return;
        };
        *uses -= 1;
        if *uses == 0
            && let Some((gone, _)) = self.sayings.remove(&saying)
        {
            self.end(&gone, selectors);
        }
    }

    /// Takes in the rules of a profile in place of those it had.
    pub(crate) fn begin_profile(&mut self, profile: &Profile, selectors: &mut Selectors) {
        let rules = |direction| {
            let rules = match direction {
                Direction::Ingress => profile.ingress.as_slice(),
                Direction::Egress => profile.egress.as_slice(),
            };
            Some((rules, false))
        };
        let bodies = self.begin(rules, Selector::clone, selectors);
        if let Some(was) = self.profiles.insert(profile.name.clone(), bodies) {
            self.end(&was, selectors);
        }
    }

    /// Forgets the rules of a profile.
    pub(crate) fn end_profile(&mut self, name: &Str, selectors: &mut Selectors) {
        if let Some(was) = self.profiles.remove(name) {
            self.end(&was, selectors);
        }
    }

    /// Makes rules ready, and counts what they ask for.
    fn begin<'a>(
        &mut self,
        rules: impl Fn(Direction) -> Option<(&'a [Rule], bool)>,
        meant: impl Fn(&Selector) -> Selector,
        selectors: &mut Selectors,
    ) -> Arc<Bodies> {
        let mut asked = Asked::default();
        let mut of = |direction| -> Option<Side> {
            let (rules, default_deny) = rules(direction)?;
            let mut side = Side {
                default_deny,
                rules: Vec::with_capacity(rules.len()),
                ..Side::default()
            };
            for rule in rules {
                let body = body(rule, direction, &mut side, &mut asked, &meant, selectors);
                side.rules.push(body);
            }
            Some(side)
        };
        let bodies = Bodies {
            ingress: of(Direction::Ingress),
            egress: of(Direction::Egress),
            asked,
        };
        for net in &bodies.asked.nets {
            count(&mut self.nets, &mut self.net_changes, net);
        }
        for port in &bodies.asked.ports {
            count(&mut self.ports, &mut self.port_changes, port);
        }
        Arc::new(bodies)
    }

    fn end(&mut self, gone: &Bodies, selectors: &mut Selectors) {
        for number in &gone.asked.selectors {
            selectors.give(*number);
        }
        for net in &gone.asked.nets {
            discount(&mut self.nets, &mut self.net_changes, net);
        }
        for port in &gone.asked.ports {
            discount(&mut self.ports, &mut self.port_changes, port);
        }
    }
}

fn count<K: Ord + Clone>(uses: &mut BTreeMap<K, usize>, changes: &mut BTreeSet<K>, key: &K) {
    let uses = uses.entry(key.clone()).or_default();
    *uses += 1;
    if *uses == 1 {
        changes.insert(key.clone());
    }
}

fn discount<K: Ord + Clone>(uses: &mut BTreeMap<K, usize>, changes: &mut BTreeSet<K>, key: &K) {
    if let Some(count) = uses.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            uses.remove(key);
            changes.insert(key.clone());
        }
    }
}

fn body(
    rule: &Rule,
    direction: Direction,
    side: &mut Side,
    asked: &mut Asked,
    meant: &impl Fn(&Selector) -> Selector,
    selectors: &mut Selectors,
) -> Body {
    let mut number = |selector: &Selector| {
        let number = selectors.take(&meant(selector));
        asked.selectors.push(number);
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
        asked.nets.extend(nets);
    }
    let mut asks_ports = false;
    for term in &rule.traffic {
        named_ports(term, peer_test(term, direction), &mut |name, protocol| {
            asked.ports.push((name.clone(), protocol));
            asks_ports = true;
        });
        named_ports(term, own_test(term, direction), &mut |name, protocol| {
            side.own.ports.insert((name.clone(), protocol));
        });
        side.own.family |= term.family.is_some();
    }
    side.asks_ports |= asks_ports;
    let own = rule.own.as_ref().map(|own| {
        let mut own = own.clone();
        for selector in own.selector.iter_mut().chain(&mut own.not_selector) {
            *selector = meant(selector);
        }
        side.own.tests.push(own);
        u32::try_from(side.own.tests.len() - 1).unwrap_or(u32::MAX)
    });
    Body {
        action: rule.action,
        origin: without_line(&rule.origin),
        peers,
        own,
        traffic: condensed(&rule.traffic),
        asks_ports,
    }
}

/// A rule is the same one wherever in its file it stands: an edit that only moves it must not lose
/// its counts, nor write to the kernel.
fn without_line(origin: &RuleOrigin) -> RuleOrigin {
    RuleOrigin {
        line: None,
        ..origin.clone()
    }
}

/// The port test at the end of the endpoint that judges.
fn own_test(term: &Traffic, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.destination,
        Direction::Egress => &term.source,
    }
}

/// The port test at the other end.
fn peer_test(term: &Traffic, direction: Direction) -> &PortMatch {
    match direction {
        Direction::Ingress => &term.source,
        Direction::Egress => &term.destination,
    }
}
