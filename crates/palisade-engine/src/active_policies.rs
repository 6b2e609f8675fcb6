//! Active policies: which policies select which local endpoints.
//!
//! Has for each local endpoint the policies that select it, and for each policy and profile the
//! number of local endpoints it applies to. A policy whose subject names a namespace is evaluated
//! only for endpoints of that namespace; policies with the same subject are evaluated once.

use crate::address_owner_labels::AddressOwnerLabels;
use crate::store::{AddressOwnerStore, HashMap, NamedPolicies, PolicyEdit, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, LabelKey, LabelScope, LabelValues, Profile, Selector, State, Str,
    reserved,
};

/// The policies and profiles of a local endpoint.
#[derive(Debug, Default)]
struct LocalEndpoint {
    /// In order of their numbers.
    policies: Vec<PolicyNumber>,
    profiles: Vec<Str>,
}

/// The namespaces in which a policy can select endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SubjectScope {
    /// The policy's own namespace only.
    OwnNamespace(Str),
    /// These namespaces only.
    Namespaces(Vec<Str>),
    /// Any namespace.
    Anywhere(SubjectKey),
}

/// What distinguishes subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubjectKey {
    /// The number of the interned selector.
    subject: u32,
    /// The namespace that it is relative to, by the number of its name.
    namespace: u32,
}

/// The local endpoints that a subject selects, and policies with it that had selected none.
struct SubjectSelection {
    endpoints: BTreeSet<EndpointId>,
    begun: Vec<PolicyNumber>,
}

/// The policies and profiles that apply to local endpoints.
#[derive(Debug, Default)]
pub(crate) struct ActivePolicies {
    locals: BTreeMap<EndpointId, LocalEndpoint>,
    /// Local endpoints by namespace.
    locals_by_namespace: BTreeMap<Str, BTreeSet<EndpointId>>,
    selected: HashMap<PolicyNumber, usize>,
    profiles: BTreeMap<Str, usize>,
    /// Policies that can select only in their own namespace, by its number.
    by_own_namespace: BTreeSet<(u32, PolicyNumber)>,
    /// Policies that can select only in certain namespaces.
    by_namespace: BTreeSet<(Str, PolicyNumber)>,
    /// All other policies, by subject.
    by_subject: BTreeSet<(SubjectKey, PolicyNumber)>,
    /// The scope of each policy, except those confined to their own namespace.
    scopes: HashMap<PolicyNumber, SubjectScope>,
}

/// Changes of one recomputation.
#[derive(Debug, Default)]
pub(crate) struct ActivePolicyChanges {
    /// Local endpoints, also removed ones, whose policies or profiles changed.
    pub(crate) locals: BTreeSet<EndpointId>,
    /// Policies that may have become active or inactive.
    pub(crate) policies: BTreeSet<PolicyNumber>,
    /// Profiles that may have become active or inactive.
    pub(crate) profiles: BTreeSet<Str>,
}

/// Whether an endpoint is attached to this host.
pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.interface.is_some() && !endpoint.is_template()
}

impl ActivePolicies {
    /// The policies that select a local endpoint; `None` if there is no such endpoint.
    pub(crate) fn policies_of(&self, endpoint: &EndpointId) -> Option<&[PolicyNumber]> {
        self.locals.get(endpoint).map(|local| &*local.policies)
    }

    /// The local endpoints, by name.
    pub(crate) fn local_endpoints(&self) -> impl Iterator<Item = &EndpointId> {
        self.locals.keys()
    }

    /// The local endpoints that a policy selects.
    pub(crate) fn endpoints_selected_by(
        &self,
        policy: PolicyNumber,
    ) -> impl Iterator<Item = &EndpointId> {
        let locals = self.locals.iter();
        locals
            .filter(move |(_, local)| local.policies.binary_search(&policy).is_ok())
            .map(|(id, _)| id)
    }

    /// The local endpoints that name a profile.
    pub(crate) fn endpoints_with_profile(
        &self,
        profile: &Str,
    ) -> impl Iterator<Item = &EndpointId> {
        let locals = self.locals.iter();
        locals
            .filter(|(_, local)| local.profiles.contains(profile))
            .map(|(id, _)| id)
    }

    /// Whether a policy selects a local endpoint.
    pub(crate) fn is_active(&self, policy: PolicyNumber) -> bool {
        self.selected.contains_key(&policy)
    }

    /// The number of policies that select a local endpoint.
    pub(crate) fn active_count(&self) -> usize {
        self.selected.len()
    }

    /// Whether a local endpoint names a profile.
    pub(crate) fn is_profile_active(&self, profile: &Str) -> bool {
        self.profiles.contains_key(profile)
    }

