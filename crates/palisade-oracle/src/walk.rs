//! The walk: host pass, tiers, policies, rules, profiles. One walk, told or silent.

use crate::criteria::{Case, Sides, rule_matches, rule_miss};
use crate::narrate::{Narrator, Silent};
use crate::place::Holder;
use crate::{
    Answer, DecidedBy, HostToEndpoint, Judgement, Options, OrderedTier, PolicyFit, Prepared,
    Question, RuleOutcome, RuleSource, Step, TierEnd, ToItself, Verdict,
};
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, Encapsulation, Endpoint, Origin, Policy, PolicyId, Profile, Rule, Str,
    TierDefault,
};

/// What decided, borrowed.
enum Decision<'w> {
    Rule(Source<'w>, &'w Rule),
    TierDefault(&'w Str, Vec<&'w Policy>),
    AllowAllProfile,
    NoProfileMatch,
    MissingProfile(&'w Str),
    HostOrigin,
    Itself,
    Encapsulated(Encapsulation),
    NotAnEndpoint,
}

#[derive(Clone, Copy)]
enum Source<'w> {
    Policy(&'w Policy),
    Profile(&'w Profile),
}

impl Source<'_> {
    fn name(self) -> RuleSource {
        match self {
            Source::Policy(policy) => RuleSource::Policy(policy.id.clone()),
            Source::Profile(profile) => RuleSource::Profile(profile.name.clone()),
        }
    }
}

impl Decision<'_> {
    fn allows(&self) -> bool {
        match self {
            Decision::Rule(_, rule) => rule.action == Action::Allow,
            Decision::AllowAllProfile
            | Decision::HostOrigin
            | Decision::Itself
            | Decision::NotAnEndpoint => true,
            Decision::TierDefault(..)
            | Decision::NoProfileMatch
            | Decision::MissingProfile(_)
            | Decision::Encapsulated(_) => false,
        }
    }

    fn told(self, direction: Direction) -> DecidedBy {
        match self {
            Decision::Rule(source, rule) => DecidedBy::Rule {
                source: source.name(),
                direction,
                origin: rule.origin.clone(),
                action: rule.action,
            },
            Decision::TierDefault(tier, isolating) => DecidedBy::TierDefault {
                tier: tier.clone(),
                isolating: names(&isolating),
            },
            Decision::AllowAllProfile => DecidedBy::AllowAllProfile,
            Decision::NoProfileMatch => DecidedBy::NoProfileMatch,
            Decision::MissingProfile(name) => DecidedBy::MissingProfile {
                profile: name.clone(),
            },
            Decision::HostOrigin => DecidedBy::HostOrigin,
            Decision::Itself => DecidedBy::Itself,
            Decision::Encapsulated(encapsulation) => DecidedBy::Encapsulated { encapsulation },
            Decision::NotAnEndpoint => DecidedBy::NotAnEndpoint,
        }
    }
}

fn names(policies: &[&Policy]) -> Vec<PolicyId> {
    policies.iter().map(|policy| policy.id.clone()).collect()
}

