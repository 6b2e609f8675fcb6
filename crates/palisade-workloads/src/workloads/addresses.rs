//! The addresses and interface names of workloads: claimed, allocated, released, masqueraded.

use super::vanished::detach_vanished;
use super::{WorkloadError, Workloads};
use crate::ipam::IpamError;
use palisade_config::MasqueradeConfig;
use palisade_dataplane::MasqueradePolicy;
use palisade_model::{Family, Prefix, Str};
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::WorkloadRecord;
use palisade_text::error_chain;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// How many addresses of a pool are tried to find one that the host does not use.
const MAX_UNUSABLE_ADDRESSES: usize = 256;

/// Claims the addresses of a record: those it names, else one of each of these families (none: of every
/// family that has a pool).
pub(super) fn claim_addresses(
    workloads: &mut Workloads,
    node: &mut NodeState,
    record: &mut WorkloadRecord,
    families: &[u8],
) -> Result<(), WorkloadError> {
    let id = record.id().to_string();
    let requested = std::mem::take(&mut record.addresses);
    let claimed = if requested.is_empty() {
        if let Some(reason) = node.missing_pools() {
            return Err(WorkloadError::NoPools(reason));
        }
        let wanted: Vec<Family> = match families {
            [] => workloads.ipam.families().collect(),
            some => some
                .iter()
                .map(|n| if *n == 4 { Family::V4 } else { Family::V6 })
                .collect(),
        };
        if wanted.is_empty() {
            let reason = "this host has no address pool; specify addresses".to_owned();
            return Err(WorkloadError::Invalid {
                field: "addresses",
                reason,
            });
        }
        let is_root = record.owner.is_none();
        wanted.into_iter().try_for_each(|family| {
            let taken = allocate_address(workloads, node, family, &id, is_root)?;
            record.addresses.push(taken);
            Ok(())
        })
    } else {
        requested.into_iter().try_for_each(|address| {
            let claimed = workloads.ipam.claim(address);
            claimed.map_err(|source| address_error(workloads, id.clone(), source))?;
            record.addresses.push(address);
            Ok(())
        })
    };
    claimed.inspect_err(|_| {
        for address in record.addresses.drain(..) {
            workloads.ipam.release(address);
        }
    })
}

/// Allocates an address that this host does not use; if none is left, also those of containers
/// whose namespace is gone.
fn allocate_address(
    workloads: &mut Workloads,
    node: &mut NodeState,
    family: Family,
    id: &str,
    is_root: bool,
) -> Result<IpAddr, WorkloadError> {
    let mut unusable = Vec::new();
    let allocated = loop {
        let address = match allocate_from_pools(workloads, node, family) {
            Ok(address) => address,
            Err(source) => break Err(address_error(workloads, id.to_owned(), source)),
        };
        let pool = workloads.ipam.pool_of(address);
        match workloads.address_use(address, pool, !is_root) {
            Ok(Some(used)) if unusable.len() < MAX_UNUSABLE_ADDRESSES => {
                tracing::warn!(%address, reason = %used, "address is in use on this host; not allocated");
                unusable.push(address);
            }
            Ok(Some(used)) => {
                workloads.ipam.release(address);
                let reason = format!("no usable address: {address}: {used}");
                break Err(WorkloadError::Invalid {
                    field: "addresses",
                    reason,
                });
            }
            Ok(None) => break Ok(address),
            Err(error) => {
                workloads.ipam.release(address);
                break Err(error);
            }
        }
    };
    for address in unusable {
        workloads.ipam.release(address);
    }
    allocated
}

fn allocate_from_pools(
    workloads: &mut Workloads,
    node: &mut NodeState,
    family: Family,
) -> Result<IpAddr, IpamError> {
    match workloads.ipam.allocate(family) {
        Err(IpamError::Exhausted { .. }) => {
            if let Err(error) = detach_vanished(workloads, node) {
                tracing::warn!(error = %error_chain(&error), "detaching containers without a namespace failed");
            }
            workloads.ipam.allocate(family)
        }
        other => other,
    }
}

