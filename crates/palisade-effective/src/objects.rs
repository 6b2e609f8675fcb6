//! The component: all definitions, and the version of each object that is in force.
//!
//! The content of an object that cannot be invalid for long (a pod, a namespace, a node) is not kept once it
//! was handed out: its hash and its origin tell whether it changes.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::dependents::DependentObjects;
use crate::effective_object::{
    EffectiveContent, EffectiveObject, ObjectEntry, StoredEntry, is_saved,
};
use crate::lint::{HostNetworkChange, InputLint};
use crate::policy_cost::PolicyCostTracker;
use crate::source::{DefinitionChange, SourceDelta, SourceNumber, SourceState, Staleness};
use crate::version_choice::{
    ChoiceFaults, EffectiveVersion, PreviousVersion, VersionChoice, choose_version,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_engine::{ElementBudget, ExceededLimit};
use palisade_model::{ObjectId, Str, Update};

/// How the element budget is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUse {
    /// A policy over the budget is treated as invalid.
    Enforced,
    /// A policy over the budget causes a warning.
    Advisory,
}

/// What networks in Cilium's policies match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CidrMatchMode {
    /// What is outside of the cluster.
    #[default]
    Outside,
    /// The same, and nodes.
    Nodes,
}

/// An object whose last valid version was saved.
#[derive(Clone, Debug)]
pub struct RestoredObject {
    /// Its name.
    pub id: SharedId,
    /// The name of its source; `None` for the first source.
    pub source: Option<Str>,
    /// The version, or the isolation policy.
    pub version: EffectiveVersion,
}

/// Objects to save, with the version in force; `None` for an object that is not kept any more.
pub type ObjectsToSave = Vec<(SharedId, Option<EffectiveVersion>)>;

/// All objects by name. No output depends on the order.
pub(crate) type ObjectMap = HashMap<SharedId, StoredEntry, FixedState>;

/// The objects of which the report says more than that they are in force as written.
#[derive(Debug, Default)]
pub(crate) struct ReportableObjects {
    /// Objects defined more than once.
    pub(crate) duplicates: BTreeSet<SharedId>,
    /// Objects in force that are not defined, or not validly.
    pub(crate) retained: BTreeSet<SharedId>,
    /// Policies that are not enforced exactly as written.
    pub(crate) deviating: BTreeSet<SharedId>,
}

/// All definitions and effective objects.
#[derive(Debug)]
pub struct EffectiveObjects {
    pub(crate) objects: ObjectMap,
    pub(crate) sources: Vec<SourceState>,
    /// Objects in force that a source cannot find, with whether this is reported.
    missing: BTreeMap<(SharedId, SourceNumber), bool>,
    pub(crate) reportable: ReportableObjects,
    pub(crate) effective_count: usize,
    pub(crate) costs: PolicyCostTracker,
    pub(crate) budget_use: BudgetUse,
    pub(crate) lint: InputLint,
    pub(crate) unsaved: BTreeSet<SharedId>,
    pub(crate) cidr_match: CidrMatchMode,
    pub(crate) dependents: DependentObjects,
    faults: ChoiceFaults,
}

impl EffectiveObjects {
    /// No objects; sources in the order of precedence.
    pub fn new(
        sources: impl IntoIterator<Item = Str>,
        budget: ElementBudget,
        budget_use: BudgetUse,
    ) -> Self {
        EffectiveObjects {
            objects: ObjectMap::default(),
            sources: sources.into_iter().map(SourceState::new).collect(),
            missing: BTreeMap::new(),
            reportable: ReportableObjects::default(),
            effective_count: 0,
            costs: PolicyCostTracker::new(budget),
            budget_use,
            lint: InputLint::default(),
            unsaved: BTreeSet::new(),
            cidr_match: CidrMatchMode::default(),
            dependents: DependentObjects::default(),
            faults: ChoiceFaults::default(),
        }
    }

    /// Makes deliberate errors, which tests must detect.
    #[cfg(feature = "faults")]
    pub fn inject(&mut self, faults: ChoiceFaults) {
        self.faults = faults;
    }

    /// Sets what networks in Cilium's policies match; before anything is put in force.
    pub fn set_cidr_match(&mut self, mode: CidrMatchMode) {
        self.cidr_match = mode;
    }

