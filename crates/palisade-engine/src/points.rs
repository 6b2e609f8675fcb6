//! Judgement points: which policy set judges each own address of each local endpoint.
//!
//! References to the endpoint's own end are resolved here: applicable policies and their order, own
//! named ports, own address and family as far as rules test them.

use crate::active_policies::{ActivePolicies, is_local};
use crate::active_rules::{ActiveRules, OwnEndReferences, ResolvedRules};
use crate::faults::EngineFault;
use crate::identities::{Identities, IdentityInputs};
use crate::sets::{PolicySetKey, PolicySets};
use crate::store::{HolderId, HolderSlot, NamedPolicies, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, Family, ObjectId, Order, Peer, Precedence, Prefix, Protocol,
    Selector, State, Str,
};
use palisade_tables::{Point, PolicySetId};

/// The sort key of a tier; tiers that do not exist come last, by name.
fn tier_rank(state: &State, name: &Str) -> (bool, Order) {
    match state.tier(name) {
        Some(tier) if EngineFault::TierOrderReversed.is_injected() => {
            (true, negate_order(tier.order))
        }
        Some(tier) => (false, tier.order),
        None => (true, Order::Last),
    }
}

fn negate_order(order: Order) -> Order {
    match order {
        Order::At(number) => Order::from_number(-number),
        Order::Last => Order::from_number(f64::NEG_INFINITY),
    }
}

/// These policies in evaluation order: by tier, precedence and name.
pub(crate) fn sort_policies(
    state: &State,
    policies: NamedPolicies<'_>,
    numbers: impl Iterator<Item = PolicyNumber>,
) -> Vec<PolicyNumber> {
    let mut tiers: Vec<(&Str, (bool, Order))> = Vec::new();
    let mut placed: Vec<(usize, Precedence, PolicyNumber)> = Vec::new();
    for number in numbers {
        let Some(body) = policies.body(number) else {
            continue;
        };
        let known = tiers.iter().position(|(name, _)| **name == body.tier);
        let tier = known.unwrap_or_else(|| {
            tiers.push((&body.tier, tier_rank(state, &body.tier)));
            tiers.len() - 1
        });
        let precedence = match EngineFault::PolicyOrderIgnored.is_injected() {
            true => Precedence {
                order: Order::Last,
                rank: u8::MAX - body.precedence.rank,
            },
            false => body.precedence,
        };
        placed.push((tier, precedence, number));
    }
    let place = |tier: usize| tiers.get(tier).map(|(name, place)| (*place, *name));
    placed.sort_unstable_by(|(tier, precedence, number), (other, than, policy)| {
        let tiers = match tier == other {
            true => Ordering::Equal,
            false => place(*tier).cmp(&place(*other)),
        };
        let here = || policies.compare_names(*number, *policy);
        tiers.then(precedence.cmp(than)).then_with(here)
    });
    placed.into_iter().map(|(_, _, number)| number).collect()
}

/// All points.
#[derive(Debug, Default)]
pub(crate) struct JudgementPoints {
    /// The set key of each endpoint at a point. Several endpoints may share a point: the one that
    /// owns the address determines the set, else the first by name.
    claims: BTreeMap<Point, BTreeMap<EndpointId, Arc<PolicySetKey>>>,
    by_endpoint: BTreeMap<EndpointId, (Str, Vec<Point>)>,
    assigned: BTreeMap<Point, PolicySetId>,
    contested: BTreeSet<Point>,
    interfaces: BTreeMap<Str, usize>,
    /// Endpoints with a rule that tests the own address.
    pub(crate) own_address_tested: BTreeSet<EndpointId>,
}

/// Points and interfaces that a recomputation changed.
#[derive(Debug, Default)]
pub(crate) struct PointChanges {
    pub(crate) points: BTreeMap<Point, Option<PolicySetId>>,
    pub(crate) interfaces: BTreeMap<Str, bool>,
}

/// What points are computed from.
#[derive(Clone, Copy)]
pub(crate) struct PointInputs<'a> {
    pub(crate) identity_inputs: IdentityInputs<'a>,
    pub(crate) policies: NamedPolicies<'a>,
    pub(crate) active_policies: &'a ActivePolicies,
    pub(crate) active_rules: &'a ActiveRules,
    pub(crate) identities: &'a Identities,
    /// Whether every endpoint is in audit.
    pub(crate) audit: bool,
}

