//! Objects of the model in one line of text each, for tests that state them.
//!
//! ```text
//! endpoint   shop/web 10.0.0.1 fd00::1 app=web dev pal0 port http=80/TCP
//! rule       allow from app=web 10.9.0.0/16 on TCP/80 UDP/5000-5010
//! policy     shop/db app=db, then a rule a line
//! ```
//!
//! Promises: what a line does not say has the simplest value (no labels, any traffic, order 1000 in the default
//! tier). Never: reads what users write; a mistake in a line is a panic.

#![allow(
    clippy::panic,
    reason = "a test's own literal: saying which is the best that can be done"
)]

use palisade_model::{
    Action, DirectionRules, Endpoint, LabelKey, Labels, NamedPort, Node, ObjectId, ObjectKind,
    Order, Peer, Policy, PolicyId, PolicyMode, PortMatch, PortRange, PortSpec, Precedence, Prefix,
    Protocol, Rule, RuleOrigin, Selector, TrafficMatch, TrafficScope, tier_name,
};
use std::str::FromStr;

/// The id of an object of the core group, from `NAME` or `NAMESPACE/NAME`.
#[must_use]
pub fn id(kind: &str, name: &str) -> ObjectId {
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace.into()), name),
        None => (None, name),
    };
    ObjectId {
        namespace,
        name: name.into(),
        kind: ObjectKind::new("", kind),
    }
}

/// A pod: its name, then addresses, labels (`KEY=VALUE`), its interface on this host (`dev NAME`) and named
/// ports (`port NAME=NUMBER/PROTOCOL`) in any order. Its profile allows everything.
///
/// # Panics
/// If a word is none of these.
#[must_use]
pub fn endpoint(line: &str) -> Endpoint {
    let mut words = line.split_whitespace();
    let mut endpoint = Endpoint::pod(id("Pod", words.next().unwrap_or_default()));
    while let Some(word) = words.next() {
        match (word, word.split_once('=')) {
            ("dev", _) => endpoint.interface = words.next().map(Into::into),
            ("port", _) => endpoint.ports.push(named_port(words.next().unwrap_or(""))),
            (_, Some((key, value))) => {
                endpoint.labels.insert(key.into(), value.into());
            }
            (address, None) => endpoint.addresses.push(parse(address)),
        }
    }
    endpoint
}

/// A node whose pods get addresses from these networks.
///
/// # Panics
/// If a network is none.
#[must_use]
pub fn node(name: &str, pod_networks: &[&str]) -> Node {
    Node {
        name: name.into(),
        labels: Labels::new(),
        addresses: Vec::new(),
        internal_addresses: Vec::new(),
        pod_networks: pod_networks.iter().map(|text| parse(text)).collect(),
        audit: false,
    }
}

/// `KEY=VALUE` is a test of the object's own label, `KEY` of its presence; with `ns:`, `sa:` or `is:` in front,
/// of a label of its namespace, of its service account, or of a reserved label. No text selects everything.
#[must_use]
pub fn selector(text: &str) -> Selector {
    let (text, key): (&str, fn(&str) -> LabelKey) = match text.split_once(':') {
        Some(("ns", rest)) => (rest, |key| LabelKey::namespace(key)),
        Some(("sa", rest)) => (rest, |key| LabelKey::service_account(key)),
        Some(("is", rest)) => (rest, |key| LabelKey::reserved(key)),
        _ => (text, |key| LabelKey::own(key)),
    };
    match text.split_once('=') {
        Some((name, value)) => Selector::equals(key(name), value),
        None if text.is_empty() => Selector::all(),
        None => Selector::has(key(text)),
    }
}

