//! Why one flow passes or not, for a human and for a program.
//!
//! [`explain`] resolves the two ends of a [`Query`] to flows, asks the oracle about each, and gives
//! the [`Explanation`]: plain words and names, complete in itself, so that it can be sent as JSON and
//! printed by whoever receives it. It never decides anything.

mod flow;
mod nearest;
mod reasons;
mod report;
mod resolve;
mod similar;
mod text;
mod told;

pub use flow::TrafficError;
pub use report::{
    Case, Decision, Explanation, NearestMiss, ObjectRef, Place, RuleRef, Side, StepReport, Word,
};
pub use resolve::EndError;

use crate::API_VERSION;
use palisade_model::State;
use palisade_oracle::{DecidedBy, Options, Prepared};
use resolve::Flows;

/// What is asked: two ends and a kind of traffic, as a user writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
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
    End(#[from] EndError),
}

/// Whether a flow passes, and why.
///
/// Where a query stands for several flows (both families, several addresses, the pods behind a
/// service), each distinct outcome is explained; the first one says what the whole gets: allow only
/// if all are allowed.
pub fn explain(
    state: &State,
    query: &Query,
    options: &Options,
) -> Result<Explanation, ExplainError> {
    let prepared = Prepared::new(state);
    let flows = Flows::of(&prepared, query)?;
    let mut cases: Vec<(Case, [DecidedBy; 2])> = Vec::new();
    for flow in flows.flows {
        let answer = prepared.judge(&flow.question, options);
        let deciders = [
            answer.egress.decided_by.clone(),
            answer.ingress.decided_by.clone(),
        ];
        if !cases.iter().any(|(_, known)| *known == deciders) {
            cases.push((told::case(&prepared, flow, &answer), deciders));
        }
    }
    let mut cases: Vec<Case> = cases.into_iter().map(|(case, _)| case).collect();
    let first = cases.iter().position(|case| case.verdict == Word::Deny);
    let case = cases.remove(first.unwrap_or(0));
    Ok(Explanation {
        api_version: API_VERSION.to_owned(),
        case,
        others: cases,
        notes: flows.notes,
    })
}
