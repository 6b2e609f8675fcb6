//! Connections: how many, how slow, how large a head.
//!
//! A connection that sends its request's head too slowly, sends none for a while, or does not read
//! its answer, is closed. Each user has at most [`ConnectionLimits::per_user`] connections, and all users but root
//! together at most [`ConnectionLimits::all_but_root`], so nobody can keep the runtime out by holding connections.
//! Who comes when there is no more room gets a spare connection, on which only a probe is answered; of
//! these the oldest is closed when there are too many, so none can be held. It knows nothing else of
//! what is asked.

use super::error_response;
use axum::Router;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use palisade_api::ApiError;
use palisade_sys::credentials::{SocketCredentials, peer_credentials};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Sleep;

/// The largest head of a request, in bytes.
pub const HEAD_LIMIT: usize = 16 << 10;
/// The most header lines.
const MAX_HEADERS: usize = 64;
/// How long a connection may wait for a next request, and how long its head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head may take on a spare connection.
const SPARE_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How many spare connections there are.
const MAX_SPARE_CONNECTIONS: usize = 64;
/// How long a reader may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way have when the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// How long to wait when the process has no descriptor left for a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The user of connections that have none.
pub const UNKNOWN_UID: u32 = u32::MAX;

/// Marks a request on a spare connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareConnection;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Of each user.
    pub per_user: usize,
    /// Of all users but root.
    pub all_but_root: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            per_user: 128,
            all_but_root: 256,
        }
    }
}

/// Where connections come from.
pub enum ApiListener {
    /// A unix socket, whose peers the kernel names.
    Unix(UnixListener),
    /// A TCP address, whose peers nobody names.
    Tcp(TcpListener),
}

/// A connection.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl ApiListener {
    async fn accept(&self) -> io::Result<(Box<dyn ByteStream>, Option<SocketCredentials>)> {
        match self {
            ApiListener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = peer_credentials(&stream)?;
                Ok((Box::new(stream), Some(peer)))
            }
            ApiListener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), None))
            }
        }
    }
}

/// Serves connections until `stop` says so or its sender is gone; then requests under way have a
/// moment to end.
///
/// # Errors
/// If the listener fails for good.
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
        // Those that ended make room.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            accepted = door.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_transient(&error) => {
                    tracing::warn!(%error, "accepting a connection");
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
                tracing::warn!(uid, "too many connections: only probes are answered");
                spares.retain(|spare| !spare.is_finished());
                if spares.len() >= MAX_SPARE_CONNECTIONS
                    && let Some(oldest) = spares.pop_front()
                {
                    oldest.abort();
                }
                let talk = serve_connection(stream, peer, router.clone(), true, stop.clone());
                spares.push_back(connections.spawn(talk));
                // A probe that has come whole is answered before others can take its place.
                tokio::task::yield_now().await;
            }
        }
    };
    drop(door);
    let drain = async { while connections.join_next().await.is_some() {} };
    // Streams do not end by themselves: they are cut.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, drain).await;
    ended
}

/// Waits until the server is to end.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone tells nobody any more.
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
    let patient = WriteTimeoutStream::new(stream, WRITE_TIMEOUT);
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

/// The refusal of what is no probe on a spare connection.
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
        if count >= connections.limits.per_user
            || (uid != 0 && others >= connections.limits.all_but_root)
        {
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

/// A stream whose writes fail when the other end has not read for too long.
struct WriteTimeoutStream<S> {
    stream: S,
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> WriteTimeoutStream<S> {
    fn new(stream: S, time: Duration) -> Self {
        WriteTimeoutStream {
            stream,
            timeout: time,
            timer: None,
        }
    }

    fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.timer = None;
            return polled;
        }
        let time = self.timeout;
        let waiting = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_timeout(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.check_timeout(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::net::UnixStream;

    #[test]
    fn room_is_kept_for_root() {
        let room = ConnectionLimits {
            per_user: 2,
            all_but_root: 3,
        };
        let held = Arc::new(OpenConnections {
            limits: room,
            by_user: Mutex::default(),
        });
        let enter = |uid| OpenConnections::acquire(&held, uid);
        let _first = [enter(7).unwrap(), enter(7).unwrap(), enter(8).unwrap()];
        assert!(enter(7).is_none(), "two each");
        assert!(enter(9).is_none(), "three of all but root");
        let root = enter(0).unwrap();
        drop((root, enter(0).unwrap(), _first));
        assert!(held.by_user.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_given_up() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut patient = WriteTimeoutStream::new(ours, Duration::from_millis(20));
        let error = loop {
            let write =
                poll_fn(|context| Pin::new(&mut patient).poll_write(context, &[0; 65_536])).await;
            if let Err(error) = write {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
