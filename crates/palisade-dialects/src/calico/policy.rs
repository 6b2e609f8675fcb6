//! Calico's policies: their place, the endpoints that they select, their directions and rules.

use super::entity::selector;
use super::policy_kind::CalicoPolicyKind;
use super::rule::{CalicoRuleContext, list_of, read_list};
use super::selector_scope::{SelectorScope, calico_endpoints, host_endpoints, in_namespace};
use crate::domain_peer::has_names;
use crate::kind_reader::ManifestObject;
use crate::kubernetes::{KUBERNETES_SPEC, read_policy_spec};
use crate::label_selector::workload_selector;
use crate::metadata;
use crate::report::{ObjectReport, line_of};
use palisade_manifest::{Field, ManifestValue, quote};
use palisade_model::{
    Direction, DirectionRules, Object, Order, Policy, PolicyId, PolicyMode, Precedence, Selector,
    Str, TrafficScope, tier_name,
};

pub(super) const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const IN_SPEC: &str = "it belongs inside `spec`";
const MISPLACED: &[(&str, &str)] = &[
    ("tier", IN_SPEC),
    ("order", IN_SPEC),
    ("selector", IN_SPEC),
    ("types", IN_SPEC),
    ("ingress", IN_SPEC),
    ("egress", IN_SPEC),
];
const MISPLACED_KUBERNETES: &[(&str, &str)] = &[
    ("selector", "the pods are selected by `podSelector`"),
    ("types", "the directions are in `policyTypes`"),
];
const STAGED_ACTIONS: [&str; 4] = ["Set", "Delete", "Learn", "Ignore"];

/// The place of a policy: its tier, and its order there.
#[derive(Clone, Debug)]
pub(super) struct TierPlace {
    pub(super) tier: Str,
    pub(super) order: Order,
}

/// What a policy selects.
#[derive(Clone, Debug)]
pub(super) struct PolicySubject {
    /// The workloads.
    pub(super) workloads: Selector,
    /// The workloads, and the host endpoints if it selects any.
    pub(super) endpoints: Selector,
    /// The traffic that it judges.
    pub(super) scope: TrafficScope,
}

/// Lowers a policy.
pub(super) fn read(
    object: &ManifestObject<'_>,
    variant: CalicoPolicyKind,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let root = &object.root;
    if matches!(root.get("spec"), Ok(None)) {
        return without_spec(object, variant, report);
    }
    let Some(spec) = spec(root, report) else {
        return Vec::new();
    };
    report.check_fields(&spec, variant.spec_fields(), variant.fields_elsewhere());
    let is_set = staged_action(&spec, variant.is_staged(), report);
    let tier_place = place(&spec, report);
    let own = object.namespace();
    let namespace = variant.is_namespaced().then_some(&own);
    let subject = subject(&spec, namespace, report);
    for hint in report.items(&spec, "performanceHints") {
        report.ok(hint.as_str());
    }
    let written = types(&spec, report);
    let [ingress, egress] = Direction::BOTH.map(|direction| {
        let context = CalicoRuleContext {
            direction,
            namespace,
            is_of_profile: false,
        };
        read_list(&spec, context, report)
    });
    let governed = directions(&written, [!ingress.is_empty(), !egress.is_empty()]);
    for (direction, rules) in Direction::BOTH.into_iter().zip([&ingress, &egress]) {
        if !governed.contains(&direction)
            && !rules.is_empty()
            && let Some(at) = report.child(&spec, list_of(direction))
        {
            report.warn(
                &at,
                format!("these rules have no effect: `types` does not name {direction}"),
            );
        }
    }
    let (Some(tier_place), Some(subject)) = (tier_place, subject) else {
        return Vec::new();
    };
    if !is_set {
        return Vec::new();
    }
    // What an early stage does not decide is left to the next one. Source: Calico, "Host endpoints": no default deny
    // of untracked policies and those before DNAT.
    let default_deny = !subject.scope.is_early();
    let rules = |direction, rules| {
        governed.contains(&direction).then_some(DirectionRules {
            default_deny,
            rules,
        })
    };
    let rules = [
        rules(Direction::Ingress, ingress),
        rules(Direction::Egress, egress),
    ];
    let policy = build_policy(object, tier_place, subject.endpoints, rules);
    vec![Object::Policy(Policy {
        mode: variant.mode(),
        scope: subject.scope,
        ..policy
    })]
}

