//! The sockets towards servers, by exchange, bounded.
//!
//! Promises: of too many the one that was used longest ago goes; of a client that has too many it is one of its own, and
//! of too many in all it is one of the client that has most.
//!
//! Never: closes a socket otherwise: what it gives back is closed by being dropped.

use crate::config::UpstreamLimits;
use palisade_dns::Exchange;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Sockets by exchange.
#[derive(Debug)]
pub(crate) struct UpstreamTable<S> {
    limits: UpstreamLimits,
    /// With the number of the last use.
    sockets: BTreeMap<Exchange, (u64, S)>,
    /// By client, the one that was used longest ago first.
    clients: BTreeMap<IpAddr, BTreeSet<(u64, Exchange)>>,
    next_use: u64,
}

impl<S> UpstreamTable<S> {
    /// No sockets.
    pub(crate) fn new(limits: UpstreamLimits) -> Self {
        UpstreamTable {
            limits,
            sockets: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_use: 0,
        }
    }

    /// The socket of an exchange, which is used now.
    pub(crate) fn find(&mut self, exchange: Exchange) -> Option<&S> {
        let number = self.next_use;
        let (last_use, socket) = self.sockets.get_mut(&exchange)?;
        self.next_use += 1;
        let uses = self.clients.entry(exchange.client.ip()).or_default();
        uses.remove(&(*last_use, exchange));
        uses.insert((number, exchange));
        *last_use = number;
        Some(socket)
    }

    /// Adds the socket of an exchange that has none; returns those that are too many.
    pub(crate) fn insert(&mut self, exchange: Exchange, socket: S) -> Vec<S> {
        let mut removed: Vec<S> = self.remove(exchange).into_iter().collect();
        let number = self.next_use;
        self.next_use += 1;
        self.sockets.insert(exchange, (number, socket));
        let client = exchange.client.ip();
        let uses = self.clients.entry(client).or_default();
        uses.insert((number, exchange));
        if uses.len() > self.limits.sockets_of_client {
            removed.extend(self.remove_oldest(client));
        }
        if self.sockets.len() > self.limits.sockets {
            let busiest = self.clients.iter().max_by_key(|(_, uses)| uses.len());
            if let Some(busiest) = busiest.map(|(client, _)| *client) {
                removed.extend(self.remove_oldest(busiest));
            }
        }
        removed
    }

    /// Removes the socket of an exchange.
    pub(crate) fn remove(&mut self, exchange: Exchange) -> Option<S> {
        let (last_use, socket) = self.sockets.remove(&exchange)?;
        let client = exchange.client.ip();
        if let Some(uses) = self.clients.get_mut(&client) {
            uses.remove(&(last_use, exchange));
            if uses.is_empty() {
                self.clients.remove(&client);
            }
        }
        Some(socket)
    }

    /// How many sockets there are.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    fn remove_oldest(&mut self, client: IpAddr) -> Option<S> {
        let (_, exchange) = self.clients.get(&client)?.first().copied()?;
        self.remove(exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;

    fn exchange(client: u8, port: u16) -> Exchange {
        Exchange {
            client: SocketAddr::from(([10, 0, 0, client], port)),
            server: SocketAddr::from(([10, 96, 0, 10], 53)),
        }
    }

    #[test]
    fn who_has_most_loses_what_it_used_longest_ago() {
        let mut table = UpstreamTable::new(UpstreamLimits {
            sockets_of_client: 3,
            sockets: 4,
            idle: Duration::ZERO,
        });
        for port in 1..=3 {
            assert!(table.insert(exchange(1, port), port).is_empty());
        }
        assert_eq!(table.find(exchange(1, 1)), Some(&1));
        assert_eq!(table.insert(exchange(1, 4), 4), [2], "the client's bound");
        assert!(table.insert(exchange(2, 9), 9).is_empty());
        assert_eq!(table.insert(exchange(2, 8), 8), [3], "the bound of all");
        assert_eq!(table.insert(exchange(2, 8), 7), [8], "the same exchange");
        assert_eq!((table.len(), table.find(exchange(1, 2))), (4, None));
        for (client, port, socket) in [(1, 1, 1), (1, 4, 4), (2, 9, 9), (2, 8, 7)] {
            assert_eq!(table.remove(exchange(client, port)), Some(socket));
        }
        assert!(table.sockets.is_empty() && table.clients.is_empty());
    }
}
