//! Policies and profiles whose rules use every field of the model.

use super::object::{PORT_NAMES, TIERS, nets};
use super::selector::{domain_pattern, selector};
use super::{NAMESPACES, id};
use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{
    Action, DirectionRules, Family, IcmpMatch, Order, Peer, Policy, PolicyId, PolicyMode,
    PortMatch, PortRange, PortSpec, Precedence, Profile, Protocol, Rule, RuleOrigin, Selector, Str,
    TrafficMatch, TrafficScope,
};

/// A policy; two draws may have the same name.
pub(super) fn policy(dice: &mut Dice) -> (Policy, Features) {
    let mut features = Features::new();
    let order = match dice.below(6) {
        0 => Order::Last,
        1 => Order::from_number(0.0),
        2 => Order::from_number(-1.0),
        _ => Order::from_number(1000.0),
    };
    if order == Order::Last {
        features.insert("policy without an order");
    }
    let namespace = dice.chance(60).then(|| *dice.pick(&NAMESPACES));
    let name = format!("policy-{}", dice.below(9));
    let subject = if dice.chance(35) {
        Selector::all()
    } else {
        selector(dice, &mut features)
    };
    let (ingress, egress) = match dice.below(100) {
        0..30 => (true, false),
        30..60 => (false, true),
        60..97 => (true, true),
        _ => (false, false),
    };
    let policy = Policy {
        id: PolicyId {
            object: id(namespace, &name, "Policy"),
            part: dice.below(2) as u32,
        },
        tier: (*dice.pick(&TIERS)).into(),
        mode: PolicyMode::Enforce,
        precedence: Precedence {
            order,
            rank: dice.below(2) as u8,
        },
        subject,
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        ingress: ingress.then(|| direction(dice, &mut features)),
        egress: egress.then(|| direction(dice, &mut features)),
        line: None,
    };
    (policy, features)
}

/// A profile of this name.
pub(super) fn profile(dice: &mut Dice, name: &str) -> (Profile, Features) {
    let mut features = Features::new();
    let ingress = rules(dice, &mut features, 55);
    let egress = rules(dice, &mut features, 55);
    let with = |action| {
        ingress
            .iter()
            .chain(&egress)
            .any(|rule| rule.action == action)
    };
    let mut features = Features::from(["profile with rules"]);
    if with(Action::Pass) {
        features.insert("pass in a profile");
    }
    if with(Action::Log) {
        features.insert("log in a profile");
    }
    let name = Str::from(name);
    (
        Profile {
            name,
            ingress,
            egress,
            labels_to_apply: Default::default(),
        },
        features,
    )
}

fn direction(dice: &mut Dice, features: &mut Features) -> DirectionRules {
    let default_deny = dice.chance(45);
    features.insert(if default_deny {
        "policy that asks for default deny"
    } else {
        "policy that asks for no default deny"
    });
    DirectionRules {
        default_deny,
        rules: rules(dice, features, 40),
    }
}

fn rules(dice: &mut Dice, features: &mut Features, allow: u32) -> Vec<Rule> {
    let count = dice.between(0, 4);
    (0..count)
        .map(|index| {
            let action = if dice.chance(allow) {
                Action::Allow
            } else {
                *dice.pick(&[Action::Deny, Action::Pass, Action::Log])
            };
            features.insert(match action {
                Action::Allow => "action: allow",
                Action::Deny => "action: deny",
                Action::Pass => "action: pass",
                Action::Log => "action: log",
            });
            let local = dice.chance(12).then(|| {
                features.insert("test of the local address");
                peer(dice, features)
            });
            Rule {
                origin: RuleOrigin {
                    index: index as u32,
                    name: dice.chance(20).then(|| format!("rule {index}").into()),
                    fingerprint: 0,
                    line: None,
                },
                action,
                peers: peers(dice, features),
                local,
                traffic: traffics(dice, features),
                dns_names: (action == Action::Allow && dice.chance(12)).then(|| {
                    features.insert("rule by the names of DNS queries");
                    (0..dice.below(3)).map(|_| domain_pattern(dice)).collect()
                }),
            }
        })
        .collect()
}

fn peers(dice: &mut Dice, features: &mut Features) -> Vec<Peer> {
    match dice.below(100) {
        0..30 => vec![Peer::any()],
        30..33 => {
            features.insert("no peer at all");
            Vec::new()
        }
        _ => {
            let count = *dice.pick(&[1, 1, 1, 2, 3]);
            (0..count).map(|_| peer(dice, features)).collect()
        }
    }
}

