//! Flows between what the state knows, and past it.

use super::ModelTrial;
use super::policy::{NUMBERS, PROTOCOLS};
use crate::kubernetes::Features;
use crate::{Dice, address};
use palisade_model::{Flow, FlowOrigin, L4, NetworkSetKind, Protocol, State};
use std::net::IpAddr;

pub(super) fn trial(dice: &mut Dice, state: &State) -> ModelTrial {
    let mut features = Features::new();
    let own = dice.chance(4).then(|| own_ends(dice, state)).flatten();
    if own.is_some() {
        features.insert("flow: endpoint to itself");
    }
    let (source, destination) = own.unwrap_or_else(|| ends(dice, state));
    let v6 = source.is_ipv6();
    features.insert(if v6 { "flow: IPv6" } else { "flow: IPv4" });
    let protocol = match dice.below(100) {
        0..72 => *dice.pick(&PROTOCOLS[..3]),
        72..90 if v6 => Protocol::ICMPV6,
        72..90 => Protocol::ICMP,
        90..96 => Protocol(47),
        _ => Protocol(50),
    };
    features.insert(match protocol {
        Protocol::TCP => "flow: TCP",
        Protocol::UDP => "flow: UDP",
        Protocol::SCTP => "flow: SCTP",
        Protocol::ICMP => "flow: ICMP",
        Protocol::ICMPV6 => "flow: ICMPv6",
        _ => "flow: another protocol",
    });
    let l4 = if protocol.has_ports() {
        L4::Ports {
            source: port(dice, state, source),
            destination: port(dice, state, destination),
        }
    } else if protocol.is_icmp() {
        L4::Icmp {
            kind: *dice.pick(&[8, 128, 3, 0, 1]),
            code: *dice.pick(&[0, 0, 4, 5]),
        }
    } else {
        L4::None
    };
    let origin = if dice.chance(5) {
        features.insert("flow: made by the host's own stack");
        FlowOrigin::HostStack
    } else {
        FlowOrigin::Network
    };
    ModelTrial {
        flow: Flow {
            source,
            destination,
            protocol,
            l4,
            origin,
        },
        features,
    }
}

/// Two addresses of one family of one endpoint that no other one claims; they may be the same.
fn own_ends(dice: &mut Dice, state: &State) -> Option<(IpAddr, IpAddr)> {
    let all: Vec<_> = state.endpoints.values().collect();
    let endpoint = all.get(dice.below(all.len()))?;
    let claims = |address: &IpAddr| all.iter().filter(|e| e.addresses.contains(address)).count();
    let alone = endpoint.addresses.iter().copied();
    let alone: Vec<IpAddr> = alone.filter(|address| claims(address) == 1).collect();
    let from = *alone.get(dice.below(alone.len()))?;
    let to: Vec<IpAddr> = alone
        .into_iter()
        .filter(|to| to.is_ipv4() == from.is_ipv4())
        .collect();
    Some((from, *dice.pick(&to)))
}

/// Two ends of one family that no endpoint holds both of; at least one is an endpoint's, where
/// there is such a pair.
fn ends(dice: &mut Dice, state: &State) -> (IpAddr, IpAddr) {
    let held: Vec<IpAddr> = state
        .endpoints
        .values()
        .flat_map(|endpoint| endpoint.addresses.iter().copied())
        .collect();
    let nodes: Vec<IpAddr> = state
        .nodes
        .values()
        .flat_map(|node| node.addresses.iter().copied())
        .collect();
    let sets = state.network_sets.values();
    let of_names: Vec<IpAddr> = sets
        .filter(|set| set.kind == NetworkSetKind::DomainName)
        .flat_map(|set| set.nets.iter().map(|net| net.address()))
        .collect();
    let apart = |a: IpAddr, b: IpAddr| {
        let both = |held: &[IpAddr]| held.contains(&a) && held.contains(&b);
        a.is_ipv4() == b.is_ipv4()
            && a != b
            && !state.endpoints.values().any(|e| both(&e.addresses))
    };
    for _ in 0..60 {
        if held.is_empty() {
            break;
        }
        let one = *dice.pick(&held);
        let other = match dice.below(100) {
            0..58 => *dice.pick(&held),
            58..66 if !nodes.is_empty() => *dice.pick(&nodes),
            66..80 if !of_names.is_empty() => *dice.pick(&of_names),
            _ => address::outside(dice, one.is_ipv6()),
        };
        if apart(one, other) {
            return if dice.chance(50) {
                (one, other)
            } else {
                (other, one)
            };
        }
    }
    let v6 = dice.chance(50);
    let one = address::outside(dice, v6);
    let other = (0..60)
        .map(|_| address::outside(dice, v6))
        .find(|other| *other != one);
    (one, other.unwrap_or(one))
}

/// A port near those that rules and endpoints name; often one that a claimant of the address names,
/// for whatever protocol.
fn port(dice: &mut Dice, state: &State, at: IpAddr) -> u16 {
    let claimants = state
        .endpoints
        .values()
        .filter(|e| e.addresses.contains(&at));
    let own: Vec<u16> = claimants
        .flat_map(|e| &e.ports)
        .map(|named| named.port)
        .collect();
    if dice.chance(35) && !own.is_empty() {
        return *dice.pick(&own);
    }
    let names = state.endpoints.values().flat_map(|e| &e.ports);
    let mut near: Vec<u16> = names.map(|named| named.port).collect();
    near.extend(NUMBERS);
    near.extend(NUMBERS.map(|number| number.saturating_add(1)));
    let port = *dice.pick(&near);
    match dice.below(100) {
        0..10 => port.saturating_sub(1),
        10..25 => port.saturating_add(1),
        25..29 => dice.between(0, 65535) as u16,
        _ => port,
    }
}
