//! The threads of the agent that serve names: they read the answers of the DNS proxy, and list connections.
//!
//! Promises: they send to the core, and the core never waits for them. Never: joined at shutdown: they wait for the
//! proxy and for the core only.

use crate::core::{Core, CoreEvent};
use crate::core_queue::CoreHandle;
use crate::dns_proxy::proxy_sockets;
use crate::run_error::RunError;
use palisade_name_manager::answer_link::follow_answers;
use palisade_name_manager::connection_list::{ConnectionQuery, serve_queries};
use palisade_network::network_driver::NetworkDriverError;
use palisade_proxy::AnswerListener;
use palisade_sys::netns::NetNs;

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
    let netns = NetNs::current().map_err(NetworkDriverError::from)?;
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
