//! Workloads that somebody attaches or detaches by name: what is asked, checked and answered.
//!
//! How it is done is in [`crate::attaching`], which containers share.

use crate::attach::AttachError;
use crate::core::Core;
use crate::ipam::IpamError;
use crate::record::{Record, RecordError, pod_id};
use crate::steps::Step;
use palisade_api::{EndpointState, WorkloadAdd, WorkloadAdded, WorkloadRemove, WorkloadRemoved};
use palisade_model::{NamedPort, Protocol, Str};
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
    /// Attaches a workload; returns when its policy is in the kernel. Asking for the very same again
    /// is no error.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub fn add_workload(&mut self, request: &WorkloadAdd) -> Result<WorkloadAdded, WorkloadError> {
        if !self.in_sync {
            return Err(WorkloadError::Starting);
        }
        let record = self.record_of(request)?;
        let id = record.id();
        if let Some(present) = self.registry.get(&id) {
            let same = present.record.netns == record.netns
                && present.state == EndpointState::Ready
                && present.record.labels == record.labels;
            if same {
                return Ok(self.added(&present.record));
            }
            let netns = present.record.netns.clone();
            return Err(WorkloadError::Exists {
                id: id.to_string(),
                netns,
            });
        }
        let record = self.attach(record, &request.families)?;
        Ok(self.added(&record))
    }

    /// Detaches a workload. Its policy leaves the kernel after its interface is gone.
    ///
    /// # Errors
    /// If the interface cannot be removed; then it stays attached.
    pub fn remove_workload(
        &mut self,
        request: &WorkloadRemove,
    ) -> Result<WorkloadRemoved, WorkloadError> {
        let id = pod_id(&request.namespace, &request.name);
        let removed = self.detach(&id)?;
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
        if request.netns.is_empty() {
            return Err(invalid(
                "netns",
                "must be a name under /run/netns or a path",
            ));
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
        })
    }
}

fn invalid(field: &'static str, reason: String) -> WorkloadError {
    WorkloadError::Invalid { field, reason }
}

/// Refuses what is no name of an interface inside a namespace.
pub(crate) fn check_interface(name: &str) -> Result<(), WorkloadError> {
    let fits =
        !name.is_empty() && name.len() <= 15 && !name.contains(['/', ':', ' ']) && name != "lo";
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
