//! Writes policies of Cilium: CiliumNetworkPolicy, and CiliumClusterwideNetworkPolicy for a policy of the cluster.
//!
//! A spec has lists of rules that deny, which come before every other policy of the tier, and of rules that allow.
//! Its networks match what is outside of the cluster only. Labels of pods are written with the source `k8s`, as Cilium
//! itself writes those of NetworkPolicies.

mod peers;
mod ports;

use crate::inexpressible::InexpressibleReason;
use crate::label_selector::label_selector;
use crate::pods::{KeyTest, PodSelection, ValueTest};
use crate::position::{self, Standing, order_text};
use crate::refusals::{Refusals, RulePart};
use crate::target::TargetDialect;
use palisade_dialects::index_in_specs;
use palisade_model::{Action, Direction, Policy, Rule, Selector, Str, tier_name};
use serde_json::{Map, Value, json};

const TARGET: TargetDialect = TargetDialect::Cilium;

/// What is written of an object: its namespace, and its specs.
pub(crate) struct CiliumObject {
    /// The namespace; `None` for a policy of the cluster.
    pub(crate) namespace: Option<Str>,
    /// The specs, at least one.
    pub(crate) specs: Vec<Value>,
}

/// Writes the policies of the model that an object is; `None` where something was refused.
pub(crate) fn write(parts: &[&Policy], refusals: &mut Refusals) -> Option<CiliumObject> {
    let mut by_subject: Vec<(&Selector, Vec<&Policy>)> = Vec::new();
    for policy in parts {
        check_position(policy, refusals);
        let same = by_subject.iter_mut().find(|(subject, policies)| {
            // Parts of one spec have its number.
            *subject == &policy.subject
                && policies
                    .iter()
                    .all(|other| index_in_specs(other.id.part) == index_in_specs(policy.id.part))
        });
        match same {
            Some((_, policies)) => policies.push(policy),
            None => by_subject.push((&policy.subject, vec![policy])),
        }
    }
    let namespace = parts
        .first()
        .and_then(|policy| policy.id.object.namespace.clone());
    let mut specs = Vec::new();
    for (subject, policies) in by_subject {
        specs.extend(spec(subject, &policies, namespace.as_ref(), refusals));
    }
    Some(CiliumObject { namespace, specs }).filter(|_| refusals.is_empty())
}

fn check_position(policy: &Policy, refusals: &mut Refusals) {
    if policy.tier != tier_name::DEFAULT {
        let reason = InexpressibleReason::Tier {
            target: TARGET,
            tier: policy.tier.clone(),
        };
        refusals.of_policy(policy, reason);
        return;
    }
    if let Some(order) = position::order_of_allows(policy) {
        // Its place could be said if it only allowed.
        for direction in Direction::BOTH {
            let rules = policy.rules(direction).into_iter();
            for rule in rules.flat_map(|list| &list.rules) {
                if rule.action == Action::Deny {
                    let reason = InexpressibleReason::DenialPlace {
                        target: TARGET,
                        order: order_text(order),
                    };
                    refusals.of_rule((policy, direction), (rule, RulePart::Whole), reason);
                }
            }
        }
        return;
    }
    let has_sayable_place = match Standing::of(policy) {
        Standing::Allows => true,
        Standing::First => position::only_does(policy, Action::Deny),
        Standing::At { .. } => false,
    };
    if !has_sayable_place {
        let reason = InexpressibleReason::Order {
            target: TARGET,
            order: order_text(policy.precedence.order),
        };
        refusals.of_policy(policy, reason);
    }
}

fn spec(
    subject: &Selector,
    policies: &[&Policy],
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) -> Option<Value> {
    let first = policies.first()?;
    let selection = match PodSelection::read(subject) {
        Ok(pods) => pods,
        Err(reason) => {
            refusals.of_policy(first, reason.inexpressible(TARGET));
            return None;
        }
    };
    if let Some(name) = namespace
        && selection.only_namespace() != Some(name)
    {
        refusals.of_policy(first, InexpressibleReason::SeveralNamespaces);
        return None;
    }
    let selection = match namespace {
        Some(name) => selection.inside_namespace(name),
        None => selection,
    };
    let mut spec = Map::new();
    match requirements(&selection) {
        Ok(tests) => {
            spec.insert("endpointSelector".to_owned(), label_selector(&tests));
        }
        Err(reason) => refusals.of_policy(first, reason),
    }
    for direction in Direction::BOTH {
        add_direction(&mut spec, direction, policies, namespace, refusals);
    }
    Some(Value::Object(spec))
}

