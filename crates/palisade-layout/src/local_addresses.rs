//! The set of the local endpoints' addresses; packets from other interfaces may not have them as source.
//!
//! The set follows from the points: an address is local while an egress point on one of our
//! interfaces has it. An address that is local before and after a transaction stays in the set throughout; a
//! new one is added when everything else tightens, and an old one is deleted when it loosens, so a packet
//! that is denied for one reason before and for another afterwards is never let through.
//!
//! The set is looked up after the interface. A packet of an interface that is being added or removed must
//! not be taken for another interface's in between: so an address of such an interface is added in a
//! separate step after it, or deleted in one before it. Interfaces with our prefix are always recognized,
//! and need no such step.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Str};
use palisade_tables::{Delta, Point, TableChange, Tables};

/// How the set of local addresses changes with a delta, by the time at which it may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddressChanges {
    /// To add when everything else tightens.
    pub added: Vec<IpAddr>,
    /// To add in a step of its own after the one that adds the interface.
    pub added_after_interface: Vec<IpAddr>,
    /// To delete when everything else loosens.
    pub deleted: Vec<IpAddr>,
    /// To delete in a step of its own before the one that removes the interface.
    pub deleted_before_interface: Vec<IpAddr>,
}

/// The local addresses according to the tables, and those in the maps.
#[derive(Clone, Debug, Default)]
pub struct LocalAddresses {
    /// The number of points on our interfaces that have an address.
    point_counts: BTreeMap<IpAddr, usize>,
    /// The addresses in the maps.
    installed: BTreeSet<IpAddr>,
    /// The addresses for which the two may differ.
    dirty: BTreeSet<IpAddr>,
    /// The addresses of interfaces that are removed.
    leaving_interfaces: BTreeMap<IpAddr, BTreeSet<Str>>,
}

impl LocalAddresses {
    /// Applies a change; called before the tables apply it.
    pub fn apply_change(&mut self, tables: &Tables, change: &TableChange) {
        match change {
            TableChange::Interface(name, ours) if tables.interfaces.contains(name) != *ours => {
                for address in source_addresses(tables, name) {
                    self.adjust_count(address, *ours);
                    if !ours {
                        self.leaving_interfaces
                            .entry(address)
                            .or_default()
                            .insert(name.clone());
                    }
                }
            }
            TableChange::Point(point, set) => {
                let Some((interface, address)) = point.workload() else {
                    return;
                };
                let is_ours = tables.interfaces.contains(interface);
                let sends = point.direction == Direction::Egress;
                if is_ours && sends && tables.points.contains_key(point) != set.is_some() {
                    self.adjust_count(address, set.is_some());
                }
            }
            _ => {}
        }
    }

    fn adjust_count(&mut self, address: IpAddr, more: bool) {
        let owners = self.point_counts.entry(address).or_default();
        *owners = if more {
            *owners + 1
        } else {
            owners.saturating_sub(1)
        };
        if *owners == 0 {
            self.point_counts.remove(&address);
        }
        self.dirty.insert(address);
    }

    /// Sets the addresses that were found in the maps.
    pub fn set_installed(&mut self, installed: BTreeSet<IpAddr>) {
        let local = self.point_counts.keys().copied();
        self.dirty.extend(local.chain(installed.iter().copied()));
        self.installed = installed;
    }

    /// All local addresses; from now on they are in the maps.
    pub fn install_all(&mut self) -> impl Iterator<Item = IpAddr> {
        self.dirty.clear();
        self.installed = self.point_counts.keys().copied().collect();
        self.installed.iter().copied()
    }

    /// The changes of the set with a delta, which from now on are in the maps; `tables` are those after it. Interfaces
    /// with this prefix are always recognized.
    pub fn take_changes(
        &mut self,
        prefix: &str,
        tables: &Tables,
        delta: &Delta,
    ) -> LocalAddressChanges {
        let leaving = core::mem::take(&mut self.leaving_interfaces);
        let arriving = arriving_addresses(prefix, tables, delta);
        let is_unprefixed = |name: &Str| !name.starts_with(prefix);
        let mut changes = LocalAddressChanges::default();
        for address in core::mem::take(&mut self.dirty) {
            if self.point_counts.contains_key(&address) {
                if !self.installed.insert(address) {
                    continue;
                }
                if arriving.contains(&address) {
                    changes.added_after_interface.push(address);
                } else {
                    changes.added.push(address);
                }
            } else if self.installed.remove(&address) {
                let interfaces = leaving.get(&address);
                if interfaces.is_some_and(|names| names.iter().any(is_unprefixed)) {
                    changes.deleted_before_interface.push(address);
                } else {
                    changes.deleted.push(address);
                }
            }
        }
        changes
    }
}

/// The addresses of interfaces without our prefix that are added.
fn arriving_addresses(prefix: &str, tables: &Tables, delta: &Delta) -> BTreeSet<IpAddr> {
    let changes = delta.steps.iter().flat_map(|step| &step.changes);
    let names = changes.filter_map(|change| match change {
        TableChange::Interface(name, true) if !name.starts_with(prefix) => Some(name),
        _ => None,
    });
    names
        .flat_map(|name| source_addresses(tables, name))
        .collect()
}

/// The source addresses allowed on an interface.
fn source_addresses<'t>(tables: &'t Tables, name: &'t Str) -> impl Iterator<Item = IpAddr> + 't {
    let first = Point::of_workload(name.clone(), [0; 4].into(), Direction::BOTH[0]);
    let points = tables.points.range(first..).map(|(point, _)| point);
    let points = points.map_while(move |point| {
        let (interface, address) = point.workload()?;
        (interface == name).then_some((point.direction, address))
    });
    points
        .filter(|(direction, _)| *direction == Direction::Egress)
        .map(|(_, address)| address)
}
