//! Bodies of policies: what is left without name, namespace and line, kept once. The rules of bodies are kept
//! once again: policies of tiers often differ in their order alone.
//!
//! Nothing here knows which policies have a body.

use super::numbers::NONE;
use super::pool::{InternPool, hash};
use super::relative::{self, PLACEHOLDER, PolicyOrigin};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use palisade_model::{
    Direction, DirectionRules, Order, Policy, PolicyMode, Precedence, Rule, Selector, SourceLine,
    Str, TrafficScope,
};

/// The number of [`PolicyBodies::likely`].
const LIKELY: usize = 256;

/// A policy without name, namespace and line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyBody {
    pub(crate) tier: Str,
    pub(crate) precedence: Precedence,
    pub(crate) mode: PolicyMode,
    pub(crate) scope: TrafficScope,
    pub(crate) observes_dns: bool,
    pub(super) subject: u32,
    pub(super) rules: u32,
}

/// The rules of a policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct BodyRules {
    pub(super) ingress: Option<DirectionRules>,
    pub(super) egress: Option<DirectionRules>,
    /// Whether the policy's namespace is replaced by the placeholder, in its subject as well.
    pub(super) namespace_relative: bool,
    /// Whether lines are relative to the policy's own line.
    pub(super) line_relative: bool,
}

impl Hash for PolicyBody {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tier.hash(state);
        self.precedence.rank.hash(state);
        match self.precedence.order {
            Order::At(number) => number.to_bits().hash(state),
            Order::Last => 0.hash(state),
        }
        self.mode.hash(state);
        self.scope.hash(state);
        self.observes_dns.hash(state);
        (self.subject, self.rules).hash(state);
    }
}

impl BodyRules {
    /// The rules of one direction, relative to the policy; `None` if it does not govern the
    /// direction.
    pub(crate) fn direction(&self, direction: Direction) -> Option<&DirectionRules> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// A body that was acquired.
pub(super) struct AcquiredBody {
    pub(super) number: u32,
    /// The namespace that it is relative to, if that is not the policy's own.
    pub(super) subject_namespace: Option<Str>,
}

/// All bodies, and the subjects and rules of policies.
#[derive(Debug, Default)]
pub(super) struct PolicyBodies {
    subjects: InternPool<Selector>,
    rules: InternPool<BodyRules>,
    bodies: InternPool<PolicyBody>,
    /// Bodies whose subject and rules the next policy of the same name, or with rules that are written the
    /// same, is likely to have, by a part of a hash of these.
    likely: Vec<u32>,
    placeholder: Option<Str>,
}

impl PolicyBodies {
    pub(super) fn len(&self) -> usize {
        self.bodies.len()
    }

    pub(super) fn subject_count(&self) -> usize {
        self.subjects.len()
    }