/// Adds the lists of a direction, and what it says of the default.
fn add_direction(
    spec: &mut Map<String, Value>,
    direction: Direction,
    policies: &[&Policy],
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) {
    let governs = policies
        .iter()
        .any(|policy| policy.rules(direction).is_some());
    if !governs {
        return;
    }
    let (mut allows, mut denies, mut is_default) = (Vec::new(), Vec::new(), false);
    for policy in policies {
        let Some(list) = policy.rules(direction) else {
            continue;
        };
        is_default |= list.default_deny;
        for rule in &list.rules {
            let policy_direction = (*policy, direction);
            let action = match rule.action {
                Action::Allow => &mut allows,
                Action::Deny => &mut denies,
                Action::Pass | Action::Log => {
                    let reason = InexpressibleReason::Action {
                        target: TARGET,
                        action: rule.action,
                    };
                    refusals.of_rule(policy_direction, (rule, RulePart::Whole), reason);
                    continue;
                }
            };
            action.extend(write_rule(policy_direction, rule, namespace, refusals));
        }
    }
    let denial = match direction {
        Direction::Ingress => "ingressDeny",
        Direction::Egress => "egressDeny",
    };
    if allows.is_empty() && denies.is_empty() {
        // What denies a direction is a list with a rule: one that matches nothing.
        let none = match direction {
            Direction::Ingress => json!({ "fromEntities": ["none"] }),
            Direction::Egress => json!({ "toEntities": ["none"] }),
        };
        allows.push(none);
    }
    if !is_default {
        let entry = spec.entry("enableDefaultDeny").or_insert_with(|| json!({}));
        if let Some(enabled) = entry.as_object_mut() {
            enabled.insert(direction.to_string(), Value::Bool(false));
        }
    }
    if !allows.is_empty() {
        spec.insert(direction.to_string(), Value::Array(allows));
    }
    if !denies.is_empty() {
        spec.insert(denial.to_owned(), Value::Array(denies));
    }
}

/// The rules of a rule: one for each kind of peer, and for ports and messages apart.
fn write_rule(
    place: (&Policy, Direction),
    rule: &Rule,
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) -> Vec<Value> {
    if rule.local.is_some() {
        let reason = InexpressibleReason::OwnAddress(TARGET);
        refusals.of_rule(place, (rule, RulePart::Whole), reason);
    }
    let peers = peers::write(place, rule, namespace, refusals);
    let traffic = ports::write(place, rule, refusals);
    let mut written = Vec::new();
    for peers in &peers {
        for traffic in &traffic {
            let mut object = Map::new();
            let is_open = peers.is_none() && traffic.is_none();
            match peers {
                Some((field, items)) => {
                    object.insert(field.clone(), Value::Array(items.clone()));
                }
                // A rule without anything is read in two ways.
                None if is_open => {
                    let field = match place.1 {
                        Direction::Ingress => "fromEntities",
                        Direction::Egress => "toEntities",
                    };
                    object.insert(field.to_owned(), json!(["all"]));
                }
                None => {}
            }
            if let Some((field, items)) = traffic {
                object.insert((*field).to_owned(), Value::Array(items.clone()));
            }
            written.push(Value::Object(object));
        }
    }
    written
}

/// The label with the name of a pod's namespace.
const NAMESPACE: &str = "k8s:io.kubernetes.pod.namespace";
/// What stands before the labels of a pod's namespace.
const NAMESPACE_LABELS: &str = "io.cilium.k8s.namespace.labels.";
/// The label with the name of a pod's service account.
const SERVICE_ACCOUNT: &str = "k8s:io.cilium.k8s.policy.serviceaccount";
/// Labels of the source `k8s` that are none of a pod's own.
const NOT_OWN: [&str; 3] = [
    "io.kubernetes.pod.namespace",
    "io.cilium.k8s.policy.serviceaccount",
    "io.cilium.k8s.policy.cluster",
];
/// The maximum length of the part of a label key behind the slash.
const MAX_KEY_NAME: usize = 63;

/// The requirements on labels that a selection of pods is.
fn requirements(pods: &PodSelection) -> Result<Vec<KeyTest>, InexpressibleReason> {
    let mut tests = Vec::new();
    let of_key = |key: &str, test: &ValueTest| KeyTest {
        key: key.into(),
        test: test.clone(),
    };
    tests.extend(
        pods.namespace_names
            .iter()
            .map(|test| of_key(NAMESPACE, test)),
    );
    for KeyTest { key, test } in &pods.namespaces {
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (prefix.len(), name.len()),
            None => (0, key.len() + NAMESPACE_LABELS.len()),
        };
        if name > MAX_KEY_NAME || prefix + NAMESPACE_LABELS.len() > 253 {
            return Err(InexpressibleReason::LongKey(key.clone()));
        }
        tests.push(of_key(&format!("k8s:{NAMESPACE_LABELS}{key}"), test));
    }
    tests.extend(
        pods.service_accounts
            .iter()
            .map(|test| of_key(SERVICE_ACCOUNT, test)),
    );
    for KeyTest { key, test } in &pods.pods {
        if NOT_OWN.contains(&&**key) || key.starts_with(NAMESPACE_LABELS) {
            return Err(InexpressibleReason::ReservedKey(key.clone()));
        }
        tests.push(of_key(&format!("k8s:{key}"), test));
    }
    Ok(tests)
}
