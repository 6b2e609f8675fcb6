//! The DNS proxy beside the agent: where the two find each other, what the proxy is told, and the threads of the agent
//! that serve names.
//!
//! Promises: agent and proxy of one configuration have the same paths and marks. Never: starts the proxy, which has to
//! outlive the agent.

use crate::core::{Core, CoreEvent};
use crate::core_queue::CoreHandle;
use crate::driver::set_proxy_marks;
use crate::run_error::RunError;
use palisade_config::{ApiConfig, Config, DnsRefusal, StateConfig};
use palisade_name_manager::answer_link::follow_answers;
use palisade_name_manager::connection_list::{ConnectionQuery, serve_queries};
use palisade_name_manager::rule_set_store::RULE_SET_FILE;
use palisade_proxy::{AnswerListener, ProxyLimits, RejectResponseCode};
use palisade_sys::netns::NetNs;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the socket at which the agent takes answers, beside that of its API.
const ANSWER_SOCKET: &str = "dns-answers.sock";
/// The name of the socket at which a proxy hands its listening sockets to its successor, in the same directory.
const HANDOVER_SOCKET: &str = "dns-handover.sock";
/// The longest time for which an answer waits for the agent.
const HOLD: Duration = Duration::from_millis(100);

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

/// Starts the threads by which names are learnt and forgotten. They are not joined at shutdown: they wait for the proxy
/// and for the core only.
///
/// # Errors
/// If the socket cannot be made, or a thread does not start.
pub(crate) fn start_names(core: &mut Core, handle: &CoreHandle) -> Result<(), RunError> {
    if !core.config().dns.is_proxied || core.config().dry_run {
        return Ok(());
    }
    let [socket, _] = proxy_sockets(&core.config().api);
    let listener = AnswerListener::bind(&socket).map_err(RunError::AnswerSocket)?;
    let proxies = core.names.proxies.clone();
    let to_core = handle.clone();
    spawn("dns-answers", move || {
        let send = move |answer| to_core.send(CoreEvent::Answers(vec![answer]));
        // It ends with the process.
        let Ok(()) = follow_answers(&listener, &proxies, send);
    })?;
    let (query, questions) = ConnectionQuery::channel();
    core.names.set_connection_query(query);
    let netns =
        NetNs::current().map_err(palisade_network::network_driver::NetworkDriverError::from)?;
    let to_core = handle.clone();
    spawn("dns-connections", move || {
        serve_queries(&questions, &netns, |list| {
            to_core.send(CoreEvent::Connections(list))
        });
    })
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), RunError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(work).map(drop);
    started.map_err(|error| RunError::Thread(name, error))
}
