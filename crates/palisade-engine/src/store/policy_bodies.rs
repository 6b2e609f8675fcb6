//! Bodies of policies: what is left without name, namespace and line, kept once.
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
    pub(super) ingress: Option<DirectionRules>,
    pub(super) egress: Option<DirectionRules>,
    /// Whether the policy's own namespace is replaced by the placeholder.
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
        self.subject.hash(state);
        self.ingress.hash(state);
        self.egress.hash(state);
        (self.namespace_relative, self.line_relative).hash(state);
    }
}

impl PolicyBody {
    /// The rules of one direction, relative to the policy; `None` if it does not govern the
    /// direction.
    pub(crate) fn rules(&self, direction: Direction) -> Option<&DirectionRules> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// All bodies and the subjects of policies.
#[derive(Debug, Default)]
pub(super) struct PolicyBodies {
    subjects: InternPool<Selector>,
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

    pub(super) fn get(&self, body: u32) -> Option<&PolicyBody> {
        self.bodies.get(body)
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
        }
    }

    /// Interns the body of a policy; counts one use more. A tool that writes policies for every
    /// namespace gives those of one content the same name: the last body of that name is compared
    /// first, which takes less than to build and hash a body.
    pub(super) fn acquire(&mut self, name_hash: u64, policy: Policy) -> u32 {
        let [hint, ..] = name_hash.to_le_bytes();
        let hint = usize::from(hint);
        self.likely.resize(LIKELY, NONE);
        let likely = self.likely[hint];
        if self.has_body(&policy, likely) {
            self.bodies.retain(likely);
            return likely;
        }
        let body = self.build_body(policy);
        self.likely[hint] = body;
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
        let Some(namespace) = &id.object.namespace else {
            return false;
        };
        let origin = PolicyOrigin { namespace, line };
        let equal = |body: &PolicyBody| {
            let known = self.subjects.get(body.subject);
            body.namespace_relative
                && **namespace != *PLACEHOLDER
                && body.line_relative == line.is_some()
                && body.tier == *tier
                && body.precedence == *precedence
                && body.mode == *mode
                && origin.has_equal_rules(ingress.as_ref(), body.ingress.as_ref())
                && origin.has_equal_rules(egress.as_ref(), body.egress.as_ref())
                && known.is_some_and(|known| origin.is_equal_selector(subject, known))
        };
        self.bodies.get(body).is_some_and(equal)
    }

    fn build_body(&mut self, policy: Policy) -> u32 {
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
        let namespace = id.object.namespace.filter(|own| **own != *PLACEHOLDER);
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
        let before = self.bodies.len();
        let shape = self.bodies.acquire(PolicyBody {
            tier,
            precedence,
            mode,
            subject,
            ingress,
            egress,
            namespace_relative: own.is_some(),
            line_relative: origin.is_some(),
        });
        if self.bodies.len() == before {
            // The body was interned before and counts its subject already.
            self.subjects.release(subject);
        }
        shape
    }
}

fn selectors_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut Selector> {
    rules.iter_mut().flatten().flat_map(relative::selectors_mut)
}

fn lines_of(rules: &mut [Option<DirectionRules>; 2]) -> impl Iterator<Item = &mut SourceLine> {
    rules.iter_mut().flatten().flat_map(relative::lines_mut)
}
