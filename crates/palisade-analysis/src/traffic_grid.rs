//! The traffic that the oracle allows between two ends, as a set: it is asked once for each part that no rule divides.
//!
//! Promises: every verdict is the oracle's. Never: chooses the ends, or the rules that may divide their traffic.

use crate::pair_set::{PairSet, ranges_between_cuts};
use crate::traffic::TrafficSet;
use palisade_model::{Endpoint, L4, PortMatch, PortSpec, Protocol, TrafficMatch};
use std::collections::BTreeSet;

/// The traffic for which `allows` is true, where it depends on a flow's protocol, ports and ICMP message only as these
/// terms do. `cuts` are where the ports of source and destination are divided, for a protocol.
pub(crate) fn traffic_between_cuts(
    terms: &[&TrafficMatch],
    cuts: impl Fn(Protocol) -> [BTreeSet<u32>; 2],
    allows: impl Fn(Protocol, L4) -> bool,
) -> TrafficSet {
    let named: BTreeSet<Protocol> = terms
        .iter()
        .flat_map(|term| term.protocol.iter().chain(&term.not_protocols))
        .copied()
        .collect();
    let unnamed = (0..=u8::MAX)
        .map(Protocol)
        .find(|p| !p.has_ports() && !p.is_icmp() && !named.contains(p));
    let others = unnamed.is_some_and(|protocol| allows(protocol, L4::None));
    TrafficSet::from_parts(
        |protocol| {
            let [sources, destinations] = cuts(protocol);
            PairSet::from_grid(
                &ranges_between_cuts(&sources, u16::MAX),
                &ranges_between_cuts(&destinations, u16::MAX),
                |source, destination| {
                    let ports = L4::Ports {
                        source,
                        destination,
                    };
                    allows(protocol, ports)
                },
            )
        },
        |protocol| {
            let (kinds, codes) = icmp_cuts(terms);
            let byte = |n: u16| u8::try_from(n).unwrap_or(u8::MAX);
            let max = u16::from(u8::MAX);
            PairSet::from_grid(
                &ranges_between_cuts(&kinds, max),
                &ranges_between_cuts(&codes, max),
                |kind, code| {
                    let (kind, code) = (byte(kind), byte(code));
                    allows(protocol, L4::Icmp { kind, code })
                },
            )
        },
        |protocol| {
            if named.contains(&protocol) {
                allows(protocol, L4::None)
            } else {
                others
            }
        },
    )
}

/// The ports at which a port test of these terms changes, for one protocol at one end.
pub(crate) fn port_cuts(
    terms: &[&TrafficMatch],
    end: impl Fn(&TrafficMatch) -> &PortMatch,
    at: Option<&Endpoint>,
    protocol: Protocol,
) -> BTreeSet<u32> {
    let mut cuts = BTreeSet::new();
    for term in terms {
        let test = end(term);
        for spec in test.any_of.iter().flatten().chain(&test.not) {
            let range = match spec {
                PortSpec::Range(range) => Some((range.first, range.last)),
                PortSpec::Named(name) => at
                    .and_then(|endpoint| endpoint.named_port(name, protocol))
                    .map(|port| (port, port)),
            };
            if let Some((first, last)) = range {
                cuts.extend([u32::from(first), u32::from(last) + 1]);
            }
        }
    }
    cuts
}

/// The types and codes at which an ICMP test of these terms changes.
fn icmp_cuts(terms: &[&TrafficMatch]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut kinds, mut codes) = (BTreeSet::new(), BTreeSet::new());
    for message in terms
        .iter()
        .flat_map(|term| [term.icmp, term.not_icmp])
        .flatten()
    {
        let kind = u32::from(message.kind);
        kinds.extend([kind, kind + 1]);
        if let Some(code) = message.code.map(u32::from) {
            codes.extend([code, code + 1]);
        }
    }
    (kinds, codes)
}
