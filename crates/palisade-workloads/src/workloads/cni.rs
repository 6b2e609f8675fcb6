//! CNI operations: validates requests of container runtimes and executes them.
//!
//! An attachment is identified by container, network and interface. ADD and DEL are idempotent. A pod
//! has one Palisade interface: a new container of the same pod replaces the former one, and later
//! requests for the former one have no effect. [`super::attach`] attaches and [`super::lifecycle`] detaches.

use super::attach_plan::AttachPlan;
use super::named::{check_interface, check_netns, is_dns_subdomain, parse_addresses};
use super::vanished::detach_vanished;
use super::{PreopenedNetns, WorkloadError, Workloads, addresses};
use palisade_api::{
    CniAddRequest, CniAddResponse, CniAddress, CniAttachment, CniCheckRequest, CniGcRequest,
    CniResponse, CniRoute, EndpointState,
};
use palisade_model::{EndpointId, Prefix, Str};
use palisade_network::network_driver::{GATEWAY_V4, GATEWAY_V6, HOST_MAC};
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::{Container, NetnsIdentity, WorkloadRecord};
use palisade_text::error_chain;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Checks an ADD, detaches what it replaces, and makes its record.
pub(crate) fn plan_container(
    workloads: &mut Workloads,
    node: &mut NodeState,
    request: &CniAddRequest,
    netns: PreopenedNetns,
) -> Result<AttachPlan, WorkloadError> {
    if !node.enforcer.is_in_sync() {
        return Err(WorkloadError::NotInSync);
    }
    let mut record = container_record(workloads, node, request)?;
    if let Some(Ok(netns)) = &netns {
        record.netns_identity = Some(NetnsIdentity::of(netns));
    }
    let id = record.id();
    if let Some(present) = workloads.registry.get(&id) {
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
    for stale in superseded_workloads(workloads, &record) {
        tracing::info!(workload = %stale, by = request.container, "superseded");
        workloads.detach(node, &stale)?;
    }
    let families = request.families.clone();
    Ok(AttachPlan::New {
        record,
        families,
        netns,
    })
}

/// DEL: detaches containers, with one flush. It is no error if a container is not attached, or if another
/// one has replaced it; a container whose interface cannot be deleted stays attached. The results are in
/// the order of the attachments, which must not repeat.
pub fn del_all(
    workloads: &mut Workloads,
    node: &mut NodeState,
    attachments: Vec<CniAttachment>,
) -> Vec<Result<CniResponse, WorkloadError>> {
    let find = |attachment: &CniAttachment| {
        let is_same = |record: &&WorkloadRecord| record.attachment().as_ref() == Some(attachment);
        let leftover = workloads.leftovers.iter().find(is_same);
        let attached = workloads.registry.by_attachment(attachment);
        let attached = attached.map(|workload| &workload.record);
        attached.or(leftover).map(WorkloadRecord::id)
    };
    let ids: Vec<Option<EndpointId>> = attachments.iter().map(find).collect();
    let known: Vec<EndpointId> = ids.iter().flatten().cloned().collect();
    let mut detached = workloads.detach_all(node, &known).into_iter();
    let mut respond = |(attachment, id): (CniAttachment, Option<EndpointId>)| {
        // There is a result for each known workload.
        let removed = match id.and_then(|_| detached.next()).transpose()? {
            Some(_) => vec![attachment],
            None => Vec::new(),
        };
        Ok(cni_done_response(removed))
    };
    attachments.into_iter().zip(ids).map(&mut respond).collect()
}

/// DEL of one container.
///
/// # Errors
/// If its interface cannot be deleted; it then stays attached.
pub fn del(
    workloads: &mut Workloads,
    node: &mut NodeState,
    attachment: CniAttachment,
) -> Result<CniResponse, WorkloadError> {
    let results = del_all(workloads, node, vec![attachment]).into_iter();
    results
        .last()
        .unwrap_or_else(|| Ok(cni_done_response(Vec::new())))
}

/// CHECK: compares a container with its state after ADD.
///
/// # Errors
/// [`WorkloadError::NotAttached`], or [`WorkloadError::NotAsAttached`] with every difference.
pub fn check(
    workloads: &mut Workloads,
    node: &NodeState,
    request: &CniCheckRequest,
) -> Result<CniResponse, WorkloadError> {
    let Some(workload) = workloads.registry.by_attachment(&request.attachment) else {
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
    let is_waiting = workloads.registry.closed_reason(&id).is_some();
    match (state, node.enforcer.policy.failure()) {
        (EndpointState::Lost, _) => differences.push("its interface is gone".to_owned()),
        (EndpointState::Closed, _) if !is_waiting => differences.push("it is closed".to_owned()),
        (_, Some(failure)) => {
            differences.push(format!("the kernel does not hold its policy: {failure}"));
        }
        _ => {}
    }
    if state == EndpointState::Ready {
        let records = std::slice::from_ref(&record);
        let found = workloads.network.host_interface_states(records);
        for found in found.map_err(WorkloadError::inspect(&id))? {
            differences.extend(found.differences(&record.interface));
        }
    }
    match workloads.network.netns_interface(&record) {
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
    if differences.is_empty() {
        Ok(cni_done_response(Vec::new()))
    } else {
        Err(WorkloadError::NotAsAttached {
            id: id.to_string(),
            differences,
        })
    }
}

/// GC: detaches the containers of a network that the runtime does not list, and all whose namespace is
/// gone.
///
/// # Errors
/// The first failure; the remaining containers are detached nevertheless.
pub fn gc(
    workloads: &mut Workloads,
    node: &mut NodeState,
    request: &CniGcRequest,
) -> Result<CniResponse, WorkloadError> {
    let is_stale = |record: &WorkloadRecord| {
        let attachment = record.attachment();
        attachment.is_some_and(|a| a.network == request.network && !request.valid.contains(&a))
    };
    let records = workloads.registry.records();
    let stale: Vec<WorkloadRecord> = records.filter(|r| is_stale(r)).cloned().collect();
    let ids: Vec<EndpointId> = stale.iter().map(WorkloadRecord::id).collect();
    let mut failed = workloads.clear_leftovers(node, None).err();
    let mut removed = Vec::new();
    let results = workloads.detach_all(node, &ids);
    for (record, result) in stale.iter().zip(results) {
        match result {
            Ok(_) => removed.extend(record.attachment()),
            Err(error) => {
                tracing::error!(workload = %record.id(), error = %error_chain(&error), "CNI GC: detaching a stale container failed");
                failed.get_or_insert(error);
            }
        }
    }
    removed.extend(detach_vanished(workloads, node)?);
    match failed {
        None => Ok(cni_done_response(removed)),
        Some(error) => Err(error),
    }
}

/// Workloads that this one replaces: the former container of its pod, the same container with
/// another namespace, the former workload of an interface that another plugin created, and the
/// workload that an unprivileged user attached from its namespace.
fn superseded_workloads(workloads: &Workloads, record: &WorkloadRecord) -> Vec<EndpointId> {
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
    let stale = workloads.registry.records().filter(is_stale);
    stale.map(WorkloadRecord::id).collect()
}

fn container_record(
    workloads: &mut Workloads,
    node: &NodeState,
    request: &CniAddRequest,
) -> Result<WorkloadRecord, WorkloadError> {
    let invalid = |field, reason: &str| WorkloadError::Invalid {
        field,
        reason: reason.to_owned(),
    };
    for (field, value) in [("namespace", &request.namespace), ("name", &request.name)] {
        // A container without a pod is named by its id.
        let is_valid = if field == "name" && !request.pod {
            is_cni_id(value)
        } else {
            is_dns_subdomain(value)
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
        created: workloads.clock.wall().as_secs(),
        container: Some(Container {
            id: request.container.clone(),
            network: request.network.clone(),
            uid: request.uid.clone(),
            pod: request.pod,
        }),
        mtu: Some(pod_mtu(workloads, request.mtu)?),
        masquerade: request.masquerade,
        chained: request.chained.is_some(),
        ..WorkloadRecord::default()
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
            record.interface = addresses::generate_interface_name(
                workloads,
                node,
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
fn pod_mtu(workloads: &mut Workloads, requested: Option<u32>) -> Result<u32, WorkloadError> {
    if let Some(known) = requested.or(workloads.sections.cni.pod_mtu) {
        return Ok(known);
    }
    let mtu = workloads.network.default_route_mtu();
    let mtu = mtu.map_err(WorkloadError::inspect("the default route"))?;
    Ok(mtu.unwrap_or(workloads.sections.workloads.mtu))
}

/// The response to an ADD.
///
/// # Errors
/// If the interface inside cannot be inspected.
pub fn add_response(
    workloads: &mut Workloads,
    node: &NodeState,
    record: &WorkloadRecord,
) -> Result<CniAddResponse, WorkloadError> {
    let inside = workloads.network.netns_interface(record);
    let inside = inside.map_err(WorkloadError::inspect(record.id()))?;
    let workload = workloads.registry.get(&record.id());
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
        revision: node.enforcer.state().realised_revision,
        closed: closed.map(|w| w.reason.clone().unwrap_or_else(|| "closed".to_owned())),
    })
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
