//! What answers each operation: every handler asks the core and renders its answer.

use super::admission::AdmissionControl;
use super::{OperationClass, error_response, json_response};
use crate::access::{AccessDenied, AccessRequest, Caller, GroupGrants, check_access};
use crate::core::{Core, CoreHandle, error_chain};
use crate::core_queue::{CoreHealth, CoreUnavailable};
use crate::metrics::exposition;
use crate::workload_lifecycle::{NETNS_OPEN_TIMEOUT, PreopenedNetns};
use crate::workload_store::pod_id;
use crate::workloads::WorkloadError;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use palisade_api::{
    ApiError, CniAddRequest, CniAddResponse, CniAttachment, CniCheckRequest, CniGcRequest,
    ExplainQuery, MonitorQuery, ProbeResult, WorkloadAddRequest, WorkloadRemoveRequest,
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
const CORE_STUCK_AFTER: Duration = Duration::from_secs(5);

/// The refusal of a core that does not answer.
fn unavailable_response(why: CoreUnavailable) -> Response {
    match why {
        CoreUnavailable::Stopped => stopping_response(),
        CoreUnavailable::Busy => {
            let error = ApiError::new("the agent is busy: too many requests wait for it");
            let mut response = error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                error.with_hint("again in 1 s"),
            );
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(1));
            response
        }
    }
}

/// The refusal of a core that has ended.
fn stopping_response() -> Response {
    error_response(
        StatusCode::SERVICE_UNAVAILABLE,
        ApiError::new("the agent is stopping"),
    )
}

/// A body as a value.
fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Box<Response>> {
    serde_json::from_slice(bytes).map_err(|error| {
        let refusal = ApiError::new(format!("the body: {error}"));
        Box::new(error_response(StatusCode::BAD_REQUEST, refusal))
    })
}

/// Query parameters as a value.
fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Box<Response>> {
    match Query::try_from_uri(uri) {
        Ok(Query(value)) => Ok(value),
        Err(error) => {
            let refusal = ApiError::new(format!("the query: {}", error.body_text()));
            Err(Box::new(error_response(StatusCode::BAD_REQUEST, refusal)))
        }
    }
}

async fn respond_read<T: Serialize + Send + 'static>(
    core: &CoreHandle,
    request: impl FnOnce(&mut Core) -> Result<T, (StatusCode, ApiError)> + Send + 'static,
) -> Response {
    respond(core.ask_for_client(OperationClass::Read, request).await)
}

/// The same for what changes something.
async fn respond_change<T: Serialize + Send + 'static>(
    core: &CoreHandle,
    lane: OperationClass,
    request: impl FnOnce(&mut Core) -> Result<T, WorkloadError> + Send + 'static,
) -> Response {
    let request =
        move |core: &mut Core| request(core).map_err(|error| workload_error_response(&error));
    respond(core.ask_for_client(lane, request).await)
}

/// What the core answered, if it did.
fn respond<T: Serialize>(
    answer: Result<Result<T, (StatusCode, ApiError)>, CoreUnavailable>,
) -> Response {
    match answer {
        Ok(Ok(value)) => json_response(&value),
        Ok(Err((status, error))) => error_response(status, error),
        Err(why) => unavailable_response(why),
    }
}

pub(super) async fn status(State(core): State<CoreHandle>) -> Response {
    match core.status().await {
        Ok(status) => json_response(&*status),
        Err(why) => unavailable_response(why),
    }
}

pub(super) async fn endpoints(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.endpoint_list())).await
}

pub(super) async fn endpoint(
    State(core): State<CoreHandle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    respond_read(&core, move |core| {
        core.endpoint_detail(&namespace, &name).ok_or_else(|| {
            let error = ApiError::new(format!(
                "there is no endpoint {namespace}/{name} on this host"
            ));
            (
                StatusCode::NOT_FOUND,
                error.with_hint("palisade endpoint list shows those there are"),
            )
        })
    })
    .await
}

pub(super) async fn identities(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.identity_list())).await
}

pub(super) async fn policies(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.policy_list())).await
}

