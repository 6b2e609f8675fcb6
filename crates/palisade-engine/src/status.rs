//! What people ask about the graph: conflicts, gaps, counts, identities, applied policies.
//!
//! Everything here is read from the objects and the tables when it is asked for; nothing is kept.

use crate::Engine;
use crate::holders::What;
use crate::identities::IdentityKey;
use crate::labels::Seen;
use crate::points::ordered;
use crate::policies::PolicyNumber;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, Policy, PolicyId, Prefix, Profile, Protocol, Selector, Str,
};
use palisade_tables::{IdentityId, Point, SetId};

/// An address that several live endpoints claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Who holds it.
    pub owner: EndpointId,
    /// Who else claims it, by name.
    pub others: Vec<EndpointId>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field counts the things of its name")]
pub struct Counts {
    pub endpoints: usize,
    pub local_endpoints: usize,
    pub policies: usize,
    /// Policies that select a local endpoint.
    pub active_policies: usize,
    pub identities: usize,
    /// Entries of the address table.
    pub addresses: usize,
    pub points: usize,
    pub policy_sets: usize,
    /// Entries of the class table.
    pub class_entries: usize,
    pub classes: usize,
    /// What policy sets take of a dataplane: entries of the class table, and elements of programs.
    pub elements: usize,
    /// Selectors that active rules ask for.
    pub selectors: usize,
    /// Kinds of labels that active selectors can tell apart.
    pub signatures: usize,
    /// Things that can hold an address: endpoints, network sets, nodes.
    pub holders: usize,
    /// Slots of holders, and what they share: names, lists of label keys, other properties.
    pub holder_parts: usize,
    /// What a policy set or a program credits.
    pub rules: usize,
    /// What policies say, apart from their names, namespaces and lines: those that say the same are
    /// kept once.
    pub policy_forms: usize,
    /// Names and subjects of policies, each kept once.
    pub policy_texts: usize,
}

/// References to objects that are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReferences {
    /// Tiers that policies name: such policies apply in a tier of that name after all others.
    pub tiers: BTreeMap<Str, Vec<PolicyId>>,
    /// Profiles that local endpoints name: they deny.
    pub profiles: BTreeMap<Str, Vec<EndpointId>>,
}

/// A policy that judges an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// The tier it stands in.
    pub tier: Str,
    /// The policy.
    pub policy: PolicyId,
    /// Whether it has ingress rules for the endpoint.
    pub ingress: bool,
    /// Whether it has egress rules for the endpoint.
    pub egress: bool,
}

/// An identity, and what sets it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityView {
    /// Its number.
    pub id: IdentityId,
    /// The entries of the address table that have it.
    pub members: Vec<Prefix>,
    /// The active selectors it matches.
    pub selectors: Vec<Selector>,
    /// The longest network of an active rule that holds its addresses.
    pub net: Option<Prefix>,
    /// The numbers behind the named ports that active rules ask for.
    pub ports: Vec<(Str, Protocol, u16)>,
}

