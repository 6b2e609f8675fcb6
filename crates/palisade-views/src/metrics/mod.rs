//! `GET /metrics`: Prometheus metrics, their definition, collection and exposition.
//!
//! Every metric is defined once, in [`table`], which also generates the exposition and `docs/metrics.md`. The enforcer
//! counts events in [`CoreMetrics`]; gauges are read for each scrape. No metric names a workload or a policy, because
//! readers of metrics may not be permitted to read those.
//!
//! [`CoreMetrics`]: palisade_enforcer::metrics::CoreMetrics

pub mod exposition;
mod process;
pub mod table;

use crate::CoreSnapshot;
use crate::budget::budget_excesses;
use crate::status::degraded_count;
use exposition::Exposition;
use palisade_api::{BudgetFallback, EndpointState};
use palisade_dataplane::{CounterValue, Counters, FastPathFigures};
use palisade_enforcer::metrics::Histogram;
use palisade_proxy::{ProxyCounts, QueryCounts};
use palisade_tables::{AuditComparison, Verdict, VerdictCause};
use process::collect as collect_process;
use std::collections::BTreeMap;
use table::*;

/// Phases that are exported even before they run.
const PHASES: [&str; 6] = ["split", "tighten", "revoke", "loosen", "merge", "delete"];

/// `GET /metrics`, without the API's own metrics.
pub fn collect_metrics(core: &CoreSnapshot<'_>, counters: Option<&Counters>) -> Exposition {
    let mut out = Exposition::default();
    let flag = |holds: bool| f64::from(u8::from(holds));
    let CoreSnapshot {
        enforcer, policy, ..
    } = core;
    let engine = &policy.engine;
    let is_ready = enforcer.unready_reasons().is_empty();
    out.add_sample(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
    out.add_sample(&READY, &[], flag(is_ready));
    out.add_sample(&DEGRADED_REASONS, &[], degraded_count(core) as f64);
    out.add_sample(&PROCESS_START, &[], core.startup.since.as_secs_f64());
    collect_process(&mut out);
    collect_endpoints_and_policies(core, &mut out);
    collect_audit(core, &mut out);
    out.add_sample(&IDENTITIES, &[], engine.counts().identities as f64);
    out.add_sample(&REVISION_ACCEPTED, &[], engine.revision() as f64);
    out.add_sample(&REVISION_REALISED, &[], policy.realised_revision as f64);
    collect_source(core, &mut out);
    collect_budget(core, &mut out);
    let (tally, driver) = (&enforcer.policy.metrics, enforcer.dataplane.status());
    out.add_sample(&SOURCE_BATCHES, &[], tally.batches as f64);
    out.add_histogram(&FLUSH_SECONDS, &[], &tally.flush);
    out.add_histogram(&ATTACH_SECONDS, &[], &tally.attach);
    out.add_histogram(&DETACH_SECONDS, &[], &tally.detach);
    out.add_histogram(&IMPLEMENTATION_SECONDS, &[], &tally.implementation_delay);
    let none = Histogram::default();
    for phase in PHASES {
        let took = tally.phases.get(phase).unwrap_or(&none);
        out.add_histogram(&PHASE_SECONDS, &[phase], took);
    }
    let waited = driver.grace_duration.as_secs_f64();
    out.add_sample(&PHASE_WAIT_SECONDS, &[], waited);
    out.add_sample(&KERNEL_TRANSACTIONS, &[], tally.transactions as f64);
    out.add_sample(&KERNEL_WRITES, &[], tally.writes as f64);
    out.add_sample(&KERNEL_FAILURES, &[], tally.failures as f64);
    out.add_sample(&KERNEL_RETRIES, &[], tally.retries as f64);
    out.add_sample(&KERNEL_REPAIRS, &[], enforcer.repairs.count() as f64);
    out.add_sample(
        &KERNEL_ERROR,
        &[],
        flag(enforcer.policy.failure().is_some()),
    );
    collect_fast_path(enforcer.dataplane.fast_path(), &mut out);
    collect_names(core, &mut out);
    let generation = driver.generation.unwrap_or_default();
    out.add_sample(&GENERATION, &[], f64::from(generation));
    if let Some(counters) = counters {
        collect_drops(counters, &mut out);
        collect_audit_packets(counters, &mut out);
    }
    out
}

fn collect_fast_path(figures: Option<FastPathFigures>, out: &mut Exposition) {
    let is_running = figures.is_some();
    let figures = figures.unwrap_or_default();
    let shortage = figures.shortage;
    for (metric, label, value) in [
        (&FAST_PATH_RUNNING, None, u64::from(is_running)),
        (&FAST_PATH_ADDRESSES, None, figures.addresses as u64),
        (
            &FAST_PATH_INTERFACES_REFUSED,
            None,
            figures.refused_interfaces as u64,
        ),
        (&FAST_PATH_ROWS, None, figures.rows as u64),
        (
            &FAST_PATH_SHORTAGES,
            Some("addresses"),
            shortage.addresses as u64,
        ),
        (
            &FAST_PATH_SHORTAGES,
            Some("policy-sets"),
            shortage.sets as u64,
        ),
        (
            &FAST_PATH_SHORTAGES,
            Some("classes"),
            shortage.classes as u64,
        ),
        (
            &FAST_PATH_SHORTAGES,
            Some("prefixes"),
            shortage.prefixes as u64,
        ),
        (&FAST_PATH_FLOWS, Some("fast-path"), figures.flows),
        (&FAST_PATH_FLOWS, Some("stack"), figures.flows_via_stack),
        (&FAST_PATH_EVICTIONS, None, figures.evictions),
    ] {
        out.add_sample(metric, label.as_slice(), value as f64);
    }
}

fn collect_names(core: &CoreSnapshot<'_>, out: &mut Exposition) {
    let manager = core.names;
    let (names, addresses) = manager.sizes();
    let (address_counts, answers) = (manager.address_counts(), manager.answer_counts());
    out.add_sample(&NAMES, &[], names as f64);
    out.add_sample(&NAME_ADDRESSES, &[], addresses as f64);
    out.add_sample(&NAME_ADDRESSES_ADDED, &[], address_counts.added as f64);
    out.add_sample(
        &NAME_ADDRESSES_REMOVED,
        &["expired"],
        address_counts.expired as f64,
    );
    out.add_sample(
        &NAME_ADDRESSES_REMOVED,
        &["evicted"],
        address_counts.evicted as f64,
    );
    out.add_sample(&DNS_ANSWERS, &["learnt"], answers.learnt as f64);
    out.add_sample(&DNS_ANSWERS, &["foreign"], answers.foreign as f64);
    out.add_sample(&DNS_ANSWERS, &["unowned"], answers.unowned as f64);
    out.add_sample(&DNS_ADDRESSES_EXCLUDED, &[], answers.excluded as f64);
    out.add_sample(&DNS_POLICIES, &[], manager.dns_policy_count() as f64);
    out.add_sample(&DNS_PROXIES, &[], manager.proxies.count() as f64);
    collect_proxies(&manager.proxies.counts(), out);
}

fn collect_proxies(counts: &ProxyCounts, out: &mut Exposition) {
    let ProxyCounts {
        queries,
        answers,
        offers,
        upstream,
        tcp,
        latency,
        broken_rule_sets,
    } = counts;
    // Those over UDP are all others.
    let verdicts = |counts: &QueryCounts| {
        [
            ("allowed", counts.allowed),
            ("refused", counts.refused),
            ("unknown-rule-set", counts.unknown_rule_set),
            ("malformed", counts.malformed),
        ]
    };
    for ((verdict, all), (_, tcp)) in verdicts(queries).into_iter().zip(verdicts(&tcp.queries)) {
        let udp = all.saturating_sub(tcp);
        out.add_sample(&DNS_QUERIES, &["udp", verdict], udp as f64);
        out.add_sample(&DNS_QUERIES, &["tcp", verdict], tcp as f64);
    }
    for (metric, label, value) in [
        (&DNS_QUERIES_DROPPED, Some("forgotten"), queries.forgotten),
        (&DNS_QUERIES_DROPPED, Some("upstream"), upstream.failed),
        (&DNS_PROXY_ANSWERS, Some("released"), answers.released),
        (&DNS_PROXY_ANSWERS, Some("foreign"), answers.foreign),
        (&DNS_PROXY_ANSWERS, Some("unsent"), answers.unsent),
        (&DNS_UNCONFIRMED, None, answers.held_too_long),
        (&DNS_UNREADABLE, None, answers.unreadable),
        (&DNS_OFFERS_DROPPED, None, offers.dropped),
        (&DNS_CONNECTIONS_CLOSED, Some("limit"), tcp.refused),
        (&DNS_CONNECTIONS_CLOSED, Some("unmarked"), tcp.unmarked),
        (&DNS_CONNECTIONS_CLOSED, Some("idle"), tcp.idle),
        (&DNS_SOCKETS_EVICTED, None, upstream.evicted),
        (&DNS_RULES_UNREADABLE, None, *broken_rule_sets),
    ] {
        out.add_sample(metric, label.as_slice(), value as f64);
    }
    let buckets = latency.cumulative().map(|(bound, count)| {
        let bound = bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        (bound, count)
    });
    out.add_buckets(&DNS_LATENCY, &[], buckets, latency.sum());
}

fn collect_endpoints_and_policies(core: &CoreSnapshot<'_>, out: &mut Exposition) {
    for state in EndpointState::ALL {
        let workloads = core.workloads.registry.iter();
        let count = workloads.filter(|(_, workload)| workload.state == *state);
        out.add_sample(&ENDPOINTS, &[state.name()], count.count() as f64);
    }
    let mut policies = BTreeMap::from([
        (("kubernetes", "active"), 0_u64),
        (("kubernetes", "idle"), 0),
    ]);
    for policy in core.policy.engine.ordered_policies() {
        let state = if core.policy.engine.selected_endpoints(&policy.id).is_empty() {
            "idle"
        } else {
            "active"
        };
        let dialect = dialect_name(policy.id.object.kind.group());
        *policies.entry((dialect, state)).or_default() += 1;
    }
    for ((dialect, state), count) in policies {
        out.add_sample(&POLICIES, &[dialect, state], count as f64);
    }
}

fn collect_audit(core: &CoreSnapshot<'_>, out: &mut Exposition) {
    let mode = core.config.policy.audit_mode;
    out.add_sample(&AUDIT_MODE, &[], f64::from(u8::from(mode)));
    let counts = core.policy.engine.audit_counts();
    for (kind, count) in [
        ("policy", counts.policies),
        ("namespace", counts.namespaces),
        ("endpoint", counts.endpoints),
    ] {
        out.add_sample(&AUDIT_OBJECTS, &[kind], count as f64);
    }
}

/// Packets judged where something in audit applies, by their verdicts.
fn collect_audit_packets(counters: &Counters, out: &mut Exposition) {
    for verdicts in AuditComparison::ALL {
        let labels = [
            verdict_name(verdicts.enforced),
            verdict_name(verdicts.audit),
        ];
        let count = counters.by_audit.get(&verdicts);
        let count = count.copied().unwrap_or_default();
        out.add_sample(&AUDIT_PACKETS, &labels, count.packets as f64);
        out.add_sample(&AUDIT_BYTES, &labels, count.bytes as f64);
    }
}

const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow | Verdict::Continue => "allow",
        Verdict::Deny => "deny",
    }
}

