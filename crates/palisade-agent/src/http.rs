//! The API: HTTP over a unix socket. Every handler asks the core and renders its answer.

use crate::core::{Core, Handle, chain};
use crate::explain::ExplainQuery;
use crate::record::pod_id;
use crate::workloads::WorkloadError;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use palisade_api::{
    ApiError, CniAdd, CniAdded, CniAttachment, CniCheck, CniGc, MonitorQuery, WorkloadAdd,
    WorkloadRemove, path,
};
use serde::Serialize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The largest request body taken, in bytes.
const BODY_LIMIT: usize = 1 << 20;

/// How long an ADD waits for the Pod of its name before it answers that it is closed.
const POD_WAIT: Duration = Duration::from_secs(3);

/// Every route of the API.
pub fn router(core: Handle) -> Router {
    Router::new()
        .route(path::STATUS, get(status))
        .route(path::ENDPOINTS, get(endpoints))
        .route(path::ENDPOINT, get(endpoint))
        .route(path::IDENTITIES, get(identities))
        .route(path::POLICIES, get(policies))
        .route(path::POLICY, get(policy))
        .route(path::EXPLAIN, get(explain))
        .route(path::WORKLOADS, post(add).delete(remove))
        .route(path::CNI, post(cni_add).delete(cni_del))
        .route(path::CNI_CHECK, post(cni_check))
        .route(path::CNI_GC, post(cni_gc))
        .route(path::MONITOR, get(monitor))
        .route(path::CONFIG, get(config))
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                ApiError::new("there is no such path"),
            )
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(core)
}

fn refuse(status: StatusCode, error: ApiError) -> Response {
    (status, Json(error)).into_response()
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
        None => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            ApiError::new("the agent is stopping"),
        ),
    }
}

async fn status(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.status())).await
}

async fn endpoints(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.endpoint_list())).await
}

async fn endpoint(
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

async fn identities(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.identity_list())).await
}

async fn policies(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.policy_list())).await
}

async fn policy(
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

async fn explain(State(core): State<Handle>, Query(query): Query<ExplainQuery>) -> Response {
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

async fn monitor(State(core): State<Handle>, Query(query): Query<MonitorQuery>) -> Response {
    match core.ask(move |core| core.listen(query)).await {
        Some(lines) => {
            let kind = [(CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(Lines(lines))).into_response()
        }
        None => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            ApiError::new("the agent is stopping"),
        ),
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

async fn config(State(core): State<Handle>) -> Response {
    answer(&core, |core| Ok(core.config.report())).await
}

async fn add(State(core): State<Handle>, Json(request): Json<WorkloadAdd>) -> Response {
    answer(&core, move |core| {
        core.add_workload(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

async fn remove(State(core): State<Handle>, Json(request): Json<WorkloadRemove>) -> Response {
    answer(&core, move |core| {
        core.remove_workload(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

async fn cni_add(State(core): State<Handle>, Json(request): Json<CniAdd>) -> Response {
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

async fn cni_del(State(core): State<Handle>, Json(request): Json<CniAttachment>) -> Response {
    answer(&core, move |core| {
        core.cni_del(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

async fn cni_check(State(core): State<Handle>, Json(request): Json<CniCheck>) -> Response {
    answer(&core, move |core| {
        core.cni_check(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
}

async fn cni_gc(State(core): State<Handle>, Json(request): Json<CniGc>) -> Response {
    answer(&core, move |core| {
        core.cni_gc(&request)
            .map_err(|error| workload_error(&error))
    })
    .await
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
        | WorkloadError::Stopped { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, ApiError::new(chain(error)))
}
