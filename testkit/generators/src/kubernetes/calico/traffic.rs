//! Flows that meet what Calico's rules name: source ports, the endpoints of Services, sets of networks.

use super::super::cilium::has_node_policy;
use super::super::{ClusterTrial, ClusterWorld, pod, policy::NUMBERS};
use super::host_traffic::{aim_at_host_port, is_own_host, is_through_host, lead_through_host};
use crate::Dice;
use crate::naive;
use serde_json::Value;
use std::net::IpAddr;

/// Turns some flows of a world to what its rules name, and says of each what its ends are.
pub(in crate::kubernetes) fn refine_flows(dice: &mut Dice, world: &mut ClusterWorld) {
    let objects = world.objects();
    let has_own_host = objects.iter().any(is_own_host) || has_node_policy(&objects);
    for trial in &mut world.trials {
        if dice.chance(30) {
            move_outside_end(dice, &objects, trial);
        }
        if !trial.features.contains("flow: encapsulation") {
            if has_own_host && dice.chance(27) {
                lead_through_host(dice, &objects, trial);
            }
            refine(dice, &objects, trial);
            aim_at_host_port(dice, &objects, trial);
        }
        for end in [trial.flow.source, trial.flow.destination] {
            for object in objects.iter().filter(|o| naive::in_calico_set(o, end)) {
                trial.features.insert(match kind(object) {
                    "NetworkSet" => "flow: with a NetworkSet",
                    "GlobalNetworkSet" => "flow: with a GlobalNetworkSet",
                    _ => "flow: with a HostEndpoint",
                });
            }
        }
        for tier in objects.iter().filter(|object| object["kind"] == "Tier") {
            if ["default", "kube-admin", "kube-baseline"].contains(&name(tier)) {
                trial.features.insert("tier object of a built-in name");
            }
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn refine(dice: &mut Dice, objects: &[Value], trial: &mut ClusterTrial) {
    match dice.below(100) {
        0..5 => set_protocol(trial, *dice.pick(&[136, 136, 50]), None),
        5..25 if !is_through_host(trial) => aim_at_service(dice, objects, trial),
        25..80 => aim_at_rule(dice, objects, trial),
        _ => {}
    }
    if let Some((source, _)) = &mut trial.flow.ports
        && dice.chance(20)
    {
        *source = *dice.pick(&NUMBERS);
    }
}

/// The rules of Calico that may decide a flow, in this direction; of all policies where none is asked.
fn rules<'a>(objects: &'a [Value], trial: &ClusterTrial, direction: &str) -> Vec<&'a Value> {
    let reading = naive::read(objects, &trial.flow);
    let of = |asked: bool| -> Vec<&'a Value> {
        let all = objects.iter().enumerate();
        all.filter(|(index, _)| !asked || reading.used.contains(index))
            .filter(|(_, object)| {
                object["apiVersion"]
                    .as_str()
                    .is_some_and(|v| v.contains("calico"))
            })
            .filter_map(|(_, object)| object["spec"].get(direction)?.as_array())
            .flatten()
            .collect()
    };
    match of(true) {
        asked if !asked.is_empty() => asked,
        _ => of(false),
    }
}

