//! The registry of this host's workloads, merged with the Pods of the source.
//!
//! A workload and its Pod are one endpoint: interface and addresses come from the workload, labels and
//! ports from the workload if given there, else from the Pod. The Pod of a workload is that of the same
//! name, unless it is another one ([`WorkloadRegistry::is_own_pod`]): then both are endpoints of their
//! own, and the container keeps what its own Pod said last. A container whose Pod is not known, or whose
//! Pod has completed, has no address: its traffic is dropped, and it matches no peer selector. A chained workload whose interface is gone is no endpoint of this host any more,
//! so that its policy is not applied to a new interface of that name; an interface without a workload
//! is an endpoint without an address until it is deleted. If an unprivileged user attached a name whose
//! Pod has a different address, the Pod keeps it. Pure bookkeeping: no kernel, no disk.

use crate::host_endpoints::HostEndpoints;
use palisade_api::{CniAttachment, EndpointState};
use palisade_enforcer::policy_state::CLOSED_LABEL;
use palisade_model::{
    Endpoint, EndpointId, EndpointMetadata, Labels, Object, ObjectId, ObjectKey, ObjectKind, Str,
    Update,
};
use palisade_node::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_sys::fault;
use std::collections::BTreeMap;

/// The label of endpoints whose Pod is not known.
pub const INIT_LABEL: &str = "reserved:init";
/// The reason why such an endpoint is closed.
pub const NO_POD_REASON: &str = "its Pod is not known yet";

/// The reason why a container is closed if the Pod of its name is another one.
pub const FOREIGN_POD_REASON: &str =
    "the Pod of its name is not its own: it has another UID or is on another node";

/// The reason why a workload of an unprivileged user is closed if its Pod has another address.
pub const ELSEWHERE_REASON: &str = "its Pod has a different address: it runs on another node";
/// An attached workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its record.
    pub record: WorkloadRecord,
    /// Its state.
    pub state: EndpointState,
    /// The reason of its state, unless it is obvious.
    pub reason: Option<String>,
}

/// Workloads and Pods by id.
#[derive(Debug)]
pub struct WorkloadRegistry {
    workloads: BTreeMap<EndpointId, Workload>,
    /// The Pods of attached workloads, as the source described them last.
    pods: BTreeMap<EndpointId, Endpoint>,
    /// The Pods of the source that have the name of an attached workload and are not its own.
    foreign_pods: BTreeMap<EndpointId, Endpoint>,
    /// The UIDs of the Pods that are on this node, or on none.
    pod_uids: BTreeMap<EndpointId, Str>,
    /// Interfaces that lost their workload and stay closed, by name.
    closed_interfaces: BTreeMap<Str, ClosedInterface>,
    /// Whether a Pod cannot put itself in audit.
    ignores_pod_mode: bool,
    /// The name of this host's node.
    own_node: Str,
    /// Whether every host endpoint is in audit.
    audits_hosts: bool,
    /// The host endpoints of this host.
    pub host_endpoints: HostEndpoints,
}

impl WorkloadRegistry {
    /// A registry without workloads, of the host with this node. `honors_pod_mode`: whether a Pod can put itself in
    /// audit; `audits_hosts`: whether every host endpoint is in audit.
    pub fn new(own_node: Str, honors_pod_mode: bool, audits_hosts: bool) -> Self {
        WorkloadRegistry {
            host_endpoints: HostEndpoints::of_node(own_node.clone()),
            own_node,
            audits_hosts,
            ignores_pod_mode: !honors_pod_mode,
            workloads: BTreeMap::new(),
            pods: BTreeMap::new(),
            foreign_pods: BTreeMap::new(),
            pod_uids: BTreeMap::new(),
            closed_interfaces: BTreeMap::new(),
        }
    }

    /// The name of this host's node.
    pub fn own_node(&self) -> &Str {
        &self.own_node
    }

    /// The workload with this id.
    pub fn get(&self, id: &EndpointId) -> Option<&Workload> {
        self.workloads.get(id)
    }

    /// The workload with this id, mutable.
    pub fn get_mut(&mut self, id: &EndpointId) -> Option<&mut Workload> {
        self.workloads.get_mut(id)
    }

