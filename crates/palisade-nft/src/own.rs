//! The addresses that endpoints here have, which nothing may send from that comes by another interface.
//!
//! They follow from the points: an address is own while a point for what is sent from it lies on an
//! interface that is ours. One that is own before and after a transaction stays throughout; a new one
//! comes when everything else tightens, and one that is own no more goes when it loosens, so what is
//! denied before for one reason and afterwards for another is never let through.
//!
//! They are looked up after the interface is. What comes by an interface that becomes ours, or ceases
//! to be, must not be taken for another's in between: so where such an interface is among the changes,
//! a new address comes in a step of its own after it, and one that goes, before it. With our prefix no
//! interface is ever taken for another's, and no such step is needed.

use crate::names;
use crate::{Config, Element, Key, Op, TxStep};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family};
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
}

impl Own {
    /// Takes in a change, before the tables do.
    pub(crate) fn change(&mut self, tables: &Tables, change: &Change) {
        match change {
            Change::Interface(name, ours) if tables.interfaces.contains(name) != *ours => {
                let first = Point {
                    interface: name.clone(),
                    address: [0; 4].into(),
                    direction: Direction::BOTH[0],
                };
                let points = tables.points.range(first..).map(|(point, _)| point);
                for point in points.take_while(|point| point.interface == *name) {
                    self.count(point, *ours);
                }
            }
            Change::Point(point, set) => {
                let is_ours = tables.interfaces.contains(&point.interface);
                if is_ours && tables.points.contains_key(point) != set.is_some() {
                    self.count(point, set.is_some());
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, point: &Point, more: bool) {
        if point.direction != Direction::Egress {
            return;
        }
        let owners = self.owners.entry(point.address).or_default();
        *owners = match more {
            true => *owners + 1,
            false => owners.saturating_sub(1),
        };
        if *owners == 0 {
            self.owners.remove(&point.address);
        }
        self.touched.insert(point.address);
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

    /// Adds what changes in them to the steps of a delta.
    pub(crate) fn plan(&mut self, config: &Config, delta: &Delta, steps: &mut Vec<TxStep>) {
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for address in core::mem::take(&mut self.touched) {
            let (set, key) = place(address);
            let set = set.into();
            match self.owners.contains_key(&address) {
                true if self.there.insert(address) => {
                    let element = Element::default();
                    new.push(Op::AddElement { set, key, element });
                }
                false if self.there.remove(&address) => gone.push(Op::DeleteElement { set, key }),
                _ => {}
            }
        }
        let changes = || delta.steps.iter().flat_map(|step| &step.changes);
        let becomes = |to| {
            changes().any(|change| match change {
                Change::Interface(name, ours) => {
                    *ours == to && !name.starts_with(&*config.interface_prefix)
                }
                _ => false,
            })
        };
        let step = |phase, ops| TxStep {
            phase,
            harvest: Vec::new(),
            ops,
            waits: true,
        };
        if !new.is_empty() {
            let before = steps.iter().rposition(|step| step.phase < Phase::Revoke);
            let announced = steps
                .iter()
                .rposition(|step| step.ops.iter().any(announces));
            match announced.filter(|_| becomes(true)) {
                Some(at) => steps.insert(at + 1, step(steps[at].phase, new)),
                None => match before {
                    Some(at) => steps[at].ops.extend(new),
                    None => steps.insert(0, step(Phase::Tighten, new)),
                },
            }
        }
        if !gone.is_empty() {
            let retracted = steps.iter().position(|step| step.ops.iter().any(retracts));
            match (retracted.filter(|_| becomes(false)), steps.last_mut()) {
                (Some(at), _) => steps.insert(at, step(steps[at].phase, gone)),
                (None, Some(last)) if !(becomes(true) && last.ops.iter().any(announces)) => {
                    last.ops.extend(gone);
                }
                (None, _) => steps.push(step(Phase::Delete, gone)),
            }
        }
    }
}

/// Whether this makes an interface ours.
fn announces(op: &Op) -> bool {
    matches!(op, Op::AddElement { set, .. } if **set == *names::IF_OURS)
}

/// Whether this makes an interface ours no more.
fn retracts(op: &Op) -> bool {
    matches!(op, Op::DeleteElement { set, .. } if **set == *names::IF_OURS)
}

fn place(address: IpAddr) -> (&'static str, Key) {
    let key = Key::Exact(names::address(address));
    (names::own(Family::of(address)), key)
}
