//! Labels and names of ports that Kubernetes has: Calico's rules can name others, which other dialects reject.

use crate::inexpressible::InexpressibleReason;
use crate::pods::{conjuncts, workloads};
use crate::refusals::{Refusals, RulePart};
use crate::target::TargetDialect;
use palisade_model::{Direction, LabelKey, Policy, PortMatch, PortSpec, Rule, Selector, Str};

/// The maximum length of a label's value, and of its key behind the slash.
const MAX_NAME: usize = 63;
/// The maximum length of a label's key before the slash.
const MAX_PREFIX: usize = 253;
/// The maximum length of the name of a port.
const MAX_PORT_NAME: usize = 15;

/// Refuses what names labels or ports that cannot be.
pub(crate) fn check(parts: &[&Policy], target: TargetDialect, refusals: &mut Refusals) {
    for policy in parts {
        if let Some(word) = find_no_label(Some(&policy.subject)) {
            refusals.of_policy(policy, InexpressibleReason::NoLabel(word));
        }
        for direction in Direction::BOTH {
            let list = policy.rules(direction).into_iter();
            for rule in list.flat_map(|list| &list.rules) {
                for (part, reason) in faults(rule, target) {
                    refusals.of_rule((policy, direction), (rule, part), reason);
                }
            }
        }
    }
}

fn faults(rule: &Rule, target: TargetDialect) -> Vec<(RulePart, InexpressibleReason)> {
    let mut faults = Vec::new();
    for (index, peer) in rule.peers.iter().enumerate() {
        let word = find_no_label(peer.selector.as_ref());
        faults.extend(word.map(|word| (RulePart::Peer(index), InexpressibleReason::NoLabel(word))));
    }
    for (index, traffic) in rule.traffic.iter().enumerate() {
        let name = find_no_port_name(&traffic.destination);
        let name = name.map(|name| InexpressibleReason::NoPortName { target, name });
        faults.extend(name.map(|reason| (RulePart::Traffic(index), reason)));
    }
    faults
}

/// A key or value that no label has, in a selector of workloads; no other can be written.
fn find_no_label(selector: Option<&Selector>) -> Option<Str> {
    let parts = conjuncts(selector?);
    let mut of_labels = parts.iter().filter_map(find_in_part);
    parts
        .contains(&workloads())
        .then(|| of_labels.next())
        .flatten()
}

fn find_in_part(selector: &Selector) -> Option<Str> {
    let of_key = |key: &LabelKey| (!is_key(&key.name)).then(|| key.name.clone());
    match selector {
        Selector::In(key, values) => of_key(key).or_else(|| {
            let mut unknown = values.into_iter().filter(|value| !is_value(value));
            unknown.next().cloned()
        }),
        Selector::Has(key) => of_key(key),
        Selector::Not(inner) => find_in_part(inner),
        // Not sayable, whatever it names.
        Selector::And(_)
        | Selector::Or(_)
        | Selector::Contains(..)
        | Selector::StartsWith(..)
        | Selector::EndsWith(..)
        | Selector::Domain(..) => None,
    }
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_prefix =
        |prefix: &str| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_dns_label);
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_prefix)
}

fn is_dns_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_value(value: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.iter().copied().all(is_inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

/// A name that no port has; those with a colon stand for ports of Services.
fn find_no_port_name(ports: &PortMatch) -> Option<Str> {
    let mut names = ports.any_of.iter().flatten().filter_map(|spec| match spec {
        PortSpec::Named(name) => Some(name),
        PortSpec::Range(_) => None,
    });
    names
        .find(|name| !name.contains(':') && !is_port_name(name))
        .cloned()
}

fn is_port_name(name: &str) -> bool {
    is_dns_label(name)
        && name.len() <= MAX_PORT_NAME
        && !name.contains("--")
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_port_names_of_kubernetes() {
        for key in ["app", "example.com/App_1.x", "a"] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "a/", "/a", "A.com/a", "a/b/c", "-a", "a-"] {
            assert!(!is_key(key), "{key}");
        }
        assert!(is_value("") && is_value("A-1") && !is_value("a b"));
        assert!(is_port_name("http-1") && !is_port_name("1") && !is_port_name("a--b"));
        assert!(!is_port_name("HTTP") && !is_port_name("abcdefghijklmnop"));
    }
}
