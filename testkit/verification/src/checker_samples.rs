//! Which headers and addresses tables tell apart: one of each kind, exactly.

use palisade_model::{Family, L4, Prefix, Protocol};
use palisade_tables::{PortMap, Program, SourcePortMap, Tables};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A protocol, and the rest of the header.
pub(crate) type TransportHeader = (Protocol, L4);

/// One header of each kind that any of the programs tells apart.
pub(crate) fn sample_headers<'a>(
    programs: impl Iterator<Item = &'a Arc<Program>>,
) -> Vec<TransportHeader> {
    let programs: Vec<&Arc<Program>> = programs.collect();
    let listed: BTreeSet<Protocol> = programs
        .iter()
        .flat_map(|program| program.protocols().iter().map(|(p, _)| *p))
        .collect();
    let other = (0..=u8::MAX)
        .map(Protocol)
        .find(|p| !listed.contains(p) && !p.has_ports() && !p.is_icmp());
    let mut out: Vec<TransportHeader> = other.map(|p| (p, L4::None)).into_iter().collect();
    for protocol in listed {
        let maps: Vec<&PortMap<SourcePortMap>> = programs
            .iter()
            .filter_map(|program| program.protocol(protocol))
            .collect();
        for key in run_starts(&maps) {
            let values: Vec<&SourcePortMap> = maps.iter().map(|map| map.get(key)).collect();
            if protocol.has_ports() {
                out.extend(run_starts(&values).into_iter().map(|source| {
                    let destination = key;
                    let l4 = L4::Ports {
                        source,
                        destination,
                    };
                    (protocol, l4)
                }));
            } else if protocol.is_icmp() {
                let [kind, code] = key.to_be_bytes();
                out.push((protocol, L4::Icmp { kind, code }));
            } else if key == 0 {
                out.push((protocol, L4::None));
            }
        }
    }
    out
}

/// The first number of each run in which all functions are constant.
fn run_starts<T: Clone + Ord>(maps: &[&PortMap<T>]) -> BTreeSet<u16> {
    let mut firsts = BTreeSet::from([0]);
    for (range, _) in maps.iter().flat_map(|map| map.entries()) {
        firsts.insert(range.first);
        firsts.extend(range.last.checked_add(1));
    }
    firsts
}

/// One address of each region that any of the tables tells apart, at either end of a packet, and every workload's
/// own.
pub(crate) fn sample_addresses(states: &[Tables], family: Family) -> BTreeSet<IpAddr> {
    let is_family = |address: &IpAddr| Family::of(*address) == family;
    let prefixes: BTreeSet<Prefix> = states
        .iter()
        .flat_map(|state| {
            let local = state.points.keys().map(|point| point.local);
            state.addresses.keys().chain(local)
        })
        .filter(|prefix| prefix.family() == family)
        .collect();
    let mut out: BTreeSet<IpAddr> = states
        .iter()
        .flat_map(|state| state.points.keys())
        .filter_map(|point| point.workload().map(|(_, address)| address))
        .filter(is_family)
        .collect();
    let whole = Prefix::all(family);
    for prefix in prefixes.iter().copied().chain([whole]) {
        out.extend(uncovered_address(prefix, &prefixes));
    }
    out
}

/// An address of a prefix that no longer prefix holds.
fn uncovered_address(prefix: Prefix, prefixes: &BTreeSet<Prefix>) -> Option<IpAddr> {
    let (low, high) = prefix.bounds();
    let mut next = low;
    let inside = prefixes
        .range(prefix..)
        .take_while(|other| prefix.covers(**other))
        .filter(|other| **other != prefix);
    for other in inside {
        let (first, last) = other.bounds();
        if first > next {
            break;
        }
        if last >= high {
            return None;
        }
        next = next.max(last + 1);
    }
    Some(match prefix.family() {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(next).ok()?)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(next)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_outside_all_children() {
        let set = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect();
        let p = |t: &str| t.parse::<Prefix>().unwrap();
        let cases: [(&str, &[&str], Option<&str>); 4] = [
            ("10.0.0.0/8", &[], Some("10.0.0.0")),
            (
                "10.0.0.0/30",
                &["10.0.0.0/31", "10.0.0.2/32"],
                Some("10.0.0.3"),
            ),
            ("10.0.0.0/30", &["10.0.0.0/31", "10.0.0.2/31"], None),
            ("fd00::/16", &["fd00::/17"], Some("fd00:8000::")),
        ];
        for (prefix, children, expected) in cases {
            let prefixes: BTreeSet<Prefix> = set(children);
            let found = uncovered_address(p(prefix), &prefixes);
            assert_eq!(found, expected.map(|a| a.parse().unwrap()), "{prefix}");
        }
    }
}
