//! Explains why a flow is allowed or denied, for people and for programs.
//!
//! [`explain`] resolves the two ends of a [`FlowQuery`] to flows, asks the oracle about each, and
//! returns an [`Explanation`]. It contains names and texts only, so it can be sent as JSON and printed
//! by the receiver. This module never computes a verdict itself.

mod nearest;
mod query_traffic;
mod reasons;
mod report;
mod report_builder;
mod resolve;
mod similar_names;
mod text;

pub use query_traffic::TrafficError;
pub use report::{
    DecisionReport, DirectionReport, Explanation, FlowEndReport, FlowReport, NearestMiss,
    ObjectRef, RuleRef, StepReport, VerdictWord,
};
pub use resolve::FlowEndError;

use crate::API_VERSION;
use palisade_model::State;
use palisade_oracle::{DecisionReason, OracleOptions, PreparedState};
use resolve::QueryFlows;

/// A query: two ends and the traffic between them, as a user writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowQuery {
    /// The source: `namespace/pod` or an address.
    pub from: String,
    /// The destination: `namespace/pod`, an address, or `service:namespace/name`.
    pub to: String,
    /// The destination port: `80/TCP`, `80` (TCP), or a named port of the destination, `http/TCP`.
    pub port: Option<String>,
    /// The protocol where `port` is absent: a name or a number.
    pub protocol: Option<String>,
    /// The ICMP message: `TYPE` or `TYPE/CODE`; an echo request where absent.
    pub icmp_type: Option<String>,
    /// The source port; 49152, the first of the dynamic ports, where absent.
    pub source_port: Option<u16>,
}

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
    query: &FlowQuery,
    options: &OracleOptions,
) -> Result<Explanation, ExplainError> {
    let prepared = PreparedState::new(state);
    let flows = QueryFlows::resolve(&prepared, query)?;
    let mut cases: Vec<(FlowReport, [DecisionReason; 2])> = Vec::new();
    for flow in flows.flows {
        let answer = prepared.judge(&flow.question, options);
        let deciders = [
            answer.egress.decided_by.clone(),
            answer.ingress.decided_by.clone(),
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
        api_version: API_VERSION.to_owned(),
        case,
        others: cases,
        notes: flows.notes,
    })
}
