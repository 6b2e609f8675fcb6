//! The handlers of the operations: each sends a request to the core and renders the response.

use super::admission::{AdmissionControl, RequestCounts};
use super::{error_response, flow_preview, json_response, policy_manifest};
use crate::core::Core;
use crate::core_queue::{CoreHandle, CoreHealth, CoreUnavailable};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use palisade_analysis::{ExplainError, FlowEndError};
use palisade_api::{
    ApiError, CniAddRequest, CniAddResponse, CniAttachment, CniCheckRequest, CniGcRequest,
    CniResponse, ExplainQuery, ManifestQuery, MonitorQuery, PreviewRequest, ProbeResult,
    RecordedFlowQuery, WorkloadAddRequest, WorkloadRemoveRequest,
};
use palisade_config::MonitorConfig;
use palisade_flows::recorder::RecordQueryError;
use palisade_network::network_driver::NetworkDriverError;
use palisade_network::node_state::NodeState;
use palisade_node::cluster_nodes::own_node_name;
use palisade_node::workload_store::pod_id;
use palisade_text::error_chain;
use palisade_views::explain::FlowExplainer;
use palisade_views::host_network_pod;
use palisade_views::metrics::exposition::{self, Exposition};
use palisade_views::metrics::table::{API_REQUESTS, CORE_QUEUE};
use palisade_views::policy_lookup::PolicyLookupError;
use palisade_workloads::access::{
    AccessDenied, AccessRequest, Caller, GroupGrants, OperationClass, check_access,
};
use palisade_workloads::workloads::attach::{AttachRequest, AttachTarget};
use palisade_workloads::workloads::{
    NETNS_OPEN_TIMEOUT, PreopenedNetns, WorkloadError, Workloads, cni, named,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long an ADD waits for its Pod before it reports that the workload is closed.
const POD_WAIT: Duration = Duration::from_secs(3);

/// Probes fail if the core has been busy with one event for longer.
const CORE_STUCK_AFTER: Duration = Duration::from_secs(5);

/// The error response if the core does not answer.
fn unavailable_response(why: CoreUnavailable) -> Response {
    match why {
        CoreUnavailable::Stopped => stopping_response(),
        CoreUnavailable::Busy => {
            let error = ApiError::new("the agent is busy: too many requests are queued");
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

/// The error response if the core has stopped.
fn stopping_response() -> Response {
    error_response(
        StatusCode::SERVICE_UNAVAILABLE,
        ApiError::new("the agent is stopping"),
    )
}

/// A JSON body.
pub(super) struct JsonBody<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| {
            let text = format!("reading the body: {}", error.body_text());
            error_response(error.status(), ApiError::new(text))
        })?;
        let invalid = |error| ApiError::new(format!("parsing the body: {error}"));
        let parsed = serde_json::from_slice(&bytes).map(JsonBody);
        parsed.map_err(|error| error_response(StatusCode::BAD_REQUEST, invalid(error)))
    }
}

/// The parameters of the path.
pub(super) struct PathParameters<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let parsed = Path::from_request_parts(parts, state).await;
        let invalid = |text| ApiError::new(format!("parsing the path: {text}"));
        let parsed = parsed.map(|Path(value)| PathParameters(value));
        parsed.map_err(|error| error_response(StatusCode::BAD_REQUEST, invalid(error.body_text())))
    }
}

/// The query parameters.
pub(super) struct QueryParameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let parsed = Query::try_from_uri(&parts.uri).map(|Query(value)| QueryParameters(value));
        let invalid = |text| ApiError::new(format!("parsing the query: {text}"));
        parsed.map_err(|error| error_response(StatusCode::BAD_REQUEST, invalid(error.body_text())))
    }
}

pub(super) async fn respond_read<T: Serialize + Send + 'static>(
    core: &CoreHandle,
    request: impl FnOnce(&mut Core) -> Result<T, (StatusCode, ApiError)> + Send + 'static,
) -> Response {
    respond(core.ask_for_client(OperationClass::Read, request).await)
}

