//! The workloads of a state, their names, and the grouping of pods into workloads.

use palisade_api::WorkloadRef;
use palisade_model::{Endpoint, State};
use std::collections::BTreeMap;

/// The endpoints to list, grouped by workload.
pub(crate) fn group_endpoints(state: &State) -> BTreeMap<WorkloadRef, Vec<&Endpoint>> {
    let templates = TemplateIndex::new(state);
    let mut groups: BTreeMap<WorkloadRef, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in state.endpoints.values().filter(|e| !e.is_host()) {
        let name = if !endpoint.is_template() {
            TemplateIndex::pod_workload(endpoint)
        } else if templates.is_listed_otherwise(endpoint) {
            continue;
        } else {
            WorkloadRef::from_endpoint(endpoint)
        };
        groups.entry(name).or_default().push(endpoint);
    }
    groups
}

/// The workload templates of a state, and which of them have pods.
pub(crate) struct TemplateIndex<'a> {
    by_name: BTreeMap<WorkloadRef, &'a Endpoint>,
    /// The workloads from which pods of the state were created.
    with_pods: Vec<WorkloadRef>,
}

impl<'a> TemplateIndex<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        let endpoints = state.endpoints.values();
        let (templates, pods): (Vec<&Endpoint>, Vec<&Endpoint>) = endpoints
            .filter(|e| !e.is_host())
            .partition(|e| e.is_template());
        let named = templates
            .into_iter()
            .map(|t| (WorkloadRef::from_endpoint(t), t));
        let mut templates = TemplateIndex {
            by_name: named.collect(),
            with_pods: Vec::new(),
        };
        let owners = pods.iter().flat_map(|pod| {
            let mut chain = templates.chain(pod);
            let last = chain.last().cloned();
            chain.extend(
                last.iter()
                    .flat_map(|owner| templates.guess_owners(pod, owner)),
            );
            chain
        });
        let mut with_pods: Vec<WorkloadRef> = owners.collect();
        with_pods.sort();
        with_pods.dedup();
        templates.with_pods = with_pods;
        templates
    }

    /// The owner of an endpoint, the owner of that if its template is in the state, and so on.
    pub(crate) fn chain(&self, endpoint: &Endpoint) -> Vec<WorkloadRef> {
        let mut chain: Vec<WorkloadRef> = Vec::new();
        let mut next = endpoint.metadata.owner.as_ref();
        while let Some(owner) = next {
            let owner = WorkloadRef::from_owner(endpoint.id.namespace.clone(), owner);
            if chain.contains(&owner) {
                break;
            }
            next = self
                .by_name
                .get(&owner)
                .and_then(|t| t.metadata.owner.as_ref());
            chain.push(owner);
        }
        chain
    }

    /// Templates that create owners with this name (a Deployment or Rollout for a ReplicaSet, a CronJob for a
    /// Job), for an owner that is not in the state.
    pub(crate) fn guess_owners(&self, pod: &Endpoint, owner: &WorkloadRef) -> Vec<WorkloadRef> {
        let label = |key: &str| pod.labels.get(key).map(|hash| &**hash);
        let is_owner = |maker: &&WorkloadRef| {
            let suffix = owner.name.strip_prefix(&*maker.name);
            let suffix = suffix.and_then(|rest| rest.strip_prefix('-'));
            maker.namespace == owner.namespace
                && suffix.is_some_and(|suffix| match (&*maker.kind, &*owner.kind) {
                    ("Deployment", "ReplicaSet") => Some(suffix) == label("pod-template-hash"),
                    ("Rollout", "ReplicaSet") => {
                        Some(suffix) == label("rollouts-pod-template-hash")
                    }
                    ("CronJob", "Job") | ("DeploymentConfig", "ReplicationController") => {
                        suffix.bytes().all(|b| b.is_ascii_digit())
                    }
                    _ => false,
                })
        };
        self.by_name.keys().filter(is_owner).cloned().collect()
    }

    /// The workload of a pod: its controlling owner, unless that is a node (a static pod).
    fn pod_workload(pod: &Endpoint) -> WorkloadRef {
        match pod
            .metadata
            .owner
            .as_ref()
            .filter(|owner| &*owner.kind != "Node")
        {
            Some(owner) => WorkloadRef::from_owner(pod.id.namespace.clone(), owner),
            None => WorkloadRef::from_endpoint(pod),
        }
    }

    /// Whether the template's pods, or the template of its owner, are in the state and listed instead.
    fn is_listed_otherwise(&self, template: &Endpoint) -> bool {
        let made = self.chain(template);
        self.with_pods
            .contains(&WorkloadRef::from_endpoint(template))
            || made.iter().any(|owner| self.by_name.contains_key(owner))
    }
}