pub(super) async fn policy(
    State(core): State<CoreHandle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    respond_read(&core, move |core| {
        core.policy_detail(&namespace, &name).ok_or_else(|| {
            let error = ApiError::new(format!("there is no policy {namespace}/{name} in force"));
            (
                StatusCode::NOT_FOUND,
                error.with_hint("palisade policy list shows those there are"),
            )
        })
    })
    .await
}

pub(super) async fn explain(State(core): State<CoreHandle>, uri: Uri) -> Response {
    let query: ExplainQuery = match parse_query(&uri) {
        Ok(query) => query,
        Err(refused) => return *refused,
    };
    respond_read(&core, move |core| {
        let refused = |error| {
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                ApiError::new(error_chain(&error)),
            )
        };
        core.explain(query).map_err(refused)
    })
    .await
}

pub(super) async fn monitor(State(core): State<CoreHandle>, uri: Uri) -> Response {
    let query: MonitorQuery = match parse_query(&uri) {
        Ok(query) => query,
        Err(refused) => return *refused,
    };
    let listen = move |core: &mut Core| core.subscribe(query);
    match core.ask_for_client(OperationClass::Read, listen).await {
        Ok(lines) => {
            let kind = [(CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(LineStream(lines))).into_response()
        }
        Err(why) => unavailable_response(why),
    }
}

/// Lines as they come, until the core ends.
struct LineStream(tokio::sync::mpsc::Receiver<Bytes>);

impl futures_core::Stream for LineStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

pub(super) async fn ipam(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.ipam_report())).await
}

pub(super) async fn ipam_check(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        core.ipam_check().map_err(|error| {
            let error = ApiError::new(format!("looking at addresses: {}", error_chain(&error)));
            (StatusCode::INTERNAL_SERVER_ERROR, error)
        })
    })
    .await
}

pub(super) async fn config(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.config.report())).await
}

/// Opens a namespace, on no thread that anybody else waits for.
async fn open_netns(core: &CoreHandle, lane: OperationClass, path: &str) -> PreopenedNetns {
    let opener = core
        .ask_for_client(lane, |core| core.opener())
        .await
        .ok()??;
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || opener.open(&path, NETNS_OPEN_TIMEOUT))
        .await
        .ok()
}

pub(super) async fn add_workload(
    State(core): State<CoreHandle>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Response {
    let request: WorkloadAddRequest = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    // Before anything looks at it.
    let path = AccessRequest::NetnsPath(&request.netns);
    if let Err(refusal) = check_access(caller, &path, &GroupGrants::default()) {
        let (status, error) = forbidden_response(&refusal);
        return error_response(status, error);
    }
    let netns = open_netns(&core, OperationClass::Change, &request.netns).await;
    respond_change(&core, OperationClass::Change, move |core| {
        core.add_workload_for(&request, caller, netns)
    })
    .await
}

pub(super) async fn remove_workload(
    State(core): State<CoreHandle>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Response {
    let request: WorkloadRemoveRequest = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    respond_change(&core, OperationClass::Change, move |core| {
        core.remove_workload_for(&request, caller)
    })
    .await
}

pub(super) async fn cni_add(State(core): State<CoreHandle>, bytes: Bytes) -> Response {
    let request: CniAddRequest = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    let add = |request: CniAddRequest, netns: PreopenedNetns| {
        move |core: &mut Core| {
            let added = core.cni_add_in_netns(&request, netns);
            added.map_err(|e| workload_error_response(&e))
        }
    };
    let netns = open_netns(&core, OperationClass::Runtime, &request.netns).await;
    let mut added = core
        .ask_for_client(OperationClass::Runtime, add(request.clone(), netns))
        .await;
    // Most often its Pod is only a moment away; a runtime that is told to try again takes longer.
    if let Ok(Ok(CniAddResponse {
        closed: Some(_), ..
    })) = added
    {
        let id = pod_id(&request.namespace, &request.name);
        let (notifier, wait) = tokio::sync::oneshot::channel();
        let when_open = move |core: &mut Core| core.notify_when_open(id, notifier);
        if let Err(why) = core
            .ask_for_client(OperationClass::Runtime, when_open)
            .await
        {
            return unavailable_response(why);
        }
        // Whichever it was, the answer says how it is.
        let _ = tokio::time::timeout(POD_WAIT, wait).await;
        added = core
            .ask_for_client(OperationClass::Runtime, add(request, None))
            .await;
    }
    respond(added)
}

pub(super) async fn cni_del(State(core): State<CoreHandle>, bytes: Bytes) -> Response {
    let request: CniAttachment = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    respond_change(&core, OperationClass::Runtime, move |core| {
        core.cni_del(&request)
    })
    .await
}

pub(super) async fn cni_check(State(core): State<CoreHandle>, bytes: Bytes) -> Response {
    let request: CniCheckRequest = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    respond_change(&core, OperationClass::Runtime, move |core| {
        core.cni_check(&request)
    })
    .await
}

pub(super) async fn cni_gc(State(core): State<CoreHandle>, bytes: Bytes) -> Response {
    let request: CniGcRequest = match parse_body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    respond_change(&core, OperationClass::Runtime, move |core| {
        core.cni_gc(&request)
    })
    .await
}

pub(super) async fn metrics(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
) -> Response {
    match core.metrics().await {
        Ok(figures) => {
            let mut figures = (*figures).clone();
            figures.add_requests(&guard.request_counts());
            ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], figures.text()).into_response()
        }
        Err(why) => unavailable_response(why),
    }
}

