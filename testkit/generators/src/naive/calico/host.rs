//! Calico's host endpoints: what a packet meets at the interfaces of this host. Where there is none, policies of nodes
//! are asked alone.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

use super::super::{NaiveFlow, OWN_NODE, cilium, text, tiers};
use super::{NaiveSide, NaiveStage, is_calico};
use crate::audit;
use serde_json::Value;
use std::collections::BTreeSet;

/// Protocols and ports to which anybody may connect at the host.
const OPEN_TO_HOST: [(u8, u16); 9] = [
    (6, 22),
    (17, 68),
    (6, 179),
    (6, 2379),
    (6, 2380),
    (6, 5473),
    (6, 6443),
    (6, 6666),
    (6, 6667),
];

/// Protocols and ports to which the host may connect anywhere.
const OPEN_FROM_HOST: [(u8, u16); 9] = [
    (17, 53),
    (17, 67),
    (6, 179),
    (6, 2379),
    (6, 2380),
    (6, 5473),
    (6, 6443),
    (6, 6666),
    (6, 6667),
];

/// Whether a flow may come in and go out by the interfaces on its path.
pub(in crate::naive) fn host_allows(
    objects: &[Value],
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> bool {
    let mut is_allowed = true;
    for (interface, egress) in [(flow.path.input, false), (flow.path.output, true)] {
        let Some(name) = interface.filter(|name| *name != "lo") else {
            continue;
        };
        if let Some(index) = governing(objects, name) {
            used.insert(index);
            let host = &objects[index];
            is_allowed &= allows_at(objects, host, egress, flow, used);
        } else if !flow.path.is_forwarded && !is_always_open(egress, flow) {
            let other = if egress {
                flow.destination
            } else {
                flow.source
            };
            is_allowed &= cilium::allows_at_node(objects, (egress, other), flow, used);
        }
    }
    is_allowed
}

/// The host endpoint of an interface: the first by name that names it, else the first for all interfaces.
fn governing(objects: &[Value], interface: &str) -> Option<usize> {
    let first = |wanted: &str| {
        let all = objects.iter().enumerate();
        all.filter(|(_, object)| {
            is_calico(object, "HostEndpoint")
                && text(object, "/spec/node") == Some(OWN_NODE)
                && text(object, "/spec/interfaceName") == Some(wanted)
        })
        .min_by_key(|(_, object)| text(object, "/metadata/name"))
        .map(|(index, _)| index)
    };
    first(interface).or_else(|| first("*"))
}

/// Whether a flow of the host itself is to a port that no policy closes.
fn is_always_open(egress: bool, flow: &NaiveFlow) -> bool {
    let open = if egress { OPEN_FROM_HOST } else { OPEN_TO_HOST };
    let is_listed = |(_, port)| open.contains(&(flow.protocol, port));
    !flow.path.is_forwarded && flow.ports.is_some_and(is_listed)
}

fn allows_at(
    objects: &[Value],
    host: &Value,
    egress: bool,
    flow: &NaiveFlow,
    used: &mut BTreeSet<usize>,
) -> bool {
    // What goes through the host is tracked and translated where it comes in.
    let stages: &[NaiveStage] = match (flow.path.is_forwarded, egress) {
        (false, false) => &[
            NaiveStage::Untracked,
            NaiveStage::BeforeTranslation,
            NaiveStage::Own,
        ],
        (false, true) => &[NaiveStage::Untracked, NaiveStage::Own],
        (true, false) => &[
            NaiveStage::Untracked,
            NaiveStage::BeforeTranslation,
            NaiveStage::Forwarded,
        ],
        (true, true) => &[NaiveStage::Forwarded],
    };
    for stage in stages.iter().copied() {
        let as_sent = match (stage, flow.path.sent_to) {
            (NaiveStage::Untracked | NaiveStage::BeforeTranslation, Some((destination, port))) => {
                NaiveFlow {
                    destination,
                    ports: flow.ports.map(|(own, _)| (own, port)),
                    ..*flow
                }
            }
            _ => *flow,
        };
        let side = NaiveSide {
            endpoint: host,
            egress,
            stage,
        };
        if let Some(allowed) = ask_stage(objects, (side, &as_sent), used) {
            return allowed;
        }
    }
    true
}

/// What is said of one kind of traffic; nothing where the next is asked about.
fn ask_stage(
    objects: &[Value],
    (side, flow): (NaiveSide<'_>, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> Option<bool> {
    let (open, other) = if side.egress {
        (OPEN_FROM_HOST, OPEN_TO_HOST)
    } else {
        (OPEN_TO_HOST, OPEN_FROM_HOST)
    };
    let is_early = matches!(
        side.stage,
        NaiveStage::Untracked | NaiveStage::BeforeTranslation
    );
    let is_open = flow.ports.is_some_and(|(from, to)| {
        let is_answer = other.contains(&(flow.protocol, from));
        open.contains(&(flow.protocol, to)) || side.stage == NaiveStage::Untracked && is_answer
    });
    if is_open && side.stage != NaiveStage::Forwarded || audit::is_in_audit(side.endpoint) {
        return (!is_early).then_some(true);
    }
    tiers::decide_at_host(objects, (side, flow), used)
}
