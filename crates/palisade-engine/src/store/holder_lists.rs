//! The lists of the holders of each namespace and of each signature, linked through their records.
//!
//! A holder joins and leaves a list in a few steps, and the lists take no memory of their own.
//! Nothing here knows what a signature is.

use super::holder_store::{HolderRecord, HolderSlot, HolderStore, NONE};

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
        self.follow(first.unwrap_or(NONE), |record| record.neighbours)
    }

    pub(super) fn join_namespace(&mut self, slot: HolderSlot, namespace: u32) {
        if namespace != NONE {
            let first = self.namespaces.insert(namespace, slot).unwrap_or(NONE);
            self.link(slot, first, |record| &mut record.neighbours);
        }
    }

    pub(super) fn leave_namespace(&mut self, slot: HolderSlot, namespace: u32) {
        match self.unlink(slot, |record| &mut record.neighbours) {
            Some(NONE) => drop(self.namespaces.remove(&namespace)),
            Some(next) => drop(self.namespaces.insert(namespace, next)),
            None => {}
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
        }
        self.link(slot, first, |record| &mut record.members);
    }

    /// Removes a holder from the members of its signature. Returns the new first member if it was
    /// the first.
    pub(crate) fn leave_signature(&mut self, slot: HolderSlot) -> Option<HolderSlot> {
        self.records.get_mut(slot)?.signature = NONE;
        self.unlink(slot, |record| &mut record.members)
    }

    /// The members of a signature, starting at the first.
    pub(crate) fn signature_members(&self, first: HolderSlot) -> impl Iterator<Item = HolderSlot> {
        self.follow(first, |record| record.members)
    }

    fn follow(
        &self,
        first: HolderSlot,
        links: fn(&HolderRecord) -> ListLinks,
    ) -> impl Iterator<Item = HolderSlot> {
        core::iter::successors((first != NONE).then_some(first), move |slot| {
            let next = links(self.records.get(*slot)?).next;
            (next != NONE).then_some(next)
        })
    }

    /// Puts a holder before the first of a list.
    fn link(
        &mut self,
        slot: HolderSlot,
        first: HolderSlot,
        links: fn(&mut HolderRecord) -> &mut ListLinks,
    ) {
        if let Some(record) = self.records.get_mut(slot) {
            *links(record) = ListLinks {
                previous: NONE,
                next: first,
            };
        }
        if let Some(record) = self.records.get_mut(first) {
            links(record).previous = slot;
        }
    }

    /// Takes a holder out of its list. Returns the new first one if it was the first.
    fn unlink(
        &mut self,
        slot: HolderSlot,
        links: fn(&mut HolderRecord) -> &mut ListLinks,
    ) -> Option<HolderSlot> {
        let own = links(self.records.get_mut(slot)?);
        let ListLinks { previous, next } = core::mem::replace(own, UNLINKED);
        if let Some(record) = self.records.get_mut(next) {
            links(record).previous = previous;
        }
        match self.records.get_mut(previous) {
            Some(record) => {
                links(record).next = next;
                None
            }
            None => Some(next),
        }
    }
}