pub(super) async fn healthz(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
) -> Response {
    probe_response(stuck_reasons(&core.health(), guard.now()))
}

pub(super) async fn readyz(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
) -> Response {
    let pulse = core.health();
    let mut reasons = stuck_reasons(&pulse, guard.now());
    reasons.extend(pulse.unready);
    probe_response(reasons)
}

/// Why the core cannot be said to work.
fn stuck_reasons(pulse: &CoreHealth, now: Instant) -> Vec<String> {
    let busy = pulse.busy_since;
    let busy = busy.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    match (pulse.stopped, busy > CORE_STUCK_AFTER) {
        (true, _) => vec!["the agent is stopping".to_owned()],
        (false, true) => vec![format!(
            "the core has been at one thing for {} s",
            busy.as_secs()
        )],
        (false, false) => Vec::new(),
    }
}

/// Answers a probe.
fn probe_response(reasons: Vec<String>) -> Response {
    let (ok, status) = match reasons.is_empty() {
        true => (true, StatusCode::OK),
        false => (false, StatusCode::SERVICE_UNAVAILABLE),
    };
    let probe = ProbeResult {
        api_version: palisade_api::api_version(),
        ok,
        reasons,
    };
    (status, json_response(&probe)).into_response()
}

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], super::OPENAPI).into_response()
}

fn forbidden_response(refusal: &AccessDenied) -> (StatusCode, ApiError) {
    tracing::warn!(reason = %refusal, "refused: not permitted");
    let error = ApiError::new(refusal.to_string()).with_hint(refusal.hint());
    (StatusCode::FORBIDDEN, error)
}

fn workload_error_response(error: &WorkloadError) -> (StatusCode, ApiError) {
    let status = match error {
        WorkloadError::NotPermitted(refusal) => return forbidden_response(refusal),
        WorkloadError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        WorkloadError::Exists { .. }
        | WorkloadError::Address { .. }
        | WorkloadError::AddressTaken { .. }
        | WorkloadError::NotAsAttached { .. } => StatusCode::CONFLICT,
        WorkloadError::NotAttached { .. } => StatusCode::NOT_FOUND,
        WorkloadError::NotInSync => StatusCode::SERVICE_UNAVAILABLE,
        WorkloadError::Attach { .. }
        | WorkloadError::Detach { .. }
        | WorkloadError::Inspect { .. }
        | WorkloadError::Record(_)
        | WorkloadError::NotEnforced { .. }
        | WorkloadError::NotMasqueraded { .. }
        | WorkloadError::Stopped { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, ApiError::new(error_chain(error)))
}
