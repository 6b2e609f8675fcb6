//! Where the page's data come from: an agent, by its own router or by its socket. The page's server sends it nothing but
//! the requests of [`crate::operations`].

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::HOST;
use axum::http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use thiserror::Error;
use tokio::net::UnixStream;

/// Why a request did not reach the agent, as one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UpstreamError(pub String);

/// A response that is to come.
pub type UpstreamFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Body>, UpstreamError>> + Send + 'a>>;

/// An agent's API.
pub trait Upstream: Send + Sync + 'static {
    /// Sends a request, whose URI is a path with a query, and returns the response, whose body may be a stream without
    /// end. Dropping the future or the body ends the request.
    fn send(&self, request: Request<Bytes>) -> UpstreamFuture<'_>;
}

/// The API as a router in this process.
#[derive(Clone, Debug)]
pub struct RouterUpstream(pub Router);

impl Upstream for RouterUpstream {
    fn send(&self, request: Request<Bytes>) -> UpstreamFuture<'_> {
        let service = TowerToHyperService::new(self.0.clone());
        let request = request.map(Body::from);
        Box::pin(async move {
            hyper::service::Service::call(&service, request)
                .await
                .map_err(|error| UpstreamError(error.to_string()))
        })
    }
}

/// The API at a unix socket.
#[derive(Clone, Debug)]
pub struct SocketUpstream(pub PathBuf);

impl SocketUpstream {
    async fn request(&self, request: Request<Bytes>) -> Result<Response<Body>, UpstreamError> {
        let failed = |doing: &str, error: &dyn std::error::Error| {
            let socket = self.0.display();
            UpstreamError(format!("{doing} the agent at {socket}: {error}"))
        };
        let stream = UnixStream::connect(&self.0).await;
        let stream = stream.map_err(|error| failed("connecting to", &error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| failed("reaching", &error))?;
        // It ends with the body of the response.
        tokio::spawn(connection);
        let (mut parts, body) = request.into_parts();
        parts
            .headers
            .insert(HOST, HeaderValue::from_static("palisade"));
        let response = sender
            .send_request(Request::from_parts(parts, Full::new(body)))
            .await;
        let response = response.map_err(|error| failed("asking", &error))?;
        Ok(response.map(Body::new))
    }
}

impl Upstream for SocketUpstream {
    fn send(&self, request: Request<Bytes>) -> UpstreamFuture<'_> {
        Box::pin(self.request(request))
    }
}
