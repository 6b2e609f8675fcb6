//! All policies by number, with their bodies interned.
//!
//! A *body* is a policy without its name, relative to its namespace, or the one that its subject names, and
//! to its line; equal bodies are kept once. Policies are given back exactly as they came. A deleted policy keeps its number until
//! the flush has processed the deletion. What a policy selects is not known here. Names are in the
//! pool of the owners' names, which callers pass: a namespace has one number everywhere.

use super::chunked_vec::ChunkedVec;
use super::numbers::{NONE, PolicyNumber};
use super::policy_bodies::{BodyRules, PolicyBodies, PolicyBody};
use super::pool::{HashMap, InternPool, hash};
use super::relative::{self, PLACEHOLDER, RelativeLabels};
use crate::faults::EngineFault;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Deref;
use palisade_model::{
    DirectionRules, LabelLookup, ObjectId, ObjectKind, Policy, PolicyId, PolicyMode, Selector,
    SourceLine, Str,
};

#[derive(Clone, Copy, Debug)]
struct PolicyRecord {
    /// The number of the body; `NONE` once it is deleted.
    body: u32,
    /// Where the policy was written: file and line; `NONE` as the file where that is not known.
    file: u32,
    line: u32,
    /// The resource version of an object of a server; `NONE` in a file.
    version: u32,
}

