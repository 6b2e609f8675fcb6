//! What the proxy did, in numbers.
//!
//! Promises: a snapshot is of one moment; numbers only grow, except for the sockets and connections that are open.
//!
//! Never: names a client, a server or a domain name.

use std::sync::{Arc, Mutex, PoisonError};

/// What the proxy did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Times that the file of rule sets changed and could not be read.
    pub broken_rule_sets: u64,
}

/// Queries by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounts {
    /// Passed on to their server.
    pub allowed: u64,
    /// Refused since the rule set does not have the name.
    pub refused: u64,
    /// Refused since there is no rule set of that number.
    pub unknown_rule_set: u64,
    /// Messages that are no query; over TCP the connection is closed.
    pub malformed: u64,
    /// Queries that a bound made the proxy forget while they waited.
    pub forgotten: u64,
}

/// Answers by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Passed on to their client.
    pub released: u64,
    /// Of these, released when the hold was over, without the agent's confirmation.
    pub held_too_long: u64,
    /// Of these, not readable, so that they teach nothing.
    pub unreadable: u64,
    /// Dropped: nobody waits for them.
    pub foreign: u64,
    /// Dropped: they could not be sent.
    pub unsent: u64,
}

/// Offers to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
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
