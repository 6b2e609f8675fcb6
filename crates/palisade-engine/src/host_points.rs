//! Points of host interfaces: which policy set judges a local address at an interface of this host.
//!
//! Of the host endpoints for one interface the first by name governs it, that of the node only if there is no other. At
//! each stage but the normal one there is a point only where a policy of the stage selects the endpoint; to and from the
//! host there always is, but for the endpoint of a node, which nothing judges where no policy selects it. Where a rule
//! tests the local end, there is a point for each network or address at which it may decide otherwise than at the one
//! above; elsewhere one for each family.
//!
//! Rules that test the local end of a host endpoint cost a pass over all addresses at each change of an owner. Nothing
//! else here depends on the number of addresses.

use crate::applicable_rules::{
    ApplicableRules, PointChanges, PointInputs, local_address_matches, sort_policies,
};
use crate::faults::EngineFault;
use crate::judged_traffic::JudgedTraffic;
use crate::sets::{PolicySetKey, PolicySets};
use crate::store::{AddressOwnerId, AddressOwnerKind, AddressOwnerSlot, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Direction, Endpoint, EndpointId, Family, Peer, PolicyStage, Prefix, Protocol, Str,
};
use palisade_tables::{Point, PointInterface, PolicySetId};

/// Which of the host endpoints for an interface come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InterfaceRank {
    /// One that an object of its own describes.
    Written,
    /// That of the node.
    OfNode,
}

/// The points of host interfaces.
#[derive(Debug, Default)]
pub(crate) struct HostPoints {
    by_interface: BTreeMap<PointInterface, BTreeSet<(InterfaceRank, EndpointId)>>,
    interfaces: BTreeMap<EndpointId, (InterfaceRank, PointInterface)>,
    /// Places whose points are to be recomputed.
    touched: BTreeSet<PointInterface>,
    assigned: BTreeMap<PointInterface, BTreeMap<Point, PolicySetId>>,
}

impl HostPoints {
    /// Adds a host endpoint of this host.
    pub(crate) fn add_endpoint(&mut self, endpoint: &Endpoint) {
        let interface = match &endpoint.interface {
            Some(name) if **name == *Endpoint::ANY_INTERFACE => PointInterface::AnyHost,
            Some(name) if **name != *Endpoint::LOOPBACK => PointInterface::Host(name.clone()),
            _ => return,
        };
        let is_last = endpoint.is_node_endpoint() && !EngineFault::NodeEndpointFirst.is_injected();
        let rank = if is_last {
            InterfaceRank::OfNode
        } else {
            InterfaceRank::Written
        };
        let endpoints = self.by_interface.entry(interface.clone()).or_default();
        endpoints.insert((rank, endpoint.id.clone()));
        let governed = (rank, interface.clone());
        self.interfaces.insert(endpoint.id.clone(), governed);
        self.touched.insert(interface);
    }

    /// Removes a host endpoint, if it is one.
    pub(crate) fn remove_endpoint(&mut self, id: &EndpointId) {
        let Some((rank, interface)) = self.interfaces.remove(id) else {
            return;
        };
        if let Some(endpoints) = self.by_interface.get_mut(&interface) {
            endpoints.remove(&(rank, id.clone()));
            if endpoints.is_empty() {
                self.by_interface.remove(&interface);
            }
        }
        self.touched.insert(interface);
    }

    /// Recomputes the points of the interfaces whose endpoints were added or removed.
    pub(crate) fn recompute(
        &mut self,
        inputs: PointInputs<'_>,
        local_address_tested: &mut BTreeSet<EndpointId>,
        sets: &mut PolicySets,
        changes: &mut PointChanges,
    ) {
        for interface in core::mem::take(&mut self.touched) {
            let governing = self.governing(&interface);
            let governing = governing.and_then(|id| inputs.identity_inputs.state.endpoints.get(id));
            let keys = governing.map_or_else(BTreeMap::new, |endpoint| {
                let (keys, tests_local_end) = point_keys(inputs, &interface, endpoint);
                if tests_local_end {
                    local_address_tested.insert(endpoint.id.clone());
                }
                keys
            });
            let keys = keys.into_iter().map(|(point, key)| {
                let known = sets.shared_key(&key).cloned();
                let set = sets.acquire(&known.unwrap_or_else(|| Arc::new(key)));
                (point, set)
            });
            let new: BTreeMap<Point, PolicySetId> = keys.collect();
            if let PointInterface::Host(name) = &interface {
                let is_own = self.by_interface.contains_key(&interface);
                changes.host_interfaces.insert(Str::clone(name), is_own);
            }
            let points = new.iter();
            let points = points.map(|(point, set)| (point.clone(), Some(*set)));
            changes.points.extend(points);
            let old = if new.is_empty() {
                self.assigned.remove(&interface)
            } else {
                self.assigned.insert(interface, new.clone())
            };
            for (point, set) in old.into_iter().flatten() {
                if !new.contains_key(&point) {
                    changes.points.insert(point, None);
                }
                sets.release(set);
            }
        }
    }

