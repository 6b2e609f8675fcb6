//! Warnings about valid objects that have no effect given the other objects, updated as objects change.
//!
//! Policies that select pods on the host network, where policies do not apply; namespace selectors that match
//! no namespace; port names that none of the destination pods has; pods that claim the address of another
//! pod; cluster-wide policies of equal priority. Checks that need pods or namespaces are skipped while there are none. Policies are those defined,
//! pods and namespaces those in force. Warnings never change what is in force.

mod addresses;
mod pods;
mod priorities;
mod receivers;

use crate::SharedId;
use crate::definition::Definition;
use addresses::{ContestedAddresses, PodAddresses};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use palisade_dialects::{FieldLocation, PolicyFields};
use palisade_manifest::{Location, Problem};
use palisade_model::{
    Endpoint, EndpointId, LabelKey, LabelLookup, LabelScope, Labels, Namespace, Object, ObjectId,
    ObjectKind, Policy, Selector, Str,
};
use pods::{DistinctPods, InheritedPodLabels, NamespaceLabels, PodTraits};
use priorities::{PolicyPriorities, PriorityPlace};
use receivers::PolicyReceivers;

/// What the warnings need of a pod.
#[derive(Debug)]
pub(crate) struct PodFacts {
    traits: Arc<PodTraits>,
    addresses: PodAddresses,
    created: u64,
}

/// Finds what the warnings need of a pod in force, and where it was read.
pub(crate) type PodLookup<'a> = dyn Fn(&SharedId) -> Option<(&'a PodFacts, Location)> + 'a;

/// What the warnings need of a policy.
#[derive(Debug)]
struct PolicyFacts {
    name: String,
    namespace: Option<Str>,
    subject: Selector,
    fields: PolicyFields,
    receivers: PolicyReceivers,
    /// Its place, if it has a priority.
    place: Option<PriorityPlace>,
    /// The namespace selectors that match nothing, as indexes.
    unmatched: Vec<usize>,
    host_network: Option<Problem>,
}

/// A pod on the network of its node came into force, moved to another node, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostNetworkChange {
    /// It is in force.
    Set {
        /// The pod.
        id: EndpointId,
        /// The node that it names.
        node: Option<Str>,
    },
    /// It is gone, or has a network of its own.
    Removed(EndpointId),
}

/// The warnings that concern several objects.
#[derive(Debug, Default)]
pub(crate) struct InputLint {
    distinct: DistinctPods,
    inherited: InheritedPodLabels,
    claims: ContestedAddresses,
    /// The pods on the host network, and where they are.
    host_network: BTreeMap<SharedId, Box<(Location, Endpoint)>>,
    /// What changed of these pods, in order.
    pub(crate) host_network_changes: Vec<HostNetworkChange>,
    policies: BTreeMap<SharedId, Box<PolicyFacts>>,
    /// The policies about which there may be a warning: a report looks at these alone.
    doubtful: BTreeSet<SharedId>,
    /// The policies whose receivers may be in a namespace; `None` for any.
    by_receivers: BTreeMap<Option<Str>, BTreeSet<SharedId>>,
    priorities: PolicyPriorities,
    stale: StaleWarnings,
}

/// What is computed again at the end of a batch.
#[derive(Debug, Default)]
struct StaleWarnings {
    /// Policies that are new, or whose receivers are counted again.
    policies: BTreeSet<SharedId>,
    /// The namespaces, or their labels, changed.
    namespaces: bool,
    /// The namespaces in which pods on the host network changed.
    host_network: BTreeSet<Option<Str>>,
}

