//! Builds a policy set from the policies and profiles of its key: its sources in order, and a decision block for
//! each tier and profile, with the fallback in each view. Nothing here is incremental.

use super::{DecisionBlock, PolicySetInputs, PolicySetKey, PolicySetRules, SourceSegment};
use crate::active_policies::is_builtin;
use crate::active_rules::ResolvedRules;
use crate::faults::EngineFault;
use crate::judged_traffic::JudgedTraffic;
use crate::peer_rule_index::PeerRuleIndex;
use crate::program_pool::CausePool;
use crate::store::PolicyNumber;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{PolicyMode, PolicyStage, PolicyView, RuleOrigin, Str, TierDefault};
use palisade_tables::{RuleId, Verdict, VerdictCause};

/// Builds a set.
pub(super) struct PolicySetBuilder<'a> {
    inputs: PolicySetInputs<'a>,
    causes: &'a mut CausePool,
    next_local_test: u32,
    set: PolicySetRules,
}

impl<'a> PolicySetBuilder<'a> {
    pub(super) fn new(
        inputs: PolicySetInputs<'a>,
        causes: &'a mut CausePool,
        key: &Arc<PolicySetKey>,
    ) -> Self {
        PolicySetBuilder {
            inputs,
            causes,
            next_local_test: 0,
            set: PolicySetRules {
                key: key.clone(),
                points: 0,
                segments: Vec::with_capacity(key.policies.len()),
                blocks: Vec::new(),
                groups: Vec::new(),
                index: PeerRuleIndex::default(),
                omits_audit: None,
            },
        }
    }

    pub(super) fn build(mut self, points: usize) -> PolicySetRules {
        let key = self.set.key.clone();
        let all = self.inputs.policies;
        let tier = |policy: &PolicyNumber| all.body(*policy).map(|body| &body.tier);
        let is_early = key.traffic.host_stage().is_some_and(PolicyStage::is_early);
        if key.audit {
            let cause = VerdictCause::EndpointInAudit {
                direction: key.direction,
            };
            let verdict = if is_early {
                Verdict::Continue
            } else {
                Verdict::Allow
            };
            let fallback = self.acquire_fallback(cause, verdict);
            self.add_block([Some(fallback), None], None);
        }
        let tiers = key.policies.chunk_by(|a, b| tier(a) == tier(b));
        for policies in tiers {
            self.add_tier(policies);
        }
        for (index, name) in key.profiles.iter().enumerate() {
            self.add_profile(index, name);
        }
        let direction = key.direction;
        match key.traffic {
            JudgedTraffic::Hairpin if !EngineFault::HairpinEndDenies.is_injected() => {
                self.add_fallback(VerdictCause::HairpinEnd { direction }, Verdict::Allow);
            }
            JudgedTraffic::Host(PolicyStage::Forward)
                if !EngineFault::ForwardEndDenies.is_injected() =>
            {
                self.add_fallback(VerdictCause::ForwardEnd { direction }, Verdict::Allow);
            }
            _ if is_early && !EngineFault::EarlyEndDenies.is_injected() => {
                self.add_fallback(VerdictCause::StageEnd { direction }, Verdict::Continue);
            }
            _ => self.add_fallback(VerdictCause::NoProfileMatch { direction }, Verdict::Deny),
        }
        self.set.points = points;
        self.set
    }

