//! `GET /v1/endpoints` and `/v1/identities`.

use super::CoreSnapshot;
use palisade_api::{
    AppliedPolicyReport, EndpointDetail, EndpointList, EndpointState, EndpointSummary,
    IdentityList, IdentityReport, ObjectRef,
};
use palisade_model::{Direction, EndpointId, NamedPort, PolicyMode, Prefix};
use palisade_node::workload_store::pod_id;
use palisade_workloads::registry::Workload;

/// `GET /v1/endpoints`.
pub fn endpoint_list(core: &CoreSnapshot<'_>) -> EndpointList {
    let workloads = core.workloads.registry.iter();
    let endpoints = workloads.map(|(id, workload)| endpoint_summary(core, id, workload));
    EndpointList {
        api_version: palisade_api::api_version(),
        endpoints: endpoints.collect(),
    }
}

/// `GET /v1/endpoints/{namespace}/{name}`.
pub fn endpoint_detail(
    core: &CoreSnapshot<'_>,
    namespace: &str,
    name: &str,
) -> Option<EndpointDetail> {
    let id = pod_id(namespace, name);
    let workload = core.workloads.registry.get(&id)?;
    let in_engine = core.workloads.registry.endpoint_id(&id);
    let endpoint = core.policy.engine.endpoint(&in_engine)?;
    Some(EndpointDetail {
        api_version: palisade_api::api_version(),
        summary: endpoint_summary(core, &id, workload),
        netns: workload.record.netns.clone(),
        ports: endpoint.ports.iter().map(port_text).collect(),
        ingress: applied_policies(core, &in_engine, Direction::Ingress),
        egress: applied_policies(core, &in_engine, Direction::Egress),
    })
}

fn endpoint_summary(
    core: &CoreSnapshot<'_>,
    id: &EndpointId,
    workload: &Workload,
) -> EndpointSummary {
    let record = &workload.record;
    let in_engine = core.workloads.registry.endpoint_id(id);
    let endpoint = core.policy.engine.endpoint(&in_engine);
    let labels = endpoint.iter().flat_map(|endpoint| &endpoint.labels);
    let policies = core.policy.engine.policies_of(&in_engine).into_iter();
    let policies = policies.filter_map(|applied| core.policy.engine.policy(&applied.policy));
    let policies: Vec<_> = policies.collect();
    let audit = endpoint
        .as_ref()
        .is_some_and(|endpoint| core.policy.engine.is_in_audit(endpoint));
    let isolated = |direction| {
        let enforced = policies
            .iter()
            .filter(|policy| policy.mode == PolicyMode::Enforce);
        let mut rules = enforced.filter_map(|policy| policy.rules(direction));
        !audit && rules.any(|rules| rules.default_deny)
    };
    EndpointSummary {
        namespace: record.namespace.to_string(),
        name: record.name.to_string(),
        state: workload.state,
        reason: workload.reason.clone(),
        interface: record.interface.to_string(),
        addresses: record.addresses.iter().map(ToString::to_string).collect(),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        audit,
        ingress_isolated: isolated(Direction::Ingress),
        egress_isolated: isolated(Direction::Egress),
        revision: match workload.state {
            EndpointState::Ready => core.policy.realised_revision,
            _ => 0,
        },
    }
}

/// `GET /v1/identities`.
pub fn identity_list(core: &CoreSnapshot<'_>) -> IdentityList {
    let views = core.policy.engine.identities().into_iter();
    let identities = views.map(|view| {
        let prefixes = view.members.iter().map(|prefix| prefix_text(*prefix));
        let selectors = view.selectors.iter().map(ToString::to_string);
        let net = view.net.map(|net| format!("in {net}"));
        let ports = view.ports.iter();
        let ports = ports.map(|(name, protocol, port)| format!("port {name}={port}/{protocol}"));
        IdentityReport {
            id: view.id.0,
            prefixes: prefixes.collect(),
            matches: selectors.chain(net).chain(ports).collect(),
        }
    });
    IdentityList {
        api_version: palisade_api::api_version(),
        identities: identities.collect(),
    }
}

/// The policies that apply to an endpoint in a direction, in order of evaluation.
fn applied_policies(
    core: &CoreSnapshot<'_>,
    id: &EndpointId,
    direction: Direction,
) -> Vec<AppliedPolicyReport> {
    let policies = core.policy.engine.policies_of(id).into_iter();
    policies
        .filter(|applied| match direction {
            Direction::Ingress => applied.ingress,
            Direction::Egress => applied.egress,
        })
        .map(|applied| AppliedPolicyReport {
            tier: applied.tier.to_string(),
            tier_order: core.tier_order(&applied.tier),
            order: applied.order.number(),
            policy: ObjectRef::new(&applied.policy.object, None),
        })
        .collect()
}

fn port_text(port: &NamedPort) -> String {
    format!("{}={}/{}", port.name, port.port, port.protocol)
}

fn prefix_text(prefix: Prefix) -> String {
    if prefix.is_host() {
        prefix.address().to_string()
    } else {
        prefix.to_string()
    }
}
