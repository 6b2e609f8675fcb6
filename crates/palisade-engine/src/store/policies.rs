//! All policies by number, with their bodies interned.
//!
//! A *body* is a policy without its name, relative to its namespace and its line; equal bodies are
//! kept once. Policies are given back exactly as they came. A deleted policy keeps its number until
//! the flush has processed the deletion. What a policy selects is not known here. Names are in the
//! pool of the holders' names, which callers pass: a namespace has one number everywhere.

use super::chunked_vec::ChunkedVec;
use super::holder_store::NONE;
use super::policy_bodies::{PolicyBodies, PolicyBody};
use super::pool::{InternPool, hash};
use super::relative::{self, PLACEHOLDER, RelativeLabels};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Deref;
use palisade_model::{
    DirectionRules, LabelLookup, ObjectId, ObjectKind, Policy, PolicyId, PolicyMode, Selector,
    SourceLine, Str,
};

/// The number of a policy name.
pub(crate) type PolicyNumber = u32;

#[derive(Clone, Copy, Debug)]
struct PolicyRecord {
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

/// Kind and part of a policy name.
type PolicyKind = (ObjectKind, u32);

/// All policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// Namespace, name and [`PolicyKind`], each interned.
    numbers: InternPool<(u32, u32, u32)>,
    /// By number, also of numbers that are free.
    records: ChunkedVec<PolicyRecord>,
    /// The number of policies that are not deleted.
    live_count: usize,
    /// The number of those that are in audit.
    audit_count: usize,
    kinds: InternPool<PolicyKind>,
    /// The kind of the last policy, likely to be that of the next one.
    last_kind: u32,
    bodies: PolicyBodies,
    /// Bodies replaced since the last flush, kept until it is over; below, numbers that may be free
    /// then.
    retired_bodies: Vec<u32>,
    deleted: Vec<u32>,
}

impl Policies {
    /// The number of policies.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// The number of policies in audit.
    pub(crate) fn audit_count(&self) -> usize {
        self.audit_count
    }

    fn is_audit_body(&self, body: u32) -> bool {
        let body = self.bodies.get(body);
        body.is_some_and(|body| body.mode == PolicyMode::Audit)
    }

    /// The policies with the pool of their names.
    pub(crate) fn named<'a>(&'a self, names: &'a InternPool<Str>) -> NamedPolicies<'a> {
        NamedPolicies {
            policies: self,
            names,
        }
    }

    /// Numbers of interned values: kinds, subjects, bodies.
    pub(crate) fn pool_sizes(&self) -> [usize; 3] {
        [
            self.kinds.len(),
            self.bodies.subject_count(),
            self.bodies.len(),
        ]
    }

