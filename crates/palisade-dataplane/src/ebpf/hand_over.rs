//! Hands the flows of the fast path over to connection tracking before its programs go, so that nftables judges each at
//! its next packet, in the direction in which it began: flows that are allowed live, and flows that are revoked stop.
//!
//! Each flow gets an entry with the mark of a flow that was tracked before the table existed, which no generation ever
//! has. TCP connections are established ones whose windows nobody saw. Flows of ICMP are not handed over: one answer of
//! each is lost at most. TCP connections that close are not, either.
//!
//! Promises: no flow begins in the fast path from the first step on; an entry that exists stays as it is; a kill after any
//! step leaves what the next hand-over finishes; flows that were handed over are not handed over again.
//!
//! Never: opens anything, since an entry is judged before its first packet passes; keeps programs from being detached.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use palisade_bpf::{
    BpfObject, FastPathState, FlowTable, FlowTableEnd, FlowTableEntry, FormerSlots, HeldSlot,
};
use palisade_model::Prefix;
use palisade_sys::bpf::BpfMap;
use palisade_sys::conntrack::{
    ConnectionsCreated, ConntrackTuple, KernelConntrack, NewConnection, TupleProto,
};
use palisade_sys::fault;
use palisade_sys::grace::{GracePeriod as _, KernelGracePeriod};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::notify::monotonic_micros;

use super::config::FastPathConfig;
use super::error::FastPathError;
use super::pins::PinFolders;
use crate::driver::FlowHandOver;

/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Slots and their incarnations, by the addresses that have them.
type SlotOwners = BTreeMap<IpAddr, (u16, u16)>;

/// Hands over the flows of the pinned fast path, and has all packets pass; `None` if it delivers none. The entries get
/// the mark, which must be one that nftables judges anew. A flow that is not handed over is less harm than programs that
/// stay, so that is no error.
pub(super) fn hand_over_flows(netns: &NetNs, pins: &PinFolders, mark: u32) -> Option<FlowHandOver> {
    let failed = |error: FastPathError| FlowHandOver {
        failure: Some(error.to_string()),
        ..FlowHandOver::default()
    };
    let table = match open_table(pins) {
        Ok(table) => table?,
        Err(error) => return Some(failed(error)),
    };
    if table.state() == FastPathState::Off {
        return None;
    }
    let result = begin(&table).and_then(|()| create_entries(netns, pins, &table, mark));
    fault::reach("hand-over-created");
    let ended = end(&table);
    let outcome = result.unwrap_or_else(failed);
    match ended {
        Err(error) if outcome.failure.is_none() => Some(failed(error)),
        _ => Some(outcome),
    }
}

/// Hands over the flows of the pinned fast path, as [`hand_over_flows`], if there are any that a fast path with this
/// configuration leaves to the stack: with hosts that are in none of its networks, or by interfaces that are not its
/// uplinks.
pub(super) fn hand_over_former_networks(
    netns: &NetNs,
    pins: &PinFolders,
    mark: u32,
    config: &FastPathConfig,
) -> Option<FlowHandOver> {
    // What cannot be read, or is not there, has no flows to hand over.
    let table = open_table(pins).ok()??;
    let now = monotonic_micros().ok()?;
    let mut others = table
        .owned_flows(Duration::from_micros(now))
        .flat_map(|flow| [flow.source, flow.destination])
        .filter(|end| end.slot == 0)
        .peekable();
    others.peek()?;
    let is_known = |end: FlowTableEnd| {
        let host = Prefix::host(end.address);
        config.networks.iter().any(|network| network.covers(host))
    };
    let is_left = others.any(|end| !is_known(end)) || loses_uplink(netns, pins, config).ok()?;
    if is_left && !fault::is_injected("fast-path-networks-not-handed-over") {
        return hand_over_flows(netns, pins, mark);
    }
    None
}

