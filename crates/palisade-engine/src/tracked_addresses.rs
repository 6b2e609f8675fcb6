//! Tracked addresses: those that endpoints or nodes hold, with their claimants and identities.
//!
//! Changes of claims are queued and applied by the next recomputation, in the order of addresses,
//! so that each address is looked up and stored once. Nearly every address has one claimant and no
//! node: it takes two numbers. All others are in a separate map. Nothing here interprets
//! identities.

use crate::store::AddressOwnerSlot;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use palisade_model::Prefix;
use palisade_tables::IdentityId;

/// An address that something holds: its only claimant or a mark, and its identity.
#[derive(Clone, Copy, Debug)]
struct TrackedAddress {
    claimant: AddressOwnerSlot,
    identity: IdentityId,
}

/// An address with several claimants, or with nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressClaims {
    pub(crate) claimants: Vec<AddressOwnerSlot>,
    pub(crate) nodes: Vec<AddressOwnerSlot>,
    /// The claimant that owns it, as of the last recomputation.
    owner: Option<AddressOwnerSlot>,
}

/// What may change the identity of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressEvent {
    /// An endpoint claims the address, or no longer does.
    Claim(AddressOwnerSlot, bool),
    /// A node has the address, or no longer does.
    Node(AddressOwnerSlot, bool),
    /// The owner of the address, or a claimant, changed in some way.
    OwnerChange,
}

/// The claims on an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressOwnership<'a> {
    /// Nothing holds it any more.
    Unheld,
    /// One endpoint.
    Single(AddressOwnerSlot),
    Multiple(&'a AddressClaims),
}

/// An address with queued events, which are applied to its claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedAddress {
    pub(crate) address: IpAddr,
    /// As in [`TrackedAddress`]; [`AddressOwnerSlot::NONE`] where nothing holds it.
    claimant: AddressOwnerSlot,
    /// The owner and the identity, as of the last recomputation.
    pub(crate) previous_owner: Option<AddressOwnerSlot>,
    pub(crate) previous_identity: IdentityId,
}

/// All tracked addresses.
#[derive(Debug, Default)]
pub(crate) struct TrackedAddresses {
    v4: BTreeMap<Ipv4Addr, TrackedAddress>,
    v6: BTreeMap<Ipv6Addr, TrackedAddress>,
    multiple: BTreeMap<IpAddr, AddressClaims>,
    queue: Vec<(IpAddr, AddressEvent)>,
}

impl TrackedAddresses {
    fn get(&self, address: IpAddr) -> Option<&TrackedAddress> {
        match address {
            IpAddr::V4(address) => self.v4.get(&address),
            IpAddr::V6(address) => self.v6.get(&address),
        }
    }

