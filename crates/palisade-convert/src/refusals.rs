//! Collects what cannot be written of one object, with the path of each rule as its author wrote it.

use crate::inexpressible::{Inexpressible, InexpressibleReason};
use palisade_dialects::index_in_specs;
use palisade_model::{Direction, Policy, Rule};
use std::collections::BTreeSet;

/// A part of a rule, by its index in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RulePart {
    /// All of it.
    Whole,
    /// One of its peers.
    Peer(usize),
    /// One of its tests of ports or protocols.
    Traffic(usize),
}

/// The reasons why an object cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    found: BTreeSet<Inexpressible>,
}

impl Refusals {
    /// Adds a reason about the whole policy.
    pub(crate) fn of_policy(&mut self, policy: &Policy, reason: InexpressibleReason) {
        self.found.insert(Inexpressible {
            policy: policy.id.object.clone(),
            rule: None,
            reason,
            line: policy.line.clone(),
        });
    }

    /// Adds a reason about a rule.
    pub(crate) fn of_rule(
        &mut self,
        (policy, direction): (&Policy, Direction),
        (rule, part): (&Rule, RulePart),
        reason: InexpressibleReason,
    ) {
        self.found.insert(Inexpressible {
            policy: policy.id.object.clone(),
            rule: Some(path(policy, direction, rule, part)),
            reason,
            line: rule.origin.line.clone().or_else(|| policy.line.clone()),
        });
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, by policy and path.
    pub(crate) fn into_list(self) -> Vec<Inexpressible> {
        self.found.into_iter().collect()
    }
}

/// The dialect of a source object, as far as paths differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathStyle {
    Kubernetes,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    Cilium,
    Other,
}

fn style(policy: &Policy) -> PathStyle {
    let kind = &policy.id.object.kind;
    match (kind.group(), kind.name()) {
        ("networking.k8s.io", _) => PathStyle::Kubernetes,
        ("policy.networking.k8s.io", "ClusterNetworkPolicy") => PathStyle::ClusterNetworkPolicy,
        ("policy.networking.k8s.io", _) => PathStyle::AdminNetworkPolicy,
        ("cilium.io", _) => PathStyle::Cilium,
        _ => PathStyle::Other,
    }
}

/// The path of a part of a rule. Where one peer or port as written becomes several of the model, or several become
/// one, the path ends at the rule.
fn path(policy: &Policy, direction: Direction, rule: &Rule, part: RulePart) -> String {
    let style = style(policy);
    let mut path = list_path(policy, style, direction, rule);
    let is_one_to_one = matches!(
        style,
        PathStyle::Kubernetes | PathStyle::ClusterNetworkPolicy | PathStyle::AdminNetworkPolicy
    );
    if !is_one_to_one {
        return path;
    }
    match part {
        RulePart::Whole => {}
        RulePart::Peer(index) => {
            let is_written = !(rule.peers.len() == 1 && rule.peers[0].is_any());
            let field = match direction {
                Direction::Ingress => "from",
                Direction::Egress => "to",
            };
            if is_written {
                path.push_str(&format!(".{field}[{index}]"));
            }
        }
        RulePart::Traffic(index) => {
            let field = match style {
                PathStyle::ClusterNetworkPolicy => "protocols",
                _ => "ports",
            };
            if rule.traffic != [palisade_model::TrafficMatch::any()] {
                path.push_str(&format!(".{field}[{index}]"));
            }
        }
    }
    path
}

fn list_path(policy: &Policy, style: PathStyle, direction: Direction, rule: &Rule) -> String {
    let index = rule.origin.index;
    if style != PathStyle::Cilium {
        return format!("{direction}[{index}]");
    }
    let suffix = match rule.action {
        palisade_model::Action::Deny => "Deny",
        _ => "",
    };
    match index_in_specs(policy.id.part) {
        Some(spec) => format!("specs[{spec}].{direction}{suffix}[{index}]"),
        None => format!("{direction}{suffix}[{index}]"),
    }
}
