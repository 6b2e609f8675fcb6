//! The API: HTTP over a unix socket, described once.
//!
//! [`operations`] is the list of everything that can be asked; the router is made from it, and so is
//! the OpenAPI document in `docs/openapi.json`, so neither has what the other has not. Every request
//! passes the [`gate`]: who may change something, how often, how much. It keeps no state of its own:
//! every handler asks the core and renders its answer, and every refusal has one shape.

pub mod doors;
pub mod gate;
mod handlers;
pub mod limiter;
pub mod server;

use crate::core::Handle;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Router};
use gate::{Gate, Guard};
use palisade_api::{ApiError, ErrorCode, path};
use palisade_text::printable_json;
use serde::Serialize;
use std::sync::Arc;

/// The OpenAPI document of this API, as it is checked in.
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// What kind of call an operation is: who may make it, and which allowance it is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// It asks how the agent is: anyone who can open the socket, however much others ask. It waits
    /// for no other request, and costs the core nothing.
    Probe,
    /// It changes nothing: anyone who can open the socket.
    Read,
    /// It changes something: root, the agent's own user, the members of the API's group.
    Change,
    /// It attaches or detaches containers: root and the agent's own user. With an allowance of its own,
    /// since a node that starts makes many of them at once, and a script that asks too often must not
    /// hold pods up.
    Runtime,
}

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// Parts of its path, in order.
    Path(&'static [&'static str]),
    /// Query parameters: the fields of this type.
    Query(&'static str),
    /// A JSON body of this type.
    Body(&'static str),
}

/// What an operation answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A JSON body of this type.
    Json(&'static str),
    /// One JSON value of this type a line, as they come.
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
    /// Its path, parts that vary in braces.
    pub path: &'static str,
    /// Its name, for generated clients.
    pub id: &'static str,
    /// What it does, one sentence.
    pub summary: &'static str,
    /// Who may call it, and how often.
    pub lane: Lane,
    /// What it takes.
    pub takes: Takes,
    /// What it answers.
    pub gives: Gives,
}

fn reads(path: &'static str, id: &'static str, summary: &'static str, gives: Gives) -> Operation {
    Operation {
        method: "GET",
        path,
        id,
        summary,
        lane: Lane::Read,
        takes: Takes::Nothing,
        gives,
    }
}

fn probes(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        lane: Lane::Probe,
        ..reads(path, id, summary, Gives::Json("Probe"))
    }
}

fn runs(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    types: (&'static str, &'static str),
) -> Operation {
    Operation {
        lane: Lane::Runtime,
        ..changes(method, path, id, summary, types)
    }
}

fn changes(
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
        lane: Lane::Change,
        takes: Takes::Body(takes),
        gives: Gives::Json(gives),
    }
}

impl Operation {
    fn takes(self, takes: Takes) -> Self {
        Operation { takes, ..self }
    }
}

const NAMED: Takes = Takes::Path(&["namespace", "name"]);

