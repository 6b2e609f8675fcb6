//! Converts an answer of the oracle to an explanation.

use super::host_paths::{InterfaceJudgement, host_at};
use super::nearest::{find_nearest_rule, last_stage};
use super::reasons::ReasonContext;
use super::resolve::QueryFlow;
use palisade_api::{
    DecisionReport, DirectionReport, FlowEndReport, FlowReport, HostReport, NearestMiss, ObjectRef,
    OriginalDestination, RuleRef, StepReport, VerdictWord,
};
use palisade_model::{Action, Direction, L4, PolicyId, RuleOrigin, SourceLine, State, TierDefault};
use palisade_oracle::{
    Answer, DecisionReason, DirectionJudgement, FlowEnd, FlowVerdict, HolderName,
    PolicyApplicability, PreparedState, Question, RuleOutcome, RuleOwner, TierOutcome, TraceStep,
};

/// The report of one flow, the oracle's answer, and what hosts decide at their interfaces.
pub(super) fn flow_report(
    prepared: &PreparedState<'_>,
    flow: &QueryFlow,
    answer: &Answer,
    host: &[InterfaceJudgement],
) -> FlowReport {
    let state = prepared.state();
    let question = &flow.question;
    let (port, source_port, icmp_type) = match question.l4 {
        L4::Ports {
            source,
            destination,
        } => (Some(destination), Some(source), None),
        L4::Icmp { kind, code } => (None, None, Some([kind, code])),
        L4::None => (None, None, None),
    };
    let direction_report = |judgement: &DirectionJudgement, direction: Direction| {
        let (local, peer) = match direction {
            Direction::Egress => ("the source", "the destination"),
            Direction::Ingress => ("the destination", "the source"),
        };
        let context = ReasonContext {
            state,
            question,
            peer,
            local,
        };
        ReportBuilder { context, direction }.direction_report(judgement)
    };
    let at_hosts = host.iter().map(|at| &at.judgement.judgement);
    let judgements: Vec<&DirectionJudgement> = [&answer.egress, &answer.ingress]
        .into_iter()
        .chain(at_hosts)
        .collect();
    let is_allowed = judgements.iter().all(|side| side.verdict.is_allow());
    FlowReport {
        verdict: verdict_word(FlowVerdict::from_allowed(is_allowed)),
        audit_verdict: audit_verdict(&judgements),
        rejected_with: None,
        from: flow_end_report(prepared, &question.source, None),
        to: flow_end_report(prepared, &question.destination, flow.service.clone()),
        family: question.family.into(),
        protocol: question.protocol.into(),
        port,
        source_port,
        icmp_type,
        original_destination: question.path.pre_dnat.map(|sent| OriginalDestination {
            address: sent.destination,
            port: port.map(|_| sent.port),
        }),
        egress: direction_report(&answer.egress, Direction::Egress),
        hosts: host
            .iter()
            .map(
                |InterfaceJudgement {
                     node,
                     judgement: at,
                 }| HostReport {
                    node: node.to_string(),
                    interface: at.interface.to_string(),
                    stage: at.stage.into(),
                    direction: at.direction,
                    decision: direction_report(&at.judgement, at.direction),
                },
            )
            .collect(),
        ingress: direction_report(&answer.ingress, Direction::Ingress),
    }
}

/// The verdict if nothing were in audit; `None` where nothing in audit applies anywhere.
fn audit_verdict(sides: &[&DirectionJudgement]) -> Option<VerdictWord> {
    sides.iter().find(|side| side.audit.is_some())?;
    let allows = |side: &&DirectionJudgement| {
        let audited = side
            .audit
            .as_ref()
            .map_or(side.verdict, |audit| audit.verdict);
        audited.is_allow()
    };
    let verdict = FlowVerdict::from_allowed(sides.iter().all(allows));
    Some(verdict_word(verdict))
}

fn verdict_word(verdict: FlowVerdict) -> VerdictWord {
    if verdict.is_allow() {
        VerdictWord::Allow
    } else {
        VerdictWord::Deny
    }
}

