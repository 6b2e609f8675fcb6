//! The process of the DNS proxy, `palisade proxy`: takes over from a predecessor, serves, hands over to a successor.
//!
//! Promises: it needs no agent, and no directory but those of the sockets and of the rule sets; an upgrade loses no
//! query. Never: changes a rule or a route of the kernel.

use crate::dns_proxy::{handover_socket, proxy_config};
use crate::service_manager::ServiceManager;
use palisade_config::Config;
use palisade_proxy::{HandoverError, HandoverListener, Listeners, Proxy, ProxyError};
use palisade_text::error_chain;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How long the queries that wait are waited for when another process serves.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Why the proxy did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProxyProcessError {
    /// The configuration has no proxy.
    #[error("the parameter dns-proxy is off: nothing is redirected to a proxy")]
    Disabled,
    /// The proxy cannot start.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The listening sockets cannot be handed over.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// A thread, the runtime or a signal handler could not be started.
    #[error("starting {0}")]
    Thread(&'static str, #[source] io::Error),
}

/// Serves until SIGTERM or SIGINT, or until a successor serves.
///
/// # Errors
/// See [`ProxyProcessError`].
pub fn run(config: &Config, manager: &ServiceManager) -> Result<(), ProxyProcessError> {
    if !config.dns.is_proxied {
        return Err(ProxyProcessError::Disabled);
    }
    if let Err(error) = palisade_sys::descriptors::raise_limit() {
        tracing::warn!(%error, "raising the limit on file descriptors failed");
    }
    let (proxy_config, handover_path) = (proxy_config(config), handover_socket(config));
    let (listeners, predecessor) = match palisade_proxy::take_over(&handover_path) {
        Ok(Some((listeners, predecessor))) => (listeners, Some(predecessor)),
        Ok(None) => (palisade_proxy::bind(&proxy_config)?, None),
        Err(error) => {
            // It is stopped or hangs: its sockets are closed with it, or the port is taken.
            tracing::warn!(error = %error_chain(&error), "the proxy before does not hand over");
            (palisade_proxy::bind(&proxy_config)?, None)
        }
    };
    let own = listeners.try_clone().map_err(ProxyError::Listener)?;
    let proxy = Proxy::start(proxy_config, own)?;
    let handover = HandoverListener::bind(&handover_path)?;
    if let Some(predecessor) = predecessor {
        predecessor.release();
        tracing::info!("the DNS proxy has taken over from the one before");
    } else {
        tracing::info!("the DNS proxy serves");
    }
    manager.notify_serving();
    let stop = wait_for_stop(handover, listeners)?;
    match stop {
        StopReason::Signal => proxy.stop(),
        StopReason::Successor => {
            tracing::info!("another DNS proxy serves; this one ends");
            proxy.drain(DRAIN_PATIENCE);
        }
    }
    Ok(())
}

/// Why the proxy ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Signal,
    Successor,
}

fn wait_for_stop(
    handover: HandoverListener,
    listeners: Listeners,
) -> Result<StopReason, ProxyProcessError> {
    let (handed_over, successor) = oneshot::channel();
    let hand_over = move || match handover.hand_over(&listeners) {
        // The receiver is there until the process ends.
        Ok(()) => drop(handed_over.send(())),
        Err(error) => {
            tracing::warn!(%error, "waiting for the next DNS proxy failed; it cannot take over");
        }
    };
    std::thread::Builder::new()
        .name("dns-handover".to_owned())
        .spawn(hand_over)
        .map_err(|error| ProxyProcessError::Thread("the thread of the handover", error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ProxyProcessError::Thread("the runtime", error))?;
    runtime.block_on(async {
        let listen_for = |kind| {
            signal(kind).map_err(|error| ProxyProcessError::Thread("signal handling", error))
        };
        let mut terminate = listen_for(SignalKind::terminate())?;
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        Ok(tokio::select! {
            _ = terminate.recv() => StopReason::Signal,
            _ = interrupt.recv() => StopReason::Signal,
            Ok(()) = successor => StopReason::Successor,
        })
    })
}
