//! Flows through a cluster, with ports and addresses near what the policies name.

use super::policy::NUMBERS;
use super::{ClusterTrial, Features, GeneratedObject, address};
use crate::Dice;
use crate::naive;
use serde_json::Value;
use std::net::IpAddr;

/// A flow between two pods, or between a pod and the outside; sometimes from a pod to itself, as by a
/// Service that leads back to it.
pub(super) fn trial(dice: &mut Dice, made: &[GeneratedObject]) -> ClusterTrial {
    let mut features = Features::new();
    let (source, destination) = ends(dice, made, &mut features);
    let v6 = source.is_ipv6();
    features.insert(if v6 { "flow: IPv6" } else { "flow: IPv4" });
    let (protocol, feature) = match dice.below(100) {
        0..42 => (6, "flow: TCP"),
        42..62 => (17, "flow: UDP"),
        62..76 => (132, "flow: SCTP"),
        76..93 if v6 => (58, "flow: ICMPv6"),
        76..93 => (1, "flow: ICMP"),
        _ => (*dice.pick(&[47, 50, 4]), "flow: another protocol"),
    };
    let own_port = dice
        .chance(35)
        .then(|| named_port(dice, made, destination))
        .flatten();
    let (protocol, feature) = match own_port {
        Some((6, _)) => (6, "flow: TCP"),
        Some((17, _)) => (17, "flow: UDP"),
        Some((other, _)) => (other, "flow: SCTP"),
        None => (protocol, feature),
    };
    features.insert(feature);
    let ports = [6, 17, 132].contains(&protocol).then(|| {
        let own = dice.between(1024, 60_000) as u16;
        (
            own,
            own_port.map_or_else(|| port(dice, made), |(_, port)| port),
        )
    });
    let echo = if v6 { 128 } else { 8 };
    let icmp = [1, 58]
        .contains(&protocol)
        .then(|| (*dice.pick(&[echo, echo, 3, 13]), *dice.pick(&[0, 0, 4])));
    ClusterTrial {
        flow: naive::NaiveFlow {
            source,
            destination,
            protocol,
            ports,
            icmp,
            path: naive::NaivePath::default(),
            query: naive::NaiveQuery::default(),
        },
        features,
    }
}

fn ends(dice: &mut Dice, made: &[GeneratedObject], features: &mut Features) -> (IpAddr, IpAddr) {
    let holders: Vec<(usize, IpAddr)> = made
        .iter()
        .enumerate()
        .filter(|(_, made)| naive::is_workload(&made.object))
        .flat_map(|(index, made)| {
            let ips = naive::addresses(&made.object);
            ips.into_iter().map(move |ip| (index, ip))
        })
        .collect();
    // A pod's own address can be shared with the other end's pod: those pairs are left out.
    let pair = (0..60).find_map(|_| {
        let (a, from) = *holders.get(dice.below(holders.len()))?;
        let (b, to) = *holders.get(dice.below(holders.len()))?;
        let same_pod = a == b || holders.contains(&(a, to)) || holders.contains(&(b, from));
        (from.is_ipv4() == to.is_ipv4() && !same_pod).then_some((from, to))
    });
    if dice.chance(4) {
        // Two addresses of one pod, which may be the same, and which no other pod claims.
        let alone: Vec<(usize, IpAddr)> = holders
            .iter()
            .copied()
            .filter(|(pod, ip)| holders.iter().all(|(other, at)| at != ip || other == pod))
            .collect();
        if let Some((pod, from)) = alone.get(dice.below(alone.len())).copied() {
            let own: Vec<IpAddr> = alone
                .iter()
                .filter(|(other, to)| *other == pod && to.is_ipv4() == from.is_ipv4())
                .map(|(_, to)| *to)
                .collect();
            features.insert("flow: pod to itself");
            return (from, *dice.pick(&own));
        }
    }
    let direction = dice.below(100);
    match (pair, holders.is_empty()) {
        (Some(pair), _) if direction < 56 => {
            features.insert("flow: pod to pod");
            pair
        }
        (_, true) => {
            features.insert("flow: outside to outside");
            let v6 = dice.chance(50);
            (address::outside(dice, v6), address::outside(dice, v6))
        }
        _ => {
            let (_, pod) = *dice.pick(&holders);
            let outside = address::outside(dice, pod.is_ipv6());
            if dice.chance(50) {
                features.insert("flow: outside to pod");
                (outside, pod)
            } else {
                features.insert("flow: pod to outside");
                (pod, outside)
            }
        }
    }
}

/// A destination port: one that a policy or a pod names, or its neighbour.
fn port(dice: &mut Dice, made: &[GeneratedObject]) -> u16 {
    let mut named = Vec::new();
    for object in made {
        collect(&object.object, &mut named);
    }
    named.extend(NUMBERS);
    let port = *dice.pick(&named);
    match dice.below(100) {
        0..10 => port.saturating_sub(1).max(1),
        10..20 => port.saturating_add(1),
        20..28 => dice.between(1, 65535) as u16,
        _ => port,
    }
}

/// One of the ports that the pod at an address names, with its protocol.
fn named_port(dice: &mut Dice, made: &[GeneratedObject], at: IpAddr) -> Option<(u8, u16)> {
    let pod = made.iter().find(|made| {
        naive::is_workload(&made.object) && naive::addresses(&made.object).contains(&at)
    })?;
    let spec = &pod.object["spec"];
    let of_containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|field| spec.get(field)?.as_array())
        .flatten()
        .filter_map(|container| container.get("ports")?.as_array())
        .flatten();
    let of_workload = spec.get("ports").and_then(Value::as_array);
    let all: Vec<(u8, u16)> = of_containers
        .chain(of_workload.into_iter().flatten())
        .filter_map(|port| {
            let protocol = match port.get("protocol").and_then(Value::as_str) {
                None | Some("TCP") => 6,
                Some("UDP") => 17,
                Some(_) => 132,
            };
            let number = port.get("containerPort").or_else(|| port.get("port"))?;
            let number = u16::try_from(number.as_u64()?).ok()?;
            Some((protocol, number))
        })
        .collect();
    (!all.is_empty()).then(|| *dice.pick(&all))
}

fn collect(value: &Value, into: &mut Vec<u16>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64().map(u16::try_from) {
                    Some(Ok(port))
                        if ["port", "endPort", "containerPort", "number", "start", "end"]
                            .contains(&name.as_str()) =>
                    {
                        into.push(port);
                    }
                    _ if ["ports", "notPorts"].contains(&name.as_str()) => {
                        collect_bare(field, into);
                        collect(field, into);
                    }
                    _ => collect(field, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

/// The numbers and the bounds of ranges in a list of Calico's ports.
fn collect_bare(list: &Value, into: &mut Vec<u16>) {
    for item in list.as_array().into_iter().flatten() {
        let number = item.as_u64().and_then(|number| u16::try_from(number).ok());
        let bounds = item.as_str().unwrap_or_default().split(':');
        into.extend(
            number
                .into_iter()
                .chain(bounds.filter_map(|b| b.parse().ok())),
        );
    }
}
