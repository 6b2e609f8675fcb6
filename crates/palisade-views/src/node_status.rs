//! `NodePolicyStatus`: the state of this node for its cluster, bounded in size.

use super::CoreSnapshot;
use super::budget::{closed_policy_sets, closed_set_reason};
use palisade_api::{
    EnforcedInstead, NodeCondition, NodePolicyReport, NotEnforcedObject, PartlyClosedPolicy,
    StaleSource,
};
use palisade_effective::{Diagnostic, PolicyAcceptance};
use palisade_node::clock::rfc3339;
use palisade_text::printable;
use std::collections::BTreeMap;
use std::time::Duration;

/// The maximum number of objects that are listed; the others are counted.
const MAX_LISTED: usize = 100;
/// The maximum length of a text, in characters: the whole object stays far below what a server stores.
const MAX_TEXT: usize = 500;

/// The `status` of this node's `NodePolicyStatus`.
pub fn node_policy_report(core: &CoreSnapshot<'_>) -> NodePolicyReport {
    let mut not_enforced = not_enforced_objects(core);
    let not_enforced_count = not_enforced.len();
    not_enforced.truncate(MAX_LISTED);
    let sources = core.source_report.sources.iter();
    let stale_sources: Vec<StaleSource> = sources
        .filter_map(|source| {
            let stale = source.stale.as_ref()?;
            Some(StaleSource {
                name: source.name.to_string(),
                since: rfc3339(Duration::from_secs(stale.since)),
                reason: bounded(&stale.reason),
            })
        })
        .collect();
    let counts = core.policy.engine.counts();
    let mut partly_closed = partly_closed_policies(&core.source_report.policies);
    let partly_closed_count = partly_closed.len();
    partly_closed.truncate(MAX_LISTED);
    NodePolicyReport {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        driver: core.enforcer.dataplane.name().to_owned(),
        updated: rfc3339(core.now),
        revision: core.policy.engine.revision(),
        realised_revision: core.policy.realised_revision,
        endpoints: core.workloads.registry.iter().count(),
        policies: counts.policies,
        identities: counts.identities,
        conditions: conditions(
            core,
            &stale_sources,
            (not_enforced_count, partly_closed_count),
        ),
        stale_sources,
        not_enforced_count,
        not_enforced,
        partly_closed_count,
        partly_closed,
    }
}

/// The policies in force with parts that are held closed.
fn partly_closed_policies(policies: &[PolicyAcceptance]) -> Vec<PartlyClosedPolicy> {
    let partly_closed = policies.iter().filter_map(|policy| {
        let closed = policy.closed.as_ref()?;
        let first = &closed.parts.first()?.problem;
        let named = object(&policy.id.to_string(), EnforcedInstead::Nothing, "", "");
        Some(PartlyClosedPolicy {
            kind: named.kind,
            name: named.name,
            field: bounded(&first.field),
            reason: bounded(&first.reason),
            parts: closed.parts.len() + closed.more,
        })
    });
    partly_closed.collect()
}

fn conditions(
    core: &CoreSnapshot<'_>,
    stale: &[StaleSource],
    (not_enforced, partly_closed): (usize, usize),
) -> Vec<NodeCondition> {
    let condition = |kind: &str, holds: bool, reason: &str, message: String| NodeCondition {
        kind: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: bounded(&message),
        last_transition_time: rfc3339(core.now),
    };
    let unready = core.enforcer.unready_reasons();
    let ready_reason = match (unready.is_empty(), core.enforcer.is_in_sync()) {
        (true, _) => "Enforced",
        (false, true) => "KernelRefused",
        (false, false) => "NotInSync",
    };
    let ready_message = if unready.is_empty() {
        "the kernel enforces the policy of all sources".to_owned()
    } else {
        unready.join("; ")
    };
    let named: Vec<String> = stale
        .iter()
        .map(|source| format!("{} since {}: {}", source.name, source.since, source.reason))
        .collect();
    let (stale_reason, stale_message) = if named.is_empty() {
        ("SourcesFollowed", "all sources are followed".to_owned())
    } else {
        ("SourceNotFollowed", named.join("; "))
    };
    let (accepted_reason, accepted_message) = match (not_enforced, partly_closed) {
        (0, 0) => (
            "AllEnforced",
            "every object is enforced as written".to_owned(),
        ),
        (0, n) => (
            "PartlyClosed",
            format!("policies with parts held closed: {n}; see partlyClosed"),
        ),
        (n, _) => (
            "NotAllEnforced",
            format!("not enforced as written: {n}; see notEnforced"),
        ),
    };
    vec![
        condition("Ready", unready.is_empty(), ready_reason, ready_message),
        condition("Stale", !stale.is_empty(), stale_reason, stale_message),
        condition(
            "Accepted",
            not_enforced == 0,
            accepted_reason,
            accepted_message,
        ),
    ]
}

/// The objects that are not enforced as written, by kind and name.
fn not_enforced_objects(core: &CoreSnapshot<'_>) -> Vec<NotEnforcedObject> {
    let report = core.source_report;
    let mut found: BTreeMap<&str, NotEnforcedObject> = BTreeMap::new();
    let is_error = |diagnostic: &&Diagnostic| diagnostic.is_error();
    for diagnostic in report.problems.iter().filter(is_error) {
        let problem = &diagnostic.problem;
        if let Some(name) = problem.object.as_deref() {
            // The first problem of an object tells enough.
            let entry = || {
                object(
                    name,
                    EnforcedInstead::Nothing,
                    &problem.field,
                    &problem.reason,
                )
            };
            found.entry(name).or_insert_with(entry);
        }
    }
    for retained in &report.retained {
        let enforced = match retained.since {
            Some(_) => EnforcedInstead::LastValid,
            None => EnforcedInstead::Isolating,
        };
        let reason = "its present definition is not valid, or there are several";
        let entry = || object(&retained.object, enforced, "", reason);
        found.entry(&retained.object).or_insert_with(entry).enforced = enforced;
    }
    let closed = closed_policy_sets(core).map(|over| {
        let first = over.policies.first().map(String::as_str);
        let reason = closed_set_reason(&over);
        object(
            first.unwrap_or_default(),
            EnforcedInstead::Closed,
            "",
            &reason,
        )
    });
    let closed: Vec<NotEnforcedObject> = closed.collect();
    found.into_values().chain(closed).collect()
}

/// An entry for an object that is named as `Kind namespace/name`.
fn object(name: &str, enforced: EnforcedInstead, field: &str, reason: &str) -> NotEnforcedObject {
    let (kind, name) = name.split_once(' ').unwrap_or(("", name));
    NotEnforcedObject {
        kind: bounded(kind),
        name: bounded(name),
        enforced,
        field: bounded(field),
        reason: bounded(reason),
    }
}

/// Printable text of bounded length.
pub(super) fn bounded(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}
