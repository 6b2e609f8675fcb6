//! What decided a flow, as Hubble names it: policies, reasons of drops, kinds of match.
//!
//! Promises: a policy has the name, namespace and kind of its object, and the labels by which Cilium would refer to it.
//!
//! Never: names a policy that did not take part in the decision.

use crate::proto::flow::{DropReason, Policy};
use palisade_api::{MonitorRule, ObjectRef, PacketReason};
use palisade_model::Action;

/// Cilium's kinds of match, of which two can be told: the tables judge ends, protocol and port together.
pub(crate) const MATCH_NONE: u32 = 0;
pub(crate) const MATCH_L3_L4: u32 = 2;

/// A kind of match as metrics have it.
pub(crate) fn match_text(kind: u32) -> &'static str {
    match kind {
        MATCH_NONE => "none",
        MATCH_L3_L4 => "l3-l4",
        _ => "unknown",
    }
}

/// A policy.
pub(crate) fn policy(object: &ObjectRef, revision: Option<u64>) -> Policy {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let label = |key: &str, value: &str| format!("k8s:io.cilium.k8s.policy.{key}={value}");
    let mut labels = vec![
        label("derived-from", &object.kind),
        label("name", &object.name),
    ];
    if !namespace.is_empty() {
        labels.push(label("namespace", namespace));
    }
    Policy {
        name: object.name.clone(),
        namespace: namespace.to_owned(),
        labels,
        revision: revision.unwrap_or_default(),
        kind: object.kind.clone(),
    }
}

/// The policies that decided: that of the rule, or else those that apply.
pub(crate) fn deciders(
    rule: Option<&MonitorRule>,
    policies: &[ObjectRef],
    revision: Option<u64>,
) -> Vec<Policy> {
    match rule {
        Some(rule) => vec![policy(&rule.policy, revision)],
        None => policies
            .iter()
            .map(|object| policy(object, revision))
            .collect(),
    }
}

/// Where what decided is written, each place once.
pub(crate) fn places<'a>(
    rules: impl Iterator<Item = &'a MonitorRule>,
    policies: &[ObjectRef],
) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for object in rules.map(|rule| &rule.policy).chain(policies) {
        if let Some(line) = &object.line
            && !places.contains(line)
        {
            places.push(line.clone());
        }
    }
    places
}

/// Why a packet was dropped.
pub(crate) fn drop_reason(reason: PacketReason, rule: Option<&MonitorRule>) -> DropReason {
    match reason {
        PacketReason::Rule | PacketReason::Profile
            if rule.and_then(|rule| rule.action) == Some(Action::Deny) =>
        {
            DropReason::PolicyDeny
        }
        PacketReason::Spoofed => DropReason::InvalidSourceIp,
        PacketReason::Encapsulated => DropReason::EncapsulationTrafficIsProhibited,
        PacketReason::UnknownInterface => {
            DropReason::NoConfigurationAvailableToPerformPolicyDecision
        }
        PacketReason::Invalid => DropReason::UnknownConnectionTrackingState,
        PacketReason::NoPoint => DropReason::UnknownL3TargetAddress,
        PacketReason::Rule
        | PacketReason::Profile
        | PacketReason::DefaultDeny
        | PacketReason::ForwardEnd
        | PacketReason::HairpinEnd
        | PacketReason::StageEnd
        | PacketReason::Unknown
        | PacketReason::Denied
        | PacketReason::Rejected
        | PacketReason::Logged
        | PacketReason::Audited
        | PacketReason::EndpointInAudit => DropReason::PolicyDenied,
    }
}
