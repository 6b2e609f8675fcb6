//! What people ask about the graph: conflicts, gaps, counts, identities, applied policies.
//!
//! Everything here is read from the objects and the tables when it is asked for; nothing is kept.

use crate::Engine;
use crate::desired;
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
        let mut claims: BTreeMap<IpAddr, BTreeSet<&EndpointId>> = BTreeMap::new();
        for endpoint in self.state.endpoints.values().filter(|e| !e.template) {
            for address in &endpoint.addresses {
                claims.entry(*address).or_default().insert(&endpoint.id);
            }
        }
        let contested = claims.into_iter().filter(|(_, who)| who.len() > 1);
        contested
            .filter_map(|(address, who)| {
                let owner = &self.owners.get(&address)?.0;
                Some(Conflict {
                    address,
                    owner: owner.clone(),
                    others: who.into_iter().filter(|id| *id != owner).cloned().collect(),
                })
            })
            .collect()
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let local = self.local_endpoints();
        let identities: BTreeSet<IdentityId> = self.tables.addresses.values().copied().collect();
        Counts {
            endpoints: self.state.endpoints.len(),
            local_endpoints: local.count(),
            policies: self.state.policies.len(),
            active_policies: self.active_policies().len(),
            identities: identities.len(),
            addresses: self.tables.addresses.len(),
            points: self.tables.points.len(),
            policy_sets: self.tables.sets.len(),
            class_entries: self.tables.classes.len(),
            classes: self.tables.programs.len(),
        }
    }

    /// References of policies to tiers, and of local endpoints to profiles, that are not there.
    pub fn missing(&self) -> MissingReferences {
        let mut missing = MissingReferences::default();
        for policy in self.state.policies.values() {
            if self.state.tier(&policy.tier).is_none() {
                let of = missing.tiers.entry(policy.tier.clone()).or_default();
                of.push(policy.id.clone());
            }
        }
        for endpoint in self.local_endpoints() {
            for profile in &endpoint.profiles {
                let builtin = **profile == *Profile::ALLOW_ALL;
                if !builtin && !self.state.profiles.contains_key(profile) {
                    let of = missing.profiles.entry(profile.clone()).or_default();
                    of.push(endpoint.id.clone());
                }
            }
        }
        missing
    }

    /// The endpoints attached to this host, by name.
    pub fn local_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.state
            .endpoints
            .values()
            .filter(|e| e.interface.is_some() && !e.template)
    }

    /// The policies that judge an endpoint, in the order in which they decide. Empty for an endpoint
    /// that is not there.
    pub fn policies_of(&self, endpoint: &EndpointId) -> Vec<AppliedPolicy> {
        let Some(endpoint) = self.state.endpoints.get(endpoint) else {
            return Vec::new();
        };
        let labels = self.state.endpoint_labels(endpoint);
        desired::ordered_policies(&self.state)
            .into_iter()
            .filter(|policy| policy.subject.matches(&labels))
            .map(|policy| AppliedPolicy {
                tier: policy.tier.clone(),
                policy: policy.id.clone(),
                ingress: policy.ingress.is_some(),
                egress: policy.egress.is_some(),
            })
            .collect()
    }

    /// The local endpoints that a policy selects, by name.
    pub fn endpoints_of(&self, policy: &PolicyId) -> Vec<&EndpointId> {
        let Some(policy) = self.state.policies.get(policy) else {
            return Vec::new();
        };
        self.local_endpoints()
            .filter(|e| policy.subject.matches(&self.state.endpoint_labels(e)))
            .map(|e| &e.id)
            .collect()
    }

    /// The policies that select a local endpoint, in the order in which they decide.
    pub fn active_policies(&self) -> Vec<&Policy> {
        let labels: Vec<_> = self
            .local_endpoints()
            .map(|e| self.state.endpoint_labels(e))
            .collect();
        desired::ordered_policies(&self.state)
            .into_iter()
            .filter(|policy| labels.iter().any(|l| policy.subject.matches(l)))
            .collect()
    }

    /// The policy set that judges each of an endpoint's addresses in each direction.
    pub fn points_of(&self, endpoint: &EndpointId) -> Vec<(Point, SetId)> {
        let Some(endpoint) = self.state.endpoints.get(endpoint) else {
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
                if let Some(set) = self.tables.points.get(&point) {
                    points.push((point, *set));
                }
            }
        }
        points
    }

    /// Every identity with its members and what sets it apart, by number.
    pub fn identities(&self) -> Vec<IdentityView> {
        let mut members: BTreeMap<u32, Vec<Prefix>> = BTreeMap::new();
        for (prefix, identity) in &self.tables.addresses {
            members.entry(identity.0).or_default().push(*prefix);
        }
        let names: BTreeMap<u32, &Selector> = self
            .registry
            .selectors
            .iter()
            .map(|(selector, number)| (number, selector))
            .collect();
        let mut views: Vec<IdentityView> = self
            .registry
            .identities
            .iter()
            .filter_map(|(key, number)| {
                let selectors = key.selectors.iter().filter_map(|s| names.get(s));
                Some(IdentityView {
                    id: IdentityId(number),
                    members: members.remove(&number)?,
                    selectors: selectors.map(|s| (*s).clone()).collect(),
                    net: key.net,
                    ports: key.ports.clone(),
                })
            })
            .collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// Who holds an address among endpoints.
    pub fn owner(&self, address: IpAddr) -> Option<&EndpointId> {
        self.owners.get(&address).map(|(id, _)| id)
    }
}
