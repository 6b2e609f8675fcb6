//! The workloads of this host, laid over what the source says of their Pods.
//!
//! A workload and the Pod of its name are one endpoint: interface and addresses are the workload's,
//! labels and ports its own where they were given and the Pod's otherwise. A container whose Pod is
//! not known holds no address, as one whose Pod ran to its end: whatever its interface carries is dropped, and nobody can mean it as a
//! peer. Pure bookkeeping: no kernel, no disk.

use crate::record::Record;
use palisade_api::{CniAttachment, EndpointState};
use palisade_model::{Endpoint, EndpointId, Labels, Object, ObjectKey, Profile, Update};
use std::collections::{BTreeMap, BTreeSet};

/// The label of an endpoint whose Pod is not known.
pub const INIT: &str = "reserved:init";
/// Why it is closed.
pub const NO_POD: &str = "its Pod is not known yet";

/// An attached workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What is remembered of it.
    pub record: Record,
    /// Where it stands.
    pub state: EndpointState,
    /// Why, where that is not obvious.
    pub reason: Option<String>,
}

/// Workloads and Pods by id.
#[derive(Debug, Default)]
pub struct Registry {
    workloads: BTreeMap<EndpointId, Workload>,
    /// What the source says of endpoints that are attached here.
    pods: BTreeMap<EndpointId, Endpoint>,
    /// Pods that ran to their end.
    completed: BTreeSet<EndpointId>,
}

impl Registry {
    /// The workload of an id.
    pub fn get(&self, id: &EndpointId) -> Option<&Workload> {
        self.workloads.get(id)
    }

    /// The workload of an id, to change where it stands.
    pub fn get_mut(&mut self, id: &EndpointId) -> Option<&mut Workload> {
        self.workloads.get_mut(id)
    }

    /// The workload that a runtime calls so.
    pub fn attached(&self, attachment: &CniAttachment) -> Option<&Workload> {
        let is_it = |w: &&Workload| w.record.attachment().as_ref() == Some(attachment);
        self.workloads.values().find(is_it)
    }

    /// Whether a workload is closed until its Pod is known.
    pub fn awaits_pod(&self, id: &EndpointId) -> bool {
        let workload = self.workloads.get(id);
        workload.is_some_and(|w| w.record.needs_pod() && !self.pods.contains_key(id))
    }

    /// Whether a workload's addresses are nobody's at the moment: its Pod is not known, or ran to
    /// its end.
    pub fn holds_no_address(&self, id: &EndpointId) -> bool {
        self.awaits_pod(id) || self.completed.contains(id)
    }

    /// Every workload, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&EndpointId, &Workload)> {
        self.workloads.iter()
    }

    /// What is remembered of every workload.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.workloads.values().map(|workload| &workload.record)
    }

    /// Adds a workload whose Pod, as the source has it, is `pod`; says what that makes of the
    /// endpoint.
    pub fn insert(&mut self, workload: Workload, pod: Option<Endpoint>) -> Update {
        let id = workload.record.id();
        if let Some(pod) = pod {
            self.pods.insert(id.clone(), pod);
        }
        self.workloads.insert(id.clone(), workload);
        self.update(&id)
    }

    /// Takes in which pods ran to their end; says what that makes of the endpoints here.
    pub fn complete(&mut self, completed: &BTreeSet<EndpointId>) -> Vec<Update> {
        if self.completed == *completed {
            return Vec::new();
        }
        let was = std::mem::replace(&mut self.completed, completed.clone());
        let changed = was.symmetric_difference(completed);
        let here = changed.filter(|id| self.workloads.contains_key(id));
        here.map(|id| self.update(id)).collect()
    }

    /// The endpoint that a workload and its Pod are.
    fn update(&self, id: &EndpointId) -> Update {
        match self.workloads.get(id) {
            None => Update::Delete(ObjectKey::Endpoint(id.clone())),
            Some(workload) => {
                let mut endpoint = merged(&workload.record, self.pods.get(id));
                if self.completed.contains(id) {
                    endpoint.addresses.clear();
                }
                Update::Upsert(Object::Endpoint(endpoint))
            }
        }
    }

    /// Removes a workload; says what that makes of the endpoint.
    pub fn remove(&mut self, id: &EndpointId) -> Option<(Workload, Update)> {
        let workload = self.workloads.remove(id)?;
        let update = match self.pods.remove(id) {
            Some(pod) => Update::Upsert(Object::Endpoint(pod)),
            None => Update::Delete(ObjectKey::Endpoint(id.clone())),
        };
        Some((workload, update))
    }

    /// What an update of the source means with the workloads laid over it.
    pub fn overlay(&mut self, update: Update) -> Update {
        let (id, pod) = match &update {
            Update::Upsert(Object::Endpoint(endpoint)) => (endpoint.id.clone(), Some(endpoint)),
            Update::Delete(ObjectKey::Endpoint(id)) => (id.clone(), None),
            _ => return update,
        };
        let Some(workload) = self.workloads.get_mut(&id) else {
            return update;
        };
        match pod {
            Some(pod) => drop(self.pods.insert(id.clone(), pod.clone())),
            None => drop(self.pods.remove(&id)),
        }
        let awaits = pod.is_none() && workload.record.needs_pod();
        if awaits && workload.state == EndpointState::Ready {
            workload.state = EndpointState::Closed;
        }
        if workload.state == EndpointState::Closed {
            workload.reason = awaits.then(|| NO_POD.to_owned());
        }
        self.update(&id)
    }
}

fn merged(record: &Record, pod: Option<&Endpoint>) -> Endpoint {
    let awaits = pod.is_none() && record.needs_pod();
    let labels = match (&record.labels, pod) {
        (Some(given), _) => given.clone().into(),
        (None, None) if awaits => [(INIT.into(), "".into())].into(),
        (None, Some(pod)) => pod.labels.clone(),
        (None, None) => Labels::new(),
    };
    let ports = match pod {
        Some(pod) if record.ports.is_empty() => pod.ports.clone(),
        _ => record.ports.clone(),
    };
    Endpoint {
        id: record.id(),
        host: false,
        labels,
        service_account: pod.map_or(Some("default".into()), |pod| pod.service_account.clone()),
        node: pod.and_then(|pod| pod.node.clone()),
        interface: Some(record.interface.clone()),
        addresses: match awaits {
            true => Vec::new(),
            false => record.addresses.clone(),
        },
        ports,
        profiles: vec![Profile::ALLOW_ALL.into()],
        created: record.created,
        owner: pod.and_then(|pod| pod.owner.clone()),
        template: false,
    }
}
