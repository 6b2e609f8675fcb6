//! The evaluation of a question: host and hairpin traffic, tiers, policies, rules, profiles. The same
//! code runs with and without a trace.

mod host;

use crate::criteria::{DirectionEnds, MatchContext, rule_matches, rule_miss};
use crate::resolved_end::{Holder, Viewpoint};
use crate::trace::{RedirectNames, TraceRecorder};
use crate::{
    Answer, DecisionReason, DirectionJudgement, FlowVerdict, HostJudgement, OracleOptions,
    OrderedTier, PolicyApplicability, PreparedState, Question, RuleMiss, RuleOutcome, RuleOwner,
    TierOutcome, TraceStep,
};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, DomainPattern, Encapsulation, Endpoint, FlowOrigin, HairpinAction,
    HostTrafficAction, L4, Policy, PolicyId, PolicyMode, PolicyStage, PolicyView, Profile,
    Protocol, Rule, Str, TierDefault, UnreadDnsAction,
};

/// Borrowed form of [`DecisionReason`].
enum DecisionRef<'w> {
    Rule(RuleOwnerRef<'w>, &'w Rule),
    TierDefault(&'w Str, Vec<&'w Policy>),
    AllowAllProfile,
    NoProfileMatch,
    MissingProfile(&'w Str),
    HostOrigin,
    Hairpin,
    HairpinEnd,
    Encapsulated(Encapsulation),
    EndpointInAudit,
    NotAnEndpoint,
    Failsafe,
    NoForwardPolicy,
    ForwardEnd,
    StageEnd,
}

#[derive(Clone, Copy)]
enum RuleOwnerRef<'w> {
    Policy(&'w Policy),
    Profile(&'w Profile),
}

impl RuleOwnerRef<'_> {
    fn to_owner(self) -> RuleOwner {
        match self {
            RuleOwnerRef::Policy(policy) => RuleOwner::Policy(policy.id.clone()),
            RuleOwnerRef::Profile(profile) => RuleOwner::Profile(profile.name.clone()),
        }
    }
}

impl DecisionRef<'_> {
    fn allows(&self) -> bool {
        match self {
            DecisionRef::Rule(_, rule) => rule.action == Action::Allow,
            DecisionRef::AllowAllProfile
            | DecisionRef::HostOrigin
            | DecisionRef::Hairpin
            | DecisionRef::HairpinEnd
            | DecisionRef::EndpointInAudit
            | DecisionRef::NotAnEndpoint
            | DecisionRef::Failsafe
            | DecisionRef::NoForwardPolicy
            | DecisionRef::ForwardEnd
            | DecisionRef::StageEnd => true,
            DecisionRef::TierDefault(..)
            | DecisionRef::NoProfileMatch
            | DecisionRef::MissingProfile(_)
            | DecisionRef::Encapsulated(_) => false,
        }
    }

    fn into_reason(self, direction: Direction) -> DecisionReason {
        match self {
            DecisionRef::Rule(source, rule) => DecisionReason::Rule {
                owner: source.to_owner(),
                direction,
                origin: rule.origin.clone(),
                action: rule.action,
            },
            DecisionRef::TierDefault(tier, isolating) => DecisionReason::TierDefault {
                tier: tier.clone(),
                isolating: policy_ids(&isolating),
            },
            DecisionRef::AllowAllProfile => DecisionReason::AllowAllProfile,
            DecisionRef::NoProfileMatch => DecisionReason::NoProfileMatch,
            DecisionRef::MissingProfile(name) => DecisionReason::MissingProfile {
                profile: name.clone(),
            },
            DecisionRef::HostOrigin => DecisionReason::HostOrigin,
            DecisionRef::Hairpin => DecisionReason::Hairpin,
            DecisionRef::HairpinEnd => DecisionReason::HairpinEnd,
            DecisionRef::Encapsulated(encapsulation) => {
                DecisionReason::Encapsulated { encapsulation }
            }
            DecisionRef::EndpointInAudit => DecisionReason::EndpointInAudit,
            DecisionRef::NotAnEndpoint => DecisionReason::NotAnEndpoint,
            DecisionRef::Failsafe => DecisionReason::Failsafe,
            DecisionRef::NoForwardPolicy => DecisionReason::NoForwardPolicy,
            DecisionRef::ForwardEnd => DecisionReason::ForwardEnd,
            DecisionRef::StageEnd => DecisionReason::StageEnd,
        }
    }
}

