//! The destination ports with which packets of any class are redirected.
//!
//! They spare all other packets the lookups of a class: where one workload has rules by name, the traffic of the others
//! pays one lookup.
//!
//! Promises: the set covers every element of [`REDIRECT`] in the same step; its ranges are maximal. Never: decides whether a
//! packet with such a port is redirected.

use crate::content::ClassContent;
use crate::edit_batch::EditBatch;
use crate::names::{REDIRECT, REDIRECT_PORTS, concat_fields};
use crate::{Element, ElementKey};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{PortRange, Protocol};

/// Ranges of ports and the number of elements with each.
#[derive(Clone, Debug, Default)]
pub(crate) struct RedirectPorts {
    uses: BTreeMap<(Protocol, PortRange), usize>,
}

impl RedirectPorts {
    /// Adds the ports of a class, and the edits of the set. Returns whether they are the first.
    pub(crate) fn add(&mut self, content: &ClassContent, batch: &mut EditBatch) -> bool {
        let was_empty = self.uses.is_empty();
        self.change(batch, |uses| {
            for ports in ports_of(content) {
                *uses.entry(ports).or_default() += 1;
            }
        });
        was_empty && !self.uses.is_empty()
    }

    /// Removes the ports of a class that was added. Returns whether they were the last.
    pub(crate) fn remove(&mut self, content: &ClassContent, batch: &mut EditBatch) -> bool {
        let was_empty = self.uses.is_empty();
        self.change(batch, |uses| {
            for ports in ports_of(content) {
                let count = uses.remove(&ports).unwrap_or_default();
                if count > 1 {
                    uses.insert(ports, count - 1);
                }
            }
        });
        !was_empty && self.uses.is_empty()
    }

    fn change(
        &mut self,
        batch: &mut EditBatch,
        edit: impl FnOnce(&mut BTreeMap<(Protocol, PortRange), usize>),
    ) {
        let before = elements(self.uses.keys().copied());
        edit(&mut self.uses);
        let after = elements(self.uses.keys().copied());
        let member = || Some(Element::default());
        for key in before.difference(&after) {
            batch.edit(REDIRECT_PORTS, key.clone(), member(), None);
        }
        for key in after.difference(&before) {
            batch.edit(REDIRECT_PORTS, key.clone(), None, member());
        }
    }
}

/// The elements of the set for the elements of classes.
pub(crate) fn elements_of<'a>(
    contents: impl IntoIterator<Item = &'a ClassContent>,
) -> BTreeSet<ElementKey> {
    let ports: BTreeSet<_> = contents.into_iter().flat_map(ports_of).collect();
    elements(ports)
}

/// The ports of the elements of a class that redirect packets.
fn ports_of(content: &ClassContent) -> impl Iterator<Item = (Protocol, PortRange)> {
    let elements = content.elements.keys();
    elements
        .filter(|(map, _)| *map == REDIRECT)
        .filter_map(|(_, key)| parse_redirect_key(key))
}

/// Protocol and ports of a key of [`REDIRECT`].
pub(crate) fn parse_redirect_key(key: &ElementKey) -> Option<(Protocol, PortRange)> {
    let ElementKey::Range(first, last) = key else {
        return None;
    };
    let port = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.get(12..14)?.try_into().ok()?));
    let ports = PortRange::new(port(first)?, port(last)?)?;
    Some((Protocol(*first.get(8)?), ports))
}

/// The union of ranges, which come in order, as maximal ranges.
fn elements(ports: impl IntoIterator<Item = (Protocol, PortRange)>) -> BTreeSet<ElementKey> {
    let mut union: Vec<(Protocol, PortRange)> = Vec::new();
    for (protocol, range) in ports {
        match union.last_mut() {
            Some((known, run))
                if *known == protocol && range.first <= run.last.saturating_add(1) =>
            {
                run.last = run.last.max(range.last);
            }
            _ => union.push((protocol, range)),
        }
    }
    let end = |protocol: Protocol, port: u16| concat_fields(&[&[protocol.0], &port.to_be_bytes()]);
    let keys = union.into_iter().map(|(protocol, range)| {
        ElementKey::Range(end(protocol, range.first), end(protocol, range.last))
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn union(ranges: &[(u8, u16, u16)]) -> Vec<(u8, u16, u16)> {
        let ports = ranges.iter().map(|(protocol, first, last)| {
            (
                Protocol(*protocol),
                PortRange::new(*first, *last).expect("a range"),
            )
        });
        let ports: BTreeSet<_> = ports.collect();
        let keys = elements(ports).into_iter().map(|key| {
            let ElementKey::Range(first, last) = key else {
                panic!("{key:?} is no range");
            };
            let port = |bytes: &[u8]| u16::from_be_bytes([bytes[4], bytes[5]]);
            (first[0], port(&first), port(&last))
        });
        keys.collect()
    }

    #[test]
    fn overlapping_and_adjacent_ranges_become_one() {
        assert_eq!(
            union(&[
                (17, 53, 53),
                (17, 54, 60),
                (17, 55, 58),
                (17, 62, 62),
                (6, 53, 53)
            ]),
            [(6, 53, 53), (17, 53, 60), (17, 62, 62)]
        );
    }

    #[test]
    fn a_range_to_the_last_port_takes_in_what_follows() {
        assert_eq!(
            union(&[(17, 1, u16::MAX), (17, 53, 53), (17, u16::MAX, u16::MAX)]),
            [(17, 1, u16::MAX)]
        );
    }
}