    /// The host endpoint that governs an interface.
    fn governing(&self, interface: &PointInterface) -> Option<&EndpointId> {
        let (_, id) = self.by_interface.get(interface)?.first()?;
        Some(id)
    }

    /// The points that a host endpoint governs.
    pub(crate) fn points_of(&self, endpoint: &EndpointId) -> Vec<(Point, PolicySetId)> {
        let interface = self
            .interfaces
            .get(endpoint)
            .map(|(_, interface)| interface);
        let governed = interface.filter(|interface| self.governing(interface) == Some(endpoint));
        let points = governed.and_then(|interface| self.assigned.get(interface));
        let points = points.into_iter().flatten();
        points.map(|(point, set)| (point.clone(), *set)).collect()
    }
}

/// The set of each point of an interface that an endpoint governs, and whether a rule tests its local end.
fn point_keys(
    inputs: PointInputs<'_>,
    interface: &PointInterface,
    endpoint: &Endpoint,
) -> (BTreeMap<Point, PolicySetKey>, bool) {
    let selecting = inputs.active_policies.policies_of(&endpoint.id);
    let numbers = selecting.into_iter().flatten().copied();
    let policies: Vec<PolicyNumber> =
        sort_policies(inputs.identity_inputs.state, inputs.policies, numbers);
    let mut keys = BTreeMap::new();
    let mut tests_local_end = false;
    for stage in PolicyStage::ALL {
        let directions = Direction::BOTH.into_iter();
        for direction in directions.filter(|direction| stage.has_direction(*direction)) {
            let rules = ApplicableRules::new(
                inputs,
                endpoint,
                &policies,
                (JudgedTraffic::Host(stage), direction),
            );
            if rules.is_empty() && (stage != PolicyStage::Normal || endpoint.is_node_endpoint()) {
                continue;
            }
            let local_end = LocalEnd::new(&rules, endpoint, stage);
            tests_local_end |= local_end.is_tested();
            for family in Family::BOTH {
                for (own, key) in local_end.keys(inputs, &rules, family) {
                    let point = Point {
                        interface: interface.clone(),
                        stage,
                        direction,
                        local: own,
                    };
                    keys.insert(point, key);
                }
            }
        }
    }
    (keys, tests_local_end)
}

/// What rules ask about the local end of a packet at a host interface.
struct LocalEnd<'a> {
    tests: Vec<&'a Peer>,
    /// Whether named ports of the local end are those of whatever endpoint has its address.
    asks_ports_of_owner: bool,
    endpoint: &'a Endpoint,
}

impl<'a> LocalEnd<'a> {
    fn new(rules: &ApplicableRules<'a>, endpoint: &'a Endpoint, stage: PolicyStage) -> Self {
        let mut references = rules.local_end_references();
        LocalEnd {
            tests: rules.local_tests().collect(),
            asks_ports_of_owner: stage != PolicyStage::Normal
                && references.any(|own| !own.ports.is_empty()),
            endpoint,
        }
    }

    fn is_tested(&self) -> bool {
        !self.tests.is_empty() || self.asks_ports_of_owner
    }

    /// The set of each network or address of a family that may differ from the one above it.
    fn keys(
        &self,
        inputs: PointInputs<'_>,
        rules: &ApplicableRules<'_>,
        family: Family,
    ) -> Vec<(Prefix, PolicySetKey)> {
        let mut keys: Vec<(Prefix, PolicySetKey)> = Vec::new();
        let mut above: Vec<usize> = Vec::new();
        for own in self.regions(inputs, family) {
            let key = self.key(inputs, rules, own);
            while let Some(top) = above.last()
                && !keys[*top].0.covers(own)
            {
                above.pop();
            }
            if above.last().is_some_and(|top| keys[*top].1 == key) {
                continue;
            }
            above.push(keys.len());
            keys.push((own, key));
        }
        keys
    }

