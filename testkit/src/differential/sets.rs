//! Connections and diff, which are exact sets, against the oracle point by point.
//!
//! Points are the world's flows, flows at the edges of what the listing itself names (the first and
//! last address of each outside network, ports beside those of the flows), and each against a state
//! with some policies less.

use super::Failure;
use palisade_analysis::{Connection, Party, Workload, connections, diff};
use palisade_generators::Dice;
use palisade_model::{Encapsulations, Flow, L4, Origin, State};
use palisade_oracle::{Options, Prepared, Question};
use std::net::IpAddr;

/// Points at the edges of a listing, for each world.
const EDGES: usize = 24;

/// Asks listings of a state, and of a change to it, about many flows.
pub(crate) fn check(dice: &mut Dice, state: &State, flows: &[Flow]) -> Result<(), Failure> {
    let list = connections(state);
    let now = Prepared::new(state);
    let mut points: Vec<Flow> = flows.to_vec();
    points.extend(edges(dice, &now, &list, flows));
    for flow in &points {
        let Some(ends) = Ends::of(&now, flow) else {
            continue;
        };
        let (said, wanted) = (ends.listed(&list), allowed(&now, flow));
        if said != wanted {
            let detail = format!("listed: {said}, allowed by the oracle: {wanted}: {flow}");
            return Err(about("connections and oracle", flows, flow, detail));
        }
    }
    let mut fewer = state.clone();
    fewer.policies.retain(|_, _| dice.chance(60));
    let (old, new) = match dice.chance(50) {
        true => (&fewer, state),
        false => (state, &fewer),
    };
    let (before, after) = (Prepared::new(old), Prepared::new(new));
    let diff = diff(old, new);
    for flow in &points {
        let Some(ends) = Ends::of(&now, flow) else {
            continue;
        };
        let said = (ends.listed(&diff.opened), ends.listed(&diff.closed));
        let (was, is) = (allowed(&before, flow), allowed(&after, flow));
        let wanted = (!was && is, was && !is);
        if said != wanted {
            let detail =
                format!("(opened, closed) listed {said:?}, by the oracle {wanted:?}: {flow}");
            return Err(about("diff and oracle", flows, flow, detail));
        }
    }
    Ok(())
}

fn about(stage: &'static str, flows: &[Flow], flow: &Flow, detail: String) -> Failure {
    match flows.iter().position(|known| known == flow) {
        Some(index) => Failure::at(stage, index, detail),
        None => Failure::of(stage, detail),
    }
}

fn allowed(prepared: &Prepared<'_>, flow: &Flow) -> bool {
    let flow = Flow {
        origin: Origin::Network,
        ..*flow
    };
    // Listings are about policy alone.
    let options = Options {
        allowed_encapsulation: Encapsulations::ALL,
        ..Options::default()
    };
    let (egress, ingress) = prepared.verdict(&Question::from(flow), &options);
    egress && ingress
}

/// A flow, with the names its ends may be listed under.
struct Ends<'f> {
    flow: &'f Flow,
    from: Vec<Workload>,
    to: Vec<Workload>,
}

impl<'f> Ends<'f> {
    /// Nothing for flows that listings are not about: inside one workload, or between outsiders.
    fn of(prepared: &Prepared<'_>, flow: &'f Flow) -> Option<Ends<'f>> {
        let (from, to) = (
            names(prepared, flow.source),
            names(prepared, flow.destination),
        );
        let inside = from.iter().any(|name| to.contains(name));
        let outside = from.is_empty() && to.is_empty();
        (!inside && !outside).then_some(Ends { flow, from, to })
    }

    fn listed(&self, list: &[Connection]) -> bool {
        list.iter().any(|connection| {
            covers(&connection.src, &self.from, self.flow.source)
                && covers(&connection.dst, &self.to, self.flow.destination)
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
fn names(prepared: &Prepared<'_>, address: IpAddr) -> Vec<Workload> {
    let holder = prepared.claimant(address).filter(|holder| !holder.host);
    holder.map_or_else(Vec::new, |holder| {
        let whole = Workload::endpoint(holder);
        let here = Workload {
            address: Some(address),
            ..whole.clone()
        };
        vec![whole, here]
    })
}

fn covers(party: &Party, names: &[Workload], address: IpAddr) -> bool {
    match party {
        Party::Workload(workload) => names.contains(workload),
        Party::Outside(prefix) => names.is_empty() && prefix.contains(address),
        Party::Group(group) => group.members.iter().any(|member| names.contains(member)),
        Party::Networks(networks) => names.is_empty() && networks.contain(address),
    }
}

/// Flows at the edges of what a listing names.
fn edges(
    dice: &mut Dice,
    prepared: &Prepared<'_>,
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
        let mut end = |party: &Party| match party {
            Party::Outside(prefix) => *dice.pick(&[prefix.address(), prefix.last()]),
            Party::Workload(_) | Party::Group(_) | Party::Networks(_) => *dice.pick(&held),
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
            origin: Origin::Network,
            ..*like
        });
    }
    points
}