/// What the rules of one list said.
enum Said<'w> {
    /// This rule decides: the first that matched, `Log` apart.
    Decides(&'w Rule),
    /// This rule passes.
    Passes(&'w Rule),
    /// None matched.
    Nothing,
}

/// What a tier said.
enum TierSaid<'w> {
    Decided(Decision<'w>),
    GoOn,
}

impl<'a> Prepared<'a> {
    /// What happens to a flow, and why.
    pub fn judge(&self, question: &Question, options: &Options) -> Answer {
        let case = self.case(question);
        let egress = self.told(&case, Direction::Egress, options);
        let ingress = self.told(&case, Direction::Ingress, options);
        let both = egress.verdict.is_allow() && ingress.verdict.is_allow();
        Answer {
            verdict: Verdict::allowed(both),
            egress,
            ingress,
        }
    }

    /// Whether egress at the source and ingress at the destination allow a flow.
    pub fn verdict(&self, question: &Question, options: &Options) -> (bool, bool) {
        let case = self.case(question);
        let allows = |direction| self.decide(&case, direction, options, &mut Silent).allows();
        (allows(Direction::Egress), allows(Direction::Ingress))
    }

    /// Whether one direction of a flow is allowed.
    pub fn allows(&self, question: &Question, direction: Direction, options: &Options) -> bool {
        let case = self.case(question);
        self.decide(&case, direction, options, &mut Silent).allows()
    }

    fn case<'q>(&self, question: &'q Question) -> Case<'q>
    where
        'a: 'q,
    {
        Case {
            state: self.state,
            question,
            source: self.place(&question.source),
            destination: self.place(&question.destination),
        }
    }

    fn told(&self, case: &Case<'_>, direction: Direction, options: &Options) -> Judgement {
        let mut steps = Vec::new();
        let decision = self.decide(case, direction, options, &mut steps);
        let subject = sides(case, direction).own.endpoint;
        Judgement {
            subject: subject.map(|endpoint| endpoint.id.clone()),
            verdict: Verdict::allowed(decision.allows()),
            decided_by: decision.told(direction),
            steps,
        }
    }

    /// Nothing judges an end that is no endpoint. Then the host's own packets pass, and an endpoint's to
    /// itself; then rules decide. What they allow to be sent is denied if it is a packet within a packet.
    fn decide<'w>(
        &'w self,
        case: &Case<'w>,
        direction: Direction,
        options: &Options,
        narrator: &mut impl Narrator,
    ) -> Decision<'w> {
        let Some(subject) = sides(case, direction).own.endpoint else {
            return Decision::NotAnEndpoint;
        };
        if passes_from_host(case, direction, subject, options) {
            return Decision::HostOrigin;
        }
        if passes_to_itself(case, options) {
            return Decision::Itself;
        }
        let decision = self.by_rules(case, direction, subject, narrator);
        match denied_encapsulation(case, direction, options) {
            Some(encapsulation) if decision.allows() => Decision::Encapsulated(encapsulation),
            _ => decision,
        }
    }

    /// Tiers decide, then profiles.
    fn by_rules<'w>(
        &'w self,
        case: &Case<'w>,
        direction: Direction,
        subject: &'w Endpoint,
        narrator: &mut impl Narrator,
    ) -> Decision<'w> {
        for tier in 0..self.tiers.len() {
            match self.tier(case, direction, subject, tier, narrator) {
                TierSaid::Decided(decision) => return decision,
                TierSaid::GoOn => {}
            }
        }
        self.profiles(case, direction, subject, narrator)
    }

    /// A tier counts only if one of its policies judges the endpoint; then its first rule that
    /// matches decides or passes on, and its default if none does.
    fn tier<'w>(
        &'w self,
        case: &Case<'w>,
        direction: Direction,
        subject: &Endpoint,
        index: usize,
        narrator: &mut impl Narrator,
    ) -> TierSaid<'w> {
        let tier = &self.tiers[index];
        let judging = self.judging(index, subject, direction);
        let counts = judging.contains(&true);
        narrator.hear(|| Step::Tier {
            tier: tier.tier.name.clone(),
            default: tier.tier.default,
            missing: tier.missing,
            counts,
        });
        for (policy, judges) in tier.policies.iter().zip(&judging) {
            narrator.hear(|| Step::Policy {
                policy: policy.id.clone(),
                line: policy.line.clone(),
                fit: self.fit(policy, subject, direction),
            });
            if !judges {
                continue;
            }
            let rules = policy.rules(direction).map_or(&[][..], |r| &r.rules);
            let source = Source::Policy(policy);
            match first_match(case, direction, source, rules, narrator) {
                Said::Decides(rule) => return TierSaid::Decided(Decision::Rule(source, rule)),
                Said::Passes(_) => return TierSaid::GoOn,
                Said::Nothing => {}
            }
        }
        if !counts {
            return TierSaid::GoOn;
        }
        let judging = tier
            .policies
            .iter()
            .zip(judging)
            .filter(|(_, judges)| *judges);
        let isolating: Vec<&Policy> = judging
            .map(|(policy, _)| *policy)
            .filter(|policy| policy.rules(direction).is_some_and(|r| r.default_deny))
            .collect();
        tier_end(tier, isolating, narrator)
    }

    fn fit(&self, policy: &Policy, subject: &Endpoint, direction: Direction) -> PolicyFit {
        if policy.rules(direction).is_none() {
            PolicyFit::OtherDirection
        } else if self.selects(policy, subject) {
            PolicyFit::Judges
        } else {
            PolicyFit::NotSelected {
                unmet: Holder::Endpoint(subject).unmet(self.state, &policy.subject),
            }
        }
    }

    /// The endpoint's profiles in order: the first rule that matches decides, where Pass denies; a
    /// missing profile denies; no match denies.
    fn profiles<'w>(
        &'w self,
        case: &Case<'w>,
        direction: Direction,
        subject: &'w Endpoint,
        narrator: &mut impl Narrator,
    ) -> Decision<'w> {
        for name in &subject.profiles {
            let builtin = **name == *Profile::ALLOW_ALL;
            let profile = self.state.profiles.get(name);
            narrator.hear(|| Step::Profile {
                profile: name.clone(),
                exists: builtin || profile.is_some(),
            });
            if builtin {
                return Decision::AllowAllProfile;
            }
            let Some(profile) = profile else {
                return Decision::MissingProfile(name);
            };
            let rules = match direction {
                Direction::Ingress => &profile.ingress,
                Direction::Egress => &profile.egress,
            };
            let source = Source::Profile(profile);
            match first_match(case, direction, source, rules, narrator) {
                Said::Decides(rule) | Said::Passes(rule) => return Decision::Rule(source, rule),
                Said::Nothing => {}
            }
        }
        Decision::NoProfileMatch
    }
}

