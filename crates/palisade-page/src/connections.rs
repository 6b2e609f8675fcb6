//! The connections of the page: their number, how long heads may take, and how long clients may not read.
//!
//! Beyond [`crate::PageLimits::connections`], a few spare connections answer 503 and are closed; when there are too many
//! of these, the oldest is closed, so they cannot be held. This module does not interpret requests.

use crate::access::PeerAddress;
use crate::responses::{add_security_headers, busy_response};
use crate::service::router;
use crate::settings::{PageLimits, PageSettings};
use crate::slow_reader::SlowReaderStream;
use crate::upstream::Upstream;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The largest head of a request, in bytes.
const HEAD_LIMIT: usize = 16 << 10;
/// The most header lines.
const MOST_HEADERS: usize = 64;
/// The most connections that only answer 503.
const SPARE_CONNECTIONS: usize = 64;
/// How long the head of a request on a spare connection may take.
const SPARE_ARRIVAL: Duration = Duration::from_secs(2);
/// How long requests in progress may take at the end.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// The delay before the next accept after one that failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// What serves a connection.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    limits: PageLimits,
    stop: watch::Receiver<bool>,
}

/// Serves the page at a listener until `shutdown` is complete; requests in progress then have half a second. The
/// listener is one at [`PageSettings::address`].
pub async fn serve(
    listener: TcpListener,
    settings: PageSettings,
    upstream: Arc<dyn Upstream>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let limits = settings.limits();
    let (stopping, stop) = watch::channel(false);
    let service = ConnectionService {
        router: router(settings, upstream),
        limits,
        stop,
    };
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let mut spares: VecDeque<AbortHandle> = VecDeque::new();
    tokio::pin!(shutdown);
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection to the page failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            },
        };
        let service = service.clone();
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            connections.spawn(async move {
                service.serve_connection(stream, peer.ip()).await;
                drop(slot);
            });
        } else {
            spares.retain(|spare| !spare.is_finished());
            if spares.len() >= SPARE_CONNECTIONS
                && let Some(oldest) = spares.pop_front()
            {
                oldest.abort();
            }
            spares.push_back(connections.spawn(service.refuse_connection(stream)));
            // Lets a request that has arrived be answered before its connection is the oldest.
            tokio::task::yield_now().await;
        }
    }
    drop(listener);
    let _ = stopping.send(true);
    let drain = async { while connections.join_next().await.is_some() {} };
    // Streams do not end by themselves: they end with the set.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, drain).await;
}

impl ConnectionService {
    async fn serve_connection(mut self, stream: TcpStream, peer: IpAddr) {
        let router = self.router;
        let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(PeerAddress(peer));
            hyper::service::Service::call(&TowerToHyperService::new(router.clone()), request)
        });
        // A line of a stream is shown when it happens.
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(SlowReaderStream::new(stream, self.limits.unread));
        let connection = builder(self.limits.arrival).serve_connection(stream, service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = wait_for_stop(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the page ended");
        }
    }

    async fn refuse_connection(self, stream: TcpStream) {
        let service = hyper::service::service_fn(|_request: hyper::Request<_>| async {
            let mut response = busy_response("connections");
            let headers = response.headers_mut();
            add_security_headers(headers);
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            Ok::<_, std::convert::Infallible>(response)
        });
        let stream = TokioIo::new(SlowReaderStream::new(stream, SPARE_ARRIVAL));
        let mut builder = builder(SPARE_ARRIVAL);
        builder.keep_alive(false);
        let _ = builder.serve_connection(stream, service).await;
    }
}

/// Waits until serving ends.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn builder(arrival: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(arrival)
        .max_buf_size(HEAD_LIMIT)
        .max_headers(MOST_HEADERS);
    builder
}