/// The same for operations that change something.
async fn respond_change<T: Serialize + Send + 'static>(
    core: &CoreHandle,
    lane: OperationClass,
    request: impl FnOnce(&mut Workloads, &mut NodeState) -> Result<T, WorkloadError> + Send + 'static,
) -> Response {
    let request = move |core: &mut Core| {
        let (workloads, node) = core.parts();
        request(workloads, node).map_err(|error| workload_error_response(&error))
    };
    respond(core.ask_for_client(lane, request).await)
}

/// Renders the core's response, or an error if there is none.
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
    respond_read(&core, |core| {
        Ok(palisade_views::endpoints::endpoint_list(&core.snapshot()))
    })
    .await
}

pub(super) async fn endpoint(
    State(core): State<CoreHandle>,
    PathParameters((namespace, name)): PathParameters<(String, String)>,
) -> Response {
    respond_read(&core, move |core| {
        let snapshot = core.snapshot();
        palisade_views::endpoints::endpoint_detail(&snapshot, &namespace, &name).ok_or_else(|| {
            let full_name = format!("{namespace}/{name}");
            let pods = core.host_network_pods();
            let error = ApiError::new(match host_network_pod(pods, &full_name) {
                Some(pod) => pod.to_string(),
                None => format!("there is no endpoint {full_name} on this host"),
            });
            (
                StatusCode::NOT_FOUND,
                error.with_hint("palisade endpoint list"),
            )
        })
    })
    .await
}

pub(super) async fn identities(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        Ok(palisade_views::endpoints::identity_list(&core.snapshot()))
    })
    .await
}

pub(super) async fn policies(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        Ok(palisade_views::policies::policy_list(&core.snapshot()))
    })
    .await
}

pub(super) async fn policy(
    State(core): State<CoreHandle>,
    PathParameters((namespace, name)): PathParameters<(String, String)>,
) -> Response {
    policy_named(&core, vec![namespace, name]).await
}

pub(super) async fn policy_of_kind(
    State(core): State<CoreHandle>,
    PathParameters((kind, namespace, name)): PathParameters<(String, String, String)>,
) -> Response {
    policy_named(&core, vec![kind, namespace, name]).await
}

pub(super) async fn policy_by_name(
    State(core): State<CoreHandle>,
    PathParameters(name): PathParameters<String>,
) -> Response {
    policy_named(&core, vec![name]).await
}

/// The policy that these segments name.
async fn policy_named(core: &CoreHandle, segments: Vec<String>) -> Response {
    respond_read(core, move |core| {
        let counters = core.parts().1.enforcer.counters().unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        palisade_views::policies::policy_detail(&core.snapshot(), &segments, &counters)
            .map_err(lookup_refusal)
    })
    .await
}

/// The error if a name means no policy or several.
fn lookup_refusal(error: PolicyLookupError) -> (StatusCode, ApiError) {
    let (status, reason) = match error {
        PolicyLookupError::NotFound(reason) => (StatusCode::NOT_FOUND, reason),
        PolicyLookupError::Ambiguous(reason) => (StatusCode::CONFLICT, reason),
    };
    let error = ApiError::new(reason).with_hint("palisade policy list");
    (status, error)
}

pub(super) async fn manifest(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<ManifestQuery>,
) -> Response {
    let find = move |core: &mut Core| {
        let segments: Vec<&str> = query.policy.split('/').collect();
        let parts = palisade_views::policies::policies_named(&core.snapshot(), &segments);
        (parts, core.config().state.dir.clone())
    };
    let (parts, state_dir) = match core.ask_for_client(OperationClass::Read, find).await {
        Ok((Ok(parts), state_dir)) => (parts, state_dir),
        Ok((Err(error), _)) => {
            let (status, error) = lookup_refusal(error);
            return error_response(status, error);
        }
        Err(why) => return unavailable_response(why),
    };
    // It reads a file: neither the core nor other clients wait for it.
    let permit = core.explanation_permit().await;
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        policy_manifest::manifest_report(&parts, &state_dir)
            .map_err(|error| (StatusCode::NOT_FOUND, ApiError::new(error_chain(&error))))
    })
    .await;
    respond(read.map_err(|_| CoreUnavailable::Stopped))
}

