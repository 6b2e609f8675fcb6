//! What is in force, given what the files say now and what was in force before.
//!
//! A valid object is in force. An invalid one leaves its last valid version in force, or, if there
//! never was one, isolates what it selects. One that no file defines any more goes, unless the file
//! it came from cannot be read whole just now, or the tree cannot. Of an object defined twice, the
//! version in force stays, and both places are reported.
//!
//! What is in force is an input of the next start, so it is handed to [`crate::memory::Memory`].

use crate::memory::{Memory, Remembered};
use crate::scan::Tree;
use crate::{Batch, Flaw, Kept, Report};
use palisade_dialects::{ContentHash, Entry, Status, lower};
use palisade_manifest::{Problem, RawObject};
use palisade_model::{Object, ObjectId, ObjectKey, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An object in force.
#[derive(Clone, Debug, PartialEq)]
struct InForce {
    /// The version: its hash and when it was read; `None` for an isolation in the place of an object
    /// that was never valid.
    version: Option<(String, u64)>,
    /// The file it came from.
    file: PathBuf,
    /// What it says.
    objects: Vec<Object>,
}

/// Decides what is in force.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    in_force: BTreeMap<ObjectId, InForce>,
    /// What the receiver was told.
    told: BTreeMap<ObjectKey, Object>,
}

impl Keeper {
    /// With what was in force when the last run ended.
    pub(crate) fn remembering(memory: &Memory) -> Self {
        let in_force = memory
            .all()
            .map(|(id, remembered)| {
                let object = InForce {
                    version: Some((remembered.hash.clone(), remembered.since)),
                    file: PathBuf::from(&remembered.file),
                    objects: remembered.objects.clone(),
                };
                (id.clone(), object)
            })
            .collect();
        Keeper {
            in_force,
            told: BTreeMap::new(),
        }
    }

    /// Takes in a scan made at `now` (seconds since 1970); says what changes. What is to be
    /// remembered is put into `memory`, which the caller then saves.
    pub(crate) fn take(&mut self, tree: &Tree, now: u64, memory: &mut Memory) -> Batch {
        let mut raw: Vec<RawObject> = Vec::new();
        let mut problems = tree.problems.clone();
        let mut incomplete: BTreeSet<&Path> = BTreeSet::new();
        for (path, file) in &tree.files {
            raw.extend(file.objects.iter().cloned());
            problems.extend(file.problems.iter().cloned());
            if file.incomplete {
                incomplete.insert(path);
            }
        }
        let lowering = lower(&raw);
        problems.extend(lowering.errors);
        let mut by_id: BTreeMap<&ObjectId, Vec<&Entry>> = BTreeMap::new();
        for entry in &lowering.entries {
            by_id.entry(&entry.id).or_default().push(entry);
        }
        let mut next: BTreeMap<ObjectId, InForce> = BTreeMap::new();
        let mut kept = Vec::new();
        for (id, entries) in by_id {
            let before = self.in_force.get(id);
            if let Some((object, is_kept)) = choose(before, &entries, now) {
                kept.extend(is_kept.then(|| kept_report(id, &object)));
                next.insert(id.clone(), object);
            }
        }
        for (id, before) in &self.in_force {
            let unsure = !tree.whole || incomplete.contains(&*before.file);
            if unsure && !next.contains_key(id) {
                kept.push(kept_report(id, before));
                next.insert(id.clone(), before.clone());
            }
        }
        self.remember(&next, memory);
        self.in_force = next;
        let updates = self.tell();
        kept.sort_by(|a, b| a.object.cmp(&b.object));
        let report = Report {
            files: tree.files.len(),
            objects: self.in_force.len(),
            problems: flaws(problems, lowering.warnings),
            kept,
            ignored: lowering.ignored,
        };
        Batch {
            updates,
            in_sync: true,
            report,
        }
    }

