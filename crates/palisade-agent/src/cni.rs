//! CNI operations: validates requests of container runtimes and executes them.
//!
//! An attachment is identified by container, network and interface. ADD and DEL are idempotent. A pod
//! has one Palisade interface: a new container of the same pod replaces the former one, and later
//! requests for the former one have no effect. [`crate::workload_lifecycle`] does the attaching.

use crate::attach::{AttachPlan, AttachRequest, AttachTarget};
use crate::core::Core;
use crate::error_chain::error_chain;
use crate::network_driver::{GATEWAY_V4, GATEWAY_V6, HOST_MAC};
use crate::workload_lifecycle::PreopenedNetns;
use crate::workload_store::{Container, NetnsIdentity, WorkloadRecord};
use crate::workloads::{
    WorkloadError, check_interface, check_netns, is_dns_subdomain, parse_addresses,
};
use palisade_api::{
    CniAddRequest, CniAddResponse, CniAddress, CniAttachment, CniCheckRequest, CniGcRequest,
    CniResponse, CniRoute, EndpointState,
};
use palisade_model::{EndpointId, Prefix, Str};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Core {
    /// ADD: attaches a container; returns when its policy is in the kernel. A container whose Pod is
    /// not known is attached but closed, and the response says so.
    ///
    /// # Errors
    /// See [`WorkloadError`]; the attach is then rolled back.
    pub fn cni_add(&mut self, request: &CniAddRequest) -> Result<CniAddResponse, WorkloadError> {
        self.cni_add_in_netns(request, None)
    }

    /// The same, in a namespace that is already open.
    ///
    /// # Errors
    /// As [`Core::cni_add`].
    pub fn cni_add_in_netns(
        &mut self,
        request: &CniAddRequest,
        netns: PreopenedNetns,
    ) -> Result<CniAddResponse, WorkloadError> {
        let record = self.attach_one(AttachRequest {
            target: AttachTarget::Container(request.clone()),
            netns,
            received_at: self.clock.monotonic(),
        })?;
        self.cni_add_response(&record)
    }

    /// Checks an ADD, detaches what it replaces, and makes its record.
    pub(crate) fn plan_container(
        &mut self,
        request: &CniAddRequest,
        netns: PreopenedNetns,
    ) -> Result<AttachPlan, WorkloadError> {
        if !self.enforcer.in_sync {
            return Err(WorkloadError::NotInSync);
        }
        let mut record = self.container_record(request)?;
        if let Some(Ok(netns)) = &netns {
            record.netns_identity = Some(NetnsIdentity::of(netns));
        }
        let id = record.id();
        if let Some(present) = self.registry.get(&id) {
            if matches_request(&present.record, &record) && present.state != EndpointState::Lost {
                return Ok(AttachPlan::Present(present.record.clone()));
            }
            let old = &present.record;
            // Only another container, or the same one with another namespace, replaces it; and a pod of
            // the runtime replaces what a user attached under its name.
            let conflicts = match (&old.container, &record.container) {
                _ if old.owner.is_some() => false,
                (Some(old), Some(new)) => {
                    old.id == new.id
                        && (&old.network, &present.record.inside) != (&new.network, &record.inside)
                }
                _ => true,
            };
            if conflicts {
                return Err(WorkloadError::Exists {
                    id: id.to_string(),
                    netns: old.netns.clone(),
                });
            }
        }
        for stale in self.superseded_workloads(&record) {
            tracing::info!(workload = %stale, by = request.container, "superseded");
            self.detach(&stale)?;
        }
        let families = request.families.clone();
        Ok(AttachPlan::New {
            record,
            families,
            netns,
        })
    }

    /// DEL: detaches a container. It is no error if the container is not attached, or if another
    /// container has replaced it.
    ///
    /// # Errors
    /// If its interface cannot be deleted; it then stays attached.
    pub fn cni_del(&mut self, attachment: &CniAttachment) -> Result<CniResponse, WorkloadError> {
        let is_same_attachment =
            |record: &&WorkloadRecord| record.attachment().as_ref() == Some(attachment);
        let leftover = self
            .leftovers
            .iter()
            .find(is_same_attachment)
            .map(WorkloadRecord::id);
        let attached = self
            .registry
            .by_attachment(attachment)
            .map(|w| w.record.id());
        let removed = match attached.or(leftover) {
            Some(id) => {
                self.detach(&id)?;
                vec![attachment.clone()]
            }
            None => Vec::new(),
        };
        Ok(cni_done_response(removed))
    }

    /// CHECK: compares a container with its state after ADD.
    ///
    /// # Errors
    /// [`WorkloadError::NotAttached`], or [`WorkloadError::NotAsAttached`] with every difference.
    pub fn cni_check(&mut self, request: &CniCheckRequest) -> Result<CniResponse, WorkloadError> {
        let Some(workload) = self.registry.by_attachment(&request.attachment) else {
            let CniAttachment {
                container,
                network,
                interface,
            } = request.attachment.clone();
            return Err(WorkloadError::NotAttached {
                network,
                container,
                interface,
            });
        };
        let (record, state) = (workload.record.clone(), workload.state);
        let id = record.id();
        let mut differences = Vec::new();
        if record.netns != request.netns {
            differences.push(format!(
                "it was attached from the namespace {}",
                record.netns
            ));
        }
        for address in parse_addresses(&request.addresses)? {
            if !record.addresses.contains(&address) {
                differences.push(format!("{address} is not one of its addresses"));
            }
        }
        let is_waiting = self.registry.closed_reason(&id).is_some();
        match (state, &self.enforcer.kernel_failure) {
            (EndpointState::Lost, _) => differences.push("its interface is gone".to_owned()),
            (EndpointState::Closed, _) if !is_waiting => {
                differences.push("it is closed".to_owned())
            }
            (_, Some(failure)) => {
                differences.push(format!("the kernel does not hold its policy: {failure}"));
            }
            _ => {}
        }
        let inspect_error = |source| WorkloadError::Inspect {
            id: id.to_string(),
            source: Box::new(source),
        };
        if state == EndpointState::Ready {
            let found = self
                .network
                .host_interface_states(std::slice::from_ref(&record));
            for found in found.map_err(inspect_error)? {
                differences.extend(found.differences(&record.interface));
            }
        }
        match self.network.netns_interface(&record) {
            Err(error) => differences.push(error_chain(&error)),
            Ok(inside) => {
                let missing = record
                    .addresses
                    .iter()
                    .filter(|address| !inside.addresses.contains(address));
                differences.extend(
                    missing.map(|a| format!("the address {a} is missing on {}", record.inside)),
                );
                for (gateway, everything) in default_routes(&record) {
                    if !record.chained && !inside.routes.contains(&everything) {
                        differences.push(format!("the route to {everything} by {gateway} is gone"));
                    }
                }
            }
        }
        match differences.is_empty() {
            true => Ok(cni_done_response(Vec::new())),
            false => Err(WorkloadError::NotAsAttached {
                id: id.to_string(),
                differences,
            }),
        }
    }

    /// GC: detaches the containers of a network that the runtime does not list, and all whose namespace is
    /// gone.
    ///
    /// # Errors
    /// The first failure; the remaining containers are detached nevertheless.
    pub fn cni_gc(&mut self, request: &CniGcRequest) -> Result<CniResponse, WorkloadError> {
        let is_stale = |record: &WorkloadRecord| {
            let attachment = record.attachment();
            attachment.is_some_and(|a| a.network == request.network && !request.valid.contains(&a))
        };
        let mut stale: Vec<(EndpointId, Option<CniAttachment>)> = Vec::new();
        for record in self.registry.records() {
            if is_stale(record) {
                stale.push((record.id(), record.attachment()));
            }
        }
        let mut failed = self.clear_leftovers(None).err();
        let mut removed = Vec::new();
        for (id, attachment) in stale {
            match self.detach(&id) {
                Ok(_) => removed.extend(attachment),
                Err(error) => {
                    tracing::error!(workload = %id, error = %error_chain(&error), "CNI GC: detaching a stale container failed");
                    failed.get_or_insert(error);
                }
            }
        }
        removed.extend(self.detach_vanished()?);
        match failed {
            None => Ok(cni_done_response(removed)),
            Some(error) => Err(error),
        }
    }

    /// Detaches containers whose namespace is gone, and with it their interface.
    ///
    /// # Errors
    /// If one cannot be detached.
    pub(crate) fn detach_vanished(&mut self) -> Result<Vec<CniAttachment>, WorkloadError> {
        let containers = self.registry.records().filter(|r| r.container.is_some());
        let vanished = containers.filter(|record| !self.network.netns_exists(record));
        let vanished: Vec<WorkloadRecord> = vanished.cloned().collect();
        let mut removed = Vec::new();
        for record in vanished {
            let joined =
                self.network
                    .has_interface(&record)
                    .map_err(|source| WorkloadError::Inspect {
                        id: record.id().to_string(),
                        source: Box::new(source),
                    })?;
            // A namespace may still exist although its path is gone.
            if !joined {
                tracing::info!(workload = %record.id(), netns = record.netns, "detached a workload whose network namespace no longer exists");
                self.detach(&record.id())?;
                removed.extend(record.attachment());
            }
        }
        Ok(removed)
    }

    /// Notifies `waiter` when a workload opens.
    pub fn notify_when_open(&mut self, id: EndpointId, waiter: tokio::sync::oneshot::Sender<()>) {
        match self.registry.get(&id).map(|workload| workload.state) {
            Some(EndpointState::Closed) => self.open_waiters.push((id, waiter)),
            // The receiver may have stopped waiting.
            _ => drop(waiter.send(())),
        }
    }

    /// Workloads that this one replaces: the former container of its pod, the same container with
    /// another namespace, the former workload of an interface that another plugin created, and the
    /// workload that an unprivileged user attached from its namespace.
    fn superseded_workloads(&self, record: &WorkloadRecord) -> Vec<EndpointId> {
        let attachment = record.attachment();
        let same_netns = |old: &WorkloadRecord| {
            let known = old.netns_identity.is_some();
            old.netns == record.netns || (known && old.netns_identity == record.netns_identity)
        };
        let is_stale = |old: &&WorkloadRecord| {
            old.id() == record.id()
                || old.attachment() == attachment
                || (record.chained && old.interface == record.interface)
                || (old.owner.is_some() && same_netns(old))
        };
        let stale = self.registry.records().filter(is_stale);
        stale.map(WorkloadRecord::id).collect()
    }

    fn container_record(
        &mut self,
        request: &CniAddRequest,
    ) -> Result<WorkloadRecord, WorkloadError> {
        let invalid = |field, reason: &str| WorkloadError::Invalid {
            field,
            reason: reason.to_owned(),
        };
        for (field, value) in [("namespace", &request.namespace), ("name", &request.name)] {
            // A container without a pod is named by its id.
            let is_valid = match field == "name" && !request.pod {
                true => is_cni_id(value),
                false => is_dns_subdomain(value),
            };
            if !is_valid {
                return Err(invalid(
                    field,
                    &format!("{value:?} is not a valid pod name"),
                ));
            }
        }
        for (field, value) in [
            ("container", &request.container),
            ("network", &request.network),
        ] {
            if !is_cni_id(value) {
                return Err(invalid(field, &format!("{value:?} is not a valid CNI id")));
            }
        }
        check_netns(&request.netns)?;
        check_interface(&request.interface)?;
        let mut record = WorkloadRecord {
            namespace: Str::from(&*request.namespace),
            name: Str::from(&*request.name),
            netns: request.netns.clone(),
            inside: request.interface.clone(),
            interface: "".into(),
            addresses: parse_addresses(&request.addresses)?,
            // A container without a pod has no labels.
            labels: (!request.pod).then(Default::default),
            ports: Vec::new(),
            created: self.clock.wall().as_secs(),
            pending: false,
            container: Some(Container {
                id: request.container.clone(),
                network: request.network.clone(),
                uid: request.uid.clone(),
                pod: request.pod,
            }),
            mtu: Some(self.pod_mtu(request.mtu)?),
            masquerade: request.masquerade,
            chained: request.chained.is_some(),
            index: None,
            netns_identity: None,
            owner: None,
        };
        match &request.chained {
            Some(chained) => {
                if check_interface(&chained.host_interface).is_err() {
                    return Err(invalid("chained", "does not name the host-side interface"));
                }
                record.interface = Str::from(&*chained.host_interface);
                record.addresses = parse_addresses(&chained.addresses)?;
                if record.addresses.is_empty() {
                    return Err(invalid("chained", "has no addresses"));
                }
                record.mtu = None;
                record.masquerade = Some(false);
            }
            None => {
                record.interface = self.generate_interface_name(
                    &request.namespace,
                    &request.name,
                    &request.netns,
                )?;
            }
        }
        Ok(record)
    }

    /// The MTU of a pod: that of its network configuration, else that of the agent's configuration,
    /// else that of the default route.
    fn pod_mtu(&mut self, requested: Option<u32>) -> Result<u32, WorkloadError> {
        if let Some(known) = requested.or(self.config.pod_mtu) {
            return Ok(known);
        }
        let mtu = self.network.default_route_mtu();
        let mtu = mtu.map_err(|source| WorkloadError::Inspect {
            id: "the default route".to_owned(),
            source: Box::new(source),
        })?;
        Ok(mtu.unwrap_or(self.config.mtu))
    }

    pub(crate) fn cni_add_response(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<CniAddResponse, WorkloadError> {
        let inside =
            self.network
                .netns_interface(record)
                .map_err(|source| WorkloadError::Inspect {
                    id: record.id().to_string(),
                    source: Box::new(source),
                })?;
        let workload = self.registry.get(&record.id());
        let closed = workload.filter(|w| w.state != EndpointState::Ready);
        Ok(CniAddResponse {
            api_version: palisade_api::api_version(),
            host_interface: record.interface.to_string(),
            host_mac: HOST_MAC.to_string(),
            mac: inside.mac.to_string(),
            mtu: inside.mtu,
            addresses: record
                .addresses
                .iter()
                .map(|address| CniAddress {
                    address: Prefix::host(*address).to_string(),
                    gateway: gateway_for(*address).to_string(),
                })
                .collect(),
            routes: default_routes(record)
                .map(|(gateway, everything)| CniRoute {
                    destination: everything.to_string(),
                    gateway: gateway.to_string(),
                })
                .collect(),
            revision: self.enforcer.realised_revision,
            closed: closed.map(|w| w.reason.clone().unwrap_or_else(|| "closed".to_owned())),
        })
    }
}

/// Whether the existing record describes a different attachment than the request.
fn matches_request(present: &WorkloadRecord, requested: &WorkloadRecord) -> bool {
    let addresses = requested.addresses.is_empty() || present.addresses == requested.addresses;
    let interface = present.chained == requested.chained
        && (!requested.chained || present.interface == requested.interface);
    present.attachment() == requested.attachment()
        && present.netns == requested.netns
        && addresses
        && interface
}

fn cni_done_response(removed: Vec<CniAttachment>) -> CniResponse {
    CniResponse {
        api_version: palisade_api::api_version(),
        removed,
    }
}

/// The gateway for a workload's address.
fn gateway_for(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => GATEWAY_V4.into(),
        IpAddr::V6(_) => GATEWAY_V6.into(),
    }
}

/// The gateways of a workload, each with its default destination.
fn default_routes(
    record: &WorkloadRecord,
) -> impl Iterator<Item = (IpAddr, palisade_sys::link::IpNet)> + use<> {
    let has_family = |v4: bool| record.addresses.iter().any(|a| a.is_ipv4() == v4);
    let everything = [
        (has_family(true), IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        (has_family(false), IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    ];
    let families = everything.into_iter().filter(|(has, _)| *has);
    families.map(|(_, any)| (gateway_for(any), palisade_sys::link::IpNet::new(any, 0)))
}

/// The format of ids in the CNI specification.
fn is_cni_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 253
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}
