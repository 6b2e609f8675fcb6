//! Calico's policies with every field that decides a connection, and what they refer to: tiers, sets of networks,
//! host endpoints, profiles, service accounts, and workloads in the place of pods.
//!
//! They are drawn from dice of their own, into worlds of their own kind, in which policies of the other dialects
//! stand beside them: other worlds stay as they are.

mod entity;
mod features;
mod host_traffic;
mod inventory;
mod rules;
mod selector;
mod traffic;

pub use features::CALICO_FEATURES;
pub(super) use host_traffic::{aim_at_host_port, lead_through_host};
pub(super) use inventory::{inventory, vary_slice_ports, vary_workloads};
pub(super) use traffic::{name_ends, refine_flows};

use super::{Features, GeneratedObject, NAMESPACES, metadata, pod, policy as kubernetes_policy};
use crate::Dice;
use inventory::TIERS;
use rules::RuleScope;
use selector::{SelectorSubject, selector};
use serde_json::{Value, json};

/// One of the two groups that hold the same objects.
fn version(dice: &mut Dice) -> &'static str {
    if dice.chance(72) {
        "projectcalico.org/v3"
    } else {
        "crd.projectcalico.org/v1"
    }
}

/// Between two and six policies, some of them staged. Few names and orders, so that there are ties.
pub(super) fn policies(dice: &mut Dice, pods: &[GeneratedObject]) -> Vec<GeneratedObject> {
    let mut all: Vec<GeneratedObject> = Vec::new();
    for _ in 0..dice.between(2, 6) {
        let made = policy(dice, pods);
        let is_same = |other: &GeneratedObject| {
            let same = |field: &str| other.object[field] == made.object[field];
            let home = |object: &Value| object["metadata"]["namespace"].clone();
            let is_home = |object: &Value| match home(object) {
                Value::Null => json!("default"),
                other => other,
            };
            same("kind")
                && other.object["metadata"]["name"] == made.object["metadata"]["name"]
                && is_home(&other.object) == is_home(&made.object)
        };
        if !all.iter().any(is_same) {
            all.push(made);
        }
    }
    if dice.chance(45) {
        all.push(staged_kubernetes_policy(dice, pods));
    }
    if dice.chance(55) {
        all.push(host_policy(dice));
    }
    all
}

fn home(dice: &mut Dice, pods: &[GeneratedObject]) -> String {
    match dice.pick(pods).object.pointer("/metadata/namespace") {
        Some(Value::String(name)) if dice.chance(75) => name.clone(),
        _ => (*dice.pick(&NAMESPACES)).to_owned(),
    }
}

fn policy(dice: &mut Dice, pods: &[GeneratedObject]) -> GeneratedObject {
    let mut features = Features::new();
    let is_staged = dice.chance(21);
    let is_local = dice.chance(52);
    let (kind, feature) = match (is_local, is_staged) {
        (true, false) => ("NetworkPolicy", "NetworkPolicy of Calico"),
        (false, false) => ("GlobalNetworkPolicy", "GlobalNetworkPolicy"),
        (true, true) => ("StagedNetworkPolicy", "StagedNetworkPolicy"),
        (false, true) => ("StagedGlobalNetworkPolicy", "StagedGlobalNetworkPolicy"),
    };
    features.insert(feature);
    let mut spec = json!({});
    let tier = tier(dice, &mut spec, &mut features);
    let name = *dice.pick(&["a", "b", "c", "d"]);
    let name = match tier {
        "default" => name.to_owned(),
        _ => format!("{tier}.{name}"),
    };
    let home = is_local.then(|| home(dice, pods));
    let meta = match &home {
        Some(namespace) => metadata(dice, namespace, &name, &mut Features::new()),
        None => json!({ "name": name }),
    };
    let action = is_staged.then(|| staged_action(dice, &mut spec, &mut features));
    if action != Some("Delete") {
        order(dice, &mut spec, &mut features);
        subject(dice, &mut spec, is_local, &mut features);
        rule_lists(dice, &mut spec, home.as_deref(), &mut features);
        if !is_local {
            flags(dice, &mut spec, &mut features);
        }
        if dice.chance(10) {
            features.insert("performanceHints");
            spec["performanceHints"] = json!(["AssumeNeededOnEveryNode"]);
        }
    }
    GeneratedObject {
        object: json!({ "apiVersion": version(dice), "kind": kind, "metadata": meta, "spec": spec }),
        features,
    }
}

