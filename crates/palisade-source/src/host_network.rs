//! Warnings about policies that select pods on the host network, updated as objects change. A changed policy
//! is compared with such pods of its namespace, a changed pod with the policies of its namespace.

use crate::file_object::{FileObject, SharedId};
use palisade_dialects::host_network_warning;
use palisade_manifest::Problem;
use palisade_model::{Endpoint, Object, ObjectId, Str};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The current warnings.
#[derive(Debug, Default)]
pub(crate) struct HostNetworkLint {
    pods: BTreeMap<SharedId, Endpoint>,
    policies: BTreeSet<SharedId>,
    warnings: BTreeMap<SharedId, Problem>,
}

impl HostNetworkLint {
    /// Updates the warnings for changed objects; each comes with its first definition.
    pub(crate) fn update<'a>(
        &mut self,
        changed: &BTreeSet<SharedId>,
        file_object: impl Fn(&ObjectId) -> Option<&'a FileObject>,
    ) {
        let mut namespaces: BTreeSet<Option<Str>> = BTreeSet::new();
        let mut stale: BTreeSet<&SharedId> = BTreeSet::new();
        for id in changed {
            let current = file_object(id);
            let pod = current.and_then(|file_object| file_object.on_host_network.as_deref());
            if self.pods.get(id) != pod {
                namespaces.insert(id.namespace.clone());
                match pod {
                    Some(pod) => self.pods.insert(id.clone(), pod.clone()),
                    None => self.pods.remove(id),
                };
            }
            let is_policy =
                current.is_some_and(|file_object| valid_policies(file_object).next().is_some());
            if is_policy {
                self.policies.insert(id.clone());
                stale.insert(id);
            } else if self.policies.remove(id) {
                self.warnings.remove(id);
            }
        }
        let of_pods = self.policies.iter().filter(|id| {
            !namespaces.is_empty() && (id.namespace.is_none() || namespaces.contains(&id.namespace))
        });
        stale.extend(of_pods);
        for id in stale {
            match file_object(id).and_then(|file_object| self.warning(file_object)) {
                Some(warning) => self.warnings.insert(id.clone(), warning),
                None => self.warnings.remove(id),
            };
        }
    }

    /// All warnings.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.warnings.values()
    }

    fn warning(&self, file_object: &FileObject) -> Option<Problem> {
        let namespace = &file_object.id.namespace;
        let start = match namespace {
            None => Bound::Unbounded,
            Some(_) => Bound::Included(ObjectId {
                namespace: namespace.clone(),
                name: "".into(),
                group: "".into(),
                kind: "".into(),
            }),
        };
        valid_policies(file_object).find_map(|policy| {
            let pods = self
                .pods
                .range((start.clone(), Bound::Unbounded))
                .take_while(|(id, _)| namespace.is_none() || id.namespace == *namespace);
            let subject = file_object.subject.as_deref()?;
            host_network_warning(policy, subject, pods.map(|(_, pod)| pod))
        })
    }
}

fn valid_policies(file_object: &FileObject) -> impl Iterator<Item = &palisade_model::Policy> {
    let valid = (!file_object.rejected).then_some(&file_object.objects);
    valid
        .into_iter()
        .flat_map(|objects| objects.iter())
        .filter_map(|object| match object {
            Object::Policy(policy) => Some(policy),
            _ => None,
        })
}
