//! All policies by number, with their bodies interned.
//!
//! A *body* is a policy without its name, relative to its namespace and its line; equal bodies are
//! kept once. Policies are given back exactly as they came. A deleted policy keeps its number until
//! the flush has processed the deletion. What a policy selects is not known here.

use crate::chunked_vec::ChunkedVec;
use crate::pool::{HashMap, InternPool, hash};
use crate::relative::{self, PLACEHOLDER, PolicyOrigin, RelativeLabels};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use palisade_model::{
    Direction, DirectionRules, LabelLookup, ObjectId, Order, Policy, PolicyId, Precedence,
    Selector, SourceLine, Str,
};

/// The number of a policy name.
pub(crate) type PolicyNumber = u32;

/// The number of [`Policies::likely_bodies`].
const LIKELY_BODIES: usize = 256;

/// Marks the absence of a pool number.
const NONE: u32 = u32::MAX;

/// A policy without name, namespace and line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyBody {
    pub(crate) tier: Str,
    pub(crate) precedence: Precedence,
    subject: u32,
    ingress: Option<DirectionRules>,
    egress: Option<DirectionRules>,
    /// Whether the policy's own namespace is replaced by the placeholder.
    namespace_relative: bool,
    /// Whether lines are relative to the policy's own line.
    line_relative: bool,
}

impl Hash for PolicyBody {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tier.hash(state);
        self.precedence.rank.hash(state);
        match self.precedence.order {
            Order::At(number) => number.to_bits().hash(state),
            Order::Last => 0.hash(state),
        }
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

#[derive(Clone, Copy, Debug)]
struct PolicyRecord {
    /// The interned namespace, name and [`PolicyKind`].
    name: (u32, u32, u32),
    /// The number of the body; `NONE` once it is deleted.
    body: u32,
    /// Where the policy was written: file and line; `NONE` as the file where that is not known.
    file: u32,
    line: u32,
}

/// What an update changed in a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyEdit {
    /// Its subject.
    pub(crate) subject: bool,
    /// Its tier or precedence.
    pub(crate) order: bool,
    /// Its rules.
    pub(crate) rules: bool,
}

impl PolicyEdit {
    const ALL: PolicyEdit = PolicyEdit {
        subject: true,
        order: true,
        rules: true,
    };

    /// The union of both edits.
    pub(crate) fn union(self, other: PolicyEdit) -> PolicyEdit {
        PolicyEdit {
            subject: self.subject || other.subject,
            order: self.order || other.order,
            rules: self.rules || other.rules,
        }
    }
}

/// Group, kind and part of a policy name.
type PolicyKind = (Str, Str, u8);

/// All policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    records: ChunkedVec<Option<PolicyRecord>>,
    free: Vec<u32>,
    numbers: HashMap<(u32, u32, u32), u32>,
    /// The number of policies that are not deleted.
    live_count: usize,
    names: InternPool<Str>,
    kinds: InternPool<PolicyKind>,
    subjects: InternPool<Selector>,
    bodies: InternPool<PolicyBody>,
    /// Bodies replaced since the last flush, kept until it is over; below, numbers that may be free
    /// then.
    retired_bodies: Vec<u32>,
    deleted: Vec<u32>,
    /// Bodies that the next policy of the same name is likely to have, by a part of a hash of the
    /// name.
    likely_bodies: Vec<u32>,
    placeholder: Option<Str>,
}

impl Policies {
    /// The number of policies.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// Numbers of interned values: names, kinds, subjects, bodies.
    pub(crate) fn pool_sizes(&self) -> [usize; 4] {
        [
            self.names.len(),
            self.kinds.len(),
            self.subjects.len(),
            self.bodies.len(),
        ]
    }