/// What distinguishes rules as evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyRulesKey {
    /// The number of the interned rules.
    rules: u32,
    /// The namespace that they are relative to, by the number of its name; `NONE` if to none.
    pub(crate) namespace: u32,
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
    /// The namespaces that policies without one are relative to, by the numbers of their names.
    subject_namespaces: HashMap<PolicyNumber, u32>,
    /// Bodies and names of namespaces replaced since the last flush, kept until it is over; below, numbers
    /// that may be free then.
    retired_bodies: Vec<u32>,
    retired_names: Vec<u32>,
    deleted: Vec<PolicyNumber>,
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

    /// Numbers of interned values: kinds, subjects, rules, bodies.
    pub(crate) fn pool_sizes(&self) -> [usize; 4] {
        [
            self.kinds.len(),
            self.bodies.subject_count(),
            self.bodies.rules_count(),
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
        let name = self
            .numbers
            .get(number.0)
            .map(|(_, name, kind)| (name, kind));
        let before = self.rules_key(number);
        let acquired = self.bodies.acquire(hash(&name), policy);
        let shape = acquired.number;
        self.set_subject_namespace(names, number, acquired.subject_namespace);
        let mut acquire = |name: &Str| names.acquire_with::<str>(name, || name.clone());
        let file = line.as_ref().map_or(NONE, |line| acquire(&line.file));
        let version = line.as_ref().and_then(|line| line.version.as_ref());
        let version = version.map_or(NONE, acquire);
        let record = self.records.get_mut(number.0)?;
        let old_file = core::mem::replace(&mut record.file, file);
        let old_version = core::mem::replace(&mut record.version, version);
        record.line = line.map_or(0, |line| line.line);
        names.release(old_file);
        names.release(old_version);
        let old = core::mem::replace(&mut record.body, shape);
        let after = self.rules_key(number);
        if old == shape && before == after {
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
        let namespace = |key: Option<PolicyRulesKey>| key.map(|key| key.namespace);
        let edit = PolicyEdit {
            subject: old.subject != new.subject || namespace(before) != namespace(after),
            order: old.tier != new.tier
                || old.precedence != new.precedence
                || old.scope != new.scope,
            rules: true,
        };
        Some((number, edit))
    }

    /// Sets the namespace that a policy without one is relative to.
    fn set_subject_namespace(
        &mut self,
        names: &mut InternPool<Str>,
        number: PolicyNumber,
        namespace: Option<Str>,
    ) {
        let known = self.subject_namespaces.get(&number);
        if known.and_then(|known| names.get(*known)) == namespace.as_ref() {
            return;
        }
        let new = namespace.map(|name| names.acquire_with::<str>(&name, || name.clone()));
        let old = match new {
            Some(new) => self.subject_namespaces.insert(number, new),
            None => self.subject_namespaces.remove(&number),
        };
        self.retired_names.extend(old);
    }

    /// Deletes a policy. Its number stays reserved until [`Policies::release_deleted`].
    pub(crate) fn remove(&mut self, number: PolicyNumber) -> Option<PolicyEdit> {
        let record = self.records.get_mut(number.0)?;
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
        for name in core::mem::take(&mut self.retired_names) {
            names.release(name);
        }
        for number in core::mem::take(&mut self.deleted) {
            let Some(record) = self
                .records
                .get(number.0)
                .filter(|record| record.body == NONE)
            else {
                continue;
            };
            let Some((namespace, name, kind)) = self.numbers.release(number.0) else {
                continue;
            };
            let of_subject = self.subject_namespaces.remove(&number);
            for name in [namespace, name, record.file, record.version]
                .into_iter()
                .chain(of_subject)
            {
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
        let number = PolicyNumber(self.numbers.acquire((namespace, name, kind)));
        if self.numbers.len() == before {
            // The name was interned before and counts its parts already.
            self.numbers.release(number.0);
            names.release(namespace);
            names.release(name);
            self.kinds.release(kind);
            return number;
        }
        let record = PolicyRecord {
            body: NONE,
            file: NONE,
            line: 0,
            version: NONE,
        };
        match self.records.get_mut(number.0) {
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
        self.bodies.get(self.records.get(number.0)?.body)
    }

    /// The rules of a policy; `None` if it is deleted.
    pub(crate) fn rules(&self, number: PolicyNumber) -> Option<&BodyRules> {
        let (_, rules) = self.bodies.rules(self.records.get(number.0)?.body)?;
        Some(rules)
    }

    /// What distinguishes the rules of a policy as evaluated.
    pub(crate) fn rules_key(&self, number: PolicyNumber) -> Option<PolicyRulesKey> {
        let (rules_number, rules) = self.bodies.rules(self.records.get(number.0)?.body)?;
        let namespace = match (rules.namespace_relative, self.numbers.get(number.0)?.0) {
            (true, NONE) => *self.subject_namespaces.get(&number)?,
            (true, own) => own,
            (false, _) => NONE,
        };
        Some(PolicyRulesKey {
            rules: rules_number,
            namespace,
        })
    }

    /// The subject of a policy and its number, relative to [`Policies::base_namespace`].
    pub(crate) fn subject(&self, number: PolicyNumber) -> Option<(u32, &Selector)> {
        self.bodies.subject(self.records.get(number.0)?.body)
    }

    /// The numbers of all policies.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PolicyNumber> + '_ {
        let all = self.numbers.iter().map(|(number, _)| PolicyNumber(number));
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
        let number = PolicyNumber(self.numbers.find(&(namespace, name, kind))?);
        self.body(number).map(|_| number)
    }

    /// The name of a policy.
    pub(crate) fn id(&self, number: PolicyNumber) -> Option<PolicyId> {
        let (namespace, name, kind) = *self.numbers.get(number.0)?;
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
    pub(crate) fn resource(&self, number: PolicyNumber) -> Option<&'a Str> {
        let record = self.policies.records.get(number.0)?;
        let is_of_server = record.version != NONE;
        self.names.get(record.file).filter(|_| is_of_server)
    }

    /// Compares the names of two policies as [`PolicyId::cmp_by_name`] does.
    pub(crate) fn compare_names(&self, a: PolicyNumber, b: PolicyNumber) -> Ordering {
        let name = |number: PolicyNumber| {
            let (namespace, name, kind) = *self.numbers.get(number.0)?;
            let namespace = self.names.get(namespace);
            Some((self.names.get(name)?, namespace, self.kinds.get(kind)?))
        };
        if a == b {
            return Ordering::Equal;
        }
        let namespace = |number| Some(name(number)?.1);
        let by_namespace = if EngineFault::TieByNamespace.is_injected() {
            namespace(a).cmp(&namespace(b))
        } else {
            Ordering::Equal
        };
        by_namespace.then_with(|| name(a).cmp(&name(b)))
    }

    /// The namespace that a policy's rules and subject are relative to.
    pub(crate) fn base_namespace(&self, number: PolicyNumber) -> Option<&'a Str> {
        self.names.get(self.rules_key(number)?.namespace)
    }

    /// The namespace of a policy, number and name, also of one that was just deleted.
    pub(crate) fn namespace(&self, number: PolicyNumber) -> Option<(u32, &'a Str)> {
        let (own, ..) = *self.numbers.get(number.0)?;
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
        let own_rules = self.rules(number)?;
        let record = self.records.get(number.0)?;
        let line = self.names.get(record.file).map(|file| SourceLine {
            file: file.clone(),
            line: record.line,
            version: self.names.get(record.version).cloned(),
        });
        let rules = |rules: &Option<DirectionRules>| {
            let mut rules = rules.clone()?;
            if let Some(own) = self.base_namespace(number) {
                for selector in relative::selectors_mut(&mut rules) {
                    relative::replace_namespace(selector, PLACEHOLDER, own);
                }
            }
            if let Some(own) = line.as_ref().filter(|_| own_rules.line_relative) {
                for line in relative::lines_mut(&mut rules) {
                    *line = SourceLine {
                        line: line.line.wrapping_add(own.line),
                        ..own.clone()
                    };
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
            scope: shape.scope,
            observes_dns: shape.observes_dns,
            ingress: rules(&own_rules.ingress),
            egress: rules(&own_rules.egress),
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
mod tests;
