//! What two classes prove together: the ports where both ends of a flow allow it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use palisade_model::PortRange;

use crate::class::{CounterId, ProtocolWords, Word};

/// Destination ports, or ICMP types and codes, whose flows the fast path may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenPorts {
    /// The range.
    pub ports: PortRange,
    /// The counters of both ends, egress first.
    pub counters: [CounterId; 2],
}

/// The ports of a protocol that both ends allow, sorted, disjoint, and as few ranges as can be.
pub fn proven_ports(egress: &ProtocolWords, ingress: &ProtocolWords) -> Vec<ProvenPorts> {
    let rows = egress.rows.iter().chain(&ingress.rows);
    // Words change only where a row begins, and behind its end.
    let mut starts: BTreeSet<u16> = rows
        .flat_map(|row| [Some(row.ports.first), row.ports.last.checked_add(1)])
        .flatten()
        .collect();
    starts.insert(0);
    let ends = starts
        .iter()
        .skip(1)
        .map(|start| start - 1)
        .chain([u16::MAX]);
    let mut proven: Vec<ProvenPorts> = Vec::new();
    for (first, last) in starts.iter().copied().zip(ends) {
        let (Word::Allow(sent), Word::Allow(received)) = (egress.word(first), ingress.word(first))
        else {
            continue;
        };
        let counters = [sent, received];
        match proven.last_mut() {
            Some(before)
                if before.counters == counters
                    && before.ports.last.checked_add(1) == Some(first) =>
            {
                before.ports.last = last;
            }
            _ => proven.push(ProvenPorts {
                ports: PortRange { first, last },
                counters,
            }),
        }
    }
    proven
}
