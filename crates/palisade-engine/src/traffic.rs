//! Traffic terms as regions: protocols, destination and source ports, ICMP messages.
//!
//! Resolves named ports through a function of the caller, and converts one [`TrafficMatch`] term to
//! the [`TrafficRegion`] that it covers for one protocol. The result is exact, negations included.
//! Rules and peers are not known here.

use crate::faults::EngineFault;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{
    Family, IcmpMatch, PortMatch, PortRange, PortSpec, Protocol, RangeSet, Str, TrafficMatch,
};
use palisade_tables::{SHORT_RANGE, icmp_key};

/// The end of a flow that a named port belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortEnd {
    /// The sender of the first packet.
    Source,
    /// The receiver of the first packet.
    Destination,
}

/// What a term covers of one protocol: ranges of the program key (destination port or ICMP message)
/// and of the source port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrafficRegion {
    pub(crate) key: RangeSet<u16>,
    pub(crate) source: RangeSet<u16>,
}

impl TrafficRegion {
    /// All traffic of the protocol.
    fn whole() -> Self {
        TrafficRegion {
            key: all_ports(),
            source: all_ports(),
        }
    }
}

pub(crate) fn all_ports() -> RangeSet<u16> {
    PortRange::ALL.into()
}

/// Merges regions with equal source ports.
pub(crate) fn merge_regions(mut regions: Vec<TrafficRegion>) -> Vec<TrafficRegion> {
    if regions.len() < 2 {
        return regions;
    }
    regions.sort_unstable_by(|a, b| a.source.cmp(&b.source));
    let alike = regions.chunk_by(|a, b| a.source == b.source);
    alike
        .filter_map(|alike| {
            let key = alike.iter().flat_map(|region| region.key.ranges());
            Some(TrafficRegion {
                key: key.copied().collect(),
                source: alike.first()?.source.clone(),
            })
        })
        .collect()
}

fn icmp_range(test: IcmpMatch) -> PortRange {
    match test.code {
        Some(code) if !EngineFault::IcmpCodeIgnored.is_injected() => {
            PortRange::single(icmp_key(test.kind, code))
        }
        _ => PortRange {
            first: icmp_key(test.kind, 0),
            last: icmp_key(test.kind, u8::MAX),
        },
    }
}

/// Whether a term covers everything of its family.
pub(crate) fn is_total(term: &TrafficMatch) -> bool {
    let TrafficMatch {
        family: _,
        protocol,
        not_protocols,
        source,
        destination,
        icmp,
        not_icmp,
    } = term;
    protocol.is_none()
        && not_protocols.is_empty()
        && source.is_any()
        && destination.is_any()
        && icmp.is_none()
        && not_icmp.is_none()
}

/// Collects the protocols that a term distinguishes from the rest.
pub(crate) fn collect_protocols(term: &TrafficMatch, out: &mut Vec<Protocol>) {
    out.extend(term.protocol);
    out.extend(&term.not_protocols);
    if term.protocol.is_none() {
        if !term.destination.is_any() || !term.source.is_any() {
            out.extend(Protocol::WITH_PORTS);
        }
        if term.icmp.is_some() || term.not_icmp.is_some() {
            out.extend([Protocol::ICMP, Protocol::ICMPV6]);
        }
    }
}

/// Merges the destination port lists of terms that are otherwise equal, and adjacent ports into
/// ranges: a list of ports is often written as one term for each.
pub(crate) fn merge_port_lists(terms: &[TrafficMatch]) -> Vec<TrafficMatch> {
    let mut lists: BTreeMap<(Option<Family>, Option<Protocol>), Vec<PortRange>> = BTreeMap::new();
    let mut out: Vec<TrafficMatch> = Vec::new();
    for term in terms {
        match destination_ports(term) {
            Some(ranges) => {
                let list = lists.entry((term.family, term.protocol)).or_default();
                list.extend(ranges);
            }
            None => out.push(term.clone()),
        }
    }
    for ((family, protocol), ranges) in lists {
        let ranges: RangeSet<u16> = ranges.into_iter().collect();
        let ranges = ranges.ranges().iter().copied().map(PortSpec::Range);
        out.push(TrafficMatch {
            family,
            protocol,
            destination: PortMatch::one_of(ranges),
            ..TrafficMatch::any()
        });
    }
    out
}

/// The destination ports of a term without tests other than protocol and family.
fn destination_ports(term: &TrafficMatch) -> Option<Vec<PortRange>> {
    let TrafficMatch {
        family: _,
        protocol: _,
        not_protocols,
        source,
        destination,
        icmp,
        not_icmp,
    } = term;
    let is_plain = not_protocols.is_empty()
        && source.is_any()
        && icmp.is_none()
        && not_icmp.is_none()
        && destination.not.is_empty();
    let specs = destination.any_of.as_ref().filter(|_| is_plain)?;
    let range = |spec: &PortSpec| match spec {
        PortSpec::Range(range) => Some(*range),
        PortSpec::Named(_) => None,
    };
    specs.iter().map(range).collect()
}

