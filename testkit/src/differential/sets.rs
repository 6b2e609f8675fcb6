//! Connections and diff, which are exact sets, against the oracle point by point.
//!
//! Points are the world's flows, flows at the edges of what the listing itself names (the first and
//! last address of each outside network, ports beside those of the flows), and each against a state
//! with some policies less.

use super::StageFailure;
use palisade_analysis::{Connection, ConnectionEnd, connections, diff};
use palisade_api::WorkloadRef;
use palisade_generators::Dice;
use palisade_model::{Encapsulations, Flow, FlowOrigin, L4, State};
use palisade_oracle::{OracleOptions, PreparedState, Question};
use std::net::IpAddr;

/// Points at the edges of a listing, for each world.
const EDGES: usize = 24;

/// Asks listings of a state, and of a change to it, about many flows.
pub(crate) fn check_connections(
    dice: &mut Dice,
    state: &State,
    flows: &[Flow],
) -> Result<(), StageFailure> {
    let list = connections(state);
    let now = PreparedState::new(state);
    let mut points: Vec<Flow> = flows.to_vec();
    points.extend(boundary_flows(dice, &now, &list, flows));
    for flow in &points {
        let Some(ends) = FlowWorkloads::from_flow(&now, flow) else {
            continue;
        };
        let (said, wanted) = (ends.is_listed(&list), is_allowed(&now, flow));
        if said != wanted {
            let detail = format!("listed: {said}, allowed by the oracle: {wanted}: {flow}");
            return Err(flow_failure("connections and oracle", flows, flow, detail));
        }
    }
    let mut fewer = state.clone();
    fewer.policies.retain(|_, _| dice.chance(60));
    let (old, new) = if dice.chance(50) {
        (&fewer, state)
    } else {
        (state, &fewer)
    };
    let (before, after) = (PreparedState::new(old), PreparedState::new(new));
    let diff = diff(old, new);
    for flow in &points {
        let Some(ends) = FlowWorkloads::from_flow(&now, flow) else {
            continue;
        };
        let said = (ends.is_listed(&diff.opened), ends.is_listed(&diff.closed));
        let (was, is) = (is_allowed(&before, flow), is_allowed(&after, flow));
        let wanted = (!was && is, was && !is);
        if said != wanted {
            let detail =
                format!("(opened, closed) listed {said:?}, by the oracle {wanted:?}: {flow}");
            return Err(flow_failure("diff and oracle", flows, flow, detail));
        }
    }
    Ok(())
}

fn flow_failure(stage: &'static str, flows: &[Flow], flow: &Flow, detail: String) -> StageFailure {
    match flows.iter().position(|known| known == flow) {
        Some(index) => StageFailure::at_flow(stage, index, detail),
        None => StageFailure::new(stage, detail),
    }
}

fn is_allowed(prepared: &PreparedState<'_>, flow: &Flow) -> bool {
    let flow = Flow {
        origin: FlowOrigin::Network,
        ..*flow
    };
    // Listings are about policy alone.
    let options = OracleOptions {
        allowed_encapsulation: Encapsulations::ALL,
        ..OracleOptions::default()
    };
    let (egress, ingress) = prepared.verdict(&Question::from(flow), &options);
    egress && ingress
}

/// A flow, with the names its ends may be listed under.
struct FlowWorkloads<'f> {
    flow: &'f Flow,
    from: Vec<WorkloadRef>,
    to: Vec<WorkloadRef>,
}

impl<'f> FlowWorkloads<'f> {
    /// Nothing for flows that listings are not about: inside one workload, or between outsiders.
    fn from_flow(prepared: &PreparedState<'_>, flow: &'f Flow) -> Option<FlowWorkloads<'f>> {
        let (from, to) = (
            workload_names(prepared, flow.source),
            workload_names(prepared, flow.destination),
        );
        let inside = from.iter().any(|name| to.contains(name));
        let outside = from.is_empty() && to.is_empty();
        (!inside && !outside).then_some(FlowWorkloads { flow, from, to })
    }

    fn is_listed(&self, list: &[Connection]) -> bool {
        list.iter().any(|connection| {
            party_contains(&connection.src, &self.from, self.flow.source)
                && party_contains(&connection.dst, &self.to, self.flow.destination)
                && connection
                    .family
                    .is_none_or(|family| family == self.flow.family())
                && connection
                    .connections
                    .contains(self.flow.protocol, self.flow.l4)
        })
    }
}

/// What the workload that holds an address may be called: itself, or this address of it.
fn workload_names(prepared: &PreparedState<'_>, address: IpAddr) -> Vec<WorkloadRef> {
    let holder = prepared
        .address_holder(address)
        .filter(|holder| !holder.is_host());
    holder.map_or_else(Vec::new, |holder| {
        let whole = WorkloadRef::from_endpoint(holder);
        let here = WorkloadRef {
            address: Some(address),
            ..whole.clone()
        };
        vec![whole, here]
    })
}

fn party_contains(party: &ConnectionEnd, names: &[WorkloadRef], address: IpAddr) -> bool {
    match party {
        ConnectionEnd::Workload(workload) => names.contains(workload),
        ConnectionEnd::Outside(prefix) => names.is_empty() && prefix.contains(address),
        ConnectionEnd::Group(group) => group.iter().any(|member| names.contains(member)),
        ConnectionEnd::Networks(networks) => names.is_empty() && networks.contains(address),
        // The addresses of names that the state has are listed as addresses.
        ConnectionEnd::Names(_) => false,
    }
}

/// Flows at the edges of what a listing names.
fn boundary_flows(
    dice: &mut Dice,
    prepared: &PreparedState<'_>,
    list: &[Connection],
    flows: &[Flow],
) -> Vec<Flow> {
    let held: Vec<IpAddr> = prepared.claims().keys().copied().collect();
    let mut points = Vec::new();
    if list.is_empty() || held.is_empty() || flows.is_empty() {
        return points;
    }
    for _ in 0..EDGES {
        let connection = dice.pick(list);
        let mut end = |party: &ConnectionEnd| match party {
            ConnectionEnd::Outside(prefix) => *dice.pick(&[prefix.address(), prefix.last()]),
            ConnectionEnd::Workload(_)
            | ConnectionEnd::Group(_)
            | ConnectionEnd::Networks(_)
            | ConnectionEnd::Names(_) => *dice.pick(&held),
        };
        let (source, destination) = (end(&connection.src), end(&connection.dst));
        let like = dice.pick(flows);
        if source.is_ipv4() != destination.is_ipv4() || source == destination {
            continue;
        }
        let l4 = match like.l4 {
            L4::Ports {
                source,
                destination,
            } => L4::Ports {
                source,
                destination: match dice.below(3) {
                    0 => destination.saturating_add(1),
                    1 => destination.saturating_sub(1),
                    _ => destination,
                },
            },
            other => other,
        };
        points.push(Flow {
            source,
            destination,
            l4,
            origin: FlowOrigin::Network,
            ..*like
        });
    }
    points
}
