//! Attach and detach of workloads by name: checks and executes the requests of users.

use super::attach_plan::AttachPlan;
use super::{PreopenedNetns, WorkloadError, Workloads, addresses};
use crate::access::{AccessRequest, Caller, GroupGrants, check_access, group_grants};
use crate::registry::pod_runs_elsewhere;
use palisade_api::{
    EndpointState, WorkloadAddRequest, WorkloadAddResponse, WorkloadRemoveRequest,
    WorkloadRemoveResponse,
};
use palisade_model::{EndpointId, NamedPort, Protocol, Str};
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::{WorkloadRecord, pod_id};
use std::net::IpAddr;

/// Checks a request to attach a named workload, and makes its record.
pub(crate) fn plan_workload(
    workloads: &mut Workloads,
    node: &mut NodeState,
    request: &WorkloadAddRequest,
    caller: Caller,
    netns: PreopenedNetns,
) -> Result<AttachPlan, WorkloadError> {
    if !node.enforcer.is_in_sync() {
        return Err(WorkloadError::NotInSync);
    }
    let record = WorkloadRecord {
        owner: caller.user(),
        ..workload_record(workloads, node, request)?
    };
    let id = record.id();
    let grants = group_grants(&workloads.sections.api);
    if record.labels.is_some() || !record.ports.is_empty() {
        check_access(caller, &AccessRequest::Labels, &grants)?;
    }
    check_access(
        caller,
        &AccessRequest::Namespace(&record.namespace),
        &grants,
    )?;
    if let Some(present) = workloads.registry.get(&id) {
        let is_same = present.record.netns == record.netns
            && matches!(present.state, EndpointState::Ready | EndpointState::Closed)
            && present.state == expected_state(workloads, &id)
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
        _ => authorize(workloads, node, &record, caller, &grants, netns)?,
    };
    let families = request.families.clone();
    Ok(AttachPlan::New {
        record,
        families,
        netns,
    })
}

/// The state of an attached workload that needs no further action of the caller.
fn expected_state(workloads: &Workloads, id: &EndpointId) -> EndpointState {
    match workloads.registry.closed_reason(id) {
        Some(_) => EndpointState::Closed,
        None => EndpointState::Ready,
    }
}

/// Checks whether an unprivileged caller may attach a record with this open namespace.
fn authorize(
    workloads: &mut Workloads,
    node: &NodeState,
    record: &WorkloadRecord,
    caller: Caller,
    grants: &GroupGrants,
    netns: PreopenedNetns,
) -> Result<PreopenedNetns, WorkloadError> {
    let id = record.id();
    let known = workloads.known_records();
    let attached = known.filter(|other| other.owner == caller.user());
    let request = AccessRequest::WorkloadCount(attached.count());
    check_access(caller, &request, grants)?;
    let pod = node.enforcer.state().engine.endpoint(&id);
    if pod.is_some_and(|pod| pod_runs_elsewhere(&pod, record)) {
        check_access(caller, &AccessRequest::RunningPod, grants)?;
    }
    for address in &record.addresses {
        let pool = workloads.ipam.pool_of(*address);
        let used = match pool {
            None => None,
            Some(pool) => workloads.address_use(*address, Some(pool), true)?,
        };
        let request = AccessRequest::Address {
            address: *address,
            in_pool: pool.is_some(),
            usable: workloads.ipam.can_allocate(*address),
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
    let netns = workloads.open_netns(&record.netns, netns);
    let netns = netns.map_err(attach_error)?;
    workloads.network.pin_netns(netns.clone());
    let facts = workloads.network.netns_facts(record);
    workloads.network.pin_netns(None);
    check_access(
        caller,
        &AccessRequest::Netns(facts.map_err(attach_error)?),
        grants,
    )?;
    Ok(netns.map(Ok))
}

/// Detaches a workload for a caller.
///
/// # Errors
/// If the interface cannot be deleted, or the workload is not the caller's; it then stays attached.
pub fn remove_workload(
    workloads: &mut Workloads,
    node: &mut NodeState,
    request: &WorkloadRemoveRequest,
    caller: Caller,
) -> Result<WorkloadRemoveResponse, WorkloadError> {
    let id = pod_id(&request.namespace, &request.name);
    let owner = {
        let found = workloads.known_records().find(|record| record.id() == id);
        found.map(|record| record.owner)
    };
    if let Some(owner) = owner {
        check_access(
            caller,
            &AccessRequest::Workload(owner),
            &group_grants(&workloads.sections.api),
        )?;
    }
    let removed = workloads.detach(node, &id)?;
    if removed {
        tracing::info!(workload = %id, by = %caller, "detached");
    }
    Ok(WorkloadRemoveResponse {
        api_version: palisade_api::api_version(),
        removed,
    })
}

/// The response to a request to attach.
pub fn add_response(
    workloads: &Workloads,
    node: &NodeState,
    record: &WorkloadRecord,
) -> WorkloadAddResponse {
    WorkloadAddResponse {
        api_version: palisade_api::api_version(),
        namespace: record.namespace.to_string(),
        name: record.name.to_string(),
        host_interface: record.interface.to_string(),
        addresses: record.addresses.iter().map(IpAddr::to_string).collect(),
        revision: node.enforcer.state().realised_revision,
        closed: workloads
            .registry
            .closed_reason(&record.id())
            .map(str::to_owned),
    }
}

fn workload_record(
    workloads: &mut Workloads,
    node: &NodeState,
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
    let created = workloads.clock.wall();
    Ok(WorkloadRecord {
        interface: addresses::generate_interface_name(
            workloads,
            node,
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
        mtu: Some(workloads.sections.workloads.mtu),
        ..WorkloadRecord::default()
    })
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
    if path.is_empty() || path.len() > PATH_MAX || path.contains('\0') {
        Err(invalid(
            "netns",
            "must be a name under /run/netns or a path".to_owned(),
        ))
    } else {
        Ok(())
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
    if is_valid {
        Ok(())
    } else {
        Err(invalid(
            "interface",
            "is not an interface name of at most 15 bytes".to_owned(),
        ))
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