    /// The workload of a CNI attachment.
    pub fn by_attachment(&self, attachment: &CniAttachment) -> Option<&Workload> {
        let matches = |w: &&Workload| w.record.attachment().as_ref() == Some(attachment);
        self.workloads.values().find(matches)
    }

    /// Whether a workload is closed until its Pod is known.
    pub fn awaits_pod(&self, id: &EndpointId) -> bool {
        let workload = self.workloads.get(id);
        workload.is_some_and(|w| w.record.needs_pod() && !self.pods.contains_key(id))
    }

    /// Whether a workload has no address at present: its Pod is not known, has completed, or runs
    /// elsewhere, or its chained interface is gone.
    pub fn has_no_address(&self, id: &EndpointId) -> bool {
        let is_lost_chained = |w: &Workload| w.record.chained && w.state == EndpointState::Lost;
        self.closed_reason(id).is_some()
            || self.is_completed(id)
            || self.workloads.get(id).is_some_and(is_lost_chained)
    }

    /// The reason why a workload must stay closed, independent of policy.
    pub fn closed_reason(&self, id: &EndpointId) -> Option<&'static str> {
        let record = &self.workloads.get(id)?.record;
        let has_foreign = self.foreign_pods.contains_key(id);
        if has_foreign && record.owner.is_some() {
            return Some(ELSEWHERE_REASON);
        }
        let reason = if has_foreign {
            FOREIGN_POD_REASON
        } else {
            NO_POD_REASON
        };
        self.awaits_pod(id).then_some(reason)
    }

    /// The endpoint of a workload in the engine: that of its Pod, unless the Pod of its name is another one.
    pub fn endpoint_id(&self, id: &EndpointId) -> EndpointId {
        if self.foreign_pods.contains_key(id) {
            container_endpoint_id(id)
        } else {
            id.clone()
        }
    }

    fn is_completed(&self, id: &EndpointId) -> bool {
        self.pods.get(id).is_some_and(|pod| pod.is_completed())
    }

    /// Whether a Pod of the source with the name of a workload is its own. That of a container has the UID that the
    /// runtime passed, where both have one, and is not on another node. An unprivileged user's has no other address.
    /// To what root attached by name, the name alone applies.
    fn is_own_pod(&self, record: &WorkloadRecord, pod: &Endpoint) -> bool {
        if record.owner.is_some() && pod_runs_elsewhere(pod, record) {
            return false;
        }
        let Some(container) = &record.container else {
            return true;
        };
        let knows_node = !self.own_node.is_empty();
        let is_elsewhere = pod.node.as_ref().is_some_and(|node| *node != self.own_node);
        let uids = container.uid.as_deref().zip(self.pod_uids.get(&pod.id));
        let is_other = uids.is_some_and(|(container, pod)| *container != **pod);
        let is_foreign = knows_node && is_elsewhere || is_other;
        !is_foreign || fault::is_injected("pod-matched-by-name")
    }

    /// Keeps an interface without a workload closed; returns the update of its endpoint.
    pub fn close_interface(&mut self, closed: ClosedInterface) -> Update {
        let update = Update::Upsert(Object::Endpoint(closed_endpoint(&closed.interface)));
        self.closed_interfaces
            .insert(closed.interface.clone(), closed);
        update
    }

    /// Forgets a closed interface, which was deleted or has a workload again.
    pub fn forget_closed_interface(&mut self, interface: &Str) -> Option<Update> {
        let closed = self.closed_interfaces.remove(interface)?;
        Some(Update::Delete(ObjectKey::Endpoint(closed_endpoint_id(
            &closed.interface,
        ))))
    }

    /// The closed interfaces, by name.
    pub fn closed_interfaces(&self) -> impl Iterator<Item = &ClosedInterface> {
        self.closed_interfaces.values()
    }

    /// All workloads, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&EndpointId, &Workload)> {
        self.workloads.iter()
    }

    /// The records of all workloads.
    pub fn records(&self) -> impl Iterator<Item = &WorkloadRecord> {
        self.workloads.values().map(|workload| &workload.record)
    }

    /// Adds a workload with the Pod of its name in the source, if any; returns the updates of the endpoints.
    pub fn insert(&mut self, workload: Workload, pod: Option<Endpoint>) -> Vec<Update> {
        let id = workload.record.id();
        if let Some(pod) = pod {
            let pods = if self.is_own_pod(&workload.record, &pod) {
                &mut self.pods
            } else {
                &mut self.foreign_pods
            };
            pods.insert(id.clone(), pod);
        }
        self.workloads.insert(id.clone(), workload);
        self.endpoint_updates(&id)
    }

    /// The endpoint of a workload and its Pod, or of both apart.
    pub fn endpoint_updates(&self, id: &EndpointId) -> Vec<Update> {
        let Some(workload) = self.workloads.get(id) else {
            return vec![Update::Delete(ObjectKey::Endpoint(id.clone()))];
        };
        let mut endpoint = merge_endpoint(&workload.record, self.pods.get(id));
        endpoint.id = self.endpoint_id(id);
        endpoint.audit &= !self.ignores_pod_mode;
        if self.is_completed(id) || self.closed_reason(id).is_some() {
            endpoint.addresses.clear();
        }
        if workload.record.chained && workload.state == EndpointState::Lost {
            endpoint.addresses.clear();
            endpoint.interface = None;
        }
        let foreign = self.foreign_pods.get(id).cloned();
        let endpoints = foreign.into_iter().chain([endpoint]);
        endpoints
            .map(|endpoint| Update::Upsert(Object::Endpoint(endpoint)))
            .collect()
    }

    /// Removes a workload; returns the updates of the endpoints.
    pub fn remove(&mut self, id: &EndpointId) -> Option<(Workload, Vec<Update>)> {
        let workload = self.workloads.remove(id)?;
        let own = self.pods.remove(id);
        let foreign = self.foreign_pods.remove(id);
        let container = foreign.as_ref().map(|_| container_endpoint_id(id));
        let container = container.map(|id| Update::Delete(ObjectKey::Endpoint(id)));
        let pod = match foreign.or(own) {
            Some(pod) => Update::Upsert(Object::Endpoint(pod)),
            None => Update::Delete(ObjectKey::Endpoint(id.clone())),
        };
        Some((workload, [pod].into_iter().chain(container).collect()))
    }

    /// Merges an update of the source with the workloads. Host endpoints of other nodes are left out.
    pub fn overlay_update(&mut self, mut update: Update) -> Vec<Update> {
        match &update {
            Update::Upsert(Object::Endpoint(endpoint)) if endpoint.is_host() => {
                if endpoint.node.as_ref() != Some(&self.own_node) {
                    self.host_endpoints.remove(&endpoint.id);
                    return vec![Update::Delete(ObjectKey::Endpoint(endpoint.id.clone()))];
                }
                let mut endpoint = endpoint.clone();
                endpoint.audit |= self.audits_hosts;
                return vec![self.host_endpoints.upsert(endpoint)];
            }
            Update::Delete(ObjectKey::Endpoint(id)) => self.host_endpoints.remove(id),
            Update::Upsert(Object::NetworkSet(set)) if is_host_endpoint(&set.id) => {
                self.host_endpoints.upsert_expected(set);
            }
            Update::Delete(ObjectKey::NetworkSet(id)) => self.host_endpoints.remove_expected(id),
            Update::Upsert(Object::Policy(policy)) => self.host_endpoints.upsert_policy(policy),
            Update::Delete(ObjectKey::Policy(id)) => self.host_endpoints.remove_policy(id),
            _ => {}
        }
        let (id, pod) = match &mut update {
            Update::Upsert(Object::Endpoint(endpoint)) => {
                let uid = endpoint.metadata.uid.take();
                self.set_pod_uid(endpoint, uid);
                (endpoint.id.clone(), Some(&*endpoint))
            }
            Update::Delete(ObjectKey::Endpoint(id)) => {
                self.pod_uids.remove(id);
                (id.clone(), None)
            }
            _ => return vec![update],
        };
        if !self.workloads.contains_key(&id) {
            return vec![update];
        }
        let was_foreign = self.foreign_pods.contains_key(&id);
        self.set_pod(&id, pod);
        let reason = self.closed_reason(&id);
        if let Some(workload) = self.workloads.get_mut(&id) {
            if reason.is_some() && workload.state == EndpointState::Ready {
                workload.state = EndpointState::Closed;
            }
            if workload.state == EndpointState::Closed {
                workload.reason = reason.map(str::to_owned);
            }
        }
        let mut updates = self.endpoint_updates(&id);
        if was_foreign && !self.foreign_pods.contains_key(&id) {
            let container = container_endpoint_id(&id);
            updates.push(Update::Delete(ObjectKey::Endpoint(container)));
        }
        updates
    }

    /// Remembers the UID of a Pod that may be attached here.
    fn set_pod_uid(&mut self, pod: &Endpoint, uid: Option<Str>) {
        let is_here = pod.node.as_ref().is_none_or(|node| *node == self.own_node);
        match uid.filter(|_| is_here && !pod.is_template()) {
            Some(uid) => drop(self.pod_uids.insert(pod.id.clone(), uid)),
            None => drop(self.pod_uids.remove(&pod.id)),
        }
    }

    /// Sets the Pod of the source that has the name of a workload. Where it is not its own, what its own said last
    /// stays; an unprivileged user's workload loses that.
    fn set_pod(&mut self, id: &EndpointId, pod: Option<&Endpoint>) {
        let Some(record) = self.workloads.get(id).map(|workload| &workload.record) else {
            return;
        };
        let has_owner = record.owner.is_some();
        match pod {
            Some(pod) if self.is_own_pod(record, pod) => {
                self.pods.insert(id.clone(), pod.clone());
                self.foreign_pods.remove(id);
            }
            Some(pod) => {
                self.foreign_pods.insert(id.clone(), pod.clone());
                if has_owner {
                    self.pods.remove(id);
                }
            }
            None => {
                if self.foreign_pods.remove(id).is_none() {
                    self.pods.remove(id);
                }
            }
        }
    }
}

