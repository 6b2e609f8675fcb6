//! The naive reading of Calico's policies: its tiers, its rules in their order, its profiles, and the labels
//! that its selectors see.
//!
//! It promises, as all of the naive reading, to share nothing with the product. It never validates.

mod holder;
mod host;
mod rule;
mod selector;

pub(super) use holder::{holds, with_applied_labels, with_stored_metadata};
pub(super) use host::host_allows;

use super::{NaiveFlow, at, is_kind, list, namespace, present, text};
use crate::audit;
use holder::NaiveHolder;
use rule::NaiveRuleScope;
use selector::{NaiveSubject, selects};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// What rules in their order come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NaiveOutcome {
    /// No rule matches that decides.
    NoMatch,
    /// The rest of the tier is left out.
    Passes,
    /// It is allowed, or denied.
    Decides(bool),
}

/// Who is asked for a flow, and for which direction.
#[derive(Clone, Copy)]
pub(super) struct NaiveSide<'a> {
    /// A pod, a WorkloadEndpoint or a HostEndpoint.
    pub(super) endpoint: &'a Value,
    pub(super) egress: bool,
    /// What is asked about.
    pub(super) stage: NaiveStage,
}

/// The traffic that an endpoint is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NaiveStage {
    /// What has not been tracked yet.
    Untracked,
    /// What has not been translated yet.
    BeforeTranslation,
    /// What is neither to nor from the host.
    Forwarded,
    /// Its own.
    Own,
}

impl<'a> NaiveSide<'a> {
    /// A pod or a WorkloadEndpoint.
    pub(super) fn of_workload(endpoint: &'a Value, egress: bool) -> Self {
        NaiveSide {
            endpoint,
            egress,
            stage: NaiveStage::Own,
        }
    }

    fn is_host(&self) -> bool {
        is_calico(self.endpoint, "HostEndpoint")
    }

    /// What is at the own end, where that is the host.
    fn own_host(&self) -> Option<&'a Value> {
        (self.is_host() && self.stage == NaiveStage::Own).then_some(self.endpoint)
    }
}

/// Whether an object is of this kind, in either group of Calico.
pub(super) fn is_calico(object: &Value, kind: &str) -> bool {
    is_kind(object, "projectcalico.org", kind) || is_kind(object, "crd.projectcalico.org", kind)
}

/// The kinds with rules and a tier.
const KINDS: [&str; 4] = [
    "GlobalNetworkPolicy",
    "NetworkPolicy",
    "StagedGlobalNetworkPolicy",
    "StagedNetworkPolicy",
];

/// The tier of a policy, staged or not; nothing for what is no policy of Calico.
pub(super) fn tier_of(object: &Value) -> Option<&str> {
    let is_policy = KINDS.iter().any(|kind| is_calico(object, kind));
    let named = text(object, "/spec/tier").filter(|name| !name.is_empty());
    is_policy.then(|| named.unwrap_or("default"))
}

/// The policies of a tier that govern a direction at an endpoint, in their order, with those that are not enforced.
pub(super) fn policies<'a>(
    objects: &'a [Value],
    tier: &str,
    side: NaiveSide<'_>,
) -> Vec<(usize, &'a Value)> {
    let own = if side.is_host() {
        NaiveHolder::of_cluster(side.endpoint)
    } else {
        NaiveHolder::of_workload(objects, side.endpoint)
    };
    let has_stage = |policy: &Value| {
        let is = |flag: &str| policy["spec"][flag] == true;
        match (is("doNotTrack"), is("preDNAT")) {
            (true, _) => side.stage == NaiveStage::Untracked,
            (_, true) => side.stage == NaiveStage::BeforeTranslation,
            _ => match side.stage {
                NaiveStage::Own => true,
                NaiveStage::Forwarded => is("applyOnForward"),
                NaiveStage::Untracked | NaiveStage::BeforeTranslation => false,
            },
        }
    };
    let selects =
        |policy: &Value| has_subject(policy, &own) && (!side.is_host() || may_select_hosts(policy));
    let mut all: Vec<(usize, &Value)> = objects
        .iter()
        .enumerate()
        .filter(|(_, policy)| tier_of(policy) == Some(tier))
        .filter(|(_, policy)| governs(policy, side.egress) && has_stage(policy))
        .filter(|(_, policy)| selects(policy))
        .collect();
    all.sort_by(|(_, a), (_, b)| compare(a, b));
    all
}

/// Whether one of these is enforced.
pub(super) fn is_any_enforced(policies: &[(usize, &Value)]) -> bool {
    policies.iter().any(|(_, policy)| is_enforced(policy))
}

/// Whether a policy is enforced: none that is in audit.
fn is_enforced(policy: &Value) -> bool {
    let staged = text(policy, "/kind").is_some_and(|kind| kind.starts_with("Staged"));
    !staged && !audit::is_in_audit(policy)
}

fn is_of_namespace(policy: &Value) -> bool {
    is_calico(policy, "NetworkPolicy") || is_calico(policy, "StagedNetworkPolicy")
}

fn governs(policy: &Value, egress: bool) -> bool {
    let types = list(at(policy, "/spec/types"));
    let has = |egress| !rules(policy, egress).is_empty();
    match (types.is_empty(), egress) {
        (false, true) => types.iter().any(|t| t == "Egress"),
        (false, false) => types.iter().any(|t| t == "Ingress"),
        (true, true) => has(true),
        (true, false) => has(false) || !has(true),
    }
}