/// A policy for host endpoints, mostly of what they forward as well.
fn host_policy(dice: &mut Dice) -> GeneratedObject {
    let mut features = Features::from(["GlobalNetworkPolicy of hosts"]);
    let mut spec = json!({});
    let name = match tier(dice, &mut spec, &mut features) {
        "default" => "hosts".to_owned(),
        tier => format!("{tier}.hosts"),
    };
    order(dice, &mut spec, &mut features);
    let selectors = [
        "set == 'hosts'",
        "has(set)",
        "has(zone)",
        "zone in {'open', 'mixed'}",
    ];
    spec["selector"] = (*dice.pick(&selectors)).into();
    rule_lists(dice, &mut spec, None, &mut features);
    if dice.chance(50) {
        features.insert("port of a host by name");
        let (end, direction) = if dice.chance(75) {
            ("destination", "ingress")
        } else {
            ("source", "egress")
        };
        let (port, _) = *dice.pick(&pod::PORT_NAMES);
        let rule = json!({ "action": *dice.pick(&["Allow", "Deny"]),
            "protocol": *dice.pick(&["TCP", "UDP"]), end: { "ports": [port] } });
        match spec[direction].as_array_mut() {
            Some(rules) => rules.insert(0, rule),
            None => spec[direction] = json!([rule]),
        }
    }
    match dice.below(100) {
        0..28 => flag(&mut spec, "doNotTrack", &mut features),
        28..64 => flag(&mut spec, "preDNAT", &mut features),
        64..94 => flag(&mut spec, "applyOnForward", &mut features),
        _ => {}
    }
    let kind = "GlobalNetworkPolicy";
    let meta = json!({ "name": name });
    GeneratedObject {
        object: json!({ "apiVersion": version(dice), "kind": kind, "metadata": meta, "spec": spec }),
        features,
    }
}

/// The tier of a policy, which it may leave out.
fn tier(dice: &mut Dice, spec: &mut Value, features: &mut Features) -> &'static str {
    let (tier, feature) = match dice.below(100) {
        0..30 => {
            features.insert("tier left out");
            return "default";
        }
        30..46 => ("default", "tier: default"),
        46..90 => (*dice.pick(&TIERS[..3]), "tier: of its own"),
        _ => (TIERS[3], "tier: without an object"),
    };
    features.insert(feature);
    spec["tier"] = tier.into();
    tier
}

fn staged_action(dice: &mut Dice, spec: &mut Value, features: &mut Features) -> &'static str {
    let (action, feature) = match dice.below(100) {
        0..40 => ("", "stagedAction left out"),
        40..70 => ("Set", "stagedAction: Set"),
        70..80 => ("Delete", "stagedAction: another"),
        80..90 => ("Learn", "stagedAction: another"),
        _ => ("Ignore", "stagedAction: another"),
    };
    features.insert(feature);
    if !action.is_empty() {
        spec["stagedAction"] = action.into();
    }
    action
}

fn order(dice: &mut Dice, spec: &mut Value, features: &mut Features) {
    let order = match dice.below(100) {
        0..18 => {
            features.insert("order left out");
            return;
        }
        18..24 => Value::Null,
        _ => dice
            .pick(&[
                json!(-5),
                json!(0),
                json!(10),
                json!(10),
                json!(999.5),
                json!(1000),
                json!(1000),
                json!(1000.5),
                json!(2000),
                json!(2000),
            ])
            .clone(),
    };
    features.insert(match order.as_f64() {
        None => "order left out",
        Some(1000.0) => "order 1000",
        Some(..1000.0) => "order below 1000",
        Some(_) => "order above 1000",
    });
    spec["order"] = order;
}

