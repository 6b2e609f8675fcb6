//! Activity: which policies select which local endpoints.
//!
//! Keeps, for every local endpoint, the policies that select it, and for every policy and profile
//! how many local endpoints it is about. A policy whose subject names a namespace is only tried on
//! endpoints of that namespace; policies with one subject are tried once.

use crate::columns::Columns;
use crate::labels::Seen;
use crate::policies::{Edit, Policies, PolicyNumber};
use crate::pool::HashMap;
use crate::relative::HERE;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, LabelKey, Profile, Scope, Selector, State, Str, Values, reserved,
};

/// What is known of a local endpoint.
#[derive(Debug, Default)]
struct Local {
    policies: BTreeSet<PolicyNumber>,
    profiles: Vec<Str>,
}

/// Where a policy can select anything.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    /// In its own namespace.
    Home(Str),
    /// In these namespaces.
    Namespaces(Vec<Str>),
    /// Anywhere.
    Anywhere(Subject),
}

/// What tells subjects apart: the number, and the namespace it is relative to.
type Subject = (u32, u32);

/// Which policies are about local endpoints.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    locals: BTreeMap<EndpointId, Local>,
    /// Local endpoints by namespace.
    places: BTreeMap<Str, BTreeSet<EndpointId>>,
    selected: HashMap<PolicyNumber, usize>,
    profiles: BTreeMap<Str, usize>,
    /// Policies that can only select in their own namespace, by its number.
    home: BTreeSet<(u32, PolicyNumber)>,
    /// Policies that can only select in a namespace.
    bound: BTreeSet<(Str, PolicyNumber)>,
    /// The others, by subject.
    unbound: BTreeSet<(Subject, PolicyNumber)>,
    /// Where policies are filed, but for those that can only select at home.
    filed: HashMap<PolicyNumber, Reach>,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct ActivityChanges {
    /// Local endpoints, past and present, that other policies or profiles are about than before.
    pub(crate) locals: BTreeSet<EndpointId>,
    /// Policies that may have become active or inactive.
    pub(crate) policies: BTreeSet<PolicyNumber>,
    /// Profiles that may have become active or inactive.
    pub(crate) profiles: BTreeSet<Str>,
}

/// Whether an endpoint is attached to this host.
pub(crate) fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.interface.is_some() && !endpoint.template
}

impl Activity {
    /// The policies that select a local endpoint, by number; `None` if there is no such.
    pub(crate) fn policies_of(&self, endpoint: &EndpointId) -> Option<&BTreeSet<PolicyNumber>> {
        self.locals.get(endpoint).map(|local| &local.policies)
    }

    /// The local endpoints, by name.
    pub(crate) fn locals(&self) -> impl Iterator<Item = &EndpointId> {
        self.locals.keys()
    }

    /// The local endpoints that a policy selects.
    pub(crate) fn selected_by(&self, policy: PolicyNumber) -> impl Iterator<Item = &EndpointId> {
        let of = self.locals.iter();
        of.filter(move |(_, local)| local.policies.contains(&policy))
            .map(|(id, _)| id)
    }

    /// The local endpoints that name a profile.
    pub(crate) fn judged_by(&self, profile: &Str) -> impl Iterator<Item = &EndpointId> {
        let of = self.locals.iter();
        of.filter(|(_, local)| local.profiles.contains(profile))
            .map(|(id, _)| id)
    }

    /// Whether a policy selects a local endpoint.
    pub(crate) fn is_active(&self, policy: PolicyNumber) -> bool {
        self.selected.contains_key(&policy)
    }

    /// How many policies select a local endpoint.
    pub(crate) fn active(&self) -> usize {
        self.selected.len()
    }

    /// Whether a local endpoint names a profile.
    pub(crate) fn is_judging(&self, profile: &Str) -> bool {
        self.profiles.contains_key(profile)
    }

    /// Takes in policies and endpoints that changed.
    pub(crate) fn settle(
        &mut self,
        state: &State,
        columns: &Columns,
        policies: &Policies,
        edits: &BTreeMap<PolicyNumber, Edit>,
        endpoints: &BTreeSet<EndpointId>,
    ) -> ActivityChanges {
        let mut changes = ActivityChanges::default();
        let mut known: BTreeMap<Subject, BTreeSet<EndpointId>> = BTreeMap::new();
        for (number, edit) in edits {
            if !edit.subject {
                changes.policies.insert(*number);
                continue;
            }
            self.unfile(policies, *number);
        }
        for id in endpoints {
            self.endpoint(state, columns, policies, id, &mut changes);
        }
        for (number, edit) in edits {
            if edit.subject {
                let reach = self.file(policies, *number);
                self.policy(columns, policies, *number, reach, &mut known, &mut changes);
            }
        }
        changes
    }

