//! Addresses for workloads that bring none: host scope, from one or several pools of each family.
//!
//! [`Ipam`] only knows which addresses are taken. What is taken is claimed first (at start, from
//! disk) and asked for afterwards, so an address in use is never given out. It keeps no state of its
//! own on disk: an address is taken exactly as long as a workload record names it.

use crate::config::AddressRange;
use palisade_model::{Family, Prefix};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Why there is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IpamError {
    /// No pool of that family.
    #[error("this host has no {0} pool; give an address, or configure ipam-pool")]
    NoPool(Family),
    /// Every address of every pool is taken or reserved.
    #[error(
        "no {family} address is free: of {} {taken} are taken and {reserved} reserved; \
         remove workloads, or add a network to ipam-pool",
        join_prefixes(pools)
    )]
    Exhausted {
        /// The family.
        family: Family,
        /// Its pools.
        pools: Vec<Prefix>,
        /// How many of their addresses are taken.
        taken: u128,
        /// How many are reserved, the ends of each pool included.
        reserved: u128,
    },
    /// Somebody has it.
    #[error("the address {0} is taken")]
    InUse(IpAddr),
}

fn join_prefixes(pools: &[Prefix]) -> String {
    let pools: Vec<String> = pools.iter().map(Prefix::to_string).collect();
    pools.join(" and ")
}

/// The pools and what of them is taken.
#[derive(Clone, Debug, Default)]
pub struct Ipam {
    pools: Vec<AddressPool>,
    allocated: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug)]
struct AddressPool {
    prefix: Prefix,
    /// What may be given, in order and apart, as numbers.
    usable: Vec<(u128, u128)>,
    last_allocated: Option<u128>,
}

/// How much of a pool is what. The numbers of a pool that is a whole /0 end at the greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool.
    pub pool: Prefix,
    /// Its addresses.
    pub size: u128,
    /// Those that workloads have.
    pub taken: u128,
    /// Those that are never given out, the ends of the pool included.
    pub reserved: u128,
    /// Those that can be given out.
    pub free: u128,
}

impl Ipam {
    /// These pools, filled in this order, but for what is reserved; nothing taken.
    ///
    /// The first and the last of a pool are never given, nor is the second, which hosts like to use
    /// for themselves.
    pub fn new(pools: &[Prefix], reserved: &[AddressRange]) -> Self {
        let pool = |prefix: &Prefix| {
            let (first, last) = prefix.bounds();
            let all = (first.saturating_add(2), last.saturating_sub(1));
            let mut usable: Vec<(u128, u128)> = vec![all];
            for range in reserved.iter().filter(|range| range.overlaps(*prefix)) {
                let (from, to) = (
                    address_to_number(range.first),
                    address_to_number(range.last),
                );
                usable = usable
                    .into_iter()
                    .flat_map(|u| subtract_range(u, from, to))
                    .collect();
            }
            usable.retain(|(from, to)| from <= to);
            AddressPool {
                prefix: *prefix,
                usable,
                last_allocated: None,
            }
        };
        Ipam {
            pools: pools.iter().map(pool).collect(),
            allocated: BTreeSet::new(),
        }
    }

