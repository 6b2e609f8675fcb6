//! Judgement points: which policy set judges each own address of each local endpoint.
//!
//! Here the endpoint's own end is resolved: which policies apply and in which order, its own named
//! ports, its own address where a rule tests it, its family where a rule asks for it.

use crate::activity::{Activity, is_local};
use crate::bodies::{Active, Body, Source, own_test};
use crate::columns::Slot;
use crate::faults::{Fault, on};
use crate::identities::{Identities, Sight};
use crate::labels::HolderId;
use crate::sets::{SetKey, Sets};
use crate::traffic::named_ports;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, Family, ObjectId, Order, Peer, Policy, PolicyId, Precedence,
    Prefix, Selector, State, Str,
};
use palisade_tables::{Point, SetId};

/// Where a policy stands among all: its tier (those that do not exist come last, by name), then its
/// place in the tier.
type Place = (bool, Order, Str, Precedence, PolicyId);

fn place(state: &State, policy: &Policy) -> Place {
    let precedence = match on(Fault::PolicyOrderIgnored) {
        true => Precedence {
            order: Order::Last,
            rank: u8::MAX - policy.precedence.rank,
        },
        false => policy.precedence,
    };
    let (missing, order) = match state.tier(&policy.tier) {
        Some(tier) if on(Fault::TierOrderReversed) => (true, negative(tier.order)),
        Some(tier) => (false, tier.order),
        None => (true, Order::Last),
    };
    let name = policy.tier.clone();
    (missing, order, name, precedence, policy.id.clone())
}

fn negative(order: Order) -> Order {
    match order {
        Order::At(number) => Order::at(-number),
        Order::Last => Order::at(f64::NEG_INFINITY),
    }
}

/// These policies in the order in which they decide.
pub(crate) fn ordered<'a>(
    state: &'a State,
    policies: impl Iterator<Item = &'a PolicyId>,
) -> Vec<&'a Policy> {
    let mut placed: Vec<(Place, &Policy)> = policies
        .filter_map(|id| state.policies.get(id))
        .map(|policy| (place(state, policy), policy))
        .collect();
    placed.sort_by(|(a, _), (b, _)| a.cmp(b));
    placed.into_iter().map(|(_, policy)| policy).collect()
}

/// All points.
#[derive(Debug, Default)]
pub(crate) struct Points {
    /// What each endpoint's point asks for. Two endpoints may have one point: the one that holds the
    /// address judges, else the first by name.
    claims: BTreeMap<Point, BTreeMap<EndpointId, Arc<SetKey>>>,
    of: BTreeMap<EndpointId, (Str, Vec<Point>)>,
    chosen: BTreeMap<Point, SetId>,
    contested: BTreeSet<Point>,
    interfaces: BTreeMap<Str, usize>,
    /// Endpoints with a rule that tests the own address.
    pub(crate) testers: BTreeSet<EndpointId>,
}

/// What a settling touched.
#[derive(Debug, Default)]
pub(crate) struct PointChanges {
    pub(crate) points: BTreeMap<Point, Option<SetId>>,
    pub(crate) interfaces: BTreeMap<Str, bool>,
}

/// What points are computed from.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) sight: Sight<'a>,
    pub(crate) activity: &'a Activity,
    pub(crate) active: &'a Active,
    pub(crate) identities: &'a Identities,
}

impl Points {
    /// Looks again at these endpoints.
    pub(crate) fn settle(
        &mut self,
        ground: Ground<'_>,
        endpoints: &BTreeSet<EndpointId>,
        sets: &mut Sets,
    ) -> PointChanges {
        let mut changes = PointChanges::default();
        let mut touched = self.contested.clone();
        for id in endpoints {
            self.forget(id, &mut touched, &mut changes);
            let endpoint = ground.sight.state.endpoints.get(id);
            if let Some(endpoint) = endpoint.filter(|e| is_local(e)) {
                self.remember(ground, endpoint, &mut touched, &mut changes);
            }
        }
        for point in touched {
            let set = self.choose(ground, &point).map(|key| sets.take(&key));
            let was = match set {
                Some(set) => self.chosen.insert(point.clone(), set),
                None => self.chosen.remove(&point),
            };
            was.into_iter().for_each(|set| sets.give(set));
            changes.points.insert(point, set);
        }
        for (name, ours) in &mut changes.interfaces {
            *ours = self.interfaces.contains_key(name);
        }
        changes
    }

    fn forget(
        &mut self,
        id: &EndpointId,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        self.testers.remove(id);
        let Some((interface, points)) = self.of.remove(id) else {
            return;
        };
        for point in points {
            if let Some(claims) = self.claims.get_mut(&point) {
                claims.remove(id);
                if claims.len() < 2 {
                    self.contested.remove(&point);
                }
                if claims.is_empty() {
                    self.claims.remove(&point);
                }
            }
            touched.insert(point);
        }
        if let Some(count) = self.interfaces.get_mut(&interface) {
            *count -= 1;
            if *count == 0 {
                self.interfaces.remove(&interface);
            }
        }
        changes.interfaces.insert(interface, false);
    }

