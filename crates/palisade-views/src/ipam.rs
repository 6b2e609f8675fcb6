//! The IPAM report, and a consistency check of addresses over records, disk, interfaces, routes and tables.
//!
//! It changes nothing: its findings are repaired by [`palisade_workloads::workloads::host`], a restart, CNI GC or an
//! administrator.

use super::CoreSnapshot;
use palisade_api::{
    AddressReport, EndpointState, IpamCheckReport, IpamFinding, IpamFindingKind as Kind,
    IpamReport, PoolReport,
};
use palisade_model::Str;
use palisade_network::network_driver::{HostInventory, NetworkDriverError};
use palisade_network::node_state::NodeState;
use palisade_node::clock::rfc3339;
use palisade_node::workload_store::{WorkloadRecord, WorkloadStoreError};
use palisade_workloads::workloads::{Workloads, is_masqueraded};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Why the check could not run.
#[derive(Debug, thiserror::Error)]
pub enum IpamCheckError {
    /// The host's interfaces and routes cannot be read.
    #[error("reading this host's interfaces and routes")]
    Host(#[from] NetworkDriverError),
    /// The tables cannot be read.
    #[error("reading the tables in the kernel")]
    Dataplane(#[from] palisade_dataplane::DriverError),
    /// The records cannot be read.
    #[error(transparent)]
    Record(#[from] WorkloadStoreError),
    /// The queued CNI DELs cannot be listed.
    #[error("listing queued CNI DELs")]
    Deletions(#[from] std::io::Error),
}

/// `GET /v1/ipam`.
pub fn ipam_report(core: &CoreSnapshot<'_>) -> IpamReport {
    let number = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    let usages = core.workloads.ipam.pool_usages().into_iter();
    let pools = usages.map(|used| PoolReport {
        pool: used.pool.to_string(),
        size: number(used.size),
        taken: number(used.taken),
        reserved: number(used.reserved),
        free: number(used.free),
    });
    let mut addresses: Vec<(IpAddr, AddressReport)> = Vec::new();
    for record in core
        .workloads
        .registry
        .records()
        .chain(&core.workloads.leftovers)
    {
        for address in &record.addresses {
            addresses.push((*address, address_report(core, record, *address)));
        }
    }
    addresses.sort_by_key(|(address, _)| *address);
    IpamReport {
        api_version: palisade_api::api_version(),
        pools: pools.collect(),
        addresses: addresses.into_iter().map(|(_, report)| report).collect(),
    }
}

fn address_report(
    core: &CoreSnapshot<'_>,
    record: &WorkloadRecord,
    address: IpAddr,
) -> AddressReport {
    let container = record.container.as_ref();
    AddressReport {
        address: address.to_string(),
        pool: core
            .workloads
            .ipam
            .pool_of(address)
            .map(|pool| pool.to_string()),
        namespace: record.namespace.to_string(),
        name: record.name.to_string(),
        interface: record.interface.to_string(),
        container: container.map(|c| c.id.clone()),
        network: container.map(|c| c.network.clone()),
        since: rfc3339(Duration::from_secs(record.created)),
        masquerade: is_masqueraded(&core.config.masquerade, record),
    }
}

/// `GET /v1/ipam/check`.
///
/// # Errors
/// If the host, the tables or the files cannot be read.
pub fn ipam_check(
    workloads: &mut Workloads,
    node: &mut NodeState,
) -> Result<IpamCheckReport, IpamCheckError> {
    let prefix = &workloads.sections.workloads.interface_prefix;
    let survey = workloads.network.inventory(prefix)?;
    let mut found = IpamFindings::default();
    check_records(workloads, &mut found)?;
    check_links(workloads, &survey, &mut found);
    let installed = node.enforcer.dataplane.observe()?;
    check_tables(workloads, node, &installed, &mut found);
    check_masquerade(workloads, node, &mut found);
    let folder = palisade_workloads::workloads::deletions::queue_dir(&workloads.sections.state.dir);
    for file in palisade_workloads::workloads::deletions::queued_files(&folder)? {
        found.add(
            Kind::Deletion,
            file.display(),
            "is still queued although an agent is running",
        );
    }
    found.0.sort();
    Ok(IpamCheckReport {
        api_version: palisade_api::api_version(),
        workloads: workloads.registry.iter().count(),
        findings: found.0,
    })
}

fn check_records(workloads: &Workloads, findings: &mut IpamFindings) -> Result<(), IpamCheckError> {
    let mut holders: BTreeMap<IpAddr, String> = BTreeMap::new();
    for record in workloads.registry.records().chain(&workloads.leftovers) {
        let id = record.id().to_string();
        for address in &record.addresses {
            if let Some(other) = holders.insert(*address, id.clone()) {
                let reason = format!("is used by both {other} and {id}");
                findings.add(Kind::Address, address, reason);
            }
            if !workloads.ipam.allocated().contains(address) {
                let reason = format!("is used by {id} but IPAM has it as free");
                findings.add(Kind::Address, address, reason);
            }
        }
    }
    for record in &workloads.leftovers {
        let reason = "its attach failed and could not be rolled back";
        findings.add(Kind::Record, record.id(), reason);
    }
    for address in workloads.ipam.allocated() {
        if !holders.contains_key(address) {
            let reason = "is allocated but no workload uses it";
            findings.add(Kind::Address, address, reason);
        }
    }
    let stored = workloads.records.read()?.records;
    let known: Vec<&WorkloadRecord> = workloads
        .registry
        .records()
        .chain(&workloads.leftovers)
        .collect();
    for record in &known {
        if !stored.contains(record) {
            findings.add(Kind::Disk, record.id(), "differs from its record on disk");
        }
    }
    for record in stored.iter().filter(|record| !known.contains(record)) {
        let reason = "has a record on disk but is not attached like that";
        findings.add(Kind::Disk, record.id(), reason);
    }
    Ok(())
}

fn check_links(workloads: &Workloads, survey: &HostInventory, findings: &mut IpamFindings) {
    let by_link: BTreeMap<&str, &WorkloadRecord> = workloads
        .registry
        .records()
        .map(|record| (&*record.interface, record))
        .collect();
    let prefix = &*workloads.sections.workloads.interface_prefix;
    for link in &survey.links {
        if !by_link.contains_key(&**link) {
            findings.add(Kind::Interface, link, "belongs to no workload");
        }
    }
    for (kind, entries) in [
        (Kind::Route, &survey.routes),
        (Kind::Neighbour, &survey.neighbours),
    ] {
        for (address, link) in entries {
            let object = format!("{address} by {link}");
            match by_link.get(&**link) {
                Some(record) if record.addresses.contains(address) => {}
                Some(record) if !record.chained => {
                    let reason = format!("is not an address of {}", record.id());
                    findings.add(kind, object, reason);
                }
                None if link.starts_with(prefix) => {
                    findings.add(kind, object, "leads to no workload");
                }
                Some(_) | None => {}
            }
        }
    }
    for (id, workload) in workloads.registry.iter() {
        let record = &workload.record;
        if workload.state == EndpointState::Lost {
            let reason = workload.reason.as_deref().unwrap_or("lost");
            findings.add(Kind::Record, id, reason);
            continue;
        }
        if record.chained {
            continue;
        }
        let link = record.interface.to_string();
        if !survey.links.contains(&link) {
            findings.add(Kind::Interface, &link, format!("of {id} does not exist"));
        }
        // Routes are added when the workload opens.
        let open = workload.state == EndpointState::Ready;
        for address in record.addresses.iter().filter(|_| open) {
            if !survey.routes.contains(&(*address, link.clone())) {
                let reason = format!("of {id} does not exist");
                findings.add(Kind::Route, format!("{address} by {link}"), reason);
            }
        }
    }
    for address in &survey.host_addresses {
        if workloads.ipam.allocated().contains(address) {
            let reason = "is used by a workload and by this host";
            findings.add(Kind::Address, address, reason);
        }
    }
}

fn check_tables(
    workloads: &Workloads,
    node: &NodeState,
    installed: &palisade_dataplane::InstalledPolicy,
    findings: &mut IpamFindings,
) {
    let expected: BTreeSet<(Str, IpAddr)> = workloads
        .registry
        .iter()
        .filter(|(id, _)| !workloads.registry.has_no_address(id))
        .flat_map(|(_, workload)| {
            let record = &workload.record;
            let name = record.interface.clone();
            record.addresses.iter().map(move |a| (name.clone(), *a))
        })
        .collect();
    let judged: BTreeSet<(Str, IpAddr)> = installed
        .points
        .iter()
        .filter_map(|point| point.workload())
        .map(|(interface, address)| (interface.clone(), address))
        .collect();
    let closed = workloads.registry.closed_interfaces();
    let closed = closed.map(|closed| &closed.interface);
    let interfaces = workloads.registry.records().map(|r| &r.interface);
    let interfaces: BTreeSet<&Str> = interfaces.chain(closed).collect();
    // If the kernel could not be updated, the status already says why.
    if node.is_policy_in_force() {
        for (interface, address) in expected.difference(&judged) {
            let object = format!("{address} on {interface}");
            findings.add(Kind::Dispatch, object, "has no policy in the kernel");
        }
    }
    for (interface, address) in judged.difference(&expected) {
        let object = format!("{address} on {interface}");
        let reason = "has policy in the kernel but belongs to no workload";
        findings.add(Kind::Dispatch, object, reason);
    }
    for interface in &installed.interfaces {
        if !interfaces.contains(interface) {
            let reason = "is policed but belongs to no workload";
            findings.add(Kind::Dispatch, interface, reason);
        }
    }
}

fn check_masquerade(workloads: &Workloads, node: &mut NodeState, findings: &mut IpamFindings) {
    let translation = node.enforcer.dataplane.address_translation();
    let installed = translation.map(|translation| translation.masqueraded_addresses());
    let installed = installed.unwrap_or_default();
    let records = workloads.registry.records();
    let translated = records.filter(|r| is_masqueraded(&workloads.sections.masquerade, r));
    let translated = translated.flat_map(|r| r.addresses.iter().copied());
    let translated: BTreeSet<IpAddr> = translated.collect();
    for address in translated.difference(&installed) {
        findings.add(Kind::Masquerade, address, "is not masqueraded");
    }
    for address in installed.difference(&translated) {
        let reason = "is masqueraded but should not be";
        findings.add(Kind::Masquerade, address, reason);
    }
}

#[derive(Default)]
struct IpamFindings(Vec<IpamFinding>);

impl IpamFindings {
    fn add(&mut self, kind: Kind, object: impl ToString, reason: impl Into<String>) {
        self.0.push(IpamFinding {
            kind,
            object: object.to_string(),
            reason: reason.into(),
        });
    }
}
