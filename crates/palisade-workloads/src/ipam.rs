//! IPAM: allocates addresses of host-local pools for workloads, with one or several pools of each family.
//!
//! [`Ipam`] only tracks which addresses are allocated. At start the addresses of the workload records
//! are claimed before any allocation, so an address in use is never allocated. There is no IPAM state
//! on disk: an address is allocated exactly as long as a workload record has it.

use palisade_config::AddressRange;
use palisade_model::{
    Family, NumberRange, Prefix, RangeSet, address_from_number, address_to_number,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Why no address could be allocated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IpamError {
    /// There is no pool of this family.
    #[error("this host has no {0} pool; give an address, or configure ipam-pool")]
    NoPool(Family),
    /// Every address of every pool is allocated or reserved.
    #[error(
        "no {family} address is free: of {} {taken} are allocated and {reserved} reserved; \
         remove workloads, or add a network to ipam-pool",
        join_prefixes(pools)
    )]
    Exhausted {
        /// The family.
        family: Family,
        /// Its pools.
        pools: Vec<Prefix>,
        /// The number of allocated addresses.
        taken: u128,
        /// The number of reserved addresses, including the first and last of each pool.
        reserved: u128,
    },
    /// The address is in use.
    #[error("the address {0} is in use")]
    InUse(IpAddr),
}

fn join_prefixes(pools: &[Prefix]) -> String {
    let pools: Vec<String> = pools.iter().map(Prefix::to_string).collect();
    pools.join(" and ")
}

/// The pools and their allocated addresses.
#[derive(Clone, Debug, Default)]
pub struct Ipam {
    pools: Vec<AddressPool>,
    reserved: Vec<AddressRange>,
    allocated: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug)]
struct AddressPool {
    prefix: Prefix,
    /// The addresses that can be allocated, as numbers.
    usable: RangeSet<u128>,
    last_allocated: Option<u128>,
}

/// The usage of a pool. The numbers of a pool that is a whole /0 saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool.
    pub pool: Prefix,
    /// The number of its addresses.
    pub size: u128,
    /// Addresses of workloads.
    pub taken: u128,
    /// Addresses that are never allocated, including the first and last of the pool.
    pub reserved: u128,
    /// Addresses that can be allocated.
    pub free: u128,
}

impl Ipam {
    /// Creates the allocator with these pools, which are filled in this order, and reserved ranges.
    ///
    /// The first and the last address of a pool are never allocated, nor is the second, which hosts
    /// often use for themselves.
    pub fn new(pools: &[Prefix], reserved: &[AddressRange]) -> Self {
        let mut ipam = Ipam {
            reserved: reserved.to_vec(),
            ..Ipam::default()
        };
        ipam.set_pools(pools);
        ipam
    }

    /// Replaces the pools. Allocated addresses stay allocated, also those of a pool that is gone.
    pub fn set_pools(&mut self, pools: &[Prefix]) {
        let pool = |prefix: &Prefix| {
            if let Some(same) = self.pools.iter().find(|pool| pool.prefix == *prefix) {
                return same.clone();
            }
            let (first, last) = prefix.bounds();
            let all = NumberRange::new(first.saturating_add(2), last.saturating_sub(1));
            let reserved = self.reserved.iter();
            let reserved = reserved.filter(|range| range.overlaps(*prefix));
            let reserved = reserved.map(|range| NumberRange {
                first: address_to_number(range.first),
                last: address_to_number(range.last),
            });
            let usable = RangeSet::from_iter(all).subtract(&reserved.collect());
            AddressPool {
                prefix: *prefix,
                usable,
                last_allocated: None,
            }
        };
        self.pools = pools.iter().map(pool).collect();
    }

