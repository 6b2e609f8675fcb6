//! The page's data from a relay: flows of all nodes that it reaches, live and summed up.
//!
//! Promises: the page sees them in the form of an agent's API. Never: asks a relay for policies, workloads or
//! explanations, of which it has none; these operations are refused with what to do instead.

use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, Response, StatusCode, Uri};
use palisade_api::{ApiError, MonitorQuery, RecordedFlowQuery, path};
use palisade_flows::line_filter::matches_line;
use palisade_flows::recorder::RecordQueryError;
use palisade_flows::summary::sum_up;
use palisade_hubble::{HubbleClient, HubbleError, ObserverStatus};
use palisade_node::clock::{Clock, SystemClock};
use palisade_page::{Upstream, UpstreamError, UpstreamFuture};
use palisade_text::{error_chain, printable_json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_stream::StreamExt;

/// The greatest number of flows that are read to be summed up.
const MAX_SUMMED: u64 = 100_000;
/// How many requests sum up flows at the same time, each of some hundred megabytes at most.
const MAX_SUMS: usize = 2;
/// A flow between two workloads of a node is two flows of Hubble when it begins.
const FLOWS_OF_LINE: u64 = 2;

/// A relay, or an agent by Hubble's API alone.
pub(crate) struct RelayUpstream {
    client: HubbleClient,
    address: String,
    sums: Semaphore,
}

/// A response that is refused.
type Refusal = (StatusCode, ApiError);

impl RelayUpstream {
    pub(crate) fn new(client: HubbleClient, address: &str) -> Self {
        RelayUpstream {
            client,
            address: address.to_owned(),
            sums: Semaphore::new(MAX_SUMS),
        }
    }

    async fn respond(&self, uri: &Uri) -> Result<Response<Body>, UpstreamError> {
        let result = match uri.path() {
            path::STATUS => self.status().await,
            path::MONITOR => self.monitor(uri).await,
            path::FLOWS => self.flows(uri).await,
            _ => Err((
                StatusCode::NOT_FOUND,
                ApiError::new("a relay has flows, and neither policies nor workloads").with_hint(
                    "the page of the node's agent: palisade ui there, or page-address in its configuration",
                ),
            )),
        };
        Ok(result.unwrap_or_else(|(status, error)| json_response(status, &error)))
    }

    async fn status(&self) -> Result<Response<Body>, Refusal> {
        let status = self.client.status().await;
        let ObserverStatus {
            version,
            connected_nodes,
            unavailable_nodes,
        } = status.map_err(|error| unreached(&error))?;
        let reasons: Vec<String> = unavailable_nodes
            .iter()
            .map(|node| format!("{node} cannot be reached"))
            .collect();
        let health = if reasons.is_empty() {
            "Ready"
        } else {
            "Degraded"
        };
        let status = json!({
            "apiVersion": palisade_api::api_version(),
            "relay": {"address": self.address, "nodes": connected_nodes, "unavailable": unavailable_nodes.len()},
            "version": version,
            "health": health,
            "reasons": reasons,
        });
        Ok(json_response(StatusCode::OK, &status))
    }

    async fn monitor(&self, uri: &Uri) -> Result<Response<Body>, Refusal> {
        let query: MonitorQuery = read_query(uri)?;
        let last = FLOWS_OF_LINE.saturating_mul(query.last as u64);
        let response = Response::builder().header(CONTENT_TYPE, "application/x-ndjson");
        if query.stop && last == 0 {
            // To the relay no number means all of them.
            return Ok(response.body(Body::empty()).unwrap_or_default());
        }
        let lines = self.client.lines(last, !query.stop).await;
        let lines = lines.map_err(|error| unreached(&error))?;
        let lines = lines.filter_map(move |line| match line {
            Ok((_, line)) => matches_line(&query, &line).then(|| Ok(line_text(&line))),
            Err(error) => Some(Err(error)),
        });
        Ok(response.body(Body::from_stream(lines)).unwrap_or_default())
    }

    async fn flows(&self, uri: &Uri) -> Result<Response<Body>, Refusal> {
        let query: RecordedFlowQuery = read_query(uri)?;
        // It is never closed.
        let _permit = self.sums.acquire().await;
        let lines = self.client.lines(MAX_SUMMED, false).await;
        let mut lines = lines.map_err(|error| unreached(&error))?;
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push(line.map_err(|error| unreached(&error))?);
        }
        let lines = read.iter().map(|(time, line)| (*time, line));
        let list = sum_up(lines, &query, SystemClock.wall(), &self.address);
        let mut list = list.map_err(|error| {
            let status = match error {
                RecordQueryError::Query(_) => StatusCode::UNPROCESSABLE_ENTITY,
                RecordQueryError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, ApiError::new(error_chain(&error)))
        })?;
        list.truncated |= read.len() as u64 >= MAX_SUMMED / FLOWS_OF_LINE;
        Ok(json_response(StatusCode::OK, &list))
    }
}

impl Upstream for RelayUpstream {
    fn send(&self, request: Request<Bytes>) -> UpstreamFuture<'_> {
        Box::pin(async move { self.respond(request.uri()).await })
    }
}

fn unreached(error: &HubbleError) -> Refusal {
    let error = ApiError::new(error_chain(error));
    (StatusCode::BAD_GATEWAY, error)
}

fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let query = Query::<T>::try_from_uri(uri);
    let query = query.map_err(|error| {
        let error = ApiError::new(error_chain(&error));
        (StatusCode::UNPROCESSABLE_ENTITY, error)
    })?;
    Ok(query.0)
}

fn line_text(line: &palisade_api::MonitorLine) -> String {
    // These types contain no map with non-string keys, so serialization cannot fail.
    let json = serde_json::to_string(line).unwrap_or_default();
    let mut text = printable_json(&json).into_owned();
    text.push('\n');
    text
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let json = serde_json::to_string(body).unwrap_or_default();
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json");
    response
        .body(Body::from(printable_json(&json).into_owned()))
        .unwrap_or_default()
}
