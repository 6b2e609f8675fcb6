//! Passing requests on to the agent: what goes with them, what comes back, and how many there may be at once.

use crate::operations::PageOperation;
use crate::responses::{busy_response, error_response, response};
use crate::settings::PageLimits;
use crate::upstream::Upstream;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use palisade_api::ApiError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The content type of streams of events.
const LINES: &str = "application/x-ndjson";
/// The content type of everything else that the agent responds.
const JSON: &str = "application/json";

/// The way to the agent, with its bounds.
pub(crate) struct Forwarder {
    upstream: Arc<dyn Upstream>,
    limits: PageLimits,
    streams: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    computations: Arc<Semaphore>,
}

impl Forwarder {
    /// The way to an agent.
    pub(crate) fn new(upstream: Arc<dyn Upstream>, limits: PageLimits) -> Self {
        Forwarder {
            upstream,
            limits,
            streams: Arc::new(Semaphore::new(limits.streams)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            computations: Arc::new(Semaphore::new(limits.computations)),
        }
    }

    /// A place among the computations, if there is one.
    pub(crate) fn begin_computation(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.computations).try_acquire_owned().ok()
    }

    /// Passes a request on. The response has the agent's status, body and kind, and none of its other headers.
    pub(crate) async fn forward(
        &self,
        operation: PageOperation,
        parts: &Parts,
        body: Body,
    ) -> Response {
        let (slots, bound) = match operation {
            PageOperation::Stream => (&self.streams, "streams"),
            PageOperation::Read => (&self.requests, "requests"),
            PageOperation::Preview => (&self.computations, "maps and previews"),
        };
        let Ok(permit) = Arc::clone(slots).try_acquire_owned() else {
            return busy_response(bound);
        };
        let body = match operation {
            PageOperation::Preview => match self.read_preview(&parts.headers, body).await {
                Ok(body) => body,
                Err(refused) => return refused,
            },
            PageOperation::Read | PageOperation::Stream => Bytes::new(),
        };
        let target = parts
            .uri
            .path_and_query()
            .map_or(parts.uri.path(), |target| target.as_str());
        match self.send(&parts.method, target, body).await {
            Ok(upstream) => passed_on(upstream, permit),
            Err(failed) => failed,
        }
    }

    /// The agent's response to a request of the page's own; the error response if it does not respond.
    pub(crate) async fn send(
        &self,
        method: &Method,
        target: &str,
        body: Bytes,
    ) -> Result<Response, Response> {
        let mut request = Request::builder().method(method).uri(target);
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, JSON);
        }
        let request = request.body(body).map_err(|error| {
            let error = ApiError::new(format!("passing the request on: {error}"));
            error_response(StatusCode::BAD_REQUEST, error)
        })?;
        match timeout(self.limits.upstream, self.upstream.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let error = ApiError::new(format!("the agent cannot be reached: {error}"));
                Err(error_response(StatusCode::BAD_GATEWAY, error))
            }
            Err(_) => {
                let error = ApiError::new("the agent does not respond in time");
                Err(error_response(StatusCode::GATEWAY_TIMEOUT, error))
            }
        }
    }

    /// The body of a preview.
    async fn read_preview(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(JSON.as_bytes())) {
            let error = ApiError::new("a preview needs a body of JSON");
            return Err(error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        read_body(headers, body, self.limits.preview_body, self.limits).await
    }
}

/// A whole body of a client, of at most so many bytes.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    limits: PageLimits,
) -> Result<Bytes, Response> {
    let too_large = || {
        let error = ApiError::new(format!("the body is larger than {limit} bytes"));
        error_response(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match timeout(limits.arrival, Limited::new(body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let error = ApiError::new(format!("reading the body: {error}"));
            Err(error_response(StatusCode::BAD_REQUEST, error))
        }
        Err(_) => {
            let error = ApiError::new("the body did not arrive in time");
            Err(error_response(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

/// The agent's response as the page passes it on: always as data, never as a document.
fn passed_on(upstream: Response, permit: OwnedSemaphorePermit) -> Response {
    let kind = upstream.headers().get(CONTENT_TYPE);
    let is_lines = kind.is_some_and(|kind| kind.as_bytes().starts_with(LINES.as_bytes()));
    let retry = upstream.headers().get(RETRY_AFTER).cloned();
    let kind = if is_lines { LINES } else { JSON };
    let (parts, body) = upstream.into_parts();
    let body = Body::new(CountedBody {
        body,
        _permit: permit,
    });
    let mut passed = response(parts.status, kind, body);
    if let Some(retry) = retry {
        passed.headers_mut().insert(RETRY_AFTER, retry);
    }
    passed
}

/// A body that counts against a bound until it has ended.
struct CountedBody {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