fn policy_ids(policies: &[&Policy]) -> Vec<PolicyId> {
    policies.iter().map(|policy| policy.id.clone()).collect()
}

/// The outcome of one list of rules.
enum RuleListOutcome<'w> {
    /// The first matching rule other than `Log` allows or denies.
    Decides(&'w Rule),
    /// The first matching rule other than `Log` passes.
    Passes(&'w Rule),
    /// No rule matched, except `Log` rules.
    NoMatch,
}

/// The outcome of a tier.
enum TierDecision<'w> {
    Decided(DecisionRef<'w>),
    NextTier,
}

/// What is asked about a flow: an endpoint, the stage and the direction.
#[derive(Clone, Copy)]
struct JudgedEndpoint<'w> {
    subject: &'w Endpoint,
    stage: PolicyStage,
    direction: Direction,
    /// Whether only the policies that judge hairpin traffic have a part.
    is_hairpin: bool,
}

impl JudgedEndpoint<'_> {
    /// Whether a policy with this scope judges the traffic.
    fn is_in_scope(self, policy: &Policy) -> bool {
        policy.has_stage(self.stage) && (!self.is_hairpin || policy.scope.has_hairpin())
    }
}

impl<'a> PreparedState<'a> {
    /// The verdict of a flow, with its trace.
    pub fn judge(&self, question: &Question, options: &OracleOptions) -> Answer {
        let context = self.match_context(question);
        let egress = self.judge_direction(&context, Direction::Egress, options);
        let ingress = self.judge_direction(&context, Direction::Ingress, options);
        let host = [Direction::Ingress, Direction::Egress];
        let host: Vec<HostJudgement> = host
            .into_iter()
            .flat_map(|direction| self.judge_host(question, direction, options))
            .collect();
        let allows = egress.verdict.is_allow()
            && ingress.verdict.is_allow()
            && host.iter().all(|at| at.judgement.verdict.is_allow());
        Answer {
            verdict: FlowVerdict::from_allowed(allows),
            egress,
            ingress,
            host,
        }
    }

