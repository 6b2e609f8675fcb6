//! Queries that wait for their response.

use crate::Query;
use palisade_names::AnsweredAddress;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How many queries wait, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingLimits {
    /// After which time without a response a query is forgotten: a response that comes later teaches nothing.
    pub timeout: Duration,
    /// The queries of one client that wait at the same time.
    pub queries_of_client: usize,
    /// The queries that wait at the same time.
    pub queries: usize,
}

impl Default for PendingLimits {
    fn default() -> Self {
        PendingLimits {
            timeout: Duration::from_secs(10),
            queries_of_client: 512,
            queries: 16_384,
        }
    }
}

/// Both ends of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    /// Who asked.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
}

/// A query that waits. Several with one identifier, of one client to one server, are told apart by the question.
#[derive(Clone, Debug)]
struct PendingQuery {
    query: Query,
    /// Milliseconds since the Unix epoch.
    since: u64,
}

type PendingKey = (Exchange, u16);

/// The queries that were passed on and have no response yet.
///
/// Promises: a response is taken only from the server that was asked, to the client that asked, with the identifier and
/// the question of the query, once; a client that asks too much loses its own oldest queries.
///
/// Never: decides whether a query is passed on.
#[derive(Clone, Debug)]
pub struct PendingQueries {
    limits: PendingLimits,
    queries: BTreeMap<PendingKey, Vec<PendingQuery>>,
    /// By client, the oldest first.
    clients: BTreeMap<IpAddr, BTreeSet<(u64, PendingKey)>>,
    /// All, the oldest first.
    ages: BTreeSet<(u64, PendingKey)>,
    dropped: u64,
}

impl PendingQueries {
    /// No queries.
    #[must_use]
    pub fn new(limits: PendingLimits) -> Self {
        PendingQueries {
            limits,
            queries: BTreeMap::new(),
            clients: BTreeMap::new(),
            ages: BTreeSet::new(),
            dropped: 0,
        }
    }

    /// Adds a query that is passed on now. One that is there already was sent again, and waits from now on.
    pub fn insert(&mut self, exchange: Exchange, query: Query, now: u64) {
        let key = (exchange, query.id());
        if let Some(waiting) = self.queries.get_mut(&key) {
            let same = waiting.iter().position(|pending| pending.query == query);
            if let Some(at) = same {
                let since = waiting.remove(at).since;
                self.forget_age(key, since);
            }
        }
        // Two of one key at one time are one entry of the ages: it goes with the last of them.
        let waiting = self.queries.entry(key).or_default();
        waiting.push(PendingQuery { query, since: now });
        self.ages.insert((now, key));
        let of_client = self.clients.entry(exchange.client.ip()).or_default();
        of_client.insert((now, key));
        self.enforce_limits(exchange.client.ip());
    }

    /// Takes the query that a response answers, and the addresses of the response; `None` if no query that waits has
    /// this answer.
    pub fn take(
        &mut self,
        exchange: Exchange,
        response: &[u8],
    ) -> Option<(Query, Vec<AnsweredAddress>)> {
        let id = u16::from_be_bytes([*response.first()?, *response.get(1)?]);
        let key = (exchange, id);
        let waiting = self.queries.get_mut(&key)?;
        let read = |(at, pending): (usize, &PendingQuery)| {
            Some((at, pending.query.read_response(response).ok()?))
        };
        let (at, addresses) = waiting.iter().enumerate().find_map(read)?;
        let PendingQuery { query, since } = waiting.remove(at);
        self.forget_age(key, since);
        Some((query, addresses))
    }

    /// Forgets the queries that had no response in time.
    pub fn expire(&mut self, now: u64) {
        let timeout = u64::try_from(self.limits.timeout.as_millis()).unwrap_or(u64::MAX);
        while let Some((since, key)) = self.ages.first().copied() {
            if since.saturating_add(timeout) > now {
                break;
            }
            self.remove(key, since);
        }
    }

    /// How many queries wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queries.values().map(Vec::len).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// How many queries were forgotten since there were too many.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn enforce_limits(&mut self, client: IpAddr) {
        while let Some(of_client) = self.clients.get(&client)
            && of_client.len() > self.limits.queries_of_client
            && let Some((since, key)) = of_client.first().copied()
        {
            self.dropped += self.remove(key, since);
        }
        while self.ages.len() > self.limits.queries
            && let Some((since, key)) = self.oldest_of_the_busiest()
        {
            self.dropped += self.remove(key, since);
        }
    }

    /// The oldest query of the client with the most: who floods pays.
    fn oldest_of_the_busiest(&self) -> Option<(u64, PendingKey)> {
        let busiest = self
            .clients
            .values()
            .max_by_key(|of_client| of_client.len())?;
        busiest.first().copied()
    }

    /// Removes the queries of a key that wait since a time; returns how many.
    fn remove(&mut self, key: PendingKey, since: u64) -> u64 {
        let mut removed = 0;
        if let Some(waiting) = self.queries.get_mut(&key) {
            let before = waiting.len();
            waiting.retain(|pending| pending.since != since);
            removed = (before - waiting.len()) as u64;
        }
        self.forget_age(key, since);
        removed
    }

    /// Removes what is known of a key at a time, if no query of it waits since then.
    fn forget_age(&mut self, key: PendingKey, since: u64) {
        let waiting = self
            .queries
            .get(&key)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if waiting.is_empty() {
            self.queries.remove(&key);
        } else if waiting.iter().any(|pending| pending.since == since) {
            return;
        }
        self.ages.remove(&(since, key));
        let client = key.0.client.ip();
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.remove(&(since, key));
            if of_client.is_empty() {
                self.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests;
