//! All that the maps hold of a projection: as writes, to be compared with a kernel, and as judgements, for people.
//!
//! Promises: what is listed is what all updates together have written, in both halves.
//!
//! Never: changes the projection.

use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_tables::{IdentityId, PolicySetId};

use super::{Projection, Workload};
use crate::class::{ClassWords, FastProtocol, Word};
use crate::map_write::MapWrite;

/// What judges the first packet of a flow at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndJudgement<'a> {
    /// The number of the policy set; 0 if there is none, or no room for it.
    pub set: u32,
    /// The identity of the other end.
    pub identity: IdentityId,
    /// The number of the class; 0 passes everything.
    pub class: u32,
    /// What the class says; `None` passes everything.
    pub content: Option<&'a ClassWords>,
}

impl Projection {
    /// Everything that is in the maps, as writes to empty ones.
    pub fn listing(&self) -> Vec<MapWrite> {
        let mut writes = Vec::new();
        self.classes.list(&mut writes);
        for set in self.sets.values().filter(|set| set.number != 0) {
            writes.push(MapWrite::Default {
                set: set.number,
                classes: set.defaults,
            });
        }
        for ((set, identity), row) in &self.rows {
            let Some(set) = self.sets.get(set) else {
                continue;
            };
            writes.push(MapWrite::Row {
                set: set.number,
                identity: *identity,
                classes: Some([0, 1].map(|half| row[half].unwrap_or(set.defaults[half]))),
            });
        }
        let slots = self.slots.values().filter(|slot| slot.row.number != 0);
        writes.extend(slots.map(|slot| MapWrite::Slot(slot.row.clone())));
        self.networks.list(&mut writes);
        writes
    }

    /// What judges flows from one address to another in the half in force, at egress and at ingress; `None` if one of them
    /// is no workload's.
    pub fn judgements(&self, from: IpAddr, to: IpAddr) -> Option<[EndJudgement<'_>; 2]> {
        let [from, to] = [self.slots.get(&from)?, self.slots.get(&to)?];
        let [from, to] = [from, to].map(|slot| slot.workload.as_ref());
        let (from, to): (&Workload, &Workload) = (from?, to?);
        Some([
            self.judgement(from.sets[0], to.identity),
            self.judgement(to.sets[1], from.identity),
        ])
    }

    pub(super) fn judgement(
        &self,
        set: Option<PolicySetId>,
        identity: IdentityId,
    ) -> EndJudgement<'_> {
        let found = set.and_then(|set| Some((set, self.sets.get(&set)?)));
        let Some((id, set)) = found.filter(|(_, set)| set.number != 0) else {
            return EndJudgement {
                set: 0,
                identity,
                class: 0,
                content: None,
            };
        };
        let row = self
            .rows
            .get(&(id, identity))
            .and_then(|row| row[self.half]);
        let class = row.unwrap_or(set.defaults[self.half]);
        EndJudgement {
            set: set.number,
            identity,
            class,
            content: self.classes.content(class),
        }
    }

    /// What is said of the first packet of a flow from one address to another, at its egress and at its ingress, as the
    /// programs find it; nothing of an end outside of this host. `None` if the programs know neither end, or not one of
    /// them.
    pub fn words(
        &self,
        from: IpAddr,
        to: IpAddr,
        protocol: FastProtocol,
        port: u16,
    ) -> Option<[Option<Word>; 2]> {
        let ends = [from, to].map(|address| match self.slots.get(&address) {
            Some(slot) => slot
                .workload
                .as_ref()
                .map(|workload| (Some(workload.sets), workload.identity)),
            // An address of two workloads is nobody's.
            None if self.points.contains_key(&address) => None,
            None => self
                .networks
                .identity(address, self.half)
                .map(|identity| (None, identity)),
        });
        let [(from, sender), (to, receiver)] = [ends[0]?, ends[1]?];
        from.or(to)?;
        let egress = from.map(|sets| self.word(sets[0], receiver, protocol, port));
        let ingress = to.map(|sets| self.word(sets[1], sender, protocol, port));
        Some([egress, ingress])
    }

    fn word(
        &self,
        set: Option<PolicySetId>,
        identity: IdentityId,
        protocol: FastProtocol,
        port: u16,
    ) -> Word {
        let content = self.judgement(set, identity).content;
        content.map_or(Word::Pass, |content| content[protocol as usize].word(port))
    }
}
