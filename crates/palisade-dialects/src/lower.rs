//! Lowers a whole input: all objects, with duplicates found and isolation policies added. Problems are listed
//! within the quotas of a file and of an input, and counted beyond.

use crate::dialect::{isolate, lower_object};
use crate::hash::ContentHash;
use crate::lint::host_network_warnings;
use crate::quota::{
    MAX_PROBLEMS_PER_INPUT, MAX_PROBLEMS_PER_OBJECT, OmittedCounts, OmittedProblems,
    ProblemCollector, ProblemQuota,
};
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Object, ObjectId, Policy, State, Update};
use std::collections::BTreeMap;
use std::mem::take;

/// A whole input, lowered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowering {
    /// Every object of a known kind, in the order of the input.
    pub entries: Vec<LoweringEntry>,
    /// Errors by location.
    pub errors: Vec<Problem>,
    /// Warnings by location: valid, but likely not intended.
    pub warnings: Vec<Problem>,
    /// Summaries of further errors and warnings.
    pub omitted: Vec<OmittedProblems>,
    /// The number of objects of each ignored kind (`networking.k8s.io/v1 Ingress`).
    pub ignored: BTreeMap<String, usize>,
}

/// One object of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct LoweringEntry {
    /// Its name.
    pub id: ObjectId,
    /// The beginning of the object.
    pub location: Location,
    /// The hash of its content.
    pub hash: ContentHash,
    /// Whether it is accepted.
    pub status: EntryStatus,
    /// Its model objects; empty if it was rejected.
    pub objects: Vec<Object>,
    /// For a rejected object: the policy to enforce if no version of it was ever valid. See [`isolate`].
    pub isolation: Option<Policy>,
    /// Whether it is a completed pod.
    pub completed: bool,
}

/// Whether an object is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryStatus {
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
    /// The objects in force if nothing was in force before: those accepted, and the isolation policies of
    /// those rejected.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.entries.iter().flat_map(|entry| {
            let accepted = match entry.status {
                EntryStatus::Accepted => entry.objects.clone(),
                EntryStatus::Rejected | EntryStatus::Duplicate { .. } => Vec::new(),
            };
            let isolation = match entry.status {
                EntryStatus::Rejected => entry.isolation.clone().map(Object::Policy),
                EntryStatus::Accepted | EntryStatus::Duplicate { .. } => None,
            };
            accepted.into_iter().chain(isolation)
        })
    }

    /// [`objects`](Self::objects) as updates.
    pub fn updates(&self) -> impl Iterator<Item = Update> + '_ {
        self.objects().map(Update::Upsert)
    }

    /// The completed pods. [`objects`](Self::objects) includes their endpoints, without addresses. An
    /// analysis has to leave them out, because it treats an endpoint without addresses as one with unknown
    /// addresses.
    pub fn completed(&self) -> impl Iterator<Item = &ObjectId> + '_ {
        let completed = self.entries.iter().filter(|entry| entry.completed);
        completed.map(|entry| &entry.id)
    }

    /// [`objects`](Self::objects) as a state.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_updates(self.updates())
    }
}

/// Lowers every object of an input.
///
/// An object of the same API group, kind, namespace and name as an earlier one (the version does not matter)
/// is an error that names both locations.
#[must_use]
pub fn lower(objects: &[RawObject]) -> Lowering {
    let mut lowering = Lowering::default();
    let mut first: BTreeMap<ObjectId, Location> = BTreeMap::new();
    let mut on_host_network = Vec::new();
    let mut policies = Vec::new();
    let mut problems = ProblemCollector::new(ProblemQuota::uniform(MAX_PROBLEMS_PER_INPUT));
    let mut duplicate_quotas: BTreeMap<ObjectId, ProblemQuota> = BTreeMap::new();
    for object in objects {
        let mut lowered = lower_object(object);
        problems.add_all(false, take(&mut lowered.warnings));
        if let Some(kind) = lowered.ignored {
            take(&mut lowered.omitted)
                .into_iter()
                .for_each(|more| problems.add_omitted(more));
            count_ignored(&mut lowering.ignored, kind);
            continue;
        }
        let duplicate_of = first.get(&lowered.id).cloned();
        let (status, isolation) = match &duplicate_of {
            Some(first) => {
                let quota = duplicate_quotas.entry(lowered.id.clone());
                let quota = quota.or_insert_with(|| ProblemQuota::uniform(MAX_PROBLEMS_PER_OBJECT));
                if quota.admit(true) {
                    let problem = duplicate_definition(&lowered.id, &lowered.location, first);
                    problems.add(true, problem);
                }
                let first = first.clone();
                (EntryStatus::Duplicate { first }, None)
            }
            None if lowered.errors.is_empty() => (EntryStatus::Accepted, None),
            None => (EntryStatus::Rejected, isolate(object)),
        };
        if duplicate_of.is_none() {
            first.insert(lowered.id.clone(), lowered.location.clone());
            on_host_network.extend(lowered.on_host_network);
        }
        if status == EntryStatus::Accepted {
            let of_object = lowered.objects.iter().filter_map(|object| match object {
                Object::Policy(policy) => Some(policy.clone()),
                _ => None,
            });
            policies.extend(of_object.map(|policy| (policy, object)));
        }
        problems.add_all(true, take(&mut lowered.errors));
        take(&mut lowered.omitted)
            .into_iter()
            .for_each(|more| problems.add_omitted(more));
        lowering.entries.push(LoweringEntry {
            id: lowered.id,
            location: lowered.location,
            hash: ContentHash::of(&object.root),
            status,
            objects: lowered.objects,
            isolation,
            completed: lowered.completed,
        });
    }
    for (id, quota) in duplicate_quotas {
        let more = first
            .get(&id)
            .map(|at| omitted_definitions(&id, at, quota.omitted()));
        more.into_iter()
            .flatten()
            .for_each(|more| problems.add_omitted(more));
    }
    let selected = host_network_warnings(
        policies.iter().map(|(policy, object)| (policy, *object)),
        &on_host_network,
    );
    problems.add_all(false, selected);
    (lowering.errors, lowering.warnings, lowering.omitted) = problems.finish();
    lowering.errors.sort();
    lowering.warnings.sort();
    lowering
}

/// The number of ignored kinds that are counted separately.
const MAX_IGNORED_KINDS: usize = 100;
/// The name under which further kinds are counted.
const OTHER_KINDS: &str = "other kinds";

/// The problem of a duplicate definition of an object.
#[must_use]
pub fn duplicate_definition(id: &ObjectId, here: &Location, first: &Location) -> Problem {
    Problem {
        location: here.clone(),
        object: Some(id.to_string()),
        field: String::new(),
        reason: format!("{id} is defined twice: here and at {first}"),
    }
}

/// Summarizes definitions of an object that are not listed; the first is at `first`.
#[must_use]
pub fn omitted_definitions(
    id: &ObjectId,
    first: &Location,
    omitted: OmittedCounts,
) -> Vec<OmittedProblems> {
    omitted.summaries(
        first,
        Some(&id.to_string()),
        "this object: duplicate definitions",
    )
}

/// Counts an object of an ignored kind. Kinds beyond a hundred are counted together.
pub fn count_ignored(ignored: &mut BTreeMap<String, usize>, kind: String) {
    let is_full = ignored.len() >= MAX_IGNORED_KINDS && !ignored.contains_key(&kind);
    let kind = if is_full {
        OTHER_KINDS.to_owned()
    } else {
        kind
    };
    *ignored.entry(kind).or_default() += 1;
}