    /// The verdict of one direction of a flow, with its trace.
    pub fn judge_end(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> DirectionJudgement {
        let context = self.match_context(question);
        self.judge_direction(&context, direction, options)
    }

    /// Whether egress at the source and ingress at the destination allow a flow, in this order.
    pub fn verdict(&self, question: &Question, options: &OracleOptions) -> (bool, bool) {
        let context = self.match_context(question);
        let allows = |direction| self.allows_in(&context, direction, options);
        (allows(Direction::Egress), allows(Direction::Ingress))
    }

    /// Whether one direction of a flow is allowed.
    pub fn allows(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> bool {
        let context = self.match_context(question);
        self.allows_in(&context, direction, options)
    }

    fn allows_in(
        &self,
        context: &MatchContext<'_>,
        direction: Direction,
        options: &OracleOptions,
    ) -> bool {
        let mut names = RedirectNames::default();
        let decision = self.decide(context, direction, options, &mut names);
        decision.allows() || is_allowed_unread(&names.0, options)
    }

    /// The names that DNS queries of a flow may ask for, where rules decide by name; none where it is allowed and a
    /// policy observes DNS; `None` where nobody reads queries. The verdict of [`PreparedState::allows`] is that of
    /// packets that nobody reads.
    pub fn redirect(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> Option<BTreeSet<DomainPattern>> {
        let context = self.match_context(question);
        self.redirect_in(&context, direction, options)
    }

    fn redirect_in(
        &self,
        context: &MatchContext<'_>,
        direction: Direction,
        options: &OracleOptions,
    ) -> Option<BTreeSet<DomainPattern>> {
        let mut names = RedirectNames::default();
        let decision = self.decide(context, direction, options, &mut names);
        let is_observed = || {
            let subject = workload_at(context, direction);
            subject.is_some_and(|subject| {
                let side = workload_side(context, subject, direction, options);
                can_redirect(context, side) && self.observes_dns(context, side)
            })
        };
        let observed = || (decision.allows() && is_observed()).then(BTreeSet::new);
        names.0.or_else(observed)
    }

    /// Whether the flow is to the port of DNS, and a policy that applies to the endpoint observes DNS, in audit or not.
    fn observes_dns(&self, context: &MatchContext<'_>, side: JudgedEndpoint<'_>) -> bool {
        let is_dns = matches!(
            context.question.l4,
            L4::Ports {
                destination: Policy::DNS_PORT,
                ..
            }
        );
        let policies = self.tiers.iter().flat_map(|tier| &tier.policies);
        let mut observing = policies.filter(|policy| policy.observes_dns);
        is_dns
            && observing.any(|policy| {
                side.is_in_scope(policy) && self.applies(policy, side.subject, side.direction)
            })
    }

    /// The decision of the tiers, if there is one.
    fn evaluate_tiers<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        view: PolicyView,
        recorder: &mut impl TraceRecorder,
    ) -> Option<DecisionRef<'w>> {
        (0..self.tiers.len()).find_map(|tier| {
            match self.evaluate_tier(context, side, tier, view, recorder) {
                TierDecision::Decided(decision) => Some(decision),
                TierDecision::NextTier => None,
            }
        })
    }

    fn match_context<'q>(&self, question: &'q Question) -> MatchContext<'q>
    where
        'a: 'q,
    {
        MatchContext {
            state: self.state,
            question,
            source: self.resolve_end(&question.source),
            destination: self.resolve_end(&question.destination),
            host_node: self.host_node,
            host: None,
        }
    }

    fn judge_direction(
        &self,
        context: &MatchContext<'_>,
        direction: Direction,
        options: &OracleOptions,
    ) -> DirectionJudgement {
        let mut steps = Vec::new();
        let decision = self.decide(context, direction, options, &mut steps);
        let redirect = self.redirect_in(context, direction, options);
        let judged_by_policy = !matches!(
            decision,
            DecisionRef::NotAnEndpoint | DecisionRef::HostOrigin | DecisionRef::Hairpin
        );
        let subject = workload_at(context, direction);
        let audited = options.view == PolicyView::Enforced
            && judged_by_policy
            && subject.is_some_and(|subject| {
                self.is_audited(workload_side(context, subject, direction, options), options)
            });
        let audit = audited.then(|| {
            let options = OracleOptions {
                view: PolicyView::Audit,
                ..*options
            };
            Box::new(self.judge_direction(context, direction, &options))
        });
        DirectionJudgement {
            subject: subject.map(|endpoint| endpoint.id.clone()),
            verdict: FlowVerdict::from_allowed(
                decision.allows() || is_allowed_unread(&redirect, options),
            ),
            query_verdict: FlowVerdict::from_allowed(decision.allows()),
            decided_by: decision.into_reason(direction),
            redirect,
            steps,
            audit,
        }
    }

    /// Whether an endpoint is in audit.
    fn is_in_audit(&self, endpoint: &Endpoint, options: &OracleOptions) -> bool {
        options.audit || self.state.is_in_audit(endpoint)
    }

    /// Whether anything in audit applies: the endpoint, or a policy that applies to it.
    fn is_audited(&self, side: JudgedEndpoint<'_>, options: &OracleOptions) -> bool {
        let policies = self.tiers.iter().flat_map(|tier| &tier.policies);
        let mut in_audit = policies.filter(|policy| policy.mode == PolicyMode::Audit);
        self.is_in_audit(side.subject, options)
            || in_audit.any(|policy| {
                side.is_in_scope(policy) && self.applies(policy, side.subject, side.direction)
            })
    }