    fn remember(&self, next: &BTreeMap<ObjectId, InForce>, memory: &mut Memory) {
        for id in self.in_force.keys().filter(|id| !next.contains_key(*id)) {
            memory.forget(id);
        }
        for (id, object) in next {
            let Some((hash, since)) = &object.version else {
                continue;
            };
            memory.remember(
                id,
                Remembered {
                    hash: hash.clone(),
                    since: *since,
                    file: object.file.display().to_string(),
                    objects: object.objects.clone(),
                },
            );
        }
    }

    /// The difference between what is in force and what was told.
    fn tell(&mut self) -> Vec<Update> {
        let now: BTreeMap<ObjectKey, Object> = self
            .in_force
            .values()
            .flat_map(|object| &object.objects)
            .map(|object| (object.key(), object.clone()))
            .collect();
        let gone = self
            .told
            .keys()
            .filter(|key| !now.contains_key(*key))
            .cloned()
            .map(Update::Delete);
        let new = now
            .iter()
            .filter(|(key, object)| self.told.get(*key) != Some(*object));
        let updates = gone
            .chain(new.map(|(_, object)| Update::Upsert(object.clone())))
            .collect();
        self.told = now;
        updates
    }
}

/// Which version of an object is in force, and whether that is not what the files say.
fn choose(before: Option<&InForce>, entries: &[&Entry], now: u64) -> Option<(InForce, bool)> {
    let valid_before = before.filter(|before| before.version.is_some());
    let is_valid = |entry: &&&Entry| match entry.status {
        Status::Accepted => true,
        Status::Duplicate { .. } => !entry.objects.is_empty(),
        Status::Rejected => false,
    };
    if entries.len() > 1 {
        let same = |entry: &&&Entry| {
            valid_before
                .and_then(|b| b.version.as_ref())
                .is_some_and(|(hash, _)| *hash == hex(entry.hash))
        };
        if let Some(entry) = entries.iter().filter(is_valid).find(same) {
            return Some((in_force(entry, valid_before, now), true));
        }
        if let Some(before) = valid_before {
            return Some((before.clone(), true));
        }
    }
    let first = entries.first()?;
    match first.status {
        Status::Accepted => Some((in_force(first, valid_before, now), entries.len() > 1)),
        Status::Rejected | Status::Duplicate { .. } => match valid_before {
            Some(before) => {
                let file = PathBuf::from(&*first.location.file);
                Some((
                    InForce {
                        file,
                        ..before.clone()
                    },
                    true,
                ))
            }
            None => {
                let isolation = first.isolation.clone()?;
                let file = PathBuf::from(&*first.location.file);
                let objects = vec![Object::Policy(isolation)];
                Some((
                    InForce {
                        version: None,
                        file,
                        objects,
                    },
                    true,
                ))
            }
        },
    }
}

fn in_force(entry: &Entry, before: Option<&InForce>, now: u64) -> InForce {
    let hash = hex(entry.hash);
    let since = match before.and_then(|before| before.version.as_ref()) {
        Some((known, since)) if *known == hash => *since,
        _ => now,
    };
    InForce {
        version: Some((hash, since)),
        file: PathBuf::from(&*entry.location.file),
        objects: entry.objects.clone(),
    }
}

fn hex(hash: ContentHash) -> String {
    hash.to_string()
}

fn kept_report(id: &ObjectId, object: &InForce) -> Kept {
    let (hash, since) = match &object.version {
        Some((hash, since)) => (Some(hash.clone()), Some(*since)),
        None => (None, None),
    };
    Kept {
        object: id.to_string(),
        since,
        hash,
    }
}

fn flaws(errors: Vec<Problem>, warnings: Vec<Problem>) -> Vec<Flaw> {
    let errors = errors.into_iter().map(|problem| Flaw {
        problem,
        error: true,
    });
    let warnings = warnings.into_iter().map(|problem| Flaw {
        problem,
        error: false,
    });
    let mut flaws: Vec<Flaw> = errors.chain(warnings).collect();
    flaws.sort_by(|a, b| a.problem.cmp(&b.problem));
    flaws
}
