//! Tracked addresses: those that endpoints or nodes hold, with their claimants and identities.
//!
//! Nearly every address has one claimant and no node: it takes two numbers. All others are in a
//! separate map. Nothing here interprets identities.

use crate::holder_store::{HolderSlot, NONE};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use palisade_model::Prefix;

/// Set while a claimant is not yet the owner, as of the last recomputation.
const UNCONFIRMED: u32 = 1 << 31;

/// Marks an address whose claims are in the separate map.
const MULTIPLE: u32 = UNCONFIRMED - 1;

/// An address that something holds: its only claimant or a mark, and its identity.
#[derive(Clone, Copy, Debug)]
struct TrackedAddress {
    holder: u32,
    identity: u32,
}

/// An address with several claimants, or with nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressClaims {
    pub(crate) claimants: Vec<HolderSlot>,
    pub(crate) nodes: Vec<HolderSlot>,
    /// The claimant that owns it, as of the last recomputation.
    pub(crate) owner: Option<HolderSlot>,
}

/// The claims on an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressOwnership<'a> {
    /// One endpoint, and whether it was the owner as of the last recomputation.
    Single(HolderSlot, bool),
    Multiple(&'a AddressClaims),
}

/// All tracked addresses.
#[derive(Debug, Default)]
pub(crate) struct TrackedAddresses {
    v4: BTreeMap<Ipv4Addr, TrackedAddress>,
    v6: BTreeMap<Ipv6Addr, TrackedAddress>,
    multiple: BTreeMap<IpAddr, AddressClaims>,
}

impl TrackedAddresses {
    fn get(&self, address: IpAddr) -> Option<&TrackedAddress> {
        match address {
            IpAddr::V4(address) => self.v4.get(&address),
            IpAddr::V6(address) => self.v6.get(&address),
        }
    }

    fn get_mut(&mut self, address: IpAddr) -> Option<&mut TrackedAddress> {
        match address {
            IpAddr::V4(address) => self.v4.get_mut(&address),
            IpAddr::V6(address) => self.v6.get_mut(&address),
        }
    }

    fn insert(&mut self, address: IpAddr, host: TrackedAddress) {
        match address {
            IpAddr::V4(address) => drop(self.v4.insert(address, host)),
            IpAddr::V6(address) => drop(self.v6.insert(address, host)),
        }
    }

    /// The claims on an address; `None` if it is not tracked.
    pub(crate) fn ownership(&self, address: IpAddr) -> Option<AddressOwnership<'_>> {
        let host = self.get(address)?;
        if host.holder == MULTIPLE {
            return self.multiple.get(&address).map(AddressOwnership::Multiple);
        }
        Some(AddressOwnership::Single(
            host.holder & !UNCONFIRMED,
            host.holder & UNCONFIRMED == 0,
        ))
    }

    /// The identity of a tracked address.
    pub(crate) fn identity(&self, address: IpAddr) -> Option<u32> {
        self.get(address).map(|host| host.identity)
    }

    /// The claimant that owns an address, as of the last recomputation.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<HolderSlot> {
        match self.ownership(address)? {
            AddressOwnership::Single(slot, held) => held.then_some(slot),
            AddressOwnership::Multiple(crowd) => crowd.owner,
        }
    }

    /// The nodes that have an address.
    pub(crate) fn nodes(&self, address: IpAddr) -> &[HolderSlot] {
        match self.ownership(address) {
            Some(AddressOwnership::Multiple(crowd)) => &crowd.nodes,
            _ => &[],
        }
    }

    /// Whether something holds an address.
    pub(crate) fn is_held(&self, address: IpAddr) -> bool {
        match self.ownership(address) {
            Some(AddressOwnership::Single(..)) => true,
            Some(AddressOwnership::Multiple(crowd)) => {
                !crowd.claimants.is_empty() || !crowd.nodes.is_empty()
            }
            None => false,
        }
    }

    /// The addresses that several endpoints claim.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[HolderSlot])> {
        let many = self.multiple.iter().filter(|(_, c)| c.claimants.len() > 1);
        many.map(|(address, crowd)| (*address, &*crowd.claimants))
    }

    /// Adds the tracked addresses inside a network to `out`.
    pub(crate) fn within(&self, net: Prefix, out: &mut Vec<IpAddr>) {
        match (net.address(), net.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                out.extend(self.v4.range(first..=last).map(|(a, _)| IpAddr::V4(*a)));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                out.extend(self.v6.range(first..=last).map(|(a, _)| IpAddr::V6(*a)));
            }
            _ => {}
        }
    }

    /// Adds or removes the claim of an endpoint on an address.
    pub(crate) fn set_claim(&mut self, address: IpAddr, slot: HolderSlot, claims: bool) {
        match self.get(address).map(|host| host.holder) {
            None if claims => {
                let holder = slot | UNCONFIRMED;
                self.insert(
                    address,
                    TrackedAddress {
                        holder,
                        identity: 0,
                    },
                );
            }
            Some(holder) if claims && holder != MULTIPLE && holder & !UNCONFIRMED == slot => {}
            _ => set_member(&mut self.claims_mut(address).claimants, slot, claims),
        }
    }

    /// Adds or removes a node of an address.
    pub(crate) fn set_node(&mut self, address: IpAddr, slot: HolderSlot, has: bool) {
        set_member(&mut self.claims_mut(address).nodes, slot, has);
    }

    fn claims_mut(&mut self, address: IpAddr) -> &mut AddressClaims {
        let holder = match self.get_mut(address) {
            Some(host) => core::mem::replace(&mut host.holder, MULTIPLE),
            None => {
                let host = TrackedAddress {
                    holder: MULTIPLE,
                    identity: 0,
                };
                self.insert(address, host);
                MULTIPLE
            }
        };
        let crowd = self.multiple.entry(address).or_default();
        if holder != MULTIPLE {
            let slot = holder & !UNCONFIRMED;
            crowd.claimants.push(slot);
            crowd.owner = (holder & UNCONFIRMED == 0).then_some(slot);
        }
        crowd
    }

    /// Records the owner and the identity of an address.
    pub(crate) fn assign(&mut self, address: IpAddr, owner: Option<HolderSlot>, identity: u32) {
        let is_multiple = self.get(address).is_some_and(|h| h.holder == MULTIPLE);
        let is_single =
            |crowd: &AddressClaims| crowd.nodes.is_empty() && crowd.claimants.len() == 1;
        let holder = match owner {
            Some(slot) if !is_multiple => slot,
            Some(slot) if self.multiple.get(&address).is_some_and(is_single) => {
                self.multiple.remove(&address);
                slot
            }
            _ => {
                if let Some(crowd) = self.multiple.get_mut(&address) {
                    crowd.owner = owner;
                }
                MULTIPLE
            }
        };
        if let Some(host) = self.get_mut(address) {
            *host = TrackedAddress { holder, identity };
        }
    }

    /// Removes an address that nothing holds.
    pub(crate) fn remove(&mut self, address: IpAddr) {
        self.multiple.remove(&address);
        match address {
            IpAddr::V4(address) => drop(self.v4.remove(&address)),
            IpAddr::V6(address) => drop(self.v6.remove(&address)),
        }
    }
}

fn set_member(slots: &mut Vec<HolderSlot>, slot: HolderSlot, present: bool) {
    slots.retain(|other| *other != slot);
    if present {
        slots.push(slot);
    }
}

/// No slot equals a mark.
const _: () = assert!(NONE > MULTIPLE);
