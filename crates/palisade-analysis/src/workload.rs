//! Which workloads there are, under which names, and which pods are one workload.

use palisade_model::{Endpoint, Owner, State, Str};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// A workload as it is reported: a pod, or what owns pods that do not differ.
///
/// Ordered by namespace, name, kind, address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    /// Its namespace, where it has one.
    pub namespace: Option<Str>,
    /// Its name.
    pub name: Str,
    /// Its kind.
    pub kind: Str,
    /// The address that is meant, where those that a pod has in one family differ.
    pub address: Option<IpAddr>,
}

impl Workload {
    /// An endpoint under its own name.
    pub fn endpoint(endpoint: &Endpoint) -> Self {
        Workload {
            namespace: endpoint.id.namespace.clone(),
            name: endpoint.id.name.clone(),
            kind: endpoint.id.kind.clone(),
            address: None,
        }
    }

    fn owner(namespace: Option<Str>, owner: &Owner) -> Self {
        Workload {
            namespace,
            name: owner.name.clone(),
            kind: owner.kind.clone(),
            address: None,
        }
    }
}

impl Serialize for Workload {
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

impl fmt::Display for Workload {
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

/// The endpoints to list, by the name they share.
pub(crate) fn groups(state: &State) -> BTreeMap<Workload, Vec<&Endpoint>> {
    let templates = Templates::of(state);
    let mut groups: BTreeMap<Workload, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in state.endpoints.values().filter(|e| !e.host) {
        let name = match endpoint.template {
            true if templates.is_listed_otherwise(endpoint) => continue,
            true => Workload::endpoint(endpoint),
            false => Templates::name_of_pod(endpoint),
        };
        groups.entry(name).or_default().push(endpoint);
    }
    groups
}

/// The templates of a state and the pods made of them.
struct Templates<'a> {
    by_name: BTreeMap<Workload, &'a Endpoint>,
    /// Those that pods of the state come from.
    with_pods: Vec<Workload>,
}

impl<'a> Templates<'a> {
    fn of(state: &'a State) -> Self {
        let endpoints = state.endpoints.values();
        let (templates, pods): (Vec<&Endpoint>, Vec<&Endpoint>) =
            endpoints.filter(|e| !e.host).partition(|e| e.template);
        let named = templates.into_iter().map(|t| (Workload::endpoint(t), t));
        let mut templates = Templates {
            by_name: named.collect(),
            with_pods: Vec::new(),
        };
        let makers = pods.iter().flat_map(|pod| {
            let mut chain = templates.chain(pod);
            let last = chain.last().cloned();
            chain.extend(
                last.iter()
                    .flat_map(|owner| templates.guessed_owners(pod, owner)),
            );
            chain
        });
        let mut with_pods: Vec<Workload> = makers.collect();
        with_pods.sort();
        with_pods.dedup();
        templates.with_pods = with_pods;
        templates
    }

    /// Its owner, that one's owner if it is in the state, and so on.
    fn chain(&self, endpoint: &Endpoint) -> Vec<Workload> {
        let mut chain: Vec<Workload> = Vec::new();
        let mut next = endpoint.owner.as_ref();
        while let Some(owner) = next {
            let owner = Workload::owner(endpoint.id.namespace.clone(), owner);
            if chain.contains(&owner) {
                break;
            }
            next = self.by_name.get(&owner).and_then(|t| t.owner.as_ref());
            chain.push(owner);
        }
        chain
    }

    /// Templates that make owners of this name, where the owner itself is not in the state.
    fn guessed_owners(&self, pod: &Endpoint, owner: &Workload) -> Vec<Workload> {
        let hash = pod.labels.get("pod-template-hash").map(|hash| &**hash);
        let made_by = |maker: &&Workload| {
            let suffix = owner.name.strip_prefix(&*maker.name);
            let suffix = suffix.and_then(|rest| rest.strip_prefix('-'));
            maker.namespace == owner.namespace
                && suffix.is_some_and(|suffix| match (&*maker.kind, &*owner.kind) {
                    ("Deployment", "ReplicaSet") => Some(suffix) == hash,
                    ("CronJob", "Job") => suffix.bytes().all(|b| b.is_ascii_digit()),
                    _ => false,
                })
        };
        self.by_name.keys().filter(made_by).cloned().collect()
    }

    /// A pod goes under the name of its controlling owner, unless that is its node.
    fn name_of_pod(pod: &Endpoint) -> Workload {
        match pod.owner.as_ref().filter(|owner| &*owner.kind != "Node") {
            Some(owner) => Workload::owner(pod.id.namespace.clone(), owner),
            None => Workload::endpoint(pod),
        }
    }

    /// Whether its pods, or the template that makes it, are in the state.
    fn is_listed_otherwise(&self, template: &Endpoint) -> bool {
        let made = self.chain(template);
        self.with_pods.contains(&Workload::endpoint(template))
            || made.iter().any(|owner| self.by_name.contains_key(owner))
    }
}