/// About how many elements terms need, independent of other rules.
pub(crate) fn element_weight(terms: &[TrafficMatch]) -> usize {
    let list = |test: &PortMatch| {
        let size = |spec: &PortSpec| match spec {
            PortSpec::Range(range) => match range.last - range.first {
                more if more < SHORT_RANGE => usize::from(more) + 1,
                _ => 1,
            },
            PortSpec::Named(_) => 1,
        };
        let specs = test.any_of.iter().flatten().chain(&test.not);
        specs.map(size).sum::<usize>().max(1)
    };
    let weight = |term: &TrafficMatch| {
        let protocols = match term.protocol {
            None if !term.destination.is_any() || !term.source.is_any() => {
                Protocol::WITH_PORTS.len()
            }
            _ => 1,
        };
        let sources = if term.source.is_any() {
            1
        } else {
            2 * list(&term.source) + 1
        };
        protocols * list(&term.destination) * sources
    };
    terms.iter().map(weight).sum()
}

/// Calls `each` with every (name, protocol) that a port test of a term may resolve.
pub(crate) fn for_each_named_port<'a>(
    term: &'a TrafficMatch,
    test: &'a PortMatch,
    each: &mut impl FnMut(&'a Str, Protocol),
) {
    for spec in test.any_of.iter().flatten().chain(&test.not) {
        let PortSpec::Named(name) = spec else {
            continue;
        };
        for protocol in Protocol::WITH_PORTS {
            let asked = term.protocol.is_none_or(|p| p == protocol)
                && !term.not_protocols.contains(&protocol);
            if asked {
                each(name, protocol);
            }
        }
    }
}

fn resolve_ports(
    test: &PortMatch,
    end: PortEnd,
    protocol: Protocol,
    resolve_port: &impl Fn(PortEnd, &Str, Protocol) -> Option<u16>,
) -> RangeSet<u16> {
    let resolve = |specs: &[PortSpec]| -> RangeSet<u16> {
        let range = |spec: &PortSpec| match spec {
            PortSpec::Range(range) => Some(*range),
            PortSpec::Named(name) => resolve_port(end, name, protocol).map(PortRange::single),
        };
        specs.iter().filter_map(range).collect()
    };
    let inside = test
        .any_of
        .as_ref()
        .map_or_else(all_ports, |specs| resolve(specs));
    if EngineFault::NotPortsIgnored.is_injected() {
        return inside;
    }
    match test.not.as_slice() {
        [] => inside,
        not => inside.subtract(&resolve(not)),
    }
}

/// What a term covers of a protocol. `None` as protocol stands for every one that no term of the
/// policy set distinguishes. Returns `None` if the term covers nothing of it.
pub(crate) fn traffic_region(
    term: &TrafficMatch,
    protocol: Option<Protocol>,
    resolve_port: &impl Fn(PortEnd, &Str, Protocol) -> Option<u16>,
) -> Option<TrafficRegion> {
    if term.protocol.is_some() && term.protocol != protocol {
        return None;
    }
    if protocol.is_some_and(|protocol| term.not_protocols.contains(&protocol))
        && !EngineFault::NotProtocolIgnored.is_injected()
    {
        return None;
    }
    let mut region = TrafficRegion::whole();
    if !term.destination.is_any() || !term.source.is_any() {
        let protocol = protocol.filter(|p| p.has_ports())?;
        let (destination, source) = if EngineFault::EndsSwapped.is_injected() {
            (&term.source, &term.destination)
        } else {
            (&term.destination, &term.source)
        };
        region.key = resolve_ports(destination, PortEnd::Destination, protocol, resolve_port);
        if !EngineFault::SourcePortsIgnored.is_injected() {
            region.source = resolve_ports(source, PortEnd::Source, protocol, resolve_port);
        }
    }
    let is_icmp = protocol.is_some_and(Protocol::is_icmp);
    if let Some(test) = term.icmp {
        if !is_icmp {
            return None;
        }
        region.key = icmp_range(test).into();
    }
    if let Some(test) = term.not_icmp
        && is_icmp
    {
        region.key = region.key.subtract(&icmp_range(test).into());
    }
    (!region.key.is_empty() && !region.source.is_empty()).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negated_icmp_holds_for_other_protocols() {
        let term = TrafficMatch {
            not_icmp: Some(IcmpMatch {
                kind: 8,
                code: None,
            }),
            ..TrafficMatch::any()
        };
        let none = |_: PortEnd, _: &Str, _: Protocol| None;
        assert_eq!(
            traffic_region(&term, Some(Protocol::TCP), &none),
            Some(TrafficRegion::whole())
        );
        let icmp = traffic_region(&term, Some(Protocol::ICMP), &none).unwrap();
        let holds = |kind, code| icmp.key.contains(icmp_key(kind, code));
        assert!(!holds(8, 3) && holds(9, 0));
    }
}