pub(super) async fn explain(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<ExplainQuery>,
) -> Response {
    let explainer = core
        .ask_for_client(OperationClass::Read, |core| {
            let pods = core.host_network_pods().clone();
            let (policy, failsafe) = (core.config().policy.clone(), core.config().host.failsafe());
            FlowExplainer::new(core.policy_view().clone(), policy, failsafe, pods)
        })
        .await;
    let explainer = match explainer {
        Ok(explainer) => explainer,
        Err(why) => return unavailable_response(why),
    };
    // It is as long as the policies are many: neither the core nor other clients wait for it.
    let permit = core.explanation_permit().await;
    let explained = tokio::task::spawn_blocking(move || {
        // Held until the end, also if the client is gone by then.
        let _permit = permit;
        let refused = |error| {
            let refusal = match &error {
                ExplainError::FlowEnd(FlowEndError::NoEndpoint { name, .. }) => {
                    match explainer.host_network_pod(name) {
                        Some(pod) => ApiError::new(pod.to_string()),
                        None => {
                            ApiError::new(error_chain(&error)).with_hint("palisade endpoint list")
                        }
                    }
                }
                _ => ApiError::new(error_chain(&error)),
            };
            (StatusCode::UNPROCESSABLE_ENTITY, refusal)
        };
        explainer.explain(&query).map_err(refused)
    })
    .await;
    respond(explained.map_err(|_| CoreUnavailable::Stopped))
}

pub(super) async fn monitor(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<MonitorQuery>,
) -> Response {
    let listen = move |core: &mut Core| {
        let is_told = !query.flows || core.config().monitor.follows_flows;
        is_told.then(|| core.monitor().subscribe(query))
    };
    match core.ask_for_client(OperationClass::Read, listen).await {
        Ok(Some(lines)) => {
            let kind = [(CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(LineStream(lines))).into_response()
        }
        Ok(None) => {
            let error = ApiError::new("the agent does not follow flows")
                .with_hint("set flows: on in the configuration, then restart the agent");
            error_response(StatusCode::CONFLICT, error)
        }
        Err(why) => unavailable_response(why),
    }
}

pub(super) async fn flows(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<RecordedFlowQuery>,
) -> Response {
    let find = |core: &mut Core| (core.flow_outputs().record.clone(), core.config().clone());
    let (record, config) = match core.ask_for_client(OperationClass::Read, find).await {
        Ok((Some(record), config)) => (record, config),
        Ok((None, config)) => return no_record_response(&config.monitor),
        Err(why) => return unavailable_response(why),
    };
    // It reads a file: neither the core nor other clients wait for it.
    let permit = core.explanation_permit().await;
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let node = own_node_name(&config.nodes);
        record.query(&query, &node).map_err(|error| {
            let status = match error {
                RecordQueryError::Query(_) => StatusCode::UNPROCESSABLE_ENTITY,
                RecordQueryError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, ApiError::new(error_chain(&error)))
        })
    })
    .await;
    respond(read.map_err(|_| CoreUnavailable::Stopped))
}

pub(super) async fn preview(
    State(core): State<CoreHandle>,
    JsonBody(request): JsonBody<PreviewRequest>,
) -> Response {
    let find = |core: &mut Core| {
        let record = core.flow_outputs().record.clone();
        (record, core.config().clone(), core.policy_view().clone())
    };
    let (record, config, policy) = match core.ask_for_client(OperationClass::Read, find).await {
        Ok((Some(record), config, policy)) => (record, config, policy),
        Ok((None, config, _)) => return no_record_response(&config.monitor),
        Err(why) => return unavailable_response(why),
    };
    // It reads a file and judges every flow: neither the core nor other clients wait for it.
    let permit = core.explanation_permit().await;
    let judged = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        flow_preview::preview_change(&record, &config, &policy, &request)
    })
    .await;
    respond(judged.map_err(|_| CoreUnavailable::Stopped))
}

/// The error response if no flows are recorded.
fn no_record_response(config: &MonitorConfig) -> Response {
    let parameter = if config.follows_flows {
        "record-flows"
    } else {
        "flows"
    };
    let hint = format!("set {parameter}: on in the configuration, then restart the agent");
    let error = ApiError::new("the agent does not record flows").with_hint(hint);
    error_response(StatusCode::CONFLICT, error)
}

