//! `POST /v1/preview`: what a change of policies would have done to the recorded flows.
//!
//! Promises: the policies in force and the changed ones are judged as of one moment; nothing in force changes. Never runs
//! on the core's thread.

use axum::http::StatusCode;
use palisade_api::{ApiError, PreviewReport, PreviewRequest, RecordedFlowQuery};
use palisade_config::Config;
use palisade_enforcer::policy_state::SharedPolicy;
use palisade_flows::filter::MAX_LIMIT;
use palisade_flows::recorder::FlowRecorder;
use palisade_node::cluster_nodes::own_node_name;
use palisade_preview::{AgentActions, Record, apply_policies};
use palisade_text::error_chain;

/// The recorded flows, judged by the policies in force and by changed ones.
pub(super) fn preview_change(
    record: &FlowRecorder,
    config: &Config,
    policy: &SharedPolicy,
    request: &PreviewRequest,
) -> Result<PreviewReport, (StatusCode, ApiError)> {
    let refused = |error: &dyn std::error::Error| {
        let error = ApiError::new(error_chain(error));
        (StatusCode::UNPROCESSABLE_ENTITY, error)
    };
    let query = RecordedFlowQuery {
        since: request.since.clone(),
        limit: Some(MAX_LIMIT),
        ..RecordedFlowQuery::default()
    };
    let flows = record
        .query(&query, &own_node_name(&config.nodes))
        .map_err(|error| refused(&error))?;
    let present = policy.read().engine.state();
    let changed = apply_policies(&present, &request.manifests).map_err(|error| refused(&error))?;
    let mut recorded = Record::default();
    recorded.add(flows, None);
    let actions = AgentActions {
        host_to_endpoint: config.policy.host_to_endpoint,
        hairpin: config.policy.hairpin,
    };
    let mut report = palisade_preview::preview(&recorded, &present, &changed.state, actions)
        .map_err(|error| {
            let error = ApiError::new(error_chain(&error));
            (StatusCode::INTERNAL_SERVER_ERROR, error)
        })?;
    report.notes.extend(changed.notes);
    Ok(report)
}