/// Every operation with what carries it out.
fn routes() -> Vec<(Operation, MethodRouter<Handle>)> {
    use Gives::{Json, Lines, Object, Text};
    vec![
        (
            reads(
                path::STATUS,
                "getStatus",
                "How the agent is.",
                Json("Status"),
            ),
            get(handlers::status),
        ),
        (
            reads(
                path::ENDPOINTS,
                "listEndpoints",
                "The endpoints of this host.",
                Json("EndpointList"),
            ),
            get(handlers::endpoints),
        ),
        (
            reads(
                path::ENDPOINT,
                "getEndpoint",
                "One endpoint, with the policies that apply to it.",
                Json("EndpointDetail"),
            )
            .takes(NAMED),
            get(handlers::endpoint),
        ),
        (
            reads(
                path::IDENTITIES,
                "listIdentities",
                "The identities: groups of addresses that no active policy can tell apart.",
                Json("IdentityList"),
            ),
            get(handlers::identities),
        ),
        (
            reads(
                path::POLICIES,
                "listPolicies",
                "The policies in force, in the order they are judged.",
                Json("PolicyList"),
            ),
            get(handlers::policies),
        ),
        (
            reads(
                path::POLICY,
                "getPolicy",
                "One policy, with its rules and their counters.",
                Json("PolicyDetail"),
            )
            .takes(NAMED),
            get(handlers::policy),
        ),
        (
            reads(
                path::EXPLAIN,
                "explain",
                "Whether a flow passes here, and why.",
                Json("Explanation"),
            )
            .takes(Takes::Query("ExplainQuery")),
            get(handlers::explain),
        ),
        (
            reads(
                path::MONITOR,
                "monitor",
                "Packets that were denied, dropped, or asked for by a Log rule, as they are seen.",
                Lines("MonitorLine"),
            )
            .takes(Takes::Query("MonitorQuery")),
            get(handlers::monitor),
        ),
        (
            reads(
                path::IPAM,
                "listAddresses",
                "The address pools, and who has which address.",
                Json("IpamReport"),
            ),
            get(handlers::ipam),
        ),
        (
            reads(
                path::IPAM_CHECK,
                "checkAddresses",
                "What records, interfaces, routes and tables do not agree about.",
                Json("IpamCheck"),
            ),
            get(handlers::ipam_check),
        ),
        (
            reads(
                path::CONFIG,
                "getConfig",
                "Every parameter, and where its value came from.",
                Json("ConfigReport"),
            ),
            get(handlers::config),
        ),
        (
            changes(
                "POST",
                path::WORKLOADS,
                "addWorkload",
                "Attach a network namespace; answers when its policy is in the kernel.",
                ("WorkloadAdd", "WorkloadAdded"),
            ),
            post(handlers::add),
        ),
        (
            changes(
                "DELETE",
                path::WORKLOADS,
                "removeWorkload",
                "Detach a network namespace; nothing of it is left.",
                ("WorkloadRemove", "WorkloadRemoved"),
            ),
            delete(handlers::remove),
        ),
        (
            runs(
                "POST",
                path::CNI,
                "cniAdd",
                "Attach a container, or confirm that it is attached; answers when its policy is in the kernel.",
                ("CniAdd", "CniAdded"),
            ),
            post(handlers::cni_add),
        ),
        (
            runs(
                "DELETE",
                path::CNI,
                "cniDel",
                "Detach a container; one that is not attached is no error.",
                ("CniAttachment", "CniDone"),
            ),
            delete(handlers::cni_del),
        ),
        (
            runs(
                "POST",
                path::CNI_CHECK,
                "cniCheck",
                "Whether a container is attached as it was.",
                ("CniCheck", "CniDone"),
            ),
            post(handlers::cni_check),
        ),
        (
            runs(
                "POST",
                path::CNI_GC,
                "cniGc",
                "Detach every container of a network that is not listed.",
                ("CniGc", "CniDone"),
            ),
            post(handlers::cni_gc),
        ),
        (
            reads(
                path::METRICS,
                "getMetrics",
                "Figures in Prometheus' text format.",
                Text(crate::metrics::exposition::CONTENT_TYPE),
            ),
            get(handlers::metrics),
        ),
        (
            probes(
                path::HEALTHZ,
                "getHealth",
                "Whether the agent's core answers.",
            ),
            get(handlers::healthz),
        ),
        (
            probes(
                path::READYZ,
                "getReadiness",
                "Whether the kernel holds what the source says; 503 where it does not.",
            ),
            get(handlers::readyz),
        ),
        (
            reads(path::OPENAPI, "getOpenapi", "This document.", Object),
            get(handlers::openapi),
        ),
    ]
}

/// Everything that can be asked, in the order of the documentation.
pub fn operations() -> Vec<Operation> {
    routes()
        .into_iter()
        .map(|(operation, _)| operation)
        .collect()
}

/// Every route of the API, behind its gate.
pub fn router(core: Handle, guard: Arc<Guard>) -> Router {
    made_of(routes(), core, guard)
}

/// Figures and probes only, for whoever reaches `health-address`.
pub fn health_router(core: Handle, guard: Arc<Guard>) -> Router {
    let open = [path::METRICS, path::HEALTHZ, path::READYZ];
    let mut routes = routes();
    routes.retain(|(operation, _)| open.contains(&operation.path));
    made_of(routes, core, guard)
}

fn made_of(
    routes: Vec<(Operation, MethodRouter<Handle>)>,
    core: Handle,
    guard: Arc<Guard>,
) -> Router {
    let mut router = Router::new();
    for (operation, handler) in routes {
        let path = operation.path;
        let gate = Gate::new(Arc::clone(&guard), operation);
        let handler = handler.route_layer(from_fn_with_state(gate, gate::pass));
        router = router.route(path, handler);
    }
    router
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                ApiError::new("there is no such path"),
            )
        })
        .method_not_allowed_fallback(|| async {
            refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                ApiError::new("this path does not take that method"),
            )
        })
        .layer(Extension(guard))
        // The gate has its own.
        .layer(DefaultBodyLimit::disable())
        .with_state(core)
}

/// A refusal as a response.
fn refuse(status: StatusCode, mut error: ApiError) -> Response {
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
    (status, json(&error)).into_response()
}

/// A value as a body, fit for a terminal that shows it as it is.
fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => {
            let kind = [(CONTENT_TYPE, "application/json")];
            (kind, printable_json(&text).into_owned()).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
