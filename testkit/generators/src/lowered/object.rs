//! Everything that is not policy: tiers, endpoints, namespaces, accounts, network sets, nodes.

use super::selector::{ACCOUNT, ACCOUNTS, NAMESPACE, OWN};
use super::{NAMESPACES, id};
use crate::kubernetes::Features;
use crate::{Dice, address};
use palisade_model::{
    DomainName, Endpoint, EndpointKind, Labels, NamedPort, Namespace, NetworkSet, NetworkSetKind,
    Node, Object, Order, Prefix, Profile, Protocol, ServiceAccount, Str, Tier, TierDefault,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The tiers that policies name; one of them never exists.
pub(super) const TIERS: [&str; 7] = [
    "kube-admin",
    "default",
    "kube-baseline",
    "first",
    "twin",
    "late",
    "absent",
];

pub(super) fn objects(dice: &mut Dice) -> Vec<Object> {
    let mut all = tiers(dice);
    all.extend(namespaces(dice));
    let mut numbers: Vec<u8> = (0..address::POD_ADDRESSES as u8).collect();
    dice.shuffle(&mut numbers);
    // Addresses are drawn from a pool little larger than what is needed, so that some are shared.
    numbers.truncate(12);
    for n in 0..dice.between(4, 7) {
        all.push(Object::Endpoint(endpoint(dice, n, &numbers)));
    }
    for n in 0..dice.between(0, 3) {
        let namespace = dice.chance(60).then(|| *dice.pick(&NAMESPACES));
        all.push(Object::NetworkSet(NetworkSet {
            id: id(namespace, &format!("set-{n}"), "NetworkSet"),
            kind: NetworkSetKind::NetworkSet,
            labels: labels(dice, &OWN, 60),
            nets: nets(dice, 3),
        }));
    }
    all.extend(domain_names(dice, &numbers).map(Object::NetworkSet));
    for n in 0..dice.between(0, 2) {
        let addresses = (0..dice.between(1, 2))
            .map(|_| any_address(dice, &numbers))
            .collect();
        all.push(Object::Node(Node {
            name: format!("node-{n}").into(),
            labels: labels(dice, &OWN, 60),
            addresses,
            internal_addresses: Vec::new(),
            pod_networks: Vec::new(),
            audit: false,
        }));
    }
    all
}

/// The names that have addresses in worlds.
pub(super) const NAMES: [&str; 5] = [
    "example.com",
    "api.example.com",
    "v1.api.example.com",
    "api.example.org",
    "com",
];

/// Names with their addresses, of which some are held by others as well.
fn domain_names(dice: &mut Dice, numbers: &[u8]) -> impl Iterator<Item = NetworkSet> {
    let names = if dice.chance(50) {
        dice.some(&NAMES, 3)
    } else {
        Vec::new()
    };
    let mut sets = Vec::new();
    for name in names {
        let Ok(name) = name.parse::<DomainName>() else {
            continue;
        };
        let addresses = (0..dice.between(1, 4)).map(|_| any_address(dice, numbers));
        let nets: BTreeSet<Prefix> = addresses.map(Prefix::host).collect();
        sets.push(NetworkSet {
            id: name.network_set_id(),
            kind: NetworkSetKind::DomainName,
            labels: Labels::new(),
            nets: nets.into_iter().collect(),
        });
    }
    sets.into_iter()
}

fn tiers(dice: &mut Dice) -> Vec<Object> {
    let mut all = Vec::new();
    for name in TIERS.into_iter().filter(|name| *name != "absent") {
        let builtin = !["first", "twin", "late"].contains(&name);
        if !dice.chance(if builtin { 25 } else { 75 }) {
            continue;
        }
        let order = match dice.below(4) {
            0 => Order::Last,
            1 => Order::from_number(5.0),
            2 => Order::from_number(1_000_000.0),
            _ => Order::from_number(dice.between(0, 10) as f64 - 2.5),
        };
        let default = if dice.chance(50) {
            TierDefault::Deny
        } else {
            TierDefault::Pass
        };
        let name = name.into();
        all.push(Object::Tier(Tier {
            name,
            order,
            default,
        }));
    }
    all
}

fn namespaces(dice: &mut Dice) -> Vec<Object> {
    let mut all = Vec::new();
    for name in ["shop", "stock"] {
        if dice.chance(85) {
            let mut described = Namespace::from_name(name.into());
            described.labels.extend(labels(dice, &NAMESPACE, 65));
            all.push(Object::Namespace(described));
        }
        for account in ACCOUNTS {
            if dice.chance(70) {
                all.push(Object::ServiceAccount(ServiceAccount {
                    namespace: name.into(),
                    name: account.into(),
                    labels: labels(dice, &ACCOUNT, 80),
                }));
            }
        }
    }
    all
}

/// The same name always has the same interface, so that no two endpoints share one.
fn endpoint(dice: &mut Dice, n: usize, numbers: &[u8]) -> Endpoint {
    let host = dice.chance(10);
    let namespace = (!host && dice.chance(95)).then(|| *dice.pick(&NAMESPACES));
    let local = !host && dice.chance(60);
    let template = !host && !local && dice.chance(5);
    let count = *dice.pick(&[0, 1, 1, 2, 2, 3]);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for _ in 0..if template { 0 } else { count } {
        let v6 = dice.chance(45);
        let one = address::pod_address(v6, *dice.pick(numbers));
        if !addresses.contains(&one) {
            addresses.push(one);
        }
    }
    let kind = if host {
        EndpointKind::HostInterface
    } else if template {
        EndpointKind::Template {
            host_network: false,
        }
    } else {
        EndpointKind::POD
    };
    let object_kind = if host { "HostEndpoint" } else { "Pod" };
    Endpoint {
        kind,
        labels: labels(dice, &OWN, 65),
        service_account: dice.chance(55).then(|| (*dice.pick(&ACCOUNTS)).into()),
        node: dice.chance(50).then(|| "node-0".into()),
        interface: local.then(|| format!("pal{n}").into()),
        addresses,
        ports: named_ports(dice),
        profiles: profiles(dice),
        created: dice.below(3) as u64,
        ..Endpoint::pod(id(namespace, &format!("e-{n}"), object_kind))
    }
}

fn profiles(dice: &mut Dice) -> Vec<Str> {
    let names: &[&str] = match dice.below(100) {
        0..45 => &[Profile::ALLOW_ALL],
        45..55 => &["p-one"],
        55..65 => &["p-one", "p-two"],
        65..78 => &["p-two", Profile::ALLOW_ALL],
        78..85 => &["p-gone", Profile::ALLOW_ALL],
        85..95 => &["p-two", "p-one"],
        _ => &[],
    };
    names.iter().map(|name| Str::from(*name)).collect()
}

/// Names of ports, and the numbers they stand for.
pub(super) const PORT_NAMES: [(&str, &[u16]); 2] = [("web", &[80, 8080, 443]), ("dns", &[53, 80])];

fn named_ports(dice: &mut Dice) -> Vec<NamedPort> {
    let mut ports = Vec::new();
    for (name, numbers) in PORT_NAMES {
        for protocol in dice.some(&Protocol::WITH_PORTS, 2) {
            ports.push(NamedPort {
                name: name.into(),
                protocol,
                port: *dice.pick(numbers),
            });
        }
    }
    if dice.chance(5) && !ports.is_empty() {
        let mut twice = ports[0].clone();
        twice.port = 81;
        ports.push(twice);
    }
    ports
}

fn labels(dice: &mut Dice, of: &[(&str, &[&str])], percent: u32) -> Labels {
    let mut labels = Labels::new();
    for (key, values) in of {
        if dice.chance(percent) {
            labels.insert((*key).into(), (*dice.pick(values)).into());
        }
    }
    labels
}

/// Up to so many networks, of either family.
pub(super) fn nets(dice: &mut Dice, most: usize) -> Vec<Prefix> {
    (0..dice.between(0, most))
        .filter_map(|_| {
            let v6 = dice.chance(45);
            address::network(dice, v6).0.parse().ok()
        })
        .collect()
}

pub(super) fn any_address(dice: &mut Dice, numbers: &[u8]) -> IpAddr {
    let v6 = dice.chance(45);
    if dice.chance(40) {
        address::pod_address(v6, *dice.pick(numbers))
    } else {
        address::outside(dice, v6)
    }
}

/// What an endpoint at a flow's end tries.
pub(super) fn features(endpoint: &Endpoint, features: &mut Features) {
    if endpoint.is_host() {
        features.insert("host endpoint");
    } else if endpoint.interface.is_some() {
        features.insert("endpoint that is local");
    } else {
        features.insert("endpoint that is remote");
    }
    if endpoint.id.namespace.is_none() {
        features.insert("endpoint without a namespace");
    }
    if endpoint.addresses.len() > 1 {
        features.insert("endpoint of several addresses");
    }
    if endpoint.profiles.is_empty() {
        features.insert("endpoint without a profile");
    }
    if endpoint.profiles.len() > 1 {
        features.insert("endpoint of several profiles");
    }
}
