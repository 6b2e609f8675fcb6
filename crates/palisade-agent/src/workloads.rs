//! Attaching and detaching workloads: validate, claim, remember, join, enforce, open.
//!
//! A workload is remembered on disk as pending before its interface is made, as attached when it is
//! open, and forgotten after its interface is gone: what a crash leaves, [`Core::restore`] takes over
//! or clears away. The host side comes up only when its policy is in the kernel.

use crate::attach::AttachError;
use crate::core::{Core, chain};
use crate::ipam::IpamError;
use crate::record::{Record, RecordError, pod_id};
use crate::registry::Workload;
use palisade_api::{EndpointState, WorkloadAdd, WorkloadAdded, WorkloadRemove, WorkloadRemoved};
use palisade_model::{EndpointId, Family, NamedPort, Protocol, Str};
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
}

impl Core {
    /// Takes over the workloads and counts remembered on disk, before any address is given out.
    ///
    /// # Errors
    /// If the file of workloads cannot be read, or one half attached cannot be cleared away.
    pub fn restore(&mut self) -> Result<(), WorkloadError> {
        self.restore_counts();
        let mut updates = Vec::new();
        let mut forgotten = false;
        for record in self.records.read()? {
            let id = record.id();
            if record.pending {
                tracing::info!(workload = %id, "attaching it was interrupted: cleared away");
                self.part(&record)?;
                forgotten = true;
                continue;
            }
            let joined = self
                .attach
                .is_joined(&record)
                .map_err(|source| WorkloadError::Look {
                    id: id.to_string(),
                    source: Box::new(source),
                })?;
            if !joined && !self.attach.netns_exists(&record) {
                tracing::info!(workload = %id, netns = record.netns, "its namespace is gone: forgotten");
                forgotten = true;
                continue;
            }
            for address in &record.addresses {
                if let Err(error) = self.ipam.claim(*address) {
                    tracing::warn!(workload = %id, %error, "claiming a remembered address");
                }
            }
            let (state, reason) = match joined {
                true => (EndpointState::Closed, None),
                false => (
                    EndpointState::Lost,
                    Some(format!("its interface {} is gone", record.interface)),
                ),
            };
            updates.push(self.registry.insert(
                Workload {
                    record,
                    state,
                    reason,
                },
                None,
            ));
        }
        if forgotten {
            self.records.write(self.registry.records())?;
        }
        self.apply(updates);
        Ok(())
    }