fn flow_end_report(
    prepared: &PreparedState<'_>,
    end: &FlowEnd,
    service: Option<String>,
) -> FlowEndReport {
    let endpoint = prepared
        .endpoint_at(end)
        .filter(|endpoint| !endpoint.is_host())
        .map(|e| ObjectRef::new(&e.id, None));
    let address = match end {
        FlowEnd::Address(address) => Some(*address),
        FlowEnd::Endpoint(_) => None,
    };
    let node = host_at(prepared, end).map(|node| node.to_string());
    FlowEndReport {
        endpoint,
        node,
        address,
        service,
    }
}

/// The report of what decided a direction of a question.
#[must_use]
pub fn decision_report(
    state: &State,
    question: &Question,
    direction: Direction,
    reason: &DecisionReason,
) -> DecisionReport {
    let context = ReasonContext {
        state,
        question,
        peer: "",
        local: "",
    };
    ReportBuilder { context, direction }.decision_report(reason)
}

/// Builds the report of one direction.
struct ReportBuilder<'a> {
    context: ReasonContext<'a>,
    direction: Direction,
}

impl ReportBuilder<'_> {
    fn direction_report(&self, judgement: &DirectionJudgement) -> DirectionReport {
        let stage = last_stage(&judgement.steps);
        let near = match judgement.decided_by {
            DecisionReason::TierDefault { .. } | DecisionReason::NoProfileMatch => {
                find_nearest_rule(stage, self.context)
            }
            _ => None,
        };
        let nearest_miss = near.and_then(|(step, unless)| match step {
            TraceStep::Rule {
                owner: source,
                origin,
                action,
                ..
            } => Some(NearestMiss {
                rule: self.rule(source, origin, *action),
                unless,
            }),
            _ => None,
        });
        DirectionReport {
            subject: judgement
                .subject
                .as_ref()
                .map(|subject| ObjectRef::new(subject, None)),
            verdict: verdict_word(judgement.verdict),
            decided_by: self.decision_report(&judgement.decided_by),
            dns_names: judgement
                .redirect
                .as_ref()
                .map(|names| names.iter().map(ToString::to_string).collect()),
            steps: judgement
                .steps
                .iter()
                .map(|step| self.step_report(step, judgement))
                .collect(),
            not_applying: 0,
            nearest_miss,
            audit: judgement
                .audit
                .as_ref()
                .map(|audit| Box::new(self.direction_report(audit))),
        }
    }

    fn policy(&self, id: &PolicyId) -> ObjectRef {
        let policy = self.context.state.policies.get(id);
        let line = policy.and_then(|policy| policy.line.as_ref());
        ObjectRef::new(&id.object, line)
    }

    fn rule(&self, source: &RuleOwner, origin: &RuleOrigin, action: Action) -> RuleRef {
        let text = |line: &SourceLine| line.to_string();
        let (policy, profile, line) = match source {
            RuleOwner::Policy(id) => {
                let policy = self.context.state.policies.get(id);
                let line = policy.and_then(|policy| policy.rule_source(origin));
                (Some(self.policy(id)), None, line)
            }
            RuleOwner::Profile(name) => {
                (None, Some(name.to_string()), origin.line.as_ref().map(text))
            }
        };
        RuleRef {
            policy,
            profile,
            direction: self.direction,
            index: origin.index,
            name: origin.name.as_ref().map(ToString::to_string),
            line,
            action,
        }
    }

    fn decision_report(&self, decided_by: &DecisionReason) -> DecisionReport {
        match decided_by {
            DecisionReason::Rule {
                owner: source,
                origin,
                action,
                ..
            } => DecisionReport::Rule(self.rule(source, origin, *action)),
            DecisionReason::TierDefault { tier, isolating } => DecisionReport::TierDefault {
                tier: tier.to_string(),
                isolating: isolating.iter().map(|id| self.policy(id)).collect(),
            },
            DecisionReason::AllowAllProfile => DecisionReport::AllowAllProfile,
            DecisionReason::NoProfileMatch => DecisionReport::NoProfileMatch,
            DecisionReason::MissingProfile { profile } => DecisionReport::MissingProfile {
                profile: profile.to_string(),
            },
            DecisionReason::HostOrigin => DecisionReport::HostOrigin,
            DecisionReason::Hairpin => DecisionReport::Itself,
            DecisionReason::HairpinEnd => DecisionReport::HairpinEnd,
            DecisionReason::Encapsulated { encapsulation } => DecisionReport::Encapsulated {
                encapsulation: *encapsulation,
                parameter: "allow-encapsulation".to_owned(),
            },
            DecisionReason::EndpointInAudit => DecisionReport::EndpointInAudit,
            DecisionReason::NotAnEndpoint => DecisionReport::NotAnEndpoint,
            DecisionReason::Failsafe => DecisionReport::Failsafe,
            DecisionReason::NoForwardPolicy => DecisionReport::NoForwardPolicy,
            DecisionReason::ForwardEnd => DecisionReport::ForwardEnd,
            DecisionReason::StageEnd => DecisionReport::StageEnd,
        }
    }

    fn step_report(&self, step: &TraceStep, judgement: &DirectionJudgement) -> StepReport {
        match step {
            TraceStep::Tier {
                tier,
                order,
                default,
                missing,
                counts,
            } => StepReport::Tier {
                tier: tier.to_string(),
                order: order.number(),
                default: *default,
                missing: *missing,
                counts: *counts,
            },
            TraceStep::Policy {
                policy,
                order,
                applicability: fit,
                ..
            } => StepReport::Policy {
                policy: self.policy(policy),
                order: order.number(),
                judges: *fit == PolicyApplicability::Applies,
                in_audit: *fit == PolicyApplicability::InAudit,
                reason: self.applicability_reason(fit, judgement),
            },
            TraceStep::Rule {
                owner: source,
                origin,
                action,
                outcome,
            } => StepReport::Rule {
                rule: self.rule(source, origin, *action),
                matched: *outcome == RuleOutcome::Matched,
                reasons: match outcome {
                    RuleOutcome::Matched => Vec::new(),
                    RuleOutcome::Missed(miss) => self.context.rule_miss(miss),
                },
            },
            TraceStep::TierEnd { tier, outcome: end } => {
                let (outcome, reason) = match end {
                    TierOutcome::Denied { .. } => (
                        TierDefault::Deny,
                        "no rule matched; the tier's default deny applies",
                    ),
                    TierOutcome::DefaultPass => (
                        TierDefault::Pass,
                        "no rule matched; the tier's default is Pass, so evaluation continues with the next tier",
                    ),
                    TierOutcome::NotIsolated => (
                        TierDefault::Pass,
                        "no rule matched; no policy in this tier applies default deny to the endpoint",
                    ),
                };
                StepReport::TierEnd {
                    tier: tier.to_string(),
                    outcome,
                    reason: reason.to_owned(),
                }
            }
            TraceStep::Profile { profile, exists } => StepReport::Profile {
                profile: profile.to_string(),
                exists: *exists,
            },
        }
    }

    fn applicability_reason(
        &self,
        fit: &PolicyApplicability,
        judgement: &DirectionJudgement,
    ) -> Option<String> {
        match fit {
            PolicyApplicability::Applies => None,
            PolicyApplicability::InAudit => {
                Some("it is in audit: it selects the endpoint and is not enforced".to_owned())
            }
            PolicyApplicability::OtherDirection => {
                Some(format!("it does not govern {}", self.direction))
            }
            PolicyApplicability::OtherStage => Some(
                "it does not judge what the host forwards: applyOnForward is not true".to_owned(),
            ),
            PolicyApplicability::NoHairpin => Some(
                "its kind does not judge what an endpoint sends to itself through a Service"
                    .to_owned(),
            ),
            PolicyApplicability::NotSelected {
                unmet_requirements: unmet,
            } => {
                let subject = judgement.subject.clone()?;
                let holder = HolderName::Endpoint(subject);
                let unmet = unmet
                    .iter()
                    .map(|part| self.context.describe_unmet(part, &holder));
                let unmet = unmet.collect::<Vec<_>>().join(" and ");
                Some(format!("{holder} {unmet}"))
            }
        }
    }
}
