//! Activity: which policies select which local endpoints.
//!
//! Keeps, for every local endpoint, the policies that select it, and for every policy and profile
//! how many local endpoints it is about. A policy whose subject names a namespace is only tried on
//! endpoints of that namespace.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, LabelKey, Policy, PolicyId, Profile, Scope, Selector, State, Str,
    reserved,
};

/// What is known of a local endpoint.
#[derive(Debug, Default)]
struct Local {
    policies: BTreeSet<PolicyId>,
    profiles: Vec<Str>,
}

/// Which policies are about local endpoints.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    locals: BTreeMap<EndpointId, Local>,
    selected: BTreeMap<PolicyId, usize>,
    profiles: BTreeMap<Str, usize>,
    /// Policies by the namespace their subject asks for; `None` where it asks for none.
    by_namespace: BTreeMap<Option<Str>, BTreeSet<PolicyId>>,
    filed: BTreeMap<PolicyId, Vec<Option<Str>>>,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct ActivityChanges {
    /// Local endpoints, past and present, that other policies or profiles are about than before.
    pub(crate) locals: BTreeSet<EndpointId>,
    /// Policies that may have become active or inactive.
    pub(crate) policies: BTreeSet<PolicyId>,
    /// Profiles that may have become active or inactive.
    pub(crate) profiles: BTreeSet<Str>,
}

/// Whether an endpoint is attached to this host.
pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.interface.is_some() && !endpoint.template
}

impl Activity {
    /// The policies that select a local endpoint, by name; `None` if there is no such.
    pub(crate) fn policies_of(&self, endpoint: &EndpointId) -> Option<&BTreeSet<PolicyId>> {
        self.locals.get(endpoint).map(|local| &local.policies)
    }

    /// The local endpoints, by name.
    pub(crate) fn locals(&self) -> impl Iterator<Item = &EndpointId> {
        self.locals.keys()
    }

    /// The local endpoints that a policy selects.
    pub(crate) fn selected_by(&self, policy: &PolicyId) -> impl Iterator<Item = &EndpointId> {
        let of = self.locals.iter();
        of.filter(|(_, local)| local.policies.contains(policy))
            .map(|(id, _)| id)
    }

    /// The local endpoints that name a profile.
    pub(crate) fn judged_by(&self, profile: &Str) -> impl Iterator<Item = &EndpointId> {
        let of = self.locals.iter();
        of.filter(|(_, local)| local.profiles.contains(profile))
            .map(|(id, _)| id)
    }

    /// Whether a policy selects a local endpoint.
    pub(crate) fn is_active(&self, policy: &PolicyId) -> bool {
        self.selected.contains_key(policy)
    }

    /// Whether a local endpoint names a profile.
    pub(crate) fn is_judging(&self, profile: &Str) -> bool {
        self.profiles.contains_key(profile)
    }

    /// Takes in policies and endpoints that changed.
    pub(crate) fn settle(
        &mut self,
        state: &State,
        policies: &BTreeSet<PolicyId>,
        endpoints: &BTreeSet<EndpointId>,
    ) -> ActivityChanges {
        let mut changes = ActivityChanges::default();
        for id in endpoints {
            self.endpoint(state, id, &mut changes);
        }
        for id in policies {
            self.file(state.policies.get(id), id);
            self.policy(state, id, &mut changes);
        }
        changes
    }

    fn policy(&mut self, state: &State, id: &PolicyId, changes: &mut ActivityChanges) {
        let policy = state.policies.get(id);
        // Where the subject names namespaces, only their endpoints and those it selected matter.
        let bound = policy.and_then(|policy| namespaces(&policy.subject));
        let never = policy.is_none() || bound.is_some();
        if never && !self.selected.contains_key(id) && self.elsewhere(bound) {
            changes.policies.insert(id.clone());
            return;
        }
        for (endpoint, local) in &mut self.locals {
            let outside = bound.is_some_and(|names| !inside(endpoint, names));
            if outside && !local.policies.contains(id) {
                continue;
            }
            let selects = match (policy, state.endpoints.get(endpoint)) {
                (Some(policy), Some(e)) => policy.subject.matches(&state.endpoint_labels(e)),
                _ => false,
            };
            let changed = if selects {
                local.policies.insert(id.clone())
            } else {
                local.policies.remove(id)
            };
            if changed {
                changes.locals.insert(endpoint.clone());
                tally(&mut self.selected, id, selects);
            }
        }
        changes.policies.insert(id.clone());
    }

