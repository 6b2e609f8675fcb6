//! The responses of the API, built from the core's state.

use crate::clock::rfc3339;
use crate::core::Core;
use crate::registry::Workload;
use crate::workload_store::pod_id;
use palisade_api::{
    AddressConflictReport, AppliedPolicyReport, BudgetExcess, CountedAction, DataplaneStatus,
    DropCounterReport, ElementBudgetReport, EndpointDetail, EndpointList, EndpointState,
    EndpointSummary, Health, IdentityList, IdentityReport, ObjectRef, PacketCount, PacketReason,
    PolicyDetail, PolicyList, PolicySummary, ProblemReport, ProblemSeverity, RetainedObjectReport,
    RuleCounterReport, SourceStatus, Status,
};
use palisade_dataplane::Counters;
use palisade_model::{Direction, EndpointId, NamedPort, Policy, Prefix};
use palisade_source::Diagnostic;
use palisade_tables::Credit;
use palisade_text::printable;
use std::collections::BTreeMap;
use std::time::Duration;

/// The reason why an agent that has just started is not ready.
pub(crate) const NOT_IN_SYNC_REASON: &str = "the policy source has not been read completely yet";

/// Converts a diagnostic of the source for the API.
pub fn problem_report(flaw: &Diagnostic) -> ProblemReport {
    let location = &flaw.problem.location;
    ProblemReport {
        file: printable(&location.file).into_owned(),
        line: location.line,
        column: location.column,
        severity: match flaw.is_error {
            true => ProblemSeverity::Error,
            false => ProblemSeverity::Warning,
        },
        object: flaw
            .problem
            .object
            .as_deref()
            .map(|object| printable(object).into_owned()),
        field: printable(&flaw.problem.field).into_owned(),
        reason: printable(&flaw.problem.reason).into_owned(),
        more: (flaw.omitted > 0).then_some(flaw.omitted),
    }
}

/// The maximum number of source errors in the reasons of `status`, one sentence each.
const MAX_SOURCE_REASONS: usize = 100;
/// The maximum number of retained objects in `status`; the others are counted.
const MAX_RETAINED_OBJECTS: usize = 1_000;

impl Core {
    /// `GET /v1/status`.
    pub fn status(&mut self) -> Status {
        let reasons = self.enforcer.recent_counters().into_iter();
        let reasons = reasons.flat_map(|counters| &counters.by_drop_reason);
        let drops = reasons
            .filter_map(|(name, count)| {
                let reason = PacketReason::ALL
                    .iter()
                    .find(|reason| reason.name() == *name)?;
                Some(DropCounterReport {
                    reason: *reason,
                    count: PacketCount {
                        packets: count.packets,
                        bytes: count.bytes,
                    },
                })
            })
            .collect();
        let conflicts = self.conflicts();
        let reasons = self.degraded_reasons(&conflicts);
        let counts = self.enforcer.engine.counts();
        let health = match (self.enforcer.in_sync, reasons.is_empty()) {
            (_, false) => Health::Degraded,
            (false, true) => Health::Starting,
            (true, true) => Health::Ready,
        };
        Status {
            api_version: palisade_api::api_version(),
            as_of: rfc3339(self.clock.wall()),
            health,
            reasons,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: rfc3339(self.started),
            revision: self.enforcer.engine.revision(),
            realised: self.enforcer.realised_revision,
            endpoints: self.registry.iter().count(),
            policies: counts.policies,
            identities: counts.identities,
            source: SourceStatus {
                kind: self.source.0.clone(),
                location: self.source.1.clone(),
                in_sync: self.enforcer.in_sync,
                files: self.source_report.files,
                objects: self.source_report.objects,
                problems: self
                    .source_report
                    .problems
                    .iter()
                    .map(problem_report)
                    .collect(),
            },
            dataplane: DataplaneStatus {
                name: self.enforcer.dataplane.name().to_owned(),
                generation: self.enforcer.generation,
                start: self.enforcer.initial_flush.clone(),
                last: self.enforcer.last_flush.clone(),
                repairs: self.enforcer.repairs.iter().cloned().collect(),
                repaired: self.enforcer.repair_count,
                drops,
                error: self.enforcer.kernel_failure.clone(),
            },
            bootstrap: self.startup_stages.clone(),
            kept: self
                .source_report
                .retained
                .iter()
                .take(MAX_RETAINED_OBJECTS)
                .map(retained_object_report)
                .collect(),
            more_kept: (self
                .source_report
                .retained
                .len()
                .checked_sub(MAX_RETAINED_OBJECTS))
            .filter(|more| *more > 0),
            conflicts,
            budget: ElementBudgetReport {
                elements: counts.elements,
                host: self.config.budget.host,
                policy_set: self.config.budget.set,
            },
            over_budget: self.budget_excesses(),
        }
    }

