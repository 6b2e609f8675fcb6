//! How long addresses stay, and how many there may be.

use core::time::Duration;

/// The parameters of a [`NameCache`](crate::NameCache).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameLimits {
    /// The shortest time that an address stays, whatever its TTL.
    pub min_ttl: Duration,
    /// The longest TTL that is taken: a longer one counts as this.
    pub max_ttl: Duration,
    /// The time that an address stays beyond its TTL: clients use an answer a little longer than they should.
    pub grace: Duration,
    /// After which time an expired address that a flow uses is looked at again.
    pub recheck: Duration,
    /// The addresses of one name that one workload may hold.
    pub addresses_of_name: usize,
    /// The addresses, of all names, that one workload may hold; the same address counts for each of its names.
    pub addresses_of_workload: usize,
    /// The addresses that all workloads may hold together.
    pub addresses: usize,
}

impl NameLimits {
    /// How long an address of an answer with this TTL stays.
    pub fn life(&self, ttl: Duration) -> Duration {
        let ttl = ttl.clamp(self.min_ttl, self.max_ttl.max(self.min_ttl));
        ttl.saturating_add(self.grace)
    }
}

impl Default for NameLimits {
    fn default() -> Self {
        NameLimits {
            min_ttl: Duration::ZERO,
            max_ttl: Duration::from_secs(7 * 24 * 3600),
            grace: Duration::from_secs(60),
            recheck: Duration::from_secs(30),
            addresses_of_name: 1_000,
            addresses_of_workload: 10_000,
            addresses: 100_000,
        }
    }
}