    pub(super) fn rules_count(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn get(&self, body: u32) -> Option<&PolicyBody> {
        self.bodies.get(body)
    }

    /// The rules of a body, and their number.
    pub(super) fn rules(&self, body: u32) -> Option<(u32, &BodyRules)> {
        let rules = self.bodies.get(body)?.rules;
        Some((rules, self.rules.get(rules)?))
    }

    /// The subject of a body, and its number.
    pub(super) fn subject(&self, body: u32) -> Option<(u32, &Selector)> {
        let subject = self.bodies.get(body)?.subject;
        Some((subject, self.subjects.get(subject)?))
    }

    /// Counts one use of a body less.
    pub(super) fn release(&mut self, body: u32) {
        if let Some(gone) = self.bodies.release(body) {
            self.subjects.release(gone.subject);
            self.rules.release(gone.rules);
        }
    }

    /// Interns the body of a policy; counts one use more. A tool that writes policies for every
    /// namespace gives those of one content the same name, or names each after its namespace: the last body
    /// of the name, or of the same rules as written, is compared first, which takes less than to make rules
    /// relative and hash them.
    pub(super) fn acquire(&mut self, name_hash: u64, policy: Policy) -> AcquiredBody {
        let hint = match &policy.id.object.namespace {
            Some(_) => name_hash,
            None => rules_hash(&policy),
        };
        let [hint, ..] = hint.to_le_bytes();
        let hint = usize::from(hint);
        self.likely.resize(LIKELY, NONE);
        let likely = self.likely[hint];
        let body = match self.content_of(&policy, likely) {
            Some((subject, rules)) => {
                self.subjects.retain(subject);
                self.rules.retain(rules);
                let subject_namespace = match policy.id.object.namespace {
                    Some(_) => None,
                    None => relative::only_namespace(&policy.subject).cloned(),
                };
                let body = PolicyBody {
                    tier: policy.tier,
                    precedence: policy.precedence,
                    mode: policy.mode,
                    scope: policy.scope,
                    observes_dns: policy.observes_dns,
                    subject,
                    rules,
                };
                self.acquire_body(body, subject_namespace)
            }
            None => self.build_body(policy),
        };
        self.likely[hint] = body.number;
        body
    }

    /// The subject and the rules of this body, if a policy has the same and is relative to namespace and line.
    fn content_of(&self, policy: &Policy, body: u32) -> Option<(u32, u32)> {
        let body = self.bodies.get(body)?;
        let (subject, rules) = (
            self.subjects.get(body.subject)?,
            self.rules.get(body.rules)?,
        );
        // Rules that are in no line of the policy's file are stored as they are.
        let line = policy.line.as_ref().filter(|_| rules.line_relative);
        let own = policy.id.object.namespace.as_ref();
        let namespace = own.or_else(|| relative::only_namespace(&policy.subject))?;
        let origin = PolicyOrigin { namespace, line };
        let equal = rules.namespace_relative
            && **namespace != *PLACEHOLDER
            && rules.line_relative == line.is_some()
            && origin.has_equal_rules(policy.ingress.as_ref(), rules.ingress.as_ref())
            && origin.has_equal_rules(policy.egress.as_ref(), rules.egress.as_ref())
            && origin.is_equal_selector(&policy.subject, subject);
        equal.then_some((body.subject, body.rules))
    }

    /// Interns a body, whose subject and rules are acquired for it.
    fn acquire_body(&mut self, body: PolicyBody, subject_namespace: Option<Str>) -> AcquiredBody {
        let (subject, rules) = (body.subject, body.rules);
        let before = self.bodies.len();
        let number = self.bodies.acquire(body);
        if self.bodies.len() == before {
            // The body was interned before and counts its subject and rules already.
            self.subjects.release(subject);
            self.rules.release(rules);
        }
        AcquiredBody {
            number,
            subject_namespace,
        }
    }

    fn build_body(&mut self, policy: Policy) -> AcquiredBody {
        let Policy {
            id,
            tier,
            precedence,
            mode,
            mut subject,
            scope,
            observes_dns,
            ingress,
            egress,
            line,
        } = policy;
        let here = self
            .placeholder
            .get_or_insert_with(|| PLACEHOLDER.into())
            .clone();
        let has_namespace = id.object.namespace.is_some();
        let namespace =
            (id.object.namespace).or_else(|| relative::only_namespace(&subject).cloned());
        let namespace = namespace.filter(|own| **own != *PLACEHOLDER);
        let mut both = [ingress, egress];
        let own = namespace.filter(|own| {
            let mut selectors = selectors_of(&mut both).chain([&mut subject]);
            selectors.all(|selector| relative::can_be_relative(selector, own))
        });
        if let Some(own) = &own {
            for selector in selectors_of(&mut both).chain([&mut subject]) {
                relative::replace_namespace(selector, own, &here);
            }
        }
        let is_same_unit =
            |a: &SourceLine, b: &SourceLine| (&a.file, &a.version) == (&b.file, &b.version);
        let origin =
            line.filter(|origin| lines_of(&mut both).all(|line| is_same_unit(line, origin)));
        if let Some(origin) = &origin {
            for line in lines_of(&mut both) {
                *line = SourceLine::new(here.clone(), line.line.wrapping_sub(origin.line));
            }
        }
        let [ingress, egress] = both;
        let subject = self.subjects.acquire(subject);
        let rules = self.rules.acquire(BodyRules {
            ingress,
            egress,
            namespace_relative: own.is_some(),
            line_relative: origin.is_some(),
        });
        let body = PolicyBody {
            tier,
            precedence,
            mode,
            scope,
            observes_dns,
            subject,
            rules,
        };
        self.acquire_body(body, own.filter(|_| !has_namespace))
    }
}

/// A hash of the rules as they were written.
fn rules_hash(policy: &Policy) -> u64 {
    let lists = [&policy.ingress, &policy.egress].into_iter().flatten();
    let rules = lists.flat_map(|list| &list.rules);
    let fold = |all: u64, rule: &Rule| hash(&(all, rule.action, rule.origin.fingerprint));
    rules.fold(0, fold)
}

fn selectors_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut Selector> {
    rules.iter_mut().flatten().flat_map(relative::selectors_mut)
}

fn lines_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut SourceLine> {
    rules.iter_mut().flatten().flat_map(relative::lines_mut)
}