    /// The number of problems that need an administrator.
    pub(crate) fn degraded_count(&self) -> usize {
        let of_source = Diagnostic::count_by_severity(&self.source_report.problems).0;
        let listed_reasons = self.source_reasons().len();
        self.degraded_reasons(&self.conflicts()).len() - listed_reasons + of_source
    }

    /// The errors of the source, one sentence each; those above the maximum are counted in one sentence.
    fn source_reasons(&self) -> Vec<String> {
        let errors = self
            .source_report
            .problems
            .iter()
            .filter(|flaw| flaw.is_error);
        let listed_errors = errors.take(MAX_SOURCE_REASONS);
        let counted: usize = listed_errors.clone().map(Diagnostic::count).sum();
        let mut reasons: Vec<String> = listed_errors.map(|flaw| flaw.problem.to_string()).collect();
        let more = Diagnostic::count_by_severity(&self.source_report.problems).0 - counted;
        if more > 0 {
            reasons.push(format!(
                "{more} more errors of the source; see its problems"
            ));
        }
        reasons
    }

    /// Why the kernel does not hold the policy of the source; empty if it does.
    pub fn unready_reasons(&self) -> Vec<String> {
        let unsynced = !self.enforcer.in_sync;
        let unsynced = unsynced.then(|| NOT_IN_SYNC_REASON.to_owned());
        let failed = self.enforcer.kernel_failure.as_ref();
        let failed = failed.map(|why| format!("the kernel does not hold the policy: {why}"));
        unsynced.into_iter().chain(failed).collect()
    }