impl InputLint {
    /// Takes in the version of an object that is in force now; `None` if it is gone. `facts` is what is known
    /// of the object if it is a pod.
    pub(crate) fn update_object(
        &mut self,
        id: &SharedId,
        facts: &mut Option<PodFacts>,
        content: Option<(&[Object], &Location)>,
    ) {
        let (objects, location) = content.map_or((&[][..], None), |(all, at)| (all, Some(at)));
        if !matches!(objects, [Object::Endpoint(pod)] if !pod.uses_host_network()) {
            self.set_pod(id, facts, None);
        }
        if let Some(pod) = self.host_network.remove(id) {
            self.stale.host_network.insert(pod.1.id.namespace.clone());
            let removed = HostNetworkChange::Removed(pod.1.id);
            self.host_network_changes.push(removed);
        }
        for (object, location) in objects.iter().zip(location.into_iter().cycle()) {
            match object {
                Object::Endpoint(pod) if pod.uses_host_network() => {
                    self.stale.host_network.insert(pod.id.namespace.clone());
                    let set = HostNetworkChange::Set {
                        id: pod.id.clone(),
                        node: pod.node.clone(),
                    };
                    self.host_network_changes.push(set);
                    let pod = (location.clone(), pod.clone());
                    self.host_network.insert(id.clone(), Box::new(pod));
                }
                Object::Endpoint(pod) => self.set_pod(id, facts, Some(pod)),
                Object::Namespace(Namespace { name, labels, .. }) => {
                    let before = self
                        .inherited
                        .namespaces
                        .insert(name.clone(), labels.clone());
                    self.update_inherited(name, before.as_ref() != Some(labels));
                }
                Object::ServiceAccount(account) => {
                    let key = (account.namespace.clone(), account.name.clone());
                    let all = &mut self.inherited.service_accounts;
                    let before = all.insert(key, account.labels.clone());
                    let changed = before.unwrap_or_default() != account.labels;
                    self.recount_receivers(&account.namespace, changed);
                }
                _ => {}
            }
        }
    }

    /// The object of this key is out of force.
    pub(crate) fn remove_namespace(&mut self, name: &Str) {
        let removed = self.inherited.namespaces.remove(name).is_some();
        self.update_inherited(name, removed);
    }

    /// The service account is out of force.
    pub(crate) fn remove_service_account(&mut self, key: &(Str, Str)) {
        let removed = self.inherited.service_accounts.remove(key);
        self.recount_receivers(&key.0, removed.is_some_and(|labels| !labels.is_empty()));
    }

    /// The definition in force moved without a change of content.
    pub(crate) fn move_object(&mut self, id: &SharedId, location: &Location) {
        if let Some(pod) = self.host_network.get_mut(id) {
            pod.0 = location.clone();
        }
    }

    /// Takes in the first definition of an object, if it is a valid policy.
    pub(crate) fn update_policy(&mut self, id: &SharedId, definition: Option<&Definition>) {
        let policy = definition.and_then(|d| d.valid_policies().next().zip(d.fields.as_ref()));
        self.doubtful.remove(id);
        if let Some(before) = self.policies.remove(id) {
            for namespace in before.receivers.namespaces() {
                if let Some(ids) = self.by_receivers.get_mut(&namespace) {
                    ids.remove(id);
                }
            }
            if let Some(place) = &before.place {
                self.priorities.remove(id, place);
            }
        }
        let Some((policy, fields)) = policy else {
            return;
        };
        let receivers = PolicyReceivers::of(policy, fields);
        for namespace in receivers.namespaces() {
            let ids = self.by_receivers.entry(namespace).or_default();
            ids.insert(id.clone());
        }
        let facts = PolicyFacts::new(policy, fields, receivers);
        if let Some(place) = &facts.place {
            self.priorities.add(id, place);
        }
        self.policies.insert(id.clone(), Box::new(facts));
        self.stale.policies.insert(id.clone());
    }

    /// Replaces or removes what is known of a pod.
    fn set_pod(&mut self, id: &SharedId, facts: &mut Option<PodFacts>, pod: Option<&Endpoint>) {
        let new = pod.map(|pod| {
            let (traits, is_new) = self.distinct.add(pod);
            if is_new {
                self.count(&traits, true);
            }
            let addresses = if pod.is_completed() {
                &[][..]
            } else {
                &pod.addresses
            };
            PodFacts {
                traits,
                addresses: addresses.into(),
                created: pod.created,
            }
        });
        if let Some(before) = core::mem::replace(facts, new) {
            for address in before.addresses.iter() {
                self.claims.remove(address, id);
            }
            if self.distinct.remove(&before.traits) {
                self.count(&before.traits, false);
            }
        }
        let addresses = facts.iter().flat_map(|facts| facts.addresses.iter());
        addresses.for_each(|address| self.claims.add(address, id));
    }