fn collect_source(core: &CoreSnapshot<'_>, out: &mut Exposition) {
    let sources = &core.source_report.sources;
    let is_followed = sources.iter().all(|source| source.stale.is_none());
    let in_sync = core.enforcer.is_in_sync() && is_followed;
    out.add_sample(&SOURCE_IN_SYNC, &[], f64::from(u8::from(in_sync)));
    // Before the first report nothing is known of them but their names.
    let states = sources.iter().map(Some).chain(std::iter::repeat(None));
    for ((name, _), state) in core.sources.iter().zip(states) {
        let stale = state.and_then(|state| state.stale.as_ref());
        let is_followed = state.is_some_and(|state| state.in_sync) && stale.is_none();
        out.add_sample(&SOURCE_FOLLOWED, &[name], f64::from(u8::from(is_followed)));
        let since = stale.map_or(0, |stale| stale.since);
        out.add_sample(&SOURCE_STALE_SINCE, &[name], since as f64);
    }
    out.add_sample(&SOURCE_FILES, &[], core.source_report.files as f64);
    out.add_sample(&SOURCE_OBJECTS, &[], core.source_report.objects as f64);
    let (errors, warnings) =
        palisade_effective::Diagnostic::count_by_severity(&core.source_report.problems);
    out.add_sample(&SOURCE_PROBLEMS, &["error"], errors as f64);
    out.add_sample(&SOURCE_PROBLEMS, &["warning"], warnings as f64);
    let valid = |retained: &&palisade_effective::RetainedObject| retained.since.is_some();
    let last_valid = core.source_report.retained.iter().filter(valid).count();
    let isolating = core.source_report.retained.len() - last_valid;
    out.add_sample(&SOURCE_KEPT, &["last-valid"], last_valid as f64);
    out.add_sample(&SOURCE_KEPT, &["isolating"], isolating as f64);
}