    /// Inserts or replaces a policy. Returns its number and what changed; `None` if nothing did.
    pub(crate) fn upsert(&mut self, policy: Policy) -> Option<(PolicyNumber, PolicyEdit)> {
        let number = self.intern_name(&policy.id);
        let line = policy.line.clone();
        let shape = self.intern_body(number, policy);
        let (file, line) = match line {
            Some(SourceLine { file, line }) => {
                let name = self.names.acquire_with::<str>(&file, || file.clone());
                (name, line)
            }
            None => (NONE, 0),
        };
        let record = self.records.get_mut(number)?.as_mut()?;
        let was = core::mem::replace(&mut record.file, file);
        record.line = line;
        if was != NONE {
            self.names.release(was);
        }
        let old = core::mem::replace(&mut record.body, shape);
        if old == shape {
            self.bodies.release(old);
            return None;
        }
        if old == NONE {
            self.live_count += 1;
            return Some((number, PolicyEdit::ALL));
        }
        self.retired_bodies.push(old);
        let (old, new) = (self.bodies.get(old)?, self.bodies.get(shape)?);
        let edit = PolicyEdit {
            subject: old.subject != new.subject || old.namespace_relative != new.namespace_relative,
            order: old.tier != new.tier || old.precedence != new.precedence,
            rules: true,
        };
        Some((number, edit))
    }

    /// Deletes a policy. Returns its number, which stays reserved until
    /// [`Policies::release_deleted`].
    pub(crate) fn remove(&mut self, id: &PolicyId) -> Option<(PolicyNumber, PolicyEdit)> {
        let number = self.find(id)?;
        let record = self.records.get_mut(number)?.as_mut()?;
        let shape = core::mem::replace(&mut record.body, NONE);
        self.retired_bodies.push(shape);
        self.deleted.push(number);
        self.live_count -= 1;
        Some((number, PolicyEdit::ALL))
    }

    /// Releases deleted policies and replaced bodies.
    pub(crate) fn release_deleted(&mut self) {
        for shape in core::mem::take(&mut self.retired_bodies) {
            self.release_body(shape);
        }
        for number in core::mem::take(&mut self.deleted) {
            let place = self.records.get_mut(number);
            let gone = place.and_then(|place| place.take_if(|record| record.body == NONE));
            let Some(record) = gone else { continue };
            self.numbers.remove(&record.name);
            let (namespace, name, kind) = record.name;
            for name in [namespace, name, record.file] {
                if name != NONE {
                    self.names.release(name);
                }
            }
            self.kinds.release(kind);
            self.free.push(number);
        }
        if self.free.len() == self.records.len() {
            *self = Policies::default();
        }
    }

    fn release_body(&mut self, shape: u32) {
        if let Some(gone) = self.bodies.release(shape) {
            self.subjects.release(gone.subject);
        }
    }

