//! A whole input, lowered and put in force: all objects with their status, duplicates, and isolation policies.

use palisade_dialects::{ContentHash, OmittedProblems, count_ignored, isolate, lower_object};
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, EffectiveObjects, ElementBudget, ObjectOrigin,
    SourceDelta,
};
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Object, ObjectId, Policy, State, Update};
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

/// A whole input, lowered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lowering {
    /// Every object of a known kind, in the order of the input.
    pub(crate) entries: Vec<LoweringEntry>,
    /// Errors by location.
    pub(crate) errors: Vec<Problem>,
    /// Warnings by location: valid, but likely not intended.
    pub(crate) warnings: Vec<Problem>,
    /// Parts held closed, by location.
    pub(crate) closed: Vec<Problem>,
    /// Summaries of further errors and warnings.
    pub(crate) omitted: Vec<OmittedProblems>,
    /// The number of objects of each ignored kind (`networking.k8s.io/v1 Ingress`).
    pub(crate) ignored: BTreeMap<String, usize>,
    /// Warnings that concern several objects.
    pub(crate) several: Vec<Problem>,
    /// The updates of the objects in force.
    pub(crate) in_force: Vec<Update>,
}

/// One object of the input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoweringEntry {
    /// Its name.
    pub(crate) id: ObjectId,
    /// The beginning of the object.
    pub(crate) location: Location,
    /// The hash of its content.
    pub(crate) hash: ContentHash,
    /// Whether it is accepted.
    pub(crate) status: EntryStatus,
    /// Its model objects; empty if it was rejected.
    pub(crate) objects: Vec<Object>,
    /// For a rejected object: the policy to enforce if no version of it was ever valid. See [`isolate`].
    pub(crate) isolation: Vec<Policy>,
    /// Whether it is a completed pod.
    pub(crate) completed: bool,
}

/// Whether an object is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryStatus {
    /// It is valid and the first of its name.
    Accepted,
    /// It has errors.
    Rejected,
    /// There is an earlier object of this name in the input. This is an error. Neither has precedence: a
    /// source that already enforces one of them (see [`LoweringEntry::hash`]) keeps it. If none is in force,
    /// the first is used, so that the result depends on the input alone.
    Duplicate {
        /// The location of the first.
        first: Location,
    },
}

impl Lowering {
    /// The objects in force if nothing was in force before.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.in_force.iter().filter_map(|update| match update {
            Update::Upsert(object) => Some(object.clone()),
            Update::Delete(_) => None,
        })
    }

    /// [`objects`](Self::objects) as updates.
    pub(crate) fn updates(&self) -> impl Iterator<Item = Update> + '_ {
        self.objects().map(Update::Upsert)
    }

    /// The completed pods.
    pub(crate) fn completed(&self) -> impl Iterator<Item = &ObjectId> + '_ {
        let completed = self.entries.iter().filter(|entry| entry.completed);
        completed.map(|entry| &entry.id)
    }

    /// [`objects`](Self::objects) as a state.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        State::from_updates(self.updates())
    }
}

/// Lowers every object of an input, and puts it in force.
#[must_use]
pub(crate) fn lower(objects: &[RawObject]) -> Lowering {
    let mut lowering = Lowering::default();
    let mut first: BTreeMap<ObjectId, Location> = BTreeMap::new();
    let mut effective = EffectiveObjects::new(
        ["test".into()],
        ElementBudget::default(),
        BudgetUse::Advisory,
    );
    for object in objects {
        let mut lowered = lower_object(object);
        lowering.warnings.append(&mut lowered.warnings);
        let closed = lowered.closed.iter().cloned();
        lowering.closed.extend(closed.map(|part| part.problem));
        lowering.omitted.append(&mut lowered.omitted);
        if let Some(kind) = lowered.ignored {
            count_ignored(&mut lowering.ignored, kind, 1);
            continue;
        }
        let location = lowered.location.clone();
        let (status, isolation) = match first.get(&lowered.id) {
            Some(first) => (
                EntryStatus::Duplicate {
                    first: first.clone(),
                },
                Vec::new(),
            ),
            None if lowered.errors.is_empty() => (EntryStatus::Accepted, Vec::new()),
            None => (EntryStatus::Rejected, isolate(object)),
        };
        first
            .entry(lowered.id.clone())
            .or_insert_with(|| location.clone());
        let is_completed =
            |object: &Object| matches!(object, Object::Endpoint(e) if e.is_completed());
        let all = lowered.objects.iter().cloned();
        lowering.entries.push(LoweringEntry {
            id: lowered.id.clone(),
            location: location.clone(),
            hash: ContentHash::of(&object.root),
            status,
            completed: lowered.objects.iter().any(is_completed),
            objects: all.filter_map(Object::into_effective).collect(),
            isolation,
        });
        let origin = ObjectOrigin::File {
            path: location.file.clone(),
            location,
        };
        let id = Arc::new(lowered.id.clone());
        let definition = Definition::new(id, object, &mut lowered, origin);
        let delta = SourceDelta {
            changes: vec![DefinitionChange::Upsert(definition)],
            ..SourceDelta::default()
        };
        let in_force = &mut lowering.in_force;
        effective.apply(0, delta, 0, &mut |update| in_force.push(update));
        lowering.errors.append(&mut lowered.errors);
    }
    for diagnostic in effective.diagnostics() {
        let list = match (diagnostic.omitted, diagnostic.is_error()) {
            (0, true) => &mut lowering.errors,
            (0, false) => &mut lowering.several,
            (count, is_error) => {
                lowering.omitted.push(OmittedProblems {
                    problem: diagnostic.problem,
                    is_error,
                    count,
                });
                continue;
            }
        };
        list.push(diagnostic.problem);
    }
    let (of_hosts, others) = take(&mut lowering.several)
        .into_iter()
        .partition(|p: &Problem| p.reason.contains("on the host network"));
    lowering.warnings.extend::<Vec<Problem>>(of_hosts);
    lowering.several = others;
    lowering.errors.sort();
    lowering.warnings.sort();
    lowering.closed.sort();
    lowering
}

/// The warnings about several objects, but for pods on the host network.
#[must_use]
pub(crate) fn lint(_: &[RawObject], lowering: &Lowering) -> Vec<Problem> {
    lowering.several.clone()
}
