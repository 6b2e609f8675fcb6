//! The networks outside of this host to which no packet is translated: what the maps hold of the prefixes in them.
//!
//! Promises: in a half that is complete, the longest prefix that contains an address of a network has the identity that the
//! tables give the address.
//!
//! Never: holds a prefix outside of the networks.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_model::{Family, Prefix, PrefixMap};
use palisade_tables::{IdentityId, Tables};

use crate::map_write::MapWrite;

/// How many lengths of prefixes, hosts left out, programs try.
pub const MAX_LENGTHS: usize = 32;

/// The identities from here on have no place in a value of the map of prefixes.
const FIRST_LARGE_IDENTITY: u32 = (1 << 20) - 1;

/// A prefix in the maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    /// What the half in force will have.
    next: Option<IdentityId>,
    /// What each half has.
    halves: [Option<IdentityId>; 2],
}

/// A length below that of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Length {
    /// How many prefixes in the maps have it.
    uses: usize,
    /// Its place among those that programs try; `None` if there was none.
    place: Option<usize>,
}

/// The prefixes of the networks.
#[derive(Clone, Debug)]
pub(crate) struct Networks {
    /// None contains another one.
    declared: Vec<Prefix>,
    rows: PrefixMap<Row>,
    /// By their bits.
    lengths: BTreeMap<u8, Length>,
    room: u32,
    /// Prefixes that had no room since all were written last.
    missing: usize,
    /// Whether all were written once.
    is_whole: bool,
    /// Whether the host judges packets at its own interfaces.
    judges_host: bool,
    /// Whether each half has all prefixes; `None` before it was written.
    complete: Option<[bool; 2]>,
}