    /// No policy applies at an end that is not an endpoint. Traffic of the host itself is allowed as the options say.
    /// Hairpin traffic is allowed, or judged by the policies that the options say. Otherwise rules decide; an
    /// encapsulated packet that they allow on egress is denied unless the options allow the encapsulation.
    fn decide<'w>(
        &'w self,
        context: &MatchContext<'w>,
        direction: Direction,
        options: &OracleOptions,
        recorder: &mut impl TraceRecorder,
    ) -> DecisionRef<'w> {
        let Some(subject) = workload_at(context, direction) else {
            return DecisionRef::NotAnEndpoint;
        };
        if passes_from_host(context, direction, subject, options) {
            return DecisionRef::HostOrigin;
        }
        let side = workload_side(context, subject, direction, options);
        if side.is_hairpin {
            return if options.hairpin == HairpinAction::ByKind && self.has_policy(side) {
                self.decide_by_rules(context, side, options, recorder)
            } else {
                // No other endpoint decapsulates it.
                DecisionRef::Hairpin
            };
        }
        let decision = self.decide_by_rules(context, side, options, recorder);
        match denied_encapsulation(context, direction, options) {
            Some(encapsulation) if decision.allows() => DecisionRef::Encapsulated(encapsulation),
            _ => decision,
        }
    }

    /// At an endpoint in audit nothing is enforced. Elsewhere tiers decide, then profiles; no profile judges hairpin
    /// traffic.
    fn decide_by_rules<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        options: &OracleOptions,
        recorder: &mut impl TraceRecorder,
    ) -> DecisionRef<'w> {
        if options.view == PolicyView::Enforced && self.is_in_audit(side.subject, options) {
            return DecisionRef::EndpointInAudit;
        }
        match self.evaluate_tiers(context, side, options.view, recorder) {
            Some(decision) => decision,
            None if side.is_hairpin => DecisionRef::HairpinEnd,
            None => self.evaluate_profiles(context, side, recorder),
        }
    }

    /// A tier applies only if one of its policies in the view applies to the endpoint. Its first matching
    /// rule decides or passes to the next tier; if none matches, the tier's default applies.
    fn evaluate_tier<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        index: usize,
        view: PolicyView,
        recorder: &mut impl TraceRecorder,
    ) -> TierDecision<'w> {
        let JudgedEndpoint {
            subject,
            stage,
            direction,
            ..
        } = side;
        let tier = &self.tiers[index];
        let mut applicability = self.policy_applicability(index, subject, stage, direction);
        for (policy, judges) in tier.policies.iter().zip(&mut applicability) {
            *judges &= view.includes(policy.mode) && side.is_in_scope(policy);
        }
        let counts = applicability.contains(&true);
        recorder.record(|| TraceStep::Tier {
            tier: tier.tier.name.clone(),
            order: tier.tier.order,
            default: tier.tier.default,
            missing: tier.missing,
            counts,
        });
        for (policy, judges) in tier.policies.iter().zip(&applicability) {
            recorder.record(|| TraceStep::Policy {
                policy: policy.id.clone(),
                order: policy.precedence.order,
                line: policy.line.clone(),
                applicability: self.applicability_of(policy, side, view),
            });
            if !judges {
                continue;
            }
            let rules = policy.rules(direction).map_or(&[][..], |r| &r.rules);
            let source = RuleOwnerRef::Policy(policy);
            match first_match(context, side, source, rules, recorder) {
                RuleListOutcome::Decides(rule) => {
                    return TierDecision::Decided(DecisionRef::Rule(source, rule));
                }
                RuleListOutcome::Passes(_) => return TierDecision::NextTier,
                RuleListOutcome::NoMatch => {}
            }
        }
        if !counts {
            return TierDecision::NextTier;
        }
        let policies = tier
            .policies
            .iter()
            .zip(applicability)
            .filter(|(_, judges)| *judges);
        let isolating: Vec<&Policy> = policies
            .map(|(policy, _)| *policy)
            .filter(|policy| policy.rules(direction).is_some_and(|r| r.default_deny))
            .collect();
        apply_tier_default(tier, isolating, recorder)
    }

    fn applicability_of(
        &self,
        policy: &Policy,
        side: JudgedEndpoint<'_>,
        view: PolicyView,
    ) -> PolicyApplicability {
        let subject = side.subject;
        if policy.rules(side.direction).is_none() {
            PolicyApplicability::OtherDirection
        } else if !policy.has_stage(side.stage) {
            PolicyApplicability::OtherStage
        } else if !side.is_in_scope(policy) {
            PolicyApplicability::NoHairpin
        } else if self.selects(policy, subject) {
            if view.includes(policy.mode) {
                PolicyApplicability::Applies
            } else {
                PolicyApplicability::InAudit
            }
        } else {
            PolicyApplicability::NotSelected {
                unmet_requirements: Holder::Endpoint(subject)
                    .unmet_requirements(Viewpoint::new(self.state, None, None), &policy.subject),
            }
        }
    }

    /// The endpoint's profiles in order: the first matching rule decides, and `Pass` denies. A missing
    /// profile denies, and so does no match.
    fn evaluate_profiles<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        recorder: &mut impl TraceRecorder,
    ) -> DecisionRef<'w> {
        for name in &side.subject.profiles {
            let builtin = **name == *Profile::ALLOW_ALL;
            let profile = self.state.profiles.get(name);
            recorder.record(|| TraceStep::Profile {
                profile: name.clone(),
                exists: builtin || profile.is_some(),
            });
            if builtin {
                return DecisionRef::AllowAllProfile;
            }
            let Some(profile) = profile else {
                return DecisionRef::MissingProfile(name);
            };
            let rules = match side.direction {
                Direction::Ingress => &profile.ingress,
                Direction::Egress => &profile.egress,
            };
            let source = RuleOwnerRef::Profile(profile);
            match first_match(context, side, source, rules, recorder) {
                RuleListOutcome::Decides(rule) | RuleListOutcome::Passes(rule) => {
                    return DecisionRef::Rule(source, rule);
                }
                RuleListOutcome::NoMatch => {}
            }
        }
        DecisionRef::NoProfileMatch
    }
}