    /// Recomputes changed policies and endpoints.
    pub(crate) fn recompute(
        &mut self,
        state: &State,
        store: &AddressOwnerStore,
        policies: NamedPolicies<'_>,
        edits: &BTreeMap<PolicyNumber, PolicyEdit>,
        endpoints: &BTreeSet<EndpointId>,
    ) -> ActivePolicyChanges {
        let mut changes = ActivePolicyChanges::default();
        let mut subjects = BTreeMap::new();
        for (number, edit) in edits {
            if !edit.subject {
                changes.policies.insert(*number);
                continue;
            }
            self.unindex(policies, *number);
        }
        for id in endpoints {
            self.update_endpoint(state, store, policies, id, &mut changes);
        }
        for (number, edit) in edits {
            if edit.subject {
                let reach = self.index(policies, *number);
                self.update_policy(store, policies, *number, reach, &mut subjects, &mut changes);
            }
        }
        for SubjectSelection { endpoints, begun } in subjects.values() {
            self.add_selected(endpoints, begun, &mut changes);
        }
        changes
    }

    /// Adds policies to the endpoints that they select.
    fn add_selected(
        &mut self,
        endpoints: &BTreeSet<EndpointId>,
        policies: &[PolicyNumber],
        changes: &mut ActivePolicyChanges,
    ) {
        if policies.is_empty() {
            return;
        }
        for id in endpoints {
            let Some(local) = self.locals.get_mut(id) else {
                continue;
            };
            let before = local.policies.len();
            for number in policies {
                if let Err(at) = local.policies.binary_search(number) {
                    local.policies.insert(at, *number);
                    adjust_count(&mut self.selected, number, true);
                }
            }
            if local.policies.len() > before {
                changes.locals.insert(id.clone());
            }
        }
    }

    fn update_policy(
        &mut self,
        store: &AddressOwnerStore,
        policies: NamedPolicies<'_>,
        number: PolicyNumber,
        reach: Option<SubjectScope>,
        subjects: &mut BTreeMap<SubjectKey, SubjectSelection>,
        changes: &mut ActivePolicyChanges,
    ) {
        let selects = |id: &EndpointId| {
            let labels = AddressOwnerLabels::endpoint(store, id);
            labels.is_some_and(|labels| policies.selects(number, &labels))
        };
        let was_active = self.selected.contains_key(&number);
        let once;
        let now: &BTreeSet<EndpointId> = match reach {
            None => {
                once = BTreeSet::new();
                &once
            }
            Some(SubjectScope::OwnNamespace(name)) => {
                let locals = self.locals_by_namespace.get(&name).into_iter().flatten();
                once = locals.filter(|id| selects(id)).cloned().collect();
                &once
            }
            Some(SubjectScope::Namespaces(names)) => {
                let places = names
                    .iter()
                    .filter_map(|name| self.locals_by_namespace.get(name));
                once = places.flatten().filter(|id| selects(id)).cloned().collect();
                &once
            }
            Some(SubjectScope::Anywhere(subject)) => {
                let selection = subjects.entry(subject).or_insert_with(|| {
                    let locals = self.locals.keys();
                    SubjectSelection {
                        endpoints: locals.filter(|id| selects(id)).cloned().collect(),
                        begun: Vec::new(),
                    }
                });
                if !was_active && !selection.endpoints.is_empty() {
                    changes.policies.insert(number);
                    selection.begun.push(number);
                    return;
                }
                &selection.endpoints
            }
        };
        if !was_active && now.is_empty() {
            return;
        }
        changes.policies.insert(number);
        if was_active {
            for (id, local) in &mut self.locals {
                if !now.contains(id)
                    && let Ok(at) = local.policies.binary_search(&number)
                {
                    local.policies.remove(at);
                    changes.locals.insert(id.clone());
                    adjust_count(&mut self.selected, &number, false);
                }
            }
        }
        self.add_selected(now, &[number], changes);
    }

    fn update_endpoint(
        &mut self,
        state: &State,
        store: &AddressOwnerStore,
        policies: NamedPolicies<'_>,
        id: &EndpointId,
        changes: &mut ActivePolicyChanges,
    ) {
        let now = state.endpoints.get(id).filter(|e| is_local(e));
        let previous = self.locals.remove(id);
        if previous.is_none() && now.is_none() {
            return;
        }
        changes.locals.insert(id.clone());
        self.index_endpoint(id, now.is_some());
        let old = previous.unwrap_or_default();
        let new = now.map_or_else(LocalEndpoint::default, |e| LocalEndpoint {
            policies: self
                .selecting_policies(store, policies, &e.id)
                .into_iter()
                .collect(),
            profiles: e.profiles.clone(),
        });
        for (these, others, more) in [
            (&new.policies, &old.policies, true),
            (&old.policies, &new.policies, false),
        ] {
            for policy in these {
                if others.binary_search(policy).is_err() {
                    adjust_count(&mut self.selected, policy, more);
                    changes.policies.insert(*policy);
                }
            }
        }
        for (profiles, more) in [(&new.profiles, true), (&old.profiles, false)] {
            let distinct: BTreeSet<&Str> = profiles.iter().collect();
            for profile in distinct {
                let count = self.profiles.entry(profile.clone()).or_default();
                *count = if more { *count + 1 } else { *count - 1 };
                if *count == 0 {
                    self.profiles.remove(profile);
                }
                changes.profiles.insert(profile.clone());
            }
        }
        if now.is_some() {
            self.locals.insert(id.clone(), new);
        }
    }