    /// Inserts or replaces a policy. Returns its number and what changed; `None` if nothing did.
    pub(crate) fn upsert(
        &mut self,
        names: &mut InternPool<Str>,
        policy: Policy,
    ) -> Option<(PolicyNumber, PolicyEdit)> {
        let number = self.intern_name(names, &policy.id);
        let line = policy.line.clone();
        let name = self.numbers.get(number).map(|(_, name, kind)| (name, kind));
        let shape = self.bodies.acquire(hash(&name), policy);
        let (file, line) = match line {
            Some(SourceLine { file, line }) => {
                (names.acquire_with::<str>(&file, || file.clone()), line)
            }
            None => (NONE, 0),
        };
        let record = self.records.get_mut(number)?;
        let was = core::mem::replace(&mut record.file, file);
        record.line = line;
        names.release(was);
        let old = core::mem::replace(&mut record.body, shape);
        if old == shape {
            self.bodies.release(old);
            return None;
        }
        self.audit_count -= usize::from(self.is_audit_body(old));
        self.audit_count += usize::from(self.is_audit_body(shape));
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

    /// Deletes a policy. Its number stays reserved until [`Policies::release_deleted`].
    pub(crate) fn remove(&mut self, number: PolicyNumber) -> Option<PolicyEdit> {
        let record = self.records.get_mut(number)?;
        let shape = core::mem::replace(&mut record.body, NONE);
        self.audit_count -= usize::from(self.is_audit_body(shape));
        self.retired_bodies.push(shape);
        self.deleted.push(number);
        self.live_count -= 1;
        Some(PolicyEdit::ALL)
    }

    /// Releases deleted policies and replaced bodies.
    pub(crate) fn release_deleted(&mut self, names: &mut InternPool<Str>) {
        for shape in core::mem::take(&mut self.retired_bodies) {
            self.bodies.release(shape);
        }
        for number in core::mem::take(&mut self.deleted) {
            let Some(record) = self.records.get(number).filter(|of| of.body == NONE) else {
                continue;
            };
            let Some((namespace, name, kind)) = self.numbers.release(number) else {
                continue;
            };
            for name in [namespace, name, record.file] {
                names.release(name);
            }
            self.kinds.release(kind);
        }
        if self.numbers.len() == 0 {
            *self = Policies::default();
        }
    }

    /// The number of a policy name, new or known.
    fn intern_name(&mut self, names: &mut InternPool<Str>, id: &PolicyId) -> PolicyNumber {
        let ObjectId {
            namespace,
            name,
            kind,
        } = &id.object;
        let mut acquire = |name: &Str| names.acquire_with::<str>(name, || name.clone());
        let namespace = namespace.as_ref().map_or(NONE, &mut acquire);
        let name = acquire(name);
        let kind = self.acquire_kind(kind, id.part);
        let before = self.numbers.len();
        let number = self.numbers.acquire((namespace, name, kind));
        if self.numbers.len() == before {
            // The name was interned before and counts its parts already.
            self.numbers.release(number);
            names.release(namespace);
            names.release(name);
            self.kinds.release(kind);
            return number;
        }
        let record = PolicyRecord {
            body: NONE,
            file: NONE,
            line: 0,
        };
        match self.records.get_mut(number) {
            Some(free) => *free = record,
            None => drop(self.records.push(record)),
        }
        number
    }

    fn acquire_kind(&mut self, kind: &ObjectKind, part: u32) -> u32 {
        let last = self.kinds.get(self.last_kind);
        if last.is_some_and(|last| (&last.0, last.1) == (kind, part)) {
            self.kinds.retain(self.last_kind);
        } else {
            self.last_kind = self.kinds.acquire((kind.clone(), part));
        }
        self.last_kind
    }

    /// The body of a policy; `None` if it is deleted.
    pub(crate) fn body(&self, number: PolicyNumber) -> Option<&PolicyBody> {
        self.bodies.get(self.records.get(number)?.body)
    }

    /// What distinguishes bodies as evaluated: the body number and the namespace it is relative to.
    pub(crate) fn body_key(&self, number: PolicyNumber) -> Option<(u32, u32)> {
        let body = self.records.get(number)?.body;
        let own = match self.bodies.get(body)?.namespace_relative {
            true => self.numbers.get(number)?.0,
            false => NONE,
        };
        Some((body, own))
    }

    /// The subject of a policy and its number, relative to [`Policies::base_namespace`].
    pub(crate) fn subject(&self, number: PolicyNumber) -> Option<(u32, &Selector)> {
        self.bodies.subject(self.records.get(number)?.body)
    }

    /// The numbers of all policies.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PolicyNumber> + '_ {
        let all = self.numbers.iter().map(|(number, _)| number);
        all.filter(|number| self.body(*number).is_some())
    }
}

/// All policies, with the pool of their names.
#[derive(Clone, Copy)]
pub(crate) struct NamedPolicies<'a> {
    policies: &'a Policies,
    names: &'a InternPool<Str>,
}

impl<'a> Deref for NamedPolicies<'a> {
    type Target = Policies;

    fn deref(&self) -> &Policies {
        self.policies
    }
}

impl<'a> NamedPolicies<'a> {
    /// The number of a policy that exists.
    pub(crate) fn find(&self, id: &PolicyId) -> Option<PolicyNumber> {
        let object = &id.object;
        let namespace = match &object.namespace {
            Some(name) => self.names.find::<str>(name)?,
            None => NONE,
        };
        let name = self.names.find::<str>(&object.name)?;
        let kind = (object.kind.clone(), id.part);
        let kind = self.kinds.find(&kind)?;
        let number = self.numbers.find(&(namespace, name, kind))?;
        self.body(number).map(|_| number)
    }

    /// The name of a policy.
    pub(crate) fn id(&self, number: PolicyNumber) -> Option<PolicyId> {
        let (namespace, name, kind) = *self.numbers.get(number)?;
        let (kind, part) = self.kinds.get(kind)?;
        Some(PolicyId {
            object: ObjectId {
                namespace: self.names.get(namespace).cloned(),
                name: self.names.get(name)?.clone(),
                kind: kind.clone(),
            },
            part: *part,
        })
    }

