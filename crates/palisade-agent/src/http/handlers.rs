//! What answers each operation: every handler asks the core and renders its answer.

use super::gate::Guard;
use super::refuse;
use crate::core::{Core, Handle, chain};
use crate::metrics::exposition;
use crate::record::pod_id;
use crate::workloads::WorkloadError;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use palisade_api::{
    ApiError, CniAdd, CniAdded, CniAttachment, CniCheck, CniGc, ExplainQuery, MonitorQuery, Probe,
    WorkloadAdd, WorkloadRemove,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long an ADD waits for the Pod of its name before it answers that it is closed.
const POD_WAIT: Duration = Duration::from_secs(3);

/// How long a probe waits for the core.
const PROBE_TIME: Duration = Duration::from_secs(5);

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
    respond(core.ask(question).await)
}

/// What the core answered, if it has not stopped.
fn respond<T: Serialize>(answer: Option<Result<T, (StatusCode, ApiError)>>) -> Response {
    match answer {
        Some(Ok(value)) => Json(value).into_response(),
        Some(Err((status, error))) => refuse(status, error),
        None => stopping(),
    }
}

pub(super) async fn status(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.status())).await
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
    match core.ask(move |core| core.listen(query)).await {
        Some(lines) => {
            let kind = [(CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(Lines(lines))).into_response()
        }
        None => stopping(),
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

pub(super) async fn add(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: WorkloadAdd = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        core.add_workload(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

pub(super) async fn remove(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: WorkloadRemove = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        core.remove_workload(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

pub(super) async fn cni_add(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniAdd = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    let add = |request: CniAdd| {
        move |core: &mut Core| core.cni_add(&request).map_err(|e| workload_error(&e))
    };
    let mut added = core.ask(add(request.clone())).await;
    // Most often its Pod is only a moment away; a runtime that is told to try again takes longer.
    if let Some(Ok(CniAdded {
        closed: Some(_), ..
    })) = added
    {
        let id = pod_id(&request.namespace, &request.name);
        let (opened, wait) = tokio::sync::oneshot::channel();
        core.ask(move |core| core.when_open(id, opened)).await;
        // Whichever it was, the answer says how it is.
        let _ = tokio::time::timeout(POD_WAIT, wait).await;
        added = core.ask(add(request)).await;
    }
    respond(added)
}

pub(super) async fn cni_del(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniAttachment = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        core.cni_del(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

pub(super) async fn cni_check(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniCheck = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        core.cni_check(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

pub(super) async fn cni_gc(State(core): State<Handle>, bytes: Bytes) -> Response {
    let request: CniGc = match body(&bytes) {
        Ok(request) => request,
        Err(refused) => return *refused,
    };
    answer(&core, move |core| {
        core.cni_gc(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

pub(super) async fn metrics(
    State(core): State<Handle>,
    Extension(guard): Extension<Arc<Guard>>,
) -> Response {
    match core.ask(Core::figures).await {
        Some(mut figures) => {
            figures.requests(&guard.requests());
            ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], figures.text()).into_response()
        }
        None => stopping(),
    }
}

pub(super) async fn healthz(State(core): State<Handle>) -> Response {
    probe(&core, |_| Vec::new()).await
}

pub(super) async fn readyz(State(core): State<Handle>) -> Response {
    probe(&core, |core| core.unready()).await
}

/// Answers a probe, also where the core does not.
async fn probe(
    core: &Handle,
    question: impl FnOnce(&mut Core) -> Vec<String> + Send + 'static,
) -> Response {
    let reasons = match tokio::time::timeout(PROBE_TIME, core.ask(question)).await {
        Ok(Some(reasons)) => reasons,
        Ok(None) => vec!["the agent is stopping".to_owned()],
        Err(_) => vec![format!(
            "the core has not answered for {} s",
            PROBE_TIME.as_secs()
        )],
    };
    let (ok, status) = match reasons.is_empty() {
        true => (true, StatusCode::OK),
        false => (false, StatusCode::SERVICE_UNAVAILABLE),
    };
    let probe = Probe {
        api_version: palisade_api::api_version(),
        ok,
        reasons,
    };
    (status, Json(probe)).into_response()
}

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], super::OPENAPI).into_response()
}

fn workload_error(error: &WorkloadError) -> (StatusCode, ApiError) {
    let status = match error {
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