    fn index_endpoint(&mut self, id: &EndpointId, present: bool) {
        let Some(name) = &id.namespace else { return };
        let locals = self.locals_by_namespace.entry(name.clone()).or_default();
        if present {
            locals.insert(id.clone())
        } else {
            locals.remove(id)
        };
        if locals.is_empty() {
            self.locals_by_namespace.remove(name);
        }
    }

    /// The indexed policies that select an endpoint.
    fn selecting_policies(
        &self,
        store: &AddressOwnerStore,
        policies: NamedPolicies<'_>,
        endpoint: &EndpointId,
    ) -> BTreeSet<PolicyNumber> {
        let mut selecting = BTreeSet::new();
        let Some(labels) = AddressOwnerLabels::endpoint(store, endpoint) else {
            return selecting;
        };
        if let Some(name) = &endpoint.namespace {
            if let Some(own) = store.names().find::<str>(name) {
                let here = (own, PolicyNumber::MIN)..=(own, PolicyNumber::MAX);
                let home = self.by_own_namespace.range(here).map(|(_, number)| *number);
                selecting.extend(home.filter(|number| policies.selects(*number, &labels)));
            }
            let here = (name.clone(), PolicyNumber::MIN)..=(name.clone(), PolicyNumber::MAX);
            let bound = self.by_namespace.range(here).map(|(_, number)| *number);
            selecting.extend(bound.filter(|number| policies.selects(*number, &labels)));
        }
        let mut last = None;
        for (subject, number) in &self.by_subject {
            let selects = match last {
                Some((known, selects)) if known == subject => selects,
                _ => policies.selects(*number, &labels),
            };
            last = Some((subject, selects));
            if selects {
                selecting.insert(*number);
            }
        }
        selecting
    }

    /// Removes a policy from the index.
    fn unindex(&mut self, policies: NamedPolicies<'_>, number: PolicyNumber) {
        match self.scopes.remove(&number) {
            Some(SubjectScope::Anywhere(subject)) => {
                self.by_subject.remove(&(subject, number));
            }
            Some(SubjectScope::Namespaces(names)) => {
                for name in names {
                    self.by_namespace.remove(&(name, number));
                }
            }
            Some(SubjectScope::OwnNamespace(_)) | None => {
                if let Some((own, _)) = policies.namespace(number) {
                    self.by_own_namespace.remove(&(own, number));
                }
            }
        }
    }

    /// Adds a policy to the index and returns its scope.
    fn index(&mut self, policies: NamedPolicies<'_>, number: PolicyNumber) -> Option<SubjectScope> {
        let (subject, selector) = policies.subject(number)?;
        let Some(names) = required_namespaces(selector) else {
            let subject = SubjectKey {
                subject,
                namespace: policies.rules_key(number)?.namespace,
            };
            self.by_subject.insert((subject, number));
            self.scopes.insert(number, SubjectScope::Anywhere(subject));
            return Some(SubjectScope::Anywhere(subject));
        };
        let absolute_name = |name: &Str| policies.absolute_namespace(number, name).clone();
        if let Some((home, name)) = policies.namespace(number)
            && names.len() == 1
            && names.iter().all(|only| absolute_name(only) == *name)
        {
            self.by_own_namespace.insert((home, number));
            return Some(SubjectScope::OwnNamespace(name.clone()));
        }
        let names: Vec<Str> = names.iter().map(absolute_name).collect();
        for name in &names {
            self.by_namespace.insert((name.clone(), number));
        }
        let reach = SubjectScope::Namespaces(names);
        self.scopes.insert(number, reach.clone());
        Some(reach)
    }
}

fn adjust_count(counts: &mut HashMap<PolicyNumber, usize>, key: &PolicyNumber, increment: bool) {
    let count = counts.entry(*key).or_default();
    *count = if increment { *count + 1 } else { *count - 1 };
    if *count == 0 {
        counts.remove(key);
    }
}

/// The namespaces outside of which a selector matches nothing; `None` if it is not confined to any.
fn required_namespaces(selector: &Selector) -> Option<&LabelValues> {
    let is_name =
        |key: &LabelKey| key.scope == LabelScope::Reserved && &*key.name == reserved::NAMESPACE;
    match selector {
        Selector::In(key, values) if is_name(key) => Some(values),
        Selector::And(parts) => parts.iter().find_map(required_namespaces),
        _ => None,
    }
}

/// Whether a profile is the built-in one that allows everything.
pub(crate) fn is_builtin(profile: &str) -> bool {
    profile == Profile::ALLOW_ALL
}