    /// Attaches a workload; returns when its policy is in the kernel. Asking for the very same again
    /// is no error.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub fn add_workload(&mut self, request: &WorkloadAdd) -> Result<WorkloadAdded, WorkloadError> {
        if !self.in_sync {
            return Err(WorkloadError::Starting);
        }
        let mut record = self.record_of(request)?;
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
        self.claim_addresses(&mut record, &request.families)?;
        let added = self.attach_new(&record);
        if added.is_err() {
            self.forget(&id, &record);
        }
        added
    }

    fn attach_new(&mut self, record: &Record) -> Result<WorkloadAdded, WorkloadError> {
        let id = record.id();
        let pending = Record {
            pending: true,
            ..record.clone()
        };
        self.records
            .write(self.registry.records().chain([&pending]))?;
        let mtu = self.config.mtu;
        self.attach
            .join(record, mtu)
            .map_err(|source| WorkloadError::Attach {
                id: id.to_string(),
                netns: record.netns.clone(),
                source: Box::new(source),
            })?;
        let pod = self.engine.endpoint(&id);
        let workload = Workload {
            record: record.clone(),
            state: EndpointState::Closed,
            reason: None,
        };
        let update = self.registry.insert(workload, pod);
        self.apply(vec![update]);
        self.open_waiting();
        match self.registry.get(&id) {
            Some(workload) if workload.state == EndpointState::Ready => {
                self.records.write(self.registry.records())?;
                Ok(self.added(record))
            }
            other => {
                let reason = other
                    .and_then(|w| w.reason.clone())
                    .or_else(|| self.failure.clone());
                let reason = reason.unwrap_or_else(|| "unknown".to_owned());
                Err(WorkloadError::NotEnforced {
                    id: id.to_string(),
                    reason,
                })
            }
        }
    }

    /// Takes back everything a failed attach did.
    fn forget(&mut self, id: &EndpointId, record: &Record) {
        if let Some((_, update)) = self.registry.remove(id) {
            self.apply(vec![update]);
        }
        if let Err(error) = self.attach.part(record) {
            tracing::warn!(workload = %id, error = %chain(&error), "undoing a failed attach");
        }
        for address in &record.addresses {
            self.ipam.release(*address);
        }
        if let Err(error) = self.records.write(self.registry.records()) {
            tracing::warn!(workload = %id, error = %chain(&error), "undoing a failed attach");
        }
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
        let Some(record) = self
            .registry
            .get(&id)
            .map(|workload| workload.record.clone())
        else {
            return Ok(WorkloadRemoved {
                api_version: palisade_api::api_version(),
                removed: false,
            });
        };
        self.part(&record)?;
        if let Some((_, update)) = self.registry.remove(&id) {
            self.apply(vec![update]);
        }
        for address in &record.addresses {
            self.ipam.release(*address);
        }
        self.records.write(self.registry.records())?;
        Ok(WorkloadRemoved {
            api_version: palisade_api::api_version(),
            removed: true,
        })
    }

    fn part(&mut self, record: &Record) -> Result<(), WorkloadError> {
        self.attach
            .part(record)
            .map_err(|source| WorkloadError::Detach {
                id: record.id().to_string(),
                interface: record.interface.to_string(),
                source: Box::new(source),
            })
    }

    /// Opens the workloads that wait for their policy, once the kernel holds it.
    pub(crate) fn open_waiting(&mut self) {
        if self.failure.is_some() || !self.in_sync {
            return;
        }
        let waiting: Vec<Record> = self
            .registry
            .iter()
            .filter(|(_, workload)| workload.state == EndpointState::Closed)
            .map(|(_, workload)| workload.record.clone())
            .collect();
        for record in waiting {
            let opened = self.attach.open(&record);
            let id = record.id();
            let Some(workload) = self.registry.get_mut(&id) else {
                continue;
            };
            match opened {
                Ok(()) => {
                    workload.state = EndpointState::Ready;
                    workload.reason = None;
                }
                Err(error) => {
                    tracing::warn!(workload = %id, error = %chain(&error), "opening");
                    workload.reason = Some(chain(&error));
                }
            }
        }
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

    fn record_of(&self, request: &WorkloadAdd) -> Result<Record, WorkloadError> {
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
        let fits = !inside.is_empty()
            && inside.len() <= 15
            && !inside.contains(['/', ':', ' '])
            && inside != "lo";
        if !fits {
            return Err(invalid(
                "interface",
                "is no interface name of at most 15 bytes",
            ));
        }
        let addresses = request
            .addresses
            .iter()
            .map(|text| {
                text.parse()
                    .map_err(|_| invalid("addresses", &format!("{text:?} is no IP address")))
            })
            .collect::<Result<Vec<IpAddr>, _>>()?;
        if let Some(bad) = addresses
            .iter()
            .find(|a| a.is_unspecified() || a.is_loopback() || a.is_multicast())
        {
            return Err(invalid(
                "addresses",
                &format!("{bad} cannot be a workload's address"),
            ));
        }
        let ports = request
            .ports
            .iter()
            .map(|text| port(text))
            .collect::<Result<_, _>>()?;
        let created = self.clock.wall();
        Ok(Record {
            interface: self.interface_name(request, created.as_nanos()),
            namespace: Str::from(&*request.namespace),
            name: Str::from(&*request.name),
            netns: request.netns.clone(),
            inside,
            addresses,
            labels: request.labels.as_ref().map(|labels| {
                labels
                    .iter()
                    .map(|(key, value)| (Str::from(&**key), Str::from(&**value)))
                    .collect()
            }),
            ports,
            created: created.as_secs(),
            pending: false,
        })
    }

    /// A name that no interface had before: it is made of what is attached and when.
    fn interface_name(&self, request: &WorkloadAdd, nanos: u128) -> Str {
        let text = format!(
            "{}/{}@{} {nanos}",
            request.namespace, request.name, request.netns
        );
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let prefix = &self.config.interface_prefix;
        let digits = 15 - prefix.len();
        format!("{prefix}{}", &format!("{hash:016x}")[16 - digits.min(11)..]).into()
    }

    fn claim_addresses(
        &mut self,
        record: &mut Record,
        families: &[u8],
    ) -> Result<(), WorkloadError> {
        let id = record.id().to_string();
        let given = std::mem::take(&mut record.addresses);
        let claimed = if given.is_empty() {
            let wanted: Vec<Family> = match families {
                [] => self.ipam.families().collect(),
                some => some
                    .iter()
                    .map(|n| if *n == 4 { Family::V4 } else { Family::V6 })
                    .collect(),
            };
            if wanted.is_empty() {
                let reason = "this host has no pool; give addresses".to_owned();
                return Err(WorkloadError::Invalid {
                    field: "addresses",
                    reason,
                });
            }
            wanted.into_iter().try_for_each(|family| {
                record.addresses.push(self.ipam.take(family)?);
                Ok(())
            })
        } else {
            given.into_iter().try_for_each(|address| {
                self.ipam.claim(address)?;
                record.addresses.push(address);
                Ok(())
            })
        };
        claimed.map_err(|source| {
            for address in record.addresses.drain(..) {
                self.ipam.release(address);
            }
            self.address_error(id, source)
        })
    }

    fn address_error(&self, id: String, source: IpamError) -> WorkloadError {
        let holder_of = |address| {
            let mut workloads = self.registry.iter();
            workloads.find(|(_, workload)| workload.record.addresses.contains(&address))
        };
        if let IpamError::Taken(address) = source
            && let Some((holder, _)) = holder_of(address)
        {
            let holder = holder.to_string();
            return WorkloadError::AddressTaken {
                id,
                address,
                holder,
            };
        }
        WorkloadError::Address { id, source }
    }
}

/// Whether a text is a DNS subdomain as Kubernetes wants names to be.
fn is_name(text: &str) -> bool {
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