/// Leads a flow to or from an endpoint of a Service that a rule names.
fn aim_at_service(dice: &mut Dice, objects: &[Value], trial: &mut ClusterTrial) {
    let (direction, end) = *dice.pick(&[
        ("egress", "destination"),
        ("egress", "destination"),
        ("ingress", "source"),
    ]);
    let services: Vec<&Value> = rules(objects, trial, direction)
        .into_iter()
        .filter_map(|rule| rule.get(end)?.get("services"))
        .collect();
    if services.is_empty() {
        return;
    }
    let service = *dice.pick(&services);
    let v6 = trial.flow.source.is_ipv6();
    let endpoints: Vec<(IpAddr, Option<(u8, u16)>)> = objects
        .iter()
        .filter(|object| {
            kind(object) == "EndpointSlice"
                && object["metadata"]["labels"]["kubernetes.io/service-name"] == service["name"]
        })
        .flat_map(|slice| {
            let ports = slice["ports"].as_array().into_iter().flatten();
            let ports: Vec<_> = ports.map(slice_port).collect();
            let addresses = slice_addresses(slice);
            addresses.flat_map(move |a| ports.clone().into_iter().map(move |port| (a, port)))
        })
        .filter(|(address, _)| address.is_ipv6() == v6)
        .collect();
    if endpoints.is_empty() {
        return;
    }
    let (address, port) = *dice.pick(&endpoints);
    let flow = &mut trial.flow;
    let kept = if direction == "egress" {
        flow.source
    } else {
        flow.destination
    };
    let holder = naive::pod_at(objects, address);
    if kept == address || holder.is_some() && holder == naive::pod_at(objects, kept) {
        return;
    }
    match direction {
        "egress" => flow.destination = address,
        _ => flow.source = address,
    }
    if let Some((protocol, port)) = port.filter(|_| dice.chance(80)) {
        let own = flow.ports.map_or(4_000, |(own, _)| own);
        set_protocol(trial, protocol, Some((own, port)));
    }
    trial.features.insert("flow: with an endpoint of a Service");
    name_ends(objects, trial);
}

/// Says anew what the ends of a flow are.
pub(in crate::kubernetes) fn name_ends(objects: &[Value], trial: &mut ClusterTrial) {
    const NAMES: [&str; 5] = [
        "flow: pod to pod",
        "flow: pod to outside",
        "flow: outside to pod",
        "flow: outside to outside",
        "flow: pod to itself",
    ];
    trial.features.retain(|feature| !NAMES.contains(feature));
    let ends = [trial.flow.source, trial.flow.destination];
    let [from, to] = ends.map(|end| naive::pod_at(objects, end).is_some());
    trial.features.insert(match (from, to) {
        (true, true) => NAMES[0],
        (true, false) => NAMES[1],
        (false, true) => NAMES[2],
        (false, false) => NAMES[3],
    });
}

/// Moves the end that no workload has to one that a host endpoint or a set names singly.
fn move_outside_end(dice: &mut Dice, objects: &[Value], trial: &mut ClusterTrial) {
    let flow = &mut trial.flow;
    let v6 = flow.source.is_ipv6();
    let named: Vec<IpAddr> = objects
        .iter()
        .filter(|object| ["HostEndpoint", "NetworkSet", "GlobalNetworkSet"].contains(&kind(object)))
        .flat_map(|object| ["expectedIPs", "nets"].map(|field| object["spec"][field].as_array()))
        .flatten()
        .flatten()
        .filter_map(|text| text.as_str()?.split('/').next()?.parse().ok())
        .filter(|address: &IpAddr| address.is_ipv6() == v6)
        .filter(|address| naive::pod_at(objects, *address).is_none())
        .collect();
    if named.is_empty() {
        return;
    }
    let to = *dice.pick(&named);
    let is_free = |end: IpAddr| {
        let mut workloads = objects.iter().filter(|object| naive::is_workload(object));
        !workloads.any(|workload| naive::addresses(workload).contains(&end))
    };
    if to.is_unspecified() || !is_free(to) || to == flow.source || to == flow.destination {
        return;
    }
    if is_free(flow.source) {
        flow.source = to;
    } else if is_free(flow.destination) {
        flow.destination = to;
    }
}