/// What a policy selects.
fn subject(dice: &mut Dice, spec: &mut Value, is_local: bool, features: &mut Features) {
    match dice.below(100) {
        0..24 => drop(features.insert("subject: selector left out")),
        24..30 => spec["selector"] = "".into(),
        30..48 => {
            features.insert("subject: all()");
            spec["selector"] = "all()".into();
        }
        _ => {
            features.insert("subject: selector");
            spec["selector"] = selector(dice, SelectorSubject::Holder, features).into();
        }
    }
    if !is_local && dice.chance(30) {
        features.insert("subject: namespaceSelector");
        spec["namespaceSelector"] = selector(dice, SelectorSubject::Namespace, features).into();
    }
    if dice.chance(18) {
        features.insert("subject: serviceAccountSelector");
        let of = SelectorSubject::ServiceAccount;
        spec["serviceAccountSelector"] = selector(dice, of, features).into();
    }
}

fn rule_lists(dice: &mut Dice, spec: &mut Value, home: Option<&str>, features: &mut Features) {
    let types = match dice.below(100) {
        0..28 => None,
        28..33 => Some(json!([])),
        33..52 => Some(json!(["Ingress"])),
        52..72 => Some(json!(["Egress"])),
        72..86 => Some(json!(["Ingress", "Egress"])),
        _ => Some(json!(["Egress", "Ingress"])),
    };
    features.insert(
        match types.as_ref().and_then(Value::as_array).map(Vec::len) {
            None => "types left out",
            Some(0) => "types: empty",
            Some(1) => "types: one",
            Some(_) => "types: both",
        },
    );
    for (direction, name, egress) in [("ingress", "Ingress", false), ("egress", "Egress", true)] {
        let listed = types.as_ref().and_then(Value::as_array);
        let is_named = listed.is_none_or(|t| t.is_empty() || t.contains(&json!(name)));
        if !dice.chance(if is_named { 80 } else { 18 }) {
            if dice.chance(20) {
                spec[direction] = json!([]);
            }
            continue;
        }
        if !is_named {
            features.insert("rules of a direction that is not governed");
        }
        let scope = RuleScope::of_policy(home, egress);
        let count = dice.between(1, 4);
        let mut rules: Vec<Value> = (0..count)
            .map(|_| rules::rule(dice, &scope, features))
            .collect();
        if dice.chance(35) {
            features.insert("last rule without conditions");
            rules.push(json!({ "action": *dice.pick(&["Allow", "Allow", "Pass", "Deny"]) }));
        }
        spec[direction] = json!(rules);
    }
    if let Some(types) = types {
        spec["types"] = types;
    }
}

/// What is about the traffic of hosts, in policies of the cluster.
fn flags(dice: &mut Dice, spec: &mut Value, features: &mut Features) {
    match dice.below(100) {
        0..12 => flag(spec, "doNotTrack", features),
        12..27 => flag(spec, "preDNAT", features),
        27..59 => {
            features.insert("applyOnForward");
            spec["applyOnForward"] = dice.chance(92).into();
        }
        _ => {}
    }
}

/// Makes a policy one of this traffic of hosts.
fn flag(spec: &mut Value, name: &'static str, features: &mut Features) {
    features.insert(name);
    spec[name] = true.into();
    spec["applyOnForward"] = true.into();
    if name == "preDNAT"
        && let Some(fields) = spec.as_object_mut()
    {
        fields.shift_remove("egress");
        fields.insert("types".to_owned(), json!(["Ingress"]));
    }
}

/// A NetworkPolicy of Kubernetes that is staged.
fn staged_kubernetes_policy(dice: &mut Dice, pods: &[GeneratedObject]) -> GeneratedObject {
    let mut made = kubernetes_policy::policy(dice, pods, 9);
    made.features = Features::from(["StagedKubernetesNetworkPolicy"]);
    made.object["apiVersion"] = version(dice).into();
    made.object["kind"] = "StagedKubernetesNetworkPolicy".into();
    if !made.object["spec"].is_object() {
        made.object["spec"] = json!({ "podSelector": {} });
    }
    let mut action = json!({});
    match staged_action(dice, &mut action, &mut made.features) {
        "" => {}
        "Delete" => made.object["spec"] = action,
        other => made.object["spec"]["stagedAction"] = other.into(),
    }
    made
}