fn collect_budget(core: &CoreSnapshot<'_>, out: &mut Exposition) {
    let taken = core.policy.engine.counts().elements;
    out.add_sample(&POLICY_ELEMENTS, &[], taken as f64);
    let budget = palisade_enforcer::policy_subsystem::element_budget(&core.config.policy);
    for (scope, most) in [("policy-set", budget.set), ("host", budget.host)] {
        out.add_sample(&POLICY_ELEMENTS_MAX, &[scope], most as f64);
    }
    let over = budget_excesses(core);
    for enforced in BudgetFallback::ALL {
        let count = over.iter().filter(|over| over.enforced == *enforced);
        out.add_sample(
            &POLICIES_OVER_BUDGET,
            &[enforced.name()],
            count.count() as f64,
        );
    }
}

/// Packets that were dropped without a matching rule, by reason.
fn collect_drops(counters: &Counters, out: &mut Exposition) {
    let always = ["default-deny", "encapsulated"];
    let mut drops = BTreeMap::from(always.map(|reason| (reason, CounterValue::default())));
    for (reason, count) in &counters.by_drop_reason {
        add_count(drops.entry(reason.name()).or_default(), count);
    }
    for (cause, count) in &counters.by_rule {
        let reason = match &**cause {
            VerdictCause::TierDefault { .. } => "default-deny",
            VerdictCause::MissingProfile { .. } | VerdictCause::NoProfileMatch { .. } => "profile",
            VerdictCause::Encapsulated => "encapsulated",
            // Packets of a rule are shown with the rule: `palisade policy get`.
            VerdictCause::Rule { .. } | VerdictCause::ProfileRule { .. } => continue,
            // Allowed.
            VerdictCause::ForwardEnd { .. }
            | VerdictCause::HairpinEnd { .. }
            | VerdictCause::StageEnd { .. } => {
                continue;
            }
            // Packets judged where something in audit applies are metrics of their own.
            VerdictCause::EndpointInAudit { .. } | VerdictCause::Audit { .. } => continue,
        };
        add_count(drops.entry(reason).or_default(), count);
    }
    for (reason, count) in drops {
        out.add_sample(&DROPPED_PACKETS, &[reason], count.packets as f64);
        out.add_sample(&DROPPED_BYTES, &[reason], count.bytes as f64);
    }
}

fn add_count(to: &mut CounterValue, count: &CounterValue) {
    to.packets += count.packets;
    to.bytes += count.bytes;
}

/// The policy dialect, by API group.
fn dialect_name(group: &str) -> &'static str {
    match group {
        "networking.k8s.io" => "kubernetes",
        "policy.networking.k8s.io" => "cluster-network-policy",
        "crd.projectcalico.org" | "projectcalico.org" => "calico",
        "cilium.io" => "cilium",
        _ => "other",
    }
}