    /// Every network and address of a family that a test may tell from the one above it, in order.
    fn regions(&self, inputs: PointInputs<'_>, family: Family) -> BTreeSet<Prefix> {
        let mut regions = BTreeSet::from([Prefix::all(family)]);
        let of_tests = self.tests.iter();
        let of_tests = of_tests.flat_map(|test| test.nets.iter().flatten().chain(&test.not_nets));
        regions.extend(of_tests.copied());
        let asks_owners = self.asks_ports_of_owner
            || self
                .tests
                .iter()
                .any(|test| test.selector.is_some() || test.not_selector.is_some());
        if asks_owners {
            let state = inputs.identity_inputs.state;
            let sets = state.network_sets.values();
            regions.extend(sets.flat_map(|set| set.nets.iter().copied()));
            let nodes = state.nodes.values();
            regions.extend(nodes.flat_map(|node| node.addresses.iter().copied().map(Prefix::host)));
            for (_, view) in inputs.identity_inputs.store.views() {
                if view.kind() == AddressOwnerKind::Endpoint && !view.is_template() {
                    regions.extend(view.addresses().map(Prefix::host));
                }
            }
        }
        regions.retain(|region| region.family() == family);
        regions
    }

    fn key(
        &self,
        inputs: PointInputs<'_>,
        rules: &ApplicableRules<'_>,
        own: Prefix,
    ) -> PolicySetKey {
        let address = own.address();
        let owner = own
            .is_host()
            .then(|| inputs.identities.owner(address))
            .flatten();
        let owners = if self.tests.is_empty() {
            Vec::new()
        } else {
            owners_of(inputs, own, owner)
        };
        let tests = self
            .tests
            .iter()
            .map(|test| local_prefix_matches(inputs, test, own, &owners));
        let store = &inputs.identity_inputs.store;
        let owner_ports = owner.and_then(|slot| store.shared_in(slot));
        let port = |name: &str, protocol: Protocol| {
            if self.asks_ports_of_owner {
                owner_ports.and_then(|shared| {
                    let mut ports = shared.ports.iter();
                    let port = ports.find(|p| *p.name == *name && p.protocol == protocol);
                    port.map(|port| port.port)
                })
            } else {
                self.endpoint.named_port(name, protocol)
            }
        };
        rules.set_key_of(inputs, own.family(), tests.collect(), port)
    }
}

/// All that holds every address of a network, or an address.
fn owners_of(
    inputs: PointInputs<'_>,
    own: Prefix,
    owner: Option<AddressOwnerSlot>,
) -> Vec<AddressOwnerSlot> {
    let store = &inputs.identity_inputs.store;
    let nodes = if own.is_host() {
        inputs.identities.nodes_at(own.address())
    } else {
        &[]
    };
    let sets = inputs.identity_inputs.state.network_sets.values();
    let sets = sets.filter(|set| set.nets.iter().any(|net| net.covers(own)));
    let sets = sets.filter_map(|set| store.find(&AddressOwnerId::NetworkSet(set.id.clone())));
    owner
        .into_iter()
        .chain(nodes.iter().copied())
        .chain(sets)
        .collect()
}

/// Whether a test holds for the addresses of a network that no longer region holds.
fn local_prefix_matches(
    inputs: PointInputs<'_>,
    test: &Peer,
    own: Prefix,
    owners: &[AddressOwnerSlot],
) -> bool {
    // A network of a test covers a region or holds none of its own addresses, since it is a region itself.
    let within = |net: &Prefix| net.covers(own);
    let nets_hold = test
        .nets
        .as_ref()
        .is_none_or(|nets| nets.iter().any(within))
        && !test.not_nets.iter().any(within);
    let by_owners = Peer {
        nets: None,
        not_nets: Vec::new(),
        ..test.clone()
    };
    nets_hold && local_address_matches(inputs.identity_inputs, &by_owners, own.address(), owners)
}
