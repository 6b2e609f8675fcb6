//! Judgement points: which policy set judges each own address of each local endpoint, and what the endpoint sends to
//! itself. There is a point of hairpin traffic only where a policy that judges it applies.

use crate::active_policies::is_local;
use crate::applicable_rules::{ApplicableRules, PointChanges, PointInputs, sort_policies};
use crate::host_points::HostPoints;
use crate::judged_traffic::JudgedTraffic;
use crate::sets::{PolicySetKey, PolicySets};
use crate::store::PolicyNumber;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Direction, Endpoint, EndpointId, Str};
use palisade_tables::{Point, PolicySetId};

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
    /// Endpoints with a rule that tests the local address.
    pub(crate) local_address_tested: BTreeSet<EndpointId>,
    host: HostPoints,
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
            self.host.remove_endpoint(id);
            let endpoint = inputs.identity_inputs.state.endpoints.get(id);
            if let Some(endpoint) = endpoint.filter(|e| is_local(e) && e.is_host()) {
                self.host.add_endpoint(endpoint);
            } else if let Some(endpoint) = endpoint.filter(|e| is_local(e)) {
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
        let hairpin_points: Vec<Point> = touched.iter().filter_map(hairpin_point).collect();
        let is_known =
            |point: &Point| self.claims.contains_key(point) || self.assigned.contains_key(point);
        touched.extend(hairpin_points.into_iter().filter(is_known));
        for point in touched {
            let set = self
                .select_key(inputs, &point)
                .map(|key| sets.acquire(&key));
            let previous = match set {
                Some(set) => self.assigned.insert(point.clone(), set),
                None => self.assigned.remove(&point),
            };
            previous.into_iter().for_each(|set| sets.release(set));
            changes.points.insert(point, set);
        }
        self.host
            .recompute(inputs, &mut self.local_address_tested, sets, &mut changes);
        for (name, ours) in &mut changes.interfaces {
            *ours = self.interfaces.contains_key(name);
        }
        changes
    }

    /// The points that a host endpoint governs.
    pub(crate) fn host_points_of(&self, endpoint: &EndpointId) -> Vec<(Point, PolicySetId)> {
        self.host.points_of(endpoint)
    }

    fn remove_endpoint(
        &mut self,
        id: &EndpointId,
        touched: &mut BTreeSet<Point>,
        changes: &mut PointChanges,
    ) {
        self.local_address_tested.remove(id);
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
            let traffic = JudgedTraffic::Workload;
            let workload_rules =
                ApplicableRules::new(inputs, endpoint, policies, (traffic, direction));
            if workload_rules
                .local_end_references()
                .any(|own| !own.tests.is_empty())
            {
                self.local_address_tested.insert(endpoint.id.clone());
            }
            let traffic = JudgedTraffic::Hairpin;
            let hairpin_rules =
                ApplicableRules::new(inputs, endpoint, policies, (traffic, direction));
            let judges_hairpin = inputs.judges_hairpin_by_kind && !hairpin_rules.is_empty();
            let hairpin_rules = judges_hairpin.then_some(hairpin_rules);
            let addresses = endpoint.addresses.iter();
            let judged = addresses.flat_map(|address| {
                let point = Point::of_workload(interface.clone(), *address, direction);
                let hairpin = hairpin_rules.as_ref().and_then(|rules| {
                    Some((hairpin_point(&point)?, rules.set_key(inputs, *address)))
                });
                [(point, workload_rules.set_key(inputs, *address))]
                    .into_iter()
                    .chain(hairpin)
            });
            for (point, key) in judged {
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
        let judged = point.hairpin().map(|(interface, address)| {
            Point::of_workload(interface.clone(), address, point.direction)
        });
        let claims = self.claims.get(judged.as_ref().unwrap_or(point))?;
        let owner = match claims.len() {
            1 => None,
            _ => inputs.identities.owner(point.local.address()),
        };
        let first = || claims.keys().next();
        let owner = owner.and_then(|slot| inputs.identity_inputs.store.endpoint_id(slot));
        let owner = owner.filter(|owner| claims.contains_key(owner));
        let owner = owner.as_ref().or_else(first)?;
        self.claims.get(point)?.get(owner).cloned()
    }
}

/// The point of hairpin traffic of the same address and direction.
fn hairpin_point(point: &Point) -> Option<Point> {
    let (interface, address) = point.workload()?;
    Some(Point::of_hairpin(
        interface.clone(),
        address,
        point.direction,
    ))
}

/// What endpoints of one recomputation have in common.
#[derive(Default)]
struct PointCache {
    /// Policies in evaluation order, by the set of policies.
    orders: BTreeMap<Vec<PolicyNumber>, Vec<PolicyNumber>>,
    keys: BTreeSet<Arc<PolicySetKey>>,
}
