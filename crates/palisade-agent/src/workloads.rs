//! Attach and detach of workloads by name: validates and executes the requests.
//!
//! [`crate::workload_lifecycle`] does the attaching, for containers as well.

use crate::access::{AccessDenied, AccessRequest, Caller, GroupGrants, check_access};
use crate::attach::{AttachPlan, AttachRequest, AttachTarget};
use crate::attach_steps::AttachStep;
use crate::core::Core;
use crate::ipam::IpamError;
use crate::network_driver::{AddressUse, NetworkDriverError};
use crate::registry::pod_runs_elsewhere;
use crate::workload_lifecycle::PreopenedNetns;
use crate::workload_store::{WorkloadRecord, WorkloadStoreError, pod_id};
use palisade_api::{
    EndpointState, WorkloadAddRequest, WorkloadAddResponse, WorkloadRemoveRequest,
    WorkloadRemoveResponse,
};
use palisade_model::{EndpointId, NamedPort, Prefix, Protocol, Str};
use palisade_sys::netns::NetNsOpener;
use std::net::IpAddr;

/// Why a workload was not attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A field of the request is invalid.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// Why it is invalid.
        reason: String,
    },
    /// The caller does not have the permission.
    #[error(transparent)]
    NotPermitted(#[from] AccessDenied),
    /// A workload with this name is attached elsewhere.
    #[error("{id} is already attached from {netns}; remove it first")]
    Exists {
        /// The workload.
        id: String,
        /// Its network namespace.
        netns: String,
    },
    /// No address could be allocated.
    #[error("allocating an address for {id}: {source}")]
    Address {
        /// The workload.
        id: String,
        /// The cause.
        source: IpamError,
    },
    /// Another workload has the address.
    #[error("the address {address} for {id} is in use by {holder}")]
    AddressTaken {
        /// The workload.
        id: String,
        /// The address.
        address: IpAddr,
        /// The other workload.
        holder: String,
    },
    /// The attached workload could not be inspected.
    #[error("looking up the interface of {id}: {source}")]
    Inspect {
        /// The workload.
        id: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The interfaces could not be created or configured.
    #[error("attaching {id} from {netns}: {source}")]
    Attach {
        /// The workload.
        id: String,
        /// The namespace.
        netns: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The interface could not be deleted.
    #[error("removing the interface {interface} of {id}: {source}")]
    Detach {
        /// The workload.
        id: String,
        /// Its host-side interface.
        interface: String,
        /// The cause.
        source: Box<NetworkDriverError>,
    },
    /// The record could not be saved.
    #[error(transparent)]
    Record(#[from] WorkloadStoreError),
    /// The kernel does not hold its policy.
    #[error("{id} stays closed: the kernel rejected its policy: {reason}")]
    NotEnforced {
        /// The workload.
        id: String,
        /// The cause.
        reason: String,
    },
    /// The agent is not in sync with the source yet.
    #[error("the agent has not read its policy source completely yet; retry later")]
    NotInSync,
    /// No such container is attached.
    #[error("network {network} has no container {container} with interface {interface}")]
    NotAttached {
        /// The network.
        network: String,
        /// The container.
        container: String,
        /// The interface inside it.
        interface: String,
    },
    /// A container differs from its state after ADD.
    #[error("{id} differs from its state at attach: {}", differences.join("; "))]
    NotAsAttached {
        /// The workload.
        id: String,
        /// The differences.
        differences: Vec<String>,
    },
    /// The masquerade rules could not be written to the kernel.
    #[error("the kernel rejected the masquerade rules for {id}")]
    NotMasqueraded {
        /// The workload.
        id: String,
        /// The cause.
        source: Box<palisade_dataplane::DriverError>,
    },
    /// A step hook of a test stopped the operation.
    #[error("{step}: {reason}")]
    Stopped {
        /// The step that was skipped.
        step: AttachStep,
        /// The hook's reason.
        reason: String,
    },
}

impl Core {
    /// Opens namespaces outside the core's thread; `None` on a host without namespaces.
    pub fn opener(&self) -> Option<NetNsOpener> {
        self.network.opener()
    }

    /// Attaches a workload for root; returns when its policy is in the kernel. Idempotent for an
    /// identical request.
    ///
    /// # Errors
    /// See [`WorkloadError`]; the attach is then rolled back.
    pub fn add_workload(
        &mut self,
        request: &WorkloadAddRequest,
    ) -> Result<WorkloadAddResponse, WorkloadError> {
        self.add_workload_for(request, Caller::Root, None)
    }

    /// Attaches a workload for a caller, in a namespace that is already open.
    ///
    /// # Errors
    /// See [`WorkloadError`]; the attach is then rolled back.
    pub fn add_workload_for(
        &mut self,
        request: &WorkloadAddRequest,
        caller: Caller,
        netns: PreopenedNetns,
    ) -> Result<WorkloadAddResponse, WorkloadError> {
        let record = self.attach_one(AttachRequest {
            target: AttachTarget::Workload(request.clone(), caller),
            netns,
            received_at: self.clock.monotonic(),
        })?;
        Ok(self.add_response(&record))
    }

    /// Checks a request to attach a named workload, and makes its record.
    pub(crate) fn plan_workload(
        &mut self,
        request: &WorkloadAddRequest,
        caller: Caller,
        netns: PreopenedNetns,
    ) -> Result<AttachPlan, WorkloadError> {
        if !self.enforcer.in_sync {
            return Err(WorkloadError::NotInSync);
        }
        let record = WorkloadRecord {
            owner: caller.user(),
            ..self.workload_record(request)?
        };
        let id = record.id();
        let grants = self.config.grants();
        if record.labels.is_some() || !record.ports.is_empty() {
            check_access(caller, &AccessRequest::Labels, &grants)?;
        }
        check_access(
            caller,
            &AccessRequest::Namespace(&record.namespace),
            &grants,
        )?;
        if let Some(present) = self.registry.get(&id) {
            let is_same = present.record.netns == record.netns
                && matches!(present.state, EndpointState::Ready | EndpointState::Closed)
                && present.state == self.expected_state(&id)
                && present.record.labels == record.labels;
            let owner = present.record.owner;
            if is_same && check_access(caller, &AccessRequest::Workload(owner), &grants).is_ok() {
                return Ok(AttachPlan::Present(present.record.clone()));
            }
            let netns = present.record.netns.clone();
            return Err(WorkloadError::Exists {
                id: id.to_string(),
                netns,
            });
        }
        let netns = match caller {
            Caller::Root => netns,
            _ => self.authorize(&record, caller, &grants, netns)?,
        };
        let families = request.families.clone();
        Ok(AttachPlan::New {
            record,
            families,
            netns,
        })
    }

    /// The state of an attached workload that needs no further action of the caller.
    fn expected_state(&self, id: &EndpointId) -> EndpointState {
        match self.registry.closed_reason(id) {
            Some(_) => EndpointState::Closed,
            None => EndpointState::Ready,
        }
    }

    /// Checks whether an unprivileged caller may attach a record with this open namespace.
    fn authorize(
        &mut self,
        record: &WorkloadRecord,
        caller: Caller,
        grants: &GroupGrants,
        netns: PreopenedNetns,
    ) -> Result<PreopenedNetns, WorkloadError> {
        let id = record.id();
        let attached = self
            .known_records()
            .filter(|other| other.owner == caller.user())
            .count();
        check_access(caller, &AccessRequest::WorkloadCount(attached), grants)?;
        let pod = self.enforcer.engine.endpoint(&id);
        if pod.is_some_and(|pod| pod_runs_elsewhere(&pod, record)) {
            check_access(caller, &AccessRequest::RunningPod, grants)?;
        }
        for address in &record.addresses {
            let pool = self.ipam.pool_of(*address);
            let used = match pool {
                None => None,
                Some(pool) => self.address_use(*address, Some(pool), true)?,
            };
            let request = AccessRequest::Address {
                address: *address,
                in_pool: pool.is_some(),
                usable: self.ipam.can_allocate(*address),
                used,
            };
            check_access(caller, &request, grants)?;
        }
        check_access(caller, &AccessRequest::NetnsPath(&record.netns), grants)?;
        let attach_error = |source| WorkloadError::Attach {
            id: id.to_string(),
            netns: record.netns.clone(),
            source: Box::new(source),
        };
        let netns = self
            .open_netns(&record.netns, netns)
            .map_err(attach_error)?;
        self.network.pin_netns(netns.clone());
        let tenancy = self.network.netns_facts(record);
        self.network.pin_netns(None);
        check_access(
            caller,
            &AccessRequest::Netns(tenancy.map_err(attach_error)?),
            grants,
        )?;
        Ok(netns.map(Ok))
    }

    /// The present use of an address on this host.
    pub(crate) fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, WorkloadError> {
        let used = self.network.address_use(address, pool, whole);
        used.map_err(|source| WorkloadError::Inspect {
            id: format!("address {address}"),
            source: Box::new(source),
        })
    }

    /// Detaches a workload for root. Its policy is removed from the kernel after its interface is deleted.
    ///
    /// # Errors
    /// If the interface cannot be deleted; the workload then stays attached.
    pub fn remove_workload(
        &mut self,
        request: &WorkloadRemoveRequest,
    ) -> Result<WorkloadRemoveResponse, WorkloadError> {
        self.remove_workload_for(request, Caller::Root)
    }

    /// Detaches a workload for a caller.
    ///
    /// # Errors
    /// If the interface cannot be deleted, or the workload is not the caller's; it then stays attached.
    pub fn remove_workload_for(
        &mut self,
        request: &WorkloadRemoveRequest,
        caller: Caller,
    ) -> Result<WorkloadRemoveResponse, WorkloadError> {
        let id = pod_id(&request.namespace, &request.name);
        let owner = {
            let found = self.known_records().find(|record| record.id() == id);
            found.map(|record| record.owner)
        };
        if let Some(owner) = owner {
            check_access(
                caller,
                &AccessRequest::Workload(owner),
                &self.config.grants(),
            )?;
        }
        let removed = self.detach(&id)?;
        if removed {
            tracing::info!(workload = %id, by = %caller, "detached");
        }
        Ok(WorkloadRemoveResponse {
            api_version: palisade_api::api_version(),
            removed,
        })
    }

    pub(crate) fn add_response(&self, record: &WorkloadRecord) -> WorkloadAddResponse {
        WorkloadAddResponse {
            api_version: palisade_api::api_version(),
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            host_interface: record.interface.to_string(),
            addresses: record.addresses.iter().map(IpAddr::to_string).collect(),
            revision: self.enforcer.realised_revision,
            closed: self.registry.closed_reason(&record.id()).map(str::to_owned),
        }
    }

    fn workload_record(
        &mut self,
        request: &WorkloadAddRequest,
    ) -> Result<WorkloadRecord, WorkloadError> {
        let invalid = |field, reason: &str| WorkloadError::Invalid {
            field,
            reason: reason.to_owned(),
        };
        for (field, value) in [("namespace", &request.namespace), ("name", &request.name)] {
            if !is_dns_subdomain(value) {
                return Err(invalid(
                    field,
                    "must be lower-case letters, digits, - and ., a letter or digit at both ends",
                ));
            }
        }
        check_netns(&request.netns)?;
        if request.addresses.len() > MAX_ADDRESSES {
            return Err(invalid("addresses", "exceed the maximum of a workload"));
        }
        if !matches!(*request.families, [] | [4 | 6] | [4, 6] | [6, 4]) {
            return Err(invalid("families", "are 4, 6 or both"));
        }
        let inside = request
            .interface
            .clone()
            .unwrap_or_else(|| "eth0".to_owned());
        check_interface(&inside)?;
        let ports = request
            .ports
            .iter()
            .map(|text| parse_port(text))
            .collect::<Result<_, _>>()?;
        let created = self.clock.wall();
        Ok(WorkloadRecord {
            interface: self.generate_interface_name(
                &request.namespace,
                &request.name,
                &request.netns,
            )?,
            namespace: Str::from(&*request.namespace),
            name: Str::from(&*request.name),
            netns: request.netns.clone(),
            inside,
            addresses: parse_addresses(&request.addresses)?,
            labels: request.labels.as_ref().map(|labels| {
                labels
                    .iter()
                    .map(|(key, value)| (Str::from(&**key), Str::from(&**value)))
                    .collect()
            }),
            ports,
            created: created.as_secs(),
            pending: false,
            container: None,
            mtu: Some(self.config.mtu),
            masquerade: None,
            chained: false,
            index: None,
            netns_identity: None,
            owner: None,
        })
    }
}

fn invalid(field: &'static str, reason: String) -> WorkloadError {
    WorkloadError::Invalid { field, reason }
}

/// The maximum number of addresses in a request.
const MAX_ADDRESSES: usize = 32;
/// The maximum length of a path, in bytes.
const PATH_MAX: usize = 4095;

/// Rejects invalid names and paths of namespaces.
pub(crate) fn check_netns(path: &str) -> Result<(), WorkloadError> {
    match path.is_empty() || path.len() > PATH_MAX || path.contains('\0') {
        true => Err(invalid(
            "netns",
            "must be a name under /run/netns or a path".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Rejects invalid names of interfaces inside a namespace.
pub(crate) fn check_interface(name: &str) -> Result<(), WorkloadError> {
    // A backslash is the escape character in the text form of a name; the kernel replaces a % by a number.
    let is_forbidden = |c: char| "/:\\%".contains(c) || c.is_whitespace() || c.is_control();
    let is_valid = !name.is_empty()
        && name.len() <= 15
        && !name.contains(is_forbidden)
        && !["lo", ".", ".."].contains(&name);
    match is_valid {
        true => Ok(()),
        false => Err(invalid(
            "interface",
            "is not an interface name of at most 15 bytes".to_owned(),
        )),
    }
}

/// Parses and checks the addresses of a workload.
pub(crate) fn parse_addresses(given: &[String]) -> Result<Vec<IpAddr>, WorkloadError> {
    let parse = |text: &String| -> Result<IpAddr, WorkloadError> {
        let address: IpAddr = text
            .parse()
            .map_err(|_| invalid("addresses", format!("{text:?} is not an IP address")))?;
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            let reason = format!("{address} cannot be a workload's address");
            return Err(invalid("addresses", reason));
        }
        Ok(address)
    };
    given.iter().map(parse).collect()
}

/// Whether a text is a DNS subdomain, as Kubernetes requires of names.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    text.len() <= 253
        && bytes.iter().all(|b| inner(*b))
        && outer(bytes.first())
        && outer(bytes.last())
}

/// Parses `name=number/protocol`; the protocol defaults to TCP.
fn parse_port(text: &str) -> Result<NamedPort, WorkloadError> {
    let parse = || {
        let (name, number) = text.split_once('=')?;
        let (number, protocol) = number.split_once('/').unwrap_or((number, "TCP"));
        let protocol = Protocol::parse(protocol).filter(|p| p.has_ports())?;
        let port = number.parse().ok().filter(|n| *n > 0)?;
        (!name.is_empty()).then(|| NamedPort {
            name: name.into(),
            protocol,
            port,
        })
    };
    parse().ok_or_else(|| WorkloadError::Invalid {
        field: "ports",
        reason: format!("{text:?} is not a port such as http=8080/TCP"),
    })
}
