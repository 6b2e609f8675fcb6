//! Policies of the model in the forms that every dialect shares, without what only Calico's selectors and rules add.
//!
//! Promises: the policy means the same in every cluster in which only workloads have the label [`ORCHESTRATOR`].
//! A selector of Calico that tests what only workloads have is one of workloads; a rule with networks of one family
//! does not name the family.

use crate::pods::{conjuncts, workloads};
use palisade_dialects::{ORCHESTRATOR, calico_holders};
use palisade_model::{
    Direction, LabelKey, LabelScope, LabelValues, Peer, Policy, Rule, Selector, Str, TrafficMatch,
    reserved,
};

/// The policy in the forms that every dialect shares.
pub(crate) fn simplify(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    policy.subject = simplify_selector(&policy.subject);
    for direction in Direction::BOTH {
        let list = match direction {
            Direction::Ingress => &mut policy.ingress,
            Direction::Egress => &mut policy.egress,
        };
        for rule in list.iter_mut().flat_map(|list| &mut list.rules) {
            for peer in rule.peers.iter_mut().chain(&mut rule.local) {
                peer.selector = peer.selector.as_ref().map(simplify_selector);
            }
            drop_family(rule);
        }
    }
    policy
}

/// A selector of workloads without tests that every workload passes.
fn simplify_selector(selector: &Selector) -> Selector {
    let parts = conjuncts(selector);
    let is_of_workloads = parts.contains(&workloads())
        || parts.contains(&calico_holders()) && parts.iter().any(needs_workload);
    if !is_of_workloads {
        return selector.clone();
    }
    let only = parts.iter().find_map(only_namespace);
    let excludes = |part: &Selector| only.is_some_and(|name| excludes_namespace(part, name));
    if parts.iter().any(excludes) {
        return Selector::none();
    }
    let needed = parts.iter().filter(|part| {
        let is_of_all = **part == calico_holders() || **part == has_orchestrator();
        !is_of_all && !only.is_some_and(|name| is_wider(part, name))
    });
    Selector::and([workloads()].into_iter().chain(needed.cloned()))
}

/// The namespace that a test names, if it is the only one.
fn only_namespace(part: &Selector) -> Option<&Str> {
    match part {
        Selector::In(key, values) if *key == LabelKey::reserved(reserved::NAMESPACE) => {
            values.first().filter(|_| values.len() == 1)
        }
        _ => None,
    }
}

/// The names in a test of the name of the namespace, and whether it is one of them or none of them.
fn named_namespaces(part: &Selector) -> Option<(&LabelValues, bool)> {
    let is_namespace = |key: &LabelKey| *key == LabelKey::reserved(reserved::NAMESPACE);
    match part {
        Selector::In(key, values) if is_namespace(key) => Some((values, true)),
        Selector::Not(inner) => match &**inner {
            Selector::In(key, values) if is_namespace(key) => Some((values, false)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a test of the name of the namespace never holds in this one.
fn excludes_namespace(part: &Selector, only: &Str) -> bool {
    named_namespaces(part).is_some_and(|(values, is_in)| values.contains(only) != is_in)
}

/// Whether a test of the name of the namespace says nothing more than that it is this one.
fn is_wider(part: &Selector, only: &Str) -> bool {
    named_namespaces(part).is_some_and(|(values, is_in)| {
        if is_in {
            values.len() > 1 && values.contains(only)
        } else {
            !values.contains(only)
        }
    })
}

/// `has(projectcalico.org/orchestrator)`: pods have the label without it being stored.
fn has_orchestrator() -> Selector {
    let is_stored = Selector::has(LabelKey::own(ORCHESTRATOR));
    let of_pods = Selector::and([workloads(), Selector::negate(is_stored.clone())]);
    Selector::or([is_stored, of_pods])
}

/// Whether a test never holds for anything but workloads: of the orchestrator, or of the service account.
fn needs_workload(part: &Selector) -> bool {
    let is_of_workloads = |key: &LabelKey| {
        key.scope == LabelScope::ServiceAccount
            || *key == LabelKey::reserved(reserved::SERVICE_ACCOUNT)
            || *key == LabelKey::own(ORCHESTRATOR)
    };
    match part {
        Selector::In(key, _)
        | Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => is_of_workloads(key),
        Selector::Not(_) => false,
        Selector::And(parts) => parts.contains(&workloads()) || parts.iter().any(needs_workload),
        Selector::Or(parts) => parts.iter().all(needs_workload),
    }
}

/// Drops the family of a rule with networks at one end: it is the family of the networks.
fn drop_family(rule: &mut Rule) {
    let Some(family) = rule.traffic.first().and_then(|traffic| traffic.family) else {
        return;
    };
    let is_shared = |traffic: &TrafficMatch| traffic.family == Some(family);
    let has_networks = |peer: &Peer| peer.nets.is_some();
    let is_implied =
        rule.peers.iter().all(has_networks) || rule.local.as_ref().is_some_and(has_networks);
    if !rule.traffic.iter().all(is_shared) || !is_implied {
        return;
    }
    for peer in rule.peers.iter_mut().chain(&mut rule.local) {
        for nets in peer.nets.iter_mut().chain([&mut peer.not_nets]) {
            nets.retain(|net| net.family() == family);
        }
    }
    for traffic in &mut rule.traffic {
        traffic.family = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the seed 1795541785: such a policy was written without the test, and refused by the comparison.
    #[test]
    fn other_tests_of_the_namespace_agree_with_its_name_or_nothing_is_selected() {
        let key = || LabelKey::reserved(reserved::NAMESPACE);
        let own = || Selector::equals(key(), "stock");
        let others = || Selector::is_in(key(), ["shop".into(), "default".into()]);
        let with_own = || Selector::is_in(key(), ["shop".into(), "stock".into()]);
        let simplified = |test| simplify_selector(&Selector::and([workloads(), own(), test]));
        let only_own = Selector::and([workloads(), own()]);
        assert_eq!(simplified(others()), Selector::none());
        assert_eq!(simplified(Selector::negate(with_own())), Selector::none());
        assert_eq!(simplified(with_own()), only_own);
        assert_eq!(simplified(Selector::negate(others())), only_own);
    }

    #[test]
    fn a_selector_of_the_orchestrator_is_one_of_workloads() {
        let app = Selector::equals(LabelKey::own("app"), "web");
        let written = Selector::and([calico_holders(), has_orchestrator(), app.clone()]);
        assert_eq!(
            simplify_selector(&written),
            Selector::and([workloads(), app.clone()])
        );
        let wider = Selector::and([calico_holders(), app]);
        assert_eq!(simplify_selector(&wider), wider);
        let key = LabelKey::reserved(reserved::SERVICE_ACCOUNT);
        let not = Selector::negate(Selector::equals(key, "robot"));
        let wider = Selector::and([calico_holders(), not]);
        assert_eq!(simplify_selector(&wider), wider, "network sets pass it");
    }
}
