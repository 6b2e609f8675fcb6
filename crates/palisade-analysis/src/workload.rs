//! The workloads of a state, their names, and the grouping of pods into workloads.

use palisade_model::{Endpoint, Owner, State, Str};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// A workload in reports: a pod, or the owner of pods that policy treats alike.
///
/// Ordered by namespace, name, kind, address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadRef {
    /// Its namespace, where it has one.
    pub namespace: Option<Str>,
    /// Its name.
    pub name: Str,
    /// Its kind.
    pub kind: Str,
    /// The address, where policy treats the addresses of a pod in one family differently.
    pub address: Option<IpAddr>,
}

impl WorkloadRef {
    /// The workload of a single endpoint.
    pub fn from_endpoint(endpoint: &Endpoint) -> Self {
        WorkloadRef {
            namespace: endpoint.id.namespace.clone(),
            name: endpoint.id.name.clone(),
            kind: endpoint.id.kind.clone(),
            address: None,
        }
    }

    fn from_owner(namespace: Option<Str>, owner: &Owner) -> Self {
        WorkloadRef {
            namespace,
            name: owner.name.clone(),
            kind: owner.kind.clone(),
            address: None,
        }
    }
}

impl Serialize for WorkloadRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(namespace) = &self.namespace {
            map.serialize_entry("namespace", namespace)?;
        }
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("kind", &self.kind)?;
        if let Some(address) = &self.address {
            map.serialize_entry("address", address)?;
        }
        map.end()
    }
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({}", self.name, self.kind)?;
        match self.address {
            Some(address) => write!(f, " at {address})"),
            None => f.write_str(")"),
        }
    }
}

/// The endpoints to list, grouped by workload.
pub(crate) fn group_endpoints(state: &State) -> BTreeMap<WorkloadRef, Vec<&Endpoint>> {
    let templates = TemplateIndex::new(state);
    let mut groups: BTreeMap<WorkloadRef, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in state.endpoints.values().filter(|e| !e.host) {
        let name = match endpoint.template {
            true if templates.is_listed_otherwise(endpoint) => continue,
            true => WorkloadRef::from_endpoint(endpoint),
            false => TemplateIndex::pod_workload(endpoint),
        };
        groups.entry(name).or_default().push(endpoint);
    }
    groups
}

/// The workload templates of a state, and which of them have pods.
struct TemplateIndex<'a> {
    by_name: BTreeMap<WorkloadRef, &'a Endpoint>,
    /// The workloads from which pods of the state were created.
    with_pods: Vec<WorkloadRef>,
}

impl<'a> TemplateIndex<'a> {
    fn new(state: &'a State) -> Self {
        let endpoints = state.endpoints.values();
        let (templates, pods): (Vec<&Endpoint>, Vec<&Endpoint>) =
            endpoints.filter(|e| !e.host).partition(|e| e.template);
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
    fn chain(&self, endpoint: &Endpoint) -> Vec<WorkloadRef> {
        let mut chain: Vec<WorkloadRef> = Vec::new();
        let mut next = endpoint.owner.as_ref();
        while let Some(owner) = next {
            let owner = WorkloadRef::from_owner(endpoint.id.namespace.clone(), owner);
            if chain.contains(&owner) {
                break;
            }
            next = self.by_name.get(&owner).and_then(|t| t.owner.as_ref());
            chain.push(owner);
        }
        chain
    }

    /// Templates that create owners with this name (a Deployment for a ReplicaSet, a CronJob for a
    /// Job), for an owner that is not in the state.
    fn guess_owners(&self, pod: &Endpoint, owner: &WorkloadRef) -> Vec<WorkloadRef> {
        let hash = pod.labels.get("pod-template-hash").map(|hash| &**hash);
        let is_owner = |maker: &&WorkloadRef| {
            let suffix = owner.name.strip_prefix(&*maker.name);
            let suffix = suffix.and_then(|rest| rest.strip_prefix('-'));
            maker.namespace == owner.namespace
                && suffix.is_some_and(|suffix| match (&*maker.kind, &*owner.kind) {
                    ("Deployment", "ReplicaSet") => Some(suffix) == hash,
                    ("CronJob", "Job") => suffix.bytes().all(|b| b.is_ascii_digit()),
                    _ => false,
                })
        };
        self.by_name.keys().filter(is_owner).cloned().collect()
    }

    /// The workload of a pod: its controlling owner, unless that is a node (a static pod).
    fn pod_workload(pod: &Endpoint) -> WorkloadRef {
        match pod.owner.as_ref().filter(|owner| &*owner.kind != "Node") {
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
