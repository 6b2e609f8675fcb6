//! The pods, by what a rule can match of them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use palisade_model::{
    Endpoint, LabelKey, LabelLookup, LabelScope, Labels, NamedPort, Namespace, Str, reserved,
};

/// What rules can match of a pod, besides its address. Many pods have equal traits.
#[derive(Debug)]
pub(super) struct PodTraits {
    pub(super) namespace: Option<Str>,
    labels: Labels,
    service_account: Option<Str>,
    pub(super) ports: Vec<NamedPort>,
}

impl PodTraits {
    fn of(pod: &Endpoint) -> Self {
        PodTraits {
            namespace: pod.id.namespace.clone(),
            labels: pod.labels.clone(),
            service_account: pod.service_account.clone(),
            ports: pod.ports.clone(),
        }
    }

    /// Whether a pod of the same namespace has these traits.
    fn are_of(&self, pod: &Endpoint) -> bool {
        self.labels == pod.labels
            && self.service_account == pod.service_account
            && self.ports == pod.ports
    }
}

/// The labels that pods get from their namespaces and service accounts.
#[derive(Debug, Default)]
pub(super) struct InheritedPodLabels {
    pub(super) namespaces: BTreeMap<Str, Labels>,
    pub(super) service_accounts: BTreeMap<(Str, Str), Labels>,
}

impl InheritedPodLabels {
    pub(super) fn of<'a>(&'a self, pod: &'a PodTraits) -> PodLabels<'a> {
        PodLabels {
            inherited: self,
            pod,
        }
    }
}

/// The labels of a pod that selectors test.
pub(super) struct PodLabels<'a> {
    inherited: &'a InheritedPodLabels,
    pod: &'a PodTraits,
}

impl LabelLookup for PodLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let namespace = self.pod.namespace.as_ref();
        match key.scope {
            LabelScope::Own => self.pod.labels.get(&key.name).map(|value| &**value),
            LabelScope::Reserved => match &*key.name {
                reserved::KIND => Some(reserved::KIND_WORKLOAD),
                reserved::NAMESPACE => namespace.map(|name| &**name),
                reserved::SERVICE_ACCOUNT => self.pod.service_account.as_deref(),
                _ => None,
            },
            LabelScope::Namespace => match self.inherited.namespaces.get(namespace?) {
                Some(labels) => labels.get(&key.name).map(|value| &**value),
                None => (*key.name == *Namespace::NAME_LABEL).then_some(&**namespace?),
            },
            LabelScope::ServiceAccount => {
                let account = (namespace?.clone(), self.pod.service_account.clone()?);
                let labels = self.inherited.service_accounts.get(&account)?;
                labels.get(&key.name).map(|value| &**value)
            }
            LabelScope::Node => None,
        }
    }
}

/// The labels of a namespace as those that a `namespaceSelector` tests.
pub(super) struct NamespaceLabels<'a>(pub(super) &'a Labels);

impl LabelLookup for NamespaceLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.0.get(&key.name).map(|value| &**value)
    }
}

/// The distinct pods of each namespace. Each is held once here and once for each pod that has its traits.
#[derive(Debug, Default)]
pub(super) struct DistinctPods {
    by_namespace: BTreeMap<Option<Str>, HashTable<Arc<PodTraits>>>,
}

/// The hash of traits within their namespace.
fn hash(labels: &Labels, service_account: Option<&Str>, ports: &[NamedPort]) -> u64 {
    FixedState::default().hash_one((labels, service_account, ports))
}

fn hash_of(traits: &Arc<PodTraits>) -> u64 {
    let service_account = traits.service_account.as_ref();
    hash(&traits.labels, service_account, &traits.ports)
}

impl DistinctPods {
    /// Adds a pod; returns its traits, and whether no other pod has them.
    pub(super) fn add(&mut self, pod: &Endpoint) -> (Arc<PodTraits>, bool) {
        let namespace = pod.id.namespace.clone();
        let group = self.by_namespace.entry(namespace).or_default();
        let hash = hash(&pod.labels, pod.service_account.as_ref(), &pod.ports);
        match group.entry(hash, |traits| traits.are_of(pod), hash_of) {
            Entry::Occupied(known) => (Arc::clone(known.get()), false),
            Entry::Vacant(free) => {
                let new = free.insert(Arc::new(PodTraits::of(pod)));
                (Arc::clone(new.get()), true)
            }
        }
    }

    /// Removes a pod, which still holds its traits; returns whether no other pod has them.
    pub(super) fn remove(&mut self, traits: &Arc<PodTraits>) -> bool {
        // The pod that is removed and the table.
        if Arc::strong_count(traits) > 2 {
            return false;
        }
        if let Some(group) = self.by_namespace.get_mut(&traits.namespace) {
            let is_same = |other: &Arc<PodTraits>| Arc::ptr_eq(other, traits);
            if let Ok(last) = group.find_entry(hash_of(traits), is_same) {
                last.remove();
            }
            if group.is_empty() {
                self.by_namespace.remove(&traits.namespace);
            }
        }
        true
    }

    /// The namespaces that have pods.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Str> {
        self.by_namespace.keys().flatten()
    }

    /// The distinct pods of these namespaces; `None` for all.
    pub(super) fn in_namespaces<'a>(
        &'a self,
        namespaces: Option<&'a [Str]>,
    ) -> impl Iterator<Item = &'a Arc<PodTraits>> {
        let groups: Vec<_> = match namespaces {
            None => self.by_namespace.values().collect(),
            Some(names) => {
                let groups = names.iter();
                groups
                    .filter_map(|name| self.by_namespace.get(&Some(name.clone())))
                    .collect()
            }
        };
        groups.into_iter().flatten()
    }
}