    /// The file that a policy is in.
    pub(crate) fn file(&self, number: PolicyNumber) -> Option<&'a Str> {
        let record = self.policies.records.get(number)?;
        self.names.get(record.file)
    }

    /// Compares the names of two policies.
    pub(crate) fn compare_names(&self, a: PolicyNumber, b: PolicyNumber) -> Ordering {
        let name = |number| {
            let (namespace, name, kind) = *self.numbers.get(number)?;
            let namespace = self.names.get(namespace);
            Some((namespace, self.names.get(name)?, self.kinds.get(kind)?))
        };
        if a == b {
            return Ordering::Equal;
        }
        name(a).cmp(&name(b))
    }

    /// The namespace that a policy's rules and subject are relative to.
    pub(crate) fn base_namespace(&self, number: PolicyNumber) -> Option<&'a Str> {
        let (_, own) = self.body_key(number)?;
        self.names.get(own)
    }

    /// The namespace of a policy, number and name, also of one that was just deleted.
    pub(crate) fn namespace(&self, number: PolicyNumber) -> Option<(u32, &'a Str)> {
        let (own, ..) = *self.numbers.get(number)?;
        Some((own, self.names.get(own)?))
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

    /// A name of a namespace in a selector of a policy, with the policy's namespace in place of the
    /// placeholder.
    pub(crate) fn absolute_namespace(&self, number: PolicyNumber, name: &'a Str) -> &'a Str {
        match self.base_namespace(number) {
            Some(own) if **name == *PLACEHOLDER => own,
            _ => name,
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
        let record = self.records.get(number)?;
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
            mode: shape.mode,
            subject: self.absolute_selector(number, self.subject(number)?.1),
            ingress: rules(&shape.ingress),
            egress: rules(&shape.egress),
            line,
        })
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
        Action, LabelKey, Namespace, Order, Peer, Precedence, Rule, RuleOrigin, TrafficMatch,
        reserved,
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
                    kind: ObjectKind::new("", "NetworkPolicy"),
                },
                part: 0,
            },
            tier: "default".into(),
            precedence: Precedence {
                order: Order::from_number(1000.0),
                rank: 1,
            },
            mode: PolicyMode::Enforce,
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
        let names = &mut InternPool::default();
        let given: Vec<Policy> = (0..5_u32)
            .map(|n| {
                let namespace = alloc::format!("tenant-{n}");
                policy(&namespace, own(&namespace), 10 * n)
            })
            .collect();
        for policy in &given {
            assert!(policies.upsert(names, policy.clone()).is_some());
            assert_eq!(
                policies.upsert(names, policy.clone()),
                None,
                "the same policy again"
            );
        }
        assert_eq!((names.len(), policies.pool_sizes()), (7, [1; 3]));
        let back: Vec<Policy> = policies.named(names).all().into_values().collect();
        assert_eq!(back, given);
        for policy in &given {
            let number = policies.named(names).find(&policy.id).unwrap();
            assert_eq!(policies.remove(number), Some(PolicyEdit::ALL));
            assert_eq!(policies.named(names).find(&policy.id), None);
        }
        policies.release_deleted(names);
        assert_eq!((policies.len(), names.len()), (0, 0));
        assert_eq!(policies.pool_sizes(), [0; 3]);
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
            let names = &mut InternPool::default();
            let mut given = policy("tenant-0", peer, 3);
            policies.upsert(names, given.clone());
            let number = policies.named(names).find(&given.id).unwrap();
            assert_eq!(policies.named(names).get(number), Some(given.clone()));
            given.line = None;
            let edit = policies.upsert(names, given.clone()).unwrap().1;
            assert!(!edit.subject && !edit.order && edit.rules);
            assert_eq!(policies.named(names).get(number), Some(given));
        }
    }

    #[test]
    fn policies_in_audit_are_counted_as_they_change() {
        let mut policies = Policies::default();
        let names = &mut InternPool::default();
        let moded = |namespace: &str, mode| Policy {
            mode,
            ..policy(namespace, own(namespace), 1)
        };
        let mut counts = Vec::new();
        for (namespace, mode) in [
            ("a", PolicyMode::Audit),
            ("b", PolicyMode::Enforce),
            ("a", PolicyMode::Audit),
            ("b", PolicyMode::Audit),
            ("a", PolicyMode::Enforce),
        ] {
            policies.upsert(names, moded(namespace, mode));
            counts.push(policies.audit_count());
        }
        let number = policies.named(names).find(&policy("b", own("b"), 1).id);
        policies.remove(number.unwrap());
        counts.push(policies.audit_count());
        policies.release_deleted(names);
        policies.upsert(names, moded("b", PolicyMode::Audit));
        counts.push(policies.audit_count());
        assert_eq!(counts, [1, 1, 1, 2, 1, 0, 1]);
    }

    #[test]
    fn a_policy_that_returns_before_the_flush_keeps_its_number() {
        let mut policies = Policies::default();
        let names = &mut InternPool::default();
        let given = policy("a", own("a"), 1);
        let (number, edit) = policies.upsert(names, given.clone()).unwrap();
        assert_eq!(edit, PolicyEdit::ALL);
        policies.remove(number);
        assert_eq!(policies.named(names).find(&given.id), None);
        assert_eq!(
            policies.upsert(names, given.clone()),
            Some((number, PolicyEdit::ALL))
        );
        policies.release_deleted(names);
        assert_eq!(policies.named(names).get(number), Some(given.clone()));
        policies.remove(number);
        policies.release_deleted(names);
        assert_eq!(policies.named(names).get(number), None);
    }
}