    /// Counts a distinct pod among the receivers of all policies.
    fn count(&mut self, pod: &PodTraits, is_added: bool) {
        self.stale.namespaces |= !self.inherited.namespaces.is_empty()
            && pod
                .namespace
                .as_ref()
                .is_some_and(|name| !self.inherited.namespaces.contains_key(name));
        let namespace = pod.namespace.is_some().then(|| pod.namespace.clone());
        for key in [Some(None), namespace].into_iter().flatten() {
            for id in self.by_receivers.get(&key).into_iter().flatten() {
                if self.stale.policies.contains(id) {
                    continue;
                }
                if let Some(policy) = self.policies.get_mut(id) {
                    policy.receivers.count(pod, &self.inherited, is_added);
                }
            }
        }
    }

    fn update_inherited(&mut self, namespace: &Str, changed: bool) {
        self.stale.namespaces |= changed;
        if changed {
            self.stale.host_network.insert(Some(namespace.clone()));
        }
        self.recount_receivers(namespace, changed);
    }

    /// The labels that pods of a namespace inherit changed.
    fn recount_receivers(&mut self, namespace: &Str, changed: bool) {
        if !changed {
            return;
        }
        for key in [None, Some(namespace.clone())] {
            let ids = self.by_receivers.get(&key).into_iter().flatten();
            self.stale.policies.extend(ids.cloned());
        }
    }

    /// Computes what changed objects may have changed.
    pub(crate) fn finish_batch(&mut self) {
        let stale = core::mem::take(&mut self.stale);
        let mut matches: BTreeMap<Selector, bool> = BTreeMap::new();
        let all = if stale.namespaces {
            self.policies.keys().cloned().collect()
        } else {
            stale.policies.clone()
        };
        for id in all {
            let Some(policy) = self.policies.get(&id) else {
                continue;
            };
            let mut unmatched = Vec::new();
            for (index, field) in policy.fields.namespaces.iter().enumerate() {
                let previous = matches.get(&field.tests).copied();
                let any = previous.unwrap_or_else(|| self.matches_any_namespace(&field.tests));
                matches.insert(field.tests.clone(), any);
                unmatched.extend((!any).then_some(index));
            }
            let is_stale = stale.policies.contains(&id);
            let of_host = stale
                .policies
                .contains(&id)
                .then(|| self.host_network_warning(policy));
            if let Some(policy) = self.policies.get_mut(&id) {
                policy.unmatched = unmatched;
                if is_stale {
                    policy.receivers.recount(&self.distinct, &self.inherited);
                    policy.host_network = of_host.flatten();
                }
            }
            self.update_doubtful(&id);
        }
        if stale.host_network.is_empty() {
            return;
        }
        let affected = self.policies.iter().filter(|(_, policy)| {
            policy.namespace.is_none() || stale.host_network.contains(&policy.namespace)
        });
        let new: Vec<(SharedId, Option<Problem>)> = affected
            .map(|(id, policy)| (id.clone(), self.host_network_warning(policy)))
            .collect();
        for (id, warning) in new {
            if let Some(policy) = self.policies.get_mut(&id) {
                policy.host_network = warning;
            }
            self.update_doubtful(&id);
        }
    }

    fn update_doubtful(&mut self, id: &SharedId) {
        let policy = self.policies.get(id);
        if policy.is_some_and(|policy| policy.may_warn()) {
            self.doubtful.insert(id.clone())
        } else {
            self.doubtful.remove(id)
        };
    }

    /// Whether a namespace has these labels: one with an object, or one that has pods.
    fn matches_any_namespace(&self, tests: &Selector) -> bool {
        let named = &self.inherited.namespaces;
        if named.is_empty() {
            return true;
        }
        let mut of_objects = named.values();
        let mut implied = self.distinct.namespaces();
        of_objects.any(|labels| tests.matches(&NamespaceLabels(labels)))
            || implied.any(|name| {
                let labels: Labels = Namespace::from_name(name.clone()).labels;
                !named.contains_key(name) && tests.matches(&NamespaceLabels(&labels))
            })
    }