    fn add_tier(&mut self, policies: &[PolicyNumber]) {
        let direction = self.set.key.direction;
        let mut isolating = Vec::new();
        for policy in policies {
            let bodies = self.inputs.active_rules.policy(*policy);
            let side = bodies.and_then(|bodies| bodies.direction(direction));
            let body = self.inputs.policies.body(*policy);
            let observes_dns = body.is_some_and(|body| body.observes_dns);
            let mode = match body.map(|body| body.mode).unwrap_or_default() {
                PolicyMode::Audit if EngineFault::AuditEnforced.is_injected() => {
                    PolicyMode::Enforce
                }
                mode => mode,
            };
            if side.is_some_and(|side| side.default_deny) {
                isolating.push((*policy, mode));
            }
            self.add_source(bodies, mode);
            if let Some(segment) = self.set.segments.last_mut() {
                segment.observes_dns = observes_dns && side.is_some();
            }
        }
        let first = policies.first();
        let all = self.inputs.policies;
        let Some(body) = first.and_then(|policy| all.body(*policy)) else {
            return;
        };
        let default = match self.inputs.state.tier(&body.tier).map(|tier| tier.default) {
            Some(TierDefault::Pass) if !EngineFault::TierDefaultPassLost.is_injected() => {
                TierDefault::Pass
            }
            _ => TierDefault::Deny,
        };
        let fallbacks = PolicyView::BOTH.map(|view| {
            let enforced = |(_, mode): &&(PolicyNumber, PolicyMode)| {
                view.includes(*mode) || EngineFault::AuditDefaultDenyEnforced.is_injected()
            };
            let isolating: Vec<PolicyNumber> = isolating
                .iter()
                .filter(enforced)
                .map(|(policy, _)| *policy)
                .collect();
            let denies = default == TierDefault::Deny && !isolating.is_empty();
            if !denies || EngineFault::DefaultDenyIgnored.is_injected() {
                return None;
            }
            let ids = isolating.into_iter();
            let cause = VerdictCause::TierDefault {
                tier: body.tier.clone(),
                direction,
                policies: ids.filter_map(|policy| all.id(policy)).collect(),
            };
            Some(self.acquire_fallback(cause, Verdict::Deny))
        });
        self.add_block(fallbacks, None);
    }

    fn add_profile(&mut self, index: usize, name: &Str) {
        let direction = self.set.key.direction;
        if is_builtin(name) || EngineFault::ProfileAllowAlways.is_injected() {
            let cause = VerdictCause::ProfileRule {
                profile: name.clone(),
                direction,
                origin: RuleOrigin {
                    index: 0,
                    name: None,
                    fingerprint: 0,
                    line: None,
                },
            };
            return self.add_fallback(cause, Verdict::Allow);
        }
        if let Some(bodies) = self.inputs.active_rules.profile(name) {
            self.add_source(Some(bodies), PolicyMode::Enforce);
            return self.add_block([None, None], Some(index));
        }
        let cause = VerdictCause::MissingProfile {
            profile: name.clone(),
            direction,
        };
        let verdict = if EngineFault::MissingProfileAllows.is_injected() {
            Verdict::Allow
        } else {
            Verdict::Deny
        };
        self.add_fallback(cause, verdict);
    }

    /// Adds a source with its rules.
    fn add_source(&mut self, bodies: Option<&Arc<ResolvedRules>>, mode: PolicyMode) {
        let at = u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX);
        let kind = bodies.and_then(|bodies| self.set.intern_rules(bodies));
        self.set.segments.push(SourceSegment {
            group: kind,
            mode,
            observes_dns: false,
            first_local_test: self.next_local_test,
        });
        let Some(number) = kind else { return };
        if let Some(Some(kind)) = self.set.groups.get_mut(number.0 as usize) {
            kind.positions.push(at);
        }
        if let Some((_, side)) = self.set.group(number) {
            self.next_local_test += u32::try_from(side.local_end.tests.len()).unwrap_or(0);
        }
    }

    /// Adds a block that ends every evaluation.
    fn add_fallback(&mut self, cause: VerdictCause, verdict: Verdict) {
        let fallbacks =
            PolicyView::BOTH.map(|_| Some(self.acquire_fallback(cause.clone(), verdict)));
        self.add_block(fallbacks, None);
    }

    /// A fallback with this cause, which the set uses once more.
    fn acquire_fallback(&mut self, cause: VerdictCause, verdict: Verdict) -> (RuleId, Verdict) {
        let id = self.causes.intern(cause);
        self.causes.acquire_for_set(id);
        (id, verdict)
    }

    /// Adds a block with its fallback in each view.
    fn add_block(&mut self, fallbacks: [Option<(RuleId, Verdict)>; 2], profile: Option<usize>) {
        let [fallback, audit_fallback] = fallbacks;
        self.set.blocks.push(DecisionBlock {
            end: u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX),
            fallback,
            audit_fallback,
            profile,
        });
    }
}