    /// Starts from saved versions; each stays until its source is in sync. The objects of a source that does
    /// not exist any more are dropped.
    pub fn restore(&mut self, objects: impl IntoIterator<Item = RestoredObject>) {
        for RestoredObject {
            id,
            source,
            version,
        } in objects
        {
            let named = |name: &Str| self.sources.iter().position(|state| state.name == *name);
            let number = source.as_ref().map_or(Some(0), named);
            let number = number.and_then(|number| SourceNumber::try_from(number).ok());
            let Some(source) = number else {
                self.unsaved.insert(id);
                continue;
            };
            let effective = EffectiveObject {
                version: version.version,
                source,
                origin: version.origin,
                content: EffectiveContent::Kept(version.objects),
                closed: version.closed,
                is_announced: false,
                is_restored: true,
            };
            self.missing.insert((id.clone(), source), false);
            let stored = self.objects.entry(id.clone()).or_default();
            let before = stored.change(&id, |entry| entry.effective.replace(effective));
            self.effective_count += usize::from(before.is_none());
        }
    }

    /// The objects of a source that were restored, and where each was read.
    pub fn restored(
        &self,
        source: SourceNumber,
    ) -> impl Iterator<Item = (&SharedId, &ObjectOrigin)> {
        self.objects.iter().filter_map(move |(id, entry)| {
            let effective = entry.full()?.effective.as_ref()?;
            let is_of = effective.is_restored && effective.source == source;
            is_of.then_some((id, &effective.origin))
        })
    }

    /// The sources, in the order of precedence.
    pub fn sources(&self) -> &[SourceState] {
        &self.sources
    }

    /// Whether every source is in sync.
    pub fn in_sync(&self) -> bool {
        self.sources.iter().all(|source| source.in_sync)
    }

    /// The element budget.
    pub fn budget(&self) -> ElementBudget {
        self.costs.budget()
    }

    /// Takes in the changes of a source at `now` (seconds since 1970), and passes on the updates. A source that
    /// does not exist changes nothing.
    pub fn apply(
        &mut self,
        source: SourceNumber,
        delta: SourceDelta,
        now: u64,
        updates: &mut dyn FnMut(Update),
    ) {
        let Some(state) = self.sources.get_mut(usize::from(source)) else {
            return;
        };
        let first_sync = delta.in_sync && !state.in_sync;
        state.in_sync |= delta.in_sync;
        let since = state.stale.take().map(|stale| stale.since);
        let since = since.or(delta.stale_since).unwrap_or(now);
        state.stale = delta.stale.map(|reason| Staleness { since, reason });
        if let Some(report) = delta.report {
            state.report = report;
        }
        let changes = delta.changes.into_iter();
        let mut changed: Vec<SharedId> = changes
            .map(|change| self.apply_change(source, change))
            .collect();
        changed.sort_unstable();
        changed.dedup();
        if first_sync {
            self.drop_unmentioned(source, &mut changed);
        }
        self.decide_all(changed, now, updates);
        if first_sync && self.in_sync() {
            self.objects
                .values_mut()
                .for_each(StoredEntry::forget_content);
        }
    }

    /// Changes the element budget.
    pub fn set_budget(&mut self, budget: ElementBudget, now: u64, updates: &mut dyn FnMut(Update)) {
        if self.costs.set_budget(budget) {
            // Rare: every policy is checked against the new budget.
            let has_cost = |entry: &ObjectEntry| entry.first().is_some_and(|d| d.cost.is_some());
            let entries = self.objects.iter();
            let policies = entries.filter(|(_, entry)| entry.full().is_some_and(has_cost));
            let mut policies: Vec<SharedId> = policies.map(|(id, _)| id.clone()).collect();
            policies.sort_unstable();
            self.decide_all(policies, now, updates);
        }
    }

    /// What changed since the last call of the pods on the network of their node, which are no endpoints, in order.
    pub fn take_host_network_changes(&mut self) -> Vec<HostNetworkChange> {
        core::mem::take(&mut self.lint.host_network_changes)
    }

    /// The objects to save since the last call: those that can be invalid, never pods.
    pub fn take_unsaved(&mut self) -> ObjectsToSave {
        let unsaved = core::mem::take(&mut self.unsaved).into_iter();
        let version = |id: &ObjectId| {
            let effective = self.objects.get(id)?.full()?.effective.as_ref()?;
            let EffectiveContent::Kept(objects) = &effective.content else {
                return None;
            };
            is_saved(objects).then(|| EffectiveVersion {
                version: effective.version,
                source: effective.source,
                origin: effective.origin.clone(),
                objects: Arc::clone(objects),
                closed: effective.closed.clone(),
            })
        };
        unsaved
            .map(|id| {
                let saved = version(&id);
                (id, saved)
            })
            .collect()
    }

