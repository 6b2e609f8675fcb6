//! The connections of the API: their number, timeouts and header sizes.
//!
//! A connection that sends its request head too slowly, stays idle, or does not read its response is
//! closed. Root has at most [`ConnectionLimits::root`] connections, each other user at most
//! [`ConnectionLimits::per_user`], and these together at most [`ConnectionLimits::all_but_root`], so no
//! user can block the runtime by holding connections. The last descriptors of the process are left to sources, the kernel
//! and the state. Connections above the limits become spare connections, which serve probes only; when
//! there are too many, the oldest one is closed, so they cannot be held either. This module does not
//! interpret requests otherwise.

use super::error_response;
use axum::Router;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use palisade_api::ApiError;
use palisade_page::SlowReaderStream;
use palisade_sys::credentials::{SocketCredentials, peer_credentials};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The maximum size of a request head, in bytes.
pub const HEAD_LIMIT: usize = 16 << 10;
/// The maximum number of header lines.
const MAX_HEADERS: usize = 64;
/// The idle timeout of a connection, and the timeout for receiving a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for receiving a request head on a spare connection.
const SPARE_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of spare connections.
const MAX_SPARE_CONNECTIONS: usize = 64;
/// The timeout of a write when the client does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests in progress may continue at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// The delay before the next accept when the process has no file descriptor left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Descriptors that connections leave to sources, the kernel and the state: a quarter of the limit of the process,
/// within these bounds.
const RESERVED_DESCRIPTORS: (u64, u64) = (16, 256);

/// The uid of peers without credentials.
pub const UNKNOWN_UID: u32 = u32::MAX;

/// Marks requests on a spare connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareConnection;

/// The limits of simultaneous connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// For root: a starting node adds all its pods at once, each on a connection of its own.
    pub root: usize,
    /// For each other user.
    pub per_user: usize,
    /// For all users but root together.
    pub all_but_root: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            root: 1_024,
            per_user: 128,
            all_but_root: 256,
        }
    }
}

/// A listener of the API.
pub enum ApiListener {
    /// A unix socket; the kernel reports the credentials of its peers.
    Unix(UnixListener),
    /// A TCP address; its peers have no credentials.
    Tcp(TcpListener),
}

/// A connection.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Fails if a connection has one of the descriptors that connections leave to others. The kernel gives the lowest
/// free number, so its number is at least the number of descriptors in use.
fn check_descriptor(stream: &impl AsRawFd) -> io::Result<()> {
    let limit = palisade_sys::descriptors::limit()?;
    let reserved = (limit / 4).clamp(RESERVED_DESCRIPTORS.0, RESERVED_DESCRIPTORS.1);
    let number = u64::try_from(stream.as_raw_fd()).unwrap_or(u64::MAX);
    if number < limit.saturating_sub(reserved) {
        return Ok(());
    }
    // EMFILE: the connection is closed, and the next one is accepted after a delay.
    Err(io::Error::from_raw_os_error(24))
}

impl ApiListener {
    async fn accept(&self) -> io::Result<(Box<dyn ByteStream>, Option<SocketCredentials>)> {
        match self {
            ApiListener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                check_descriptor(&stream)?;
                let peer = peer_credentials(&stream)?;
                Ok((Box::new(stream), Some(peer)))
            }
            ApiListener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                check_descriptor(&stream)?;
                Ok((Box::new(stream), None))
            }
        }
    }
}

