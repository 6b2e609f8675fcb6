//! Whose an address lately was.
//!
//! Promises: an address that an endpoint gave up is known for a minute; bounded.

use palisade_model::EndpointId;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// How long a retired address is known.
const KEPT: Duration = Duration::from_secs(60);
/// How many are known at most.
const MOST: usize = 16_384;

/// Addresses that endpoints gave up.
#[derive(Default)]
pub(super) struct Retired {
    /// By address: who had it, until when; oldest first.
    held: BTreeMap<IpAddr, VecDeque<(EndpointId, Duration)>>,
    order: VecDeque<(IpAddr, Duration)>,
}

impl Retired {
    /// An endpoint has an address no more.
    pub(super) fn retire(&mut self, address: IpAddr, from: EndpointId, now: Duration) {
        self.held.entry(address).or_default().push_back((from, now));
        self.order.push_back((address, now));
        while let Some((address, until)) = self.order.front().copied() {
            if until + KEPT >= now && self.order.len() <= MOST {
                break;
            }
            self.order.pop_front();
            if let Some(held) = self.held.get_mut(&address) {
                held.pop_front();
                if held.is_empty() {
                    self.held.remove(&address);
                }
            }
        }
    }

    /// Who had an address at a time, if he has given it up since.
    pub(super) fn holder(&self, address: IpAddr, at: Duration) -> Option<&EndpointId> {
        let mut held = self.held.get(&address)?.iter();
        held.find(|(_, until)| at <= *until).map(|(id, _)| id)
    }

    /// Who had an address last.
    pub(super) fn last(&self, address: IpAddr) -> Option<&EndpointId> {
        Some(&self.held.get(&address)?.back()?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_for_a_while() {
        let id = |name: &str| crate::record::pod_id("shop", name);
        let address = IpAddr::from([10, 0, 0, 1]);
        let at = Duration::from_secs;
        let mut retired = Retired::default();
        retired.retire(address, id("a"), at(10));
        retired.retire(address, id("b"), at(20));
        assert_eq!(retired.holder(address, at(5)), Some(&id("a")));
        assert_eq!(retired.holder(address, at(15)), Some(&id("b")));
        assert_eq!(retired.holder(address, at(25)), None);
        assert_eq!(retired.last(address), Some(&id("b")));
        retired.retire([10, 0, 0, 2].into(), id("c"), at(75));
        assert_eq!(retired.holder(address, at(5)), Some(&id("b")));
        retired.retire([10, 0, 0, 2].into(), id("c"), at(100));
        assert_eq!(retired.last(address), None);
    }
}
