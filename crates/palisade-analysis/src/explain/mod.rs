//! Explains why a flow is allowed or denied, for people and for programs.
//!
//! [`explain`] resolves the two ends of a [`ExplainQuery`] to flows, asks the oracle about each, and
//! returns an [`Explanation`]. It contains names and texts only, so it can be sent as JSON and printed
//! by the receiver. This module never computes a verdict itself.

pub(crate) mod host_ends;
pub(crate) mod host_paths;
mod nearest;
mod query_traffic;
pub(crate) mod reasons;
pub(crate) mod report_builder;
mod resolve;

pub use query_traffic::TrafficError;
pub use report_builder::decision_report;
pub use resolve::FlowEndError;

use crate::named_ends::with_name;
use host_paths::HostJudge;
use palisade_api::{ExplainQuery, Explanation, FlowReport, VerdictWord};
use palisade_model::{DomainName, FailsafePorts, FlowOrigin, State};
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

/// Explains the verdict of a query: at both ends, and at the interfaces of hosts with a host endpoint.
///
/// Where a query covers several flows (both families, several addresses, the backends of a service),
/// each distinct result is explained; where it does not name the interfaces, so is each way into and out of a host.
/// The first one has the verdict of the query: allow only if all flows are allowed.
///
/// # Errors
/// If the query is invalid, or names an unknown object.
pub fn explain(
    state: &State,
    query: &ExplainQuery,
    options: &OracleOptions,
    failsafe: &FailsafePorts,
) -> Result<Explanation, ExplainError> {
    let named = resolve::destination_name(&query.to)?;
    let with_name = named.as_ref().map(|name| with_name(state, name));
    let note = named.as_ref().map(|name| name_note(state, name));
    let state = with_name.as_deref().unwrap_or(state);
    let state = &*host_paths::name_interfaces(state);
    let prepared = PreparedState::new(state).with_failsafe(failsafe.clone());
    let mut flows = QueryFlows::resolve(&prepared, query)?;
    let unnamed = host_paths::unnamed_interface_note(state, query);
    flows.notes.extend(unnamed.into_iter().chain(note));
    let hosts = HostJudge::new(state, query, options, failsafe);
    let mut cases: Vec<(FlowReport, Vec<Option<DecisionReason>>)> = Vec::new();
    for mut flow in flows.flows {
        if host_paths::is_from_own_node(&prepared, &flow.question) {
            flow.question.origin = FlowOrigin::HostStack;
        }
        let answer = prepared.judge(&flow.question, options);
        for host in hosts.judge(&prepared, &flow)? {
            let at_hosts = host.iter().map(|at| &at.judgement.judgement);
            let judgements = [&answer.egress, &answer.ingress]
                .into_iter()
                .chain(at_hosts);
            let deciders = judgements.flat_map(|judgement: &DirectionJudgement| {
                let audit = judgement.audit.as_ref();
                let audited = audit.map(|audit| audit.decided_by.clone());
                [Some(judgement.decided_by.clone()), audited]
            });
            let deciders: Vec<Option<DecisionReason>> = deciders.collect();
            if !cases.iter().any(|(_, known)| *known == deciders) {
                let report = report_builder::flow_report(&prepared, &flow, &answer, &host);
                cases.push((report, deciders));
            }
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

/// What the addresses of a name are in the explanation.
fn name_note(state: &State, name: &DomainName) -> String {
    let known = state.network_sets.get(&name.network_set_id());
    match known.map_or(0, |set| set.nets.len()) {
        0 => format!(
            "no address of {name} is known: the address in this explanation stands for one, and is in as few networks of policies as possible"
        ),
        known => format!("{name}: {known} known addresses"),
    }
}
