//! Containers that a runtime attaches by CNI: what the plugin asks, checked and answered.
//!
//! An attachment is the runtime's container, network and interface. ADD and DEL of the same one may be
//! asked for any number of times. A pod has one interface of ours: a new container of its name takes
//! the place of the old, and what is asked about the old one then concerns nobody. How attaching is
//! done is in [`crate::attaching`].

use crate::attach::{GATEWAY_V4, GATEWAY_V6, HOST_MAC};
use crate::attaching::Opened;
use crate::core::{Core, chain};
use crate::record::{Container, NetnsIdentity, Record};
use crate::workloads::{WorkloadError, addresses, check_interface, check_netns, is_name};
use palisade_api::{
    CniAdd, CniAdded, CniAddress, CniAttachment, CniCheck, CniDone, CniGc, CniRoute, EndpointState,
};
use palisade_model::{EndpointId, Prefix, Str};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Core {
    /// ADD: attaches a container; returns when its policy is in the kernel. One whose Pod is not known
    /// is attached and closed, and the answer says so.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub fn cni_add(&mut self, request: &CniAdd) -> Result<CniAdded, WorkloadError> {
        self.cni_add_in(request, None)
    }

    /// The same, in a namespace that was opened already.
    ///
    /// # Errors
    /// As [`Core::cni_add`].
    pub fn cni_add_in(
        &mut self,
        request: &CniAdd,
        netns: Opened,
    ) -> Result<CniAdded, WorkloadError> {
        if !self.in_sync {
            return Err(WorkloadError::Starting);
        }
        let mut record = self.record_of_container(request)?;
        if let Some(Ok(netns)) = &netns {
            record.netns_identity = Some(NetnsIdentity::of(netns));
        }
        let id = record.id();
        if let Some(present) = self.registry.get(&id) {
            if is_same(&present.record, &record) && present.state != EndpointState::Lost {
                let present = present.record.clone();
                return self.cni_added(&present);
            }
            let old = &present.record;
            // Only another container, or the same one in another place, is its successor; and a pod
            // that root runs is that of what somebody else attached under its name.
            let second = match (&old.container, &record.container) {
                _ if old.owner.is_some() => false,
                (Some(old), Some(new)) => {
                    old.id == new.id
                        && (&old.network, &present.record.inside) != (&new.network, &record.inside)
                }
                _ => true,
            };
            if second {
                return Err(WorkloadError::Exists {
                    id: id.to_string(),
                    netns: old.netns.clone(),
                });
            }
        }
        for stale in self.superseded_by(&record) {
            tracing::info!(workload = %stale, by = request.container, "superseded");
            self.detach(&stale)?;
        }
        let record = self.attach(record, &request.families, netns)?;
        self.cni_added(&record)
    }

    /// DEL: detaches a container. One that is not attached, or whose pod another container has
    /// become, is no error.
    ///
    /// # Errors
    /// If its interface cannot be removed; then it stays attached.
    pub fn cni_del(&mut self, attachment: &CniAttachment) -> Result<CniDone, WorkloadError> {
        let left = |record: &&Record| record.attachment().as_ref() == Some(attachment);
        let left = self.leftovers.iter().find(left).map(Record::id);
        let attached = self.registry.attached(attachment).map(|w| w.record.id());
        let removed = match attached.or(left) {
            Some(id) => {
                self.detach(&id)?;
                vec![attachment.clone()]
            }
            None => Vec::new(),
        };
        Ok(done(removed))
    }

    /// CHECK: whether a container is attached as it was.
    ///
    /// # Errors
    /// [`WorkloadError::NotAttached`], or [`WorkloadError::Changed`] with every difference.
    pub fn cni_check(&mut self, request: &CniCheck) -> Result<CniDone, WorkloadError> {
        let Some(workload) = self.registry.attached(&request.attachment) else {
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
            differences.push(format!("it was attached from {}", record.netns));
        }
        for address in addresses(&request.addresses)? {
            if !record.addresses.contains(&address) {
                differences.push(format!("{address} is not an address of it"));
            }
        }
        let waits = self.registry.closed_because(&id).is_some();
        match (state, &self.failure) {
            (EndpointState::Lost, _) => differences.push("its interface is gone".to_owned()),
            (EndpointState::Closed, _) if !waits => differences.push("it is closed".to_owned()),
            (_, Some(failure)) => {
                differences.push(format!("the kernel does not hold its policy: {failure}"));
            }
            _ => {}
        }
        let look = |source| WorkloadError::Look {
            id: id.to_string(),
            source: Box::new(source),
        };
        if state == EndpointState::Ready {
            let found = self.attach.look(std::slice::from_ref(&record));
            for found in found.map_err(look)? {
                differences.extend(found.differences(&record.interface));
            }
        }
        match self.attach.inside(&record) {
            Err(error) => differences.push(chain(&error)),
            Ok(inside) => {
                let missing = record
                    .addresses
                    .iter()
                    .filter(|address| !inside.addresses.contains(address));
                differences.extend(missing.map(|a| format!("{a} is not on {}", record.inside)));
                for (gateway, everything) in gateways(&record) {
                    if !record.chained && !inside.routes.contains(&everything) {
                        differences.push(format!("the route to {everything} by {gateway} is gone"));
                    }
                }
            }
        }
        match differences.is_empty() {
            true => Ok(done(Vec::new())),
            false => Err(WorkloadError::Changed {
                id: id.to_string(),
                differences,
            }),
        }
    }

    /// GC: detaches what the runtime does not know of a network, and whatever has lost its namespace.
    ///
    /// # Errors
    /// The first that could not be detached; the others are.
    pub fn cni_gc(&mut self, request: &CniGc) -> Result<CniDone, WorkloadError> {
        let unknown = |record: &Record| {
            let attachment = record.attachment();
            attachment.is_some_and(|a| a.network == request.network && !request.valid.contains(&a))
        };
        let mut stale: Vec<(EndpointId, Option<CniAttachment>)> = Vec::new();
        for record in self.registry.records() {
            if unknown(record) {
                stale.push((record.id(), record.attachment()));
            }
        }
        let mut failed = self.clear_leftovers(None).err();
        let mut removed = Vec::new();
        for (id, attachment) in stale {
            match self.detach(&id) {
                Ok(_) => removed.extend(attachment),
                Err(error) => {
                    tracing::error!(workload = %id, error = %chain(&error), "detaching what is left over");
                    failed.get_or_insert(error);
                }
            }
        }
        removed.extend(self.sweep()?);
        match failed {
            None => Ok(done(removed)),
            Some(error) => Err(error),
        }
    }

    /// Detaches containers whose namespace is gone, and with it their interface.
    ///
    /// # Errors
    /// If one cannot be detached.
    pub(crate) fn sweep(&mut self) -> Result<Vec<CniAttachment>, WorkloadError> {
        let containers = self.registry.records().filter(|r| r.container.is_some());
        let gone = containers.filter(|record| !self.attach.netns_exists(record));
        let gone: Vec<Record> = gone.cloned().collect();
        let mut removed = Vec::new();
        for record in gone {
            let joined = self
                .attach
                .is_joined(&record)
                .map_err(|source| WorkloadError::Look {
                    id: record.id().to_string(),
                    source: Box::new(source),
                })?;
            // A namespace may live on without the path that it had.
            if !joined {
                tracing::info!(workload = %record.id(), netns = record.netns, "its namespace is gone: detached");
                self.detach(&record.id())?;
                removed.extend(record.attachment());
            }
        }
        Ok(removed)
    }

    /// Tells `waiting` when a workload opens.
    pub fn when_open(&mut self, id: EndpointId, waiting: tokio::sync::oneshot::Sender<()>) {
        match self.registry.get(&id).map(|workload| workload.state) {
            Some(EndpointState::Closed) => self.waiting_for_open.push((id, waiting)),
            // Whoever stopped waiting needs no answer.
            _ => drop(waiting.send(())),
        }
    }

    /// Workloads that cannot be there any more once this one is: its pod's former container, the
    /// same container somewhere else, whatever had the interface that another plugin made, and what
    /// somebody who is not root attached to its namespace.
    fn superseded_by(&self, record: &Record) -> Vec<EndpointId> {
        let attachment = record.attachment();
        let same_netns = |old: &Record| {
            let known = old.netns_identity.is_some();
            old.netns == record.netns || (known && old.netns_identity == record.netns_identity)
        };
        let is_stale = |old: &&Record| {
            old.id() == record.id()
                || old.attachment() == attachment
                || (record.chained && old.interface == record.interface)
                || (old.owner.is_some() && same_netns(old))
        };
        let stale = self.registry.records().filter(is_stale);
        stale.map(Record::id).collect()
    }

    fn record_of_container(&mut self, request: &CniAdd) -> Result<Record, WorkloadError> {
        let invalid = |field, reason: &str| WorkloadError::Invalid {
            field,
            reason: reason.to_owned(),
        };
        for (field, value) in [("namespace", &request.namespace), ("name", &request.name)] {
            // A container that is no pod's has its id for a name.
            let fits = match field == "name" && !request.pod {
                true => is_container(value),
                false => is_name(value),
            };
            if !fits {
                return Err(invalid(field, &format!("{value:?} is no name of a pod")));
            }
        }
        for (field, value) in [
            ("container", &request.container),
            ("network", &request.network),
        ] {
            if !is_container(value) {
                return Err(invalid(field, &format!("{value:?} is no id")));
            }
        }
        check_netns(&request.netns)?;
        check_interface(&request.interface)?;
        let mut record = Record {
            namespace: Str::from(&*request.namespace),
            name: Str::from(&*request.name),
            netns: request.netns.clone(),
            inside: request.interface.clone(),
            interface: "".into(),
            addresses: addresses(&request.addresses)?,
            // One that is no pod's has none.
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
                    return Err(invalid("chained", "names no interface of the host"));
                }
                record.interface = Str::from(&*chained.host_interface);
                record.addresses = addresses(&chained.addresses)?;
                if record.addresses.is_empty() {
                    return Err(invalid("chained", "names no address"));
                }
                record.mtu = None;
                record.masquerade = Some(false);
            }
            None => {
                record.interface =
                    self.interface_name(&request.namespace, &request.name, &request.netns)?;
            }
        }
        Ok(record)
    }

    /// The size of a pod's largest packet: what its network says, else what the agent is configured
    /// with, else that of the way to the outside.
    fn pod_mtu(&mut self, asked: Option<u32>) -> Result<u32, WorkloadError> {
        if let Some(known) = asked.or(self.config.pod_mtu) {
            return Ok(known);
        }
        let found = self.attach.outside_mtu();
        let found = found.map_err(|source| WorkloadError::Look {
            id: "the way to the outside".to_owned(),
            source: Box::new(source),
        })?;
        Ok(found.unwrap_or(self.config.mtu))
    }

    fn cni_added(&mut self, record: &Record) -> Result<CniAdded, WorkloadError> {
        let inside = self
            .attach
            .inside(record)
            .map_err(|source| WorkloadError::Look {
                id: record.id().to_string(),
                source: Box::new(source),
            })?;
        let workload = self.registry.get(&record.id());
        let closed = workload.filter(|w| w.state != EndpointState::Ready);
        Ok(CniAdded {
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
                    gateway: gateway(*address).to_string(),
                })
                .collect(),
            routes: gateways(record)
                .map(|(gateway, everything)| CniRoute {
                    destination: everything.to_string(),
                    gateway: gateway.to_string(),
                })
                .collect(),
            revision: self.realised,
            closed: closed.map(|w| w.reason.clone().unwrap_or_else(|| "closed".to_owned())),
        })
    }
}

