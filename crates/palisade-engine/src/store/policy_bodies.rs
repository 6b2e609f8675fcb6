//! Bodies of policies: what is left without name, namespace and line, kept once. The rules of bodies are kept
//! once again: policies of tiers often differ in their order alone.
//!
//! Nothing here knows which policies have a body.

use super::holder_store::NONE;
use super::pool::InternPool;
use super::relative::{self, PLACEHOLDER, PolicyOrigin};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use palisade_model::{
    Direction, DirectionRules, Order, Policy, PolicyMode, Precedence, Selector, SourceLine, Str,
};

/// The number of [`PolicyBodies::likely`].
const LIKELY: usize = 256;

/// A policy without name, namespace and line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyBody {
    pub(crate) tier: Str,
    pub(crate) precedence: Precedence,
    pub(crate) mode: PolicyMode,
    pub(super) subject: u32,
    pub(super) rules: u32,
}

/// The rules of a policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct PolicyRules {
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
        (self.subject, self.rules).hash(state);
    }
}

impl PolicyRules {
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
    rules: InternPool<PolicyRules>,
    bodies: InternPool<PolicyBody>,
    /// Bodies that the next policy of the same name is likely to have, by a part of a hash of the
    /// name.
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
    pub(super) fn rules(&self, body: u32) -> Option<(u32, &PolicyRules)> {
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
    /// namespace gives those of one content the same name: the last body of that name is compared
    /// first, which takes less than to build and hash a body.
    pub(super) fn acquire(&mut self, name_hash: u64, policy: Policy) -> AcquiredBody {
        let [hint, ..] = name_hash.to_le_bytes();
        let hint = usize::from(hint);
        self.likely.resize(LIKELY, NONE);
        let likely = self.likely[hint];
        if self.has_body(&policy, likely) {
            self.bodies.retain(likely);
            let subject_namespace = match policy.id.object.namespace {
                Some(_) => None,
                None => relative::only_namespace(&policy.subject).cloned(),
            };
            return AcquiredBody {
                number: likely,
                subject_namespace,
            };
        }
        let body = self.build_body(policy);
        self.likely[hint] = body.number;
        body
    }

    /// Whether a policy has this body, which is relative to namespace and line.
    fn has_body(&self, policy: &Policy, body: u32) -> bool {
        let Policy {
            id,
            tier,
            precedence,
            mode,
            subject,
            ingress,
            egress,
            line,
        } = policy;
        let line = line.as_ref();
        let own = id.object.namespace.as_ref();
        let Some(namespace) = own.or_else(|| relative::only_namespace(subject)) else {
            return false;
        };
        let origin = PolicyOrigin { namespace, line };
        let equal = |body: &PolicyBody| {
            let (Some(known), Some(rules)) =
                (self.subjects.get(body.subject), self.rules.get(body.rules))
            else {
                return false;
            };
            rules.namespace_relative
                && **namespace != *PLACEHOLDER
                && rules.line_relative == line.is_some()
                && body.tier == *tier
                && body.precedence == *precedence
                && body.mode == *mode
                && origin.has_equal_rules(ingress.as_ref(), rules.ingress.as_ref())
                && origin.has_equal_rules(egress.as_ref(), rules.egress.as_ref())
                && origin.is_equal_selector(subject, known)
        };
        self.bodies.get(body).is_some_and(equal)
    }

    fn build_body(&mut self, policy: Policy) -> AcquiredBody {
        let Policy {
            id,
            tier,
            precedence,
            mode,
            mut subject,
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
        let origin = line.filter(|origin| lines_of(&mut both).all(|line| line.file == origin.file));
        if let Some(origin) = &origin {
            for line in lines_of(&mut both) {
                line.line = line.line.wrapping_sub(origin.line);
                line.file = here.clone();
            }
        }
        let [ingress, egress] = both;
        let subject = self.subjects.acquire(subject);
        let rules = self.rules.acquire(PolicyRules {
            ingress,
            egress,
            namespace_relative: own.is_some(),
            line_relative: origin.is_some(),
        });
        let before = self.bodies.len();
        let shape = self.bodies.acquire(PolicyBody {
            tier,
            precedence,
            mode,
            subject,
            rules,
        });
        if self.bodies.len() == before {
            // The body was interned before and counts its subject and rules already.
            self.subjects.release(subject);
            self.rules.release(rules);
        }
        AcquiredBody {
            number: shape,
            subject_namespace: own.filter(|_| !has_namespace),
        }
    }
}

fn selectors_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut Selector> {
    rules.iter_mut().flatten().flat_map(relative::selectors_mut)
}

fn lines_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut SourceLine> {
    rules.iter_mut().flatten().flat_map(relative::lines_mut)
}