    /// The families that have a pool.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        let has = |family| self.pools.iter().any(|pool| pool.prefix.family() == family);
        Family::BOTH.into_iter().filter(move |family| has(*family))
    }

    /// Claims a specific address, inside or outside a pool.
    ///
    /// # Errors
    /// If it is allocated already.
    pub fn claim(&mut self, address: IpAddr) -> Result<(), IpamError> {
        if self.allocated.insert(address) {
            Ok(())
        } else {
            Err(IpamError::InUse(address))
        }
    }

    /// Allocates a free address of the family, from the first pool that has one. Allocation is
    /// round-robin, so a released address is not reused soon.
    ///
    /// # Errors
    /// If there is no pool, or no pool has a free address.
    pub fn allocate(&mut self, family: Family) -> Result<IpAddr, IpamError> {
        let mut of_family = Vec::new();
        for pool in self.pools.iter_mut() {
            if pool.prefix.family() != family {
                continue;
            }
            if let Some(found) = pool.next_free(&self.allocated) {
                self.allocated.insert(found);
                return Ok(found);
            }
            of_family.push(pool.prefix);
        }
        if of_family.is_empty() {
            return Err(IpamError::NoPool(family));
        }
        let usages = self.pool_usages();
        let usages_of_family = || usages.iter().filter(|u| of_family.contains(&u.pool));
        Err(IpamError::Exhausted {
            family,
            taken: usages_of_family().map(|u| u.taken).sum(),
            reserved: usages_of_family().map(|u| u.reserved).sum(),
            pools: of_family.clone(),
        })
    }

    /// Releases an address.
    pub fn release(&mut self, address: IpAddr) {
        self.allocated.remove(&address);
    }

    /// Every allocated address, including those outside of pools.
    pub fn allocated(&self) -> &BTreeSet<IpAddr> {
        &self.allocated
    }

    /// The pool that contains an address.
    pub fn pool_of(&self, address: IpAddr) -> Option<Prefix> {
        let mut pools = self.pools.iter().map(|pool| pool.prefix);
        pools.find(|pool| pool.contains(address))
    }

    /// Whether a pool can allocate this address: inside the pool and not reserved.
    pub fn can_allocate(&self, address: IpAddr) -> bool {
        let number = address_to_number(address);
        let usable =
            |pool: &AddressPool| pool.prefix.contains(address) && pool.usable.contains(number);
        self.pools.iter().any(usable)
    }

    /// The usage of each pool.
    pub fn pool_usages(&self) -> Vec<PoolUsage> {
        self.pools
            .iter()
            .map(|pool| pool.usage(&self.allocated))
            .collect()
    }
}

impl AddressPool {
    /// The next free address in round-robin order.
    fn next_free(&mut self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let family = self.prefix.family();
        let after = self.last_allocated.map_or(0, |last| last.saturating_add(1));
        let usable = self.usable.ranges().iter();
        let later = usable
            .clone()
            .filter_map(|range| NumberRange::new(range.first.max(after), range.last));
        let found = later.chain(usable.copied()).find_map(|range| {
            let mut numbers = range.first..=range.last;
            let ignore_allocated = palisade_sys::fault::is_injected("held-address-given");
            numbers.find(|n| ignore_allocated || !taken.contains(&address_from_number(family, *n)))
        })?;
        self.last_allocated = Some(found);
        Some(address_from_number(family, found))
    }

