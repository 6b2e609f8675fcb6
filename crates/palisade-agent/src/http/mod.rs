//! The API: HTTP over a unix socket, defined in one table.
//!
//! [`operations`] lists all operations; the router and the OpenAPI document in `docs/openapi.json` are
//! both generated from it, so they always agree. Every request passes [`admission`]: authorization,
//! rate limit, body size. The API has no state of its own: handlers send requests to the core and
//! render the responses, and all errors have one format.

pub mod admission;
mod handlers;
pub mod server;
pub mod sockets;

use crate::access::OperationClass;
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

fn read_operation(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    output: OperationOutput,
) -> Operation {
    Operation {
        method: "GET",
        path,
        id,
        summary,
        class: OperationClass::Read,
        input: OperationInput::Nothing,
        output,
    }
}

fn probe_operation(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        class: OperationClass::Probe,
        ..read_operation(path, id, summary, OperationOutput::Json("Probe"))
    }
}

fn runtime_operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    types: (&'static str, &'static str),
) -> Operation {
    Operation {
        class: OperationClass::Runtime,
        ..change_operation(method, path, id, summary, types)
    }
}

fn change_operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    (takes, gives): (&'static str, &'static str),
) -> Operation {
    Operation {
        method,
        path,
        id,
        summary,
        class: OperationClass::Change,
        input: OperationInput::Body(takes),
        output: OperationOutput::Json(gives),
    }
}

impl Operation {
    fn with_input(self, takes: OperationInput) -> Self {
        Operation {
            input: takes,
            ..self
        }
    }
}

const NAMESPACE_AND_NAME: OperationInput = OperationInput::Path(&["namespace", "name"]);

/// Every operation with its handler.
fn routes() -> Vec<(Operation, MethodRouter<CoreHandle>)> {
    use OperationOutput::{Json, Lines, Object, Text};
    vec![
        (
            read_operation(
                path::STATUS,
                "getStatus",
                "The status of the agent.",
                Json("Status"),
            ),
            get(handlers::status),
        ),
        (
            read_operation(
                path::ENDPOINTS,
                "listEndpoints",
                "The endpoints of this host.",
                Json("EndpointList"),
            ),
            get(handlers::endpoints),
        ),
        (
            read_operation(
                path::ENDPOINT,
                "getEndpoint",
                "One endpoint, with the policies that apply to it.",
                Json("EndpointDetail"),
            )
            .with_input(NAMESPACE_AND_NAME),
            get(handlers::endpoint),
        ),
        (
            read_operation(
                path::IDENTITIES,
                "listIdentities",
                "The identities: groups of addresses that no active policy can tell apart.",
                Json("IdentityList"),
            ),
            get(handlers::identities),
        ),
        (
            read_operation(
                path::POLICIES,
                "listPolicies",
                "The policies in force, in order of evaluation.",
                Json("PolicyList"),
            ),
            get(handlers::policies),
        ),
        (
            read_operation(
                path::POLICY,
                "getPolicy",
                "One policy, with its rules and their counters.",
                Json("PolicyDetail"),
            )
            .with_input(NAMESPACE_AND_NAME),
            get(handlers::policy),
        ),
        (
            read_operation(
                path::EXPLAIN,
                "explain",
                "Whether a flow is allowed on this host, and why.",
                Json("Explanation"),
            )
            .with_input(OperationInput::Query("ExplainQuery")),
            get(handlers::explain),
        ),
        (
            read_operation(
                path::MONITOR,
                "monitor",
                "Packets that were denied, dropped, or matched by a Log rule, as a stream.",
                Lines("MonitorLine"),
            )
            .with_input(OperationInput::Query("MonitorQuery")),
            get(handlers::monitor),
        ),
        (
            read_operation(
                path::IPAM,
                "listAddresses",
                "The address pools and the allocated addresses.",
                Json("IpamReport"),
            ),
            get(handlers::ipam),
        ),
        (
            read_operation(
                path::IPAM_CHECK,
                "checkAddresses",
                "Inconsistencies between records, interfaces, routes and tables.",
                Json("IpamCheck"),
            ),
            get(handlers::ipam_check),
        ),
        (
            read_operation(
                path::CONFIG,
                "getConfig",
                "Every parameter, with the source of its value.",
                Json("ConfigReport"),
            ),
            get(handlers::config),
        ),
        (
            change_operation(
                "POST",
                path::WORKLOADS,
                "addWorkload",
                "Attach a network namespace; responds when its policy is in the kernel.",
                ("WorkloadAdd", "WorkloadAdded"),
            ),
            post(handlers::add_workload),
        ),
        (
            change_operation(
                "DELETE",
                path::WORKLOADS,
                "removeWorkload",
                "Detach a network namespace.",
                ("WorkloadRemove", "WorkloadRemoved"),
            ),
            delete(handlers::remove_workload),
        ),
        (
            runtime_operation(
                "POST",
                path::CNI,
                "cniAdd",
                "Attach a container, or confirm that it is attached; responds when its policy is in the kernel.",
                ("CniAdd", "CniAdded"),
            ),
            post(handlers::cni_add),
        ),
        (
            runtime_operation(
                "DELETE",
                path::CNI,
                "cniDel",
                "Detach a container; it is no error if it is not attached.",
                ("CniAttachment", "CniDone"),
            ),
            delete(handlers::cni_del),
        ),
        (
            runtime_operation(
                "POST",
                path::CNI_CHECK,
                "cniCheck",
                "Whether a container is still attached as after its ADD.",
                ("CniCheck", "CniDone"),
            ),
            post(handlers::cni_check),
        ),
        (
            runtime_operation(
                "POST",
                path::CNI_GC,
                "cniGc",
                "Detach every container of a network that is not listed.",
                ("CniGc", "CniDone"),
            ),
            post(handlers::cni_gc),
        ),
        (
            read_operation(
                path::METRICS,
                "getMetrics",
                "Metrics in the Prometheus text format.",
                Text(crate::metrics::exposition::CONTENT_TYPE),
            ),
            get(handlers::metrics),
        ),
        (
            probe_operation(
                path::HEALTHZ,
                "getHealth",
                "Whether the agent's core responds.",
            ),
            get(handlers::healthz),
        ),
        (
            probe_operation(
                path::READYZ,
                "getReadiness",
                "Whether the kernel holds the policy of the source; 503 if it does not.",
            ),
            get(handlers::readyz),
        ),
        (
            read_operation(path::OPENAPI, "getOpenapi", "This document.", Object),
            get(handlers::openapi),
        ),
    ]
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
