//! Status queries: address conflicts, missing references, counts, identities, applied policies.
//!
//! Everything is computed from the objects and the tables on request; nothing is stored.

use crate::Engine;
use crate::address_owner_labels::AddressOwnerLabels;
use crate::applicable_rules::sort_policies;
use crate::identities::IdentityKey;
use crate::store::{AddressOwnerId, AddressOwnerSlot};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, NetworkSetKind, ObjectId, Order, Policy, PolicyId, Prefix,
    Profile, Protocol, Selector, Str, Tier, TierDefault,
};
use palisade_tables::{IdentityId, Point, PolicySetId};

/// An address that several live endpoints claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The address.
    pub address: IpAddr,
    /// The endpoint that owns it.
    pub owner: EndpointId,
    /// The other claimants, by name.
    pub others: Vec<EndpointId>,
}

/// Numbers of objects, table entries and interned values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field counts what it names")]
pub struct EngineCounts {
    pub policies: usize,
    pub identities: usize,
    /// Entries of the address table.
    pub addresses: usize,
    pub policy_sets: usize,
    /// Entries of the class table.
    pub class_entries: usize,
    pub classes: usize,
    /// Dataplane elements of policy sets: entries of the class table, and elements of programs.
    pub elements: usize,
    /// Interned policy bodies: policies without names, namespaces and lines.
    pub policy_bodies: usize,
    /// All else that is kept for objects: owners, local endpoints, active policies, points, selectors,
    /// signatures, causes, and interned parts of owners and policies.
    pub others: usize,
}

/// What is in audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Policies in audit by themselves, each part of one counted as a policy.
    pub policies: usize,
    /// Namespaces in audit.
    pub namespaces: usize,
    /// Endpoints attached to this host that are in audit, for whatever reason.
    pub endpoints: usize,
}

/// References to objects that do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReferences {
    /// Tiers that policies name: such policies apply in a tier of that name, after all other tiers.
    pub tiers: BTreeMap<Str, Vec<PolicyId>>,
    /// Profiles that local endpoints name: a missing profile denies.
    pub profiles: BTreeMap<Str, Vec<EndpointId>>,
}

/// A tier that has policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSummary {
    /// The tier. For one that does not exist: order `Last`, default `Deny`.
    pub tier: Tier,
    /// Whether it does not exist and is only named by policies.
    pub missing: bool,
    /// Number of its policies, each part of one counted as a policy.
    pub policies: usize,
}

/// A policy that applies to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// The policy's tier.
    pub tier: Str,
    /// The policy's order in the tier.
    pub order: Order,
    /// The policy.
    pub policy: PolicyId,
    /// Whether it governs ingress of the endpoint.
    pub ingress: bool,
    /// Whether it governs egress of the endpoint.
    pub egress: bool,
}

/// An identity, and what distinguishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityView {
    /// Its number.
    pub id: IdentityId,
    /// The entries of the address table with this identity.
    pub members: Vec<Prefix>,
    /// The active selectors it matches.
    pub selectors: Vec<Selector>,
    /// The longest network of an active rule that contains its addresses.
    pub net: Option<Prefix>,
    /// The numbers of the named ports that active rules use.
    pub ports: Vec<(Str, Protocol, u16)>,
}

impl Engine {
    /// Addresses that several live endpoints claim, in order.
    pub fn address_conflicts(&self) -> Vec<AddressConflict> {
        let graph = &self.graph;
        let name = |slot: &AddressOwnerSlot| graph.objects.store.endpoint_id(*slot);
        let contested = graph.identities.contested();
        contested
            .filter_map(|(address, claimants)| {
                let owner = name(&graph.identities.owner(address)?)?;
                let mut others: Vec<EndpointId> = claimants.iter().filter_map(name).collect();
                others.retain(|id| *id != owner);
                others.sort();
                Some(AddressConflict {
                    address,
                    owner,
                    others,
                })
            })
            .collect()
    }