fn peer(dice: &mut Dice, features: &mut Features) -> Peer {
    let mut peer = Peer::any();
    if dice.chance(50) {
        peer.selector = Some(selector(dice, features));
        features.insert("peer: selector");
    }
    if dice.chance(18) {
        peer.not_selector = Some(selector(dice, features));
        features.insert("peer: not selector");
    }
    if dice.chance(40) {
        peer.nets = Some(nets(dice, 4));
        features.insert("peer: nets");
    }
    if dice.chance(22) {
        peer.not_nets = nets(dice, 3);
        features.insert("peer: not nets");
    }
    peer
}

fn traffics(dice: &mut Dice, features: &mut Features) -> Vec<TrafficMatch> {
    match dice.below(100) {
        0..35 => vec![TrafficMatch::any()],
        35..38 => {
            features.insert("no traffic at all");
            Vec::new()
        }
        _ => {
            let count = *dice.pick(&[1, 1, 1, 2, 3]);
            (0..count).map(|_| traffic(dice, features)).collect()
        }
    }
}

/// Protocols that rules name and flows have.
pub(super) const PROTOCOLS: [Protocol; 6] = [
    Protocol::TCP,
    Protocol::UDP,
    Protocol::SCTP,
    Protocol::ICMP,
    Protocol::ICMPV6,
    Protocol(47),
];

fn traffic(dice: &mut Dice, features: &mut Features) -> TrafficMatch {
    let mut traffic = TrafficMatch::any();
    if dice.chance(20) {
        // Ports and ICMP together match nothing: most tests of ICMP stand without ports.
        let protocol = *dice.pick(&[None, Some(Protocol::ICMP), Some(Protocol::ICMPV6)]);
        traffic.protocol = protocol;
        if dice.chance(60) {
            traffic.icmp = Some(icmp(dice));
            features.insert("traffic: ICMP");
        } else {
            traffic.not_icmp = Some(icmp(dice));
            features.insert("traffic: not ICMP");
        }
        return traffic;
    }
    if dice.chance(18) {
        traffic.family = Some(*dice.pick(&Family::BOTH));
        features.insert("traffic: family");
    }
    if dice.chance(55) {
        let ported = dice.chance(65);
        traffic.protocol = Some(*dice.pick(if ported { &PROTOCOLS[..3] } else { &PROTOCOLS }));
        features.insert("traffic: protocol");
    }
    if dice.chance(14) {
        traffic.not_protocols = if dice.chance(70) {
            vec![*dice.pick(&PROTOCOLS)]
        } else {
            Protocol::WITH_PORTS.to_vec()
        };
        features.insert("traffic: not protocol");
    }
    if dice.chance(50) {
        traffic.destination = ports(dice, features);
        features.insert("traffic: destination port");
    }
    if dice.chance(16) {
        traffic.source = ports(dice, features);
        features.insert("traffic: source port");
    }
    if dice.chance(5) {
        traffic.icmp = Some(icmp(dice));
        features.insert("traffic: ICMP");
    }
    if dice.chance(5) {
        traffic.not_icmp = Some(icmp(dice));
        features.insert("traffic: not ICMP");
    }
    traffic
}

fn icmp(dice: &mut Dice) -> IcmpMatch {
    let kind = *dice.pick(&[8, 128, 3, 0]);
    let code = dice.chance(65).then(|| *dice.pick(&[0, 4]));
    IcmpMatch { kind, code }
}

fn ports(dice: &mut Dice, features: &mut Features) -> PortMatch {
    let mut ports = PortMatch::any();
    if dice.chance(75) {
        let count = *dice.pick(&[0, 1, 1, 1, 2, 2, 3]);
        if count == 0 {
            features.insert("no port at all");
        }
        ports.any_of = Some((0..count).map(|_| spec(dice, features)).collect());
    }
    if dice.chance(35) {
        let count = dice.between(1, 2);
        ports.not = (0..count).map(|_| spec(dice, features)).collect();
        features.insert("not ports");
    }
    ports
}

/// Numbers that rules name; flows are drawn near them.
pub(super) const NUMBERS: [u16; 8] = [0, 53, 80, 81, 443, 8080, 1024, 65535];

fn spec(dice: &mut Dice, features: &mut Features) -> PortSpec {
    if dice.chance(28) {
        features.insert("named port");
        let (name, _) = *dice.pick(&PORT_NAMES);
        return PortSpec::Named(name.into());
    }
    let (a, b) = (*dice.pick(&NUMBERS), *dice.pick(&NUMBERS));
    if dice.chance(40) {
        return PortSpec::Range(PortRange::single(a));
    }
    features.insert("range of ports");
    if dice.chance(40) {
        // Short ranges may be written port by port.
        return PortSpec::Range(PortRange {
            first: a,
            last: a.saturating_add(1),
        });
    }
    PortSpec::Range(PortRange {
        first: a.min(b),
        last: a.max(b),
    })
}
