//! Workloads that somebody attaches or detaches by name: what is asked, checked and answered.
//!
//! How it is done is in [`crate::attaching`], which containers share.

use crate::attach::{AddressUse, AttachError};
use crate::attaching::Opened;
use crate::core::Core;
use crate::ipam::IpamError;
use crate::record::{Record, RecordError, pod_id};
use crate::registry::is_elsewhere;
use crate::rights::{Caller, Grants, Refusal, Wish, allow};
use crate::steps::Step;
use palisade_api::{EndpointState, WorkloadAdd, WorkloadAdded, WorkloadRemove, WorkloadRemoved};
use palisade_model::{EndpointId, NamedPort, Prefix, Protocol, Str};
use palisade_sys::netns::Opener;
use std::net::IpAddr;

/// Why a workload was not attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The request makes no sense.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// Whoever asks may not have it.
    #[error(transparent)]
    NotPermitted(#[from] Refusal),
    /// There is one of that name, attached elsewhere.
    #[error("{id} is attached already, from {netns}; remove it first")]
    Exists {
        /// The workload.
        id: String,
        /// Where it is attached from.
        netns: String,
    },
    /// No address for it.
    #[error("an address for {id}: {source}")]
    Address {
        /// The workload.
        id: String,
        /// Why.
        source: IpamError,
    },
    /// Another workload has the address.
    #[error("the address {address} for {id} is that of {holder}")]
    AddressTaken {
        /// The workload.
        id: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        holder: String,
    },
    /// Whether it is still attached cannot be told.
    #[error("looking for the interface of {id}: {source}")]
    Look {
        /// The workload.
        id: String,
        /// Why.
        source: Box<AttachError>,
    },
    /// The host refused.
    #[error("attaching {id} from {netns}: {source}")]
    Attach {
        /// The workload.
        id: String,
        /// The namespace.
        netns: String,
        /// Why.
        source: Box<AttachError>,
    },
    /// The host kept the interface.
    #[error("removing the interface {interface} of {id}: {source}")]
    Detach {
        /// The workload.
        id: String,
        /// Its host-side interface.
        interface: String,
        /// Why.
        source: Box<AttachError>,
    },
    /// It could not be remembered.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The kernel does not hold its policy.
    #[error("{id} stays closed: the kernel refused its policy: {reason}")]
    NotEnforced {
        /// The workload.
        id: String,
        /// Why.
        reason: String,
    },
    /// The agent does not know the policy yet.
    #[error("the agent has not read its source yet; try again")]
    Starting,
    /// No container is attached so.
    #[error("network {network} has no container {container} with interface {interface}")]
    NotAttached {
        /// The network.
        network: String,
        /// The container.
        container: String,
        /// The interface inside it.
        interface: String,
    },
    /// A container is not attached as it was.
    #[error("{id} is not as it was attached: {}", differences.join("; "))]
    Changed {
        /// The workload.
        id: String,
        /// In what.
        differences: Vec<String>,
    },
    /// The kernel does not translate what it should.
    #[error("the kernel refused which addresses leave as this host's, for the sake of {id}")]
    NotTranslated {
        /// The workload.
        id: String,
        /// Why.
        source: Box<palisade_dataplane::Error>,
    },
    /// A test asked for it.
    #[error("{step}: {reason}")]
    Stopped {
        /// What was not done.
        step: Step,
        /// Why.
        reason: String,
    },
}

impl Core {
    /// What opens namespaces without the core's thread, if this host has any.
    pub fn opener(&self) -> Option<Opener> {
        self.attach.opener()
    }

