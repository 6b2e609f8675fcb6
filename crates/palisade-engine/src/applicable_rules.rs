//! The rules that apply to one endpoint, and the key of the policy set that they make.
//!
//! References to the endpoint's local end are resolved here: applicable policies and their order, own named ports, own
//! address and family as far as rules test them.

use crate::active_policies::ActivePolicies;
use crate::active_rules::{ActiveRules, LocalEndReferences, ResolvedRules};
use crate::address_owner_labels::AddressOwnerLabels;
use crate::faults::EngineFault;
use crate::identities::{Identities, IdentityInputs};
use crate::judged_traffic::JudgedTraffic;
use crate::sets::PolicySetKey;
use crate::store::{AddressOwnerId, AddressOwnerSlot, NamedPolicies, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, Family, ObjectId, Order, Peer, PolicyStage, Precedence, Prefix, Protocol,
    Selector, State, Str, TrafficScope,
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
    let mut ranked: Vec<(usize, Precedence, PolicyNumber)> = Vec::new();
    for number in numbers {
        let Some(body) = policies.body(number) else {
            continue;
        };
        let known = tiers.iter().position(|(name, _)| **name == body.tier);
        let tier = known.unwrap_or_else(|| {
            tiers.push((&body.tier, tier_rank(state, &body.tier)));
            tiers.len() - 1
        });
        let precedence = if EngineFault::PolicyOrderIgnored.is_injected() {
            Precedence {
                order: Order::Last,
                rank: u8::MAX - body.precedence.rank,
            }
        } else {
            body.precedence
        };
        ranked.push((tier, precedence, number));
    }
    let rank = |tier: usize| tiers.get(tier).map(|(name, rank)| (*rank, *name));
    ranked.sort_unstable_by(|(tier, precedence, number), (other, than, policy)| {
        let tiers = if tier == other {
            Ordering::Equal
        } else {
            rank(*tier).cmp(&rank(*other))
        };
        let here = || policies.compare_names(*number, *policy);
        tiers.then(precedence.cmp(than)).then_with(here)
    });
    ranked.into_iter().map(|(_, _, number)| number).collect()
}

/// Points and interfaces that a recomputation changed.
#[derive(Debug, Default)]
pub(crate) struct PointChanges {
    pub(crate) points: BTreeMap<Point, Option<PolicySetId>>,
    pub(crate) interfaces: BTreeMap<Str, bool>,
    pub(crate) host_interfaces: BTreeMap<Str, bool>,
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
    /// Whether the policies whose kind judges hairpin traffic do.
    pub(crate) judges_hairpin_by_kind: bool,
}

/// The rules that apply to some traffic of one endpoint in one direction.
pub(crate) struct ApplicableRules<'a> {
    endpoint: &'a Endpoint,
    traffic: JudgedTraffic,
    direction: Direction,
    policies: Vec<PolicyNumber>,
    sources: Vec<&'a ResolvedRules>,
}

impl<'a> ApplicableRules<'a> {
    pub(crate) fn new(
        inputs: PointInputs<'a>,
        endpoint: &'a Endpoint,
        policies: &[PolicyNumber],
        (traffic, direction): (JudgedTraffic, Direction),
    ) -> Self {
        let stage = traffic.host_stage().unwrap_or(PolicyStage::Normal);
        let is_of_hairpin = |scope: TrafficScope| {
            scope.has_hairpin() || EngineFault::HairpinJudgedByAll.is_injected()
        };
        let is_ignored =
            stage == PolicyStage::Forward && EngineFault::ForwardFlagIgnored.is_injected();
        let governs = |number: &&PolicyNumber| {
            let rules = inputs.policies.rules(**number);
            let body = inputs.policies.body(**number);
            rules.is_some_and(|rules| rules.direction(direction).is_some())
                && body.is_some_and(|body| {
                    (body.scope.has_stage(stage) || is_ignored && !body.scope.is_early())
                        && (traffic != JudgedTraffic::Hairpin || is_of_hairpin(body.scope))
                })
        };
        let policies: Vec<PolicyNumber> = policies.iter().filter(governs).copied().collect();
        let active = inputs.active_rules;
        let of_policies = policies.iter().filter_map(|number| active.policy(*number));
        let profiles = if traffic.has_profiles() {
            &endpoint.profiles
        } else {
            &[][..]
        };
        let of_profiles = profiles.iter().filter_map(|name| active.profile(name));
        ApplicableRules {
            traffic,
            sources: of_policies
                .chain(of_profiles)
                .map(|bodies| &**bodies)
                .collect(),
            endpoint,
            direction,
            policies,
        }
    }

