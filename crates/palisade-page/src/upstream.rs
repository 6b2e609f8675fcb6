//! Where the page's data come from: an agent, by its own router or by its socket. The page's server sends it nothing but
//! the requests of [`crate::operations`].

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::Pin;
use thiserror::Error;

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