    /// Attaches a workload for root; returns when its policy is in the kernel. Asking for the very same
    /// again is no error.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub fn add_workload(&mut self, request: &WorkloadAdd) -> Result<WorkloadAdded, WorkloadError> {
        self.add_workload_for(request, Caller::Root, None)
    }

    /// Attaches a workload for whoever asks, in a namespace that was opened already.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub fn add_workload_for(
        &mut self,
        request: &WorkloadAdd,
        caller: Caller,
        netns: Opened,
    ) -> Result<WorkloadAdded, WorkloadError> {
        if !self.in_sync {
            return Err(WorkloadError::Starting);
        }
        let record = Record {
            owner: caller.user(),
            ..self.record_of(request)?
        };
        let id = record.id();
        let grants = self.config.grants();
        if record.labels.is_some() || !record.ports.is_empty() {
            allow(caller, &Wish::Labels, &grants)?;
        }
        allow(caller, &Wish::Namespace(&record.namespace), &grants)?;
        if let Some(present) = self.registry.get(&id) {
            let same = present.record.netns == record.netns
                && matches!(present.state, EndpointState::Ready | EndpointState::Closed)
                && present.state == self.settled_state(&id)
                && present.record.labels == record.labels;
            let owner = present.record.owner;
            if same && allow(caller, &Wish::Workload(owner), &grants).is_ok() {
                return Ok(self.added(&present.record));
            }
            let netns = present.record.netns.clone();
            return Err(WorkloadError::Exists {
                id: id.to_string(),
                netns,
            });
        }
        let netns = match caller {
            Caller::Root => netns,
            _ => self.check_claims(&record, caller, &grants, netns)?,
        };
        let record = self.attach(record, &request.families, netns)?;
        tracing::info!(workload = %id, by = %caller, netns = record.netns, "attached");
        Ok(self.added(&record))
    }

    /// Where a workload stands that is attached and needs nothing more of whoever attached it.
    fn settled_state(&self, id: &EndpointId) -> EndpointState {
        match self.registry.closed_because(id) {
            Some(_) => EndpointState::Closed,
            None => EndpointState::Ready,
        }
    }

    /// Whether a caller who is not root may have what a record says; the namespace, opened.
    fn check_claims(
        &mut self,
        record: &Record,
        caller: Caller,
        grants: &Grants,
        netns: Opened,
    ) -> Result<Opened, WorkloadError> {
        let id = record.id();
        let all = self.registry.records().chain(&self.leftovers);
        let attached = all.filter(|other| other.owner == caller.user()).count();
        allow(caller, &Wish::OneMore(attached), grants)?;
        let pod = self.engine.endpoint(&id);
        if pod.is_some_and(|pod| is_elsewhere(&pod, record)) {
            allow(caller, &Wish::RunningPod, grants)?;
        }
        for address in &record.addresses {
            let pool = self.ipam.pool_of(*address);
            let used = match pool {
                None => None,
                Some(pool) => self.address_use(*address, Some(pool), true)?,
            };
            let wish = Wish::Address {
                address: *address,
                in_pool: pool.is_some(),
                usable: self.ipam.gives(*address),
                used,
            };
            allow(caller, &wish, grants)?;
        }
        allow(caller, &Wish::NetnsPath(&record.netns), grants)?;
        let refused = |source| WorkloadError::Attach {
            id: id.to_string(),
            netns: record.netns.clone(),
            source: Box::new(source),
        };
        let netns = self.opened(&record.netns, netns).map_err(refused)?;
        self.attach.hold(netns.clone());
        let tenancy = self.attach.tenancy(record);
        self.attach.hold(None);
        allow(caller, &Wish::Netns(tenancy.map_err(refused)?), grants)?;
        Ok(netns.map(Ok))
    }

    /// What this host does with an address already.
    pub(crate) fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, WorkloadError> {
        let used = self.attach.address_use(address, pool, whole);
        used.map_err(|source| WorkloadError::Look {
            id: format!("address {address}"),
            source: Box::new(source),
        })
    }

    /// Detaches a workload for root. Its policy leaves the kernel after its interface is gone.
    ///
    /// # Errors
    /// If the interface cannot be removed; then it stays attached.
    pub fn remove_workload(
        &mut self,
        request: &WorkloadRemove,
    ) -> Result<WorkloadRemoved, WorkloadError> {
        self.remove_workload_for(request, Caller::Root)
    }

    /// Detaches a workload for whoever asks.
    ///
    /// # Errors
    /// If the interface cannot be removed, and if it is not the caller's; then it stays attached.
    pub fn remove_workload_for(
        &mut self,
        request: &WorkloadRemove,
        caller: Caller,
    ) -> Result<WorkloadRemoved, WorkloadError> {
        let id = pod_id(&request.namespace, &request.name);
        let owner = {
            let mut all = self.registry.records().chain(&self.leftovers);
            let found = all.find(|record| record.id() == id);
            found.map(|record| record.owner)
        };
        if let Some(owner) = owner {
            allow(caller, &Wish::Workload(owner), &self.config.grants())?;
        }
        let removed = self.detach(&id)?;
        if removed {
            tracing::info!(workload = %id, by = %caller, "detached");
        }
        Ok(WorkloadRemoved {
            api_version: palisade_api::api_version(),
            removed,
        })
    }

    fn added(&self, record: &Record) -> WorkloadAdded {
        WorkloadAdded {
            api_version: palisade_api::api_version(),
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            host_interface: record.interface.to_string(),
            addresses: record.addresses.iter().map(IpAddr::to_string).collect(),
            revision: self.realised,
            closed: self
                .registry
                .closed_because(&record.id())
                .map(str::to_owned),
        }
    }

    fn record_of(&mut self, request: &WorkloadAdd) -> Result<Record, WorkloadError> {
        let invalid = |field, reason: &str| WorkloadError::Invalid {
            field,
            reason: reason.to_owned(),
        };
        for (field, value) in [("namespace", &request.namespace), ("name", &request.name)] {
            if !is_name(value) {
                return Err(invalid(
                    field,
                    "must be lower-case letters, digits, - and ., a letter or digit at both ends",
                ));
            }
        }
        check_netns(&request.netns)?;
        if request.addresses.len() > MOST_ADDRESSES {
            return Err(invalid("addresses", "are more than a workload can have"));
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
            .map(|text| port(text))
            .collect::<Result<_, _>>()?;
        let created = self.clock.wall();
        Ok(Record {
            interface: self.interface_name(&request.namespace, &request.name, &request.netns)?,
            namespace: Str::from(&*request.namespace),
            name: Str::from(&*request.name),
            netns: request.netns.clone(),
            inside,
            addresses: addresses(&request.addresses)?,
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

/// How many addresses a workload can bring.
const MOST_ADDRESSES: usize = 32;
/// The longest path that the kernel takes, in bytes.
const PATH_MAX: usize = 4095;

/// Refuses what cannot be the name or path of a namespace.
pub(crate) fn check_netns(path: &str) -> Result<(), WorkloadError> {
    match path.is_empty() || path.len() > PATH_MAX || path.contains('\0') {
        true => Err(invalid(
            "netns",
            "must be a name under /run/netns or a path".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Refuses what is no name of an interface inside a namespace.
pub(crate) fn check_interface(name: &str) -> Result<(), WorkloadError> {
    // A backslash escapes bytes in the text of a name, and the kernel replaces a % by a number.
    let odd = |c: char| "/:\\%".contains(c) || c.is_whitespace() || c.is_control();
    let fits = !name.is_empty()
        && name.len() <= 15
        && !name.contains(odd)
        && !["lo", ".", ".."].contains(&name);
    match fits {
        true => Ok(()),
        false => Err(invalid(
            "interface",
            "is no interface name of at most 15 bytes".to_owned(),
        )),
    }
}

/// Addresses that a workload can have.
pub(crate) fn addresses(given: &[String]) -> Result<Vec<IpAddr>, WorkloadError> {
    let read = |text: &String| -> Result<IpAddr, WorkloadError> {
        let address: IpAddr = text
            .parse()
            .map_err(|_| invalid("addresses", format!("{text:?} is no IP address")))?;
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            let reason = format!("{address} cannot be a workload's address");
            return Err(invalid("addresses", reason));
        }
        Ok(address)
    };
    given.iter().map(read).collect()
}

/// Whether a text is a DNS subdomain as Kubernetes wants names to be.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    text.len() <= 253
        && bytes.iter().all(|b| inner(*b))
        && outer(bytes.first())
        && outer(bytes.last())
}

/// `name=number/protocol`, the protocol TCP where it is not said.
fn port(text: &str) -> Result<NamedPort, WorkloadError> {
    let read = || {
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
    read().ok_or_else(|| WorkloadError::Invalid {
        field: "ports",
        reason: format!("{text:?} is no port such as http=8080/TCP"),
    })
}
