//! An answer of the oracle as an explanation.

use super::nearest::{last_stage, nearest};
use super::reasons::Told;
use super::report::{
    Case, Decision, NearestMiss, ObjectRef, Place, RuleRef, Side, StepReport, Word,
};
use super::resolve::Flow;
use crate::traffic::ProtocolName;
use palisade_model::{
    Action, Direction, L4, ObjectId, PolicyId, Protocol, RuleOrigin, TierDefault,
};
use palisade_oracle::{
    Answer, DecidedBy, End, HolderName, Judgement, PolicyFit, Prepared, RuleOutcome, RuleSource,
    Step, TierEnd, Verdict,
};

/// One flow with what the oracle says about it.
pub(super) fn case(prepared: &Prepared<'_>, flow: Flow, answer: &Answer) -> Case {
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
    let side = |judgement: &Judgement, direction: Direction| {
        let (own, peer) = match direction {
            Direction::Egress => ("the source", "the destination"),
            Direction::Ingress => ("the destination", "the source"),
        };
        let told = Told {
            state,
            question,
            peer,
            own,
        };
        Teller { told, direction }.side(judgement)
    };
    Case {
        verdict: word(answer.verdict),
        from: place(prepared, &question.source, None),
        to: place(prepared, &question.destination, flow.service.clone()),
        family: question.family.to_string(),
        protocol: protocol(question.protocol),
        port,
        source_port,
        icmp_type,
        egress: side(&answer.egress, Direction::Egress),
        ingress: side(&answer.ingress, Direction::Ingress),
    }
}

fn word(verdict: Verdict) -> Word {
    if verdict.is_allow() {
        Word::Allow
    } else {
        Word::Deny
    }
}

fn protocol(protocol: Protocol) -> String {
    match ProtocolName::of(protocol) {
        ProtocolName::Named(name) => name.to_owned(),
        _ => protocol.0.to_string(),
    }
}

fn place(prepared: &Prepared<'_>, end: &End, service: Option<String>) -> Place {
    let endpoint = prepared.endpoint_at(end).map(|e| object(&e.id));
    let address = match end {
        End::Address(address) => Some(*address),
        End::Endpoint(_) => None,
    };
    Place {
        endpoint,
        address,
        service,
    }
}

fn object(id: &ObjectId) -> ObjectRef {
    ObjectRef {
        kind: id.kind.to_string(),
        namespace: id.namespace.as_ref().map(ToString::to_string),
        name: id.name.to_string(),
        line: None,
    }
}

/// Tells of one direction.
struct Teller<'a> {
    told: Told<'a>,
    direction: Direction,
}

