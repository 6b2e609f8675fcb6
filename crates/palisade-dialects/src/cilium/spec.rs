//! The specs of a policy: one in `spec`, more in `specs`; each is a policy of its own.
//!
//! A spec becomes up to three policies of the model: what it denies stands before everything of the default tier, what
//! it allows stands together with Kubernetes' own policies, and rules of DNS names directly before these. So queries are
//! read, and their answers are learnt, also where another policy allows them whatever they ask for. Source: Cilium,
//! "DNS Proxy": a rule without L7 rules for the same peer and port does not end the redirect.

use super::node_subject::selected_nodes;
use super::peer_kind::selected_pods;
use super::rule;
use super::rule_context::{RuleAction, RuleContext, list_of};
use super::selector;
use super::subject_namespace::{check_namespace, is_replaced};
use crate::faults::DialectFault;
use crate::kind_reader::ManifestObject;
use crate::label_selector::workload_selector;
use crate::metadata;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::Field;
use palisade_model::{
    Direction, DirectionRules, LabelKey, Object, Order, Policy, PolicyId, PolicyMode, Precedence,
    Rule, Selector, SourceLine, Str, TrafficScope, reserved, tier_name,
};

pub(super) const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "specs", "status"];
pub(super) const KNOWN_SPEC: &[&str] = &[
    "endpointSelector",
    "nodeSelector",
    "ingress",
    "ingressDeny",
    "egress",
    "egressDeny",
    "labels",
    "enableDefaultDeny",
    "log",
    "description",
];
const IN_SPEC: &str = "it belongs inside `spec`";
const MISPLACED: &[(&str, &str)] = &[
    ("endpointSelector", IN_SPEC),
    ("nodeSelector", IN_SPEC),
    ("ingress", IN_SPEC),
    ("ingressDeny", IN_SPEC),
    ("egress", IN_SPEC),
    ("egressDeny", IN_SPEC),
    ("enableDefaultDeny", IN_SPEC),
];
const NOT_IN_KIND: &[(&str, &str)] = &[
    ("podSelector", "the pods are selected by `endpointSelector`"),
    (
        "policyTypes",
        "a direction with a list of rules is denied by default; `enableDefaultDeny` changes that",
    ),
];
const KNOWN_LABEL: &[&str] = &["key", "value", "source"];
/// The maximum length of the text for logs. Source: the published CRD.
const MAX_LOG: usize = 32;

/// Whether a policy is of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyScope {
    /// CiliumNetworkPolicy.
    Namespace,
    /// CiliumClusterwideNetworkPolicy.
    Cluster,
}

/// What a spec selects.
pub(super) enum SpecSubject {
    /// Pods.
    Pods(Selector),
    /// Host endpoints of nodes.
    Nodes(Selector),
}

/// A policy of the model that a spec becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecPart {
    /// What it denies.
    Denials,
    /// What it allows, but for rules of DNS names, and the default.
    Allowances,
    /// Its rules of DNS names.
    Names,
}

/// How many policies of the model a spec has at most.
const PARTS: u32 = 3;

/// The specs of a policy, numbered: 0 for `spec`, then those of `specs`.
pub(super) fn specs<'a>(root: &Field<'a>, report: &mut ObjectReport) -> Vec<(u32, Field<'a>)> {
    let one = report.child(root, "spec").map(|spec| (0, spec));
    let more = report.items(root, "specs");
    one.into_iter().chain((1..).zip(more)).collect()
}

/// Lowers a policy.
pub(super) fn read(
    object: &ManifestObject<'_>,
    scope: PolicyScope,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let specs = specs(root, report);
    if specs.is_empty() && report.errors.is_empty() {
        report.error(root, "`spec` or `specs` must be provided");
    }
    let mut policies = Vec::new();
    for (number, spec) in &specs {
        if report.ok(spec.as_map()).is_some() {
            policies.extend(read_spec(object, (*number, spec), scope, report));
        }
    }
    policies.into_iter().map(Object::Policy).collect()
}