impl JudgementPoints {
    /// Recomputes the points of these endpoints.
    pub(crate) fn recompute(
        &mut self,
        inputs: PointInputs<'_>,
        endpoints: &BTreeSet<EndpointId>,
        sets: &mut PolicySets,
    ) -> PointChanges {
        let mut changes = PointChanges::default();
        let mut touched = self.contested.clone();
        let mut cache = PointCache::default();
        for id in endpoints {
            self.remove_endpoint(id, &mut touched, &mut changes);
            let endpoint = inputs.identity_inputs.state.endpoints.get(id);
            if let Some(endpoint) = endpoint.filter(|e| is_local(e)) {
                self.add_endpoint(
                    inputs,
                    endpoint,
                    sets,
                    &mut cache,
                    &mut touched,
                    &mut changes,
                );
            }
        }
        for point in touched {
            let set = self
                .select_key(inputs, &point)
                .map(|key| sets.acquire(&key));
            let was = match set {
                Some(set) => self.assigned.insert(point.clone(), set),
                None => self.assigned.remove(&point),
            };
            was.into_iter().for_each(|set| sets.release(set));
            changes.points.insert(point, set);
        }
        for (name, ours) in &mut changes.interfaces {
            *ours = self.interfaces.contains_key(name);
        }
        changes
    }

    fn remove_endpoint(
        &mut self,
        id: &EndpointId,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        self.own_address_tested.remove(id);
        let Some((interface, points)) = self.by_endpoint.remove(id) else {
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

    fn add_endpoint(
        &mut self,
        inputs: PointInputs<'_>,
        endpoint: &Endpoint,
        sets: &PolicySets,
        cache: &mut PointCache,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        let Some(interface) = endpoint.interface.clone() else {
            return;
        };
        *self.interfaces.entry(interface.clone()).or_default() += 1;
        changes.interfaces.insert(interface.clone(), true);
        let selecting = inputs.active_policies.policies_of(&endpoint.id);
        let selecting: Vec<PolicyNumber> = selecting.into_iter().flatten().copied().collect();
        let PointCache { orders, keys } = cache;
        let policies = orders.entry(selecting).or_insert_with_key(|selecting| {
            let numbers = selecting.iter().copied();
            sort_policies(inputs.identity_inputs.state, inputs.policies, numbers)
        });
        let mut points = Vec::new();
        for direction in Direction::BOTH {
            let judging = ApplicableRules::new(inputs, endpoint, policies, direction);
            if judging
                .own_end_references()
                .any(|own| !own.tests.is_empty())
            {
                self.own_address_tested.insert(endpoint.id.clone());
            }
            for address in &endpoint.addresses {
                let point = Point {
                    interface: interface.clone(),
                    address: *address,
                    direction,
                };
                let key = judging.set_key(inputs, *address);
                let known = sets.shared_key(&key).or_else(|| keys.get(&key));
                let key = known.cloned().unwrap_or_else(|| Arc::new(key));
                keys.insert(key.clone());
                let claims = self.claims.entry(point.clone()).or_default();
                claims.insert(endpoint.id.clone(), key);
                if claims.len() > 1 {
                    self.contested.insert(point.clone());
                }
                touched.insert(point.clone());
                points.push(point);
            }
        }
        self.by_endpoint
            .insert(endpoint.id.clone(), (interface, points));
    }

    fn select_key(&self, inputs: PointInputs<'_>, point: &Point) -> Option<Arc<PolicySetKey>> {
        let claims = self.claims.get(point)?;
        let owner = match claims.len() {
            1 => None,
            _ => inputs.identities.owner(point.address),
        };
        let first = || claims.values().next();
        let owner =
            owner.and_then(|slot| inputs.identity_inputs.label_index.store.endpoint_id(slot));
        let key = owner.and_then(|owner| claims.get(&owner)).or_else(first)?;
        Some(key.clone())
    }
}

/// What endpoints of one recomputation have in common.
#[derive(Default)]
struct PointCache {
    /// Policies in evaluation order, by the set of policies.
    orders: BTreeMap<Vec<PolicyNumber>, Vec<PolicyNumber>>,
    keys: BTreeSet<Arc<PolicySetKey>>,
}

/// The rules that apply to one endpoint in one direction.
struct ApplicableRules<'a> {
    endpoint: &'a Endpoint,
    direction: Direction,
    policies: Vec<PolicyNumber>,
    sources: Vec<&'a ResolvedRules>,
}

impl<'a> ApplicableRules<'a> {
    fn new(
        inputs: PointInputs<'a>,
        endpoint: &'a Endpoint,
        policies: &[PolicyNumber],
        direction: Direction,
    ) -> Self {
        let governs = |number: &&PolicyNumber| {
            let rules = inputs.policies.rules(**number);
            rules.is_some_and(|rules| rules.direction(direction).is_some())
        };
        let policies: Vec<PolicyNumber> = policies.iter().filter(governs).copied().collect();
        let active = inputs.active_rules;
        let of_policies = policies.iter().filter_map(|number| active.policy(*number));
        let of_profiles = endpoint
            .profiles
            .iter()
            .filter_map(|name| active.profile(name));
        ApplicableRules {
            sources: of_policies
                .chain(of_profiles)
                .map(|bodies| &**bodies)
                .collect(),
            endpoint,
            direction,
            policies,
        }
    }

