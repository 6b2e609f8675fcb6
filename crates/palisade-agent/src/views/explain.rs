//! Explaining one flow as the running agent sees it.

use super::CoreSnapshot;
use palisade_analysis::ExplainError;
use palisade_api::{ExplainQuery, Explanation};
use palisade_model::{DenyAction, Direction, DirectionRules, PolicyId};
use palisade_oracle::OracleOptions;

/// Whether a flow is allowed on this host, and why.
///
/// # Errors
/// If the query is invalid, or names an unknown object.
pub fn explain(core: &CoreSnapshot<'_>, query: &ExplainQuery) -> Result<Explanation, ExplainError> {
    let explanation = explain_verdict(core, query)?;
    Ok(match core.config.policy.deny_action {
        DenyAction::Drop => explanation,
        DenyAction::Reject => explanation.with_answers(),
    })
}

fn explain_verdict(
    core: &CoreSnapshot<'_>,
    query: &ExplainQuery,
) -> Result<Explanation, ExplainError> {
    let options = OracleOptions {
        hairpin: core.config.policy.hairpin,
        host_to_endpoint: core.config.policy.host_to_endpoint,
        allowed_encapsulation: core.config.policy.allowed_encapsulation,
        audit: core.config.policy.audit_mode,
        ..OracleOptions::default()
    };
    let failsafe = &core.config.host.failsafe();
    let mut state = core.engine.state();
    let explanation = palisade_analysis::explain(&state, query, &options, failsafe)?;
    let case = &explanation.case;
    let closed: Vec<(Direction, PolicyId)> = [
        (&case.from.endpoint, Direction::Egress),
        (&case.to.endpoint, Direction::Ingress),
    ]
    .into_iter()
    .filter_map(|(end, direction)| {
        let end = end.as_ref()?;
        let locals = core.engine.local_endpoints();
        let mut ids = locals.map(|endpoint| &endpoint.id).filter(|id| {
            (id.kind.name(), id.namespace.as_deref(), &*id.name)
                == (&*end.kind, end.namespace.as_deref(), &*end.name)
        });
        let policies = core.engine.closed_policies(ids.next()?, direction)?;
        Some(policies.into_iter().map(move |policy| (direction, policy)))
    })
    .flatten()
    .collect();
    if closed.is_empty() {
        return Ok(explanation);
    }
    // As in the engine: the policies of a closed set have no rules.
    for (direction, policy) in &closed {
        let policy = state.policies.get_mut(policy);
        let line = policy.as_ref().and_then(|policy| policy.line.clone());
        let side = policy.and_then(|policy| match direction {
            Direction::Ingress => policy.ingress.as_mut(),
            Direction::Egress => policy.egress.as_mut(),
        });
        if let Some(side) = side {
            if side.default_deny {
                side.rules.clear();
            } else {
                *side = DirectionRules::deny_all(line);
            }
        }
    }
    let mut explanation = palisade_analysis::explain(&state, query, &options, failsafe)?;
    explanation.notes.push(
        "the policies of this endpoint exceed the element budget (palisade status): they deny everything"
            .to_owned(),
    );
    Ok(explanation)
}