fn read_spec(
    object: &ManifestObject<'_>,
    (number, spec): (u32, &Field<'_>),
    scope: PolicyScope,
    report: &mut ObjectReport,
) -> Vec<Policy> {
    report.check_fields(spec, KNOWN_SPEC, NOT_IN_KIND);
    let namespace = object.namespace();
    let namespace = (scope == PolicyScope::Namespace).then_some(&namespace);
    let subject = subject(spec, namespace, report);
    check_labels(spec, report);
    report.text(spec, "description");
    let log = log(spec, report);
    let mut read = |action| {
        Direction::BOTH.map(|direction| {
            let context = RuleContext {
                namespace,
                is_of_nodes: matches!(subject, Some(SpecSubject::Nodes(_))),
                direction,
                action,
                log: log.as_ref(),
            };
            rule::read_list(spec, &context, report)
        })
    };
    let denials = read(RuleAction::Deny);
    let mut names = [Vec::new(), Vec::new()];
    let mut place = 0;
    let allowances = read(RuleAction::Allow).map(|rules| {
        let (of_names, others) = rules.into_iter().partition(|rule| rule.dns_names.is_some());
        names[place] = of_names;
        place += 1;
        others
    });
    let parts = [
        (SpecPart::Denials, denials),
        (SpecPart::Allowances, allowances),
        (SpecPart::Names, names),
    ];
    check_lists(spec, report);
    let defaults = default_denies(spec, report);
    let Some(subject) = subject else {
        return Vec::new();
    };
    let line = Some(line_of(spec));
    let parts = parts.into_iter().filter_map(|(part, rules)| {
        let rules = direction_rules(part, rules, defaults);
        build_part(object, (number, part), &subject, rules, line.clone())
    });
    parts.collect()
}

/// The rules of both directions of a part; `None` for a direction that the part does not govern.
fn direction_rules(
    part: SpecPart,
    rules: [Vec<Rule>; 2],
    defaults: [bool; 2],
) -> [Option<DirectionRules>; 2] {
    let mut directions = rules.into_iter().zip(defaults).map(|(rules, default)| {
        // The part that allows has the default as well.
        let default_deny = default && part == SpecPart::Allowances;
        (default_deny || !rules.is_empty()).then_some(DirectionRules {
            default_deny,
            rules,
        })
    });
    [directions.next().flatten(), directions.next().flatten()]
}

/// The model policy of a part of a spec; `None` if it governs no direction.
pub(super) fn build_part(
    object: &ManifestObject<'_>,
    (number, part): (u32, SpecPart),
    subject: &SpecSubject,
    [ingress, egress]: [Option<DirectionRules>; 2],
    line: Option<SourceLine>,
) -> Option<Policy> {
    if ingress.is_none() && egress.is_none() {
        return None;
    }
    let (order, rank) = match part {
        SpecPart::Denials if DialectFault::DenyAfterAllow.is_injected() => (Order::At(1000.0), 3),
        // Before every other policy of the tier, whatever its order.
        SpecPart::Denials => (Order::FIRST, 0),
        SpecPart::Names => (Order::At(1000.0), 1),
        SpecPart::Allowances => (Order::At(1000.0), 2),
    };
    let (SpecSubject::Pods(subject) | SpecSubject::Nodes(subject)) = subject;
    Some(Policy {
        id: PolicyId {
            object: object.id.clone(),
            part: number * PARTS + part as u32,
        },
        tier: tier_name::DEFAULT.into(),
        precedence: Precedence { order, rank },
        mode: PolicyMode::Enforce,
        subject: subject.clone(),
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        ingress,
        egress,
        line,
    })
}

/// The index in `specs` of the spec that a part of a policy is of; `None` for `spec`.
pub fn index_in_specs(part: u32) -> Option<usize> {
    (part / PARTS)
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok())
}

/// What a spec selects; `None` if errors were added to the report.
pub(super) fn subject(
    spec: &Field<'_>,
    namespace: Option<&Str>,
    report: &mut ObjectReport,
) -> Option<SpecSubject> {
    let endpoints = report.child(spec, "endpointSelector");
    let nodes = report.child(spec, "nodeSelector");
    match (endpoints, nodes) {
        (Some(_), Some(nodes)) => {
            report.error(
                &nodes,
                "a rule cannot have both `endpointSelector` and `nodeSelector`",
            );
            None
        }
        (None, None) => {
            report.error(
                spec,
                "a rule must have one of `endpointSelector` and `nodeSelector`",
            );
            None
        }
        (None, Some(nodes)) if namespace.is_some() => {
            report.error(
                &nodes,
                "a CiliumNetworkPolicy cannot have `nodeSelector`: only a \
                 CiliumClusterwideNetworkPolicy selects nodes",
            );
            None
        }
        (None, Some(nodes)) => {
            let requirements = selector::read(&nodes, report);
            let selected = selected_nodes(&requirements);
            if selected == Selector::none() {
                report.warn(
                    &nodes,
                    "no node has these labels: it has those of its Node, of the source `k8s`, and `reserved:host`",
                );
            }
            Some(SpecSubject::Nodes(selected))
        }
        (Some(endpoints), None) => pods(&endpoints, namespace, report).map(SpecSubject::Pods),
    }
}