    /// The problems that need an administrator, one sentence each.
    fn degraded_reasons(&self, conflicts: &[AddressConflictReport]) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some(failure) = &self.enforcer.kernel_failure {
            reasons.push(format!("the kernel does not hold the policy: {failure}"));
        }
        reasons.extend(self.cni_conf_failure.clone());
        if let Some(failure) = &self.enforcer.masquerade_failure {
            reasons.push(format!("masquerading could not be set up: {failure}"));
        }
        let sources = self.source_report.sources.iter();
        reasons.extend(sources.filter_map(|source| {
            let reason = &source.stale.as_ref()?.reason;
            Some(format!(
                "the policy source stopped: {reason}; changes are no longer read"
            ))
        }));
        if let Some(trouble) = &self.config.file_status().error {
            reasons.push(format!("{trouble}; current policy stays in force"));
        }
        reasons.extend(self.source_reasons());
        reasons.extend(
            self.closed_policy_sets()
                .map(|over| crate::budget::closed_set_reason(&over)),
        );
        for (id, workload) in self
            .registry
            .iter()
            .filter(|(_, w)| w.state == EndpointState::Lost)
        {
            let reason = workload.reason.as_deref().unwrap_or("lost");
            reasons.push(format!(
                "{id}: {reason}; remove it, or restore its interface"
            ));
        }
        let missing = self.enforcer.engine.missing_references();
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
        for conflict in conflicts {
            let others = conflict.others.join(", ");
            reasons.push(format!(
                "{} is claimed by {} and {others}",
                conflict.address, conflict.owner
            ));
        }
        reasons
    }

    fn conflicts(&self) -> Vec<AddressConflictReport> {
        let conflicts = self.enforcer.engine.address_conflicts().into_iter();
        conflicts
            .map(|conflict| AddressConflictReport {
                address: conflict.address.to_string(),
                owner: conflict.owner.to_string(),
                others: conflict.others.iter().map(ToString::to_string).collect(),
            })
            .collect()
    }

    /// `GET /v1/endpoints`.
    pub fn endpoint_list(&self) -> EndpointList {
        let endpoints = self
            .registry
            .iter()
            .map(|(id, w)| self.endpoint_summary(id, w))
            .collect();
        EndpointList {
            api_version: palisade_api::api_version(),
            endpoints,
        }
    }

    /// `GET /v1/endpoints/{namespace}/{name}`.
    pub fn endpoint_detail(&self, namespace: &str, name: &str) -> Option<EndpointDetail> {
        let id = pod_id(namespace, name);
        let workload = self.registry.get(&id)?;
        let endpoint = self.enforcer.engine.endpoint(&id)?;
        Some(EndpointDetail {
            api_version: palisade_api::api_version(),
            summary: self.endpoint_summary(&id, workload),
            netns: workload.record.netns.clone(),
            ports: endpoint.ports.iter().map(port_text).collect(),
            ingress: self.applied_policies(&id, Direction::Ingress),
            egress: self.applied_policies(&id, Direction::Egress),
        })
    }

    fn endpoint_summary(&self, id: &EndpointId, workload: &Workload) -> EndpointSummary {
        let record = &workload.record;
        let endpoint = self.enforcer.engine.endpoint(id);
        let policies = self.enforcer.engine.policies_of(id);
        let isolated = |direction| {
            let policies = policies.iter().map(|applied| &applied.policy);
            policies
                .filter_map(|policy| self.enforcer.engine.policy(policy))
                .any(|policy| {
                    policy
                        .rules(direction)
                        .is_some_and(|rules| rules.default_deny)
                })
        };
        EndpointSummary {
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            state: workload.state,
            reason: workload.reason.clone(),
            interface: record.interface.to_string(),
            addresses: record.addresses.iter().map(ToString::to_string).collect(),
            labels: endpoint
                .iter()
                .flat_map(|endpoint| &endpoint.labels)
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            ingress_isolated: isolated(Direction::Ingress),
            egress_isolated: isolated(Direction::Egress),
            revision: if workload.state == EndpointState::Ready {
                self.enforcer.realised_revision
            } else {
                0
            },
        }
    }

    /// `GET /v1/identities`.
    pub fn identity_list(&self) -> IdentityList {
        let identities = self
            .enforcer
            .engine
            .identities()
            .into_iter()
            .map(|view| IdentityReport {
                id: view.id.0,
                prefixes: view
                    .members
                    .iter()
                    .map(|prefix| prefix_text(*prefix))
                    .collect(),
                matches: {
                    let selectors = view.selectors.iter().map(ToString::to_string);
                    let net = view.net.map(|net| format!("in {net}"));
                    let ports = view
                        .ports
                        .iter()
                        .map(|(name, protocol, port)| format!("port {name}={port}/{protocol}"));
                    selectors.chain(net).chain(ports).collect()
                },
            });
        IdentityList {
            api_version: palisade_api::api_version(),
            identities: identities.collect(),
        }
    }

    /// `GET /v1/policies`.
    pub fn policy_list(&self) -> PolicyList {
        let ordered = self.enforcer.engine.ordered_policies().into_iter();
        let over = self.budget_excesses();
        let summary = |policy| self.policy_summary(&policy, &over);
        let policies = ordered.map(summary).collect();
        PolicyList {
            api_version: palisade_api::api_version(),
            policies,
        }
    }

    /// `GET /v1/policies/{namespace}/{name}`.
    pub fn policy_detail(&mut self, namespace: &str, name: &str) -> Option<PolicyDetail> {
        let counters = self
            .enforcer
            .dataplane
            .counters(&mut self.enforcer.ledger)
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "reading the kernel's counters failed");
                Counters::default()
            });
        let named = |policy: &Policy| {
            let id = &policy.id.object;
            &*id.name == name && id.namespace.as_deref().unwrap_or("default") == namespace
        };
        let policy = self
            .enforcer
            .engine
            .ordered_policies()
            .into_iter()
            .find(named)?;
        let selects = self
            .enforcer
            .engine
            .selected_endpoints(&policy.id)
            .into_iter();
        Some(PolicyDetail {
            api_version: palisade_api::api_version(),
            summary: self.policy_summary(&policy, &self.budget_excesses()),
            selects: selects.map(short_name).collect(),
            rule_counters: rule_counters(&policy, &counters),
        })
    }

    /// The policies that apply to an endpoint in a direction, in order of evaluation.
    fn applied_policies(&self, id: &EndpointId, direction: Direction) -> Vec<AppliedPolicyReport> {
        let policies = self.enforcer.engine.policies_of(id).into_iter();
        policies
            .filter(|applied| match direction {
                Direction::Ingress => applied.ingress,
                Direction::Egress => applied.egress,
            })
            .map(|applied| AppliedPolicyReport {
                tier: applied.tier.to_string(),
                policy: ObjectRef::new(&applied.policy.object, None),
            })
            .collect()
    }

    fn policy_summary(&self, policy: &Policy, over: &[BudgetExcess]) -> PolicySummary {
        let rules = |direction| policy.rules(direction).map_or(0, |rules| rules.rules.len());
        PolicySummary {
            tier: policy.tier.to_string(),
            policy: ObjectRef::new(&policy.id.object, policy.line.as_ref()),
            subject: policy.subject.to_string(),
            endpoints: self.enforcer.engine.selected_endpoints(&policy.id).len(),
            rules: rules(Direction::Ingress) + rules(Direction::Egress),
            over_budget: self.budget_excess_of(over, &policy.id),
        }
    }
}

