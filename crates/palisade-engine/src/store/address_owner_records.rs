//! The records of address owners, and the lists of those of each namespace and of each signature, linked through them.
//!
//! An owner joins and leaves a list in a few steps, and the lists take no memory of their own.
//! Nothing here knows what a signature is.

use super::chunked_vec::ChunkedVec;
use super::numbers::{AddressOwnerSlot, NONE, SignatureNumber};
use super::pool::HashMap;
use alloc::boxed::Box;

#[derive(Clone, Copy, Debug)]
pub(super) struct ListLinks {
    pub(super) previous: AddressOwnerSlot,
    pub(super) next: AddressOwnerSlot,
}

pub(super) const UNLINKED: ListLinks = ListLinks {
    previous: AddressOwnerSlot::NONE,
    next: AddressOwnerSlot::NONE,
};

/// An owner as the store keeps it.
#[derive(Debug)]
pub(super) struct AddressOwnerRecord {
    pub(super) encoded: Box<[u8]>,
    pub(super) namespace: u32,
    pub(super) keys: u32,
    /// With the mark of a removed owner while it waits to be freed.
    pub(super) shared: u32,
    pub(super) signature: SignatureNumber,
    /// The neighbours in the list of its signature.
    pub(super) members: ListLinks,
    /// The neighbours in the list of its namespace.
    pub(super) neighbours: ListLinks,
}

/// All records.
#[derive(Debug, Default)]
pub(super) struct AddressOwnerRecords {
    records: ChunkedVec<AddressOwnerRecord>,
    /// The first owner of each namespace.
    namespaces: HashMap<u32, AddressOwnerSlot>,
}

impl AddressOwnerRecords {
    pub(super) fn get(&self, slot: AddressOwnerSlot) -> Option<&AddressOwnerRecord> {
        self.records.get(slot.0)
    }

    pub(super) fn get_mut(&mut self, slot: AddressOwnerSlot) -> Option<&mut AddressOwnerRecord> {
        self.records.get_mut(slot.0)
    }

    /// Adds a record under a new slot.
    pub(super) fn push(&mut self, record: AddressOwnerRecord) -> AddressOwnerSlot {
        AddressOwnerSlot(self.records.push(record))
    }

    /// Every record with its slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (AddressOwnerSlot, &AddressOwnerRecord)> {
        let all = self.records.iter();
        all.map(|(slot, record)| (AddressOwnerSlot(slot), record))
    }

    /// The namespaces that owners are in, in no particular order.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = u32> {
        self.namespaces.keys().copied()
    }

    /// The endpoints and network sets of a namespace, removed or not.
    pub(super) fn in_namespace(&self, namespace: u32) -> impl Iterator<Item = AddressOwnerSlot> {
        let first = self.namespaces.get(&namespace).copied();
        self.follow(first.unwrap_or(AddressOwnerSlot::NONE), |record| {
            record.neighbours
        })
    }

    pub(super) fn join_namespace(&mut self, slot: AddressOwnerSlot, namespace: u32) {
        if namespace != NONE {
            let first = self
                .namespaces
                .insert(namespace, slot)
                .unwrap_or(AddressOwnerSlot::NONE);
            self.link(slot, first, |record| &mut record.neighbours);
        }
    }

    pub(super) fn leave_namespace(&mut self, slot: AddressOwnerSlot, namespace: u32) {
        match self.unlink(slot, |record| &mut record.neighbours) {
            Some(AddressOwnerSlot::NONE) => drop(self.namespaces.remove(&namespace)),
            Some(next) => drop(self.namespaces.insert(namespace, next)),
            None => {}
        }
    }

    /// The signature of the owner in a slot.
    pub(super) fn signature(&self, slot: AddressOwnerSlot) -> SignatureNumber {
        self.records
            .get(slot.0)
            .map_or(SignatureNumber::NONE, |r| r.signature)
    }

    /// Makes an owner the first member of a signature.
    pub(super) fn join_signature(
        &mut self,
        slot: AddressOwnerSlot,
        signature: SignatureNumber,
        first: AddressOwnerSlot,
    ) {
        if let Some(record) = self.records.get_mut(slot.0) {
            record.signature = signature;
        }
        self.link(slot, first, |record| &mut record.members);
    }

    /// Removes an owner from the members of its signature. Returns the new first member if it was
    /// the first.
    pub(super) fn leave_signature(&mut self, slot: AddressOwnerSlot) -> Option<AddressOwnerSlot> {
        self.records.get_mut(slot.0)?.signature = SignatureNumber::NONE;
        self.unlink(slot, |record| &mut record.members)
    }

    /// The members of a signature, starting at the first.
    pub(super) fn signature_members(
        &self,
        first: AddressOwnerSlot,
    ) -> impl Iterator<Item = AddressOwnerSlot> {
        self.follow(first, |record| record.members)
    }

    fn follow(
        &self,
        first: AddressOwnerSlot,
        links: fn(&AddressOwnerRecord) -> ListLinks,
    ) -> impl Iterator<Item = AddressOwnerSlot> {
        core::iter::successors(
            (first != AddressOwnerSlot::NONE).then_some(first),
            move |slot| {
                let next = links(self.records.get(slot.0)?).next;
                (next != AddressOwnerSlot::NONE).then_some(next)
            },
        )
    }

    /// Puts an owner before the first of a list.
    fn link(
        &mut self,
        slot: AddressOwnerSlot,
        first: AddressOwnerSlot,
        links: fn(&mut AddressOwnerRecord) -> &mut ListLinks,
    ) {
        if let Some(record) = self.records.get_mut(slot.0) {
            *links(record) = ListLinks {
                previous: AddressOwnerSlot::NONE,
                next: first,
            };
        }
        if let Some(record) = self.records.get_mut(first.0) {
            links(record).previous = slot;
        }
    }

    /// Takes an owner out of its list. Returns the new first one if it was the first.
    fn unlink(
        &mut self,
        slot: AddressOwnerSlot,
        links: fn(&mut AddressOwnerRecord) -> &mut ListLinks,
    ) -> Option<AddressOwnerSlot> {
        let own = links(self.records.get_mut(slot.0)?);
        let ListLinks { previous, next } = core::mem::replace(own, UNLINKED);
        if let Some(record) = self.records.get_mut(next.0) {
            links(record).previous = previous;
        }
        match self.records.get_mut(previous.0) {
            Some(record) => {
                links(record).next = next;
                None
            }
            None => Some(next),
        }
    }
}
