//! Collects the metrics from the core's state.

use super::exposition::Exposition;
use super::table::*;
use super::{Histogram, process};
use crate::core::Core;
use crate::http::admission::RequestCounts;
use palisade_api::{BudgetFallback, EndpointState};
use palisade_dataplane::CounterValue;
use palisade_tables::Credit;
use std::collections::BTreeMap;

/// Phases that are exported even before they run.
const PHASES: [&str; 6] = ["split", "tighten", "revoke", "loosen", "merge", "delete"];

impl Core {
    /// `GET /metrics`, without the API's own metrics.
    pub fn collect_metrics(&mut self) -> Exposition {
        let mut out = Exposition::default();
        let flag = |is: bool| f64::from(u8::from(is));
        out.add_sample(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        out.add_sample(&READY, &[], flag(self.unready_reasons().is_empty()));
        out.add_sample(&DEGRADED_REASONS, &[], self.degraded_count() as f64);
        out.add_sample(&PROCESS_START, &[], self.started.as_secs_f64());
        process::collect(&mut out);
        self.collect_endpoints_and_policies(&mut out);
        out.add_sample(
            &IDENTITIES,
            &[],
            self.enforcer.engine.counts().identities as f64,
        );
        out.add_sample(
            &REVISION_ACCEPTED,
            &[],
            self.enforcer.engine.revision() as f64,
        );
        out.add_sample(
            &REVISION_REALISED,
            &[],
            self.enforcer.realised_revision as f64,
        );
        self.collect_source(&mut out);
        self.collect_budget(&mut out);
        let tally = &self.enforcer.metrics;
        out.add_sample(&SOURCE_BATCHES, &[], tally.batches as f64);
        out.add_histogram(&FLUSH_SECONDS, &[], &tally.flush);
        out.add_histogram(&ATTACH_SECONDS, &[], &tally.attach);
        let none = Histogram::default();
        for phase in PHASES {
            let took = tally.phases.get(phase).unwrap_or(&none);
            out.add_histogram(&PHASE_SECONDS, &[phase], took);
        }
        out.add_sample(&PHASE_WAIT_SECONDS, &[], tally.grace_wait.as_secs_f64());
        out.add_sample(&KERNEL_TRANSACTIONS, &[], tally.transactions as f64);
        out.add_sample(&KERNEL_WRITES, &[], tally.writes as f64);
        out.add_sample(&KERNEL_FAILURES, &[], tally.failures as f64);
        out.add_sample(&KERNEL_RETRIES, &[], tally.retries as f64);
        out.add_sample(&KERNEL_REPAIRS, &[], self.enforcer.repair_count as f64);
        out.add_sample(
            &KERNEL_ERROR,
            &[],
            flag(self.enforcer.kernel_failure.is_some()),
        );
        out.add_sample(&GENERATION, &[], f64::from(self.enforcer.generation));
        self.collect_drops(&mut out);
        out
    }

    fn collect_endpoints_and_policies(&self, out: &mut Exposition) {
        for state in EndpointState::ALL {
            let workloads = self.registry.iter();
            let count = workloads.filter(|(_, workload)| workload.state == *state);
            out.add_sample(&ENDPOINTS, &[state.name()], count.count() as f64);
        }
        let mut policies = BTreeMap::from([
            (("kubernetes", "active"), 0_u64),
            (("kubernetes", "idle"), 0),
        ]);
        for policy in self.enforcer.engine.ordered_policies() {
            let state = match self
                .enforcer
                .engine
                .selected_endpoints(&policy.id)
                .is_empty()
            {
                true => "idle",
                false => "active",
            };
            let dialect = dialect_name(&policy.id.object.group);
            *policies.entry((dialect, state)).or_default() += 1;
        }
        for ((dialect, state), count) in policies {
            out.add_sample(&POLICIES, &[dialect, state], count as f64);
        }
    }

    fn collect_source(&self, out: &mut Exposition) {
        let sources = &self.source_report.sources;
        let is_followed = sources.iter().all(|source| source.stale.is_none());
        let in_sync = self.enforcer.in_sync && is_followed;
        out.add_sample(&SOURCE_IN_SYNC, &[], f64::from(u8::from(in_sync)));
        out.add_sample(&SOURCE_FILES, &[], self.source_report.files as f64);
        out.add_sample(&SOURCE_OBJECTS, &[], self.source_report.objects as f64);
        let (errors, warnings) =
            palisade_source::Diagnostic::count_by_severity(&self.source_report.problems);
        out.add_sample(&SOURCE_PROBLEMS, &["error"], errors as f64);
        out.add_sample(&SOURCE_PROBLEMS, &["warning"], warnings as f64);
        let valid = |kept: &&palisade_source::RetainedObject| kept.since.is_some();
        let last_valid = self.source_report.retained.iter().filter(valid).count();
        let isolating = self.source_report.retained.len() - last_valid;
        out.add_sample(&SOURCE_KEPT, &["last-valid"], last_valid as f64);
        out.add_sample(&SOURCE_KEPT, &["isolating"], isolating as f64);
    }

    fn collect_budget(&self, out: &mut Exposition) {
        let taken = self.enforcer.engine.counts().elements;
        out.add_sample(&POLICY_ELEMENTS, &[], taken as f64);
        let budget = self.config.budget;
        for (of, most) in [("policy-set", budget.set), ("host", budget.host)] {
            out.add_sample(&POLICY_ELEMENTS_MAX, &[of], most as f64);
        }
        let over = self.budget_excesses();
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
    fn collect_drops(&mut self, out: &mut Exposition) {
        let Some(counters) = self.enforcer.recent_counters() else {
            return;
        };
        let always = ["default-deny", "encapsulated"];
        let mut drops = BTreeMap::from(always.map(|reason| (reason, CounterValue::default())));
        for (reason, count) in &counters.by_drop_reason {
            add_count(drops.entry(reason).or_default(), count);
        }
        for (credit, count) in &counters.by_rule {
            let reason = match &**credit {
                Credit::TierDefault { .. } => "default-deny",
                Credit::MissingProfile { .. } | Credit::NoProfileMatch { .. } => "profile",
                Credit::Encapsulated => "encapsulated",
                // Packets of a rule are shown with the rule: `palisade policy get`.
                Credit::Rule { .. } | Credit::ProfileRule { .. } => continue,
            };
            add_count(drops.entry(reason).or_default(), count);
        }
        for (reason, count) in drops {
            out.add_sample(&DROPPED_PACKETS, &[reason], count.packets as f64);
            out.add_sample(&DROPPED_BYTES, &[reason], count.bytes as f64);
        }
    }
}

impl Exposition {
    /// Adds the request counts of the API.
    pub fn add_requests(&mut self, requests: &RequestCounts) {
        for ((method, route, code), count) in requests {
            let code = code.to_string();
            self.add_sample(&API_REQUESTS, &[method, route, &code], *count as f64);
        }
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
