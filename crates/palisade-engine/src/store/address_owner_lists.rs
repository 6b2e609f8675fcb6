//! The lists of the address owners of each namespace and of each signature, linked through their records.
//!
//! An owner joins and leaves a list in a few steps, and the lists take no memory of their own.
//! Nothing here knows what a signature is.

use super::address_owner_store::{AddressOwnerRecord, AddressOwnerStore};
use super::numbers::{AddressOwnerSlot, NONE, SignatureNumber};

#[derive(Clone, Copy, Debug)]
pub(super) struct ListLinks {
    pub(super) previous: AddressOwnerSlot,
    pub(super) next: AddressOwnerSlot,
}

pub(super) const UNLINKED: ListLinks = ListLinks {
    previous: AddressOwnerSlot::NONE,
    next: AddressOwnerSlot::NONE,
};

impl AddressOwnerStore {
    /// The namespaces that owners are in, in no particular order.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> {
        self.namespaces.keys().copied()
    }

    /// The endpoints and network sets of a namespace, removed or not.
    pub(crate) fn in_namespace(&self, namespace: u32) -> impl Iterator<Item = AddressOwnerSlot> {
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
    pub(crate) fn signature(&self, slot: AddressOwnerSlot) -> SignatureNumber {
        self.records
            .get(slot.0)
            .map_or(SignatureNumber::NONE, |r| r.signature)
    }

    /// Makes an owner the first member of a signature.
    pub(crate) fn join_signature(
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
    pub(crate) fn leave_signature(&mut self, slot: AddressOwnerSlot) -> Option<AddressOwnerSlot> {
        self.records.get_mut(slot.0)?.signature = SignatureNumber::NONE;
        self.unlink(slot, |record| &mut record.members)
    }

    /// The members of a signature, starting at the first.
    pub(crate) fn signature_members(
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
