//! `GET /v1/status`: the state of the agent, and what needs an administrator.

use super::CoreSnapshot;
use super::budget::{budget_excesses, closed_policy_sets, closed_set_reason};
use super::names::{names_reason, names_status};
use super::policy_states::policy_state_counts;
use palisade_api::{
    AddressConflictReport, AuditSummary, DataplaneStatus, DriverConditionReport, DropCounterReport,
    ElementBudgetReport, EndpointState, FastPathFiguresReport, FollowedSource, Health,
    HostEndpointReport, NodeStatus, PacketCount, ProblemReport, ProblemSeverity,
    RetainedObjectReport, SourceStatus, StalenessReport, Status, TierReport,
};
use palisade_dataplane::{Counters, FastPathFigures};
use palisade_effective::{Diagnostic, Severity};
use palisade_enforcer::packet_reason::packet_reason;
use palisade_enforcer::policy_subsystem::element_budget;
use palisade_engine::TierSummary;
use palisade_node::clock::rfc3339;
use palisade_node::subsystem::RunSubsystem;
use palisade_tables::Verdict;
use palisade_text::printable;
use palisade_workloads::host_endpoints::HostEndpointState;
use std::time::Duration;

/// The maximum number of source errors in the reasons of `status`, one sentence each.
const MAX_SOURCE_REASONS: usize = 100;
/// The maximum number of retained objects in `status`; the others are counted.
const MAX_RETAINED_OBJECTS: usize = 1_000;

/// Converts a diagnostic of the source for the API.
pub fn problem_report(diagnostic: &Diagnostic) -> ProblemReport {
    let location = &diagnostic.problem.location;
    ProblemReport {
        file: printable(&location.file).into_owned(),
        line: location.line,
        column: location.column,
        severity: match diagnostic.severity {
            Severity::Error => ProblemSeverity::Error,
            Severity::HeldClosed => ProblemSeverity::HeldClosed,
            Severity::Warning => ProblemSeverity::Warning,
        },
        object: diagnostic
            .problem
            .object
            .as_deref()
            .map(|object| printable(object).into_owned()),
        field: printable(&diagnostic.problem.field).into_owned(),
        reason: printable(&diagnostic.problem.reason).into_owned(),
        more: (diagnostic.omitted > 0).then_some(diagnostic.omitted),
    }
}

/// The packets dropped for each reason, by the reason's name.
fn drop_counters(counters: Option<&Counters>) -> Vec<DropCounterReport> {
    let drops = counters.map(|counters| counters.by_drop_reason.iter());
    let mut reports: Vec<DropCounterReport> = drops
        .into_iter()
        .flatten()
        .map(|(reason, count)| DropCounterReport {
            reason: packet_reason(*reason),
            count: PacketCount {
                packets: count.packets,
                bytes: count.bytes,
            },
        })
        .collect();
    reports.sort_by_key(|report| report.reason.name());
    reports
}

/// `GET /v1/status`.
pub fn status(core: &CoreSnapshot<'_>, counters: Option<&Counters>) -> Status {
    let conflicts = conflicts(core);
    let reasons = degraded_reasons(core, &conflicts);
    let counts = core.policy.engine.counts();
    let (kind, location) = core.sources.first().cloned().unwrap_or_default();
    let report = core.source_report;
    let retained = report.retained.iter().take(MAX_RETAINED_OBJECTS);
    let more_retained = report.retained.len().saturating_sub(MAX_RETAINED_OBJECTS);
    let health = match (core.enforcer.is_in_sync(), reasons.is_empty()) {
        (_, false) => Health::Degraded,
        (false, true) => Health::Starting,
        (true, true) => Health::Ready,
    };
    let budget = element_budget(&core.config.policy);
    let mut status = Status {
        api_version: palisade_api::api_version(),
        as_of: rfc3339(core.now),
        health,
        reasons,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started: rfc3339(core.startup.since),
        revision: core.policy.engine.revision(),
        realised: core.policy.realised_revision,
        endpoints: core.workloads.registry.iter().count(),
        host_endpoints: host_endpoints(core),
        missing_failsafe: core
            .workloads
            .registry
            .host_endpoints
            .missing_failsafe(&core.config.host.failsafe()),
        policies: counts.policies,
        tiers: tiers(core),
        policy_states: policy_state_counts(core),
        audit: audit_summary(core, counters),
        identities: counts.identities,
        source: SourceStatus {
            kind,
            location,
            in_sync: core.enforcer.is_in_sync(),
            sources: followed_sources(core),
            files: report.files,
            objects: report.objects,
            problems: report.problems.iter().map(problem_report).collect(),
        },
        dataplane: dataplane_status(core, counters),
        node: Some(node_status(core)),
        bootstrap: core.startup.stages.clone(),
        retained_objects: retained.map(retained_object_report).collect(),
        more_retained_objects: (more_retained > 0).then_some(more_retained),
        conflicts,
        budget: ElementBudgetReport {
            elements: counts.elements,
            host: budget.host,
            policy_set: budget.set,
        },
        over_budget: budget_excesses(core),
        names: names_status(core),
        node_status_error: core.node_status_failure.map(str::to_owned),
    };
    for subsystem in core.subsystems {
        subsystem.report(&mut status);
    }
    // A host that has nothing to do with the cluster's nodes has no node.
    let has_node = |node: &NodeStatus| core.node.node_pools.is_some() || node.routes.is_some();
    status.node = status.node.filter(has_node);
    status
}

