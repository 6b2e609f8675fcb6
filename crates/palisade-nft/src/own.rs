//! The addresses that endpoints here have, which nothing may send from that comes by another interface.
//!
//! They follow from the points: an address is own while a point for what is sent from it lies on an
//! interface that is ours. One that is own before and after a transaction stays throughout; a new one
//! comes when everything else tightens, and one that is own no more goes when it loosens, so what is
//! denied before for one reason and afterwards for another is never let through.
//!
//! They are looked up after the interface is. What comes by an interface that becomes ours, or ceases
//! to be, must not be taken for another's in between: so an address of such an interface comes in a step
//! of its own after it, or goes before it. With our prefix no interface is ever taken for another's, and
//! no such step is needed.

use crate::names;
use crate::{Config, Element, Key, Op, TxStep};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family, Str};
use palisade_tables::{Change, Delta, Phase, Point, Tables};

/// What follows from the tables, and what the kernel has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// How many points of interfaces that are ours make an address own.
    owners: BTreeMap<IpAddr, usize>,
    /// What the kernel has.
    there: BTreeSet<IpAddr>,
    /// Where the two may differ.
    touched: BTreeSet<IpAddr>,
    /// The addresses of interfaces that ceased to be ours.
    leaving: BTreeMap<IpAddr, BTreeSet<Str>>,
}

impl Own {
    /// Takes in a change, before the tables do.
    pub(crate) fn change(&mut self, tables: &Tables, change: &Change) {
        match change {
            Change::Interface(name, ours) if tables.interfaces.contains(name) != *ours => {
                for address in addresses(tables, name) {
                    self.count(address, *ours);
                    if !ours {
                        self.leaving
                            .entry(address)
                            .or_default()
                            .insert(name.clone());
                    }
                }
            }
            Change::Point(point, set) => {
                let is_ours = tables.interfaces.contains(&point.interface);
                let sends = point.direction == Direction::Egress;
                if is_ours && sends && tables.points.contains_key(point) != set.is_some() {
                    self.count(point.address, set.is_some());
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, address: IpAddr, more: bool) {
        let owners = self.owners.entry(address).or_default();
        *owners = match more {
            true => *owners + 1,
            false => owners.saturating_sub(1),
        };
        if *owners == 0 {
            self.owners.remove(&address);
        }
        self.touched.insert(address);
    }

    /// What the kernel turned out to have.
    pub(crate) fn holds(&mut self, there: BTreeSet<IpAddr>) {
        let own = self.owners.keys().copied();
        self.touched.extend(own.chain(there.iter().copied()));
        self.there = there;
    }

    /// The elements of all, from now on in the kernel.
    pub(crate) fn elements(&mut self) -> Vec<(&'static str, Key)> {
        self.touched.clear();
        self.there = self.owners.keys().copied().collect();
        self.there.iter().map(|address| place(*address)).collect()
    }

    /// Adds what changes in them to the steps of a delta, whose tables are those after it.
    pub(crate) fn plan(
        &mut self,
        config: &Config,
        tables: &Tables,
        delta: &Delta,
        steps: &mut Vec<TxStep>,
    ) {
        let prefix = &*config.interface_prefix;
        let leaving = core::mem::take(&mut self.leaving);
        let arriving = arriving(prefix, tables, delta);
        let mut late = Vec::new();
        let mut new = Vec::new();
        let mut early = Vec::new();
        let mut gone = Vec::new();
        for address in core::mem::take(&mut self.touched) {
            let (set, key) = place(address);
            let set = set.into();
            match self.owners.contains_key(&address) {
                true if self.there.insert(address) => {
                    let element = Element::default();
                    let add = Op::AddElement { set, key, element };
                    match arriving.contains(&address) {
                        true => late.push(add),
                        false => new.push(add),
                    }
                }
                false if self.there.remove(&address) => {
                    let delete = Op::DeleteElement { set, key };
                    let open = |name: &Str| !name.starts_with(prefix);
                    let left = leaving.get(&address);
                    match left.is_some_and(|names| names.iter().any(open)) {
                        true => early.push(delete),
                        false => gone.push(delete),
                    }
                }
                _ => {}
            }
        }
        if !gone.is_empty() {
            match steps.last_mut() {
                Some(last) if !last.ops.iter().any(|op| announces(op, prefix)) => {
                    last.ops.extend(gone);
                }
                _ => steps.push(step(Phase::Delete, gone)),
            }
        }
        if !new.is_empty() {
            match steps.iter().rposition(|step| step.phase < Phase::Revoke) {
                Some(at) => steps[at].ops.extend(new),
                None => steps.insert(0, step(Phase::Tighten, new)),
            }
        }
        let place_of = |steps: &[TxStep], tells: fn(&Op, &str) -> bool| {
            let found = |step: &TxStep| step.ops.iter().any(|op| tells(op, prefix));
            steps.iter().position(found)
        };
        if !early.is_empty() {
            match place_of(steps, retracts) {
                Some(at) => steps.insert(at, step(steps[at].phase, early)),
                None => steps.push(step(Phase::Delete, early)),
            }
        }
        if !late.is_empty() {
            match place_of(steps, announces) {
                Some(at) => steps.insert(at + 1, step(steps[at].phase, late)),
                None => steps.insert(0, step(Phase::Tighten, late)),
            }
        }
    }
}

/// The addresses of interfaces without our prefix that become ours.
fn arriving(prefix: &str, tables: &Tables, delta: &Delta) -> BTreeSet<IpAddr> {
    let changes = delta.steps.iter().flat_map(|step| &step.changes);
    let names = changes.filter_map(|change| match change {
        Change::Interface(name, true) if !name.starts_with(prefix) => Some(name),
        _ => None,
    });
    names.flat_map(|name| addresses(tables, name)).collect()
}

/// What may be sent from an interface.
fn addresses<'t>(tables: &'t Tables, name: &'t Str) -> impl Iterator<Item = IpAddr> + 't {
    let first = Point {
        interface: name.clone(),
        address: [0; 4].into(),
        direction: Direction::BOTH[0],
    };
    let points = tables.points.range(first..).map(|(point, _)| point);
    let points = points.take_while(move |point| point.interface == *name);
    let sent = points.filter(|point| point.direction == Direction::Egress);
    sent.map(|point| point.address)
}

fn step(phase: Phase, ops: Vec<Op>) -> TxStep {
    TxStep {
        phase,
        harvest: Vec::new(),
        ops,
        waits: true,
    }
}

/// Whether this makes an interface without our prefix ours.
fn announces(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::AddElement { set, key, .. } if **set == *names::IF_OURS && is_other(key, prefix))
}

/// Whether this makes an interface without our prefix ours no more.
fn retracts(op: &Op, prefix: &str) -> bool {
    matches!(op, Op::DeleteElement { set, key } if **set == *names::IF_OURS && is_other(key, prefix))
}

fn is_other(key: &Key, prefix: &str) -> bool {
    matches!(key, Key::Exact(name) if !name.starts_with(prefix.as_bytes()))
}

fn place(address: IpAddr) -> (&'static str, Key) {
    let key = Key::Exact(names::address(address));
    (names::own(Family::of(address)), key)
}
