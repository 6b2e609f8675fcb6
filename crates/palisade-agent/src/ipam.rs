//! Addresses for workloads that bring none: host scope, from one pool of each family.
//!
//! [`Ipam`] only knows which addresses are taken. What is taken is claimed first (at start, from
//! disk) and asked for afterwards, so an address in use is never given out. It keeps no state of its
//! own on disk: an address is taken exactly as long as a workload record names it.

use palisade_model::{Family, Prefix};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Why there is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IpamError {
    /// No pool of that family.
    #[error("this host has no {0} pool; give an address, or configure pool-ipv4 / pool-ipv6")]
    NoPool(Family),
    /// Every address of the pool is taken.
    #[error("the pool {0} has no free address; remove workloads or configure a larger one")]
    Exhausted(Prefix),
    /// Somebody has it.
    #[error("the address {0} is taken")]
    Taken(IpAddr),
}

/// The pools and what of them is taken.
#[derive(Clone, Debug, Default)]
pub struct Ipam {
    pools: Vec<Prefix>,
    taken: BTreeSet<IpAddr>,
    last: Vec<Option<u128>>,
}

impl Ipam {
    /// These pools, nothing taken.
    pub fn new(pools: Vec<Prefix>) -> Self {
        let last = vec![None; pools.len()];
        Ipam {
            pools,
            taken: BTreeSet::new(),
            last,
        }
    }

    /// The families that have a pool.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        self.pools.iter().map(|pool| pool.family())
    }

    /// Takes this very address, inside a pool or not.
    ///
    /// # Errors
    /// If it is taken.
    pub fn claim(&mut self, address: IpAddr) -> Result<(), IpamError> {
        if self.taken.insert(address) {
            Ok(())
        } else {
            Err(IpamError::Taken(address))
        }
    }

    /// Takes a free address of the family. Addresses are given in turn, so one that was released is
    /// not given again soon. The first and the last of a pool are never given, nor is the second,
    /// which hosts like to use for themselves.
    ///
    /// # Errors
    /// If there is no pool, or nothing free in it.
    pub fn take(&mut self, family: Family) -> Result<IpAddr, IpamError> {
        let at = self
            .pools
            .iter()
            .position(|p| p.family() == family)
            .ok_or(IpamError::NoPool(family))?;
        let pool = self.pools[at];
        let (first, last) = pool.bounds();
        let (low, high) = (first + 2, last - 1);
        let start = self.last[at].filter(|n| *n < high).map_or(low, |n| n + 1);
        let free = (start..=high)
            .chain(low..start)
            .map(|n| address(family, n))
            .find(|a| !self.taken.contains(a));
        let found = free.ok_or(IpamError::Exhausted(pool))?;
        self.taken.insert(found);
        self.last[at] = Some(number(found));
        Ok(found)
    }

    /// Gives an address back.
    pub fn release(&mut self, address: IpAddr) {
        self.taken.remove(&address);
    }
}

fn number(address: IpAddr) -> u128 {
    Prefix::host(address).bounds().0
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into()),
        Family::V6 => IpAddr::V6(number.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_in_turn_and_end_with_a_clear_error() {
        let mut ipam = Ipam::new(vec!["10.0.0.0/29".parse().unwrap()]);
        ipam.claim("10.0.0.3".parse().unwrap()).unwrap();
        let mut given = |n: usize| -> Vec<String> {
            (0..n)
                .map(|_| ipam.take(Family::V4).unwrap().to_string())
                .collect()
        };
        assert_eq!(given(4), ["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        ipam.release("10.0.0.4".parse().unwrap());
        assert_eq!(ipam.take(Family::V4).unwrap().to_string(), "10.0.0.4");
        assert_eq!(
            ipam.take(Family::V4),
            Err(IpamError::Exhausted("10.0.0.0/29".parse().unwrap()))
        );
        assert_eq!(ipam.take(Family::V6), Err(IpamError::NoPool(Family::V6)));
        assert_eq!(
            ipam.claim("10.0.0.4".parse().unwrap()),
            Err(IpamError::Taken("10.0.0.4".parse().unwrap()))
        );
    }

    #[test]
    fn a_released_address_is_not_given_again_soon() {
        let mut ipam = Ipam::new(vec!["fd00::/64".parse().unwrap()]);
        let first = ipam.take(Family::V6).unwrap();
        ipam.release(first);
        assert_ne!(ipam.take(Family::V6).unwrap(), first);
    }
}
