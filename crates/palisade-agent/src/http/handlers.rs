//! What answers each operation: every handler asks the core and renders its answer.

use super::gate::Guard;
use super::{Lane, json, refuse};
use crate::attaching::{Opened, PATIENCE};
use crate::core::{Core, Handle, chain};
use crate::metrics::exposition;
use crate::queue::{Pulse, Unanswered};
use crate::record::pod_id;
use crate::rights::{Caller, Grants, Refusal, Wish, allow};
use crate::workloads::WorkloadError;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use palisade_api::{
    ApiError, CniAdd, CniAdded, CniAttachment, CniCheck, CniGc, ExplainQuery, MonitorQuery, Probe,
    WorkloadAdd, WorkloadRemove,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long an ADD waits for the Pod of its name before it answers that it is closed.
const POD_WAIT: Duration = Duration::from_secs(3);

/// How long the core may be at one thing before probes fail.
const PROBE_TIME: Duration = Duration::from_secs(5);

/// The refusal of a core that does not answer.
fn unanswered(why: Unanswered) -> Response {
    match why {
        Unanswered::Stopped => stopping(),
        Unanswered::Busy => {
            let error = ApiError::new("the agent is busy: too many requests wait for it");
            let mut response = refuse(StatusCode::SERVICE_UNAVAILABLE, error.hint("again in 1 s"));
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(1));
            response
        }
    }
}

/// The refusal of a core that has ended.
fn stopping() -> Response {
    refuse(
        StatusCode::SERVICE_UNAVAILABLE,
        ApiError::new("the agent is stopping"),
    )
}

/// A body as a value.
fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Box<Response>> {
    serde_json::from_slice(bytes).map_err(|error| {
        let refusal = ApiError::new(format!("the body: {error}"));
        Box::new(refuse(StatusCode::BAD_REQUEST, refusal))
    })
}

/// Query parameters as a value.
fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Box<Response>> {
    match Query::try_from_uri(uri) {
        Ok(Query(value)) => Ok(value),
        Err(error) => {
            let refusal = ApiError::new(format!("the query: {}", error.body_text()));
            Err(Box::new(refuse(StatusCode::BAD_REQUEST, refusal)))
        }
    }
}

async fn answer<T: Serialize + Send + 'static>(
    core: &Handle,
    question: impl FnOnce(&mut Core) -> Result<T, (StatusCode, ApiError)> + Send + 'static,
) -> Response {
    respond(core.ask_for(Lane::Read, question).await)
}

/// The same for what changes something.
async fn change<T: Serialize + Send + 'static>(
    core: &Handle,
    lane: Lane,
    question: impl FnOnce(&mut Core) -> Result<T, WorkloadError> + Send + 'static,
) -> Response {
    let question = move |core: &mut Core| question(core).map_err(|error| workload_error(&error));
    respond(core.ask_for(lane, question).await)
}

/// What the core answered, if it did.
fn respond<T: Serialize>(
    answer: Result<Result<T, (StatusCode, ApiError)>, Unanswered>,
) -> Response {
    match answer {
        Ok(Ok(value)) => json(&value),
        Ok(Err((status, error))) => refuse(status, error),
        Err(why) => unanswered(why),
    }
}

pub(super) async fn status(State(core): State<Handle>) -> Response {
    match core.status().await {
        Ok(status) => json(&*status),
        Err(why) => unanswered(why),
    }
}

pub(super) async fn endpoints(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.endpoint_list())).await
}

pub(super) async fn endpoint(
    State(core): State<Handle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    answer(&core, move |core| {
        core.endpoint_detail(&namespace, &name).ok_or_else(|| {
            let error = ApiError::new(format!(
                "there is no endpoint {namespace}/{name} on this host"
            ));
            (
                StatusCode::NOT_FOUND,
                error.hint("palisade endpoint list shows those there are"),
            )
        })
    })
    .await
}

pub(super) async fn identities(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.identity_list())).await
}

pub(super) async fn policies(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.policy_list())).await
}

pub(super) async fn policy(
    State(core): State<Handle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    answer(&core, move |core| {
        core.policy_detail(&namespace, &name).ok_or_else(|| {
            let error = ApiError::new(format!("there is no policy {namespace}/{name} in force"));
            (
                StatusCode::NOT_FOUND,
                error.hint("palisade policy list shows those there are"),
            )
        })
    })
    .await
}

pub(super) async fn explain(State(core): State<Handle>, uri: Uri) -> Response {
    let query: ExplainQuery = match query(&uri) {
        Ok(query) => query,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        let refused = |error| {
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                ApiError::new(chain(&error)),
            )
        };
        core.explain(query).map_err(refused)
    })
    .await
}

pub(super) async fn monitor(State(core): State<Handle>, uri: Uri) -> Response {
    let query: MonitorQuery = match query(&uri) {
        Ok(query) => query,
        Err(refused) => return *refused,
    };
    let listen = move |core: &mut Core| core.listen(query);
    match core.ask_for(Lane::Read, listen).await {
        Ok(lines) => {
            let kind = [(CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(Lines(lines))).into_response()
        }
        Err(why) => unanswered(why),
    }
}

/// Lines as they come, until the core ends.
struct Lines(tokio::sync::mpsc::Receiver<Bytes>);

impl futures_core::Stream for Lines {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

pub(super) async fn ipam(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.ipam_report())).await
}

pub(super) async fn ipam_check(State(core): State<Handle>) -> Response {
    answer(&core, |core| {
        core.ipam_check().map_err(|error| {
            let error = ApiError::new(format!("looking at addresses: {}", chain(&error)));
            (StatusCode::INTERNAL_SERVER_ERROR, error)
        })
    })
    .await
}