    /// Takes in one change; returns the object.
    fn apply_change(&mut self, source: SourceNumber, change: DefinitionChange) -> SharedId {
        match change {
            DefinitionChange::Upsert(definition) => {
                let id = definition.id.clone();
                self.remove_missing(&id, source);
                let stored = self.objects.entry(id.clone()).or_default();
                stored.change(&id, |entry| entry.put(source, definition));
                id
            }
            DefinitionChange::Delete { id, origin } => {
                if let Some(stored) = self.objects.get_mut(&id) {
                    let is_last = stored.change(&id, |entry| entry.remove(source, &origin));
                    if is_last {
                        self.missing.insert((id.clone(), source), false);
                    }
                }
                id
            }
            DefinitionChange::Missing { id, is_reported } => {
                self.missing.insert((id.clone(), source), is_reported);
                id
            }
            DefinitionChange::Gone(id) => {
                self.remove_missing(&id, source);
                if let Some(stored) = self.objects.get_mut(&id) {
                    stored.change(&id, |entry| {
                        entry.definitions.retain(|(other, _)| *other != source)
                    });
                }
                id
            }
        }
    }

    fn remove_missing(&mut self, id: &SharedId, source: SourceNumber) {
        if !self.missing.is_empty() {
            self.missing.remove(&(id.clone(), source));
        }
    }

    /// What was restored and was not mentioned by its source, which is in sync, is gone.
    fn drop_unmentioned(&mut self, source: SourceNumber, changed: &mut Vec<SharedId>) {
        let is_of = |e: &EffectiveObject| e.source == source && !e.is_announced;
        let unmentioned = self.objects.iter().filter(|(id, stored)| {
            let effective = stored.full().and_then(|entry| entry.effective.as_ref());
            effective.is_some_and(is_of) && changed.binary_search(id).is_err()
        });
        let mut unmentioned: Vec<SharedId> = unmentioned.map(|(id, _)| id.clone()).collect();
        unmentioned.sort_unstable();
        for id in &unmentioned {
            self.remove_missing(id, source);
        }
        changed.append(&mut unmentioned);
    }

    fn decide_all(
        &mut self,
        mut changed: Vec<SharedId>,
        now: u64,
        updates: &mut dyn FnMut(Update),
    ) {
        for id in &changed {
            let Some(entry) = self.objects.get_mut(id).and_then(StoredEntry::full_mut) else {
                continue;
            };
            let first = entry.first().filter(|definition| !definition.is_rejected);
            let cost = first.and_then(|definition| definition.cost.as_deref());
            let is_policy = cost.is_some();
            if is_policy || entry.is_policy {
                self.costs.update(id, cost);
                self.lint.update_policy(id, first);
                entry.is_policy = is_policy;
            }
        }
        if self.budget_use == BudgetUse::Enforced {
            changed.append(&mut self.costs.allocate());
            changed.sort_unstable();
            changed.dedup();
        }
        for id in changed {
            self.decide(id, now, updates);
        }
    }

    /// The budget that a definition exceeds, if the budget is enforced.
    pub(crate) fn exceeded_limit(&self, definition: &Definition) -> Option<ExceededLimit> {
        match self.budget_use {
            BudgetUse::Enforced => {
                let cost = definition.cost.as_deref();
                self.costs.exceeded_limit(&definition.id, cost)
            }
            BudgetUse::Advisory => None,
        }
    }

    /// Decides which version of an object is in force.
    fn decide(&mut self, id: SharedId, now: u64, updates: &mut dyn FnMut(Update)) {
        let Some(mut stored) = self.objects.get_mut(&id).map(core::mem::take) else {
            return self.forget_missing(&id);
        };
        let mut stored_entry = stored.take(&id);
        let entry = &mut *stored_entry;
        let was_effective = entry.effective.is_some();
        let missing = self.missing_in(&id);
        let (choice, retained) = self.choose(entry, &missing);
        self.activate(&id, entry, choice, now, updates);
        let is_effective = entry.effective.is_some();
        let set_membership = |set: &mut BTreeSet<SharedId>, is_member: bool| {
            if is_member {
                set.insert(id.clone())
            } else {
                set.remove(&id)
            }
        };
        set_membership(&mut self.reportable.duplicates, entry.definitions.len() > 1);
        let is_retained = retained && is_effective;
        set_membership(&mut self.reportable.retained, is_retained);
        let deviates = entry.deviates(&id, is_retained);
        set_membership(&mut self.reportable.deviating, deviates);
        if !is_effective {
            self.forget_missing(&id);
        }
        self.effective_count =
            self.effective_count + usize::from(is_effective) - usize::from(was_effective);
        match (StoredEntry::of(stored_entry), self.objects.get_mut(&id)) {
            (Some(stored), Some(place)) => *place = stored,
            _ => drop(self.objects.remove(&id)),
        }
    }