/// A stream of lines that ends with the core.
struct LineStream(tokio::sync::mpsc::Receiver<Bytes>);

impl futures_core::Stream for LineStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

pub(super) async fn ipam(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        Ok(palisade_views::ipam::ipam_report(&core.snapshot()))
    })
    .await
}

pub(super) async fn ipam_check(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        let (workloads, node) = core.parts();
        palisade_views::ipam::ipam_check(workloads, node).map_err(|error| {
            let error = ApiError::new(format!("checking IPAM: {}", error_chain(&error)));
            (StatusCode::INTERNAL_SERVER_ERROR, error)
        })
    })
    .await
}

pub(super) async fn names(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| {
        Ok(palisade_views::names::name_list(&core.snapshot()))
    })
    .await
}

pub(super) async fn name(
    State(core): State<CoreHandle>,
    PathParameters(name): PathParameters<String>,
) -> Response {
    respond_read(&core, move |core| match name.parse() {
        Ok(name) => Ok(palisade_views::names::name_detail(&core.snapshot(), &name)),
        Err(error) => {
            let error = ApiError::new(format!("{name:?} is no domain name: {error}"));
            Err((StatusCode::BAD_REQUEST, error))
        }
    })
    .await
}

pub(super) async fn config(State(core): State<CoreHandle>) -> Response {
    respond_read(&core, |core| Ok(core.config().report())).await
}

/// Opens a namespace on a separate thread, so that a slow file system blocks no other request.
async fn open_netns(core: &CoreHandle, lane: OperationClass, path: &str) -> PreopenedNetns {
    let opener = core.opener(lane).await.ok()??;
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || opener.open(&path, NETNS_OPEN_TIMEOUT))
        .await
        .ok()
}

pub(super) async fn add_workload(
    State(core): State<CoreHandle>,
    Extension(caller): Extension<Caller>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
    JsonBody(request): JsonBody<WorkloadAddRequest>,
) -> Response {
    let received_at = guard.now();
    // Checked before the path is opened.
    let path = AccessRequest::NetnsPath(&request.netns);
    if let Err(refusal) = check_access(caller, &path, &GroupGrants::default()) {
        let (status, error) = forbidden_response(&refusal);
        return error_response(status, error);
    }
    let netns = open_netns(&core, OperationClass::Change, &request.netns).await;
    let request = AttachRequest {
        target: AttachTarget::Workload(request, caller),
        netns,
        received_at,
    };
    let added = core.attach_for_client(OperationClass::Change, request, |core, attached| {
        let added = attached.map(|record| {
            let (workloads, node) = core.parts();
            named::add_response(workloads, node, &record)
        });
        added.map_err(|error| workload_error_response(&error))
    });
    respond(added.await)
}

pub(super) async fn remove_workload(
    State(core): State<CoreHandle>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<WorkloadRemoveRequest>,
) -> Response {
    respond_change(&core, OperationClass::Change, move |workloads, enforcer| {
        named::remove_workload(workloads, enforcer, &request, caller)
    })
    .await
}

pub(super) async fn cni_add(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
    JsonBody(request): JsonBody<CniAddRequest>,
) -> Response {
    let received_at = guard.now();
    let netns = open_netns(&core, OperationClass::Runtime, &request.netns).await;
    let id = pod_id(&request.namespace, &request.name);
    let (notifier, wait) = tokio::sync::oneshot::channel();
    let added = attach_container(
        &core,
        request.clone(),
        (netns, received_at),
        move |core, added| {
            if added.closed.is_some() {
                core.parts().0.notify_when_open(id, notifier);
            }
        },
    );
    let mut added = added.await;
    // The Pod usually arrives within moments; an error would make the runtime retry, which takes longer.
    if let Ok(Ok(CniAddResponse {
        closed: Some(_), ..
    })) = added
    {
        // Opened or timed out: the response has the present state.
        let _ = tokio::time::timeout(POD_WAIT, wait).await;
        added = attach_container(&core, request, (None, received_at), |_, _| {}).await;
    }
    respond(added)
}