pub(super) async fn config(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.config.report())).await
}

/// Opens a namespace, on no thread that anybody else waits for.
async fn open_netns(core: &Handle, lane: Lane, path: &str) -> Opened {
    let opener = core.ask_for(lane, |core| core.opener()).await.ok()??;
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || opener.open(&path, PATIENCE))
        .await
        .ok()
}

pub(super) async fn add(
    State(core): State<Handle>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Response {
    let request: WorkloadAdd = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    // Before anything looks at it.
    let path = Wish::NetnsPath(&request.netns);
    if let Err(refusal) = allow(caller, &path, &Grants::default()) {
        let (status, error) = not_permitted(&refusal);
        return refuse(status, error);
    }
    let netns = open_netns(&core, Lane::Change, &request.netns).await;
    change(&core, Lane::Change, move |core| {
        core.add_workload_for(&request, caller, netns)
    })
    .await
}

pub(super) async fn remove(
    State(core): State<Handle>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Response {
    let request: WorkloadRemove = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    change(&core, Lane::Change, move |core| {
        core.remove_workload_for(&request, caller)
    })
    .await
}

pub(super) async fn cni_add(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniAdd = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    let add = |request: CniAdd, netns: Opened| {
        move |core: &mut Core| {
            let added = core.cni_add_in(&request, netns);
            added.map_err(|e| workload_error(&e))
        }
    };
    let netns = open_netns(&core, Lane::Runtime, &request.netns).await;
    let mut added = core
        .ask_for(Lane::Runtime, add(request.clone(), netns))
        .await;
    // Most often its Pod is only a moment away; a runtime that is told to try again takes longer.
    if let Ok(Ok(CniAdded {
        closed: Some(_), ..
    })) = added
    {
        let id = pod_id(&request.namespace, &request.name);
        let (opened, wait) = tokio::sync::oneshot::channel();
        let when_open = move |core: &mut Core| core.when_open(id, opened);
        if let Err(why) = core.ask_for(Lane::Runtime, when_open).await {
            return unanswered(why);
        }
        // Whichever it was, the answer says how it is.
        let _ = tokio::time::timeout(POD_WAIT, wait).await;
        added = core.ask_for(Lane::Runtime, add(request, None)).await;
    }
    respond(added)
}

pub(super) async fn cni_del(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniAttachment = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    change(&core, Lane::Runtime, move |core| core.cni_del(&request)).await
}

pub(super) async fn cni_check(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniCheck = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    change(&core, Lane::Runtime, move |core| core.cni_check(&request)).await
}

pub(super) async fn cni_gc(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniGc = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    change(&core, Lane::Runtime, move |core| core.cni_gc(&request)).await
}

pub(super) async fn metrics(
    State(core): State<Handle>,
    Extension(guard): Extension<Arc<Guard>>,
) -> Response {
    match core.figures().await {
        Ok(figures) => {
            let mut figures = (*figures).clone();
            figures.requests(&guard.requests());
            ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], figures.text()).into_response()
        }
        Err(why) => unanswered(why),
    }
}

pub(super) async fn healthz(
    State(core): State<Handle>,
    Extension(guard): Extension<Arc<Guard>>,
) -> Response {
    probe(stuck(&core.pulse(), guard.now()))
}

pub(super) async fn readyz(
    State(core): State<Handle>,
    Extension(guard): Extension<Arc<Guard>>,
) -> Response {
    let pulse = core.pulse();
    let mut reasons = stuck(&pulse, guard.now());
    reasons.extend(pulse.unready);
    probe(reasons)
}

/// Why the core cannot be said to work.
fn stuck(pulse: &Pulse, now: Instant) -> Vec<String> {
    let busy = pulse.busy_since;
    let busy = busy.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    match (pulse.stopped, busy > PROBE_TIME) {
        (true, _) => vec!["the agent is stopping".to_owned()],
        (false, true) => vec![format!(
            "the core has been at one thing for {} s",
            busy.as_secs()
        )],
        (false, false) => Vec::new(),
    }
}

/// Answers a probe.
fn probe(reasons: Vec<String>) -> Response {
    let (ok, status) = match reasons.is_empty() {
        true => (true, StatusCode::OK),
        false => (false, StatusCode::SERVICE_UNAVAILABLE),
    };
    let probe = Probe {
        api_version: palisade_api::api_version(),
        ok,
        reasons,
    };
    (status, json(&probe)).into_response()
}

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], super::OPENAPI).into_response()
}

fn not_permitted(refusal: &Refusal) -> (StatusCode, ApiError) {
    tracing::warn!(reason = %refusal, "refused: not permitted");
    let error = ApiError::new(refusal.to_string()).hint(refusal.hint());
    (StatusCode::FORBIDDEN, error)
}

fn workload_error(error: &WorkloadError) -> (StatusCode, ApiError) {
    let status = match error {
        WorkloadError::NotPermitted(refusal) => return not_permitted(refusal),
        WorkloadError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        WorkloadError::Exists { .. }
        | WorkloadError::Address { .. }
        | WorkloadError::AddressTaken { .. }
        | WorkloadError::Changed { .. } => StatusCode::CONFLICT,
        WorkloadError::NotAttached { .. } => StatusCode::NOT_FOUND,
        WorkloadError::Starting => StatusCode::SERVICE_UNAVAILABLE,
        WorkloadError::Attach { .. }
        | WorkloadError::Detach { .. }
        | WorkloadError::Look { .. }
        | WorkloadError::Record(_)
        | WorkloadError::NotEnforced { .. }
        | WorkloadError::NotTranslated { .. }
        | WorkloadError::Stopped { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, ApiError::new(chain(error)))
}