    /// Numbers of objects, table entries and interned values.
    pub fn counts(&self) -> EngineCounts {
        let graph = &self.graph;
        let store = &graph.objects.store;
        let [kinds, subjects, rules, policy_bodies] = graph.objects.policies.pool_sizes();
        let identities: BTreeSet<IdentityId> = graph.desired.addresses.values().copied().collect();
        let others = [
            store.len(),
            store.pool_sizes().iter().sum(),
            graph.objects.state.endpoints.len(),
            graph.active.policies.active_count(),
            graph.desired.points.len(),
            graph.active.selectors.iter().count(),
            graph.active.label_index.signatures(),
            graph.classes.causes.len(),
            kinds + subjects + rules,
        ];
        EngineCounts {
            policies: graph.objects.policies.len(),
            identities: identities.len(),
            addresses: graph.desired.addresses.len(),
            policy_sets: graph.desired.sets.len(),
            class_entries: graph.desired.classes.len(),
            classes: graph.desired.programs.len(),
            elements: graph.elements(),
            policy_bodies,
            others: others.iter().sum(),
        }
    }

    /// What is in audit. The time depends on the endpoints of this host alone.
    pub fn audit_counts(&self) -> AuditCounts {
        let graph = &self.graph;
        let endpoints = self.local_endpoints();
        let endpoints = endpoints.filter(|endpoint| graph.is_in_audit(endpoint));
        AuditCounts {
            policies: graph.objects.policies.audit_count(),
            namespaces: graph.objects.store.audited_namespaces(),
            endpoints: endpoints.count(),
        }
    }

    /// References to missing objects: of policies to tiers, and of local endpoints to profiles.
    pub fn missing_references(&self) -> MissingReferences {
        let mut missing = MissingReferences::default();
        let policies = self.graph.objects.named_policies();
        for number in policies.numbers() {
            let tier = policies.body(number).map(|body| &body.tier);
            if let Some(tier) = tier.filter(|tier| self.graph.objects.state.tier(tier).is_none())
                && let Some(id) = policies.id(number)
            {
                missing.tiers.entry(tier.clone()).or_default().push(id);
            }
        }
        missing
            .tiers
            .values_mut()
            .for_each(|policies| policies.sort());
        for endpoint in self.local_endpoints() {
            for profile in &endpoint.profiles {
                let builtin = **profile == *Profile::ALLOW_ALL;
                if !builtin && !self.graph.objects.state.profiles.contains_key(profile) {
                    let endpoints = missing.profiles.entry(profile.clone()).or_default();
                    endpoints.push(endpoint.id.clone());
                }
            }
        }
        missing
    }

    /// The tiers that have policies, in order of evaluation. The time depends on the number of policies.
    pub fn tiers(&self) -> Vec<TierSummary> {
        let policies = self.graph.objects.named_policies();
        let mut counts: BTreeMap<&Str, usize> = BTreeMap::new();
        for body in policies
            .numbers()
            .filter_map(|number| policies.body(number))
        {
            *counts.entry(&body.tier).or_default() += 1;
        }
        let summary = |(name, policies): (&Str, usize)| {
            let tier = self.graph.objects.state.tier(name);
            TierSummary {
                missing: tier.is_none(),
                tier: tier.unwrap_or_else(|| Tier {
                    name: name.clone(),
                    order: Order::Last,
                    default: TierDefault::Deny,
                }),
                policies,
            }
        };
        let mut tiers: Vec<TierSummary> = counts.into_iter().map(summary).collect();
        // By name already.
        tiers.sort_by_key(|summary| (summary.missing, summary.tier.order));
        tiers
    }

