//! Sets of traffic: protocols, ports, ICMP types and codes.
//!
//! A [`TrafficSet`] is canonical: equal sets are equal values. Both families share one space:
//! protocol 58 exists in IPv4 packets too.

use crate::pair_set::PairSet;
use palisade_api::{AllTraffic, NumberRangeList, ProtocolName, ProtocolTraffic, TrafficReport};
use palisade_model::{L4, Protocol, RangeSet};
use std::fmt;

const PORT_MAX: u16 = u16::MAX;
const ICMP_MAX: u16 = u8::MAX as u16;
const ICMP: [Protocol; 2] = [Protocol::ICMP, Protocol::ICMPV6];

/// A set of traffic between two ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficSet {
    /// (source port, destination port) for each of [`Protocol::WITH_PORTS`].
    port_pairs: [PairSet; 3],
    /// (type, code) of ICMP and ICMPv6.
    icmp: [PairSet; 2],
    /// One bit for each protocol without ports or ICMP types.
    others: [u64; 4],
}

fn is_other(protocol: Protocol) -> bool {
    !protocol.has_ports() && !protocol.is_icmp()
}

fn all_others() -> [u64; 4] {
    let mut bits = [0; 4];
    for protocol in (0..=u8::MAX).map(Protocol).filter(|p| is_other(*p)) {
        set_bit(&mut bits, protocol);
    }
    bits
}

fn set_bit(bits: &mut [u64; 4], protocol: Protocol) {
    bits[usize::from(protocol.0 / 64)] |= 1 << (protocol.0 % 64);
}

impl TrafficSet {
    /// No traffic.
    pub fn none() -> Self {
        TrafficSet::default()
    }

    /// All traffic.
    pub fn all() -> Self {
        TrafficSet {
            port_pairs: [(); 3].map(|()| PairSet::full(PORT_MAX, PORT_MAX)),
            icmp: [(); 2].map(|()| PairSet::full(ICMP_MAX, ICMP_MAX)),
            others: all_others(),
        }
    }