/// The pods that a spec selects: of the policy's own namespace, if it has one.
fn pods(field: &Field<'_>, namespace: Option<&Str>, report: &mut ObjectReport) -> Option<Selector> {
    let mut requirements = selector::read(field, report);
    if let Some(name) = namespace {
        check_namespace(field, &requirements, name, report);
        requirements.retain(|requirement| !is_replaced(requirement));
    }
    let own = namespace
        .map(|name| Selector::equals(LabelKey::reserved(reserved::NAMESPACE), name.clone()));
    match selected_pods(&requirements) {
        Ok(pods) => {
            if pods == Selector::none() {
                report.warn(
                    field,
                    "no pod has these labels: a pod is closed until it is known, and then it has those of Kubernetes",
                );
            }
            Some(Selector::and(
                [workload_selector(), pods].into_iter().chain(own),
            ))
        }
        Err(feature) => {
            report.error(
                field,
                format!("it selects by {feature}, which are not served"),
            );
            None
        }
    }
}

/// Checks that there is a rule, and reports lists without any.
fn check_lists(spec: &Field<'_>, report: &mut ObjectReport) {
    let mut empty = Vec::new();
    let mut has_rules = false;
    for direction in Direction::BOTH {
        for action in RuleAction::BOTH {
            let key = list_of(direction, action);
            let Some(list) = report.child(spec, key) else {
                continue;
            };
            match list.node.as_list() {
                Some([]) => empty.push((list, key)),
                _ => has_rules = true,
            }
        }
    }
    if !has_rules {
        let hint = match empty.first() {
            Some((_, key)) => format!(
                "; `{key}: []` is no rule: `{key}: [{{}}]` is one, and what denies a direction is a list with rules"
            ),
            None => String::new(),
        };
        report.error(
            spec,
            format!(
                "a rule must have at least one of ingress, ingressDeny, egress and egressDeny{hint}"
            ),
        );
        return;
    }
    for (list, key) in empty {
        report.warn(
            &list,
            format!(
                "an empty list: it has no effect, and does not deny; `{key}: [{{}}]` is a rule"
            ),
        );
    }
}

/// For ingress and egress, whether what no rule matches is denied: if there are rules of the direction, unless
/// `enableDefaultDeny` says otherwise.
fn default_denies(spec: &Field<'_>, report: &mut ObjectReport) -> [bool; 2] {
    let has_rules = |direction, report: &mut ObjectReport| {
        RuleAction::BOTH.into_iter().any(|action| {
            let list = report.child(spec, list_of(direction, action));
            list.is_some_and(|list| list.node.as_list() != Some(&[]))
        })
    };
    let mut defaults = Direction::BOTH.map(|direction| has_rules(direction, report));
    if let Some(field) = report.object(spec, "enableDefaultDeny") {
        report.check_fields(&field, &["ingress", "egress"], &[]);
        for (place, key) in ["ingress", "egress"].into_iter().enumerate() {
            if let Some(at) = report.child(&field, key)
                && let Some(is_enabled) = report.ok(at.as_bool())
            {
                if is_enabled && !defaults[place] {
                    report.warn(
                        &at,
                        format!("there are no {key} rules: Cilium ignores this, here {key} is denied by default"),
                    );
                }
                defaults[place] = is_enabled;
            }
        }
    }
    if DialectFault::DefaultDenyLeaks.is_injected() && defaults[0] {
        defaults[1] = true;
    }
    defaults
}

fn check_labels(spec: &Field<'_>, report: &mut ObjectReport) {
    for label in report.items(spec, "labels") {
        if !report.is_object(&label) {
            continue;
        }
        report.check_fields(&label, KNOWN_LABEL, &[]);
        if report.child(&label, "key").is_none() {
            report.error(&label, "`key` is required, but missing");
        }
        for key in KNOWN_LABEL {
            report.text(&label, key);
        }
    }
}

/// The text for the logs of a spec's rules; it becomes their name.
fn log(spec: &Field<'_>, report: &mut ObjectReport) -> Option<Str> {
    let field = report.object(spec, "log")?;
    report.check_fields(&field, &["value"], &[]);
    let (text, at) = report.text(&field, "value")?;
    if text.chars().count() > MAX_LOG || text.chars().any(char::is_control) {
        report.error(&at, format!("at most {MAX_LOG} printable characters"));
        return None;
    }
    (!text.is_empty()).then(|| text.into())
}
