//! The pods, by what a rule can match of them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, LabelKey, LabelLookup, LabelScope, Labels, NamedPort, Namespace, Str, reserved,
};

/// What rules can match of a pod, besides its address. Many pods have equal traits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodTraits {
    pub(super) namespace: Option<Str>,
    labels: Labels,
    service_account: Option<Str>,
    pub(super) ports: Vec<NamedPort>,
}

impl PodTraits {
    pub(super) fn of(pod: &Endpoint) -> Self {
        PodTraits {
            namespace: pod.id.namespace.clone(),
            labels: pod.labels.clone(),
            service_account: pod.service_account.clone(),
            ports: pod.ports.clone(),
        }
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
                let of = (namespace?.clone(), self.pod.service_account.clone()?);
                let labels = self.inherited.service_accounts.get(&of)?;
                labels.get(&key.name).map(|value| &**value)
            }
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

/// The distinct pods of each namespace, with their numbers.
#[derive(Debug, Default)]
pub(super) struct DistinctPods {
    by_namespace: BTreeMap<Option<Str>, BTreeMap<Arc<PodTraits>, usize>>,
}

impl DistinctPods {
    /// Adds a pod; returns its traits, and whether no other pod has them.
    pub(super) fn add(&mut self, pod: &Endpoint) -> (Arc<PodTraits>, bool) {
        let traits = PodTraits::of(pod);
        let group = self
            .by_namespace
            .entry(traits.namespace.clone())
            .or_default();
        if let Some((known, _)) = group.get_key_value(&traits) {
            let known = Arc::clone(known);
            group
                .entry(Arc::clone(&known))
                .and_modify(|count| *count += 1);
            return (known, false);
        }
        let traits = Arc::new(traits);
        group.insert(Arc::clone(&traits), 1);
        (traits, true)
    }

    /// Removes a pod; returns whether no other pod has these traits.
    pub(super) fn remove(&mut self, traits: &Arc<PodTraits>) -> bool {
        let Some(group) = self.by_namespace.get_mut(&traits.namespace) else {
            return false;
        };
        if let Some(count) = group.get_mut(traits).filter(|count| **count > 1) {
            *count -= 1;
            return false;
        }
        group.remove(traits);
        if group.is_empty() {
            self.by_namespace.remove(&traits.namespace);
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
        groups.into_iter().flat_map(BTreeMap::keys)
    }
}