/// A rule: its action, then after `from` (or `to`) its peers, each a prefix or a [`selector`], and after `on`
/// its traffic, each `PROTOCOL`, `PROTOCOL/PORT` or `PROTOCOL/FIRST-LAST`.
///
/// # Panics
/// If a word is none of these.
#[must_use]
pub fn rule(line: &str) -> Rule {
    let mut words = line.split_whitespace();
    let action = match words.next() {
        Some("allow") => Action::Allow,
        Some("deny") => Action::Deny,
        Some("pass") => Action::Pass,
        Some("log") => Action::Log,
        other => panic!("{other:?} is not an action"),
    };
    let (mut peers, mut traffic) = (Vec::new(), Vec::new());
    let mut is_traffic = false;
    for word in words {
        match (word, word.parse::<Prefix>()) {
            ("from" | "to", _) => is_traffic = false,
            ("on", _) => is_traffic = true,
            _ if is_traffic => traffic.push(traffic_match(word)),
            (_, Ok(prefix)) => peers.push(Peer::net(prefix, Vec::new())),
            (tests, Err(_)) => peers.push(Peer::from_selector(selector(tests))),
        }
    }
    if peers.is_empty() {
        peers.push(Peer::any());
    }
    if traffic.is_empty() {
        traffic.push(TrafficMatch::any());
    }
    Rule {
        origin: RuleOrigin {
            index: 0,
            name: None,
            fingerprint: 0,
            line: None,
        },
        action,
        peers,
        local: None,
        traffic,
        dns_names: None,
    }
}

/// An ingress policy in the default tier, order 1000, that denies what its rules do not allow. The line has its
/// name and the [`selector`] of its subject.
#[must_use]
pub fn policy(line: &str, rules: impl IntoIterator<Item = Rule>) -> Policy {
    let (name, subject) = line.split_once(' ').unwrap_or((line, ""));
    let rules = (0..).zip(rules).map(|(index, mut rule)| {
        rule.origin.index = index;
        rule
    });
    Policy {
        id: PolicyId {
            object: id("NetworkPolicy", name),
            part: 0,
        },
        tier: tier_name::DEFAULT.into(),
        precedence: Precedence {
            order: Order::from_number(1000.0),
            rank: 1,
        },
        mode: PolicyMode::Enforce,
        subject: selector(subject),
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        ingress: Some(DirectionRules {
            default_deny: true,
            rules: rules.collect(),
        }),
        egress: None,
        line: None,
    }
}

fn traffic_match(text: &str) -> TrafficMatch {
    let Some((protocol, ports)) = text.split_once('/') else {
        return TrafficMatch {
            protocol: Some(self::protocol(text)),
            ..TrafficMatch::any()
        };
    };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let range = PortRange {
        first: parse(first),
        last: parse(last),
    };
    let ports = PortMatch::one_of([PortSpec::Range(range)]);
    TrafficMatch::to_port(self::protocol(protocol), ports)
}

fn named_port(text: &str) -> NamedPort {
    let parts = text.split_once('=').zip(text.rsplit_once('/'));
    let Some(((name, rest), (_, protocol))) = parts else {
        panic!("{text:?} is not NAME=NUMBER/PROTOCOL");
    };
    let number = rest.split('/').next().unwrap_or_default();
    NamedPort {
        name: name.into(),
        protocol: self::protocol(protocol),
        port: parse(number),
    }
}

fn protocol(name: &str) -> Protocol {
    Protocol::parse(name).unwrap_or_else(|| panic!("{name:?} is not a protocol"))
}

fn parse<T: FromStr>(text: &str) -> T {
    let parsed = text.parse();
    parsed.unwrap_or_else(|_| panic!("{text:?} is not a {}", std::any::type_name::<T>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_everything() {
        let web = endpoint("shop/web 10.0.0.1 app=web dev pal0 port http=80/TCP fd00::1");
        assert_eq!(web.id, id("Pod", "shop/web"));
        assert_eq!(web.addresses.len(), 2);
        assert_eq!(web.labels.get("app").map(|value| &**value), Some("web"));
        assert_eq!(web.interface.as_deref(), Some("pal0"));
        assert_eq!(web.named_port("http", Protocol::TCP), Some(80));
        let lines = [
            "log on TCP/80",
            "deny from ns:team=a 10.0.0.0/8 on UDP SCTP/1-9",
        ];
        let policy = policy("shop/db app=db", lines.map(rule));
        assert_eq!(policy.subject, selector("app=db"));
        let [log, deny] = policy.ingress.unwrap().rules.try_into().unwrap();
        assert_eq!(
            (log.action, log.peers.len(), log.traffic.len()),
            (Action::Log, 1, 1)
        );
        assert_eq!(
            (deny.peers.len(), deny.traffic.len(), deny.origin.index),
            (2, 2, 1)
        );
        assert_eq!(deny.peers[0], Peer::from_selector(selector("ns:team=a")));
    }
}
