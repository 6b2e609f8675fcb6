//! Traffic terms as regions: which protocols, destination and source ports or ICMP messages.
//!
//! Resolves named ports through a lookup it is given and turns one [`Traffic`] term into the
//! [`Region`] it covers for one protocol. Exact, negations included; it knows no rule and no peer.

use crate::faults::{Fault, on};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Family, IcmpMatch, PortMatch, PortRange, PortSpec, Protocol, Str, Traffic};
use palisade_tables::{SHORT_RANGE, icmp_key};

/// Sorted, disjoint ranges of 16-bit numbers.
pub(crate) type Ranges = Vec<PortRange>;

/// Which end of a flow a named port belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Where the first packet comes from.
    Source,
    /// Where the first packet goes.
    Destination,
}

/// What a term covers of one protocol: the number programs are keyed by, and the source port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Region {
    pub(crate) key: Ranges,
    pub(crate) source: Ranges,
}

impl Region {
    /// Everything of the protocol.
    fn whole() -> Self {
        Region {
            key: all(),
            source: all(),
        }
    }
}

pub(crate) fn all() -> Ranges {
    alloc::vec![PortRange::ALL]
}

pub(crate) fn contains(ranges: &Ranges, number: u16) -> bool {
    let after = ranges.partition_point(|r| r.first <= number);
    after
        .checked_sub(1)
        .is_some_and(|i| ranges[i].contains(number))
}

/// The same regions with those of the same source ports put together.
pub(crate) fn merged(mut regions: Vec<Region>) -> Vec<Region> {
    if regions.len() < 2 {
        return regions;
    }
    regions.sort_unstable_by(|a, b| a.source.cmp(&b.source));
    let alike = regions.chunk_by(|a, b| a.source == b.source);
    alike
        .filter_map(|alike| {
            let key = alike.iter().flat_map(|region| &region.key).copied();
            Some(Region {
                key: union(key.collect()),
                source: alike.first()?.source.clone(),
            })
        })
        .collect()
}

fn union(mut ranges: Ranges) -> Ranges {
    ranges.sort();
    let mut out: Ranges = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if u32::from(range.first) <= u32::from(last.last) + 1 => {
                last.last = last.last.max(range.last);
            }
            _ => out.push(range),
        }
    }
    out
}

/// What is in `from` and not in `without`; both sorted and disjoint.
fn subtract(from: &Ranges, without: &Ranges) -> Ranges {
    let mut out = Vec::new();
    for range in from {
        let mut first = u32::from(range.first);
        for hole in without {
            if u32::from(hole.last) < first || hole.first > range.last {
                continue;
            }
            if u32::from(hole.first) > first {
                out.push(PortRange {
                    first: first as u16,
                    last: hole.first - 1,
                });
            }
            first = u32::from(hole.last) + 1;
        }
        if first <= u32::from(range.last) {
            out.push(PortRange {
                first: first as u16,
                last: range.last,
            });
        }
    }
    out
}

fn icmp_range(test: IcmpMatch) -> PortRange {
    match test.code {
        Some(code) if !on(Fault::IcmpCodeIgnored) => PortRange::single(icmp_key(test.kind, code)),
        _ => PortRange {
            first: icmp_key(test.kind, 0),
            last: icmp_key(test.kind, u8::MAX),
        },
    }
}

/// Whether a term covers everything of its family.
pub(crate) fn is_total(term: &Traffic) -> bool {
    term.protocol.is_none()
        && term.not_protocol.is_none()
        && term.destination.is_any()
        && term.source.is_any()
        && term.icmp.is_none()
        && term.not_icmp.is_none()
}

/// The protocols that a term treats apart from the rest.
pub(crate) fn protocols_of(term: &Traffic, out: &mut Vec<Protocol>) {
    out.extend(term.protocol);
    out.extend(term.not_protocol);
    if term.protocol.is_none() {
        if !term.destination.is_any() || !term.source.is_any() {
            out.extend(Protocol::WITH_PORTS);
        }
        if term.icmp.is_some() || term.not_icmp.is_some() {
            out.extend([Protocol::ICMP, Protocol::ICMPV6]);
        }
    }
}

/// The same terms with the port lists of those put together that differ in nothing else, and adjacent
/// ports of a list made one range: a list of ports is often written as one term for each.
pub(crate) fn condensed(terms: &[Traffic]) -> Vec<Traffic> {
    let mut lists: BTreeMap<(Option<Family>, Option<Protocol>), Ranges> = BTreeMap::new();
    let mut out: Vec<Traffic> = Vec::new();
    for term in terms {
        match listed(term) {
            Some(ranges) => {
                let list = lists.entry((term.family, term.protocol)).or_default();
                list.extend(ranges);
            }
            None => out.push(term.clone()),
        }
    }
    for ((family, protocol), ranges) in lists {
        let ranges = union(ranges).into_iter().map(PortSpec::Range);
        out.push(Traffic {
            family,
            protocol,
            destination: PortMatch::of(ranges),
            ..Traffic::any()
        });
    }
    out
}

/// The destination ports of a term that asks for nothing else but protocol and family.
fn listed(term: &Traffic) -> Option<Ranges> {
    let plain = term.not_protocol.is_none()
        && term.source.is_any()
        && term.icmp.is_none()
        && term.not_icmp.is_none()
        && term.destination.not.is_empty();
    let specs = term.destination.is.as_ref().filter(|_| plain)?;
    let range = |spec: &PortSpec| match spec {
        PortSpec::Range(range) => Some(*range),
        PortSpec::Named(_) => None,
    };
    specs.iter().map(range).collect()
}