    /// The sources that cannot find an object, and whether this is reported.
    fn missing_in(&self, id: &SharedId) -> Vec<(SourceNumber, bool)> {
        if self.missing.is_empty() {
            return Vec::new();
        }
        let range = (id.clone(), 0)..=(id.clone(), SourceNumber::MAX);
        let missing = self.missing.range(range);
        missing
            .map(|((_, source), is_reported)| (*source, *is_reported))
            .collect()
    }

    fn forget_missing(&mut self, id: &SharedId) {
        for (source, _) in self.missing_in(id) {
            self.missing.remove(&(id.clone(), source));
        }
    }

    fn choose(
        &self,
        entry: &ObjectEntry,
        missing: &[(SourceNumber, bool)],
    ) -> (VersionChoice, bool) {
        let Some((first_source, _)) = entry.definitions.first() else {
            return if missing.is_empty() || entry.effective.is_none() {
                (VersionChoice::Nothing, false)
            } else {
                let is_reported = missing.iter().any(|(_, is_reported)| *is_reported);
                (VersionChoice::Unchanged, is_reported)
            };
        };
        let is_elsewhere = |source: &SourceNumber| source != first_source;
        let definitions = entry.definitions.iter();
        let is_shared = definitions.clone().any(|(source, _)| is_elsewhere(source));
        let is_missing = missing.iter().any(|(source, _)| is_elsewhere(source));
        // Until all sources are in sync, precedence decides between them: no order of arrival.
        let may_hold =
            |effective: &&EffectiveObject| !is_shared || effective.is_restored || self.in_sync();
        let previous = entry.effective.as_ref().filter(may_hold);
        let previous = previous.and_then(|effective| {
            Some(PreviousVersion {
                hash: effective.version?.hash,
                source: effective.source,
                origin: &effective.origin,
            })
        });
        choose_version(
            previous,
            &entry.definitions,
            entry.definitions.len() > 1 || is_missing,
            |definition| self.exceeded_limit(definition).is_some(),
            self.faults,
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use alloc::string::ToString;
    use palisade_dialects::lower_object;
    use palisade_manifest::{Limits, extract_objects, parse};

    fn pod() -> Definition {
        let text = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, status: {podIP: 10.0.0.1}}";
        let limits = Limits::default();
        let read = extract_objects(parse("pod", text.as_bytes(), &limits), &limits);
        let raw = read.objects.into_iter().next().unwrap();
        let mut lowered = lower_object(&raw);
        let origin = ObjectOrigin::File {
            path: "pod".into(),
            location: raw.location.clone(),
        };
        let id = Arc::new(lowered.id.clone());
        Definition::new(id, &raw, &mut lowered, origin)
    }

    /// A file of the second source can be displaced until both sources are in sync, and not after.
    #[test]
    fn the_content_of_pods_is_forgotten_when_all_sources_are_in_sync() {
        let mut objects = EffectiveObjects::new(
            ["first", "second"].map(Str::from),
            ElementBudget::default(),
            BudgetUse::Enforced,
        );
        let mut apply = |source, changes| {
            let mut updates = Vec::new();
            let delta = SourceDelta {
                changes,
                in_sync: true,
                ..SourceDelta::default()
            };
            objects.apply(source, delta, 1, &mut |update| updates.push(update));
            let complete = objects.objects.values().filter(|e| e.full().is_some());
            (updates.len(), complete.count())
        };
        let upsert = || alloc::vec![DefinitionChange::Upsert(pod())];
        assert_eq!(apply(1, upsert()), (1, 1));
        assert_eq!(apply(0, Vec::new()), (0, 0));
        assert_eq!(apply(1, upsert()), (0, 0));
        let id = pod().id;
        assert_eq!(id.to_string(), "Pod shop/web");
        assert_eq!(
            apply(1, alloc::vec![DefinitionChange::Gone(id)]),
            (1, 0),
            "its key is known without its content"
        );
    }
}