/// The endpoint whose policies judge a direction of a flow. A host endpoint judges at its interface only.
fn workload_at<'a>(context: &MatchContext<'a>, direction: Direction) -> Option<&'a Endpoint> {
    let endpoint = direction_ends(context, direction).local.endpoint;
    endpoint.filter(|endpoint| !endpoint.is_host())
}

fn workload_side<'a>(
    context: &MatchContext<'_>,
    subject: &'a Endpoint,
    direction: Direction,
    options: &OracleOptions,
) -> JudgedEndpoint<'a> {
    JudgedEndpoint {
        subject,
        stage: PolicyStage::Normal,
        direction,
        is_hairpin: is_hairpin(context, options),
    }
}

/// Egress is evaluated at the source, ingress at the destination.
fn direction_ends<'c, 'a>(
    context: &'c MatchContext<'a>,
    direction: Direction,
) -> DirectionEnds<'c, 'a> {
    match direction {
        Direction::Egress => DirectionEnds {
            local: &context.source,
            peer: &context.destination,
        },
        Direction::Ingress => DirectionEnds {
            local: &context.destination,
            peer: &context.source,
        },
    }
}

/// Whether the packet is from a host's own stack to an endpoint there, and allowed without policy: one that is attached
/// to this host, or one that names the node whose address the source is.
fn passes_from_host(
    context: &MatchContext<'_>,
    direction: Direction,
    subject: &Endpoint,
    options: &OracleOptions,
) -> bool {
    let mut nodes = context.source.nodes.iter();
    let local =
        subject.interface.is_some() || nodes.any(|node| Some(&node.name) == subject.node.as_ref());
    direction == Direction::Ingress
        && context.question.origin == FlowOrigin::HostStack
        && options.host_to_endpoint == HostTrafficAction::Allow
        && local
}