    /// The set with these pairs for each protocol with ports or ICMP types, and with each other
    /// protocol for which `other` is true.
    pub(crate) fn from_parts(
        mut ported: impl FnMut(Protocol) -> PairSet,
        mut icmp: impl FnMut(Protocol) -> PairSet,
        mut other: impl FnMut(Protocol) -> bool,
    ) -> Self {
        let mut others = [0; 4];
        for protocol in (0..=u8::MAX).map(Protocol).filter(|p| is_other(*p)) {
            if other(protocol) {
                set_bit(&mut others, protocol);
            }
        }
        TrafficSet {
            port_pairs: Protocol::WITH_PORTS.map(&mut ported),
            icmp: ICMP.map(&mut icmp),
            others,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.port_pairs
            .iter()
            .chain(&self.icmp)
            .all(PairSet::is_empty)
            && self.others == [0; 4]
    }

    /// Whether it is all traffic.
    pub fn is_all(&self) -> bool {
        *self == TrafficSet::all()
    }

    /// Whether the set contains a protocol with these ports or this ICMP message.
    pub fn contains(&self, protocol: Protocol, l4: L4) -> bool {
        let position = |list: &[Protocol]| list.iter().position(|p| *p == protocol);
        match l4 {
            L4::Ports {
                source,
                destination,
            } => position(&Protocol::WITH_PORTS)
                .is_some_and(|i| self.port_pairs[i].contains(source, destination)),
            L4::Icmp { kind, code } => {
                position(&ICMP).is_some_and(|i| self.icmp[i].contains(kind.into(), code.into()))
            }
            L4::None => self.has_other(protocol),
        }
    }

    fn has_other(&self, protocol: Protocol) -> bool {
        self.others[usize::from(protocol.0 / 64)] >> (protocol.0 % 64) & 1 == 1
    }

    /// The union of both.
    pub(crate) fn union(&self, other: &TrafficSet) -> TrafficSet {
        self.combine(other, PairSet::union, |a, b| a | b)
    }

    /// Whether both have traffic in common.
    pub(crate) fn overlaps(&self, other: &TrafficSet) -> bool {
        !self.intersect(other).is_empty()
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &TrafficSet) -> TrafficSet {
        self.combine(other, PairSet::intersect, |a, b| a & b)
    }

    /// The traffic of this set that is not in the other.
    pub fn subtract(&self, other: &TrafficSet) -> TrafficSet {
        self.combine(other, PairSet::subtract, |a, b| a & !b)
    }

    fn combine(
        &self,
        other: &TrafficSet,
        planes: impl Fn(&PairSet, &PairSet) -> PairSet,
        bits: impl Fn(u64, u64) -> u64,
    ) -> TrafficSet {
        TrafficSet {
            port_pairs: std::array::from_fn(|i| planes(&self.port_pairs[i], &other.port_pairs[i])),
            icmp: std::array::from_fn(|i| planes(&self.icmp[i], &other.icmp[i])),
            others: std::array::from_fn(|i| bits(self.others[i], other.others[i])),
        }
    }

    /// The set as a list of protocols, each with its ports or types.
    ///
    /// [`ProtocolName::Other`] means every protocol that is not listed. Where it appears, the five
    /// named protocols are always listed, even with no traffic.
    pub fn entries(&self) -> Vec<ProtocolTraffic> {
        let every_other = self.others == all_others();
        let mut entries = Vec::new();
        for (protocol, plane) in Protocol::WITH_PORTS.into_iter().zip(&self.port_pairs) {
            let entry = |sources: RangeSet<u16>, ports: RangeSet<u16>| ProtocolTraffic {
                ports: Some(pairs(&ports)),
                source_ports: omit_if_full(&sources, PORT_MAX),
                ..no_traffic(protocol)
            };
            push_entries(plane, every_other, entry, &mut entries);
        }
        for (protocol, plane) in ICMP.into_iter().zip(&self.icmp) {
            let entry = |types: RangeSet<u16>, codes: RangeSet<u16>| ProtocolTraffic {
                types: Some(pairs(&types)),
                codes: omit_if_full(&codes, ICMP_MAX),
                ..no_traffic(protocol)
            };
            push_entries(plane, every_other, entry, &mut entries);
        }
        if every_other {
            entries.push(no_traffic(ProtocolName::Other));
        } else {
            let numbers = (0..=u8::MAX).map(Protocol).filter(|p| self.has_other(*p));
            entries.extend(numbers.map(no_traffic));
        }
        entries
    }
}

fn push_entries(
    plane: &PairSet,
    list_empty: bool,
    entry: impl Fn(RangeSet<u16>, RangeSet<u16>) -> ProtocolTraffic,
    entries: &mut Vec<ProtocolTraffic>,
) {
    if plane.is_empty() && list_empty {
        let mut nothing = entry(RangeSet::default(), RangeSet::default());
        (nothing.source_ports, nothing.codes) = (None, None);
        entries.push(nothing);
    }
    let groups = plane.groups().into_iter();
    entries.extend(groups.map(|(xs, ys)| entry(xs, ys)));
}

fn pairs(ranges: &RangeSet<u16>) -> NumberRangeList {
    let ranges = ranges.ranges().iter();
    ranges.map(|range| [range.first, range.last]).collect()
}

fn omit_if_full(ranges: &RangeSet<u16>, max: u16) -> Option<NumberRangeList> {
    Some(pairs(ranges)).filter(|pairs| pairs[..] != [[0, max]])
}

/// No traffic of a protocol, as an entry of a list.
fn no_traffic(protocol: impl Into<ProtocolName>) -> ProtocolTraffic {
    ProtocolTraffic {
        protocol: protocol.into(),
        ports: None,
        source_ports: None,
        types: None,
        codes: None,
    }
}

impl From<&TrafficSet> for TrafficReport {
    fn from(set: &TrafficSet) -> Self {
        if set.is_all() {
            TrafficReport::All(AllTraffic::All)
        } else {
            TrafficReport::Protocols(set.entries())
        }
    }
}

impl fmt::Display for TrafficSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let entries = self.entries();
        for (i, entry) in entries.iter().enumerate() {
            f.write_str(if i > 0 { "; " } else { "" })?;
            write_entry(entry, f)?;
        }
        Ok(())
    }
}

fn write_entry(entry: &ProtocolTraffic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match entry.protocol {
        ProtocolName::Number(number) => write!(f, "protocol {number}")?,
        ProtocolName::Other => f.write_str("every other protocol")?,
        named => write!(f, "{named}")?,
    }
    match entry.ports.as_ref().or(entry.types.as_ref()) {
        Some(spans) if spans.is_empty() => f.write_str(" none")?,
        Some(spans) => {
            let (max, word) = match entry.types {
                Some(_) => (ICMP_MAX, " type"),
                None => (PORT_MAX, ""),
            };
            if spans[..] != [[0, max]] {
                write!(f, "{word} {}", format_ranges(spans))?;
            }
        }
        None => {}
    }
    if let Some(codes) = &entry.codes {
        write!(f, " code {}", format_ranges(codes))?;
    }
    if let Some(sources) = &entry.source_ports {
        write!(f, " from port {}", format_ranges(sources))?;
    }
    Ok(())
}

fn format_ranges(spans: &NumberRangeList) -> String {
    let one = |span: &[u16; 2]| match *span {
        [first, last] if first == last => first.to_string(),
        [first, last] => format!("{first}-{last}"),
    };
    spans.iter().map(one).collect::<Vec<_>>().join(",")
}