fn address_error(workloads: &Workloads, id: String, source: IpamError) -> WorkloadError {
    let attached = workloads.registry.records();
    let attached = attached.chain(workloads.opening.attaching.values());
    let mut holders = attached.filter(|record| match source {
        IpamError::InUse(address) => record.addresses.contains(&address),
        _ => false,
    });
    if let IpamError::InUse(address) = source
        && let Some(holder) = holders.next()
    {
        let holder = holder.id().to_string();
        return WorkloadError::AddressTaken {
            id,
            address,
            holder,
        };
    }
    WorkloadError::Address { id, source }
}

/// Releases the addresses of a removed workload.
pub(super) fn release_addresses(workloads: &mut Workloads, record: &WorkloadRecord) {
    for address in &record.addresses {
        let uses_it = |other: &WorkloadRecord| other.addresses.contains(address);
        if !workloads.known_records().any(uses_it) {
            workloads.ipam.release(*address);
        }
    }
}

/// Generates an interface name that no interface has, and that no former interface with a remaining
/// dispatch entry had: derived from the workload and the time, and checked against all of them.
pub(super) fn generate_interface_name(
    workloads: &mut Workloads,
    node: &NodeState,
    namespace: &str,
    name: &str,
    netns: &str,
) -> Result<Str, WorkloadError> {
    let prefix = workloads.sections.workloads.interface_prefix.clone();
    let digits = (15 - prefix.len()).min(11);
    let mut tries = 0_u32;
    loop {
        let nanos = workloads.clock.wall().as_nanos();
        let text = format!("{namespace}/{name}@{netns} {nanos} {tries}");
        tries += 1;
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let candidate: Str = format!("{prefix}{}", &format!("{hash:016x}")[16 - digits..]).into();
        let known = workloads.known_records();
        let state = node.enforcer.state();
        let points = state.tables().points.keys();
        let is_taken = known
            .map(|record| &record.interface)
            .any(|n| *n == candidate)
            || points
                .filter_map(|point| point.workload().map(|(interface, _)| interface))
                .any(|n| *n == candidate)
            || workloads
                .network
                .link_index(&candidate)
                .map(|index| index.is_some())
                .map_err(WorkloadError::inspect(format!("{namespace}/{name}")))?;
        if !is_taken {
            return Ok(candidate);
        }
    }
}

/// Whether the traffic of a workload to external networks is masqueraded.
pub fn is_masqueraded(config: &MasqueradeConfig, record: &WorkloadRecord) -> bool {
    !record.chained && record.masquerade.unwrap_or(config.is_enabled)
}

/// The masquerade rules of all workloads. The networks of all nodes are exempt, and so are addresses of this
/// host's workloads from a pool that the Node does not have any more.
pub fn masquerade_policy(workloads: &Workloads, node: &NodeState) -> MasqueradePolicy {
    let sections = &workloads.sections;
    let records = workloads.registry.records();
    let masqueraded = records.filter(|record| is_masqueraded(&sections.masquerade, record));
    let addresses: BTreeSet<IpAddr> = masqueraded
        .flat_map(|record| record.addresses.iter().copied())
        .collect();
    // Without such an address there are no rules.
    if addresses.is_empty() {
        return MasqueradePolicy::default();
    }
    let exempt = sections
        .ipam
        .networks()
        .iter()
        .chain(&sections.masquerade.except);
    let mut exempt_prefixes: Vec<Prefix> = exempt.copied().collect();
    if let Some(pools) = &node.node_pools {
        exempt_prefixes.extend(pools.pools());
        let allocated = workloads.ipam.allocated().iter().copied();
        let former = allocated.filter(|address| workloads.ipam.pool_of(*address).is_none());
        exempt_prefixes.extend(former.map(Prefix::host));
    }
    exempt_prefixes.extend(node.nodes.other_networks());
    MasqueradePolicy {
        addresses,
        exempt_prefixes,
    }
}