fn retained_object_report(kept: &palisade_source::RetainedObject) -> RetainedObjectReport {
    RetainedObjectReport {
        object: printable(&kept.object).into_owned(),
        since: kept
            .since
            .map(|seconds| rfc3339(Duration::from_secs(seconds))),
        hash: kept.hash.clone(),
    }
}

fn port_text(port: &NamedPort) -> String {
    format!("{}={}/{}", port.name, port.port, port.protocol)
}

fn join_names(things: &[impl ToString]) -> String {
    let names: Vec<String> = things.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn prefix_text(prefix: Prefix) -> String {
    if prefix.is_host() {
        prefix.address().to_string()
    } else {
        prefix.to_string()
    }
}

fn short_name(id: &EndpointId) -> String {
    format!(
        "{}/{}",
        id.namespace.as_deref().unwrap_or_default(),
        id.name
    )
}

/// The counters of every rule of a policy, then the policy's share of default denials, then the
/// counters of deleted rules: a counter is never shown with a different rule.
fn rule_counters(policy: &Policy, counters: &Counters) -> Vec<RuleCounterReport> {
    let mut rules: BTreeMap<(Direction, usize), PacketCount> = BTreeMap::new();
    let mut denied: BTreeMap<Direction, PacketCount> = BTreeMap::new();
    let mut retired: BTreeMap<Direction, PacketCount> = BTreeMap::new();
    for (credit, count) in &counters.by_rule {
        let to = match &**credit {
            Credit::Rule {
                policy: of,
                direction,
                origin,
            } if *of == policy.id => {
                let mut current_rules = policy
                    .rules(*direction)
                    .into_iter()
                    .flat_map(|of| &of.rules);
                match current_rules.position(|rule| rule.origin.is_same_rule(origin)) {
                    Some(at) => rules.entry((*direction, at)).or_default(),
                    None => retired.entry(*direction).or_default(),
                }
            }
            Credit::TierDefault {
                direction,
                policies,
                ..
            } if policies.contains(&policy.id) => denied.entry(*direction).or_default(),
            _ => continue,
        };
        to.packets += count.packets;
        to.bytes += count.bytes;
    }
    let mut out = Vec::new();
    for direction in Direction::BOTH {
        let of = policy.rules(direction);
        for (at, rule) in of.into_iter().flat_map(|of| &of.rules).enumerate() {
            out.push(RuleCounterReport {
                direction,
                index: Some(rule.origin.index),
                action: rule.action.into(),
                line: rule.origin.line.as_ref().map(ToString::to_string),
                count: rules.remove(&(direction, at)).unwrap_or_default(),
            });
        }
        let mut other = |action, count| {
            out.push(RuleCounterReport {
                direction,
                index: None,
                action,
                line: policy.line.as_ref().map(ToString::to_string),
                count,
            });
        };
        let denied = denied.remove(&direction);
        if denied.is_some() || of.is_some_and(|of| of.default_deny) {
            other(CountedAction::DefaultDeny, denied.unwrap_or_default());
        }
        if let Some(count) = retired.remove(&direction) {
            other(CountedAction::Retired, count);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{
        Action, DirectionRules, Order, Peer, PolicyId, Precedence, Rule, RuleOrigin, Selector,
        TrafficMatch,
    };
    use std::sync::Arc;

    fn origin(index: u32, fingerprint: u64) -> RuleOrigin {
        RuleOrigin {
            index,
            name: None,
            fingerprint,
            line: None,
        }
    }

    /// A policy with one rule for each of these numbers.
    fn policy(says: &[u64]) -> Policy {
        let rule = |(index, fingerprint): (u32, &u64)| Rule {
            origin: origin(index, *fingerprint),
            action: Action::Allow,
            peers: vec![Peer::any()],
            own: None,
            traffic: vec![TrafficMatch::any()],
        };
        Policy {
            id: PolicyId {
                object: pod_id("shop", "db"),
                part: 0,
            },
            tier: "default".into(),
            precedence: Precedence {
                order: Order::At(1.0),
                rank: 1,
            },
            subject: Selector::all(),
            ingress: Some(DirectionRules {
                default_deny: true,
                rules: (0..).zip(says).map(rule).collect(),
            }),
            egress: None,
            line: None,
        }
    }

    #[test]
    fn counts_follow_what_a_rule_says_and_retire_with_it() {
        let counted = |index, fingerprint, packets| {
            let credit = Credit::Rule {
                policy: policy(&[]).id,
                direction: Direction::Ingress,
                origin: origin(index, fingerprint),
            };
            let count = palisade_dataplane::CounterValue { packets, bytes: 0 };
            (Arc::new(credit), count)
        };
        let denied = Credit::TierDefault {
            tier: "default".into(),
            direction: Direction::Ingress,
            policies: vec![policy(&[]).id],
        };
        // The rule 7 was first and is now second; the rule 8 was deleted.
        let counters = Counters {
            by_rule: [
                counted(0, 7, 10),
                counted(1, 7, 1),
                counted(1, 8, 5),
                counted(0, 9, 2),
                (
                    Arc::new(denied),
                    palisade_dataplane::CounterValue {
                        packets: 3,
                        bytes: 0,
                    },
                ),
            ]
            .into(),
            ..Counters::default()
        };
        let shown = |says: &[u64]| -> Vec<(Option<u32>, CountedAction, u64)> {
            let report = rule_counters(&policy(says), &counters);
            let row = |row: RuleCounterReport| (row.index, row.action, row.count.packets);
            report.into_iter().map(row).collect()
        };
        let row = |index, action, packets| (index, action, packets);
        assert_eq!(
            shown(&[9, 7]),
            [
                row(Some(0), CountedAction::Allow, 2),
                row(Some(1), CountedAction::Allow, 11),
                row(None, CountedAction::DefaultDeny, 3),
                row(None, CountedAction::Retired, 5),
            ]
        );
        assert_eq!(
            shown(&[]),
            [
                row(None, CountedAction::DefaultDeny, 3),
                row(None, CountedAction::Retired, 18)
            ]
        );
    }
}
