//! The lists of the holders of each namespace and of each signature, linked through their records.
//!
//! A holder joins and leaves a list in a few steps, and the lists take no memory of their own.
//! Nothing here knows what a signature is.

use super::holder_store::{HolderSlot, HolderStore, NONE};

#[derive(Clone, Copy, Debug)]
pub(super) struct ListLinks {
    pub(super) previous: HolderSlot,
    pub(super) next: HolderSlot,
}

pub(super) const UNLINKED: ListLinks = ListLinks {
    previous: NONE,
    next: NONE,
};

impl HolderStore {
    /// The namespaces that holders are in, in no particular order.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> {
        self.namespaces.keys().copied()
    }

    /// The endpoints and network sets of a namespace, removed or not.
    pub(crate) fn in_namespace(&self, namespace: u32) -> impl Iterator<Item = HolderSlot> {
        let first = self.namespaces.get(&namespace).copied();
        core::iter::successors(first, |slot| {
            let next = self.records.get(*slot)?.neighbours.next;
            (next != NONE).then_some(next)
        })
    }

    pub(super) fn join_namespace(&mut self, slot: HolderSlot, namespace: u32) {
        if namespace == NONE {
            return;
        }
        let first = self.namespaces.insert(namespace, slot).unwrap_or(NONE);
        if let Some(record) = self.records.get_mut(slot) {
            record.neighbours.next = first;
        }
        if let Some(record) = self.records.get_mut(first) {
            record.neighbours.previous = slot;
        }
    }

    pub(super) fn leave_namespace(&mut self, slot: HolderSlot, namespace: u32) {
        let Some(record) = self.records.get_mut(slot) else {
            return;
        };
        let ListLinks { previous, next } = core::mem::replace(&mut record.neighbours, UNLINKED);
        if let Some(record) = self.records.get_mut(previous) {
            record.neighbours.next = next;
        } else if next != NONE {
            self.namespaces.insert(namespace, next);
        } else {
            self.namespaces.remove(&namespace);
        }
        if let Some(record) = self.records.get_mut(next) {
            record.neighbours.previous = previous;
        }
    }

    /// The signature of the holder in a slot.
    pub(crate) fn signature(&self, slot: HolderSlot) -> u32 {
        self.records.get(slot).map_or(NONE, |r| r.signature)
    }

    /// Makes a holder the first member of a signature.
    pub(crate) fn join_signature(&mut self, slot: HolderSlot, signature: u32, first: HolderSlot) {
        if let Some(record) = self.records.get_mut(slot) {
            record.signature = signature;
            record.members = ListLinks {
                previous: NONE,
                next: first,
            };
        }
        if let Some(record) = self.records.get_mut(first) {
            record.members.previous = slot;
        }
    }

    /// Removes a holder from the members of its signature. Returns the new first member if it was
    /// the first.
    pub(crate) fn leave_signature(&mut self, slot: HolderSlot) -> Option<HolderSlot> {
        let record = self.records.get_mut(slot)?;
        record.signature = NONE;
        let ListLinks { previous, next } = core::mem::replace(&mut record.members, UNLINKED);
        if let Some(record) = self.records.get_mut(next) {
            record.members.previous = previous;
        }
        match self.records.get_mut(previous) {
            Some(record) => {
                record.members.next = next;
                None
            }
            None => Some(next),
        }
    }

    /// The members of a signature, starting at the first.
    pub(crate) fn signature_members(&self, first: HolderSlot) -> impl Iterator<Item = HolderSlot> {
        core::iter::successors((first != NONE).then_some(first), |slot| {
            let next = self.records.get(*slot)?.members.next;
            (next != NONE).then_some(next)
        })
    }
}
