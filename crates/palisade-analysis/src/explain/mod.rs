//! Explains why a flow is allowed or denied, for people and for programs.
//!
//! [`explain`] resolves the two ends of a [`ExplainQuery`] to flows, asks the oracle about each, and
//! returns an [`Explanation`]. It contains names and texts only, so it can be sent as JSON and printed
//! by the receiver. This module never computes a verdict itself.

mod nearest;
mod query_traffic;
pub(crate) mod reasons;
mod report_builder;
mod resolve;

pub use query_traffic::TrafficError;
pub use resolve::FlowEndError;

use palisade_api::{ExplainQuery, Explanation, FlowReport, VerdictWord};
use palisade_model::State;
use palisade_oracle::{DecisionReason, DirectionJudgement, OracleOptions, PreparedState};
use resolve::QueryFlows;

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// An end is invalid or does not exist.
    #[error(transparent)]
    FlowEnd(#[from] FlowEndError),
}

/// Explains the verdict of a query.
///
/// Where a query covers several flows (both families, several addresses, the backends of a service),
/// each distinct result is explained. The first one has the verdict of the query: allow only if all
/// flows are allowed.
pub fn explain(
    state: &State,
    query: &ExplainQuery,
    options: &OracleOptions,
) -> Result<Explanation, ExplainError> {
    let prepared = PreparedState::new(state);
    let flows = QueryFlows::resolve(&prepared, query)?;
    let mut cases: Vec<(FlowReport, [Option<DecisionReason>; 4])> = Vec::new();
    for flow in flows.flows {
        let answer = prepared.judge(&flow.question, options);
        let audited = |side: &DirectionJudgement| {
            let audit = side.audit.as_ref();
            audit.map(|audit| audit.decided_by.clone())
        };
        let deciders = [
            Some(answer.egress.decided_by.clone()),
            Some(answer.ingress.decided_by.clone()),
            audited(&answer.egress),
            audited(&answer.ingress),
        ];
        if !cases.iter().any(|(_, known)| *known == deciders) {
            cases.push((
                report_builder::flow_report(&prepared, flow, &answer),
                deciders,
            ));
        }
    }
    let mut cases: Vec<FlowReport> = cases.into_iter().map(|(case, _)| case).collect();
    let first = cases
        .iter()
        .position(|case| case.verdict == VerdictWord::Deny);
    let case = cases.remove(first.unwrap_or(0));
    Ok(Explanation {
        api_version: palisade_api::api_version(),
        case,
        others: cases,
        notes: flows.notes,
    })
}