/// What a field says, where it says anything.
fn filled<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    text(value, pointer).filter(|text| !text.is_empty())
}

fn has_subject(policy: &Value, own: &NaiveHolder) -> bool {
    let is_in = |pointer: &str, of| filled(policy, pointer).is_none_or(|s| selects(s, of, own));
    let at_home = if is_of_namespace(policy) {
        own.namespace.as_deref() == Some(namespace(policy))
    } else {
        is_in("/spec/namespaceSelector", NaiveSubject::Namespace)
    };
    at_home
        && is_in("/spec/selector", NaiveSubject::Holder)
        && is_in("/spec/serviceAccountSelector", NaiveSubject::ServiceAccount)
}

/// Hosts are in no namespace and have no service account: a policy that asks for these is not for them.
fn may_select_hosts(policy: &Value) -> bool {
    let asks = |pointer| filled(policy, pointer).is_some();
    !is_of_namespace(policy)
        && !asks("/spec/namespaceSelector")
        && !asks("/spec/serviceAccountSelector")
}

/// By order, where one without comes last; then by name, namespace and kind.
fn compare(a: &Value, b: &Value) -> Ordering {
    let order = |policy: &Value| at(policy, "/spec/order").and_then(Value::as_f64);
    let by_order = match (order(a), order(b)) {
        (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (a, b) => a.is_none().cmp(&b.is_none()),
    };
    let place = |policy: &Value| {
        let name = text(policy, "/metadata/name").unwrap_or("").to_owned();
        let of = is_of_namespace(policy).then(|| namespace(policy).to_owned());
        let kind = text(policy, "/kind").unwrap_or("").to_owned();
        (name, of, policy.get(WAS_STAGED).is_some(), kind)
    };
    by_order.then_with(|| place(a).cmp(&place(b)))
}

fn rules(object: &Value, egress: bool) -> &[Value] {
    list(at(
        object,
        if egress {
            "/spec/egress"
        } else {
            "/spec/ingress"
        },
    ))
}

/// Asks policies in their order; those that were asked are added to `used`.
pub(super) fn ask(
    objects: &[Value],
    policies: &[(usize, &Value)],
    (side, flow): (NaiveSide<'_>, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> NaiveOutcome {
    for (index, policy) in policies {
        used.insert(*index);
        if !is_enforced(policy) {
            continue;
        }
        let scope = NaiveRuleScope {
            objects,
            namespace: is_of_namespace(policy).then(|| namespace(policy)),
            egress: side.egress,
            host: side.own_host(),
        };
        let outcome = scope.ask(rules(policy, side.egress), flow);
        if outcome != NaiveOutcome::NoMatch {
            return outcome;
        }
    }
    NaiveOutcome::NoMatch
}

/// What is said after the last tier: a pod is allowed everything, another endpoint what its profiles allow.
pub(super) fn profiles_allow(
    objects: &[Value],
    (side, flow): (NaiveSide<'_>, &NaiveFlow),
    used: &mut BTreeSet<usize>,
) -> bool {
    if is_kind(side.endpoint, "", "Pod") {
        return true;
    }
    for name in list(at(side.endpoint, "/spec/profiles")) {
        let name = name.as_str().unwrap_or_default();
        if name.starts_with("kns.") || name == "projectcalico-default-allow" {
            return true;
        }
        if name.starts_with("ksa.") {
            continue;
        }
        let is_it = |object: &Value| {
            is_calico(object, "Profile") && text(object, "/metadata/name") == Some(name)
        };
        let Some(index) = objects.iter().position(is_it) else {
            return false;
        };
        used.insert(index);
        let scope = NaiveRuleScope {
            objects,
            namespace: None,
            egress: side.egress,
            host: side.own_host(),
        };
        match scope.ask(rules(&objects[index], side.egress), flow) {
            NaiveOutcome::NoMatch => {}
            NaiveOutcome::Passes => return false,
            NaiveOutcome::Decides(allowed) => return allowed,
        }
    }
    false
}

/// Marks what was staged before it was turned into what would be enforced.
const WAS_STAGED: &str = "wasStaged";

/// What an object is if nothing is in audit: a staged policy counts as the same without `Staged`, unless it
/// says that a policy is to go, or that it is to be ignored.
pub(super) fn without_staging(mut object: Value) -> Option<Value> {
    let staged = ["StagedKubernetesNetworkPolicy"].into_iter().chain(KINDS);
    let mut staged = staged.filter(|kind| kind.starts_with("Staged"));
    let Some(kind) = staged.find(|kind| is_calico(&object, kind)) else {
        return Some(object);
    };
    let action = present(at(&object, "/spec/stagedAction")).and_then(Value::as_str);
    if !matches!(action, None | Some("" | "Set")) {
        return None;
    }
    if kind == "StagedKubernetesNetworkPolicy" {
        object["apiVersion"] = json!("networking.k8s.io/v1");
        object["kind"] = json!("NetworkPolicy");
    } else {
        object["kind"] = json!(kind.trim_start_matches("Staged"));
        object[WAS_STAGED] = json!(true);
    }
    Some(object)
}

#[cfg(test)]
mod tests;