    /// The families that have a pool.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        let has = |family| self.pools.iter().any(|pool| pool.prefix.family() == family);
        Family::BOTH.into_iter().filter(move |family| has(*family))
    }

    /// Takes this very address, inside a pool or not.
    ///
    /// # Errors
    /// If it is taken.
    pub fn claim(&mut self, address: IpAddr) -> Result<(), IpamError> {
        if self.allocated.insert(address) {
            Ok(())
        } else {
            Err(IpamError::InUse(address))
        }
    }

    /// Takes a free address of the family, of the first pool that has one. Addresses are given in
    /// turn, so one that was released is not given again soon.
    ///
    /// # Errors
    /// If there is no pool, or nothing free in any.
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

    /// Gives an address back.
    pub fn release(&mut self, address: IpAddr) {
        self.allocated.remove(&address);
    }

    /// Every address that is taken, those outside of pools included.
    pub fn allocated(&self) -> &BTreeSet<IpAddr> {
        &self.allocated
    }

    /// The pool that an address is of.
    pub fn pool_of(&self, address: IpAddr) -> Option<Prefix> {
        let mut pools = self.pools.iter().map(|pool| pool.prefix);
        pools.find(|pool| pool.contains(address))
    }

    /// Whether an address is one that a pool gives out: inside of one, and not reserved.
    pub fn can_allocate(&self, address: IpAddr) -> bool {
        let number = address_to_number(address);
        let usable = |pool: &AddressPool| {
            pool.prefix.contains(address)
                && pool
                    .usable
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&number))
        };
        self.pools.iter().any(usable)
    }

    /// How much of each pool is what.
    pub fn pool_usages(&self) -> Vec<PoolUsage> {
        self.pools
            .iter()
            .map(|pool| pool.usage(&self.allocated))
            .collect()
    }
}

impl AddressPool {
    /// The next address in turn that is not taken.
    fn next_free(&mut self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let family = self.prefix.family();
        let after = self.last_allocated.map_or(0, |last| last.saturating_add(1));
        let later = self
            .usable
            .iter()
            .map(|(from, to)| (*from.max(&after), *to));
        let again = self.usable.iter().map(|(from, to)| (*from, *to));
        let found = later
            .chain(again)
            .filter(|(from, to)| from <= to)
            .find_map(|(from, to)| {
                let mut numbers = from..=to;
                let ignore_allocated = palisade_sys::fault::is_injected("held-address-given");
                numbers
                    .find(|n| ignore_allocated || !taken.contains(&number_to_address(family, *n)))
            })?;
        self.last_allocated = Some(found);
        Some(number_to_address(family, found))
    }

    fn usage(&self, taken: &BTreeSet<IpAddr>) -> PoolUsage {
        let (first, last) = self.prefix.bounds();
        let size = (last - first).saturating_add(1);
        let whole = number_to_address(self.prefix.family(), first)
            ..=number_to_address(self.prefix.family(), last);
        let of_pool = || taken.range(whole.clone());
        let is_usable = |n: u128| {
            self.usable
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&n))
        };
        let usable: u128 = self.usable.iter().map(|(from, to)| to - from + 1).sum();
        let used = of_pool()
            .filter(|a| is_usable(address_to_number(**a)))
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

/// What is left of a range without what lies from `from` to `to`.
fn subtract_range((first, last): (u128, u128), from: u128, to: u128) -> Vec<(u128, u128)> {
    if to < first || last < from {
        return vec![(first, last)];
    }
    let mut left = Vec::new();
    if first < from {
        left.push((first, from - 1));
    }
    if to < last {
        left.push((to + 1, last));
    }
    left
}

fn address_to_number(address: IpAddr) -> u128 {
    Prefix::host(address).bounds().0
}

fn number_to_address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into()),
        Family::V6 => IpAddr::V6(number.into()),
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
            "no IPv4 address is free: of 10.0.0.0/29 5 are taken and 3 reserved; \
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
        let of = pools(&["10.0.0.0/29", "10.0.1.0/29", "fd00::/64"]);
        let mut ipam = Ipam::new(&of, &reserved);
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
        // One that a workload brought is taken, reserved or not.
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
        assert_eq!(ipam.pool_of(given[4].parse().unwrap()), Some(of[1]));
        let gives = |address: &str| ipam.can_allocate(address.parse().unwrap());
        for address in ["10.0.0.2", "10.0.0.6", "10.0.1.5", "fd00::8000:0:0:0"] {
            assert!(gives(address), "{address}");
        }
        // The ends of pools, what hosts use for themselves, what is reserved, and what is in no pool.
        for address in [
            "10.0.0.0", "10.0.0.1", "10.0.0.7", "10.0.0.3", "10.0.1.4", "10.0.2.2", "fd00::1",
            "fd01::9",
        ] {
            assert!(!gives(address), "{address}");
        }
    }
}