/// A policy without `spec`: everything in it has a default.
fn without_spec(
    object: &ManifestObject<'_>,
    variant: CalicoPolicyKind,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let whole = if variant.is_namespaced() {
        "every workload of the namespace"
    } else {
        "every workload and host endpoint"
    };
    report.warn(
        root,
        format!("there is no `spec`: ingress is denied to {whole}"),
    );
    let subject = if variant.is_namespaced() {
        Selector::and([workload_selector(), in_namespace(&object.namespace())])
    } else {
        calico_endpoints()
    };
    let tier_place = TierPlace {
        tier: tier_name::DEFAULT.into(),
        order: Order::Last,
    };
    let ingress = DirectionRules {
        default_deny: true,
        rules: Vec::new(),
    };
    let policy = build_policy(object, tier_place, subject, [Some(ingress), None]);
    vec![Object::Policy(Policy {
        mode: variant.mode(),
        ..policy
    })]
}

/// Lowers a StagedKubernetesNetworkPolicy.
pub(super) fn read_kubernetes(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Vec<Object> {
    let Some(spec) = spec(&object.root, report) else {
        return Vec::new();
    };
    let mut fields = KUBERNETES_SPEC.to_vec();
    fields.push("stagedAction");
    report.check_fields(&spec, &fields, MISPLACED_KUBERNETES);
    let is_set = staged_action(&spec, true, report);
    let policy = read_policy_spec(object, &spec, report);
    let staged = is_set.then_some(Object::Policy(Policy {
        mode: CalicoPolicyKind::StagedNamespaced.mode(),
        ..policy
    }));
    staged.into_iter().collect()
}

/// Checks what is beside the spec, and returns it.
fn spec<'a>(root: &Field<'a>, report: &mut ObjectReport) -> Option<Field<'a>> {
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let Some(spec) = report.child(root, "spec") else {
        report.error(root, "`spec` is required, but missing");
        return None;
    };
    report.ok(spec.as_map())?;
    Some(spec)
}

/// Whether a staged policy says what would be enforced; the other actions propose something else.
fn staged_action(spec: &Field<'_>, is_staged: bool, report: &mut ObjectReport) -> bool {
    if !is_staged {
        return true;
    }
    let Some((text, at)) = report.text(spec, "stagedAction") else {
        return true;
    };
    if !STAGED_ACTIONS.contains(&text) {
        report.error(
            &at,
            format!(
                "{} is not an action: use Set, Delete, Learn or Ignore",
                quote(text)
            ),
        );
    } else if text != "Set" {
        report.warn(
            &at,
            format!("a staged policy with the action {text} has no effect, and nothing is reported of it"),
        );
        return false;
    }
    true
}

/// The tier and the order of a policy; `None` if one cannot be read.
pub(super) fn place(spec: &Field<'_>, report: &mut ObjectReport) -> Option<TierPlace> {
    let tier = match report.child(spec, "tier") {
        None => Some(tier_name::DEFAULT),
        Some(at) => match report.ok(at.as_str()) {
            Some("") => Some(tier_name::DEFAULT),
            text => text,
        },
    };
    let order = order(spec, report);
    Some(TierPlace {
        tier: tier?.into(),
        order: order?,
    })
}

/// The field `order`: a number, or none, which is after all numbers. `None` if it cannot be read.
pub(super) fn order(spec: &Field<'_>, report: &mut ObjectReport) -> Option<Order> {
    let Some(at) = report.child(spec, "order") else {
        return Some(Order::Last);
    };
    match at.node.value {
        ManifestValue::Int(number) => Some(Order::from_number(number as f64)),
        ManifestValue::Float(number) => Some(Order::from_number(number)),
        _ => {
            report.error(&at, format!("expected a number, found {}", at.describe()));
            None
        }
    }
}

