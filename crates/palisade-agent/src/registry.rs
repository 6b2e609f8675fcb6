//! The registry of this host's workloads, merged with the Pods of the source.
//!
//! A workload and the Pod of the same name are one endpoint: interface and addresses come from the
//! workload, labels and ports from the workload if given there, else from the Pod. A container whose
//! Pod is not known, or whose Pod has completed, has no address: its traffic is dropped, and it matches
//! no peer selector. A chained workload whose interface is gone is no endpoint of this host any more,
//! so that its policy is not applied to a new interface of that name; an interface without a workload
//! is an endpoint without an address until it is deleted. If an unprivileged user attached a name whose
//! Pod has a different address, the Pod keeps it. Pure bookkeeping: no kernel, no disk.

use crate::host_endpoints::HostEndpoints;
use crate::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_api::{CniAttachment, EndpointState};
use palisade_model::{
    Endpoint, EndpointId, Labels, Object, ObjectId, ObjectKey, ObjectKind, Profile, Str, Update,
};
use std::collections::{BTreeMap, BTreeSet};

/// The label of endpoints whose Pod is not known.
pub const INIT_LABEL: &str = "reserved:init";
/// The reason why such an endpoint is closed.
pub const NO_POD_REASON: &str = "its Pod is not known yet";

/// The reason why a workload of an unprivileged user is closed if its Pod has another address.
pub const ELSEWHERE_REASON: &str = "its Pod has a different address: it runs on another node";
/// The label of closed interfaces.
pub const CLOSED_LABEL: &str = "reserved:closed";

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
    /// The Pods of the source that are attached here.
    pods: BTreeMap<EndpointId, Endpoint>,
    /// Completed Pods.
    completed_pods: BTreeSet<EndpointId>,
    /// Interfaces that lost their workload and stay closed, by name.
    closed_interfaces: BTreeMap<Str, ClosedInterface>,
    /// Whether a Pod cannot put itself in audit.
    ignores_pod_mode: bool,
    /// The name of this host's node.
    own_node: Str,
    /// Whether every host endpoint is in audit.
    audits_hosts: bool,
    /// The host endpoints of this host.
    pub(crate) host_endpoints: HostEndpoints,
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
            completed_pods: BTreeSet::new(),
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
            || self.completed_pods.contains(id)
            || self.workloads.get(id).is_some_and(is_lost_chained)
    }

    /// The reason why a workload must stay closed, independent of policy.
    pub fn closed_reason(&self, id: &EndpointId) -> Option<&'static str> {
        match (self.awaits_pod(id), self.runs_elsewhere(id)) {
            (true, _) => Some(NO_POD_REASON),
            (_, true) => Some(ELSEWHERE_REASON),
            _ => None,
        }
    }

    /// Whether an unprivileged user attached it and its Pod has a different address.
    fn runs_elsewhere(&self, id: &EndpointId) -> bool {
        let Some((workload, pod)) = self.workloads.get(id).zip(self.pods.get(id)) else {
            return false;
        };
        workload.record.owner.is_some() && pod_runs_elsewhere(pod, &workload.record)
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

    /// Adds a workload with the Pod of the source, if any; returns the update of the endpoint.
    pub fn insert(&mut self, workload: Workload, pod: Option<Endpoint>) -> Update {
        let id = workload.record.id();
        if let Some(pod) = pod {
            self.pods.insert(id.clone(), pod);
        }
        self.workloads.insert(id.clone(), workload);
        self.endpoint_update(&id)
    }

    /// The endpoint of a workload and its Pod.
    pub fn endpoint_update(&self, id: &EndpointId) -> Update {
        let Some(workload) = self.workloads.get(id) else {
            return Update::Delete(ObjectKey::Endpoint(id.clone()));
        };
        if let Some(pod) = self.pods.get(id).filter(|_| self.runs_elsewhere(id)) {
            return Update::Upsert(Object::Endpoint(pod.clone()));
        }
        let mut endpoint = merge_endpoint(&workload.record, self.pods.get(id));
        endpoint.audit &= !self.ignores_pod_mode;
        if self.completed_pods.contains(id) {
            endpoint.addresses.clear();
        }
        if workload.record.chained && workload.state == EndpointState::Lost {
            endpoint.addresses.clear();
            endpoint.interface = None;
        }
        Update::Upsert(Object::Endpoint(endpoint))
    }

    /// Removes a workload; returns the update of the endpoint.
    pub fn remove(&mut self, id: &EndpointId) -> Option<(Workload, Update)> {
        let workload = self.workloads.remove(id)?;
        let update = match self.pods.remove(id) {
            Some(pod) => Update::Upsert(Object::Endpoint(pod)),
            None => Update::Delete(ObjectKey::Endpoint(id.clone())),
        };
        Some((workload, update))
    }

    /// Merges an update of the source with the workloads. Host endpoints of other nodes are left out.
    pub fn overlay_update(&mut self, update: Update) -> Update {
        match &update {
            Update::Upsert(Object::Endpoint(endpoint)) if endpoint.host => {
                if endpoint.node.as_ref() != Some(&self.own_node) {
                    self.host_endpoints.remove(&endpoint.id);
                    return Update::Delete(ObjectKey::Endpoint(endpoint.id.clone()));
                }
                let mut endpoint = endpoint.clone();
                endpoint.audit |= self.audits_hosts;
                return self.host_endpoints.upsert(endpoint);
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
        let (id, pod) = match &update {
            Update::Upsert(Object::Endpoint(endpoint)) => (endpoint.id.clone(), Some(endpoint)),
            Update::Delete(ObjectKey::Endpoint(id)) => (id.clone(), None),
            _ => return update,
        };
        match pod.is_some_and(|pod| pod.completed) {
            true => self.completed_pods.insert(id.clone()),
            false => self.completed_pods.remove(&id),
        };
        if !self.workloads.contains_key(&id) {
            return update;
        }
        match pod {
            Some(pod) => drop(self.pods.insert(id.clone(), pod.clone())),
            None => drop(self.pods.remove(&id)),
        }
        let reason = self.closed_reason(&id);
        if let Some(workload) = self.workloads.get_mut(&id) {
            if reason.is_some() && workload.state == EndpointState::Ready {
                workload.state = EndpointState::Closed;
            }
            if workload.state == EndpointState::Closed {
                workload.reason = reason.map(str::to_owned);
            }
        }
        self.endpoint_update(&id)
    }
}

/// Whether an object is a host endpoint: the addresses that it expects are a network set of its name.
fn is_host_endpoint(id: &ObjectId) -> bool {
    id.kind.name() == "HostEndpoint"
}

/// Whether a Pod of the source has another address than the workload's record.
pub fn pod_runs_elsewhere(pod: &Endpoint, record: &WorkloadRecord) -> bool {
    let other = |address| !record.addresses.contains(address);
    pod.host || pod.addresses.iter().any(other)
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
        id: closed_endpoint_id(interface),
        host: false,
        labels: [(CLOSED_LABEL.into(), "".into())].into(),
        service_account: None,
        node: None,
        interface: Some(interface.clone()),
        addresses: Vec::new(),
        ports: Vec::new(),
        profiles: Vec::new(),
        created: 0,
        owner: None,
        template: false,
        completed: false,
        host_network: false,
        audit: false,
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
        completed: false,
        host_network: false,
        audit: pod.is_some_and(|pod| pod.audit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_store::{Container, pod_id};

    fn record(owner: Option<u32>, chained: bool) -> WorkloadRecord {
        WorkloadRecord {
            namespace: "shop".into(),
            name: "web".into(),
            netns: "web".to_owned(),
            inside: "eth0".to_owned(),
            interface: "veth0".into(),
            addresses: vec!["10.0.0.2".parse().unwrap()],
            labels: None,
            ports: Vec::new(),
            created: 7,
            pending: false,
            container: chained.then(|| Container {
                id: "c0".to_owned(),
                network: "pods".to_owned(),
                uid: None,
                pod: true,
            }),
            mtu: None,
            masquerade: None,
            chained,
            index: Some(7),
            netns_identity: None,
            owner,
        }
    }

    fn pod(addresses: &[&str]) -> Endpoint {
        Endpoint {
            id: pod_id("shop", "web"),
            interface: None,
            labels: [("app".into(), "web".into())].into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ..closed_endpoint(&"x".into())
        }
    }

    fn with(record: WorkloadRecord, pod: Option<Endpoint>) -> (WorkloadRegistry, Endpoint) {
        let mut registry = WorkloadRegistry::new("node-1".into(), true, false);
        let workload = Workload {
            record,
            state: EndpointState::Ready,
            reason: None,
        };
        let update = registry.insert(workload, pod);
        (registry, endpoint(update))
    }

    fn endpoint(update: Update) -> Endpoint {
        match update {
            Update::Upsert(Object::Endpoint(endpoint)) => endpoint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_that_runs_elsewhere_keeps_its_address_from_a_member() {
        let (mut registry, here) = with(record(Some(1000), false), Some(pod(&[])));
        assert_eq!(here.interface.as_deref(), Some("veth0"));
        let appears = Update::Upsert(Object::Endpoint(pod(&["10.9.9.9"])));
        assert_eq!(
            endpoint(registry.overlay_update(appears)),
            pod(&["10.9.9.9"])
        );
        let id = pod_id("shop", "web");
        let workload = registry.get(&id).unwrap();
        assert_eq!(workload.state, EndpointState::Closed);
        assert_eq!(workload.reason.as_deref(), Some(ELSEWHERE_REASON));
        assert!(registry.has_no_address(&id));
        // A workload of root is what runs here.
        let (_, roots) = with(record(None, false), Some(pod(&["10.9.9.9"])));
        assert_eq!(roots.addresses, record(None, false).addresses);
        // The workload's own address, as the cluster reports it.
        let (_, own) = with(record(Some(1000), false), Some(pod(&["10.0.0.2"])));
        assert_eq!(own.interface.as_deref(), Some("veth0"));
    }

    #[test]
    fn a_chained_one_whose_interface_is_gone_is_judged_nowhere() {
        let (mut registry, here) = with(record(None, true), Some(pod(&[])));
        assert_eq!(here.interface.as_deref(), Some("veth0"));
        let id = pod_id("shop", "web");
        registry.get_mut(&id).unwrap().state = EndpointState::Lost;
        let lost = endpoint(registry.endpoint_update(&id));
        assert_eq!((lost.interface, lost.addresses), (None, Vec::new()));
        registry.get_mut(&id).unwrap().state = EndpointState::Closed;
        assert_eq!(endpoint(registry.endpoint_update(&id)), here);
    }

    #[test]
    fn an_interface_without_a_workload_is_announced_and_holds_nothing() {
        let mut registry = WorkloadRegistry::new("node-1".into(), true, false);
        let closed = ClosedInterface {
            interface: "veth0".into(),
            index: 7,
        };
        let announced = endpoint(registry.close_interface(closed.clone()));
        assert_eq!(announced.interface.as_deref(), Some("veth0"));
        assert!(announced.addresses.is_empty() && announced.profiles.is_empty());
        assert_eq!(registry.closed_interfaces().collect::<Vec<_>>(), [&closed]);
        let gone = Update::Delete(ObjectKey::Endpoint(announced.id));
        assert_eq!(
            registry.forget_closed_interface(&"veth0".into()),
            Some(gone)
        );
        assert_eq!(registry.forget_closed_interface(&"veth0".into()), None);
    }
}
