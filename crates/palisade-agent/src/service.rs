//! The service phase of the agent: opens the listeners, notifies the service manager, and waits for the
//! first reason to stop.
//!
//! Metrics and probes are served from the start, the socket once the source is in sync (or the wait
//! times out); the service manager is notified of readiness only after the first sync. At shutdown the
//! socket is removed first, then requests in progress finish; [`crate::run`] joins the threads.

use crate::core::Core;
use crate::core_queue::CoreHandle;
use crate::http::admission::AdmissionControl;
use crate::http::server::{self, ApiListener, ConnectionLimits};
use crate::http::sockets::ApiSockets;
use crate::run_error::RunError;
use crate::service_manager::ServiceManager;
use crate::supervisor::ThreadExit;
use palisade_workloads::cni_conf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

/// How long the socket waits for the source before it opens anyway.
const SYNC_WAIT: Duration = Duration::from_secs(30);

/// Serves until a stop signal, or until a thread of the agent ends.
///
/// # Errors
/// The unexpected end of a thread or listener.
pub async fn serve(
    handle: &CoreHandle,
    sockets: &mut ApiSockets,
    guard: &Arc<AdmissionControl>,
    manager: &ServiceManager,
    mut exits: UnboundedReceiver<ThreadExit>,
) -> Result<(), RunError> {
    let listen_for =
        |kind| signal(kind).map_err(|error| RunError::Thread("signal handling", error));
    let (mut terminate, mut interrupt) = (
        listen_for(SignalKind::terminate())?,
        listen_for(SignalKind::interrupt())?,
    );
    let hangups = listen_for(SignalKind::hangup())?;
    let (stop_serving, stopped) = watch::channel(false);
    let address = sockets.take_health_listener()?;
    let sockets = &*sockets;
    let health = serve_health(handle, guard, address, stopped.clone());
    let socket = serve_socket(handle, sockets, guard, manager, stopped);
    tokio::pin!(health, socket);
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        served = &mut health => served,
        served = &mut socket => served,
        () = manager.run_watchdog(handle) => Ok(()),
        () = reload_on_hangup(handle, manager, hangups) => Ok(()),
        Some(ThreadExit { name, reason: why }) = exits.recv() => Err(RunError::ThreadEnded {
            name,
            reason: why.unwrap_or_else(|| "it ended unexpectedly".to_owned()),
        }),
    };
    match &ended {
        Ok(()) => manager.notify_stopping("stopping; the kernel keeps enforcing"),
        Err(error) => manager.notify_stopping(&format!("{error}; the kernel keeps enforcing")),
    }
    handle
        .ask(|core| {
            let config = core.config();
            cni_conf::uninstall(&config.cni, &config.state, &config.api);
        })
        .await;
    // New clients must not find it while requests in progress finish.
    sockets.remove_socket();
    let _ = stop_serving.send(true);
    if ended.is_ok() {
        socket.await?;
    }
    ended
}

/// Requests a reread of the configuration on each SIGHUP; never returns before the core ends.
async fn reload_on_hangup(handle: &CoreHandle, manager: &ServiceManager, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP: rereading the configuration and what could not be read");
        manager.notify_reloading();
        let in_sync = |core: &mut Core| {
            core.reread_config();
            core.refresh_sources();
            core.verify_unnoticed();
            core.snapshot().enforcer.is_in_sync()
        };
        // After a reload, readiness is notified only if it was before.
        if handle.ask(in_sync).await == Some(true) {
            manager.notify_ready(handle).await;
        }
    }
    std::future::pending().await
}

/// Serves metrics and probes by TCP, if an address is configured.
async fn serve_health(
    handle: &CoreHandle,
    guard: &Arc<AdmissionControl>,
    address: Option<TcpListener>,
    stopped: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let Some(listener) = address else {
        return std::future::pending().await;
    };
    let router = crate::http::health_router(handle.clone(), Arc::clone(guard));
    let served = server::serve(
        ApiListener::Tcp(listener),
        router,
        ConnectionLimits::default(),
        stopped,
    )
    .await;
    served.map_err(RunError::Serving)
}

/// The API, once the source is in sync.
async fn serve_socket(
    handle: &CoreHandle,
    sockets: &ApiSockets,
    guard: &Arc<AdmissionControl>,
    manager: &ServiceManager,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let (sync_notifier, synced) = tokio::sync::oneshot::channel();
    handle
        .ask(move |core| core.notify_when_in_sync(sync_notifier))
        .await;
    tokio::pin!(synced);
    let in_time = tokio::select! {
        in_time = tokio::time::timeout(SYNC_WAIT, &mut synced) => in_time.is_ok(),
        _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
    };
    if !in_time {
        let seconds = SYNC_WAIT.as_secs();
        tracing::warn!(
            seconds,
            "the source is not in sync yet; the kernel keeps its present policy"
        );
        manager.notify_waiting();
    }
    let listener = sockets.bind_socket()?;
    // Not earlier: the plugin queues DELs as long as the socket is closed.
    if let Some(Err(error)) = handle.ask(Core::run_queued_deletions).await {
        tracing::error!(%error, "reading the queue of CNI DELs failed; they run at the next start of the agent");
    }
    let ready = async {
        // The sender is dropped if the core ends.
        if in_time || synced.await.is_ok() {
            handle.ask(Core::serve_runtimes).await;
            manager.notify_ready(handle).await;
            tracing::info!("ready");
        }
        std::future::pending().await
    };
    let router = crate::http::router(handle.clone(), Arc::clone(guard));
    tokio::select! {
        served = server::serve(ApiListener::Unix(listener), router, ConnectionLimits::default(), stopped) => {
            served.map_err(RunError::Serving)
        }
        () = ready => Ok(()),
    }
}