impl Engine {
    /// Addresses that several live endpoints claim, in order.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let graph = &self.graph;
        let name = |slot: &u32| graph.holders.columns.endpoint_id(*slot);
        let contested = graph.identities.contested();
        contested
            .filter_map(|(address, claimants)| {
                let owner = name(&graph.identities.owner(address)?)?;
                let mut others: Vec<EndpointId> = claimants.iter().filter_map(name).collect();
                others.retain(|id| *id != owner);
                others.sort();
                Some(Conflict {
                    address,
                    owner,
                    others,
                })
            })
            .collect()
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let local = self.local_endpoints();
        let [names, kinds, subjects, policy_forms] = self.graph.policies.kept();
        let identities: BTreeSet<IdentityId> =
            self.graph.wanted.addresses.values().copied().collect();
        Counts {
            endpoints: self.graph.holders.columns.count(What::Endpoint),
            local_endpoints: local.count(),
            policies: self.graph.policies.len(),
            active_policies: self.graph.activity.active(),
            identities: identities.len(),
            addresses: self.graph.wanted.addresses.len(),
            points: self.graph.wanted.points.len(),
            policy_sets: self.graph.wanted.sets.len(),
            class_entries: self.graph.wanted.classes.len(),
            classes: self.graph.wanted.programs.len(),
            elements: self.graph.elements(),
            selectors: self.graph.selectors.iter().count(),
            signatures: self.graph.holders.signatures(),
            holders: self.graph.holders.columns.len(),
            holder_parts: self.graph.holders.columns.kept().iter().sum(),
            rules: self.graph.credits.len(),
            policy_forms,
            policy_texts: names + kinds + subjects,
        }
    }

    /// References of policies to tiers, and of local endpoints to profiles, that are not there.
    pub fn missing(&self) -> MissingReferences {
        let mut missing = MissingReferences::default();
        let policies = &self.graph.policies;
        for number in policies.numbers() {
            let tier = policies.said(number).map(|said| &said.tier);
            if let Some(tier) = tier.filter(|tier| self.graph.state.tier(tier).is_none())
                && let Some(id) = policies.id(number)
            {
                missing.tiers.entry(tier.clone()).or_default().push(id);
            }
        }
        missing.tiers.values_mut().for_each(|of| of.sort());
        for endpoint in self.local_endpoints() {
            for profile in &endpoint.profiles {
                let builtin = **profile == *Profile::ALLOW_ALL;
                if !builtin && !self.graph.state.profiles.contains_key(profile) {
                    let of = missing.profiles.entry(profile.clone()).or_default();
                    of.push(endpoint.id.clone());
                }
            }
        }
        missing
    }

    /// The endpoints attached to this host, by name.
    pub fn local_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.graph.state.endpoints.values()
    }

    /// The policies that select an endpoint, in the order in which they decide. Empty for an endpoint
    /// that is not there.
    pub fn policies_of(&self, endpoint: &EndpointId) -> Vec<AppliedPolicy> {
        let state = &self.graph.state;
        let columns = &self.graph.holders.columns;
        let Some(labels) = Seen::endpoint(columns, endpoint) else {
            return Vec::new();
        };
        let policies = &self.graph.policies;
        let selecting = policies.numbers();
        let selecting = selecting.filter(|number| policies.selects(*number, &labels));
        ordered(state, policies, selecting)
            .into_iter()
            .filter_map(|number| {
                let said = policies.said(number)?;
                Some(AppliedPolicy {
                    tier: said.tier.clone(),
                    policy: policies.id(number)?,
                    ingress: said.rules(Direction::Ingress).is_some(),
                    egress: said.rules(Direction::Egress).is_some(),
                })
            })
            .collect()
    }

    /// The local endpoints that a policy selects, by name.
    pub fn endpoints_of(&self, policy: &PolicyId) -> Vec<&EndpointId> {
        let number = self.graph.policies.number(policy);
        let of = number.into_iter();
        of.flat_map(|number| self.graph.activity.selected_by(number))
            .collect()
    }

    /// The policies that select a local endpoint, in the order in which they decide.
    pub fn active_policies(&self) -> Vec<Policy> {
        self.ordered(|number| self.graph.activity.is_active(number))
    }

    /// Every policy, in the order in which they decide.
    pub fn ordered_policies(&self) -> Vec<Policy> {
        self.ordered(|_| true)
    }

    fn ordered(&self, keep: impl Fn(PolicyNumber) -> bool) -> Vec<Policy> {
        let policies = &self.graph.policies;
        let kept = policies.numbers().filter(|number| keep(*number));
        let numbers = ordered(&self.graph.state, policies, kept).into_iter();
        numbers.filter_map(|number| policies.get(number)).collect()
    }

    /// The policy set that judges each of an endpoint's addresses in each direction.
    pub fn points_of(&self, endpoint: &EndpointId) -> Vec<(Point, SetId)> {
        let Some(endpoint) = self.graph.state.endpoints.get(endpoint) else {
            return Vec::new();
        };
        let Some(interface) = &endpoint.interface else {
            return Vec::new();
        };
        let mut points = Vec::new();
        for address in &endpoint.addresses {
            for direction in Direction::BOTH {
                let point = Point {
                    interface: interface.clone(),
                    address: *address,
                    direction,
                };
                if let Some(set) = self.graph.wanted.points.get(&point) {
                    points.push((point, *set));
                }
            }
        }
        points
    }

    /// The policies of an endpoint's policy set of a direction, where that is closed because it would
    /// take too much.
    pub fn closed_policies(
        &self,
        endpoint: &EndpointId,
        direction: Direction,
    ) -> Option<Vec<PolicyId>> {
        let points = self.points_of(endpoint).into_iter();
        let mut sets = points.filter(|(point, _)| point.direction == direction);
        sets.find_map(|(_, set)| self.graph.closed_policies(set))
    }

    /// Every identity with its members and what sets it apart, by number.
    pub fn identities(&self) -> Vec<IdentityView> {
        let mut members: BTreeMap<u32, Vec<Prefix>> = BTreeMap::new();
        for (prefix, identity) in &self.graph.wanted.addresses {
            members.entry(identity.0).or_default().push(*prefix);
        }
        let graph = &self.graph;
        let view = |(number, key): (u32, &IdentityKey)| {
            let selectors = key.selectors.iter();
            Some(IdentityView {
                id: IdentityId(number),
                members: members.remove(&number)?,
                selectors: selectors
                    .filter_map(|s| graph.selectors.get(*s).cloned())
                    .collect(),
                net: key.net,
                ports: key.ports.clone(),
            })
        };
        graph.identities.keys().filter_map(view).collect()
    }

    /// Who holds an address among endpoints.
    pub fn owner(&self, address: IpAddr) -> Option<EndpointId> {
        let slot = self.graph.identities.owner(address)?;
        self.graph.holders.columns.endpoint_id(slot)
    }
}