    /// What each source refers to at the own end.
    fn own_end_references(&self) -> impl Iterator<Item = &'a OwnEndReferences> {
        let sides = self
            .sources
            .iter()
            .filter_map(|bodies| bodies.direction(self.direction));
        sides.map(|side| &side.own_end)
    }

    fn set_key(&self, inputs: PointInputs<'_>, address: IpAddr) -> PolicySetKey {
        let asked: BTreeSet<&(Str, Protocol)> = self
            .own_end_references()
            .flat_map(|own| &own.ports)
            .collect();
        let number = |(name, protocol): &(Str, Protocol)| {
            let port = self.endpoint.named_port(name, *protocol)?;
            Some((name.clone(), *protocol, port))
        };
        let ports: BTreeSet<(Str, Protocol, u16)> = asked.into_iter().filter_map(number).collect();
        let family = self.own_end_references().any(|own| own.family);
        let family = family.then(|| Family::of(address));
        let tests: Vec<&Peer> = self
            .own_end_references()
            .flat_map(|own| &own.tests)
            .collect();
        let own = match tests.is_empty() {
            true => Vec::new(),
            false => {
                let holders = address_holders(inputs, address);
                let holds = |own: &&Peer| {
                    own_address_matches(inputs.identity_inputs, own, address, &holders)
                };
                tests.iter().map(holds).collect()
            }
        };
        let store = &inputs.identity_inputs.label_index.store;
        let audited = inputs.audit || store.is_in_audit(self.endpoint);
        PolicySetKey {
            direction: self.direction,
            audit: audited && !EngineFault::EndpointAuditIgnored.is_injected(),
            policies: self.policies.clone(),
            profiles: self.endpoint.profiles.clone(),
            own_tests: own,
            ports: ports.into_iter().collect(),
            family,
        }
    }
}

/// All holders of an address.
fn address_holders(inputs: PointInputs<'_>, address: IpAddr) -> Vec<HolderSlot> {
    let identity_inputs = inputs.identity_inputs;
    let owner = inputs.identities.owner(address);
    let nodes = inputs.identities.nodes_at(address).iter();
    let sets = identity_inputs.state.network_sets.values();
    let slot = |id: &ObjectId| {
        let id = HolderId::NetworkSet(id.clone());
        identity_inputs.label_index.store.find(&id)
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

fn own_address_matches(
    inputs: IdentityInputs<'_>,
    own: &Peer,
    address: IpAddr,
    holders: &[HolderSlot],
) -> bool {
    let any = |selector: &Selector| {
        let mut holders = holders.iter();
        holders.any(|slot| inputs.label_index.matches(*slot, selector))
    };
    let within = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
    EngineFault::OwnAddressIgnored.is_injected()
        || own.selector.as_ref().is_none_or(any)
            && !own.not_selector.as_ref().is_some_and(any)
            && own.nets.as_ref().is_none_or(|nets| within(nets))
            && !within(&own.not_nets)
}
