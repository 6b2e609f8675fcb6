//! Recent holders of released addresses.
//!
//! The former holder of an address is known for a minute; memory is bounded.

use palisade_model::EndpointId;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// How long a released address is remembered.
const RETENTION: Duration = Duration::from_secs(60);
/// The maximum number of remembered addresses.
const MAX_ENTRIES: usize = 16_384;

/// Addresses that endpoints released.
#[derive(Default)]
pub(super) struct AddressHistory {
    /// The former holders of each address, with the time of release; oldest first.
    holders: BTreeMap<IpAddr, VecDeque<(EndpointId, Duration)>>,
    order: VecDeque<(IpAddr, Duration)>,
}

impl AddressHistory {
    /// Records that an endpoint released an address.
    pub(super) fn record_release(&mut self, address: IpAddr, from: EndpointId, now: Duration) {
        self.holders
            .entry(address)
            .or_default()
            .push_back((from, now));
        self.order.push_back((address, now));
        while let Some((address, until)) = self.order.front().copied() {
            if until + RETENTION >= now && self.order.len() <= MAX_ENTRIES {
                break;
            }
            self.order.pop_front();
            if let Some(holders) = self.holders.get_mut(&address) {
                holders.pop_front();
                if holders.is_empty() {
                    self.holders.remove(&address);
                }
            }
        }
    }

    /// The holder of an address at a time, if the address has been released since.
    pub(super) fn holder_at(&self, address: IpAddr, at: Duration) -> Option<&EndpointId> {
        let mut holders = self.holders.get(&address)?.iter();
        holders.find(|(_, until)| at <= *until).map(|(id, _)| id)
    }

    /// Whether an endpoint released an address a short time ago.
    pub(super) fn was_released(&self, address: IpAddr) -> bool {
        self.holders.contains_key(&address)
    }

    /// The last holder of an address.
    pub(super) fn last_holder(&self, address: IpAddr) -> Option<&EndpointId> {
        Some(&self.holders.get(&address)?.back()?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_for_a_while() {
        let id = |name: &str| palisade_node::workload_store::pod_id("shop", name);
        let address = IpAddr::from([10, 0, 0, 1]);
        let at = Duration::from_secs;
        let mut retired = AddressHistory::default();
        retired.record_release(address, id("a"), at(10));
        retired.record_release(address, id("b"), at(20));
        assert_eq!(retired.holder_at(address, at(5)), Some(&id("a")));
        assert_eq!(retired.holder_at(address, at(15)), Some(&id("b")));
        assert_eq!(retired.holder_at(address, at(25)), None);
        assert_eq!(retired.last_holder(address), Some(&id("b")));
        retired.record_release([10, 0, 0, 2].into(), id("c"), at(75));
        assert_eq!(retired.holder_at(address, at(5)), Some(&id("b")));
        retired.record_release([10, 0, 0, 2].into(), id("c"), at(100));
        assert_eq!(retired.last_holder(address), None);
    }
}