    fn policy(
        &mut self,
        columns: &Columns,
        policies: &Policies,
        number: PolicyNumber,
        reach: Option<Reach>,
        known: &mut BTreeMap<Subject, BTreeSet<EndpointId>>,
        changes: &mut ActivityChanges,
    ) {
        let selects = |id: &EndpointId| {
            let labels = Seen::endpoint(columns, id);
            labels.is_some_and(|labels| policies.selects(number, &labels))
        };
        let once;
        let now: &BTreeSet<EndpointId> = match reach {
            None => {
                once = BTreeSet::new();
                &once
            }
            Some(Reach::Home(name)) => {
                let locals = self.places.get(&name).into_iter().flatten();
                once = locals.filter(|id| selects(id)).cloned().collect();
                &once
            }
            Some(Reach::Namespaces(names)) => {
                let places = names.iter().filter_map(|name| self.places.get(name));
                once = places.flatten().filter(|id| selects(id)).cloned().collect();
                &once
            }
            Some(Reach::Anywhere(subject)) => known.entry(subject).or_insert_with(|| {
                let locals = self.locals.keys();
                locals.filter(|id| selects(id)).cloned().collect()
            }),
        };
        let was = self.selected.contains_key(&number);
        if !was && now.is_empty() {
            return;
        }
        changes.policies.insert(number);
        if was {
            for (id, local) in &mut self.locals {
                if !now.contains(id) && local.policies.remove(&number) {
                    changes.locals.insert(id.clone());
                    tally(&mut self.selected, &number, false);
                }
            }
        }
        for id in now {
            if let Some(local) = self.locals.get_mut(id)
                && local.policies.insert(number)
            {
                changes.locals.insert(id.clone());
                tally(&mut self.selected, &number, true);
            }
        }
    }

    fn endpoint(
        &mut self,
        state: &State,
        columns: &Columns,
        policies: &Policies,
        id: &EndpointId,
        changes: &mut ActivityChanges,
    ) {
        let now = state.endpoints.get(id).filter(|e| is_local(e));
        let was = self.locals.remove(id);
        if was.is_none() && now.is_none() {
            return;
        }
        changes.locals.insert(id.clone());
        self.place(id, now.is_some());
        let old = was.unwrap_or_default();
        let new = now.map_or_else(Local::default, |e| Local {
            policies: self.selecting(columns, policies, &e.id),
            profiles: e.profiles.clone(),
        });
        for policy in old.policies.symmetric_difference(&new.policies) {
            tally(&mut self.selected, policy, new.policies.contains(policy));
            changes.policies.insert(*policy);
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

    fn place(&mut self, id: &EndpointId, there: bool) {
        let Some(name) = &id.namespace else { return };
        let locals = self.places.entry(name.clone()).or_default();
        match there {
            true => locals.insert(id.clone()),
            false => locals.remove(id),
        };
        if locals.is_empty() {
            self.places.remove(name);
        }
    }

    /// The filed policies that select an endpoint.
    fn selecting(
        &self,
        columns: &Columns,
        policies: &Policies,
        endpoint: &EndpointId,
    ) -> BTreeSet<PolicyNumber> {
        let mut selecting = BTreeSet::new();
        let Some(labels) = Seen::endpoint(columns, endpoint) else {
            return selecting;
        };
        if let Some(name) = &endpoint.namespace {
            if let Some(own) = policies.name(name) {
                let here = (own, 0)..=(own, PolicyNumber::MAX);
                let home = self.home.range(here).map(|(_, number)| *number);
                selecting.extend(home.filter(|number| policies.selects(*number, &labels)));
            }
            let here = (name.clone(), 0)..=(name.clone(), PolicyNumber::MAX);
            let bound = self.bound.range(here).map(|(_, number)| *number);
            selecting.extend(bound.filter(|number| policies.selects(*number, &labels)));
        }
        let mut last = None;
        for (subject, number) in &self.unbound {
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

    /// Takes a policy out of the files.
    fn unfile(&mut self, policies: &Policies, number: PolicyNumber) {
        match self.filed.remove(&number) {
            Some(Reach::Anywhere(subject)) => drop(self.unbound.remove(&(subject, number))),
            Some(Reach::Namespaces(names)) => {
                for name in names {
                    self.bound.remove(&(name, number));
                }
            }
            Some(Reach::Home(_)) | None => {
                if let Some((own, _)) = policies.namespace(number) {
                    self.home.remove(&(own, number));
                }
            }
        }
    }

    /// Files a policy, and says where.
    fn file(&mut self, policies: &Policies, number: PolicyNumber) -> Option<Reach> {
        let (subject, selector) = policies.subject(number)?;
        let Some(names) = namespaces(selector) else {
            let subject = (subject, policies.saying(number)?.1);
            self.unbound.insert((subject, number));
            self.filed.insert(number, Reach::Anywhere(subject));
            return Some(Reach::Anywhere(subject));
        };
        let own = policies.own(number);
        let meant = |name: &Str| match own {
            Some(own) if **name == *HERE => own.clone(),
            _ => name.clone(),
        };
        if let Some((home, name)) = policies.namespace(number)
            && names.len() == 1
            && names.iter().all(|only| meant(only) == *name)
        {
            self.home.insert((home, number));
            return Some(Reach::Home(name.clone()));
        }
        let names: Vec<Str> = names.iter().map(meant).collect();
        for name in &names {
            self.bound.insert((name.clone(), number));
        }
        let reach = Reach::Namespaces(names);
        self.filed.insert(number, reach.clone());
        Some(reach)
    }
}

fn tally(counts: &mut HashMap<PolicyNumber, usize>, key: &PolicyNumber, more: bool) {
    let count = counts.entry(*key).or_default();
    *count = if more { *count + 1 } else { *count - 1 };
    if *count == 0 {
        counts.remove(key);
    }
}

/// The namespaces outside which a selector matches nothing; `None` where it is not bound to any.
fn namespaces(selector: &Selector) -> Option<&Values> {
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
