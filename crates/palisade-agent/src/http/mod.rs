//! The API: HTTP over a unix socket, defined in one table.
//!
//! [`operations`] lists all operations; the router and the OpenAPI document in `docs/openapi.json` are
//! both generated from it, so they always agree. Every request passes [`admission`]: authorization,
//! rate limit, body size. The API has no state of its own: handlers send requests to the core and
//! render the responses, and all errors have one format.

pub mod admission;
mod fast_path;
mod flow_preview;
mod handlers;
mod policy_manifest;
pub mod server;
pub mod sockets;

use crate::core_queue::CoreHandle;
use admission::{AdmissionControl, OperationGate};
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Router};
use palisade_api::{ApiError, ErrorCode, path};
use palisade_text::printable_json;
use palisade_views::metrics::exposition;
use palisade_workloads::access::OperationClass;
use serde::Serialize;
use std::sync::Arc;

/// The OpenAPI document of this API, as it is checked in.
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// The input of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationInput {
    /// Nothing.
    Nothing,
    /// Parameters of the path, in order.
    Path(&'static [&'static str]),
    /// Query parameters: the fields of this type.
    Query(&'static str),
    /// A JSON body of this type.
    Body(&'static str),
}

/// The output of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationOutput {
    /// A JSON body of this type.
    Json(&'static str),
    /// A stream of lines, each one a JSON value of this type.
    Lines(&'static str),
    /// Any JSON object.
    Object,
    /// Text of this kind.
    Text(&'static str),
}

/// One operation of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `GET`, `POST` or `DELETE`.
    pub method: &'static str,
    /// Its path, with parameters in braces.
    pub path: &'static str,
    /// Its operation id, for generated clients.
    pub id: &'static str,
    /// Its summary, one sentence.
    pub summary: &'static str,
    /// Its class.
    pub class: OperationClass,
    /// Its input.
    pub input: OperationInput,
    /// Its output.
    pub output: OperationOutput,
}

const NAMESPACE_AND_NAME: OperationInput = OperationInput::Path(&["namespace", "name"]);
const KIND_NAMESPACE_AND_NAME: OperationInput =
    OperationInput::Path(&["kind", "namespace", "name"]);
const NAME: OperationInput = OperationInput::Path(&["name"]);

/// Defines the operations, each with its handler: method, path, class, operation id, input, output, handler,
/// summary.
macro_rules! operations {
    ($($method:ident $path:ident $class:ident $id:literal ($input:expr) -> $output:expr, $handler:ident: $summary:literal;)*) => {
        /// Every operation with its handler.
        fn routes() -> Vec<(Operation, MethodRouter<CoreHandle>)> {
            use OperationInput::{Body, Nothing, Query};
            use fast_path::*;
            use handlers::*;
            use OperationOutput::{Json, Lines, Object, Text};
            vec![$((
                Operation {
                    method: method_name(stringify!($method)),
                    path: path::$path,
                    id: $id,
                    summary: $summary,
                    class: OperationClass::$class,
                    input: $input,
                    output: $output,
                },
                $method($handler),
            )),*]
        }
    };
}

/// The method of the function that routes it.
fn method_name(function: &'static str) -> &'static str {
    match function {
        "post" => "POST",
        "delete" => "DELETE",
        _ => "GET",
    }
}

operations! {
    get STATUS Read "getStatus" (Nothing) -> Json("Status"), status:
        "The status of the agent.";
    get ENDPOINTS Read "listEndpoints" (Nothing) -> Json("EndpointList"), endpoints:
        "The endpoints of this host.";
    get ENDPOINT Read "getEndpoint" (NAMESPACE_AND_NAME) -> Json("EndpointDetail"), endpoint:
        "One endpoint, with the policies that apply to it.";
    get IDENTITIES Read "listIdentities" (Nothing) -> Json("IdentityList"), identities:
        "The identities: groups of addresses that no active policy can tell apart.";
    get POLICIES Read "listPolicies" (Nothing) -> Json("PolicyList"), policies:
        "Every policy that was read: those in force in order of evaluation, then the others.";
    get POLICY Read "getPolicy" (NAMESPACE_AND_NAME) -> Json("PolicyDetail"), policy:
        "One policy, with its rules and their counters; of a cluster-wide one, its kind is in place of the namespace.";
    get POLICY_OF_KIND Read "getPolicyOfKind" (KIND_NAMESPACE_AND_NAME) -> Json("PolicyDetail"), policy_of_kind:
        "The same for a policy of this kind.";
    get POLICY_BY_NAME Read "findPolicy" (NAME) -> Json("PolicyDetail"), policy_by_name:
        "The same for the only policy of this name; 409 if there are several.";
    get MANIFEST Read "getManifest" (Query("ManifestQuery")) -> Json("ManifestReport"), manifest:
        "The text of a policy as it was written, and the lines of its rules.";
    get EXPLAIN Read "explain" (Query("ExplainQuery")) -> Json("Explanation"), explain:
        "Whether a flow is allowed on this host, and why.";
    get MONITOR Read "monitor" (Query("MonitorQuery")) -> Lines("MonitorLine"), monitor:
        "Packets that were denied, dropped, or matched by a Log rule, as a stream.";
    get FLOWS Read "listFlows" (Query("RecordedFlowQuery")) -> Json("RecordedFlowList"), flows:
        "Recorded flows and denied packets, summed up by what they have in common.";
    post PREVIEW Read "preview" (Body("PreviewRequest")) -> Json("PreviewReport"), preview:
        "What changed policies would cut and open of the recorded flows; nothing is changed.";
    get IPAM Read "listAddresses" (Nothing) -> Json("IpamReport"), ipam:
        "The address pools and the allocated addresses.";
    get IPAM_CHECK Read "checkAddresses" (Nothing) -> Json("IpamCheck"), ipam_check:
        "Inconsistencies between records, interfaces, routes and tables.";
    get NAMES Read "listNames" (Nothing) -> Json("NameList"), names:
        "The addresses that DNS answers gave for names.";
    get NAME_DETAIL Read "getName" (NAME) -> Json("NameDetail"), name:
        "The addresses of one name, and the rules that concern it.";
    get BPF_ENDPOINTS Read "listBpfEndpoints" (Nothing) -> Json("BpfEndpointList"), bpf_endpoints:
        "The addresses of workloads as the fast path in eBPF knows them; 409 if it does not run.";
    get BPF_FLOWS Read "listBpfFlows" (Query("BpfFlowQuery")) -> Json("BpfFlowList"), bpf_flows:
        "The flows in the table of the fast path; 409 if it does not run.";
    get BPF_POLICY Read "listBpfPolicy" (Query("BpfPolicyQuery")) -> Json("BpfPolicyList"), bpf_policy:
        "What the fast path delivers between workloads, and by which rules; 409 if it does not run.";
    get BPF_CHECK Read "checkBpf" (Nothing) -> Json("BpfCheck"), bpf_check:
        "What of the fast path in the kernel is not as it should be; 409 if it does not run.";
    get CONFIG Read "getConfig" (Nothing) -> Json("ConfigReport"), config:
        "Every parameter, with the source of its value.";
    post WORKLOADS Change "addWorkload" (Body("WorkloadAdd")) -> Json("WorkloadAdded"), add_workload:
        "Attach a network namespace; responds when its policy is in the kernel.";
    delete WORKLOADS Change "removeWorkload" (Body("WorkloadRemove")) -> Json("WorkloadRemoved"), remove_workload:
        "Detach a network namespace.";
    post CNI Runtime "cniAdd" (Body("CniAdd")) -> Json("CniAdded"), cni_add:
        "Attach a container, or confirm that it is attached; responds when its policy is in the kernel.";
    delete CNI Runtime "cniDel" (Body("CniAttachment")) -> Json("CniDone"), cni_del:
        "Detach a container; it is no error if it is not attached.";
    post CNI_CHECK Runtime "cniCheck" (Body("CniCheck")) -> Json("CniDone"), cni_check:
        "Whether a container is still attached as after its ADD.";
    post CNI_GC Runtime "cniGc" (Body("CniGc")) -> Json("CniDone"), cni_gc:
        "Detach every container of a network that is not listed.";
    get METRICS Read "getMetrics" (Nothing) -> Text(exposition::CONTENT_TYPE), metrics:
        "Metrics in the Prometheus text format.";
    get HEALTHZ Probe "getHealth" (Nothing) -> Json("Probe"), healthz:
        "Whether the agent's core responds.";
    get READYZ Probe "getReadiness" (Nothing) -> Json("Probe"), readyz:
        "Whether the kernel holds the policy of the source; 503 if it does not.";
    get OPENAPI Read "getOpenapi" (Nothing) -> Object, openapi:
        "This document.";
}

/// All operations, in the order of the documentation.
pub fn operations() -> Vec<Operation> {
    routes()
        .into_iter()
        .map(|(operation, _)| operation)
        .collect()
}

/// The router of the API, with admission control.
pub fn router(core: CoreHandle, guard: Arc<AdmissionControl>) -> Router {
    build_router(routes(), core, guard)
}

/// The router of `health-address`: metrics and probes only.
pub fn health_router(core: CoreHandle, guard: Arc<AdmissionControl>) -> Router {
    let open_paths = [path::METRICS, path::HEALTHZ, path::READYZ];
    let mut routes = routes();
    routes.retain(|(operation, _)| open_paths.contains(&operation.path));
    build_router(routes, core, guard)
}

fn build_router(
    routes: Vec<(Operation, MethodRouter<CoreHandle>)>,
    core: CoreHandle,
    guard: Arc<AdmissionControl>,
) -> Router {
    let mut router = Router::new();
    for (operation, handler) in routes {
        let path = operation.path;
        let gate = OperationGate::new(Arc::clone(&guard), operation);
        let handler = handler.route_layer(from_fn_with_state(gate, admission::admit_request));
        router = router.route(path, handler);
    }
    router
        .fallback(|| async {
            error_response(
                StatusCode::NOT_FOUND,
                ApiError::new("there is no such path"),
            )
        })
        .method_not_allowed_fallback(|| async {
            error_response(
                StatusCode::METHOD_NOT_ALLOWED,
                ApiError::new("this path does not take that method"),
            )
        })
        .layer(Extension(guard))
        // Admission control has its own body limit.
        .layer(DefaultBodyLimit::disable())
        .with_state(core)
}

/// An error response.
fn error_response(status: StatusCode, mut error: ApiError) -> Response {
    error.code = match status {
        StatusCode::BAD_REQUEST => ErrorCode::BadRequest,
        StatusCode::FORBIDDEN => ErrorCode::Forbidden,
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => ErrorCode::MethodNotAllowed,
        StatusCode::REQUEST_TIMEOUT => ErrorCode::Timeout,
        StatusCode::CONFLICT => ErrorCode::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::Invalid,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Unavailable,
        _ => ErrorCode::Failed,
    };
    (status, json_response(&error)).into_response()
}

/// A JSON response without control characters, safe to print on a terminal.
fn json_response<T: Serialize>(value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => {
            let kind = [(CONTENT_TYPE, "application/json")];
            (kind, printable_json(&text).into_owned()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
