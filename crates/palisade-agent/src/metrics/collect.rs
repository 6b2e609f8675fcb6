//! Figures made from the core's state.

use super::exposition::Exposition;
use super::table::*;
use super::{Histogram, process};
use crate::core::Core;
use crate::http::gate::Requests;
use palisade_api::{EndpointState, Enforced};
use palisade_dataplane::Count;
use palisade_tables::Credit;
use std::collections::BTreeMap;

/// Phases that are shown even if none of them ever ran.
const PHASES: [&str; 6] = ["split", "tighten", "revoke", "loosen", "merge", "delete"];

impl Core {
    /// `GET /metrics`, but for what the API counts itself.
    pub fn figures(&mut self) -> Exposition {
        let mut out = Exposition::default();
        let flag = |is: bool| f64::from(u8::from(is));
        out.set(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        out.set(&READY, &[], flag(self.unready().is_empty()));
        out.set(&DEGRADED_REASONS, &[], self.degraded() as f64);
        out.set(&PROCESS_START, &[], self.started.as_secs_f64());
        process::add(&mut out);
        self.endpoints_and_policies(&mut out);
        out.set(&IDENTITIES, &[], self.engine.counts().identities as f64);
        out.set(&REVISION_ACCEPTED, &[], self.engine.revision() as f64);
        out.set(&REVISION_REALISED, &[], self.realised as f64);
        self.source_figures(&mut out);
        self.budget_figures(&mut out);
        let tally = &self.tally;
        out.set(&SOURCE_BATCHES, &[], tally.batches as f64);
        out.histogram(&FLUSH_SECONDS, &[], &tally.flush);
        let none = Histogram::default();
        for phase in PHASES {
            let took = tally.phases.get(phase).unwrap_or(&none);
            out.histogram(&PHASE_SECONDS, &[phase], took);
        }
        out.set(&PHASE_WAIT_SECONDS, &[], tally.waited.as_secs_f64());
        out.set(&KERNEL_TRANSACTIONS, &[], tally.transactions as f64);
        out.set(&KERNEL_WRITES, &[], tally.writes as f64);
        out.set(&KERNEL_FAILURES, &[], tally.failures as f64);
        out.set(&KERNEL_RETRIES, &[], tally.retries as f64);
        out.set(&KERNEL_REPAIRS, &[], self.repaired as f64);
        out.set(&KERNEL_ERROR, &[], flag(self.failure.is_some()));
        out.set(&GENERATION, &[], f64::from(self.generation));
        self.drops(&mut out);
        out
    }

    fn endpoints_and_policies(&self, out: &mut Exposition) {
        let mut states = BTreeMap::from([("closed", 0_u64), ("ready", 0), ("lost", 0)]);
        for (_, workload) in self.registry.iter() {
            *states.entry(state_name(workload.state)).or_default() += 1;
        }
        for (state, count) in states {
            out.set(&ENDPOINTS, &[state], count as f64);
        }
        let mut policies = BTreeMap::from([
            (("kubernetes", "active"), 0_u64),
            (("kubernetes", "idle"), 0),
        ]);
        for policy in self.engine.ordered_policies() {
            let state = match self.engine.endpoints_of(&policy.id).is_empty() {
                true => "idle",
                false => "active",
            };
            let dialect = dialect(&policy.id.object.group);
            *policies.entry((dialect, state)).or_default() += 1;
        }
        for ((dialect, state), count) in policies {
            out.set(&POLICIES, &[dialect, state], count as f64);
        }
    }

    fn source_figures(&self, out: &mut Exposition) {
        let followed = self.in_sync && self.source_ended.is_none();
        out.set(&SOURCE_IN_SYNC, &[], f64::from(u8::from(followed)));
        out.set(&SOURCE_FILES, &[], self.report.files as f64);
        out.set(&SOURCE_OBJECTS, &[], self.report.objects as f64);
        let (errors, warnings) = palisade_source::Flaw::totals(&self.report.problems);
        out.set(&SOURCE_PROBLEMS, &["error"], errors as f64);
        out.set(&SOURCE_PROBLEMS, &["warning"], warnings as f64);
        let valid = |kept: &&palisade_source::Kept| kept.since.is_some();
        let last_valid = self.report.kept.iter().filter(valid).count();
        let isolating = self.report.kept.len() - last_valid;
        out.set(&SOURCE_KEPT, &["last-valid"], last_valid as f64);
        out.set(&SOURCE_KEPT, &["isolating"], isolating as f64);
    }

    fn budget_figures(&self, out: &mut Exposition) {
        let taken = self.engine.counts().elements;
        out.set(&POLICY_ELEMENTS, &[], taken as f64);
        let budget = self.config.budget;
        for (of, most) in [("policy-set", budget.set), ("host", budget.host)] {
            out.set(&POLICY_ELEMENTS_MAX, &[of], most as f64);
        }
        let over = self.over_budget();
        for (name, enforced) in [
            ("last-valid", Enforced::LastValid),
            ("isolating", Enforced::Isolating),
            ("closed", Enforced::Closed),
        ] {
            let many = over.iter().filter(|over| over.enforced == enforced).count();
            out.set(&POLICIES_OVER_BUDGET, &[name], many as f64);
        }
    }

    /// Packets that no rule dropped, by why they were.
    fn drops(&mut self, out: &mut Exposition) {
        let Some(counters) = self.recent_counts() else {
            return;
        };
        let always = ["default-deny", "encapsulated"];
        let mut drops = BTreeMap::from(always.map(|reason| (reason, Count::default())));
        for (reason, count) in &counters.reasons {
            add(drops.entry(reason).or_default(), count);
        }
        for (credit, count) in &counters.by_rule {
            let reason = match &**credit {
                Credit::TierDefault { .. } => "default-deny",
                Credit::MissingProfile { .. } | Credit::NoProfileMatch { .. } => "profile",
                Credit::Encapsulated => "encapsulated",
                // What it did stands with the rule: `palisade policy get`.
                Credit::Rule { .. } | Credit::ProfileRule { .. } => continue,
            };
            add(drops.entry(reason).or_default(), count);
        }
        for (reason, count) in drops {
            out.set(&DROPPED_PACKETS, &[reason], count.packets as f64);
            out.set(&DROPPED_BYTES, &[reason], count.bytes as f64);
        }
    }
}

impl Exposition {
    /// Adds what the API counted.
    pub fn requests(&mut self, requests: &Requests) {
        for ((method, route, code), count) in requests {
            let code = code.to_string();
            self.set(&API_REQUESTS, &[method, route, &code], *count as f64);
        }
    }
}

fn add(to: &mut Count, count: &Count) {
    to.packets += count.packets;
    to.bytes += count.bytes;
}

fn state_name(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Closed => "closed",
        EndpointState::Ready => "ready",
        EndpointState::Lost => "lost",
    }
}

/// Whose words a policy was written in, by its API group.
fn dialect(group: &str) -> &'static str {
    match group {
        "networking.k8s.io" => "kubernetes",
        "policy.networking.k8s.io" => "cluster-network-policy",
        "crd.projectcalico.org" | "projectcalico.org" => "calico",
        "cilium.io" => "cilium",
        _ => "other",
    }
}
