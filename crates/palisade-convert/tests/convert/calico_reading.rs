//! A reading of the policies of Calico that are written here, from what Calico documents: apart from the writer, and
//! from the dialect.
//!
//! Never: reads more of Calico than the writer writes; anything else is a panic.

use palisade_model::{
    Action, Direction, DirectionRules, IcmpMatch, LabelKey, ObjectId, ObjectKind, Order, Peer,
    Policy, PolicyId, PolicyMode, PortMatch, PortRange, PortSpec, Precedence, Prefix, Protocol,
    Rule, RuleOrigin, Selector, Str, TrafficMatch, reserved,
};
use serde_json::Value;

/// The policy of a written object.
pub(crate) fn read(object: &Value) -> Policy {
    assert_eq!(object["apiVersion"], "projectcalico.org/v3");
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let namespace: Option<Str> = text("/metadata/namespace").map(Into::into);
    let kind = text("/kind").unwrap();
    assert_eq!(kind == "NetworkPolicy", namespace.is_some());
    let spec = &object["spec"];
    fields(
        spec,
        &[
            "tier",
            "order",
            "selector",
            "namespaceSelector",
            "types",
            "ingress",
            "egress",
        ],
    );
    let mut subject = vec![kind_in(&[reserved::KIND_WORKLOAD])];
    subject.extend(namespace.clone().map(own_namespace));
    subject.extend(spec["selector"].as_str().map(own_selector));
    subject.extend(spec["namespaceSelector"].as_str().map(namespace_selector));
    let rules = |direction: Direction, name: &str| {
        let types = spec["types"].as_array().unwrap();
        let list = spec[direction.to_string()].as_array();
        types.contains(&Value::from(name)).then(|| DirectionRules {
            default_deny: true,
            rules: list
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(index, rule)| read_rule(rule, direction, namespace.as_ref(), index))
                .collect(),
        })
    };
    let is_audit = text("/metadata/annotations/palisade.dev~1mode") == Some("audit");
    Policy {
        tier: spec["tier"].as_str().unwrap_or("default").into(),
        precedence: Precedence {
            order: spec["order"]
                .as_f64()
                .map_or(Order::Last, Order::from_number),
            rank: 0,
        },
        mode: match is_audit {
            true => PolicyMode::Audit,
            false => PolicyMode::Enforce,
        },
        subject: Selector::and(subject),
        ingress: rules(Direction::Ingress, "Ingress"),
        egress: rules(Direction::Egress, "Egress"),
        line: None,
        id: PolicyId {
            object: ObjectId {
                namespace: namespace.clone(),
                name: text("/metadata/name").unwrap().into(),
                kind: ObjectKind::new("projectcalico.org", kind),
            },
            part: 0,
        },
    }
}

fn fields(of: &Value, known: &[&str]) {
    for key in of.as_object().unwrap().keys() {
        assert!(known.contains(&&**key), "{key}");
    }
}

fn kind_in(kinds: &[&str]) -> Selector {
    let kinds = kinds.iter().map(|kind| (*kind).into());
    Selector::is_in(LabelKey::reserved(reserved::KIND), kinds)
}

fn own_namespace(name: Str) -> Selector {
    Selector::equals(LabelKey::reserved(reserved::NAMESPACE), name)
}

fn read_rule(rule: &Value, direction: Direction, namespace: Option<&Str>, index: usize) -> Rule {
    fields(
        rule,
        &["action", "protocol", "icmp", "source", "destination"],
    );
    let number = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
    let protocol = rule.get("protocol").map(|value| match value.as_str() {
        Some("TCP") => Protocol::TCP,
        Some("UDP") => Protocol::UDP,
        Some("SCTP") => Protocol::SCTP,
        Some("ICMP") => Protocol::ICMP,
        Some("ICMPv6") => Protocol::ICMPV6,
        Some(other) => panic!("{other}"),
        None => Protocol(number(value)),
    });
    let mut traffic = TrafficMatch {
        protocol,
        ..TrafficMatch::any()
    };
    if let Some(icmp) = rule.get("icmp") {
        assert!(protocol.unwrap().is_icmp());
        traffic.icmp = Some(IcmpMatch {
            kind: number(&icmp["type"]),
            code: icmp.get("code").map(number),
        });
    }
    if let Some(ports) = rule.pointer("/destination/ports") {
        assert!(protocol.unwrap().has_ports());
        let ports = ports.as_array().unwrap();
        assert!(!ports.is_empty() && ports.len() <= 50);
        traffic.destination = PortMatch::one_of(ports.iter().map(read_port));
    }
    let other = match direction {
        Direction::Ingress => "source",
        Direction::Egress => "destination",
    };
    Rule {
        origin: RuleOrigin {
            index: u32::try_from(index).unwrap(),
            name: None,
            fingerprint: 0,
            line: None,
        },
        action: match rule["action"].as_str().unwrap() {
            "Allow" => Action::Allow,
            "Deny" => Action::Deny,
            "Pass" => Action::Pass,
            other => panic!("{other}"),
        },
        peers: vec![
            rule.get(other)
                .map_or(Peer::any(), |entity| read_entity(entity, namespace)),
        ],
        own: None,
        traffic: vec![traffic],
    }
}

