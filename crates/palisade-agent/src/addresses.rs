//! Who has which address, and whether records, disk, interfaces, routes and tables agree about it.
//!
//! It looks, and changes nothing: what it finds, [`crate::host`], a restart or GC puts right, or a
//! person does.

use crate::attach::AttachError;
use crate::clock::rfc3339;
use crate::core::Core;
use crate::record::{Record, RecordError};
use palisade_api::{AddressReport, EndpointState, IpamCheck, IpamFinding, IpamReport, PoolReport};
use palisade_model::Str;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Why it could not be looked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The host's interfaces and routes cannot be read.
    #[error("reading this host's interfaces and routes")]
    Host(#[from] AttachError),
    /// The tables cannot be read.
    #[error("reading the tables in the kernel")]
    Dataplane(#[from] palisade_dataplane::Error),
    /// The records cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The deletions that wait cannot be listed.
    #[error("looking for deletions that wait")]
    Deletions(#[from] std::io::Error),
}

/// What of this host could be workloads'.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The links whose names begin as ours do.
    pub links: BTreeSet<String>,
    /// Routes to one address each, with the link they lead to.
    pub routes: BTreeSet<(IpAddr, String)>,
    /// Permanent neighbours, with their link.
    pub neighbours: BTreeSet<(IpAddr, String)>,
    /// This host's own addresses.
    pub own: BTreeSet<IpAddr>,
}

impl Core {
    /// `GET /v1/ipam`.
    pub fn ipam_report(&self) -> IpamReport {
        let number = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        let pools = self.ipam.uses().into_iter().map(|used| PoolReport {
            pool: used.pool.to_string(),
            size: number(used.size),
            taken: number(used.taken),
            reserved: number(used.reserved),
            free: number(used.free),
        });
        let mut addresses: Vec<(IpAddr, AddressReport)> = Vec::new();
        for record in self.registry.records().chain(&self.leftovers) {
            for address in &record.addresses {
                addresses.push((*address, self.address_report(record, *address)));
            }
        }
        addresses.sort_by_key(|(address, _)| *address);
        IpamReport {
            api_version: palisade_api::api_version(),
            pools: pools.collect(),
            addresses: addresses.into_iter().map(|(_, report)| report).collect(),
        }
    }

    fn address_report(&self, record: &Record, address: IpAddr) -> AddressReport {
        let container = record.container.as_ref();
        AddressReport {
            address: address.to_string(),
            pool: self.ipam.pool_of(address).map(|pool| pool.to_string()),
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            interface: record.interface.to_string(),
            container: container.map(|c| c.id.clone()),
            network: container.map(|c| c.network.clone()),
            since: rfc3339(Duration::from_secs(record.created)),
            masquerade: self.is_masqueraded(record),
        }
    }

    /// `GET /v1/ipam/check`.
    ///
    /// # Errors
    /// If something cannot be looked at.
    pub fn ipam_check(&mut self) -> Result<IpamCheck, CheckError> {
        let survey = self.attach.survey(&self.config.interface_prefix)?;
        let mut found = Findings::default();
        self.check_records(&mut found)?;
        self.check_links(&survey, &mut found);
        let held = self.dataplane.held()?;
        self.check_tables(&held, &mut found);
        let folder = crate::deletions::folder(&self.config.state_dir);
        for file in crate::deletions::waiting(&folder)? {
            found.add("deletion", file.display(), "waits, though an agent runs");
        }
        found.0.sort();
        Ok(IpamCheck {
            api_version: palisade_api::api_version(),
            workloads: self.registry.iter().count(),
            findings: found.0,
        })
    }

    fn check_records(&self, found: &mut Findings) -> Result<(), CheckError> {
        let mut holders: BTreeMap<IpAddr, String> = BTreeMap::new();
        for record in self.registry.records().chain(&self.leftovers) {
            let id = record.id().to_string();
            for address in &record.addresses {
                if let Some(other) = holders.insert(*address, id.clone()) {
                    found.add("address", address, format!("{other} and {id} have it"));
                }
                if !self.ipam.taken().contains(address) {
                    found.add(
                        "address",
                        address,
                        format!("{id} has it, and it counts as free"),
                    );
                }
            }
        }
        for record in &self.leftovers {
            let reason = "attaching it failed, and what that left cannot be removed";
            found.add("record", record.id(), reason);
        }
        for address in self.ipam.taken() {
            if !holders.contains_key(address) {
                found.add("address", address, "is taken, and no workload has it");
            }
        }
        let on_disk = self.records.read()?.records;
        let known: Vec<&Record> = self.registry.records().chain(&self.leftovers).collect();
        for record in &known {
            if !on_disk.contains(record) {
                found.add("disk", record.id(), "is not remembered as it is");
            }
        }
        for record in on_disk.iter().filter(|record| !known.contains(record)) {
            found.add("disk", record.id(), "is remembered, and not so attached");
        }
        Ok(())
    }

    fn check_links(&self, survey: &Survey, found: &mut Findings) {
        let by_link: BTreeMap<&str, &Record> = self
            .registry
            .records()
            .map(|record| (&*record.interface, record))
            .collect();
        let prefix = &*self.config.interface_prefix;
        for link in &survey.links {
            if !by_link.contains_key(&**link) {
                found.add("interface", link, "is no workload's");
            }
        }
        for (kind, entries) in [("route", &survey.routes), ("neighbour", &survey.neighbours)] {
            for (address, link) in entries {
                let object = format!("{address} by {link}");
                match by_link.get(&**link) {
                    Some(record) if record.addresses.contains(address) => {}
                    Some(record) if !record.chained => {
                        let reason = format!("is not an address of {}", record.id());
                        found.add(kind, object, reason);
                    }
                    None if link.starts_with(prefix) => {
                        found.add(kind, object, "leads to no workload");
                    }
                    Some(_) | None => {}
                }
            }
        }
        for (id, workload) in self.registry.iter() {
            let record = &workload.record;
            if workload.state == EndpointState::Lost {
                let reason = workload.reason.as_deref().unwrap_or("lost");
                found.add("record", id, reason);
                continue;
            }
            if record.chained {
                continue;
            }
            let link = record.interface.to_string();
            if !survey.links.contains(&link) {
                found.add("interface", &link, format!("of {id} is gone"));
            }
            // A closed one gets its routes when it opens.
            let open = workload.state == EndpointState::Ready;
            for address in record.addresses.iter().filter(|_| open) {
                if !survey.routes.contains(&(*address, link.clone())) {
                    found.add(
                        "route",
                        format!("{address} by {link}"),
                        format!("of {id} is gone"),
                    );
                }
            }
        }
        for address in &survey.own {
            if self.ipam.taken().contains(address) {
                found.add(
                    "address",
                    address,
                    "is a workload's, and this host has it too",
                );
            }
        }
    }

    fn check_tables(&self, held: &palisade_dataplane::Held, found: &mut Findings) {
        let wanted: BTreeSet<(Str, IpAddr)> = self
            .registry
            .iter()
            .filter(|(id, _)| !self.registry.holds_no_address(id))
            .flat_map(|(_, workload)| {
                let record = &workload.record;
                let name = record.interface.clone();
                record.addresses.iter().map(move |a| (name.clone(), *a))
            })
            .collect();
        let closed = self.registry.closed().map(|closed| &closed.interface);
        let interfaces = self.registry.records().map(|r| &r.interface);
        let interfaces: BTreeSet<&Str> = interfaces.chain(closed).collect();
        // Without the kernel's consent, status says why.
        if self.failure.is_none() && self.in_sync {
            for (interface, address) in wanted.difference(&held.points) {
                let object = format!("{address} on {interface}");
                found.add("dispatch", object, "has no policy in the kernel");
            }
        }
        for (interface, address) in held.points.difference(&wanted) {
            let object = format!("{address} on {interface}");
            found.add(
                "dispatch",
                object,
                "has policy in the kernel, and is no workload's",
            );
        }
        for interface in &held.interfaces {
            if !interfaces.contains(interface) {
                found.add("dispatch", interface, "is judged, and is no workload's");
            }
        }
        let translated = self.registry.records().filter(|r| self.is_masqueraded(r));
        let translated = translated.flat_map(|r| r.addresses.iter().copied());
        let translated: BTreeSet<IpAddr> = translated.collect();
        for address in translated.difference(&held.masqueraded) {
            found.add("masquerade", address, "is not translated");
        }
        for address in held.masqueraded.difference(&translated) {
            found.add("masquerade", address, "is translated, and should not be");
        }
    }
}

#[derive(Default)]
struct Findings(Vec<IpamFinding>);

impl Findings {
    fn add(&mut self, kind: &str, object: impl ToString, reason: impl Into<String>) {
        self.0.push(IpamFinding {
            kind: kind.to_owned(),
            object: object.to_string(),
            reason: reason.into(),
        });
    }
}