    /// The endpoints attached to this host, by name.
    pub fn local_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.graph.objects.state.endpoints.values()
    }

    /// The policies that select an endpoint, in evaluation order. Empty if the endpoint does not
    /// exist.
    pub fn policies_of(&self, endpoint: &EndpointId) -> Vec<AppliedPolicy> {
        let state = &self.graph.objects.state;
        let store = &self.graph.objects.store;
        let Some(labels) = AddressOwnerLabels::endpoint(store, endpoint) else {
            return Vec::new();
        };
        let policies = self.graph.objects.named_policies();
        let selecting = policies.numbers();
        let selecting = selecting.filter(|number| policies.selects(*number, &labels));
        sort_policies(state, policies, selecting)
            .into_iter()
            .filter_map(|number| {
                let (body, rules) = (policies.body(number)?, policies.rules(number)?);
                Some(AppliedPolicy {
                    tier: body.tier.clone(),
                    order: body.precedence.order,
                    policy: policies.id(number)?,
                    ingress: rules.direction(Direction::Ingress).is_some(),
                    egress: rules.direction(Direction::Egress).is_some(),
                })
            })
            .collect()
    }

    /// The local endpoints that a policy selects, by name.
    pub fn selected_endpoints(&self, policy: &PolicyId) -> Vec<&EndpointId> {
        let number = self.graph.objects.named_policies().find(policy);
        let numbers = number.into_iter();
        numbers
            .flat_map(|number| self.graph.active.policies.endpoints_selected_by(number))
            .collect()
    }

    /// The object of every policy, with its resource if it is of a server; one of several parts comes several times.
    pub fn policy_objects(&self) -> Vec<(ObjectId, Option<Str>)> {
        let policies = self.graph.objects.named_policies();
        let row = |number| {
            Some((
                policies.id(number)?.object,
                policies.resource(number).cloned(),
            ))
        };
        policies.numbers().filter_map(row).collect()
    }

    /// All policies, in evaluation order.
    pub fn ordered_policies(&self) -> Vec<Policy> {
        let policies = self.graph.objects.named_policies();
        let numbers =
            sort_policies(&self.graph.objects.state, policies, policies.numbers()).into_iter();
        numbers.filter_map(|number| policies.get(number)).collect()
    }

    /// The policy set that judges each of an endpoint's addresses in each direction.
    pub fn points_of(&self, endpoint: &EndpointId) -> Vec<(Point, PolicySetId)> {
        let Some(endpoint) = self.graph.objects.state.endpoints.get(endpoint) else {
            return Vec::new();
        };
        let Some(interface) = &endpoint.interface else {
            return Vec::new();
        };
        if endpoint.is_host() {
            return self.graph.host_points_of(&endpoint.id);
        }
        let mut points = Vec::new();
        for address in &endpoint.addresses {
            for direction in Direction::BOTH {
                let point = Point::of_workload(interface.clone(), *address, direction);
                if let Some(set) = self.graph.desired.points.get(&point) {
                    points.push((point, *set));
                }
            }
        }
        points
    }

    /// The policies of an endpoint's policy set of a direction, if that set is closed because it
    /// would exceed a limit.
    pub fn closed_policies(
        &self,
        endpoint: &EndpointId,
        direction: Direction,
    ) -> Option<Vec<PolicyId>> {
        let points = self.points_of(endpoint).into_iter();
        let mut sets = points.filter(|(point, _)| point.direction == direction);
        sets.find_map(|(_, set)| self.graph.closed_policies(set))
    }

    /// All identities with their members and keys, by number.
    pub fn identities(&self) -> Vec<IdentityView> {
        let mut members: BTreeMap<IdentityId, Vec<Prefix>> = BTreeMap::new();
        for (prefix, identity) in self.graph.desired.addresses.iter() {
            members.entry(*identity).or_default().push(prefix);
        }
        let graph = &self.graph;
        let view = |(number, key): (IdentityId, &IdentityKey)| {
            let selectors = key.selectors.iter();
            Some(IdentityView {
                id: number,
                members: members.remove(&number)?,
                selectors: selectors
                    .filter_map(|s| graph.active.selectors.get(*s).cloned())
                    .collect(),
                net: key.net,
                ports: key.ports.clone(),
            })
        };
        graph.identities.keys().filter_map(view).collect()
    }

    /// The endpoint that owns an address.
    pub fn address_owner(&self, address: IpAddr) -> Option<EndpointId> {
        let slot = self.graph.identities.owner(address)?;
        self.graph.objects.store.endpoint_id(slot)
    }

    /// A node that has an address; of several the first by name.
    pub fn node_at(&self, address: IpAddr) -> Option<Str> {
        let graph = &self.graph;
        let nodes = graph.identities.nodes_at(address).iter();
        let names = nodes.filter_map(|slot| match graph.objects.store.id(*slot)? {
            AddressOwnerId::Node(name) => Some(name),
            AddressOwnerId::Endpoint(_) | AddressOwnerId::NetworkSet(_) => None,
        });
        names.min()
    }

    /// The domain names, as far as rules have them, whose answers had an address; in the order of their names.
    pub fn domain_names_at(&self, address: IpAddr) -> Vec<Str> {
        let graph = &self.graph;
        let sets = graph.identities.network_sets_at(address);
        let names = sets.filter_map(|slot| match graph.objects.store.id(slot)? {
            AddressOwnerId::NetworkSet(id) => {
                let set = graph.objects.state.network_sets.get(&id)?;
                (set.kind == NetworkSetKind::DomainName).then_some(id.name)
            }
            AddressOwnerId::Endpoint(_) | AddressOwnerId::Node(_) => None,
        });
        let names: BTreeSet<Str> = names.collect();
        names.into_iter().collect()
    }
}