impl Networks {
    pub(crate) fn new(networks: &[Prefix], room: u32) -> Self {
        let is_first = |at: usize, network: &Prefix| {
            let mut others = networks.iter().enumerate();
            !others.any(|(other, known)| {
                other != at && known.covers(*network) && (known != network || other < at)
            })
        };
        let declared = networks.iter().enumerate();
        let declared = declared.filter(|(at, network)| is_first(*at, network));
        Networks {
            declared: declared.map(|(_, network)| *network).collect(),
            rows: PrefixMap::new(),
            lengths: BTreeMap::new(),
            room,
            missing: 0,
            is_whole: false,
            judges_host: false,
            complete: None,
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// Whether flows there are left to the stack, since the host judges packets at its own interfaces.
    pub(crate) fn judges_host(&self) -> bool {
        self.judges_host
    }

    /// How many prefixes and lengths of prefixes had no room.
    pub(crate) fn missing(&self) -> usize {
        let mut lengths = self.lengths.values();
        let misses_length = lengths.any(|length| length.place.is_none());
        self.missing + usize::from(misses_length)
    }

    /// Whether an address is in one of the networks.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let host = Prefix::host(address);
        self.declared.iter().any(|network| network.covers(host))
    }

    /// The prefixes whose identity depends on what the tables have of `prefix`.
    pub(crate) fn depending_on(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> + '_ {
        let networks = self.declared.iter().copied();
        networks.filter_map(move |network| {
            if network.covers(prefix) {
                Some(prefix)
            } else {
                prefix.covers(network).then_some(network)
            }
        })
    }

    /// All prefixes that are in the maps or will be; what had no room may have it now.
    pub(crate) fn all(&mut self, tables: &Tables) -> BTreeSet<Prefix> {
        self.missing = 0;
        self.is_whole = true;
        let inside = self.declared.iter().flat_map(|network| {
            let inside = tables.addresses.within(*network).map(|(prefix, _)| prefix);
            inside.chain([*network])
        });
        inside.chain(self.rows.keys()).collect()
    }

    /// What the tables give a prefix, if the maps are to have it: a network has the identity of what contains it.
    fn wanted(&self, tables: &Tables, prefix: Prefix) -> Option<IdentityId> {
        if !self.declared.contains(&prefix) {
            return tables.addresses.get(&prefix).copied();
        }
        let mut around = Some(prefix);
        while let Some(known) = around {
            if let Some(identity) = tables.addresses.get(&known) {
                return Some(*identity);
            }
            around = known.parent();
        }
        Some(IdentityId::UNKNOWN)
    }

    /// Brings what the half in force will have of a prefix up to date: the identity that it had, and the one that it has.
    pub(crate) fn update(&mut self, tables: &Tables, prefix: Prefix) -> [Option<IdentityId>; 2] {
        let wanted = self.wanted(tables, prefix);
        let former = self.rows.get(&prefix).and_then(|row| row.next);
        if former == wanted {
            return [former, wanted];
        }
        let is_full = self.rows.get(&prefix).is_none() && self.rows.len() >= self.room as usize;
        if is_full || wanted.is_some_and(|identity| identity.0 >= FIRST_LARGE_IDENTITY) {
            self.missing += 1;
            return [former, former];
        }
        self.rows.get_or_insert_with(prefix, Row::default).next = wanted;
        [former, wanted]
    }

    /// Writes what a half is to have of a prefix; whether the other half has something else.
    pub(crate) fn write(
        &mut self,
        prefix: Prefix,
        target: usize,
        writes: &mut Vec<MapWrite>,
    ) -> bool {
        let Some(row) = self.rows.get_mut(&prefix) else {
            return false;
        };
        let is_new = row.halves == [None; 2];
        if row.halves[target] == row.next {
            if is_new {
                self.rows.remove(&prefix);
                return false;
            }
            return row.halves[0] != row.halves[1];
        }
        row.halves[target] = row.next;
        let halves = row.halves;
        let is_gone = halves == [None; 2];
        if is_new {
            self.use_length(prefix);
        }
        writes.push(MapWrite::Prefix {
            prefix,
            identities: (!is_gone).then_some(halves),
        });
        if is_gone {
            self.rows.remove(&prefix);
            self.release_length(prefix, writes);
        }
        halves[0] != halves[1]
    }

    fn use_length(&mut self, prefix: Prefix) {
        let bits = mapped_length(prefix);
        if bits != 128 {
            self.lengths.entry(bits).or_default().uses += 1;
        }
    }

    fn release_length(&mut self, prefix: Prefix, writes: &mut Vec<MapWrite>) {
        let bits = mapped_length(prefix);
        let Some(length) = self.lengths.get_mut(&bits) else {
            return;
        };
        length.uses -= 1;
        if length.uses > 0 {
            return;
        }
        let place = length.place;
        self.lengths.remove(&bits);
        writes.extend(place.map(|place| MapWrite::PrefixLength {
            place,
            length: None,
        }));
    }

    /// Gives each length a place, as long as there are any.
    fn assign_places(&mut self, writes: &mut Vec<MapWrite>) {
        let taken: BTreeSet<usize> = self
            .lengths
            .values()
            .filter_map(|known| known.place)
            .collect();
        let mut free = (0..MAX_LENGTHS).filter(|place| !taken.contains(place));
        for (bits, length) in &mut self.lengths {
            if length.place.is_some() {
                continue;
            }
            length.place = free.next();
            writes.extend(length.place.map(|place| MapWrite::PrefixLength {
                place,
                length: Some(*bits),
            }));
        }
    }

    /// Writes whether a half has all prefixes; whether the other half differs. Where the host judges packets at its own
    /// interfaces, the fast path would pass by that: it has none then.
    pub(crate) fn write_complete(
        &mut self,
        tables: &Tables,
        target: usize,
        writes: &mut Vec<MapWrite>,
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        self.assign_places(writes);
        let has_all = self.is_whole && self.missing() == 0;
        self.judges_host = tables.judges_host();
        let mut complete = self.complete.unwrap_or_default();
        complete[target] = has_all && !self.judges_host;
        if self.complete != Some(complete) {
            self.complete = Some(complete);
            writes.push(MapWrite::Networks { complete });
        }
        complete[0] != complete[1]
    }

    /// Everything in the maps, as writes to empty ones.
    pub(crate) fn list(&self, writes: &mut Vec<MapWrite>) {
        let rows = self.rows.iter();
        let rows = rows.filter(|(_, row)| row.halves != [None; 2]);
        writes.extend(rows.map(|(prefix, row)| MapWrite::Prefix {
            prefix,
            identities: Some(row.halves),
        }));
        let lengths = self.lengths.iter();
        writes.extend(lengths.filter_map(|(bits, length)| {
            Some(MapWrite::PrefixLength {
                place: length.place?,
                length: Some(*bits),
            })
        }));
        writes.extend(
            self.complete
                .map(|complete| MapWrite::Networks { complete }),
        );
    }

    /// The identity of an address of the networks in a half, as programs find it.
    pub(crate) fn identity(&self, address: IpAddr, half: usize) -> Option<IdentityId> {
        if !self.complete?[half] {
            return None;
        }
        let mut prefix = Some(Prefix::host(address));
        while let Some(known) = prefix {
            let row = self.rows.get(&known);
            if let Some(identity) = row.and_then(|row| row.halves[half]) {
                return Some(identity);
            }
            prefix = known.parent();
        }
        None
    }
}

/// The length of a prefix as programs have it: addresses of IPv4 have 96 bits before their own.
pub fn mapped_length(prefix: Prefix) -> u8 {
    match Family::of(prefix.address()) {
        Family::V4 => 96 + prefix.length(),
        Family::V6 => prefix.length(),
    }
}