    fn remember(
        &mut self,
        ground: Ground<'_>,
        endpoint: &Endpoint,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        let Some(interface) = endpoint.interface.clone() else {
            return;
        };
        *self.interfaces.entry(interface.clone()).or_default() += 1;
        changes.interfaces.insert(interface.clone(), true);
        let state = ground.sight.state;
        let selecting = ground.activity.policies_of(&endpoint.id);
        let policies = ordered(state, selecting.into_iter().flatten());
        let mut points = Vec::new();
        for direction in Direction::BOTH {
            let judging = Judging::new(ground, endpoint, &policies, direction);
            if judging.bodies().any(|body| body.own.is_some()) {
                self.testers.insert(endpoint.id.clone());
            }
            for address in &endpoint.addresses {
                let point = Point {
                    interface: interface.clone(),
                    address: *address,
                    direction,
                };
                let key = Arc::new(judging.key(ground, *address));
                let claims = self.claims.entry(point.clone()).or_default();
                claims.insert(endpoint.id.clone(), key);
                if claims.len() > 1 {
                    self.contested.insert(point.clone());
                }
                touched.insert(point.clone());
                points.push(point);
            }
        }
        self.of.insert(endpoint.id.clone(), (interface, points));
    }

    fn choose(&self, ground: Ground<'_>, point: &Point) -> Option<Arc<SetKey>> {
        let claims = self.claims.get(point)?;
        let owner = match claims.len() {
            1 => None,
            _ => ground.identities.owner(point.address),
        };
        let first = || claims.values().next();
        let owner = owner.and_then(|slot| ground.sight.holders.columns.endpoint_id(slot));
        let key = owner.and_then(|owner| claims.get(&owner)).or_else(first)?;
        Some(key.clone())
    }
}

/// What judges one endpoint in one direction.
struct Judging<'a> {
    endpoint: &'a Endpoint,
    direction: Direction,
    policies: Vec<PolicyId>,
    bodies: Vec<&'a [Body]>,
}

impl<'a> Judging<'a> {
    fn new(
        ground: Ground<'a>,
        endpoint: &'a Endpoint,
        policies: &[&Policy],
        direction: Direction,
    ) -> Self {
        let governing = policies.iter().filter(|p| p.rules(direction).is_some());
        let policies: Vec<PolicyId> = governing.map(|p| p.id.clone()).collect();
        let sources = policies
            .iter()
            .cloned()
            .map(Source::Policy)
            .chain(endpoint.profiles.iter().cloned().map(Source::Profile));
        let bodies = sources
            .filter_map(|source| ground.active.get(&source)?.of(direction))
            .map(|bodies| &**bodies);
        Judging {
            bodies: bodies.collect(),
            endpoint,
            direction,
            policies,
        }
    }

    fn bodies(&self) -> impl Iterator<Item = &'a Body> {
        self.bodies.iter().flat_map(|bodies| bodies.iter())
    }

    fn key(&self, ground: Ground<'_>, address: IpAddr) -> SetKey {
        let mut ports = BTreeSet::new();
        let mut family = None;
        for term in self.bodies().flat_map(|body| &body.traffic) {
            named_ports(
                term,
                own_test(term, self.direction),
                &mut |name, protocol| {
                    let port = self.endpoint.named_port(name, protocol);
                    ports.extend(port.map(|port| (name.clone(), protocol, port)));
                },
            );
            if term.family.is_some() {
                family = Some(Family::of(address));
            }
        }
        let tests: Vec<&Peer> = self.bodies().filter_map(|body| body.own.as_ref()).collect();
        let own = match tests.is_empty() {
            true => Vec::new(),
            false => {
                let holders = holders(ground, address);
                let holds = |own: &&Peer| own_matches(ground.sight, own, address, &holders);
                tests.iter().map(holds).collect()
            }
        };
        SetKey {
            direction: self.direction,
            policies: self.policies.clone(),
            profiles: self.endpoint.profiles.clone(),
            own,
            ports: ports.into_iter().collect(),
            family,
        }
    }
}

/// Everything that holds an address.
fn holders(ground: Ground<'_>, address: IpAddr) -> Vec<Slot> {
    let sight = ground.sight;
    let owner = ground.identities.owner(address);
    let nodes = ground.identities.nodes_at(address).iter();
    let sets = sight.state.network_sets.values();
    let slot = |id: &ObjectId| {
        let id = HolderId::NetworkSet(id.clone());
        sight.holders.columns.find(&id)
    };
    owner
        .into_iter()
        .chain(nodes.copied())
        .chain(
            sets.filter(|set| set.nets.iter().any(|net| net.contains(address)))
                .filter_map(|set| slot(&set.id)),
        )
        .collect()
}

fn own_matches(sight: Sight<'_>, own: &Peer, address: IpAddr, holders: &[Slot]) -> bool {
    let any = |selector: &Selector| {
        let mut holders = holders.iter();
        holders.any(|slot| sight.holders.matches(sight.state, *slot, selector))
    };
    let within = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
    on(Fault::OwnAddressIgnored)
        || own.selector.as_ref().is_none_or(any)
            && !own.not_selector.as_ref().is_some_and(any)
            && own.nets.as_ref().is_none_or(|nets| within(nets))
            && !within(&own.not_nets)
}