/// Egress is judged at the source, ingress at the destination.
fn sides<'c, 'a>(case: &'c Case<'a>, direction: Direction) -> Sides<'c, 'a> {
    match direction {
        Direction::Egress => Sides {
            own: &case.source,
            peer: &case.destination,
        },
        Direction::Ingress => Sides {
            own: &case.destination,
            peer: &case.source,
        },
    }
}

/// Packets that this host's own stack made may reach the endpoints attached to it.
fn passes_from_host(
    case: &Case<'_>,
    direction: Direction,
    subject: &Endpoint,
    options: &Options,
) -> bool {
    let local = subject.interface.is_some();
    direction == Direction::Ingress
        && case.question.origin == Origin::HostStack
        && options.host_to_endpoint == HostToEndpoint::Allow
        && local
}

/// An endpoint's own packets reach it, by a Service that leads back to it.
fn passes_to_itself(case: &Case<'_>, options: &Options) -> bool {
    let ends = case.source.endpoint.zip(case.destination.endpoint);
    options.to_itself == ToItself::Allow
        && case.question.origin != Origin::HostStack
        && ends.is_some_and(|(from, to)| from.id == to.id)
}

/// What no endpoint may send, whatever rules say: a packet that carries another, which they do not see.
fn denied_encapsulation(
    case: &Case<'_>,
    direction: Direction,
    options: &Options,
) -> Option<Encapsulation> {
    let encapsulation = Encapsulation::of(case.question.protocol, case.question.l4)?;
    let denied = !options.allowed_encapsulation.contains(encapsulation);
    (direction == Direction::Egress && denied).then_some(encapsulation)
}

/// The first rule that matches and does more than log.
fn first_match<'w>(
    case: &Case<'_>,
    direction: Direction,
    source: Source<'_>,
    rules: &'w [Rule],
    narrator: &mut impl Narrator,
) -> Said<'w> {
    let sides = sides(case, direction);
    for rule in rules {
        let matched = rule_matches(case, sides, rule);
        narrator.hear(|| Step::Rule {
            source: source.name(),
            origin: rule.origin.clone(),
            action: rule.action,
            outcome: if matched {
                RuleOutcome::Matched
            } else {
                RuleOutcome::Missed(rule_miss(case, sides, rule))
            },
        });
        match rule.action {
            _ if !matched => {}
            Action::Allow | Action::Deny => return Said::Decides(rule),
            Action::Pass => return Said::Passes(rule),
            Action::Log => {}
        }
    }
    Said::Nothing
}

/// A tier that nothing matched denies if its default does and a judging policy asks for it.
fn tier_end<'w>(
    tier: &'w OrderedTier<'_>,
    isolating: Vec<&'w Policy>,
    narrator: &mut impl Narrator,
) -> TierSaid<'w> {
    let denies = tier.tier.default == TierDefault::Deny && !isolating.is_empty();
    narrator.hear(|| Step::TierEnd {
        tier: tier.tier.name.clone(),
        end: match tier.tier.default {
            TierDefault::Pass => TierEnd::DefaultPass,
            TierDefault::Deny if isolating.is_empty() => TierEnd::NotIsolated,
            TierDefault::Deny => TierEnd::Denied {
                isolating: names(&isolating),
            },
        },
    });
    if denies {
        TierSaid::Decided(Decision::TierDefault(&tier.tier.name, isolating))
    } else {
        TierSaid::GoOn
    }
}
