//! What the proxy is told at its start: ports, marks, paths and bounds.
//!
//! Promises: each bound has a default that serves a node with hundreds of workloads.
//!
//! Never: reads a file or a variable; whoever starts the proxy does.

use palisade_dns::PendingLimits;
use std::path::PathBuf;
use std::time::Duration;

/// Parameters of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The port on the loopback addresses to which packets are redirected, for UDP and TCP of both families; 0 has the
    /// kernel choose one for each.
    pub port: u16,
    /// The bits of a packet's mark that are the number of its rule set.
    pub mark_mask: u32,
    /// By how many bits that number is shifted to the left in the mark.
    pub mark_shift: u32,
    /// The mark of packets towards servers.
    pub upstream_mark: u32,
    /// The mark of packets towards clients.
    pub answer_mark: u32,
    /// The file of rule sets.
    pub rule_sets: PathBuf,
    /// The socket of the agent that answers are offered to.
    pub agent_socket: PathBuf,
    /// The longest time for which an answer waits for the agent.
    pub hold: Duration,
    /// How a refused query is answered.
    pub reject_response_code: RejectResponseCode,
    /// Bounds.
    pub limits: ProxyLimits,
}

impl Config {
    /// The number of the rule set in a mark.
    #[must_use]
    pub fn rule_set_number(&self, mark: u32) -> u32 {
        (mark & self.mark_mask)
            .checked_shr(self.mark_shift)
            .unwrap_or_default()
    }
}

/// The response code of a refused query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectResponseCode {
    /// REFUSED.
    #[default]
    Refused,
    /// NXDOMAIN, for resolvers that ask no further after a refusal.
    NonexistentDomain,
}

/// Bounds of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Of queries over UDP that wait for their answer.
    pub pending: PendingLimits,
    /// Of sockets towards servers, for UDP.
    pub upstream: UpstreamLimits,
    /// Of connections over TCP.
    pub tcp: TcpLimits,
    /// Of answers that are offered to the agent.
    pub teaching: TeachingLimits,
}

/// How many sockets towards servers there are. Each takes a descriptor: the process raises its limit of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Those of one client address.
    pub sockets_of_client: usize,
    /// All.
    pub sockets: usize,
    /// After which time without a query that waits a socket is closed.
    pub idle: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        UpstreamLimits {
            sockets_of_client: 512,
            sockets: 8_192,
            idle: Duration::from_secs(2),
        }
    }
}

/// How many connections over TCP there are. Each takes two descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Those of one client address.
    pub connections_of_client: usize,
    /// All.
    pub connections: usize,
    /// Queries of one connection that wait at the same time; the proxy reads no further meanwhile.
    pub pending: usize,
    /// After which time without progress a connection is closed.
    pub idle: Duration,
}

impl Default for TcpLimits {
    fn default() -> Self {
        TcpLimits {
            connections_of_client: 32,
            connections: 512,
            pending: 16,
            idle: Duration::from_secs(10),
        }
    }
}

/// How many answers wait for the agent, and how many confirmed ones are remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeachingLimits {
    /// Answers that are held at the same time; further ones are released at once.
    pub answers: usize,
    /// Offers that the agent has read and not confirmed; further ones wait.
    pub unconfirmed_offers: usize,
    /// Offers that wait for the agent. The oldest go first.
    pub waiting_offers: usize,
    /// Addresses in the offers that wait for the agent.
    pub waiting_addresses: usize,
    /// Names, of a client and a server, whose confirmed addresses are remembered.
    pub confirmed_names: usize,
    /// The longest time between two attempts to reach the agent.
    pub reconnect: Duration,
}

impl Default for TeachingLimits {
    fn default() -> Self {
        TeachingLimits {
            answers: 1_024,
            unconfirmed_offers: 256,
            waiting_offers: 4_096,
            waiting_addresses: 65_536,
            confirmed_names: 16_384,
            reconnect: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parameters for tests.
    pub(crate) fn sample_config() -> Config {
        Config {
            port: 0,
            mark_mask: 0xff00,
            mark_shift: 8,
            upstream_mark: 0x1,
            answer_mark: 0x2,
            rule_sets: PathBuf::from("/nonexistent/rule-sets.json"),
            agent_socket: PathBuf::from("/nonexistent/agent.sock"),
            hold: Duration::from_millis(100),
            reject_response_code: RejectResponseCode::Refused,
            limits: ProxyLimits::default(),
        }
    }

    #[test]
    fn a_mark_has_a_number() {
        let mut config = sample_config();
        assert_eq!(config.rule_set_number(0xab_12_cd), 0x12);
        config.mark_shift = 32;
        assert_eq!(config.rule_set_number(0xab_12_cd), 0);
    }
}