/// About how many elements terms need, whatever else matches as well.
pub(crate) fn weight(terms: &[Traffic]) -> usize {
    let list = |test: &PortMatch| {
        let size = |spec: &PortSpec| match spec {
            PortSpec::Range(range) => match range.last - range.first {
                more if more < SHORT_RANGE => usize::from(more) + 1,
                _ => 1,
            },
            PortSpec::Named(_) => 1,
        };
        let specs = test.is.iter().flatten().chain(&test.not);
        specs.map(size).sum::<usize>().max(1)
    };
    let of = |term: &Traffic| {
        let protocols = match term.protocol {
            None if !term.destination.is_any() || !term.source.is_any() => {
                Protocol::WITH_PORTS.len()
            }
            _ => 1,
        };
        let sources = match term.source.is_any() {
            true => 1,
            false => 2 * list(&term.source) + 1,
        };
        protocols * list(&term.destination) * sources
    };
    terms.iter().map(of).sum()
}

/// Calls `each` with every (name, protocol) that a port test of a term can ask for.
pub(crate) fn named_ports<'a>(
    term: &'a Traffic,
    test: &'a PortMatch,
    each: &mut impl FnMut(&'a Str, Protocol),
) {
    for spec in test.is.iter().flatten().chain(&test.not) {
        let PortSpec::Named(name) = spec else {
            continue;
        };
        for protocol in Protocol::WITH_PORTS {
            let asked = term.protocol.is_none_or(|p| p == protocol)
                && term.not_protocol.is_none_or(|p| p != protocol);
            if asked {
                each(name, protocol);
            }
        }
    }
}

fn ports(
    test: &PortMatch,
    end: End,
    protocol: Protocol,
    named: &impl Fn(End, &Str, Protocol) -> Option<u16>,
) -> Ranges {
    let resolve = |specs: &[PortSpec]| {
        union(
            specs
                .iter()
                .filter_map(|spec| match spec {
                    PortSpec::Range(range) => Some(*range),
                    PortSpec::Named(name) => named(end, name, protocol).map(PortRange::single),
                })
                .collect(),
        )
    };
    let inside = test.is.as_ref().map_or_else(all, |specs| resolve(specs));
    if on(Fault::NotPortsIgnored) {
        return inside;
    }
    subtract(&inside, &resolve(&test.not))
}

/// What a term covers of a protocol; `None` for the protocol stands for every one that no term of
/// the policy set treats apart. Returns `None` where it covers nothing.
pub(crate) fn region(
    term: &Traffic,
    protocol: Option<Protocol>,
    named: &impl Fn(End, &Str, Protocol) -> Option<u16>,
) -> Option<Region> {
    if term.protocol.is_some() && term.protocol != protocol {
        return None;
    }
    if term.not_protocol.is_some()
        && term.not_protocol == protocol
        && !on(Fault::NotProtocolIgnored)
    {
        return None;
    }
    let mut region = Region::whole();
    if !term.destination.is_any() || !term.source.is_any() {
        let protocol = protocol.filter(|p| p.has_ports())?;
        let (destination, source) = if on(Fault::EndsSwapped) {
            (&term.source, &term.destination)
        } else {
            (&term.destination, &term.source)
        };
        region.key = ports(destination, End::Destination, protocol, named);
        if !on(Fault::SourcePortsIgnored) {
            region.source = ports(source, End::Source, protocol, named);
        }
    }
    let is_icmp = protocol.is_some_and(Protocol::is_icmp);
    if let Some(test) = term.icmp {
        if !is_icmp {
            return None;
        }
        region.key = alloc::vec![icmp_range(test)];
    }
    if let Some(test) = term.not_icmp
        && is_icmp
    {
        region.key = subtract(&region.key, &alloc::vec![icmp_range(test)]);
    }
    (!region.key.is_empty() && !region.source.is_empty()).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(first: u16, last: u16) -> PortRange {
        PortRange { first, last }
    }

    #[test]
    fn ranges() {
        assert_eq!(
            union(alloc::vec![r(5, 9), r(1, 4), r(20, 30), r(25, 26)]),
            [r(1, 9), r(20, 30)]
        );
        assert_eq!(
            subtract(&all(), &alloc::vec![r(0, 9), r(20, 65535)]),
            [r(10, 19)]
        );
        assert_eq!(subtract(&alloc::vec![r(5, 9)], &all()), []);
        assert!(contains(&alloc::vec![r(1, 2), r(7, 7)], 7));
        assert!(!contains(&alloc::vec![r(1, 2), r(7, 7)], 6));
    }

    #[test]
    fn negated_icmp_holds_for_other_protocols() {
        let term = Traffic {
            not_icmp: Some(IcmpMatch {
                kind: 8,
                code: None,
            }),
            ..Traffic::any()
        };
        let none = |_: End, _: &Str, _: Protocol| None;
        assert_eq!(
            region(&term, Some(Protocol::TCP), &none),
            Some(Region::whole())
        );
        let icmp = region(&term, Some(Protocol::ICMP), &none).unwrap();
        let holds = |kind, code| contains(&icmp.key, icmp_key(kind, code));
        assert!(!holds(8, 3) && holds(9, 0));
    }
}