impl Teller<'_> {
    fn side(&self, judgement: &Judgement) -> Side {
        let stage = last_stage(&judgement.steps);
        let near = match judgement.decided_by {
            DecidedBy::TierDefault { .. } | DecidedBy::NoProfileMatch => nearest(stage, self.told),
            _ => None,
        };
        let nearest_miss = near.and_then(|(step, unless)| match step {
            Step::Rule {
                source,
                origin,
                action,
                ..
            } => Some(NearestMiss {
                rule: self.rule(source, origin, *action),
                unless,
            }),
            _ => None,
        });
        Side {
            subject: judgement.subject.as_ref().map(object),
            verdict: word(judgement.verdict),
            decided_by: self.decision(&judgement.decided_by),
            steps: judgement
                .steps
                .iter()
                .map(|step| self.step(step, judgement))
                .collect(),
            not_applying: 0,
            nearest_miss,
        }
    }

    fn policy(&self, id: &PolicyId) -> ObjectRef {
        let policy = self.told.state.policies.get(id);
        let line = policy.and_then(|policy| policy.line.as_ref());
        ObjectRef {
            line: line.map(ToString::to_string),
            ..object(&id.object)
        }
    }

    fn rule(&self, source: &RuleSource, origin: &RuleOrigin, action: Action) -> RuleRef {
        let (policy, profile) = match source {
            RuleSource::Policy(id) => (Some(self.policy(id)), None),
            RuleSource::Profile(name) => (None, Some(name.to_string())),
        };
        RuleRef {
            policy,
            profile,
            direction: self.direction.to_string(),
            index: origin.index,
            name: origin.name.as_ref().map(ToString::to_string),
            line: origin.line.as_ref().map(ToString::to_string),
            action: action.to_string(),
        }
    }

    fn decision(&self, decided_by: &DecidedBy) -> Decision {
        match decided_by {
            DecidedBy::Rule {
                source,
                origin,
                action,
                ..
            } => Decision::Rule(self.rule(source, origin, *action)),
            DecidedBy::TierDefault { tier, isolating } => Decision::TierDefault {
                tier: tier.to_string(),
                isolating: isolating.iter().map(|id| self.policy(id)).collect(),
            },
            DecidedBy::AllowAllProfile => Decision::AllowAllProfile,
            DecidedBy::NoProfileMatch => Decision::NoProfileMatch,
            DecidedBy::MissingProfile { profile } => Decision::MissingProfile {
                profile: profile.to_string(),
            },
            DecidedBy::HostOrigin => Decision::HostOrigin,
            DecidedBy::Itself => Decision::Itself,
            DecidedBy::Encapsulated { encapsulation } => Decision::Encapsulated {
                encapsulation: encapsulation.name().to_owned(),
                parameter: encapsulation.parameter(),
            },
            DecidedBy::NotAnEndpoint => Decision::NotAnEndpoint,
        }
    }

    fn step(&self, step: &Step, judgement: &Judgement) -> StepReport {
        match step {
            Step::Tier {
                tier,
                default,
                missing,
                counts,
            } => StepReport::Tier {
                tier: tier.to_string(),
                default: match default {
                    TierDefault::Deny => "deny".to_owned(),
                    TierDefault::Pass => "pass".to_owned(),
                },
                missing: *missing,
                counts: *counts,
            },
            Step::Policy { policy, fit, .. } => StepReport::Policy {
                policy: self.policy(policy),
                judges: *fit == PolicyFit::Judges,
                reason: self.fit(fit, judgement),
            },
            Step::Rule {
                source,
                origin,
                action,
                outcome,
            } => StepReport::Rule {
                rule: self.rule(source, origin, *action),
                matched: *outcome == RuleOutcome::Matched,
                reasons: match outcome {
                    RuleOutcome::Matched => Vec::new(),
                    RuleOutcome::Missed(miss) => self.told.rule_miss(miss),
                },
            },
            Step::TierEnd { tier, end } => {
                let (outcome, reason) = match end {
                    TierEnd::Denied { .. } => {
                        ("deny", "no rule matched, and policies isolate the endpoint")
                    }
                    TierEnd::DefaultPass => ("pass", "no rule matched, and the tier passes on"),
                    TierEnd::NotIsolated => (
                        "pass",
                        "no rule matched, and no policy isolates the endpoint",
                    ),
                };
                StepReport::TierEnd {
                    tier: tier.to_string(),
                    outcome: outcome.to_owned(),
                    reason: reason.to_owned(),
                }
            }
            Step::Profile { profile, exists } => StepReport::Profile {
                profile: profile.to_string(),
                exists: *exists,
            },
        }
    }

    fn fit(&self, fit: &PolicyFit, judgement: &Judgement) -> Option<String> {
        match fit {
            PolicyFit::Judges => None,
            PolicyFit::OtherDirection => Some(format!("it says nothing about {}", self.direction)),
            PolicyFit::NotSelected { unmet } => {
                let subject = judgement.subject.clone()?;
                let holder = HolderName::Endpoint(subject);
                let unmet = unmet.iter().map(|part| self.told.unmet(part, &holder));
                let unmet = unmet.collect::<Vec<_>>().join(" and ");
                Some(format!("{holder} {unmet}"))
            }
        }
    }
}