pub(super) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// Gives a flow the protocol, the ports or the message that some rule names.
fn aim_at_rule(dice: &mut Dice, objects: &[Value], trial: &mut ClusterTrial) {
    let direction = *dice.pick(&["ingress", "egress"]);
    let mut rules = rules(objects, trial, direction);
    let has_ports = |rule: &Value| {
        let mut ends = ["source", "destination"].into_iter();
        ends.any(|end| rule.get(end).is_some_and(|end| end.get("ports").is_some()))
    };
    rules.retain(|rule| rule.get("protocol").is_some() || has_ports(rule));
    if rules.is_empty() {
        return;
    }
    let rule = *dice.pick(&rules);
    let name = rule["protocol"].as_str().unwrap_or_default().to_lowercase();
    let v6 = trial.flow.source.is_ipv6();
    let protocol = match (name.as_str(), rule["protocol"].as_u64()) {
        ("tcp", _) | (_, Some(6)) => 6,
        ("udp", _) | (_, Some(17)) => 17,
        ("sctp", _) | (_, Some(132)) => 132,
        ("icmp", _) if !v6 => 1,
        ("icmpv6", _) if v6 => 58,
        // Ports by name alone: of any protocol that has ports.
        ("", None) => *dice.pick(&[6, 17, 17, 132]),
        _ => return,
    };
    if [1, 58].contains(&protocol) {
        let field = *dice.pick(&["icmp", "notICMP"]);
        let number = |name: &str| u8::try_from(rule.get(field)?.get(name)?.as_u64()?).ok();
        let echo = if v6 { 128 } else { 8 };
        let of = (
            number("type").unwrap_or(echo),
            number("code").unwrap_or(*dice.pick(&[0, 4])),
        );
        set_protocol(trial, protocol, None);
        trial.flow.icmp = Some(of);
    } else {
        let own = trial.flow.ports.map_or(4_000, |(own, _)| own);
        let source = port_of(dice, &rule["source"]).unwrap_or(own);
        let destination = port_of(dice, &rule["destination"]).unwrap_or(*dice.pick(&NUMBERS));
        set_protocol(trial, protocol, Some((source, destination)));
    }
    trial.features.insert("flow: of the protocol of a rule");
}

/// One of the ports that an end names, positively or not.
fn port_of(dice: &mut Dice, end: &Value) -> Option<u16> {
    let listed: Vec<&Value> = ["ports", "notPorts"]
        .into_iter()
        .filter_map(|field| end.get(field)?.as_array())
        .flatten()
        .collect();
    let written = listed.get(dice.below(listed.len()))?;
    let Some(text) = written.as_str() else {
        return u16::try_from(written.as_u64()?).ok();
    };
    let bounds: Vec<u16> = text.split(':').filter_map(|b| b.parse().ok()).collect();
    if !bounds.is_empty() {
        return Some(*dice.pick(&bounds));
    }
    let (_, numbers) = pod::PORT_NAMES
        .into_iter()
        .find(|(name, _)| *name == text)?;
    Some(*dice.pick(numbers))
}

fn slice_addresses(slice: &Value) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints.filter_map(|endpoint| endpoint["addresses"].as_array());
    addresses
        .flatten()
        .filter_map(|text| text.as_str()?.parse().ok())
}

fn slice_port(port: &Value) -> Option<(u8, u16)> {
    let protocol = match port.get("protocol").and_then(Value::as_str) {
        None | Some("TCP") => 6,
        Some("UDP") => 17,
        Some(_) => 132,
    };
    Some((protocol, u16::try_from(port.get("port")?.as_u64()?).ok()?))
}

/// Makes a flow one of another protocol.
pub(super) fn set_protocol(trial: &mut ClusterTrial, protocol: u8, ports: Option<(u16, u16)>) {
    const NAMES: [&str; 6] = [
        "flow: TCP",
        "flow: UDP",
        "flow: SCTP",
        "flow: ICMP",
        "flow: ICMPv6",
        "flow: another protocol",
    ];
    trial.features.retain(|feature| !NAMES.contains(feature));
    trial.features.insert(match protocol {
        6 => NAMES[0],
        17 => NAMES[1],
        132 => NAMES[2],
        1 => NAMES[3],
        58 => NAMES[4],
        _ => NAMES[5],
    });
    trial.flow.protocol = protocol;
    trial.flow.ports = ports;
    trial.flow.icmp = None;
}