/// Serves connections until `stop` is set or its sender is gone; requests in progress then have
/// `SHUTDOWN_GRACE` to finish.
///
/// # Errors
/// If the listener fails permanently.
pub async fn serve(
    door: ApiListener,
    router: Router,
    limits: ConnectionLimits,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let open_connections = Arc::new(OpenConnections {
        limits,
        by_user: Mutex::default(),
    });
    let mut connections = JoinSet::new();
    let mut spares: VecDeque<AbortHandle> = VecDeque::new();
    let ended = loop {
        // Reap the finished connections.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            accepted = door.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_transient(&error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
                Err(error) => break Err(error),
            },
            () = wait_for_stop(&mut stop) => break Ok(()),
        };
        let uid = peer.as_ref().map_or(UNKNOWN_UID, |peer| peer.uid);
        match OpenConnections::acquire(&open_connections, uid) {
            Some(slot) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    serve_connection(stream, peer, router, false, stop).await;
                    drop(slot);
                });
            }
            None => {
                tracing::warn!(
                    uid,
                    "too many connections of this user: only probes are answered"
                );
                spares.retain(|spare| !spare.is_finished());
                if spares.len() >= MAX_SPARE_CONNECTIONS
                    && let Some(oldest) = spares.pop_front()
                {
                    oldest.abort();
                }
                let talk = serve_connection(stream, peer, router.clone(), true, stop.clone());
                spares.push_back(connections.spawn(talk));
                // Lets a probe that has been received completely finish before its slot is reused.
                tokio::task::yield_now().await;
            }
        }
    };
    drop(door);
    let drain = async { while connections.join_next().await.is_some() {} };
    // Streams do not end by themselves: they are aborted after the grace period.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, drain).await;
    ended
}

/// Waits for shutdown.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means shutdown.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_transient(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or_default();
    // ENFILE, EMFILE, ECONNABORTED, ENOMEM, ENOBUFS, EINTR, ENOTCONN.
    [23, 24, 103, 12, 105, 4, 107].contains(&number)
}

async fn serve_connection(
    stream: Box<dyn ByteStream>,
    peer: Option<SocketCredentials>,
    router: Router,
    spare: bool,
    mut stop: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        if spare {
            request.extensions_mut().insert(SpareConnection);
        }
        hyper::service::Service::call(&TowerToHyperService::new(router.clone()), request)
    });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(if spare {
            SPARE_HEAD_TIMEOUT
        } else {
            HEAD_TIMEOUT
        })
        .keep_alive(!spare)
        .max_buf_size(HEAD_LIMIT)
        .max_headers(MAX_HEADERS);
    let patient = SlowReaderStream::new(stream, WRITE_TIMEOUT);
    let connection = protocol.serve_connection(TokioIo::new(patient), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = wait_for_stop(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The error response to requests other than probes on a spare connection.
pub(crate) fn too_many_connections() -> Response {
    let mut response = error_response(
        StatusCode::SERVICE_UNAVAILABLE,
        ApiError::new("too many connections"),
    );
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(1));
    response
}

struct OpenConnections {
    limits: ConnectionLimits,
    by_user: Mutex<BTreeMap<u32, usize>>,
}

struct ConnectionSlot(Arc<OpenConnections>, u32);

impl OpenConnections {
    fn acquire(connections: &Arc<OpenConnections>, uid: u32) -> Option<ConnectionSlot> {
        let mut by_user = connections
            .by_user
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = by_user.get(&uid).copied().unwrap_or_default();
        let others: usize = by_user
            .iter()
            .filter(|(uid, _)| **uid != 0)
            .map(|(_, n)| n)
            .sum();
        let limits = connections.limits;
        let is_full = match uid {
            0 => count >= limits.root,
            _ => count >= limits.per_user || others >= limits.all_but_root,
        };
        if is_full {
            return None;
        }
        by_user.insert(uid, count + 1);
        drop(by_user);
        Some(ConnectionSlot(Arc::clone(connections), uid))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut by_user = self
            .0
            .by_user
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_user.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_for_root() {
        let room = ConnectionLimits {
            root: 4,
            per_user: 2,
            all_but_root: 3,
        };
        let connections = Arc::new(OpenConnections {
            limits: room,
            by_user: Mutex::default(),
        });
        let enter = |uid| OpenConnections::acquire(&connections, uid);
        let _first = [enter(7).unwrap(), enter(7).unwrap(), enter(8).unwrap()];
        assert!(enter(7).is_none(), "two each");
        assert!(enter(9).is_none(), "three of all but root");
        let root: Vec<_> = (0..4).map(|_| enter(0).unwrap()).collect();
        assert!(enter(0).is_none(), "four of root");
        drop((root, _first));
        assert!(connections.by_user.lock().unwrap().is_empty());
    }
}
