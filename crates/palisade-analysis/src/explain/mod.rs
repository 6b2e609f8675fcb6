//! Why one flow passes or not, for a human and for a program.
//!
//! [`explain`] resolves the two ends of a [`FlowQuery`] to flows, asks the oracle about each, and gives
//! the [`Explanation`]: plain words and names, complete in itself, so that it can be sent as JSON and
//! printed by whoever receives it. It never decides anything.

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

/// What is asked: two ends and a kind of traffic, as a user writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowQuery {
    /// Who connects: `namespace/pod` or an address.
    pub from: String,
    /// To whom: `namespace/pod`, an address, or `service:namespace/name`.
    pub to: String,
    /// `80/TCP`, `80` (TCP), or with the name of a port of the destination, `http/TCP`.
    pub port: Option<String>,
    /// The protocol, where `port` is not given: a name or a number.
    pub protocol: Option<String>,
    /// `TYPE` or `TYPE/CODE`; an echo request where absent.
    pub icmp_type: Option<String>,
    /// The source port; 49152, the first of the dynamic ports, where absent.
    pub source_port: Option<u16>,
}

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The traffic is not understood.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// An end is not understood or not there.
    #[error(transparent)]
    FlowEnd(#[from] FlowEndError),
}

/// Whether a flow passes, and why.
///
/// Where a query stands for several flows (both families, several addresses, the pods behind a
/// service), each distinct outcome is explained; the first one says what the whole gets: allow only
/// if all are allowed.
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
