//! The set of the local endpoints' addresses; packets from other interfaces may not have them as source.
//!
//! The set follows from the points: an address is an own address while an egress point on one of our
//! interfaces has it. An address that is own before and after a transaction stays in the set throughout; a
//! new one is added when everything else tightens, and an old one is deleted when it loosens, so a packet
//! that is denied for one reason before and for another afterwards is never let through.
//!
//! The set is looked up after the interface. A packet of an interface that is being added or removed must
//! not be taken for another interface's in between: so an address of such an interface is added in a
//! separate step after it, or deleted in one before it. Interfaces with our prefix are always recognized,
//! and need no such step.

use crate::names;
use crate::{Config, Element, ElementKey, Op, TxStep};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family, Str};
use palisade_tables::{Delta, Phase, Point, TableChange, Tables};

/// The own addresses according to the tables, and those in the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnAddresses {
    /// The number of points on our interfaces that have an address.
    point_counts: BTreeMap<IpAddr, usize>,
    /// The addresses in the kernel.
    installed: BTreeSet<IpAddr>,
    /// The addresses for which the two may differ.
    dirty: BTreeSet<IpAddr>,
    /// The addresses of interfaces that are removed.
    leaving_interfaces: BTreeMap<IpAddr, BTreeSet<Str>>,
}

impl OwnAddresses {
    /// Applies a change; called before the tables apply it.
    pub(crate) fn apply_change(&mut self, tables: &Tables, change: &TableChange) {
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
        *owners = match more {
            true => *owners + 1,
            false => owners.saturating_sub(1),
        };
        if *owners == 0 {
            self.point_counts.remove(&address);
        }
        self.dirty.insert(address);
    }

    /// Sets the addresses that were found in the kernel.
    pub(crate) fn set_installed(&mut self, there: BTreeSet<IpAddr>) {
        let own = self.point_counts.keys().copied();
        self.dirty.extend(own.chain(there.iter().copied()));
        self.installed = there;
    }

    /// The elements of all own addresses; from now on they are in the kernel.
    pub(crate) fn install_all(&mut self) -> Vec<(&'static str, ElementKey)> {
        self.dirty.clear();
        self.installed = self.point_counts.keys().copied().collect();
        self.installed
            .iter()
            .map(|address| own_element(*address))
            .collect()
    }

    /// Adds the changes of the set to the steps of a delta; `tables` are those after it.
    pub(crate) fn plan(
        &mut self,
        config: &Config,
        tables: &Tables,
        delta: &Delta,
        steps: &mut Vec<TxStep>,
    ) {
        let prefix = &*config.interface_prefix;
        let leaving = core::mem::take(&mut self.leaving_interfaces);
        let arriving = arriving_addresses(prefix, tables, delta);
        let mut after_interface = Vec::new();
        let mut additions = Vec::new();
        let mut before_interface = Vec::new();
        let mut deletions = Vec::new();
        for address in core::mem::take(&mut self.dirty) {
            let (set, key) = own_element(address);
            let set = set.into();
            match self.point_counts.contains_key(&address) {
                true if self.installed.insert(address) => {
                    let element = Element::default();
                    let add = Op::AddElement { set, key, element };
                    match arriving.contains(&address) {
                        true => after_interface.push(add),
                        false => additions.push(add),
                    }
                }
                false if self.installed.remove(&address) => {
                    let delete = Op::DeleteElement { set, key };
                    let open = |name: &Str| !name.starts_with(prefix);
                    let left = leaving.get(&address);
                    match left.is_some_and(|names| names.iter().any(open)) {
                        true => before_interface.push(delete),
                        false => deletions.push(delete),
                    }
                }
                _ => {}
            }
        }
        if !deletions.is_empty() {
            match steps.last_mut() {
                Some(last)
                    if !last
                        .ops
                        .iter()
                        .any(|op| adds_unprefixed_interface(op, prefix)) =>
                {
                    last.ops.extend(deletions);
                }
                _ => steps.push(grace_step(Phase::Delete, deletions)),
            }
        }
        if !additions.is_empty() {
            match steps.iter().rposition(|step| step.phase < Phase::Revoke) {
                Some(at) => steps[at].ops.extend(additions),
                None => steps.insert(0, grace_step(Phase::Tighten, additions)),
            }
        }
        let step_index = |steps: &[TxStep], matches_op: fn(&Op, &str) -> bool| {
            let found = |step: &TxStep| step.ops.iter().any(|op| matches_op(op, prefix));
            steps.iter().position(found)
        };
        if !before_interface.is_empty() {
            match step_index(steps, removes_unprefixed_interface) {
                Some(at) => steps.insert(at, grace_step(steps[at].phase, before_interface)),
                None => steps.push(grace_step(Phase::Delete, before_interface)),
            }
        }
        if !after_interface.is_empty() {
            match step_index(steps, adds_unprefixed_interface) {
                Some(at) => steps.insert(at + 1, grace_step(steps[at].phase, after_interface)),
                None => steps.insert(0, grace_step(Phase::Tighten, after_interface)),
            }
        }
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

fn grace_step(phase: Phase, ops: Vec<Op>) -> TxStep {
    TxStep {
        phase,
        retiring_counters: Vec::new(),
        ops,
        needs_grace_period: true,
    }
}

/// Whether the operation adds an interface without our prefix.
fn adds_unprefixed_interface(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::AddElement { set, key, .. } if **set == *names::IF_OURS && is_unprefixed(key, prefix))
}

/// Whether the operation removes an interface without our prefix.
fn removes_unprefixed_interface(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::DeleteElement { set, key } if **set == *names::IF_OURS && is_unprefixed(key, prefix))
}

fn is_unprefixed(key: &ElementKey, prefix: &str) -> bool {
    matches!(key, ElementKey::Exact(name) if !name.starts_with(prefix.as_bytes()))
}

fn own_element(address: IpAddr) -> (&'static str, ElementKey) {
    let key = ElementKey::Exact(names::address_bytes(address));
    (names::own_addresses_set(Family::of(address)), key)
}