    /// The number of a policy name, new or known.
    fn intern_name(&mut self, id: &PolicyId) -> PolicyNumber {
        let ObjectId {
            namespace,
            name,
            group,
            kind,
        } = &id.object;
        let mut name_of = |name: &Str| self.names.acquire_with::<str>(name, || name.clone());
        let namespace = namespace.as_ref().map_or(NONE, &mut name_of);
        let name = name_of(name);
        let kind = self.kinds.acquire((group.clone(), kind.clone(), id.part));
        let key = (namespace, name, kind);
        if let Some(number) = self.numbers.get(&key) {
            for name in [namespace, name] {
                if name != NONE {
                    self.names.release(name);
                }
            }
            self.kinds.release(kind);
            return *number;
        }
        let record = Some(PolicyRecord {
            name: key,
            body: NONE,
            file: NONE,
            line: 0,
        });
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.records.get_mut(number) {
                    *place = record;
                }
                number
            }
            None => self.records.push(record),
        };
        self.numbers.insert(key, number);
        number
    }

    /// Interns the body of a policy; counts one use more. A tool that writes policies for every
    /// namespace gives those of one content the same name: the last body of that name is compared
    /// first, which takes less than to build and hash a body.
    fn intern_body(&mut self, number: PolicyNumber, policy: Policy) -> u32 {
        let name = self
            .record(number)
            .map(|record| (record.name.1, record.name.2));
        let [hint, ..] = hash(&name).to_le_bytes();
        let hint = usize::from(hint);
        self.likely_bodies.resize(LIKELY_BODIES, NONE);
        let likely = self.likely_bodies[hint];
        if self.has_body(&policy, likely) {
            self.bodies.retain(likely);
            return likely;
        }
        let body = self.build_body(policy);
        self.likely_bodies[hint] = body;
        body
    }

    /// Whether a policy has this body, which is relative to namespace and line.
    fn has_body(&self, policy: &Policy, body: u32) -> bool {
        let Policy {
            id,
            tier,
            precedence,
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
            mut subject,
            mut ingress,
            mut egress,
            line,
        } = policy;
        let here = self
            .placeholder
            .get_or_insert_with(|| PLACEHOLDER.into())
            .clone();
        let namespace = id.object.namespace.filter(|own| **own != *PLACEHOLDER);
        let both = || ingress.iter().chain(&egress);
        let relative = namespace.as_ref().is_some_and(|own| {
            let selectors = both().flat_map(relative::selectors);
            relative::can_be_relative(&subject, own)
                && selectors
                    .into_iter()
                    .all(|s| relative::can_be_relative(s, own))
        });
        let lined = line.as_ref().is_some_and(|own| {
            let mut lines = both().flat_map(relative::lines);
            lines.all(|line| line.file == own.file)
        });
        if let Some(own) = namespace.filter(|_| relative) {
            relative::replace_namespace(&mut subject, &own, &here);
            for selector in ingress
                .iter_mut()
                .chain(&mut egress)
                .flat_map(relative::selectors_mut)
            {
                relative::replace_namespace(selector, &own, &here);
            }
        }
        if let Some(own) = line.filter(|_| lined) {
            for line in ingress
                .iter_mut()
                .chain(&mut egress)
                .flat_map(relative::lines_mut)
            {
                line.line = line.line.wrapping_sub(own.line);
                line.file = here.clone();
            }
        }
        let subject = self.subjects.acquire(subject);
        let before = self.bodies.len();
        let shape = self.bodies.acquire(PolicyBody {
            tier,
            precedence,
            subject,
            ingress,
            egress,
            namespace_relative: relative,
            line_relative: lined,
        });
        if self.bodies.len() == before {
            // The body was interned before and counts its subject already.
            self.subjects.release(subject);
        }
        shape
    }

    fn record(&self, number: PolicyNumber) -> Option<&PolicyRecord> {
        self.records.get(number)?.as_ref()
    }

    /// The number of a policy that exists.
    pub(crate) fn find(&self, id: &PolicyId) -> Option<PolicyNumber> {
        let object = &id.object;
        let namespace = match &object.namespace {
            Some(name) => self.names.find::<str>(name)?,
            None => NONE,
        };
        let name = self.names.find::<str>(&object.name)?;
        let kind = (object.group.clone(), object.kind.clone(), id.part);
        let kind = self.kinds.find(&kind)?;
        let number = *self.numbers.get(&(namespace, name, kind))?;
        let record = self.record(number)?;
        (record.body != NONE).then_some(number)
    }

    /// The name of a policy.
    pub(crate) fn id(&self, number: PolicyNumber) -> Option<PolicyId> {
        let (namespace, name, kind) = self.record(number)?.name;
        let (group, kind, part) = self.kinds.get(kind)?;
        Some(PolicyId {
            object: ObjectId {
                namespace: self.names.get(namespace).cloned(),
                name: self.names.get(name)?.clone(),
                group: group.clone(),
                kind: kind.clone(),
            },
            part: *part,
        })
    }

    /// Compares the names of two policies.
    pub(crate) fn compare_names(&self, a: PolicyNumber, b: PolicyNumber) -> Ordering {
        let name = |number| {
            let (namespace, name, kind) = self.record(number)?.name;
            let namespace = self.names.get(namespace);
            Some((namespace, self.names.get(name)?, self.kinds.get(kind)?))
        };
        if a == b {
            return Ordering::Equal;
        }
        name(a).cmp(&name(b))
    }

    /// The body of a policy; `None` if it is deleted.
    pub(crate) fn body(&self, number: PolicyNumber) -> Option<&PolicyBody> {
        self.bodies.get(self.record(number)?.body)
    }

    /// What distinguishes bodies as evaluated: the body number and the namespace it is relative to.
    pub(crate) fn body_key(&self, number: PolicyNumber) -> Option<(u32, u32)> {
        let record = self.record(number)?;
        let shape = self.bodies.get(record.body)?;
        let own = if shape.namespace_relative {
            record.name.0
        } else {
            NONE
        };
        Some((record.body, own))
    }

    /// The namespace that a policy's rules and subject are relative to.
    pub(crate) fn base_namespace(&self, number: PolicyNumber) -> Option<&Str> {
        let (_, own) = self.body_key(number)?;
        self.names.get(own)
    }

    /// The namespace of a policy, number and name, also of one that was just deleted.
    pub(crate) fn namespace(&self, number: PolicyNumber) -> Option<(u32, &Str)> {
        let (own, ..) = self.record(number)?.name;
        Some((own, self.names.get(own)?))
    }

    /// The number of a name or namespace of some policy.
    pub(crate) fn find_name(&self, name: &str) -> Option<u32> {
        self.names.find(name)
    }

    /// The subject of a policy and its number, relative to [`Policies::base_namespace`].
    pub(crate) fn subject(&self, number: PolicyNumber) -> Option<(u32, &Selector)> {
        let subject = self.body(number)?.subject;
        Some((subject, self.subjects.get(subject)?))
    }

    /// Whether a policy selects an endpoint with these labels.
    pub(crate) fn selects(&self, number: PolicyNumber, labels: &impl LabelLookup) -> bool {
        let Some((_, subject)) = self.subject(number) else {
            return false;
        };
        match self.base_namespace(number) {
            Some(own) => subject.matches(&RelativeLabels {
                labels,
                namespace: own,
            }),
            None => subject.matches(labels),
        }
    }

    /// A selector of a policy with the policy's namespace in place of the placeholder.
    pub(crate) fn absolute_selector(&self, number: PolicyNumber, selector: &Selector) -> Selector {
        let mut absolute = selector.clone();
        if let Some(own) = self.base_namespace(number) {
            relative::replace_namespace(&mut absolute, PLACEHOLDER, own);
        }
        absolute
    }

    /// A policy exactly as it was given.
    pub(crate) fn get(&self, number: PolicyNumber) -> Option<Policy> {
        let shape = self.body(number)?;
        let record = self.record(number)?;
        let line = self.names.get(record.file).map(|file| SourceLine {
            file: file.clone(),
            line: record.line,
        });
        let rules = |rules: &Option<DirectionRules>| {
            let mut rules = rules.clone()?;
            if let Some(own) = self.base_namespace(number) {
                for selector in relative::selectors_mut(&mut rules) {
                    relative::replace_namespace(selector, PLACEHOLDER, own);
                }
            }
            if let Some(own) = line.as_ref().filter(|_| shape.line_relative) {
                for line in relative::lines_mut(&mut rules) {
                    line.file = own.file.clone();
                    line.line = line.line.wrapping_add(own.line);
                }
            }
            Some(rules)
        };
        Some(Policy {
            id: self.id(number)?,
            tier: shape.tier.clone(),
            precedence: shape.precedence,
            subject: self.absolute_selector(number, self.subject(number)?.1),
            ingress: rules(&shape.ingress),
            egress: rules(&shape.egress),
            line,
        })
    }

    /// The numbers of all policies.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PolicyNumber> + '_ {
        let all = self.records.iter().map(|(number, _)| number);
        all.filter(|number| self.body(*number).is_some())
    }

    /// All policies exactly as they were given, by name.
    pub(crate) fn all(&self) -> BTreeMap<PolicyId, Policy> {
        let policies = self.numbers().filter_map(|number| self.get(number));
        policies.map(|policy| (policy.id.clone(), policy)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use palisade_model::{
        Action, LabelKey, Namespace, Peer, Rule, RuleOrigin, TrafficMatch, reserved,
    };

    fn named(namespace: &str, key: LabelKey) -> Selector {
        Selector::equals(key, namespace)
    }

    fn policy(namespace: &str, peer: Selector, line: u32) -> Policy {
        let at = |line| {
            Some(SourceLine {
                file: "a.yaml".into(),
                line,
            })
        };
        let rule = Rule {
            origin: RuleOrigin {
                index: 0,
                name: None,
                fingerprint: 0,
                line: at(line + 7),
            },
            action: Action::Allow,
            peers: vec![Peer::from_selector(peer)],
            own: None,
            traffic: vec![TrafficMatch::any()],
        };
        Policy {
            id: PolicyId {
                object: ObjectId {
                    namespace: Some(namespace.into()),
                    name: "isolate".into(),
                    group: "".into(),
                    kind: "NetworkPolicy".into(),
                },
                part: 0,
            },
            tier: "default".into(),
            precedence: Precedence {
                order: Order::from_number(1000.0),
                rank: 1,
            },
            subject: named(namespace, LabelKey::reserved(reserved::NAMESPACE)),
            ingress: Some(DirectionRules {
                default_deny: true,
                rules: vec![rule],
            }),
            egress: None,
            line: at(line),
        }
    }

    fn own(namespace: &str) -> Selector {
        named(namespace, LabelKey::namespace(Namespace::NAME_LABEL))
    }

    #[test]
    fn policies_of_one_form_are_kept_once_and_come_back_as_given() {
        let mut policies = Policies::default();
        let given: Vec<Policy> = (0..5_u32)
            .map(|n| {
                let namespace = alloc::format!("tenant-{n}");
                policy(&namespace, own(&namespace), 10 * n)
            })
            .collect();
        for policy in &given {
            assert!(policies.upsert(policy.clone()).is_some());
            assert_eq!(
                policies.upsert(policy.clone()),
                None,
                "the same policy again"
            );
        }
        assert_eq!(policies.pool_sizes(), [7, 1, 1, 1]);
        let back: Vec<Policy> = policies.all().into_values().collect();
        assert_eq!(back, given);
        for policy in &given {
            assert!(policies.remove(&policy.id).is_some());
            assert_eq!(policies.remove(&policy.id), None);
        }
        policies.release_deleted();
        assert_eq!((policies.len(), policies.pool_sizes()), (0, [0; 4]));
    }

    #[test]
    fn what_cannot_be_relative_is_kept_as_written() {
        let key = LabelKey::namespace(Namespace::NAME_LABEL);
        let peers = [
            Selector::StartsWith(key.clone(), "tenant-0".into()),
            Selector::is_in(key.clone(), ["tenant-0".into(), "b".into()]),
            Selector::equals(key.clone(), PLACEHOLDER),
            Selector::negate(own("tenant-0")),
            Selector::equals(LabelKey::own("app"), "tenant-0"),
        ];
        for peer in peers {
            let mut policies = Policies::default();
            let mut given = policy("tenant-0", peer, 3);
            policies.upsert(given.clone());
            let number = policies.find(&given.id).unwrap();
            assert_eq!(policies.get(number), Some(given.clone()));
            given.line = None;
            let edit = policies.upsert(given.clone()).unwrap().1;
            assert!(!edit.subject && !edit.order && edit.rules);
            assert_eq!(policies.get(number), Some(given));
        }
    }

    #[test]
    fn a_policy_that_returns_before_the_flush_keeps_its_number() {
        let mut policies = Policies::default();
        let given = policy("a", own("a"), 1);
        let (number, edit) = policies.upsert(given.clone()).unwrap();
        assert_eq!(edit, PolicyEdit::ALL);
        policies.remove(&given.id);
        assert_eq!(policies.find(&given.id), None);
        assert_eq!(
            policies.upsert(given.clone()),
            Some((number, PolicyEdit::ALL))
        );
        policies.release_deleted();
        assert_eq!(policies.get(number), Some(given.clone()));
        policies.remove(&given.id);
        policies.release_deleted();
        assert_eq!(policies.get(number), None);
    }
}