fn dataplane_status(core: &CoreSnapshot<'_>, counters: Option<&Counters>) -> DataplaneStatus {
    let dataplane = &*core.enforcer.dataplane;
    let conditions = dataplane.conditions().into_iter();
    DataplaneStatus {
        name: dataplane.name().to_owned(),
        generation: dataplane.status().generation.unwrap_or_default(),
        start: core.enforcer.policy.progress.initial_flush.clone(),
        last: core.enforcer.policy.progress.last_flush.clone(),
        repairs: core.enforcer.repairs.recent().cloned().collect(),
        repaired: core.enforcer.repairs.count(),
        drops: drop_counters(counters),
        error: core.enforcer.policy.failure().map(str::to_owned),
        conditions: conditions
            .map(|condition| DriverConditionReport {
                kind: condition.kind.to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message,
            })
            .collect(),
        fast_path: core.startup.fast_path.clone().map(|mut report| {
            report.figures = dataplane.fast_path().map(fast_path_figures);
            report
        }),
    }
}

fn fast_path_figures(figures: FastPathFigures) -> FastPathFiguresReport {
    FastPathFiguresReport {
        addresses: figures.addresses,
        rows: figures.rows,
        flows: figures.flows,
        flows_via_stack: figures.flows_via_stack,
        evictions: figures.evictions,
    }
}

/// The host endpoints of this host.
fn host_endpoints(core: &CoreSnapshot<'_>) -> Vec<HostEndpointReport> {
    let states = core.workloads.registry.host_endpoints.states();
    let report = |state: HostEndpointState<'_>| HostEndpointReport {
        kind: state.id.kind.name().to_owned(),
        name: state.id.name.to_string(),
        interface: state.interface.map(ToString::to_string),
        reason: state.reason,
    };
    states.map(report).collect()
}

/// The tiers that have policies, in order of evaluation.
fn tiers(core: &CoreSnapshot<'_>) -> Vec<TierReport> {
    let tiers = core.policy.engine.tiers().into_iter();
    let report = |summary: TierSummary| TierReport {
        name: summary.tier.name.to_string(),
        order: summary.tier.order.number(),
        default: summary.tier.default,
        missing: summary.missing,
        policies: summary.policies,
    };
    tiers.map(report).collect()
}

/// What is in audit, and the packets judged there.
fn audit_summary(core: &CoreSnapshot<'_>, counters: Option<&Counters>) -> AuditSummary {
    let counts = core.policy.engine.audit_counts();
    let mut summary = AuditSummary {
        agent: core.config.policy.audit_mode,
        policies: counts.policies,
        namespaces: counts.namespaces,
        endpoints: counts.endpoints,
        ..AuditSummary::default()
    };
    let verdicts = counters.into_iter().flat_map(|counters| &counters.by_audit);
    for (verdicts, count) in verdicts {
        let to = match (verdicts.enforced, verdicts.audit) {
            (Verdict::Deny, Verdict::Allow | Verdict::Continue) => &mut summary.would_allow,
            (Verdict::Allow | Verdict::Continue, Verdict::Deny) => &mut summary.would_deny,
            _ => &mut summary.unchanged,
        };
        to.packets += count.packets;
        to.bytes += count.bytes;
    }
    summary
}

/// This host's node, with its pools; the subsystems add what they have of it.
fn node_status(core: &CoreSnapshot<'_>) -> NodeStatus {
    let pools = core.node.node_pools.iter().flat_map(|pools| pools.pools());
    NodeStatus {
        name: core.node.nodes.own_name().to_string(),
        pools: pools.map(ToString::to_string).collect(),
        routes: None,
    }
}

/// The sources, in the order of precedence.
fn followed_sources(core: &CoreSnapshot<'_>) -> Vec<FollowedSource> {
    // Before the first report nothing is known of them but their names.
    let states = core.source_report.sources.iter().map(Some);
    let states = states.chain(std::iter::repeat(None));
    let sources = core.sources.iter().zip(states);
    let followed = sources.map(|((name, location), state)| FollowedSource {
        name: name.clone(),
        location: location.clone(),
        in_sync: state.is_some_and(|state| state.in_sync),
        stale: state.and_then(|state| {
            let stale = state.stale.as_ref()?;
            Some(StalenessReport {
                since: rfc3339(Duration::from_secs(stale.since)),
                reason: stale.reason.clone(),
            })
        }),
        absent: state.map_or(Vec::new(), |state| state.absent().to_vec()),
    });
    followed.collect()
}

