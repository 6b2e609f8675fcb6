//! The handlers of the operations that read the fast path in eBPF.
//!
//! Promises: it is read on the core's thread, which owns the driver, within bounds; where it does not run, the response
//! says why, and what to do.

use super::error_response;
use super::handlers::{QueryParameters, respond_read};
use crate::core_queue::CoreHandle;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use palisade_api::{ApiError, BpfFlowQuery, BpfPolicyQuery, ProtocolName};
use palisade_dataplane::{DriverError, FastPathFlowFilter, FastPathPolicyQuery, FastPathReader};
use palisade_model::Protocol;
use palisade_text::error_chain;
use palisade_views::CoreSnapshot;
use palisade_views::bpf;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The most flows, and the most pairs of addresses, of one response about the fast path.
const MAX_BPF_FLOWS: usize = 100_000;
const MAX_BPF_PAIRS: usize = 10_000;

/// Reads the fast path on the core's thread, which owns the driver; `addresses` are those of the endpoint that is asked
/// for, if one is.
async fn respond_fast_path<T: Serialize + Send + 'static>(
    core: &CoreHandle,
    endpoint: Option<String>,
    read: impl FnOnce(
        &CoreSnapshot<'_>,
        &dyn FastPathReader,
        Option<BTreeSet<IpAddr>>,
    ) -> Result<T, DriverError>
    + Send
    + 'static,
) -> Response {
    respond_read(core, move |core| {
        let snapshot = core.snapshot();
        let Some(reader) = snapshot.enforcer.dataplane.fast_path_reader() else {
            return Err((StatusCode::CONFLICT, bpf::fast_path_refusal(&snapshot)));
        };
        let addresses = match &endpoint {
            Some(name) => {
                let addresses = bpf::workload_addresses(&snapshot, name);
                Some(addresses.ok_or_else(|| {
                    let error = ApiError::new(format!("there is no endpoint {name} on this host"));
                    (
                        StatusCode::NOT_FOUND,
                        error.with_hint("palisade endpoint list"),
                    )
                })?)
            }
            None => None,
        };
        read(&snapshot, &*reader, addresses).map_err(|error| {
            let error = ApiError::new(error_chain(&error));
            (StatusCode::INTERNAL_SERVER_ERROR, error)
        })
    })
    .await
}

pub(super) async fn bpf_endpoints(State(core): State<CoreHandle>) -> Response {
    respond_fast_path(&core, None, |core, reader, _| {
        Ok(bpf::bpf_endpoints(
            core,
            reader.endpoints(),
            reader.uplinks(),
        ))
    })
    .await
}

pub(super) async fn bpf_flows(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<BpfFlowQuery>,
) -> Response {
    let Some(limit) = limit_within(query.limit, 1_000, MAX_BPF_FLOWS) else {
        return limit_response(MAX_BPF_FLOWS);
    };
    let protocol = match query.protocol.map(ProtocolName::number) {
        None => None,
        Some(Some(number)) => Some(Protocol(number)),
        Some(None) => {
            let error = ApiError::new("protocol: \"Other\" is no single protocol");
            return error_response(StatusCode::UNPROCESSABLE_ENTITY, error);
        }
    };
    respond_fast_path(&core, query.endpoint, move |core, reader, addresses| {
        let filter = FastPathFlowFilter {
            addresses,
            protocol,
            limit,
        };
        Ok(bpf::bpf_flows(core, &reader.flows(&filter)?))
    })
    .await
}

pub(super) async fn bpf_policy(
    State(core): State<CoreHandle>,
    QueryParameters(query): QueryParameters<BpfPolicyQuery>,
) -> Response {
    let Some(limit) = limit_within(query.limit, 500, MAX_BPF_PAIRS) else {
        return limit_response(MAX_BPF_PAIRS);
    };
    respond_fast_path(&core, query.endpoint, move |core, reader, addresses| {
        let query = FastPathPolicyQuery { addresses, limit };
        Ok(bpf::bpf_policy(core, &reader.policy(&query)?))
    })
    .await
}

pub(super) async fn bpf_check(State(core): State<CoreHandle>) -> Response {
    respond_fast_path(&core, None, |core, reader, _| {
        Ok(bpf::bpf_check(core, reader.check()?))
    })
    .await
}

/// The limit that a query asks for; `None` if it is out of bounds.
fn limit_within(limit: Option<usize>, default: usize, most: usize) -> Option<usize> {
    let limit = limit.unwrap_or(default);
    (1..=most).contains(&limit).then_some(limit)
}

fn limit_response(most: usize) -> Response {
    let error = ApiError::new(format!("limit: it is not between 1 and {most}"));
    error_response(StatusCode::UNPROCESSABLE_ENTITY, error)
}