/// The endpoints that a policy selects; `None` if errors were added to the report. A host endpoint is in no namespace
/// and runs under no service account: a policy that tests one of these is for workloads only.
pub(super) fn subject(
    spec: &Field<'_>,
    namespace: Option<&Str>,
    report: &mut ObjectReport,
) -> Option<PolicySubject> {
    let before = report.errors.len();
    let mut tests = Vec::new();
    tests.extend(selector(spec, "selector", SelectorScope::Object, report));
    let accounts = selector(
        spec,
        "serviceAccountSelector",
        SelectorScope::ServiceAccount,
        report,
    );
    let mut selects_hosts = namespace.is_none() && accounts.is_none();
    tests.extend(accounts);
    let scope = match namespace {
        Some(own) => {
            tests.push(in_namespace(own));
            TrafficScope::Endpoints
        }
        None => {
            let namespaces = selector(
                spec,
                "namespaceSelector",
                SelectorScope::NamespaceOfSubject,
                report,
            );
            selects_hosts &= namespaces.is_none();
            tests.extend(namespaces);
            traffic_scope(spec, report)
        }
    };
    let of_kinds = |kinds| Selector::and([kinds].into_iter().chain(tests.iter().cloned()));
    let workloads = of_kinds(workload_selector());
    (report.errors.len() == before).then(|| PolicySubject {
        endpoints: match (selects_hosts, scope.is_early()) {
            (true, true) => of_kinds(host_endpoints()),
            (true, false) => of_kinds(calico_endpoints()),
            (false, true) => Selector::none(),
            (false, false) => workloads.clone(),
        },
        workloads,
        scope,
    })
}

/// Reads the fields for host endpoints.
fn traffic_scope(spec: &Field<'_>, report: &mut ObjectReport) -> TrafficScope {
    let mut flag = |key| {
        let at = report.child(spec, key)?;
        report.ok(at.as_bool())
    };
    let is_set = ["doNotTrack", "preDNAT", "applyOnForward"].map(|key| flag(key) == Some(true));
    let [untracked, before_nat, on_forward] = is_set;
    if untracked && before_nat {
        report.error(spec, "doNotTrack and preDNAT cannot both be true");
    }
    if (untracked || before_nat) && !on_forward {
        report.error(
            spec,
            "doNotTrack and preDNAT need `applyOnForward: true` beside them",
        );
    }
    if before_nat {
        let has_egress = report
            .child(spec, "egress")
            .is_some_and(|at| at.node.as_list() != Some(&[]));
        if has_egress || types(spec, report).contains(&Direction::Egress) {
            report.error(spec, "a policy with preDNAT has ingress only");
        }
    }
    match is_set {
        [true, ..] | [_, true, _] if untracked => TrafficScope::Untracked,
        [true, ..] | [_, true, _] => TrafficScope::PreDnat,
        [_, _, true] => TrafficScope::Forwarded,
        _ => TrafficScope::Endpoints,
    }
}

/// The directions in `types`.
pub(super) fn types(spec: &Field<'_>, report: &mut ObjectReport) -> Vec<Direction> {
    let mut written = Vec::new();
    for item in report.items(spec, "types") {
        match report.ok(item.as_str()) {
            Some(text @ ("Ingress" | "Egress")) => {
                let direction = match text {
                    "Ingress" => Direction::Ingress,
                    _ => Direction::Egress,
                };
                if written.contains(&direction) {
                    report.error(&item, format!("{text} is there twice"));
                }
                written.push(direction);
            }
            Some(other) => report.error(
                &item,
                format!("{} is not a type: use Ingress or Egress", quote(other)),
            ),
            None => {}
        }
    }
    written
}

/// The directions that a policy governs. Without `types`: ingress unless it has egress rules only, and egress if it
/// has egress rules.
pub(super) fn directions(written: &[Direction], has_rules: [bool; 2]) -> Vec<Direction> {
    if !written.is_empty() {
        return written.to_vec();
    }
    let [ingress, egress] = has_rules;
    let governs = [ingress || !egress, egress];
    let pairs = Direction::BOTH.into_iter().zip(governs);
    pairs
        .filter_map(|(direction, governs)| governs.then_some(direction))
        .collect()
}

/// The policy of the model.
pub(super) fn build_policy(
    source: &ManifestObject<'_>,
    tier_place: TierPlace,
    subject: Selector,
    [ingress, egress]: [Option<DirectionRules>; 2],
) -> Policy {
    Policy {
        id: PolicyId {
            object: source.id.clone(),
            part: 0,
        },
        tier: tier_place.tier,
        precedence: Precedence {
            order: tier_place.order,
            // Before the policies of Kubernetes at the same order.
            rank: 0,
        },
        mode: PolicyMode::Enforce,
        subject,
        scope: TrafficScope::Endpoints,
        observes_dns: has_names(egress.as_ref()),
        ingress,
        egress,
        line: Some(line_of(&source.root)),
    }
}
