//! Hosts: the addresses that endpoints or nodes hold, and who claims each.
//!
//! Nearly every address has one claimant and no node: such a host is two numbers. The others stand in
//! a map of their own. Nothing here knows what an identity means.

use crate::columns::{NONE, Slot};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use palisade_model::Prefix;

/// Set while a claimant does not hold the address as of the last settling.
const NEW: u32 = 1 << 31;

/// Stands for a host that is in the map of its own.
const CROWD: u32 = NEW - 1;

/// An address that something holds.
#[derive(Clone, Copy, Debug)]
struct Host {
    holder: u32,
    identity: u32,
}

/// An address with several claimants, or with nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    pub(crate) claimants: Vec<Slot>,
    pub(crate) nodes: Vec<Slot>,
    /// The claimant that holds it, as of the last settling.
    pub(crate) owner: Option<Slot>,
}

/// Who holds an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim<'a> {
    /// One endpoint; whether it held the address as of the last settling.
    Only(Slot, bool),
    Crowd(&'a Crowd),
}

/// Every host.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    v4: BTreeMap<Ipv4Addr, Host>,
    v6: BTreeMap<Ipv6Addr, Host>,
    crowds: BTreeMap<IpAddr, Crowd>,
}

impl Hosts {
    fn get(&self, address: IpAddr) -> Option<&Host> {
        match address {
            IpAddr::V4(address) => self.v4.get(&address),
            IpAddr::V6(address) => self.v6.get(&address),
        }
    }

    fn get_mut(&mut self, address: IpAddr) -> Option<&mut Host> {
        match address {
            IpAddr::V4(address) => self.v4.get_mut(&address),
            IpAddr::V6(address) => self.v6.get_mut(&address),
        }
    }

    fn insert(&mut self, address: IpAddr, host: Host) {
        match address {
            IpAddr::V4(address) => drop(self.v4.insert(address, host)),
            IpAddr::V6(address) => drop(self.v6.insert(address, host)),
        }
    }

    /// Who holds an address; `None` if nothing ever did since it was last forgotten.
    pub(crate) fn claim(&self, address: IpAddr) -> Option<Claim<'_>> {
        let host = self.get(address)?;
        if host.holder == CROWD {
            return self.crowds.get(&address).map(Claim::Crowd);
        }
        Some(Claim::Only(host.holder & !NEW, host.holder & NEW == 0))
    }

    /// The identity of an address, if it is a host.
    pub(crate) fn identity(&self, address: IpAddr) -> Option<u32> {
        self.get(address).map(|host| host.identity)
    }

    /// The claimant that holds an address, as of the last settling.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<Slot> {
        match self.claim(address)? {
            Claim::Only(slot, held) => held.then_some(slot),
            Claim::Crowd(crowd) => crowd.owner,
        }
    }

    /// The nodes that have an address.
    pub(crate) fn nodes(&self, address: IpAddr) -> &[Slot] {
        match self.claim(address) {
            Some(Claim::Crowd(crowd)) => &crowd.nodes,
            _ => &[],
        }
    }

    /// Whether something holds an address.
    pub(crate) fn lives(&self, address: IpAddr) -> bool {
        match self.claim(address) {
            Some(Claim::Only(..)) => true,
            Some(Claim::Crowd(crowd)) => !crowd.claimants.is_empty() || !crowd.nodes.is_empty(),
            None => false,
        }
    }

    /// The addresses that several endpoints claim.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[Slot])> {
        let many = self.crowds.iter().filter(|(_, c)| c.claimants.len() > 1);
        many.map(|(address, crowd)| (*address, &*crowd.claimants))
    }

    /// The hosts inside a network.
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

    /// An endpoint claims an address, or does so no more.
    pub(crate) fn set_claim(&mut self, address: IpAddr, slot: Slot, claims: bool) {
        match self.get(address).map(|host| host.holder) {
            None if claims => {
                let holder = slot | NEW;
                self.insert(
                    address,
                    Host {
                        holder,
                        identity: 0,
                    },
                );
            }
            Some(holder) if claims && holder != CROWD && holder & !NEW == slot => {}
            _ => put(&mut self.crowd(address).claimants, slot, claims),
        }
    }

    /// A node has an address, or has it no more.
    pub(crate) fn set_node(&mut self, address: IpAddr, slot: Slot, has: bool) {
        put(&mut self.crowd(address).nodes, slot, has);
    }

    fn crowd(&mut self, address: IpAddr) -> &mut Crowd {
        let holder = match self.get_mut(address) {
            Some(host) => core::mem::replace(&mut host.holder, CROWD),
            None => {
                let host = Host {
                    holder: CROWD,
                    identity: 0,
                };
                self.insert(address, host);
                CROWD
            }
        };
        let crowd = self.crowds.entry(address).or_default();
        if holder != CROWD {
            let slot = holder & !NEW;
            crowd.claimants.push(slot);
            crowd.owner = (holder & NEW == 0).then_some(slot);
        }
        crowd
    }

    /// Settles who holds an address, and what identity it has.
    pub(crate) fn settle(&mut self, address: IpAddr, owner: Option<Slot>, identity: u32) {
        let is_crowd = self.get(address).is_some_and(|h| h.holder == CROWD);
        let alone = |crowd: &Crowd| crowd.nodes.is_empty() && crowd.claimants.len() == 1;
        let holder = match owner {
            Some(slot) if !is_crowd => slot,
            Some(slot) if self.crowds.get(&address).is_some_and(alone) => {
                self.crowds.remove(&address);
                slot
            }
            _ => {
                if let Some(crowd) = self.crowds.get_mut(&address) {
                    crowd.owner = owner;
                }
                CROWD
            }
        };
        if let Some(host) = self.get_mut(address) {
            *host = Host { holder, identity };
        }
    }

    /// Nothing holds an address any more.
    pub(crate) fn forget(&mut self, address: IpAddr) {
        self.crowds.remove(&address);
        match address {
            IpAddr::V4(address) => drop(self.v4.remove(&address)),
            IpAddr::V6(address) => drop(self.v6.remove(&address)),
        }
    }
}

fn put(slots: &mut Vec<Slot>, slot: Slot, there: bool) {
    slots.retain(|other| *other != slot);
    if there {
        slots.push(slot);
    }
}

/// No slot is mistaken for a mark.
const _: () = assert!(NONE > CROWD);
