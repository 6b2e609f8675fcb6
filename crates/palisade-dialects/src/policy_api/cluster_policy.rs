//! The spec of a cluster-wide policy: its place, its subject and its rules.

use super::variant::{MAX_PRIORITY, PolicyApiTier, PolicyPlace, PolicyVariant};
use super::{namespaced_pods, rule, schema};
use crate::domain_peer::has_names;
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::{Field, quote};
use palisade_model::{
    Direction, DirectionRules, Object, Policy, PolicyId, PolicyMode, Selector, TrafficScope,
};

pub(super) const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const IN_SPEC: &str = "it belongs inside `spec`";
const MISPLACED_FIELDS: &[(&str, &str)] = &[
    ("tier", IN_SPEC),
    ("priority", IN_SPEC),
    ("subject", IN_SPEC),
    ("ingress", IN_SPEC),
    ("egress", IN_SPEC),
];
const NOT_IN_KIND: &[(&str, &str)] = &[
    ("tier", "only ClusterNetworkPolicy has a tier"),
    (
        "priority",
        "a BaselineAdminNetworkPolicy has no priority: there is only one",
    ),
    ("podSelector", "the pods are selected by `subject`"),
    ("policyTypes", "a direction without rules is not affected"),
];
const KNOWN_SUBJECT: &[&str] = &["namespaces", "pods"];

/// Lowers a cluster-wide policy.
pub(super) fn read(
    object: &ManifestObject<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED_FIELDS);
    metadata::check(root, report);
    check_baseline_name(root, variant, report);
    let Some(spec) = report.child(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return None;
    };
    report.ok(spec.as_map())?;
    report.check_fields(&spec, variant.spec_fields(), NOT_IN_KIND);
    let policy_place = place(&spec, variant, report);
    let subject = subject(&spec, variant, report);
    let ingress = rule::rules(&spec, Direction::Ingress, variant, report);
    let egress = rule::rules(&spec, Direction::Egress, variant, report);
    if ingress.is_none() && egress.is_none() && report.errors.is_empty() {
        report.warn(&spec, "there are no rules, so it has no effect");
    }
    let policy = build_policy(
        object,
        (variant, policy_place?),
        subject?,
        (ingress, egress),
    );
    Some(Object::Policy(policy))
}

/// The only BaselineAdminNetworkPolicy of a cluster is named `default`.
fn check_baseline_name(root: &Field<'_>, variant: PolicyVariant, report: &mut ObjectReport) {
    if variant != PolicyVariant::BaselineAdmin {
        return;
    }
    let Some(metadata) = report.object(root, "metadata") else {
        return;
    };
    if let Some((name, at)) = report
        .text(&metadata, "name")
        .filter(|(name, _)| *name != "default")
    {
        let reason = format!(
            "{} is not `default`: a cluster has one BaselineAdminNetworkPolicy, of that name",
            quote(name)
        );
        report.error(&at, reason);
    }
}

/// Its tier and its priority.
pub(super) fn place(
    spec: &Field<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<PolicyPlace> {
    let tier = match variant {
        PolicyVariant::Cluster => tier(spec, report),
        PolicyVariant::Admin => Some(PolicyApiTier::Admin),
        PolicyVariant::BaselineAdmin => {
            return Some(PolicyPlace {
                tier: PolicyApiTier::Baseline,
                priority: None,
            });
        }
    };
    let (number, at) = schema::required_number(spec, "priority", report)?;
    let priority = u16::try_from(number).ok();
    let priority = priority.filter(|priority| i64::from(*priority) <= MAX_PRIORITY);
    if priority.is_none() {
        report.error(
            &at,
            format!("{number} is not a priority: 0 to {MAX_PRIORITY}"),
        );
    }
    Some(PolicyPlace {
        tier: tier?,
        priority: Some(priority?),
    })
}

fn tier(spec: &Field<'_>, report: &mut ObjectReport) -> Option<PolicyApiTier> {
    let Some(field) = report.child(spec, "tier") else {
        report.error(spec, "`tier` is required, but missing");
        return None;
    };
    match report.ok(field.as_str())? {
        "Admin" => Some(PolicyApiTier::Admin),
        "Baseline" => Some(PolicyApiTier::Baseline),
        other => {
            report.error(
                &field,
                format!("{} is not a tier: use Admin or Baseline", quote(other)),
            );
            None
        }
    }
}

/// The pods that the policy applies to.
pub(super) fn subject(
    spec: &Field<'_>,
    variant: PolicyVariant,
    report: &mut ObjectReport,
) -> Option<Selector> {
    let Some(field) = report.child(spec, "subject") else {
        report.error(spec, "`subject` is required, but missing");
        return None;
    };
    let (key, value) = schema::only_field(&field, KNOWN_SUBJECT, &[], report)?;
    match key {
        "namespaces" => Some(namespaced_pods::of_namespaces(&value, report)),
        _ => {
            report.ok(value.as_map())?;
            Some(namespaced_pods::of_pods(&value, variant, report))
        }
    }
}

/// The model policy of a cluster-wide policy, with the rules of the directions that it affects.
pub(super) fn build_policy(
    source: &ManifestObject<'_>,
    (variant, policy_place): (PolicyVariant, PolicyPlace),
    subject: Selector,
    (ingress, egress): (Option<DirectionRules>, Option<DirectionRules>),
) -> Policy {
    Policy {
        id: PolicyId {
            object: source.id.clone(),
            part: 0,
        },
        tier: policy_place.tier.name().into(),
        precedence: variant.precedence(policy_place),
        mode: PolicyMode::Enforce,
        subject,
        scope: TrafficScope::Hairpin,
        observes_dns: has_names(egress.as_ref()),
        ingress,
        egress,
        line: Some(line_of(&source.root)),
    }
}
