//! The rules of active policies and profiles, with their selectors resolved to numbers.
//!
//! A source of rules is active while it is about a local endpoint. What its rules ask of the other
//! end is counted, so that only what some active rule asks for tells identities apart.

use crate::selectors::Selectors;
use crate::traffic::named_ports;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, Peer, Policy, PolicyId, PortMatch, Prefix, Profile, Protocol, Rule,
    RuleOrigin, Str, Traffic,
};
use palisade_tables::Credit;

/// Where rules come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Policy(PolicyId),
    Profile(Str),
}

/// A test of the other end.
#[derive(Debug)]
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
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) action: Action,
    pub(crate) credit: Arc<Credit>,
    pub(crate) peers: Vec<PeerTest>,
    pub(crate) own: Option<Peer>,
    pub(crate) traffic: Vec<Traffic>,
    /// Whether it asks for a named port at the other end.
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
    pub(crate) ingress: Option<Arc<[Body]>>,
    pub(crate) egress: Option<Arc<[Body]>>,
    asked: Asked,
}

impl Bodies {
    pub(crate) fn of(&self, direction: Direction) -> Option<&Arc<[Body]>> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// Every active source.
#[derive(Debug, Default)]
pub(crate) struct Active {
    sources: BTreeMap<Source, Bodies>,
    nets: BTreeMap<Prefix, usize>,
    ports: BTreeMap<(Str, Protocol), usize>,
    /// Networks and named ports that began or ended to be asked for.
    net_changes: BTreeSet<Prefix>,
    port_changes: BTreeSet<(Str, Protocol)>,
}

impl Active {
    pub(crate) fn get(&self, source: &Source) -> Option<&Bodies> {
        self.sources.get(source)
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

    pub(crate) fn begin_policy(&mut self, policy: &Policy, selectors: &mut Selectors) {
        let rules = |direction| policy.rules(direction).map(|r| r.rules.as_slice());
        let credit = |direction, rule: &Rule| Credit::Rule {
            policy: policy.id.clone(),
            direction,
            origin: without_line(&rule.origin),
        };
        let source = Source::Policy(policy.id.clone());
        self.begin(source, rules, credit, selectors);
    }

    pub(crate) fn begin_profile(&mut self, profile: &Profile, selectors: &mut Selectors) {
        let rules = |direction| {
            Some(match direction {
                Direction::Ingress => profile.ingress.as_slice(),
                Direction::Egress => profile.egress.as_slice(),
            })
        };
        let credit = |direction, rule: &Rule| Credit::ProfileRule {
            profile: profile.name.clone(),
            direction,
            origin: without_line(&rule.origin),
        };
        let source = Source::Profile(profile.name.clone());
        self.begin(source, rules, credit, selectors);
    }

    /// Takes in a source's rules in place of those it had.
    fn begin<'a>(
        &mut self,
        source: Source,
        rules: impl Fn(Direction) -> Option<&'a [Rule]>,
        credit: impl Fn(Direction, &Rule) -> Credit,
        selectors: &mut Selectors,
    ) {
        let mut asked = Asked::default();
        let mut of = |direction| -> Option<Arc<[Body]>> {
            let rules = rules(direction)?.iter();
            let bodies = rules.map(|rule| {
                body(
                    rule,
                    credit(direction, rule),
                    direction,
                    &mut asked,
                    selectors,
                )
            });
            Some(bodies.collect())
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
        self.end(&source, selectors);
        self.sources.insert(source, bodies);
    }

    /// Forgets a source's rules.
    pub(crate) fn end(&mut self, source: &Source, selectors: &mut Selectors) {
        let Some(gone) = self.sources.remove(source) else {
            return;
        };
        for number in gone.asked.selectors {
            selectors.give(number);
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
    credit: Credit,
    direction: Direction,
    asked: &mut Asked,
    selectors: &mut Selectors,
) -> Body {
    let mut number = |selector: &palisade_model::Selector| {
        let number = selectors.take(selector);
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
    }
    Body {
        action: rule.action,
        credit: Arc::new(credit),
        peers,
        own: rule.own.clone(),
        traffic: rule.traffic.clone(),
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
pub(crate) fn own_test(term: &Traffic, direction: Direction) -> &PortMatch {
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
