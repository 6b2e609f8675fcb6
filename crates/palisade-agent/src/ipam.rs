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
        listed(pools)
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
    Taken(IpAddr),
}

fn listed(pools: &[Prefix]) -> String {
    let pools: Vec<String> = pools.iter().map(Prefix::to_string).collect();
    pools.join(" and ")
}

/// The pools and what of them is taken.
#[derive(Clone, Debug, Default)]
pub struct Ipam {
    pools: Vec<Pool>,
    taken: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug)]
struct Pool {
    prefix: Prefix,
    /// What may be given, in order and apart, as numbers.
    usable: Vec<(u128, u128)>,
    last: Option<u128>,
}

/// How much of a pool is what. The numbers of a pool that is a whole /0 end at the greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
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
            let whole = (first.saturating_add(2), last.saturating_sub(1));
            let mut usable: Vec<(u128, u128)> = vec![whole];
            for range in reserved.iter().filter(|range| range.meets(*prefix)) {
                let (from, to) = (number(range.first), number(range.last));
                usable = usable
                    .into_iter()
                    .flat_map(|u| without(u, from, to))
                    .collect();
            }
            usable.retain(|(from, to)| from <= to);
            Pool {
                prefix: *prefix,
                usable,
                last: None,
            }
        };
        Ipam {
            pools: pools.iter().map(pool).collect(),
            taken: BTreeSet::new(),
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
        if self.taken.insert(address) {
            Ok(())
        } else {
            Err(IpamError::Taken(address))
        }
    }

    /// Takes a free address of the family, of the first pool that has one. Addresses are given in
    /// turn, so one that was released is not given again soon.
    ///
    /// # Errors
    /// If there is no pool, or nothing free in any.
    pub fn take(&mut self, family: Family) -> Result<IpAddr, IpamError> {
        let mut of_family = Vec::new();
        for pool in self.pools.iter_mut() {
            if pool.prefix.family() != family {
                continue;
            }
            if let Some(found) = pool.next(&self.taken) {
                self.taken.insert(found);
                return Ok(found);
            }
            of_family.push(pool.prefix);
        }
        if of_family.is_empty() {
            return Err(IpamError::NoPool(family));
        }
        let uses = self.uses();
        let uses = || uses.iter().filter(|u| of_family.contains(&u.pool));
        Err(IpamError::Exhausted {
            family,
            taken: uses().map(|u| u.taken).sum(),
            reserved: uses().map(|u| u.reserved).sum(),
            pools: of_family.clone(),
        })
    }

    /// Gives an address back.
    pub fn release(&mut self, address: IpAddr) {
        self.taken.remove(&address);
    }

    /// Every address that is taken, those outside of pools included.
    pub fn taken(&self) -> &BTreeSet<IpAddr> {
        &self.taken
    }

    /// The pool that an address is of.
    pub fn pool_of(&self, address: IpAddr) -> Option<Prefix> {
        let mut pools = self.pools.iter().map(|pool| pool.prefix);
        pools.find(|pool| pool.contains(address))
    }

    /// Whether an address is one that a pool gives out: inside of one, and not reserved.
    pub fn gives(&self, address: IpAddr) -> bool {
        let number = number(address);
        let usable = |pool: &Pool| {
            pool.prefix.contains(address)
                && pool
                    .usable
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&number))
        };
        self.pools.iter().any(usable)
    }

    /// How much of each pool is what.
    pub fn uses(&self) -> Vec<Use> {
        self.pools
            .iter()
            .map(|pool| pool.used(&self.taken))
            .collect()
    }
}

impl Pool {
    /// The next address in turn that is not taken.
    fn next(&mut self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let family = self.prefix.family();
        let after = self.last.map_or(0, |last| last.saturating_add(1));
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
                let careless = palisade_sys::fault::is_on("held-address-given");
                numbers.find(|n| careless || !taken.contains(&address(family, *n)))
            })?;
        self.last = Some(found);
        Some(address(family, found))
    }

    fn used(&self, taken: &BTreeSet<IpAddr>) -> Use {
        let (first, last) = self.prefix.bounds();
        let size = (last - first).saturating_add(1);
        let whole = address(self.prefix.family(), first)..=address(self.prefix.family(), last);
        let of_pool = || taken.range(whole.clone());
        let is_usable = |n: u128| {
            self.usable
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&n))
        };
        let usable: u128 = self.usable.iter().map(|(from, to)| to - from + 1).sum();
        let used = of_pool().filter(|a| is_usable(number(**a))).count() as u128;
        Use {
            pool: self.prefix,
            size,
            taken: of_pool().count() as u128,
            reserved: size - usable,
            free: usable - used,
        }
    }
}

/// What is left of a range without what lies from `from` to `to`.
fn without((first, last): (u128, u128), from: u128, to: u128) -> Vec<(u128, u128)> {
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
            .map(|_| ipam.take(family).unwrap().to_string())
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
        let error = ipam.take(Family::V4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no IPv4 address is free: of 10.0.0.0/29 5 are taken and 3 reserved; \
             remove workloads, or add a network to ipam-pool"
        );
        assert_eq!(ipam.take(Family::V6), Err(IpamError::NoPool(Family::V6)));
        let taken = "10.0.0.4".parse().unwrap();
        assert_eq!(ipam.claim(taken), Err(IpamError::Taken(taken)));
    }

    #[test]
    fn a_released_address_is_not_given_again_soon() {
        let mut ipam = Ipam::new(&pools(&["fd00::/64"]), &[]);
        let first = ipam.take(Family::V6).unwrap();
        ipam.release(first);
        assert_ne!(ipam.take(Family::V6).unwrap(), first);
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
            ipam.take(Family::V4),
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
        let used = |pool: &str, taken, reserved, free| Use {
            pool: pool.parse().unwrap(),
            size: 8,
            taken,
            reserved,
            free,
        };
        assert_eq!(
            ipam.uses()[..2],
            [used("10.0.0.0/29", 4, 5, 0), used("10.0.1.0/29", 2, 6, 0)]
        );
        assert_eq!(ipam.pool_of(given[4].parse().unwrap()), Some(of[1]));
        let gives = |address: &str| ipam.gives(address.parse().unwrap());
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
