//! Flows through the interfaces of this host: to and from itself, and those that it forwards.

use super::super::{ClusterTrial, address};
use super::traffic::{kind, name_ends, set_protocol};
use crate::Dice;
use crate::naive::{self, NaivePath};
use serde_json::Value;
use std::net::IpAddr;

/// Ports that are open whatever policies say, to the host, from it or both, and some beside them.
const OPEN_PORTS: [(u8, u16); 10] = [
    (6, 22),
    (6, 22),
    (17, 68),
    (17, 53),
    (17, 67),
    (6, 179),
    (6, 6443),
    (6, 6667),
    (17, 22),
    (6, 53),
];

/// Whether an object is a host endpoint of this host, at an interface.
pub(super) fn is_own_host(object: &Value) -> bool {
    kind(object) == "HostEndpoint"
        && object["spec"]["node"] == naive::OWN_NODE
        && object["spec"].get("interfaceName").is_some()
}

/// Whether a flow crosses an interface of this host.
pub(super) fn is_through_host(trial: &ClusterTrial) -> bool {
    trial.flow.path != NaivePath::default()
}

/// Leads a flow to this host, from it, or through it.
pub(in crate::kubernetes) fn lead_through_host(
    dice: &mut Dice,
    objects: &[Value],
    trial: &mut ClusterTrial,
) {
    let ends = [trial.flow.source, trial.flow.destination];
    let v6 = ends[0].is_ipv6();
    let [v4_node, v6_node] = address::NODE;
    let Ok(node) = (if v6 { v6_node } else { v4_node }).parse::<IpAddr>() else {
        return;
    };
    let is_outside = |end: &IpAddr| *end != node && is_free(objects, *end);
    let mut outside = ends.into_iter().filter(is_outside);
    let (near, far) = (outside.next(), outside.next());
    let near = near.unwrap_or_else(|| address::far_away(v6, 2));
    let far = far.unwrap_or_else(|| address::far_away(v6, 3));
    let pod = ends
        .into_iter()
        .find(|end| naive::pod_at(objects, *end).is_some());
    let (first, second) = if dice.chance(75) {
        ("eth0", "eth1")
    } else {
        ("eth1", "eth0")
    };
    let drawn = dice.below(100);
    let (from, to, input, output, feature) = match (drawn, pod) {
        (60..80, Some(pod)) => (near, pod, Some(first), None, FORWARDED_TO_POD),
        (80.., Some(pod)) => (pod, near, None, Some(second), FORWARDED_FROM_POD),
        (0..24, _) => (near, node, Some(first), None, "flow: to the host"),
        (24..42, _) => (node, near, None, Some(first), "flow: from the host"),
        _ => (near, far, Some(first), Some(second), FORWARDED),
    };
    let is_of_host = from == node || to == node;
    let flow = &mut trial.flow;
    (flow.source, flow.destination) = (from, to);
    flow.path = NaivePath {
        input,
        output,
        is_forwarded: !is_of_host,
        sent_to: None,
    };
    if input.is_some() && dice.chance(18) {
        // A port of the host, or a Service's, that leads elsewhere.
        let sent_to = *dice.pick(&[node, far, to]);
        let port = flow.ports.map_or(0, |(_, port)| match dice.below(3) {
            0 => port,
            1 => 80,
            _ => 30_080,
        });
        flow.path.sent_to = Some((sent_to, port));
        trial.features.insert("flow: translated");
    }
    name_ends(objects, trial);
    trial.features.insert(feature);
}

const FORWARDED: &str = "flow: forwarded by the host";
const FORWARDED_TO_POD: &str = "flow: forwarded to a pod";
const FORWARDED_FROM_POD: &str = "flow: forwarded from a pod";

/// Whether no workload says that it has this address.
fn is_free(objects: &[Value], address: IpAddr) -> bool {
    let mut workloads = objects.iter().filter(|object| naive::is_workload(object));
    !workloads.any(|workload| naive::addresses(workload).contains(&address))
}

/// One of the ports that the host endpoints of this host name, with its protocol.
fn own_port(dice: &mut Dice, objects: &[Value]) -> Option<(u8, u16)> {
    let hosts = objects.iter().filter(|object| is_own_host(object));
    let ports = hosts.filter_map(|host| host["spec"]["ports"].as_array());
    let all: Vec<(u8, u16)> = ports
        .flatten()
        .filter_map(|port| {
            let protocol = match port["protocol"].as_str() {
                Some("TCP") => 6,
                Some("UDP") => 17,
                _ => 132,
            };
            Some((protocol, u16::try_from(port["port"].as_u64()?).ok()?))
        })
        .collect();
    (!all.is_empty()).then(|| *dice.pick(&all))
}

/// Gives some flows through this host a port that it names, or one that is open or may look so.
pub(in crate::kubernetes) fn aim_at_host_port(
    dice: &mut Dice,
    objects: &[Value],
    trial: &mut ClusterTrial,
) {
    if !is_through_host(trial) {
        return;
    }
    let percent = if trial.flow.path.is_forwarded { 10 } else { 45 };
    if dice.chance(percent)
        && let Some((protocol, port)) = own_port(dice, objects)
    {
        let other = dice.between(1024, 60_000) as u16;
        let is_of_source = trial.flow.path.output.is_some() && dice.chance(60);
        let ports = if is_of_source {
            (port, other)
        } else {
            (other, port)
        };
        set_protocol(trial, protocol, Some(ports));
    } else if dice.chance(35) {
        let (protocol, port) = *dice.pick(&OPEN_PORTS);
        let own = trial.flow.ports.map_or(4_000, |(own, _)| own);
        set_protocol(trial, protocol, Some((own, port)));
        trial.features.insert("flow: to a failsafe port");
    }
}
