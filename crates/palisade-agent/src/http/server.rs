//! Connections: how many, how slow, how large a head.
//!
//! A connection that sends its request's head too slowly, sends none for a while, or does not read
//! its answer, is closed. Each user has at most [`Room::each`] connections, and all users but root
//! together at most [`Room::others`], so nobody can keep the runtime out by holding connections.
//! Who comes when there is no more room gets a spare connection, on which only a probe is answered; of
//! these the oldest is closed when there are too many, so none can be held. It knows nothing else of
//! what is asked.

use super::refuse;
use axum::Router;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use palisade_api::ApiError;
use palisade_sys::peer::{Peer, peer_of};
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
const HEADERS: usize = 64;
/// How long a connection may wait for a next request, and how long its head may take.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long the head may take on a spare connection.
const SPARE_TIME: Duration = Duration::from_secs(2);
/// How many spare connections there are.
const SPARES: usize = 64;
/// How long a reader may not read.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// How long requests under way have when the server ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long to wait when the process has no descriptor left for a connection.
const BREATH: Duration = Duration::from_millis(100);

/// The user of connections that have none.
pub const NOBODY: u32 = u32::MAX;

/// Marks a request on a spare connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Of each user.
    pub each: usize,
    /// Of all users but root.
    pub others: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            each: 128,
            others: 256,
        }
    }
}

/// Where connections come from.
pub enum Door {
    /// A unix socket, whose peers the kernel names.
    Unix(UnixListener),
    /// A TCP address, whose peers nobody names.
    Tcp(TcpListener),
}

/// A connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Door {
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<Peer>)> {
        match self {
            Door::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = peer_of(&stream)?;
                Ok((Box::new(stream), Some(peer)))
            }
            Door::Tcp(listener) => {
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
    door: Door,
    router: Router,
    room: Room,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let held = Arc::new(Held {
        room,
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
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
                Err(error) => break Err(error),
            },
            () = told(&mut stop) => break Ok(()),
        };
        let uid = peer.as_ref().map_or(NOBODY, |peer| peer.uid);
        match Held::enter(&held, uid) {
            Some(place) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    converse(stream, peer, router, false, stop).await;
                    drop(place);
                });
            }
            None => {
                tracing::warn!(uid, "too many connections: only probes are answered");
                spares.retain(|spare| !spare.is_finished());
                if spares.len() >= SPARES
                    && let Some(oldest) = spares.pop_front()
                {
                    oldest.abort();
                }
                let talk = converse(stream, peer, router.clone(), true, stop.clone());
                spares.push_back(connections.spawn(talk));
                // A probe that has come whole is answered before others can take its place.
                tokio::task::yield_now().await;
            }
        }
    };
    drop(door);
    let farewell = async { while connections.join_next().await.is_some() {} };
    // Streams do not end by themselves: they are cut.
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
    ended
}

/// Waits until the server is to end.
async fn told(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone tells nobody any more.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_transient(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or_default();
    // ENFILE, EMFILE, ECONNABORTED, ENOMEM, ENOBUFS, EINTR, ENOTCONN.
    [23, 24, 103, 12, 105, 4, 107].contains(&number)
}

async fn converse(
    stream: Box<dyn Stream>,
    peer: Option<Peer>,
    router: Router,
    spare: bool,
    mut stop: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        if spare {
            request.extensions_mut().insert(Spare);
        }
        hyper::service::Service::call(&TowerToHyperService::new(router.clone()), request)
    });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(if spare { SPARE_TIME } else { HEAD_TIME })
        .keep_alive(!spare)
        .max_buf_size(HEAD_LIMIT)
        .max_headers(HEADERS);
    let patient = Patient::new(stream, WRITE_TIME);
    let connection = protocol.serve_connection(TokioIo::new(patient), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = told(&mut stop) => {
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
    let mut response = refuse(
        StatusCode::SERVICE_UNAVAILABLE,
        ApiError::new("too many connections"),
    );
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(1));
    response
}

struct Held {
    room: Room,
    by_user: Mutex<BTreeMap<u32, usize>>,
}

struct Place(Arc<Held>, u32);

impl Held {
    fn enter(held: &Arc<Held>, uid: u32) -> Option<Place> {
        let mut by_user = held.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = by_user.get(&uid).copied().unwrap_or_default();
        let others: usize = by_user
            .iter()
            .filter(|(uid, _)| **uid != 0)
            .map(|(_, n)| n)
            .sum();
        if mine >= held.room.each || (uid != 0 && others >= held.room.others) {
            return None;
        }
        by_user.insert(uid, mine + 1);
        drop(by_user);
        Some(Place(Arc::clone(held), uid))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_user = self
            .0
            .by_user
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = by_user.get_mut(&self.1) {
            *mine -= 1;
            if *mine == 0 {
                by_user.remove(&self.1);
            }
        }
    }
}

/// A stream whose writes fail when the other end has not read for too long.
struct Patient<S> {
    stream: S,
    time: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    fn new(stream: S, time: Duration) -> Self {
        Patient {
            stream,
            time,
            waiting: None,
        }
    }

    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let time = self.time;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, polled)
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
        let room = Room { each: 2, others: 3 };
        let held = Arc::new(Held {
            room,
            by_user: Mutex::default(),
        });
        let enter = |uid| Held::enter(&held, uid);
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
        let mut patient = Patient::new(ours, Duration::from_millis(20));
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
