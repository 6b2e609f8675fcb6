//! Helpers that build states and questions from short texts.
#![allow(
    clippy::unwrap_used,
    reason = "the parsed texts are literals of the tests"
)]

use palisade_generators::line;
pub(crate) use palisade_generators::line::{id, selector as sel};
use palisade_model::*;
use palisade_oracle::{FlowEnd, OracleOptions, Question, verdict};
use std::net::IpAddr;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn net(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// `key=value,key=value`
pub(crate) fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(k, v)| (k.into(), v.into())).collect()
}

pub(crate) fn pod(name: &str, address: &str, own: &str) -> Endpoint {
    Endpoint {
        labels: labels(own),
        ..line::endpoint(&format!("{name} {address}"))
    }
}

pub(crate) fn port(name: &str, protocol: Protocol, port: u16) -> NamedPort {
    let name = name.into();
    NamedPort {
        name,
        protocol,
        port,
    }
}

pub(crate) fn rule(action: Action) -> Rule {
    Rule {
        action,
        ..line::rule("allow")
    }
}

pub(crate) fn from(action: Action, peer: Peer) -> Rule {
    Rule {
        peers: vec![peer],
        ..rule(action)
    }
}

pub(crate) fn on(action: Action, traffic: TrafficMatch) -> Rule {
    Rule {
        traffic: vec![traffic],
        ..rule(action)
    }
}

/// Allows DNS queries for these names.
pub(crate) fn names(texts: &[&str]) -> Rule {
    let pattern = |text: &&str| DomainPattern::glob(text).unwrap();
    Rule {
        dns_names: Some(texts.iter().map(pattern).collect()),
        ..rule(Action::Allow)
    }
}

pub(crate) fn tcp(port: u16) -> TrafficMatch {
    line::rule(&format!("allow on TCP/{port}"))
        .traffic
        .remove(0)
}

/// An ingress policy with default deny in the default tier, order 1000, that selects `subject`.
pub(crate) fn policy(name: &str, subject: &str, rules: Vec<Rule>) -> Policy {
    line::policy(&format!("{name} {subject}"), rules)
}

pub(crate) fn egress(mut policy: Policy) -> Policy {
    policy.egress = policy.ingress.take();
    policy
}

pub(crate) fn in_tier(tier: &str, mut policy: Policy) -> Policy {
    policy.tier = tier.into();
    policy
}

pub(crate) fn at(order: f64, mut policy: Policy) -> Policy {
    policy.precedence.order = Order::from_number(order);
    policy
}

pub(crate) fn open(mut policy: Policy) -> Policy {
    for rules in [&mut policy.ingress, &mut policy.egress]
        .into_iter()
        .flatten()
    {
        rules.default_deny = false;
    }
    policy
}

pub(crate) fn tier(name: &str, order: Order, default: TierDefault) -> Object {
    Object::Tier(Tier {
        name: name.into(),
        order,
        default,
    })
}

pub(crate) fn state(objects: Vec<Object>) -> State {
    State::from_updates(objects.into_iter().map(Update::Upsert))
}

/// Pods `a` and `b` in namespace `n`, and these policies.
pub(crate) fn two(policies: Vec<Policy>) -> State {
    let mut objects = vec![
        Object::Endpoint(pod("n/a", "10.0.0.1 fd00::1", "app=a")),
        Object::Endpoint(pod("n/b", "10.0.0.2 fd00::2", "app=b")),
    ];
    objects.extend(policies.into_iter().map(Object::Policy));
    state(objects)
}

/// `SOURCE>DESTINATION PROTOCOL[:PORT[<SOURCE PORT]]`, or `ICMP:TYPE/CODE`. An end that is not an
/// address is an endpoint whose address is unknown.
pub(crate) fn ask(text: &str) -> Question {
    let (ends, what) = text.split_once(' ').unwrap();
    let (source, destination) = ends.split_once('>').unwrap();
    let end = |text: &str| match text.parse() {
        Ok(address) => FlowEnd::Address(address),
        Err(_) => FlowEnd::Endpoint(id("Pod", text)),
    };
    let (name, detail) = what.split_once(':').unwrap_or((what, ""));
    let protocol = Protocol::parse(name).unwrap();
    let l4 = if protocol.has_ports() {
        let (port, source) = detail.split_once('<').unwrap_or((detail, "50000"));
        L4::Ports {
            source: source.parse().unwrap(),
            destination: port.parse().unwrap(),
        }
    } else if let Some((kind, code)) = detail.split_once('/') {
        L4::Icmp {
            kind: kind.parse().unwrap(),
            code: code.parse().unwrap(),
        }
    } else {
        L4::None
    };
    Question {
        source: end(source),
        destination: end(destination),
        family: if ends.contains("::") {
            Family::V6
        } else {
            Family::V4
        },
        protocol,
        l4,
        origin: FlowOrigin::Network,
        path: palisade_oracle::HostPath::default(),
    }
}

/// Asserts the verdicts of both directions, as `egress ingress`, each `+` or `-`.
#[track_caller]
pub(crate) fn says(state: &State, cases: &[(&str, &str)]) {
    for (question, expected) in cases {
        let (egress, ingress) = verdict(state, &ask(question), &OracleOptions::default());
        let sign = |allowed| if allowed { '+' } else { '-' };
        let said: String = [sign(egress), sign(ingress)].iter().collect();
        assert_eq!(said, *expected, "{question}");
    }
}
