//! Who has an address, and its names, found once for all flows and packets of the address.
//!
//! Promises: an entry is of one revision of the objects and one state of this host's addresses; it
//! is not used for an address that had another holder a short time ago, where the time decides. Memory is bounded.
//!
//! Never: judges, or keeps a port.

use palisade_api::MonitorEndpoint;
use palisade_model::{EndpointId, Str};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The greatest number of addresses, about 400 bytes each.
const MAX_ENDS: usize = 4_096;

/// What is known of an address.
pub(super) struct AddressEnd {
    /// The workload that has it, or had it last.
    pub(super) workload: Option<AddressWorkload>,
    /// How lines name it: without a port, and without a Service.
    pub(super) names: MonitorEndpoint,
    /// Whether it is an address of this host.
    pub(super) is_of_host: bool,
}

/// A workload that has an address.
pub(super) struct AddressWorkload {
    pub(super) id: EndpointId,
    /// Whether the workload still exists.
    pub(super) exists: bool,
    /// Its interface, if it is a workload of this host.
    pub(super) interface: Option<Str>,
}

/// What is known of addresses in one state of the objects.
#[derive(Default)]
pub(super) struct EndCache(Mutex<CachedEnds>);

#[derive(Default)]
struct CachedEnds {
    /// The revision of the objects, and how often the addresses of this host changed.
    state: (u64, u64),
    ends: BTreeMap<IpAddr, Arc<AddressEnd>>,
}

impl EndCache {
    /// What is known of an address in a state of the objects and of this host; `find` finds it if it is not
    /// kept.
    pub(super) fn end(
        &self,
        state: (u64, u64),
        address: IpAddr,
        find: impl FnOnce() -> AddressEnd,
    ) -> Arc<AddressEnd> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.state != state || cached.ends.len() >= MAX_ENDS {
            cached.ends.clear();
            cached.state = state;
        }
        let end = cached.ends.entry(address);
        Arc::clone(end.or_insert_with(|| Arc::new(find())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str) -> AddressEnd {
        AddressEnd {
            workload: None,
            names: MonitorEndpoint {
                node: Some(name.into()),
                ..MonitorEndpoint::default()
            },
            is_of_host: false,
        }
    }

    #[test]
    fn an_end_is_found_once_in_each_state() {
        let cache = EndCache::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let node = |state, name| cache.end(state, address, || end(name)).names.node.clone();
        assert_eq!(node((1, 1), "a").as_deref(), Some("a"));
        assert_eq!(node((1, 1), "b").as_deref(), Some("a"));
        assert_eq!(node((2, 1), "c").as_deref(), Some("c"));
        assert_eq!(node((2, 2), "d").as_deref(), Some("d"));
    }

    #[test]
    fn memory_is_bounded() {
        let cache = EndCache::default();
        for number in 0..3 * MAX_ENDS as u32 {
            cache.end((1, 1), IpAddr::from(number.to_be_bytes()), || end("n"));
        }
        let cached = cache.0.lock().unwrap();
        assert!(cached.ends.len() <= MAX_ENDS);
    }
}
