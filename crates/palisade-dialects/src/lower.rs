//! A whole input: every object read, what is defined twice, and what stays in force.

use crate::dialect::{Lowered, isolate, read};
use crate::doubts::host_network_selected;
use crate::hash::ContentHash;
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Object, ObjectId, Policy, State, Update};
use std::collections::BTreeMap;

/// A whole input, lowered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowering {
    /// Every object that a dialect knows, in the order of the input.
    pub entries: Vec<Entry>,
    /// Every reason why an object was not taken, by place.
    pub errors: Vec<Problem>,
    /// Everything that was taken but is likely not meant, by place.
    pub warnings: Vec<Problem>,
    /// How many objects there were of each kind that is none of policy's, by kind
    /// (`networking.k8s.io/v1 Ingress`).
    pub ignored: BTreeMap<String, usize>,
}

/// One object of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub id: ObjectId,
    /// Where it begins.
    pub location: Location,
    /// Tells its contents apart from others of that name.
    pub hash: ContentHash,
    /// Whether it counts.
    pub status: Status,
    /// What it says; nothing if it was rejected.
    pub objects: Vec<Object>,
    /// For a rejected object: what to enforce if no version of it was ever valid. See
    /// [`isolate`].
    pub isolation: Option<Policy>,
    /// Whether it is a pod that ran to its end.
    pub completed: bool,
}

/// Whether an object counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is valid and the first of its name.
    Accepted,
    /// It has errors.
    Rejected,
    /// An object of this name stands before it, there. Neither counts more than the other: it is an
    /// error, and a source that enforces one of them already (see [`Entry::hash`]) goes on with
    /// that. Where none is in force, the first is taken, so that two readings of one input agree.
    Duplicate {
        /// Where the first is.
        first: Location,
    },
}

impl Lowering {
    /// What the input says where nothing was in force before: what was accepted, and the isolation
    /// in the place of what was rejected.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.entries.iter().flat_map(|entry| {
            let accepted = match entry.status {
                Status::Accepted => entry.objects.clone(),
                Status::Rejected | Status::Duplicate { .. } => Vec::new(),
            };
            let isolation = match entry.status {
                Status::Rejected => entry.isolation.clone().map(Object::Policy),
                Status::Accepted | Status::Duplicate { .. } => None,
            };
            accepted.into_iter().chain(isolation)
        })
    }

    /// [`objects`](Self::objects) as updates.
    pub fn updates(&self) -> impl Iterator<Item = Update> + '_ {
        self.objects().map(Update::Upsert)
    }

    /// The pods that ran to their end. Their endpoints are among the objects, without addresses; for
    /// an analysis, which takes an endpoint without addresses for one whose addresses are unknown,
    /// they are not there.
    pub fn completed(&self) -> impl Iterator<Item = &ObjectId> + '_ {
        let completed = self.entries.iter().filter(|entry| entry.completed);
        completed.map(|entry| &entry.id)
    }

    /// [`objects`](Self::objects) as a state.
    #[must_use]
    pub fn state(&self) -> State {
        State::of(self.updates())
    }
}

/// Reads every object of an input.
///
/// An object of a name that stands before (same API group, kind, namespace and name; versions do not
/// tell apart) is an error that names both places.
#[must_use]
pub fn lower(objects: &[RawObject]) -> Lowering {
    let mut lowering = Lowering::default();
    let mut first: BTreeMap<ObjectId, Location> = BTreeMap::new();
    let mut on_host_network = Vec::new();
    let mut policies = Vec::new();
    for object in objects {
        let mut lowered = read(object);
        lowering.warnings.append(&mut lowered.warnings);
        if let Some(kind) = lowered.ignored {
            *lowering.ignored.entry(kind).or_default() += 1;
            continue;
        }
        let duplicate_of = first.get(&lowered.id).cloned();
        let (status, isolation) = match &duplicate_of {
            Some(first) => {
                lowering.errors.push(defined_twice(&lowered, first));
                let first = first.clone();
                (Status::Duplicate { first }, None)
            }
            None if lowered.errors.is_empty() => (Status::Accepted, None),
            None => (Status::Rejected, isolate(object)),
        };
        if duplicate_of.is_none() {
            first.insert(lowered.id.clone(), lowered.location.clone());
            on_host_network.extend(lowered.on_host_network);
        }
        if status == Status::Accepted {
            let of_object = lowered.objects.iter().filter_map(|object| match object {
                Object::Policy(policy) => Some(policy.clone()),
                _ => None,
            });
            policies.extend(of_object.map(|policy| (policy, object)));
        }
        lowering.errors.append(&mut lowered.errors);
        lowering.entries.push(Entry {
            id: lowered.id,
            location: lowered.location,
            hash: ContentHash::of(&object.root),
            status,
            objects: lowered.objects,
            isolation,
            completed: lowered.completed,
        });
    }
    let selected = host_network_selected(&policies, &on_host_network);
    lowering.warnings.extend(selected);
    lowering.errors.sort();
    lowering.warnings.sort();
    lowering
}

fn defined_twice(lowered: &Lowered, first: &Location) -> Problem {
    Problem {
        location: lowered.location.clone(),
        object: Some(lowered.id.to_string()),
        field: String::new(),
        reason: format!("{} is defined twice: here and at {first}", lowered.id),
    }
}