/// Whether source and destination are the same endpoint (through a Service), and are not judged as any other.
fn is_hairpin(context: &MatchContext<'_>, options: &OracleOptions) -> bool {
    let ends = context.source.endpoint.zip(context.destination.endpoint);
    options.hairpin != HairpinAction::Policy
        && context.question.origin != FlowOrigin::HostStack
        && ends.is_some_and(|(from, to)| from.id == to.id)
}

/// Whether DNS queries of the flow can be read, so that rules may decide by name: those that a workload sends to
/// another end, over UDP or TCP, in no encapsulation.
fn can_redirect(context: &MatchContext<'_>, side: JudgedEndpoint<'_>) -> bool {
    let question = context.question;
    context.host.is_none()
        && side.direction == Direction::Egress
        && !side.is_hairpin
        && [Protocol::TCP, Protocol::UDP].contains(&question.protocol)
        && Encapsulation::detect(question.protocol, question.l4).is_none()
}

/// Whether a flow is allowed since rules decide its queries by name and nobody reads them: in the audit, which does not
/// know the names, and where the options say so.
fn is_allowed_unread(names: &Option<BTreeSet<DomainPattern>>, options: &OracleOptions) -> bool {
    let is_allowed =
        options.view == PolicyView::Audit || options.unread_dns == UnreadDnsAction::Allow;
    is_allowed && names.is_some()
}

/// The encapsulation of the flow, if the options deny it to endpoints on egress whatever the rules are.
fn denied_encapsulation(
    context: &MatchContext<'_>,
    direction: Direction,
    options: &OracleOptions,
) -> Option<Encapsulation> {
    let encapsulation = Encapsulation::detect(context.question.protocol, context.question.l4)?;
    let denied = !options.allowed_encapsulation.contains(encapsulation);
    (direction == Direction::Egress && denied).then_some(encapsulation)
}

/// The outcome of a list of rules: the first matching rule that is not `Log`.
///
/// Queries for the names of a rule that decides by name are decided by it; others go on.
fn first_match<'w>(
    context: &MatchContext<'_>,
    side: JudgedEndpoint<'_>,
    source: RuleOwnerRef<'_>,
    rules: &'w [Rule],
    recorder: &mut impl TraceRecorder,
) -> RuleListOutcome<'w> {
    let ends = direction_ends(context, side.direction);
    for rule in rules {
        let unreadable_queries = rule.dns_names.is_some() && !can_redirect(context, side);
        let matched = rule_matches(context, ends, rule) && !unreadable_queries;
        recorder.record(|| TraceStep::Rule {
            owner: source.to_owner(),
            origin: rule.origin.clone(),
            action: rule.action,
            outcome: if matched {
                RuleOutcome::Matched
            } else {
                RuleOutcome::Missed(RuleMiss {
                    unreadable_queries,
                    ..rule_miss(context, ends, rule)
                })
            },
        });
        match rule.action {
            _ if !matched => {}
            Action::Allow if let Some(names) = &rule.dns_names => recorder.redirect(names),
            Action::Allow | Action::Deny => return RuleListOutcome::Decides(rule),
            Action::Pass => return RuleListOutcome::Passes(rule),
            Action::Log => {}
        }
    }
    RuleListOutcome::NoMatch
}

/// A tier without a matching rule denies if its default is `Deny` and an applicable policy has default
/// deny.
fn apply_tier_default<'w>(
    tier: &'w OrderedTier<'_>,
    isolating: Vec<&'w Policy>,
    recorder: &mut impl TraceRecorder,
) -> TierDecision<'w> {
    let denies = tier.tier.default == TierDefault::Deny && !isolating.is_empty();
    recorder.record(|| TraceStep::TierEnd {
        tier: tier.tier.name.clone(),
        outcome: match tier.tier.default {
            TierDefault::Pass => TierOutcome::DefaultPass,
            TierDefault::Deny if isolating.is_empty() => TierOutcome::NotIsolated,
            TierDefault::Deny => TierOutcome::Denied {
                isolating: policy_ids(&isolating),
            },
        },
    });
    if denies {
        TierDecision::Decided(DecisionRef::TierDefault(&tier.tier.name, isolating))
    } else {
        TierDecision::NextTier
    }
}
