//! The agent at work: its doors are opened, the service manager is told, and it waits for the first
//! reason to end.
//!
//! Figures and probes are there from the start, the socket when the source is in sync (or has taken
//! too long), and the manager hears *ready* only after the first sync. Going down, the socket goes
//! first, then requests under way end; the threads are stopped by whoever started them.

use crate::core::{Core, CoreHandle};
use crate::http::admission::AdmissionControl;
use crate::http::server::{self, ApiListener, ConnectionLimits};
use crate::http::sockets::ApiSockets;
use crate::run::RunError;
use crate::service_manager::ServiceManager;
use crate::supervisor::ThreadExit;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

/// How long the start waits for the source before the socket opens anyway.
const SYNC_WAIT: Duration = Duration::from_secs(30);

/// Serves until somebody says stop, or a part of the agent ends.
///
/// # Errors
/// What ended that should not have.
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
            reason: why.unwrap_or_else(|| "nobody told it to".to_owned()),
        }),
    };
    match &ended {
        Ok(()) => manager.notify_stopping("stopping; the kernel keeps enforcing"),
        Err(error) => manager.notify_stopping(&format!("{error}; the kernel keeps enforcing")),
    }
    handle.ask(Core::uninstall_cni_conf).await;
    // Nobody finds it any more while the requests under way end.
    sockets.remove_socket();
    let _ = stop_serving.send(true);
    if ended.is_ok() {
        socket.await?;
    }
    ended
}

/// Has the configuration read again on each SIGHUP; never ends before the core does.
async fn reload_on_hangup(handle: &CoreHandle, manager: &ServiceManager, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP: reading the configuration again");
        manager.notify_reloading();
        let in_sync = |core: &mut Core| {
            core.reread_config();
            core.in_sync
        };
        // Whoever was never ready is not ready again.
        if handle.ask(in_sync).await == Some(true) {
            manager.notify_ready(handle).await;
        }
    }
    std::future::pending().await
}

/// Figures and probes by TCP, if there is an address for them.
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
            "the source is not in sync; the kernel keeps what it had"
        );
        manager.notify_waiting();
    }
    let listener = sockets.bind_socket()?;
    // Only now: the plugin writes deletions down for as long as nobody listens.
    if let Some(Err(error)) = handle.ask(Core::run_queued_deletions).await {
        tracing::error!(%error, "deletions that wait cannot be carried out");
    }
    let ready = async {
        // A core that ends tells nobody.
        if in_time || synced.await.is_ok() {
            handle.ask(Core::install_cni_conf).await;
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
