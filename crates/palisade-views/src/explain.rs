//! Explaining one flow as the running agent sees it.

use super::host_network_pod;
use palisade_analysis::ExplainError;
use palisade_api::{ExplainQuery, Explanation};
use palisade_config::PolicyConfig;
use palisade_enforcer::policy_state::SharedPolicy;
use palisade_engine::Engine;
use palisade_model::{
    DenyAction, Direction, DirectionRules, EndpointId, FailsafePorts, PolicyId, Str,
};
use palisade_oracle::OracleOptions;
use palisade_source::UnjudgedPod;
use std::collections::BTreeMap;

/// What explains flows, on any thread.
pub struct FlowExplainer {
    view: SharedPolicy,
    config: PolicyConfig,
    failsafe: FailsafePorts,
    /// The pods on the network of their node that the query names.
    host_network_pods: BTreeMap<EndpointId, Option<Str>>,
}

impl FlowExplainer {
    /// Explains flows by the present and later policy, with this section of the configuration and these failsafe ports;
    /// these pods are on the network of their node.
    pub fn new(
        view: SharedPolicy,
        config: PolicyConfig,
        failsafe: FailsafePorts,
        host_network_pods: BTreeMap<EndpointId, Option<Str>>,
    ) -> Self {
        FlowExplainer {
            view,
            config,
            failsafe,
            host_network_pods,
        }
    }

    /// Whether a flow is allowed on this host, and why.
    ///
    /// # Errors
    /// If the query is invalid, or names an unknown object.
    pub fn explain(&self, query: &ExplainQuery) -> Result<Explanation, ExplainError> {
        let explanation = explain_verdict(&self.view, &self.config, &self.failsafe, query)?;
        Ok(match self.config.deny_action {
            DenyAction::Drop => explanation,
            DenyAction::Reject => explanation.with_answers(),
        })
    }

    /// The pod of this name if it is on the network of its node: it is no endpoint.
    pub fn host_network_pod(&self, name: &str) -> Option<UnjudgedPod> {
        host_network_pod(&self.host_network_pods, name)
    }
}

/// The policies of an endpoint of this host that together exceed the element budget.
struct ClosedPolicies {
    endpoint: EndpointId,
    direction: Direction,
    policies: Vec<PolicyId>,
}

fn closed_policies(engine: &Engine) -> Vec<ClosedPolicies> {
    let endpoints = engine.local_endpoints().map(|endpoint| &endpoint.id);
    let directions = [Direction::Ingress, Direction::Egress];
    endpoints
        .flat_map(|id| directions.map(|direction| (id, direction)))
        .filter_map(|(id, direction)| {
            let policies = engine.closed_policies(id, direction)?;
            Some(ClosedPolicies {
                endpoint: id.clone(),
                direction,
                policies: policies.into_iter().collect(),
            })
        })
        .collect()
}

fn explain_verdict(
    view: &SharedPolicy,
    config: &PolicyConfig,
    failsafe: &FailsafePorts,
    query: &ExplainQuery,
) -> Result<Explanation, ExplainError> {
    let options = OracleOptions {
        hairpin: config.hairpin,
        host_to_endpoint: config.host_to_endpoint,
        allowed_encapsulation: config.allowed_encapsulation,
        audit: config.audit_mode,
        ..OracleOptions::default()
    };
    let policy = view.read();
    let mut state = policy.engine.state();
    let closed_policies = closed_policies(&policy.engine);
    drop(policy);
    let explanation = palisade_analysis::explain(&state, query, &options, failsafe)?;
    let case = &explanation.case;
    let closed: Vec<(Direction, PolicyId)> = [
        (&case.from.endpoint, Direction::Egress),
        (&case.to.endpoint, Direction::Ingress),
    ]
    .into_iter()
    .filter_map(|(end, direction)| {
        let end = end.as_ref()?;
        let policies = closed_policies.iter().find(|closed| {
            let id = &closed.endpoint;
            closed.direction == direction
                && (id.kind.name(), id.namespace.as_deref(), &*id.name)
                    == (&*end.kind, end.namespace.as_deref(), &*end.name)
        })?;
        let policies = policies.policies.iter().cloned();
        Some(policies.map(move |policy| (direction, policy)))
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