    /// The warning about a policy that selects pods on the host network.
    fn host_network_warning(&self, policy: &PolicyFacts) -> Option<Problem> {
        let start = match &policy.namespace {
            None => Bound::Unbounded,
            namespace => Bound::Included(ObjectId {
                namespace: namespace.clone(),
                name: "".into(),
                kind: ObjectKind::default(),
            }),
        };
        let of_namespace = self
            .host_network
            .range((start, Bound::Unbounded))
            .take_while(|(id, _)| policy.namespace.is_none() || id.namespace == policy.namespace);
        let selected = of_namespace.map(|(_, pod)| &**pod);
        let labels = |pod| HostPodLabels {
            inherited: &self.inherited,
            pod,
        };
        let selected = selected.filter(|(_, pod)| policy.subject.matches(&labels(pod)));
        let others = selected.clone().count().saturating_sub(1);
        let (_, Endpoint { id: pod, .. }) = selected.min_by(|(a, _), (b, _)| a.cmp(b))?;
        let others = match others {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let reason = format!(
            "it selects {pod}{others} on the host network; policies do not apply to host-network pods"
        );
        Some(policy.problem(&policy.fields.subject, reason))
    }

    /// All warnings, in any order.
    pub(crate) fn warnings(&self, pod: &PodLookup<'_>) -> Vec<Problem> {
        let mut warnings = self.claims.warnings(pod);
        for (id, reason) in self.priorities.ties() {
            let policy = self.policies.get(id);
            let at = policy.and_then(|policy| policy.fields.priority.as_ref());
            warnings.extend(
                policy
                    .zip(at)
                    .map(|(policy, at)| policy.problem(at, reason)),
            );
        }
        for policy in self.doubtful.iter().filter_map(|id| self.policies.get(id)) {
            warnings.extend(policy.host_network.clone());
            for index in &policy.unmatched {
                let field = policy.fields.namespaces.get(*index);
                let reason = "it matches none of the namespaces of the input, so it has no effect";
                warnings.extend(field.map(|f| policy.problem(&f.at, reason.to_owned())));
            }
            for port in &policy.fields.port_names {
                let problem = policy.receivers.problem(port);
                warnings.extend(problem.map(|reason| policy.problem(&port.at, reason)));
            }
        }
        warnings
    }
}

impl PolicyFacts {
    /// Whether there may be a warning about it, but for those about several policies. Which pods have a named
    /// port changes with every pod, and is counted when it is asked for.
    fn may_warn(&self) -> bool {
        self.host_network.is_some()
            || !self.unmatched.is_empty()
            || !self.fields.port_names.is_empty()
    }

    fn new(policy: &Policy, fields: &PolicyFields, receivers: PolicyReceivers) -> Self {
        PolicyFacts {
            name: policy.id.to_string(),
            namespace: policy.id.object.namespace.clone(),
            subject: policy.subject.clone(),
            fields: fields.clone(),
            receivers,
            place: fields.priority.as_ref().map(|_| PriorityPlace::of(policy)),
            unmatched: Vec::new(),
            host_network: None,
        }
    }

    fn problem(&self, at: &FieldLocation, reason: String) -> Problem {
        Problem {
            location: at.location.clone(),
            object: Some(self.name.clone()),
            field: at.field.to_string(),
            reason,
        }
    }
}

/// The labels of a pod on the host network, without those of its service account.
struct HostPodLabels<'a> {
    inherited: &'a InheritedPodLabels,
    pod: &'a Endpoint,
}

impl LabelLookup for HostPodLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        match key.scope {
            LabelScope::Own => self.pod.labels.get(&key.name).map(|value| &**value),
            LabelScope::Reserved => self.pod.reserved_label(&key.name),
            LabelScope::Namespace => {
                let namespace = self.pod.id.namespace.as_ref()?;
                match self.inherited.namespaces.get(namespace) {
                    Some(labels) => labels.get(&key.name).map(|value| &**value),
                    None => (*key.name == *Namespace::NAME_LABEL).then_some(&**namespace),
                }
            }
            LabelScope::ServiceAccount | LabelScope::Node => None,
        }
    }
}