    /// Whether no policy applies.
    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// What each source refers to at the local end.
    pub(crate) fn local_end_references(&self) -> impl Iterator<Item = &'a LocalEndReferences> {
        let sides = self
            .sources
            .iter()
            .filter_map(|bodies| bodies.direction(self.direction));
        sides.map(|side| &side.local_end)
    }

    pub(crate) fn set_key(&self, inputs: PointInputs<'_>, address: IpAddr) -> PolicySetKey {
        let mut tests = self.local_tests().peekable();
        let own = match tests.peek() {
            None => Vec::new(),
            Some(_) => {
                let owners = owners_at(inputs, address);
                let holds = |own: &Peer| {
                    local_address_matches(inputs.identity_inputs, own, address, &owners)
                };
                tests.map(holds).collect()
            }
        };
        let port = |name: &str, protocol| self.endpoint.named_port(name, protocol);
        self.set_key_of(inputs, Family::of(address), own, port)
    }

    /// The tests of the local address, in the order of the rules.
    pub(crate) fn local_tests(&self) -> impl Iterator<Item = &'a Peer> {
        self.local_end_references().flat_map(|own| &own.tests)
    }

    /// The set's key where the local end has this family, these results of the tests of its address, and these named
    /// ports.
    pub(crate) fn set_key_of(
        &self,
        inputs: PointInputs<'_>,
        family: Family,
        local_tests: Vec<bool>,
        port: impl Fn(&str, Protocol) -> Option<u16>,
    ) -> PolicySetKey {
        let asked: BTreeSet<&(Str, Protocol)> = self
            .local_end_references()
            .flat_map(|own| &own.ports)
            .collect();
        let number = |(name, protocol): &(Str, Protocol)| {
            Some((name.clone(), *protocol, port(name, *protocol)?))
        };
        let ports: BTreeSet<(Str, Protocol, u16)> = asked.into_iter().filter_map(number).collect();
        let is_tested = self.local_end_references().any(|own| own.family);
        let store = &inputs.identity_inputs.store;
        let audited = inputs.audit || store.is_in_audit(self.endpoint);
        PolicySetKey {
            direction: self.direction,
            traffic: self.traffic,
            audit: audited && !EngineFault::EndpointAuditIgnored.is_injected(),
            policies: self.policies.clone(),
            profiles: if self.traffic.has_profiles() {
                self.endpoint.profiles.clone()
            } else {
                Vec::new()
            },
            local_tests,
            ports: ports.into_iter().collect(),
            family: is_tested.then_some(family),
        }
    }
}

/// All owners of an address.
fn owners_at(inputs: PointInputs<'_>, address: IpAddr) -> Vec<AddressOwnerSlot> {
    let identity_inputs = inputs.identity_inputs;
    let owner = inputs.identities.owner(address);
    let nodes = inputs.identities.nodes_at(address).iter();
    let sets = identity_inputs.state.network_sets.values();
    let slot = |id: &ObjectId| {
        let id = AddressOwnerId::NetworkSet(id.clone());
        identity_inputs.store.find(&id)
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

pub(crate) fn local_address_matches(
    inputs: IdentityInputs<'_>,
    own: &Peer,
    address: IpAddr,
    owners: &[AddressOwnerSlot],
) -> bool {
    let any = |selector: &Selector| {
        let mut owners = owners.iter();
        owners.any(|slot| AddressOwnerLabels::matches(inputs.store, *slot, selector))
    };
    let within = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
    EngineFault::OwnAddressIgnored.is_injected()
        || own.selector.as_ref().is_none_or(any)
            && !own.not_selector.as_ref().is_some_and(any)
            && own.nets.as_ref().is_none_or(|nets| within(nets))
            && !within(&own.not_nets)
}
