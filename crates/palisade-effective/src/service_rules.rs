//! Rules that name Services, resolved to the ports that the EndpointSlices of these have.
//!
//! Promises: such a policy is passed on with the ports of the slices in force, and again when their lists of ports
//! change; endpoints that come and go change no policy. Never: decides what is in force.

use alloc::collections::{BTreeMap, BTreeSet};
use palisade_dialects::service_ports::{named_services, resolve, slice_ports};
use palisade_model::{NetworkSet, Object, ObjectId, Policy, PolicyId, Str, Update};

/// The lists of ports of Services, and the policies that name Services.
#[derive(Debug, Default)]
pub(crate) struct ServiceRules {
    /// The Service and the list of ports of each slice that has them.
    slices: BTreeMap<ObjectId, (Str, Str)>,
    /// How many slices of a Service have each list.
    counts: BTreeMap<(Str, Str), usize>,
    /// The same lists, by Service.
    lists: BTreeMap<Str, BTreeSet<Str>>,
    /// Policies as they are written.
    policies: BTreeMap<PolicyId, Policy>,
    /// Policies by the Services that they name.
    users: BTreeMap<Str, BTreeSet<PolicyId>>,
}

impl ServiceRules {
    /// The policy with its rules resolved.
    pub(crate) fn put_policy(&mut self, policy: Policy) -> Policy {
        self.remove_policy(&policy.id);
        let services = named_services(&policy);
        if services.is_empty() {
            return policy;
        }
        for service in services {
            self.users
                .entry(service)
                .or_default()
                .insert(policy.id.clone());
        }
        let resolved = resolve(&policy, &self.lists);
        self.policies.insert(policy.id.clone(), policy);
        resolved
    }

    /// Forgets a policy.
    pub(crate) fn remove_policy(&mut self, id: &PolicyId) {
        let Some(gone) = self.policies.remove(id) else {
            return;
        };
        for service in named_services(&gone) {
            if let Some(users) = self.users.get_mut(&service) {
                users.remove(id);
                if users.is_empty() {
                    self.users.remove(&service);
                }
            }
        }
    }

    /// Takes in a network set, which may be a slice, and passes on every policy that it changes.
    pub(crate) fn put_slice(&mut self, set: &NetworkSet, updates: &mut dyn FnMut(Update)) {
        match slice_ports(set) {
            Some(ports) if self.slices.get(&set.id) == Some(&ports) => {}
            ports => self.replace_slice(&set.id, ports, updates),
        }
    }

    /// Forgets a slice, and passes on every policy that this changes.
    pub(crate) fn remove_slice(&mut self, id: &ObjectId, updates: &mut dyn FnMut(Update)) {
        self.replace_slice(id, None, updates);
    }

    fn replace_slice(
        &mut self,
        id: &ObjectId,
        ports: Option<(Str, Str)>,
        updates: &mut dyn FnMut(Update),
    ) {
        let mut changed = BTreeSet::new();
        let previous = match ports.clone() {
            Some(ports) => self.slices.insert(id.clone(), ports),
            None => self.slices.remove(id),
        };
        if let Some((service, list)) = ports {
            let count = self.counts.entry((service.clone(), list.clone()));
            let count = count.or_default();
            *count += 1;
            if *count == 1 {
                self.lists.entry(service.clone()).or_default().insert(list);
                changed.insert(service);
            }
        }
        if let Some(previous) = previous
            && let Some(count) = self.counts.get_mut(&previous)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&previous);
                let (service, list) = previous;
                if let Some(lists) = self.lists.get_mut(&service) {
                    lists.remove(&list);
                    if lists.is_empty() {
                        self.lists.remove(&service);
                    }
                }
                changed.insert(service);
            }
        }
        let users = changed.iter().filter_map(|service| self.users.get(service));
        let users: BTreeSet<&PolicyId> = users.flatten().collect();
        for policy in users.into_iter().filter_map(|id| self.policies.get(id)) {
            updates(Update::Upsert(Object::Policy(resolve(policy, &self.lists))));
        }
    }
}