/// The number of problems that need an administrator.
pub(super) fn degraded_count(core: &CoreSnapshot<'_>) -> usize {
    let of_source = Diagnostic::count_by_severity(&core.source_report.problems).0;
    let listed_reasons = source_reasons(core).len();
    degraded_reasons(core, &conflicts(core)).len() - listed_reasons + of_source
}

/// The errors of the source, one sentence each; those above the maximum are counted in one sentence.
fn source_reasons(core: &CoreSnapshot<'_>) -> Vec<String> {
    let problems = &core.source_report.problems;
    let errors = problems.iter().filter(|diagnostic| diagnostic.is_error());
    let listed_errors = errors.take(MAX_SOURCE_REASONS);
    let counted: usize = listed_errors.clone().map(Diagnostic::count).sum();
    let mut reasons: Vec<String> = listed_errors
        .map(|diagnostic| diagnostic.problem.to_string())
        .collect();
    let more = Diagnostic::count_by_severity(problems).0 - counted;
    if more > 0 {
        reasons.push(format!(
            "{more} more errors of the source; see its problems"
        ));
    }
    reasons
}

/// The problems that need an administrator, one sentence each.
fn degraded_reasons(core: &CoreSnapshot<'_>, conflicts: &[AddressConflictReport]) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(failure) = core.enforcer.policy.failure() {
        reasons.push(format!("the kernel does not hold the policy: {failure}"));
    }
    let forwarding: &dyn RunSubsystem<()> = &core.node.forwarding;
    reasons.extend(forwarding.failure_reason());
    let subsystems = core.subsystems.iter();
    reasons.extend(subsystems.filter_map(|subsystem| subsystem.failure_reason()));
    reasons.extend(names_reason(core));
    let pools = core.node.node_pools.iter();
    // Before that, the Node may not have been read yet.
    let pools = pools.filter(|_| core.enforcer.is_in_sync());
    reasons.extend(pools.flat_map(|pools| pools.problems().map(str::to_owned)));
    if let Some(failure) = core.enforcer.masquerade.failure() {
        reasons.push(format!("masquerading could not be set up: {failure}"));
    }
    let sources = core.source_report.sources.iter();
    reasons.extend(sources.filter_map(|source| {
        let stale = source.stale.as_ref()?;
        Some(format!(
            "the source {} is not followed since {}: {}; what was read before stays in force",
            source.name,
            rfc3339(Duration::from_secs(stale.since)),
            stale.reason
        ))
    }));
    if let Some(trouble) = &core.config.file_status().error {
        reasons.push(format!("{trouble}; current policy stays in force"));
    }
    reasons.extend(source_reasons(core));
    reasons.extend(closed_policy_sets(core).map(|over| closed_set_reason(&over)));
    let workloads = core.workloads.registry.iter();
    for (id, workload) in workloads.filter(|(_, w)| w.state == EndpointState::Lost) {
        let reason = workload.reason.as_deref().unwrap_or("lost");
        reasons.push(format!(
            "{id}: {reason}; remove it, or restore its interface"
        ));
    }
    let missing = core.policy.engine.missing_references();
    for (tier, policies) in &missing.tiers {
        let by = join_names(policies);
        reasons.push(format!(
            "{by} refers to tier {tier}, which does not exist: it applies after all others"
        ));
    }
    for (profile, endpoints) in &missing.profiles {
        let by = join_names(endpoints);
        reasons.push(format!(
            "{by} refers to profile {profile}, which does not exist: it denies"
        ));
    }
    for (direction, policies) in core.policy.engine.unaudited_policies() {
        let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
        reasons.push(format!(
            "what {} would decide for {direction} if nothing were in audit is not counted: it would exceed the element budget",
            names.join(", ")
        ));
    }
    for conflict in conflicts {
        let others = conflict.others.join(", ");
        reasons.push(format!(
            "{} is claimed by {} and {others}",
            conflict.address, conflict.owner
        ));
    }
    reasons
}

fn conflicts(core: &CoreSnapshot<'_>) -> Vec<AddressConflictReport> {
    let conflicts = core.policy.engine.address_conflicts().into_iter();
    conflicts
        .map(|conflict| AddressConflictReport {
            address: conflict.address.to_string(),
            owner: conflict.owner.to_string(),
            others: conflict.others.iter().map(ToString::to_string).collect(),
        })
        .collect()
}

fn retained_object_report(retained: &palisade_effective::RetainedObject) -> RetainedObjectReport {
    RetainedObjectReport {
        object: printable(&retained.object).into_owned(),
        since: retained
            .since
            .map(|seconds| rfc3339(Duration::from_secs(seconds))),
        hash: retained.hash.clone(),
    }
}

fn join_names(things: &[impl ToString]) -> String {
    let names: Vec<String> = things.iter().map(ToString::to_string).collect();
    names.join(", ")
}