/// The id of a container's endpoint while the Pod of its name is another one.
fn container_endpoint_id(pod: &EndpointId) -> EndpointId {
    ObjectId {
        kind: ObjectKind::new("", "Container"),
        ..pod.clone()
    }
}

/// Whether an object is a host endpoint: the addresses that it expects are a network set of its name.
fn is_host_endpoint(id: &ObjectId) -> bool {
    id.kind.name() == "HostEndpoint"
}

/// Whether a Pod of the source has another address than the workload's record.
pub fn pod_runs_elsewhere(pod: &Endpoint, record: &WorkloadRecord) -> bool {
    let other = |address| !record.addresses.contains(address);
    pod.is_host() || pod.addresses.iter().any(other)
}

fn closed_endpoint_id(interface: &Str) -> EndpointId {
    ObjectId {
        namespace: None,
        name: interface.clone(),
        kind: ObjectKind::new("", "Interface"),
    }
}

/// An endpoint that only declares its interface: all its traffic is dropped.
fn closed_endpoint(interface: &Str) -> Endpoint {
    Endpoint {
        labels: [(CLOSED_LABEL.into(), "".into())].into(),
        interface: Some(interface.clone()),
        profiles: Vec::new(),
        ..Endpoint::pod(closed_endpoint_id(interface))
    }
}

fn merge_endpoint(record: &WorkloadRecord, pod: Option<&Endpoint>) -> Endpoint {
    let awaits = pod.is_none() && record.needs_pod();
    let labels = match (&record.labels, pod) {
        (Some(given), _) => given.clone().into(),
        (None, None) if awaits => [(INIT_LABEL.into(), "".into())].into(),
        (None, Some(pod)) => pod.labels.clone(),
        (None, None) => Labels::new(),
    };
    let ports = match pod {
        Some(pod) if record.ports.is_empty() => pod.ports.clone(),
        _ => record.ports.clone(),
    };
    Endpoint {
        labels,
        service_account: pod.map_or(Some("default".into()), |pod| pod.service_account.clone()),
        node: pod.and_then(|pod| pod.node.clone()),
        interface: Some(record.interface.clone()),
        addresses: if awaits {
            Vec::new()
        } else {
            record.addresses.clone()
        },
        ports,
        created: record.created,
        metadata: EndpointMetadata {
            owner: pod.and_then(|pod| pod.metadata.owner.clone()),
            uid: None,
        },
        audit: pod.is_some_and(|pod| pod.audit),
        ..Endpoint::pod(record.id())
    }
}

#[cfg(test)]
mod tests;