    fn usage(&self, taken: &BTreeSet<IpAddr>) -> PoolUsage {
        let (first, last) = self.prefix.bounds();
        let size = (last - first).saturating_add(1);
        let whole = self.prefix.address()..=self.prefix.last();
        let of_pool = || taken.range(whole.clone());
        let usable = self.usable.ranges().iter();
        let usable: u128 = usable.map(|range| range.last - range.first + 1).sum();
        let used = of_pool()
            .filter(|a| self.usable.contains(address_to_number(**a)))
            .count() as u128;
        PoolUsage {
            pool: self.prefix,
            size,
            taken: of_pool().count() as u128,
            reserved: size - usable,
            free: usable - used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    fn take(ipam: &mut Ipam, family: Family, n: usize) -> Vec<String> {
        (0..n)
            .map(|_| ipam.allocate(family).unwrap().to_string())
            .collect()
    }

    #[test]
    fn addresses_are_given_in_turn_and_end_with_a_clear_error() {
        let mut ipam = Ipam::new(&pools(&["10.0.0.0/29"]), &[]);
        ipam.claim("10.0.0.3".parse().unwrap()).unwrap();
        let given = take(&mut ipam, Family::V4, 4);
        assert_eq!(given, ["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        ipam.release("10.0.0.4".parse().unwrap());
        assert_eq!(take(&mut ipam, Family::V4, 1), ["10.0.0.4"]);
        let error = ipam.allocate(Family::V4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no IPv4 address is free: of 10.0.0.0/29 5 are allocated and 3 reserved; \
             remove workloads, or add a network to ipam-pool"
        );
        assert_eq!(
            ipam.allocate(Family::V6),
            Err(IpamError::NoPool(Family::V6))
        );
        let taken = "10.0.0.4".parse().unwrap();
        assert_eq!(ipam.claim(taken), Err(IpamError::InUse(taken)));
    }

    #[test]
    fn pools_change_and_addresses_stay() {
        let mut ipam = Ipam::new(&pools(&["10.0.0.0/29", "10.0.1.0/29"]), &[]);
        assert_eq!(take(&mut ipam, Family::V4, 1), ["10.0.0.2"]);
        ipam.set_pools(&pools(&["10.0.1.0/29", "10.0.2.0/29"]));
        assert_eq!(take(&mut ipam, Family::V4, 6)[5], "10.0.2.2");
        let allocated = "10.0.0.2".parse().unwrap();
        assert_eq!(ipam.claim(allocated), Err(IpamError::InUse(allocated)));
        assert_eq!(ipam.pool_of(allocated), None);
        ipam.set_pools(&[]);
        assert_eq!(
            ipam.allocate(Family::V4),
            Err(IpamError::NoPool(Family::V4))
        );
        assert_eq!(ipam.allocated().len(), 7);
    }

    #[test]
    fn a_released_address_is_not_given_again_soon() {
        let mut ipam = Ipam::new(&pools(&["fd00::/64"]), &[]);
        let first = ipam.allocate(Family::V6).unwrap();
        ipam.release(first);
        assert_ne!(ipam.allocate(Family::V6).unwrap(), first);
    }

    #[test]
    fn pools_are_filled_in_order_around_what_is_reserved() {
        let reserved = [
            range("10.0.0.3", "10.0.0.4"),
            range("10.0.1.0", "10.0.1.4"),
            range("fd00::", "fd00::7fff:ffff:ffff:ffff"),
        ];
        let all = pools(&["10.0.0.0/29", "10.0.1.0/29", "fd00::/64"]);
        let mut ipam = Ipam::new(&all, &reserved);
        let given = take(&mut ipam, Family::V4, 5);
        assert_eq!(
            given,
            ["10.0.0.2", "10.0.0.5", "10.0.0.6", "10.0.1.5", "10.0.1.6"]
        );
        assert!(matches!(
            ipam.allocate(Family::V4),
            Err(IpamError::Exhausted {
                taken: 5,
                reserved: 11,
                ..
            })
        ));
        ipam.release("10.0.0.5".parse().unwrap());
        assert_eq!(take(&mut ipam, Family::V4, 1), ["10.0.0.5"]);
        assert_eq!(take(&mut ipam, Family::V6, 1), ["fd00::8000:0:0:0"]);
        // An address that the caller gave is claimed, reserved or not.
        ipam.claim("10.0.0.3".parse().unwrap()).unwrap();
        let used = |pool: &str, taken, reserved, free| PoolUsage {
            pool: pool.parse().unwrap(),
            size: 8,
            taken,
            reserved,
            free,
        };
        assert_eq!(
            ipam.pool_usages()[..2],
            [used("10.0.0.0/29", 4, 5, 0), used("10.0.1.0/29", 2, 6, 0)]
        );
        assert_eq!(ipam.pool_of(given[4].parse().unwrap()), Some(all[1]));
        let gives = |address: &str| ipam.can_allocate(address.parse().unwrap());
        for address in ["10.0.0.2", "10.0.0.6", "10.0.1.5", "fd00::8000:0:0:0"] {
            assert!(gives(address), "{address}");
        }
        // First and last addresses of pools, second ones, reserved ones, and one outside every pool.
        for address in [
            "10.0.0.0", "10.0.0.1", "10.0.0.7", "10.0.0.3", "10.0.1.4", "10.0.2.2", "fd00::1",
            "fd01::9",
        ] {
            assert!(!gives(address), "{address}");
        }
    }
}
