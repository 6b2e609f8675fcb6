//! What the proxy did, in numbers.
//!
//! Promises: a snapshot is of one moment; numbers only grow, except for the sockets and connections that are open.
//!
//! Never: names a client, a server or a domain name.

use crate::latency::LatencyCounts;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// What the proxy did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyCounts {
    /// Queries, over UDP and TCP.
    pub queries: QueryCounts,
    /// Answers of servers, over UDP and TCP.
    pub answers: AnswerCounts,
    /// Offers to the agent.
    pub offers: OfferCounts,
    /// Sockets towards servers, for UDP.
    pub upstream: UpstreamCounts,
    /// Connections of clients over TCP.
    pub tcp: TcpCounts,
    /// The time that the proxy added, for queries that were answered.
    pub latency: LatencyCounts,
    /// Times that the file of rule sets changed and could not be read.
    pub broken_rule_sets: u64,
}

/// Queries by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueryCounts {
    /// Passed on to their server.
    pub allowed: u64,
    /// Refused since the rule set does not have the name.
    pub refused: u64,
    /// Refused since there is no rule set of that number.
    pub unknown_rule_set: u64,
    /// Messages that are no query; over TCP the connection is closed.
    pub malformed: u64,
    /// Queries over UDP that a bound made the proxy forget while they waited.
    pub forgotten: u64,
}

/// Answers by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerCounts {
    /// Passed on to their client.
    pub released: u64,
    /// Of these, released when the hold was over, without the agent's confirmation.
    pub held_too_long: u64,
    /// Of these, not readable, so that they teach nothing.
    pub unreadable: u64,
    /// Dropped: nobody waits for them.
    pub foreign: u64,
    /// Of these and of refusals, those over UDP that could not be sent.
    pub unsent: u64,
}

/// Offers to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferCounts {
    /// Sent to the agent; one that was sent again after a new connection counts again.
    pub sent: u64,
    /// Confirmed by the agent.
    pub confirmed: u64,
    /// Dropped since too many waited for the agent: their addresses are not known to it.
    pub dropped: u64,
    /// Connections to the agent.
    pub connections: u64,
}

/// Sockets towards servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamCounts {
    /// Opened.
    pub opened: u64,
    /// Open now.
    pub open: u64,
    /// Closed before their time by a bound.
    pub evicted: u64,
    /// Failures to open one or to send by it; the query is dropped.
    pub failed: u64,
}

/// Connections of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpCounts {
    /// The queries of all, by what became of them.
    pub queries: QueryCounts,
    /// Served.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Closed at once since a bound is reached.
    pub refused: u64,
    /// Closed at once since they have no mark: `net.ipv4.tcp_fwmark_accept` is off.
    pub unmarked: u64,
    /// Closed since nothing moved for too long.
    pub idle: u64,
}

impl ProxyCounts {
    /// Adds what another proxy counted between two reports. Nothing gets less, whatever the reports say; sockets and
    /// connections that are open are not added.
    pub fn add_growth(&mut self, before: &ProxyCounts, now: &ProxyCounts) {
        let (mut before, mut now) = (*before, *now);
        let ends = before
            .growing_numbers()
            .into_iter()
            .zip(now.growing_numbers());
        for (sum, (before, now)) in self.growing_numbers().into_iter().zip(ends) {
            *sum = sum.saturating_add(now.saturating_sub(*before));
        }
    }

    /// The numbers that only grow. Each field is named, so that none is forgotten.
    fn growing_numbers(&mut self) -> Vec<&mut u64> {
        let ProxyCounts {
            queries,
            answers,
            offers,
            upstream,
            tcp,
            latency,
            broken_rule_sets,
        } = self;
        let AnswerCounts {
            released,
            held_too_long,
            unreadable,
            foreign,
            unsent,
        } = answers;
        let OfferCounts {
            sent,
            confirmed,
            dropped,
            connections,
        } = offers;
        let UpstreamCounts {
            opened,
            open: _,
            evicted,
            failed,
        } = upstream;
        let TcpCounts {
            queries: tcp_queries,
            accepted,
            open: _,
            refused,
            unmarked,
            idle,
        } = tcp;
        let mut numbers = vec![released, held_too_long, unreadable, foreign, unsent];
        numbers.extend([sent, confirmed, dropped, connections]);
        numbers.extend([opened, evicted, failed, accepted, refused, unmarked, idle]);
        numbers.push(broken_rule_sets);
        numbers.extend(queries.numbers());
        numbers.extend(tcp_queries.numbers());
        numbers.extend(latency.numbers());
        numbers
    }
}

impl QueryCounts {
    fn numbers(&mut self) -> [&mut u64; 5] {
        let QueryCounts {
            allowed,
            refused,
            unknown_rule_set,
            malformed,
            forgotten,
        } = self;
        [allowed, refused, unknown_rule_set, malformed, forgotten]
    }
}

/// Counts that several parts add to.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCounts(Arc<Mutex<ProxyCounts>>);

impl SharedCounts {
    /// Changes the counts.
    pub(crate) fn update(&self, change: impl FnOnce(&mut ProxyCounts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The counts now.
    pub(crate) fn snapshot(&self) -> ProxyCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_added_to_every_number_and_nothing_gets_less() {
        let mut counts = ProxyCounts::default();
        for (value, number) in (1..).zip(counts.growing_numbers()) {
            *number = value;
        }
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<ProxyCounts>(&text).unwrap(), counts);
        // All that is left out are the two that are open now.
        assert_eq!(text.matches(":0,").count(), 2, "{text}");
        let mut sum = ProxyCounts::default();
        sum.add_growth(&ProxyCounts::default(), &counts);
        assert_eq!(sum, counts);
        let more = ProxyCounts {
            broken_rule_sets: u64::MAX,
            ..ProxyCounts::default()
        };
        sum.add_growth(&counts, &more);
        counts.broken_rule_sets = u64::MAX;
        assert_eq!(sum, counts, "what is less adds nothing, and nothing wraps");
    }
}