    /// The claimant that owns an address, as of the last recomputation.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<AddressOwnerSlot> {
        match self.get(address)?.claimant {
            AddressOwnerSlot::MULTIPLE => self.multiple.get(&address)?.owner,
            slot => Some(slot),
        }
    }

    /// The nodes that have an address.
    pub(crate) fn nodes(&self, address: IpAddr) -> &[AddressOwnerSlot] {
        let claims = self.multiple.get(&address);
        claims.map_or(&[], |claims| &claims.nodes)
    }

    /// Whether an address was held at the last recomputation.
    pub(crate) fn is_tracked(&self, address: IpAddr) -> bool {
        self.get(address).is_some()
    }

    /// The addresses that several endpoints claim.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[AddressOwnerSlot])> {
        let many = self.multiple.iter().filter(|(_, c)| c.claimants.len() > 1);
        many.map(|(address, claims)| (*address, &*claims.claimants))
    }

    /// Queues an event for the next recomputation.
    pub(crate) fn queue(&mut self, address: IpAddr, event: AddressEvent) {
        self.queue.push((address, event));
    }

    /// Queues the tracked addresses inside a network.
    pub(crate) fn queue_within(&mut self, net: Prefix) {
        let event = AddressEvent::OwnerChange;
        match (net.address(), net.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let inside = self.v4.range(first..=last);
                self.queue
                    .extend(inside.map(|(a, _)| (IpAddr::V4(*a), event)));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let inside = self.v6.range(first..=last);
                self.queue
                    .extend(inside.map(|(a, _)| (IpAddr::V6(*a), event)));
            }
            _ => {}
        }
    }

    /// Whether events are queued.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Applies the queued events. Returns the addresses that they concern, in order, without those
    /// that nothing held before and nothing holds now.
    pub(crate) fn take_changed(&mut self) -> Vec<ChangedAddress> {
        let mut queue = core::mem::take(&mut self.queue);
        // Stable: the events of an address stay in order.
        queue.sort_by_key(|(address, _)| *address);
        let mut changed = Vec::with_capacity(queue.len());
        for events in queue.chunk_by(|(a, _), (b, _)| a == b) {
            let address = events[0].0;
            let tracked = self.get(address).copied();
            let previous_owner = self.owner(address);
            let mut claimant = tracked.map_or(AddressOwnerSlot::NONE, |tracked| tracked.claimant);
            for (_, event) in events {
                claimant = match *event {
                    AddressEvent::OwnerChange => continue,
                    AddressEvent::Claim(slot, true)
                        if claimant == AddressOwnerSlot::NONE || claimant == slot =>
                    {
                        slot
                    }
                    AddressEvent::Claim(slot, false) if claimant == slot => AddressOwnerSlot::NONE,
                    event => self.apply_to_claims(address, claimant, previous_owner, event),
                };
            }
            if claimant == AddressOwnerSlot::NONE && tracked.is_none() {
                continue;
            }
            changed.push(ChangedAddress {
                address,
                claimant,
                previous_owner,
                previous_identity: tracked.map_or(IdentityId::UNKNOWN, |tracked| tracked.identity),
            });
        }
        changed
    }

    /// Applies an event to an address in the separate map, where it is put if it is not there.
    /// Returns its claimant or mark, taken out of the map if it needs no longer be there.
    fn apply_to_claims(
        &mut self,
        address: IpAddr,
        claimant: AddressOwnerSlot,
        owner: Option<AddressOwnerSlot>,
        event: AddressEvent,
    ) -> AddressOwnerSlot {
        let claims = self.multiple.entry(address).or_default();
        if claimant != AddressOwnerSlot::MULTIPLE {
            claims
                .claimants
                .extend((claimant != AddressOwnerSlot::NONE).then_some(claimant));
            claims.owner = owner;
        }
        match event {
            AddressEvent::Claim(slot, present) => set_member(&mut claims.claimants, slot, present),
            AddressEvent::Node(slot, present) => set_member(&mut claims.nodes, slot, present),
            AddressEvent::OwnerChange => {}
        }
        let claimant = match (&*claims.claimants, &*claims.nodes) {
            ([], []) => AddressOwnerSlot::NONE,
            ([only], []) => *only,
            _ => return AddressOwnerSlot::MULTIPLE,
        };
        self.multiple.remove(&address);
        claimant
    }

    /// The claims on a changed address.
    pub(crate) fn ownership(&self, changed: &ChangedAddress) -> AddressOwnership<'_> {
        match changed.claimant {
            AddressOwnerSlot::NONE => AddressOwnership::Unheld,
            AddressOwnerSlot::MULTIPLE => match self.multiple.get(&changed.address) {
                Some(claims) => AddressOwnership::Multiple(claims),
                None => AddressOwnership::Unheld,
            },
            slot => AddressOwnership::Single(slot),
        }
    }

    /// Stores the owner and identity of changed addresses, in order; without an identity the
    /// address is removed.
    pub(crate) fn store<'a>(
        &mut self,
        changed: impl Iterator<
            Item = (
                &'a ChangedAddress,
                Option<AddressOwnerSlot>,
                Option<IdentityId>,
            ),
        > + Clone,
    ) {
        let tracked = |changed: &ChangedAddress, identity: Option<IdentityId>| {
            Some(TrackedAddress {
                claimant: changed.claimant,
                identity: identity?,
            })
        };
        for (changed, owner, _) in changed
            .clone()
            .filter(|(c, ..)| c.claimant == AddressOwnerSlot::MULTIPLE)
        {
            if let Some(claims) = self.multiple.get_mut(&changed.address) {
                claims.owner = owner;
            }
        }
        if self.v4.is_empty() && self.v6.is_empty() {
            // Built in one go, the maps are dense; by inserts in order they would be half empty.
            self.v4 = (changed.clone())
                .filter_map(|(changed, _, identity)| match changed.address {
                    IpAddr::V4(address) => Some((address, tracked(changed, identity)?)),
                    IpAddr::V6(_) => None,
                })
                .collect();
            self.v6 = changed
                .filter_map(|(changed, _, identity)| match changed.address {
                    IpAddr::V6(address) => Some((address, tracked(changed, identity)?)),
                    IpAddr::V4(_) => None,
                })
                .collect();
            return;
        }
        for (changed, _, identity) in changed {
            match (changed.address, tracked(changed, identity)) {
                (IpAddr::V4(address), Some(tracked)) => drop(self.v4.insert(address, tracked)),
                (IpAddr::V6(address), Some(tracked)) => drop(self.v6.insert(address, tracked)),
                (IpAddr::V4(address), None) => drop(self.v4.remove(&address)),
                (IpAddr::V6(address), None) => drop(self.v6.remove(&address)),
            }
        }
    }
}

fn set_member(slots: &mut Vec<AddressOwnerSlot>, slot: AddressOwnerSlot, present: bool) {
    slots.retain(|other| *other != slot);
    if present {
        slots.push(slot);
    }
}