fn read_port(value: &Value) -> PortSpec {
    let range = |first: u16, last: u16| PortSpec::Range(PortRange::new(first, last).unwrap());
    match (value.as_u64(), value.as_str()) {
        (Some(number), _) => {
            let port = u16::try_from(number).unwrap();
            range(port, port)
        }
        (None, Some(text)) => match text.split_once(':') {
            Some((first, last)) => range(first.parse().unwrap(), last.parse().unwrap()),
            None => PortSpec::Named(text.into()),
        },
        _ => panic!("{value}"),
    }
}

/// An end of a rule. A selector is of known holders of an address: workloads, host endpoints, network sets.
fn read_entity(entity: &Value, namespace: Option<&Str>) -> Peer {
    fields(
        entity,
        &["selector", "namespaceSelector", "nets", "notNets", "ports"],
    );
    let nets = |key: &str| -> Option<Vec<Prefix>> {
        let list = entity.get(key)?.as_array().unwrap();
        assert!(!list.is_empty());
        Some(
            list.iter()
                .map(|net| net.as_str().unwrap().parse().unwrap())
                .collect(),
        )
    };
    let own = entity["selector"].as_str().map(own_selector);
    let of_namespaces = entity["namespaceSelector"].as_str().map(namespace_selector);
    let scope = match (&of_namespaces, namespace, &own) {
        (None, Some(name), Some(_)) => Some(own_namespace(name.clone())),
        _ => of_namespaces,
    };
    let tests: Vec<Selector> = own.into_iter().chain(scope).collect();
    let holders = kind_in(&[
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_NETWORK_SET,
    ]);
    Peer {
        selector: (!tests.is_empty()).then(|| Selector::and(std::iter::once(holders).chain(tests))),
        not_selector: None,
        nets: nets("nets"),
        not_nets: nets("notNets").unwrap_or_default(),
    }
}

/// A selector of labels of workloads. `projectcalico.org/orchestrator` is there on workloads only.
fn own_selector(text: &str) -> Selector {
    selector(text, &|key| match key {
        "projectcalico.org/namespace" => LabelKey::reserved(reserved::NAMESPACE),
        "projectcalico.org/serviceaccount" => LabelKey::reserved(reserved::SERVICE_ACCOUNT),
        _ => match key.strip_prefix("pcns.") {
            Some(label) => LabelKey::namespace(label),
            None => LabelKey::own(key),
        },
    })
}

/// A selector of labels of namespaces.
fn namespace_selector(text: &str) -> Selector {
    selector(text, &|key| match key {
        "projectcalico.org/name" => LabelKey::reserved(reserved::NAMESPACE),
        _ => LabelKey::namespace(key),
    })
}

fn selector(text: &str, key: &dyn Fn(&str) -> LabelKey) -> Selector {
    Selector::and(text.split(" && ").map(|part| test(part, key)))
}

fn test(text: &str, key: &dyn Fn(&str) -> LabelKey) -> Selector {
    let quoted = |text: &str| -> Str {
        let inner = text
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        inner.unwrap_or_else(|| panic!("{text}")).into()
    };
    let set = |text: &str| -> Vec<Str> {
        let inner = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        inner.unwrap().split(", ").map(quoted).collect()
    };
    if text == "all()" {
        return Selector::has(LabelKey::reserved(reserved::NAMESPACE));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Selector::negate(test(rest, key));
    }
    if let Some(name) = text.strip_prefix("has(") {
        return match name.strip_suffix(')').unwrap() {
            "projectcalico.org/orchestrator" => kind_in(&[reserved::KIND_WORKLOAD]),
            name => Selector::has(key(name)),
        };
    }
    if let Some((name, value)) = text.split_once(" == ") {
        return Selector::equals(key(name), quoted(value));
    }
    if let Some((name, value)) = text.split_once(" != ") {
        return Selector::negate(Selector::equals(key(name), quoted(value)));
    }
    if let Some((name, values)) = text.split_once(" not in ") {
        return Selector::not_in(key(name), set(values));
    }
    let (name, values) = text.split_once(" in ").unwrap();
    Selector::is_in(key(name), set(values))
}