/// Whether an interface to other hosts with programs is none of the uplinks.
fn loses_uplink(
    netns: &NetNs,
    pins: &PinFolders,
    config: &FastPathConfig,
) -> Result<bool, FastPathError> {
    let slots = former_slots(pins)?.unwrap_or_default();
    let mut links = KernelLinks::open(netns)?;
    for index in pins.linked_interfaces()? {
        if slots.iter().any(|slot| slot.interface == index) {
            continue;
        }
        let link = links.link_by_index(index)?;
        if link.is_some_and(|link| !config.uplinks.iter().any(|name| **name == *link.name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has every packet pass from here on, and forgets the flows: the stack has them, and a fast path that starts later must
/// not take them for its own.
fn end(table: &FlowTable) -> Result<(), FastPathError> {
    table.set_state(FastPathState::Off);
    fault::reach("hand-over-off");
    KernelGracePeriod::new()?.wait()?;
    table.clear();
    fault::reach("hand-over-cleared");
    Ok(())
}

/// Has no flow begin from here on.
fn begin(table: &FlowTable) -> Result<(), FastPathError> {
    table.set_state(FastPathState::OwnedOnly);
    fault::reach("hand-over-owned-only");
    Ok(KernelGracePeriod::new()?.wait()?)
}

/// The table of flows, if a fast path of this layout has one.
fn open_table(pins: &PinFolders) -> Result<Option<FlowTable>, FastPathError> {
    let maps = pins.open_flow_maps()?;
    Ok(maps
        .map(|(config, flows)| FlowTable::new(&config, &flows))
        .transpose()?)
}

/// Creates an entry for each flow that goes on.
fn create_entries(
    netns: &NetNs,
    pins: &PinFolders,
    table: &FlowTable,
    mark: u32,
) -> Result<FlowHandOver, FastPathError> {
    if fault::is_injected("fast-path-flows-not-handed-over") {
        return Ok(FlowHandOver::default());
    }
    let owners = slot_owners(pins)?;
    let is_current = |end: FlowTableEnd| {
        // An end on another host has no slot.
        let owner = owners
            .as_ref()
            .map(|owners| owners.get(&end.address).copied());
        // Without slots nothing is known of them. What has an entry is judged all the same.
        owner.is_none_or(|owner| owner.unwrap_or_default() == (end.slot, end.incarnation))
    };
    let now = monotonic_micros().map_err(FastPathError::Clock)?;
    let flows = table
        .owned_flows(Duration::from_micros(now))
        .filter(|flow| is_current(flow.source) && is_current(flow.destination));
    let connections: Vec<NewConnection> = flows
        .filter_map(|flow| connection_of(&flow, mark))
        .collect();
    let ConnectionsCreated {
        created,
        existing,
        refused,
        first_refusal,
    } = KernelConntrack::open(netns)?.create(&connections)?;
    Ok(FlowHandOver {
        created,
        existing,
        refused,
        failure: first_refusal.map(|error| error.to_string()),
    })
}

/// Who has which slot; `None` if that is not pinned.
fn slot_owners(pins: &PinFolders) -> Result<Option<SlotOwners>, FastPathError> {
    let owners = |slots: Vec<HeldSlot>| {
        let owners = slots
            .into_iter()
            .map(|slot| (slot.address, (slot.number, slot.incarnation)));
        owners.collect()
    };
    Ok(former_slots(pins)?.map(owners))
}

/// The slots of the last start; `None` if they are not pinned.
fn former_slots(pins: &PinFolders) -> Result<Option<Vec<HeldSlot>>, FastPathError> {
    let shape_of = |name| BpfObject::FAST_PATH.map_shape(name);
    let (endpoints_shape, slots_shape) = (shape_of("endpoints")?, shape_of("slots")?);
    for set in pins.sets()?.into_iter().rev() {
        let folder = pins.set(set);
        let endpoints = BpfMap::open_pinned(&folder.join("endpoints"), endpoints_shape);
        let slots = BpfMap::open_pinned(&folder.join("slots"), slots_shape);
        let (Ok(endpoints), Ok(slots)) = (endpoints, slots) else {
            continue;
        };
        return Ok(Some(FormerSlots::new(endpoints, &slots)?.held()?));
    }
    Ok(None)
}

/// The connection that a flow is; `None` of one that is not handed over.
fn connection_of(flow: &FlowTableEntry, mark: u32) -> Option<NewConnection> {
    if flow.is_closing || ![TCP, UDP].contains(&flow.protocol) {
        return None;
    }
    let seconds = flow.remaining().as_secs().max(1);
    Some(NewConnection {
        original: ConntrackTuple {
            source: flow.source.address,
            destination: flow.destination.address,
            protocol: flow.protocol,
            proto: TupleProto::Ports(flow.source.port, flow.destination.port),
        },
        mark,
        timeout: u32::try_from(seconds).unwrap_or(u32::MAX),
        is_answered: flow.is_answered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(protocol: u8, is_closing: bool, remaining: Duration) -> FlowTableEntry {
        let end = |last: u8, port| FlowTableEnd {
            address: IpAddr::from([10, 0, 0, last]),
            port,
            slot: last.into(),
            incarnation: 1,
        };
        FlowTableEntry {
            age: Duration::ZERO,
            lifetime: remaining,
            protocol,
            source: end(9, 40_000),
            destination: end(2, 80),
            is_via_stack: false,
            is_closing,
            is_answered: true,
            generation: 1,
        }
    }

    #[test]
    fn tcp_that_does_not_close_and_udp_are_handed_over_as_they_began() {
        let brief = Duration::from_millis(200);
        let connection = connection_of(&flow(TCP, false, brief), 0x7fff_ff00).unwrap();
        assert_eq!(
            connection.original.to_string(),
            "protocol 6 10.0.0.9 port 40000 to 10.0.0.2 port 80"
        );
        assert_eq!((connection.timeout, connection.mark), (1, 0x7fff_ff00));
        assert!(connection.is_answered);
        let long = connection_of(&flow(UDP, false, Duration::from_secs(170)), 1);
        assert_eq!(long.unwrap().timeout, 170);
        assert_eq!(connection_of(&flow(TCP, true, brief), 1), None);
        assert_eq!(connection_of(&flow(1, false, brief), 1), None);
    }
}
