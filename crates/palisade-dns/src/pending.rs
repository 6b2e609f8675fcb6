//! Queries that wait for their response.

use crate::Query;
use hickory_proto::op::Message;
use palisade_names::AnsweredAddress;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The bytes of a message's header, and the flag of a response in its third. Source: RFC 1035, section 4.1.1.
const HEADER: usize = 12;
const RESPONSE_FLAG: u8 = 0x80;

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

/// A query that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedQuery {
    /// The query.
    pub query: Query,
    /// How long the proxy had it before.
    pub delay: Duration,
}

impl From<Query> for PassedQuery {
    /// Passed on at once.
    fn from(query: Query) -> Self {
        PassedQuery {
            query,
            delay: Duration::ZERO,
        }
    }
}

/// A query that waits. Several with one identifier, of one client to one server, are told apart by the question.
#[derive(Clone, Debug)]
struct PendingQuery {
    passed: PassedQuery,
    age: QueryAge,
}

/// When a query was passed on, in milliseconds since the Unix epoch, and its number among all: no two are equal.
type QueryAge = (u64, u64);

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
    clients: BTreeMap<IpAddr, BTreeSet<(QueryAge, PendingKey)>>,
    /// All, the oldest first.
    ages: BTreeSet<(QueryAge, PendingKey)>,
    next_number: u64,
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
            next_number: 0,
            dropped: 0,
        }
    }

    /// Adds a query that is passed on now. One that is there already was sent again, and waits from now on.
    pub fn insert(&mut self, exchange: Exchange, passed: impl Into<PassedQuery>, now: u64) {
        let passed = passed.into();
        let key = (exchange, passed.query.id());
        let waiting = self.queries.get(&key).into_iter().flatten();
        let earlier = waiting.filter(|pending| pending.passed.query == passed.query);
        if let Some(age) = earlier.map(|pending| pending.age).next() {
            self.remove(key, age);
        }
        let age = (now, self.next_number);
        self.next_number += 1;
        let waiting = self.queries.entry(key).or_default();
        waiting.push(PendingQuery { passed, age });
        self.ages.insert((age, key));
        let of_client = self.clients.entry(exchange.client.ip()).or_default();
        of_client.insert((age, key));
        self.enforce_limits(exchange.client.ip());
    }

    /// Takes the query that a response answers, and the addresses of the response; `None` if no query that waits has
    /// this answer.
    pub fn take(
        &mut self,
        exchange: Exchange,
        response: &[u8],
    ) -> Option<(PassedQuery, Vec<AnsweredAddress>)> {
        let response = Message::from_vec(response).ok()?;
        let key = (exchange, response.metadata.id);
        let mut waiting = self.queries.get(&key)?.iter();
        let (age, addresses) = waiting.find_map(|pending| {
            let addresses = pending.passed.query.find_answer(&response).ok()?;
            Some((pending.age, addresses))
        })?;
        Some((self.remove(key, age)?, addresses))
    }

    /// Takes the oldest query that a response answers by its identifier alone, since it cannot be read further; `None` if
    /// it can, or no query waits for it. A client may understand what this program does not.
    pub fn take_unreadable(&mut self, exchange: Exchange, response: &[u8]) -> Option<PassedQuery> {
        let [high, low, flags, ..] = *response else {
            return None;
        };
        let is_response = flags & RESPONSE_FLAG != 0;
        if !is_response || response.len() < HEADER || Message::from_vec(response).is_ok() {
            return None;
        }
        let key = (exchange, u16::from_be_bytes([high, low]));
        let age = self.queries.get(&key)?.first()?.age;
        self.remove(key, age)
    }

    /// Forgets the queries that had no response in time.
    pub fn expire(&mut self, now: u64) {
        let timeout = u64::try_from(self.limits.timeout.as_millis()).unwrap_or(u64::MAX);
        while let Some((age, key)) = self.ages.first().copied() {
            if age.0.saturating_add(timeout) > now {
                break;
            }
            self.remove(key, age);
        }
    }

    /// How many queries wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ages.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    /// How many queries were forgotten since there were too many.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn enforce_limits(&mut self, client: IpAddr) {
        while let Some(of_client) = self.clients.get(&client)
            && of_client.len() > self.limits.queries_of_client
            && let Some((age, key)) = of_client.first().copied()
        {
            self.remove(key, age);
            self.dropped += 1;
        }
        while self.ages.len() > self.limits.queries
            && let Some((age, key)) = self.oldest_of_the_busiest()
        {
            self.remove(key, age);
            self.dropped += 1;
        }
    }

    /// The oldest query of the client with the most: who floods pays.
    fn oldest_of_the_busiest(&self) -> Option<(QueryAge, PendingKey)> {
        let busiest = self
            .clients
            .values()
            .max_by_key(|of_client| of_client.len())?;
        busiest.first().copied()
    }

    /// Removes a query, and returns it.
    fn remove(&mut self, key: PendingKey, age: QueryAge) -> Option<PassedQuery> {
        self.ages.remove(&(age, key));
        let client = key.0.client.ip();
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.remove(&(age, key));
            if of_client.is_empty() {
                self.clients.remove(&client);
            }
        }
        let waiting = self.queries.get_mut(&key)?;
        let at = waiting.iter().position(|pending| pending.age == age)?;
        let removed = waiting.remove(at);
        if waiting.is_empty() {
            self.queries.remove(&key);
        }
        Some(removed.passed)
    }
}

#[cfg(test)]
mod tests;
