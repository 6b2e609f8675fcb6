//! The DNS proxy beside the agent: where the two find each other, and what the proxy is told.
//!
//! Promises: agent and proxy of one configuration have the same paths and marks. Never: starts the proxy, which has to
//! outlive the agent.

use crate::driver::set_proxy_marks;
use palisade_config::{ApiConfig, Config, DnsRefusal, StateConfig};
use palisade_name_manager::rule_set_store::RULE_SET_FILE;
use palisade_proxy::{ProxyLimits, RejectResponseCode};
use std::path::PathBuf;
use std::time::Duration;

/// The name of the socket at which the agent takes answers, beside that of its API.
const ANSWER_SOCKET: &str = "dns-answers.sock";
/// The name of the socket at which a proxy hands its listening sockets to its successor, in the same directory.
const HANDOVER_SOCKET: &str = "dns-handover.sock";
/// The longest time for which an answer waits for the agent: as long as a first packet that is lost would take to be sent
/// again. An agent that is busy, or whose kernel is, needs more than the few milliseconds that are usual; for one that is
/// gone nothing waits.
const HOLD: Duration = Duration::from_secs(1);

/// The file of rule sets.
pub(crate) fn rule_set_path(state: &StateConfig) -> PathBuf {
    state.dir.join(RULE_SET_FILE)
}

/// The sockets of agent and proxy, beside that of the API.
pub(crate) fn proxy_sockets(api: &ApiConfig) -> [PathBuf; 2] {
    [ANSWER_SOCKET, HANDOVER_SOCKET].map(|name| api.socket.with_file_name(name))
}

/// Where a proxy of this configuration hands its listening sockets to its successor.
pub fn handover_socket(config: &Config) -> PathBuf {
    let [_, handover] = proxy_sockets(&config.api);
    handover
}

/// What the proxy of an agent with this configuration is told.
pub fn proxy_config(config: &Config) -> palisade_proxy::Config {
    let [agent_socket, _] = proxy_sockets(&config.api);
    let mut proxy = palisade_proxy::Config {
        port: 0,
        mark_mask: 0,
        mark_shift: 0,
        upstream_mark: 0,
        answer_mark: 0,
        rule_sets: rule_set_path(&config.state),
        agent_socket,
        hold: HOLD,
        reject_response_code: match config.dns.refusal {
            DnsRefusal::Refused => RejectResponseCode::Refused,
            DnsRefusal::NonexistentDomain => RejectResponseCode::NonexistentDomain,
        },
        limits: ProxyLimits::default(),
    };
    set_proxy_marks(&mut proxy);
    proxy
}
