//! The agent at work: its doors are opened, the service manager is told, and it waits for the first
//! reason to end.
//!
//! Figures and probes are there from the start, the socket when the source is in sync (or has taken
//! too long), and the manager hears *ready* only after the first sync. Going down, the socket goes
//! first, then requests under way end; the threads are stopped by whoever started them.

use crate::core::{Core, Handle};
use crate::http::doors::Doors;
use crate::http::gate::Guard;
use crate::http::server::{self, Door, Room};
use crate::manager::Manager;
use crate::run::RunError;
use crate::supervise::Ended;
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
    handle: &Handle,
    doors: &mut Doors,
    guard: &Arc<Guard>,
    manager: &Manager,
    mut ends: UnboundedReceiver<Ended>,
) -> Result<(), RunError> {
    let on = |kind| signal(kind).map_err(|error| RunError::Thread("signal handling", error));
    let (mut terminate, mut interrupt) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let hangups = on(SignalKind::hangup())?;
    let (stop_serving, stopped) = watch::channel(false);
    let address = doors.address()?;
    let doors = &*doors;
    let health = serve_health(handle, guard, address, stopped.clone());
    let socket = serve_socket(handle, doors, guard, manager, stopped);
    tokio::pin!(health, socket);
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        served = &mut health => served,
        served = &mut socket => served,
        () = manager.watch(handle) => Ok(()),
        () = reloads(handle, manager, hangups) => Ok(()),
        Some(Ended { name, why }) = ends.recv() => Err(RunError::Part {
            name,
            why: why.unwrap_or_else(|| "nobody told it to".to_owned()),
        }),
    };
    match &ended {
        Ok(()) => manager.stopping("stopping; the kernel keeps enforcing"),
        Err(error) => manager.stopping(&format!("{error}; the kernel keeps enforcing")),
    }
    handle.ask(Core::end_announcement).await;
    // Nobody finds it any more while the requests under way end.
    doors.close();
    let _ = stop_serving.send(true);
    if ended.is_ok() {
        socket.await?;
    }
    ended
}

/// Has the configuration read again on each SIGHUP; never ends before the core does.
async fn reloads(handle: &Handle, manager: &Manager, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP: reading the configuration again");
        manager.reloading();
        let in_sync = |core: &mut Core| {
            core.reread_config();
            core.in_sync
        };
        // Whoever was never ready is not ready again.
        if handle.ask(in_sync).await == Some(true) {
            manager.ready(handle).await;
        }
    }
    std::future::pending().await
}

/// Figures and probes by TCP, if there is an address for them.
async fn serve_health(
    handle: &Handle,
    guard: &Arc<Guard>,
    address: Option<TcpListener>,
    stopped: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let Some(listener) = address else {
        return std::future::pending().await;
    };
    let router = crate::http::health_router(handle.clone(), Arc::clone(guard));
    let served = server::serve(Door::Tcp(listener), router, Room::default(), stopped).await;
    served.map_err(RunError::Serving)
}

/// The API, once the source is in sync.
async fn serve_socket(
    handle: &Handle,
    doors: &Doors,
    guard: &Arc<Guard>,
    manager: &Manager,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let (told, synced) = tokio::sync::oneshot::channel();
    handle.ask(move |core| core.when_in_sync(told)).await;
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
        manager.waiting();
    }
    let listener = doors.socket()?;
    // Only now: the plugin writes deletions down for as long as nobody listens.
    if let Some(Err(error)) = handle.ask(Core::carry_out_deletions).await {
        tracing::error!(%error, "deletions that wait cannot be carried out");
    }
    let ready = async {
        // A core that ends tells nobody.
        if in_time || synced.await.is_ok() {
            handle.ask(Core::announce).await;
            manager.ready(handle).await;
            tracing::info!("ready");
        }
        std::future::pending().await
    };
    let router = crate::http::router(handle.clone(), Arc::clone(guard));
    tokio::select! {
        served = server::serve(Door::Unix(listener), router, Room::default(), stopped) => {
            served.map_err(RunError::Serving)
        }
        () = ready => Ok(()),
    }
}
