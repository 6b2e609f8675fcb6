//! Judgement points: which policy set judges each own address of each local endpoint.
//!
//! Here the endpoint's own end is resolved: which policies apply and in which order, its own named
//! ports, its own address where a rule tests it, its family where a rule asks for it.

use crate::activity::{Activity, is_local};
use crate::bodies::{Active, Bodies, OwnEnd};
use crate::columns::Slot;
use crate::faults::{Fault, on};
use crate::identities::{Identities, Sight};
use crate::labels::HolderId;
use crate::policies::{Policies, PolicyNumber};
use crate::sets::{SetKey, Sets};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, Family, ObjectId, Order, Peer, Precedence, Prefix, Protocol,
    Selector, State, Str,
};
use palisade_tables::{Point, SetId};

/// Where a tier stands: those that do not exist come last, by name.
fn tier_place(state: &State, name: &Str) -> (bool, Order) {
    match state.tier(name) {
        Some(tier) if on(Fault::TierOrderReversed) => (true, negative(tier.order)),
        Some(tier) => (false, tier.order),
        None => (true, Order::Last),
    }
}

fn negative(order: Order) -> Order {
    match order {
        Order::At(number) => Order::at(-number),
        Order::Last => Order::at(f64::NEG_INFINITY),
    }
}

/// These policies in the order in which they decide: by tier, place in the tier, and name.
pub(crate) fn ordered(
    state: &State,
    policies: &Policies,
    numbers: impl Iterator<Item = PolicyNumber>,
) -> Vec<PolicyNumber> {
    let mut tiers: Vec<(&Str, (bool, Order))> = Vec::new();
    let mut placed: Vec<(usize, Precedence, PolicyNumber)> = Vec::new();
    for number in numbers {
        let Some(said) = policies.said(number) else {
            continue;
        };
        let known = tiers.iter().position(|(name, _)| **name == said.tier);
        let tier = known.unwrap_or_else(|| {
            tiers.push((&said.tier, tier_place(state, &said.tier)));
            tiers.len() - 1
        });
        let precedence = match on(Fault::PolicyOrderIgnored) {
            true => Precedence {
                order: Order::Last,
                rank: u8::MAX - said.precedence.rank,
            },
            false => said.precedence,
        };
        placed.push((tier, precedence, number));
    }
    let place = |tier: usize| tiers.get(tier).map(|(name, place)| (*place, *name));
    placed.sort_unstable_by(|(tier, precedence, number), (other, than, policy)| {
        let tiers = match tier == other {
            true => Ordering::Equal,
            false => place(*tier).cmp(&place(*other)),
        };
        let here = || policies.compare(*number, *policy);
        tiers.then(precedence.cmp(than)).then_with(here)
    });
    placed.into_iter().map(|(_, _, number)| number).collect()
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
    pub(crate) policies: &'a Policies,
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
        let mut orders = Orders::new();
        for id in endpoints {
            self.forget(id, &mut touched, &mut changes);
            let endpoint = ground.sight.state.endpoints.get(id);
            if let Some(endpoint) = endpoint.filter(|e| is_local(e)) {
                self.remember(ground, endpoint, &mut orders, &mut touched, &mut changes);
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
        orders: &mut Orders,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        let Some(interface) = endpoint.interface.clone() else {
            return;
        };
        *self.interfaces.entry(interface.clone()).or_default() += 1;
        changes.interfaces.insert(interface.clone(), true);
        let selecting = ground.activity.policies_of(&endpoint.id);
        let selecting: Vec<PolicyNumber> = selecting.into_iter().flatten().copied().collect();
        let policies = orders.entry(selecting).or_insert_with_key(|selecting| {
            let numbers = selecting.iter().copied();
            ordered(ground.sight.state, ground.policies, numbers)
        });
        let mut points = Vec::new();
        for direction in Direction::BOTH {
            let judging = Judging::new(ground, endpoint, policies, direction);
            if judging.own().any(|own| !own.tests.is_empty()) {
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

/// Policies in order, by those that are to be ordered.
type Orders = BTreeMap<Vec<PolicyNumber>, Vec<PolicyNumber>>;

/// What judges one endpoint in one direction.
struct Judging<'a> {
    endpoint: &'a Endpoint,
    direction: Direction,
    policies: Vec<PolicyNumber>,
    sources: Vec<&'a Bodies>,
}

impl<'a> Judging<'a> {
    fn new(
        ground: Ground<'a>,
        endpoint: &'a Endpoint,
        policies: &[PolicyNumber],
        direction: Direction,
    ) -> Self {
        let said = |number: &PolicyNumber| ground.policies.said(*number);
        let governs =
            |number: &&PolicyNumber| said(number).is_some_and(|s| s.rules(direction).is_some());
        let policies: Vec<PolicyNumber> = policies.iter().filter(governs).copied().collect();
        let active = ground.active;
        let of_policies = policies.iter().filter_map(|number| active.policy(*number));
        let of_profiles = endpoint
            .profiles
            .iter()
            .filter_map(|name| active.profile(name));
        Judging {
            sources: of_policies
                .chain(of_profiles)
                .map(|bodies| &**bodies)
                .collect(),
            endpoint,
            direction,
            policies,
        }
    }

    /// What each source asks of the own end.
    fn own(&self) -> impl Iterator<Item = &'a OwnEnd> {
        let sides = self
            .sources
            .iter()
            .filter_map(|bodies| bodies.of(self.direction));
        sides.map(|side| &side.own)
    }

    fn key(&self, ground: Ground<'_>, address: IpAddr) -> SetKey {
        let asked: BTreeSet<&(Str, Protocol)> = self.own().flat_map(|own| &own.ports).collect();
        let number = |(name, protocol): &(Str, Protocol)| {
            let port = self.endpoint.named_port(name, *protocol)?;
            Some((name.clone(), *protocol, port))
        };
        let ports: BTreeSet<(Str, Protocol, u16)> = asked.into_iter().filter_map(number).collect();
        let family = self.own().any(|own| own.family);
        let family = family.then(|| Family::of(address));
        let tests: Vec<&Peer> = self.own().flat_map(|own| &own.tests).collect();
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
        holders.any(|slot| sight.holders.matches(*slot, selector))
    };
    let within = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
    on(Fault::OwnAddressIgnored)
        || own.selector.as_ref().is_none_or(any)
            && !own.not_selector.as_ref().is_some_and(any)
            && own.nets.as_ref().is_none_or(|nets| within(nets))
            && !within(&own.not_nets)
}