    /// Whether no local endpoint is in any of these namespaces.
    fn elsewhere(&self, names: Option<&BTreeSet<Str>>) -> bool {
        let mut names = names.into_iter().flatten();
        !names.any(|name| {
            let first = EndpointId {
                namespace: Some(name.clone()),
                name: "".into(),
                group: "".into(),
                kind: "".into(),
            };
            let next = self.locals.range(first..).next();
            next.is_some_and(|(id, _)| id.namespace.as_ref() == Some(name))
        })
    }

    fn endpoint(&mut self, state: &State, id: &EndpointId, changes: &mut ActivityChanges) {
        let now = state.endpoints.get(id).filter(|e| is_local(e));
        let was = self.locals.remove(id);
        if was.is_none() && now.is_none() {
            return;
        }
        changes.locals.insert(id.clone());
        let old = was.unwrap_or_default();
        let new = now.map_or_else(Local::default, |e| Local {
            policies: self.selecting(state, e),
            profiles: e.profiles.clone(),
        });
        for (gone, come) in [(&old, &new)] {
            for policy in gone.policies.symmetric_difference(&come.policies) {
                tally(&mut self.selected, policy, come.policies.contains(policy));
                changes.policies.insert(policy.clone());
            }
        }
        for (profiles, more) in [(&new.profiles, true), (&old.profiles, false)] {
            let distinct: BTreeSet<&Str> = profiles.iter().collect();
            for profile in distinct {
                tally(&mut self.profiles, profile, more);
                changes.profiles.insert(profile.clone());
            }
        }
        if now.is_some() {
            self.locals.insert(id.clone(), new);
        }
    }

    fn selecting(&self, state: &State, endpoint: &Endpoint) -> BTreeSet<PolicyId> {
        let labels = state.endpoint_labels(endpoint);
        let own = endpoint.id.namespace.clone();
        let anywhere = self.by_namespace.get(&None);
        let here = own.and_then(|name| self.by_namespace.get(&Some(name)));
        let selects = |id: &&PolicyId| {
            let policy = state.policies.get(*id);
            policy.is_some_and(|policy| policy.subject.matches(&labels))
        };
        let candidates = anywhere.into_iter().chain(here).flatten();
        candidates.filter(selects).cloned().collect()
    }

    fn file(&mut self, policy: Option<&Policy>, id: &PolicyId) {
        for place in self.filed.remove(id).unwrap_or_default() {
            if let Some(there) = self.by_namespace.get_mut(&place) {
                there.remove(id);
                if there.is_empty() {
                    self.by_namespace.remove(&place);
                }
            }
        }
        let Some(policy) = policy else { return };
        let places: Vec<Option<Str>> = match namespaces(&policy.subject) {
            Some(names) => names.iter().cloned().map(Some).collect(),
            None => alloc::vec![None],
        };
        for place in &places {
            let there = self.by_namespace.entry(place.clone()).or_default();
            there.insert(id.clone());
        }
        self.filed.insert(id.clone(), places);
    }
}

fn tally<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, more: bool) {
    let count = counts.entry(key.clone()).or_default();
    *count = if more { *count + 1 } else { *count - 1 };
    if *count == 0 {
        counts.remove(key);
    }
}

fn inside(endpoint: &EndpointId, names: &BTreeSet<Str>) -> bool {
    let own = endpoint.namespace.as_ref();
    own.is_some_and(|name| names.contains(name))
}

/// The namespaces outside which a selector matches nothing; `None` where it is not bound to any.
fn namespaces(selector: &Selector) -> Option<&BTreeSet<Str>> {
    let is_name =
        |key: &LabelKey| key.scope == Scope::Reserved && &*key.name == reserved::NAMESPACE;
    match selector {
        Selector::In(key, values) if is_name(key) => Some(values),
        Selector::And(parts) => parts.iter().find_map(namespaces),
        _ => None,
    }
}

/// Whether a profile is the one that always exists and allows everything.
pub(crate) fn is_builtin(profile: &str) -> bool {
    profile == Profile::ALLOW_ALL
}
