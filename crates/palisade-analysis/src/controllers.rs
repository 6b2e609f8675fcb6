//! The pods of a state by what controls them, for whoever has the names of controllers and not those of pods.
//!
//! Promises: a pod is found by its own name, by its owner and by every owner above that, whether the state has the
//! owner's object or only the owner's name tells it (`web-7d9f` of the Deployment `web`). Pods come before templates: a
//! template stands for pods only where there are none. Never: lists host endpoints.

use crate::workload::TemplateIndex;
use palisade_api::WorkloadRef;
use palisade_model::{Endpoint, State, Str};
use std::collections::BTreeMap;

/// The pods of each controller.
pub struct ControllerIndex<'a> {
    by_name: BTreeMap<WorkloadRef, Vec<&'a Endpoint>>,
    /// Pods and other workloads by their own namespace and name.
    by_own_name: BTreeMap<(Str, Str), Vec<&'a Endpoint>>,
}

impl<'a> ControllerIndex<'a> {
    /// The index of a state.
    #[must_use]
    pub fn new(state: &'a State) -> Self {
        let templates = TemplateIndex::new(state);
        let mut by_name: BTreeMap<WorkloadRef, Vec<&'a Endpoint>> = BTreeMap::new();
        let mut by_own_name: BTreeMap<(Str, Str), Vec<&'a Endpoint>> = BTreeMap::new();
        let workloads = state.endpoints.values().filter(|e| !e.is_host());
        for endpoint in workloads.filter(|e| !e.uses_host_network() && !e.is_completed()) {
            if let Some(namespace) = endpoint
                .id
                .namespace
                .clone()
                .filter(|_| !endpoint.is_template())
            {
                let own = by_own_name.entry((namespace, endpoint.id.name.clone()));
                own.or_default().push(endpoint);
            }
            let mut names = vec![WorkloadRef::from_endpoint(endpoint)];
            names.extend(templates.chain(endpoint));
            if let Some(last) = names.last().filter(|_| names.len() > 1).cloned() {
                names.extend(templates.guess_owners(endpoint, &last));
                names.extend(owner_by_name(endpoint, &last));
            }
            names.sort();
            names.dedup();
            for name in names {
                by_name.entry(name).or_default().push(endpoint);
            }
        }
        for pods in by_name.values_mut() {
            if pods.iter().any(|pod| !pod.is_template()) {
                pods.retain(|pod| !pod.is_template());
            }
        }
        ControllerIndex {
            by_name,
            by_own_name,
        }
    }

    /// The pod or other workload of this name; several if they are of different kinds.
    #[must_use]
    pub fn named(&self, namespace: &str, name: &str) -> &[&'a Endpoint] {
        let key = (Str::from(namespace), Str::from(name));
        self.by_own_name.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The pods of a controller, or of a pod's own name; the templates if there are no pods.
    #[must_use]
    pub fn pods(&self, namespace: &str, kind: &str, name: &str) -> &[&'a Endpoint] {
        let wanted = WorkloadRef {
            namespace: Some(namespace.into()),
            name: name.into(),
            kind: kind.into(),
            address: None,
        };
        self.by_name.get(&wanted).map_or(&[], Vec::as_slice)
    }

    /// Every name, with its pods.
    pub fn iter(&self) -> impl Iterator<Item = (&WorkloadRef, &[&'a Endpoint])> {
        self.by_name.iter().map(|(name, pods)| (name, &pods[..]))
    }
}

/// The owner that the name of an owner implies: the Deployment of a ReplicaSet, the CronJob of a Job.
fn owner_by_name(pod: &Endpoint, owner: &WorkloadRef) -> Option<WorkloadRef> {
    let (base, suffix) = owner.name.rsplit_once('-')?;
    let has_hash = |label: &str| pod.labels.get(label).is_some_and(|hash| **hash == *suffix);
    let kind = match &*owner.kind {
        "ReplicaSet" if has_hash("pod-template-hash") => "Deployment",
        "ReplicaSet" if has_hash("rollouts-pod-template-hash") => "Rollout",
        "Job" if !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit()) => {
            "CronJob"
        }
        _ => return None,
    };
    Some(WorkloadRef {
        name: Str::from(base),
        kind: kind.into(),
        ..owner.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_generators::line;
    use palisade_model::Owner;

    fn pod(written: &str, owner: Option<(&str, &str)>) -> Endpoint {
        let mut pod = line::endpoint(written);
        pod.metadata.owner = owner.map(|(kind, name)| Owner {
            kind: kind.into(),
            name: name.into(),
        });
        pod
    }

    #[test]
    fn pods_are_found_by_every_owner() {
        let mut state = State::default();
        let hashed = "shop/web-7d9f-x 10.0.0.1 app=web pod-template-hash=7d9f";
        for pod in [
            pod(hashed, Some(("ReplicaSet", "web-7d9f"))),
            pod("shop/nightly-123-x 10.0.0.2", Some(("Job", "nightly-123"))),
            pod("shop/alone 10.0.0.3", None),
        ] {
            state.endpoints.insert(pod.id.clone(), pod);
        }
        let index = ControllerIndex::new(&state);
        let count = |kind: &str, name: &str| index.pods("shop", kind, name).len();
        assert_eq!(count("Deployment", "web"), 1);
        assert_eq!(count("ReplicaSet", "web-7d9f"), 1);
        assert_eq!(count("Pod", "web-7d9f-x"), 1);
        assert_eq!(count("CronJob", "nightly"), 1);
        assert_eq!(count("Pod", "alone"), 1);
        assert_eq!(count("Deployment", "nightly"), 0);
        assert_eq!(index.pods("other", "Pod", "alone").len(), 0);
    }

    #[test]
    fn a_template_stands_for_pods_only_where_there_are_none() {
        let mut state = State::default();
        let template = Endpoint::template(line::id("Deployment", "shop/web"));
        state.endpoints.insert(template.id.clone(), template);
        let found = |state: &State| {
            let index = ControllerIndex::new(state);
            let pods = index.pods("shop", "Deployment", "web");
            pods.iter().map(|pod| pod.is_template()).collect::<Vec<_>>()
        };
        assert_eq!(found(&state), [true]);
        let hashed = "shop/web-7d9f-x 10.0.0.1 app=web pod-template-hash=7d9f";
        let pod = pod(hashed, Some(("ReplicaSet", "web-7d9f")));
        state.endpoints.insert(pod.id.clone(), pod);
        assert_eq!(found(&state), [false]);
    }
}
