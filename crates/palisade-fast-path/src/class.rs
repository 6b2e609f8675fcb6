//! Programs of the decision tables as classes of the fast path: a word for each protocol and port.

use alloc::vec::Vec;

use palisade_model::{PortRange, Protocol};
use palisade_tables::{Cell, PortMap, Program, SourcePortMap, Verdict};

/// The greatest number of ranges of one protocol of a class that programs search; of a class with more, packets of the
/// protocol pass.
pub const MAX_RANGES: usize = 64;

/// A protocol whose flows the fast path may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FastProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

impl FastProtocol {
    /// All of them, in the order of the programs.
    pub const ALL: [FastProtocol; 4] = [
        FastProtocol::Tcp,
        FastProtocol::Udp,
        FastProtocol::Icmp,
        FastProtocol::Icmpv6,
    ];

    /// The protocol.
    pub fn protocol(self) -> Protocol {
        match self {
            FastProtocol::Tcp => Protocol::TCP,
            FastProtocol::Udp => Protocol::UDP,
            FastProtocol::Icmp => Protocol::ICMP,
            FastProtocol::Icmpv6 => Protocol::ICMPV6,
        }
    }
}

/// The number of a counter; 0 counts what no rule decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(pub u32);

/// What is said of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Nothing: nftables judges it, since a report or a reading is due, or the source port decides.
    Pass,
    /// It is allowed, and counted here.
    Allow(CounterId),
    /// It is denied, and counted here if it is of a flow that was delivered before; any other passes to nftables, which
    /// denies it.
    Deny(CounterId),
}

/// What a class says of a range of destination ports, or of ICMP types and codes (`icmp_key`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRow {
    /// The range.
    pub ports: PortRange,
    /// The word.
    pub word: Word,
}

/// What a class says of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolWords {
    /// The word where no row says anything.
    pub default: Word,
    /// The rows, sorted and disjoint.
    pub rows: Vec<PortRow>,
}

impl ProtocolWords {
    /// The word of a port.
    pub fn word(&self, port: u16) -> Word {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.ports.contains(port));
        row.map_or(self.default, |row| row.word)
    }

    /// The rows of more than one port, which programs search.
    pub fn ranges(&self) -> impl Iterator<Item = &PortRow> {
        self.rows.iter().filter(|row| !is_single(row))
    }

    /// The rows of one port, which programs look up.
    pub fn singles(&self) -> impl Iterator<Item = &PortRow> {
        self.rows.iter().filter(|row| is_single(row))
    }
}

fn is_single(row: &PortRow) -> bool {
    row.ports.first == row.ports.last
}

/// What a class says of each of [`FastProtocol::ALL`].
pub type ClassWords = [ProtocolWords; 4];

/// The class of a program; `counter` has the counter of a cell.
pub(crate) fn class_content(
    program: &Program,
    counter: &mut dyn FnMut(&Cell) -> CounterId,
) -> ClassWords {
    FastProtocol::ALL.map(|protocol| {
        let Some(map) = program.protocol(protocol.protocol()) else {
            return ProtocolWords {
                default: cell_word(program.default(), counter),
                rows: Vec::new(),
            };
        };
        let ranges = map.entries().iter().map(|(ports, _)| ports);
        if ranges.filter(|ports| ports.first < ports.last).count() > MAX_RANGES {
            return ProtocolWords {
                default: Word::Pass,
                rows: Vec::new(),
            };
        }
        let rows = map.entries().iter().map(|(ports, cells)| PortRow {
            ports: *ports,
            word: port_word(cells, counter),
        });
        let rows = rows.collect();
        ProtocolWords {
            default: port_word(map.default(), counter),
            rows,
        }
    })
}

/// What is said of a destination port.
fn port_word(cells: &SourcePortMap, counter: &mut dyn FnMut(&Cell) -> CounterId) -> Word {
    if let Some(cell) = PortMap::as_constant(cells) {
        return cell_word(cell, counter);
    }
    // Which rule denies it depends on the source port, so nothing is counted.
    let is_denied = cells.runs().all(|(_, cell)| cell.verdict == Verdict::Deny);
    if is_denied {
        Word::Deny(CounterId::default())
    } else {
        Word::Pass
    }
}

fn cell_word(cell: &Cell, counter: &mut dyn FnMut(&Cell) -> CounterId) -> Word {
    let owes_nothing =
        cell.log.is_none() && cell.audit_report().is_none() && cell.redirect.is_none();
    match cell.verdict {
        Verdict::Deny => Word::Deny(counter(cell)),
        Verdict::Allow if owes_nothing => Word::Allow(counter(cell)),
        _ => Word::Pass,
    }
}