/// Whether a record says of another attachment what was asked for this one.
fn is_same(present: &Record, asked: &Record) -> bool {
    let addresses = asked.addresses.is_empty() || present.addresses == asked.addresses;
    let interface = present.chained == asked.chained
        && (!asked.chained || present.interface == asked.interface);
    present.attachment() == asked.attachment()
        && present.netns == asked.netns
        && addresses
        && interface
}

fn done(removed: Vec<CniAttachment>) -> CniDone {
    CniDone {
        api_version: palisade_api::api_version(),
        removed,
    }
}

/// The gateway that an address of a workload has.
fn gateway(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => GATEWAY_V4.into(),
        IpAddr::V6(_) => GATEWAY_V6.into(),
    }
}

/// The gateways of a workload, each with everything that it leads to.
fn gateways(record: &Record) -> impl Iterator<Item = (IpAddr, palisade_sys::link::Prefix)> + use<> {
    let has = |v4: bool| record.addresses.iter().any(|a| a.is_ipv4() == v4);
    let everything = [
        (has(true), IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        (has(false), IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    ];
    let has = everything.into_iter().filter(|(has, _)| *has);
    has.map(|(_, any)| (gateway(any), palisade_sys::link::Prefix::new(any, 0)))
}

/// The form of ids that the CNI specification prescribes.
fn is_container(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 253
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}