/// Attaches a container; `then` runs on the core's thread with the response.
async fn attach_container(
    core: &CoreHandle,
    request: CniAddRequest,
    (netns, received_at): (PreopenedNetns, Instant),
    then: impl FnOnce(&mut Core, &CniAddResponse) + Send + 'static,
) -> Result<Result<CniAddResponse, (StatusCode, ApiError)>, CoreUnavailable> {
    let request = AttachRequest {
        target: AttachTarget::Container(request),
        netns,
        received_at,
    };
    core.attach_for_client(OperationClass::Runtime, request, |core, attached| {
        let added = attached.and_then(|record| {
            let (workloads, node) = core.parts();
            cni::add_response(workloads, node, &record)
        });
        let added = added.inspect(|added| then(core, added));
        added.map_err(|error| workload_error_response(&error))
    })
    .await
}

pub(super) async fn cni_del(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
    JsonBody(request): JsonBody<CniAttachment>,
) -> Response {
    let received_at = guard.now();
    let respond_to = move |core: &mut Core, removed: Result<CniResponse, WorkloadError>| {
        if removed.is_ok() {
            let took = core
                .clock()
                .monotonic()
                .saturating_duration_since(received_at);
            core.parts().1.enforcer.policy.metrics.detach.observe(took);
        }
        removed.map_err(|error| workload_error_response(&error))
    };
    respond(core.detach_for_client(request, respond_to).await)
}

pub(super) async fn cni_check(
    State(core): State<CoreHandle>,
    JsonBody(request): JsonBody<CniCheckRequest>,
) -> Response {
    respond_change(
        &core,
        OperationClass::Runtime,
        move |workloads, enforcer| cni::check(workloads, enforcer, &request),
    )
    .await
}

pub(super) async fn cni_gc(
    State(core): State<CoreHandle>,
    JsonBody(request): JsonBody<CniGcRequest>,
) -> Response {
    respond_change(
        &core,
        OperationClass::Runtime,
        move |workloads, enforcer| cni::gc(workloads, enforcer, &request),
    )
    .await
}

pub(super) async fn metrics(
    State(core): State<CoreHandle>,
    Extension(guard): Extension<Arc<AdmissionControl>>,
) -> Response {
    match core.metrics().await {
        Ok(figures) => {
            let mut figures = (*figures).clone();
            figures.add_sample(&CORE_QUEUE, &[], core.queue_length() as f64);
            add_request_counts(&mut figures, &guard.request_counts());
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

/// Why the core is considered stuck or stopped.
fn stuck_reasons(pulse: &CoreHealth, now: Instant) -> Vec<String> {
    let busy = pulse.busy_since;
    let busy = busy.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    match (pulse.stopped, busy > CORE_STUCK_AFTER) {
        (true, _) => vec!["the agent is stopping".to_owned()],
        (false, true) => vec![format!(
            "the core has been busy with one event for {} s",
            busy.as_secs()
        )],
        (false, false) => Vec::new(),
    }
}

/// Adds the request counts of the API to the metrics.
fn add_request_counts(metrics: &mut Exposition, requests: &RequestCounts) {
    for ((method, route, code), count) in requests {
        let code = code.to_string();
        metrics.add_sample(&API_REQUESTS, &[method, route, &code], *count as f64);
    }
}

/// The response to a probe.
fn probe_response(reasons: Vec<String>) -> Response {
    let (ok, status) = if reasons.is_empty() {
        (true, StatusCode::OK)
    } else {
        (false, StatusCode::SERVICE_UNAVAILABLE)
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
    tracing::warn!(reason = %refusal, "request denied: not permitted");
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
        WorkloadError::NotInSync | WorkloadError::NoPools(_) => StatusCode::SERVICE_UNAVAILABLE,
        WorkloadError::Attach { source, .. }
            if matches!(**source, NetworkDriverError::InterfaceExists { .. }) =>
        {
            StatusCode::CONFLICT
        }
        WorkloadError::Attach { source, .. } if source.is_of_request() => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        WorkloadError::Attach { .. }
        | WorkloadError::Detach { .. }
        | WorkloadError::Inspect { .. }
        | WorkloadError::Record(_)
        | WorkloadError::NotEnforced { .. }
        | WorkloadError::NotMasqueraded { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, ApiError::new(error_chain(error)))
}
