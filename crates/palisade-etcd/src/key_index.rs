//! What the keys held when they were last passed on, and what changes.
//!
//! The values are not kept: a hash tells whether one changes. A value that cannot be read is reported by its
//! key, and what was in force stays.

use crate::key_layout::{KEY_FORM, KeyArea, id_of};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_dialects::{ContentHash, count_ignored, lower_object};
use palisade_effective::{Definition, DefinitionChange, Diagnostic, ObjectOrigin, SharedId};
use palisade_manifest::{Limits, Location, Problem, RawObject, extract_objects, parse};
use palisade_remote::{RemoteChanges, StoredChange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The revision of a key of which only the value is known; etcd begins with 1.
pub(crate) const NO_REVISION: i64 = 0;

/// A key without what all keys of its area begin with.
pub(crate) type AreaKey = (KeyArea, Box<str>);

/// What is kept of a key.
#[derive(Debug)]
struct KeyEntry {
    /// The object; `None` if the key is of another form.
    id: Option<SharedId>,
    /// The hash of what was passed on; `None` if the value cannot be read.
    hash: Option<ContentHash>,
    /// Its kind, if it is ignored.
    ignored: Option<Box<str>>,
    /// The revision at which it was written.
    revision: i64,
    /// The read that mentioned it last.
    read: u32,
}

/// The keys of all objects.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    entries: HashMap<AreaKey, KeyEntry, FixedState>,
    /// The number of the present read.
    read: u32,
    diagnostics: BTreeMap<AreaKey, Vec<Diagnostic>>,
    limits: Limits,
}

/// What identifies a definition: an object may be both pushed and written.
pub(crate) type DefinitionKey = (SharedId, KeyArea);

impl KeyIndex {
    /// No keys.
    pub(crate) fn new() -> Self {
        KeyIndex {
            entries: HashMap::default(),
            read: 0,
            diagnostics: BTreeMap::new(),
            limits: Limits::default(),
        }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The errors and warnings of all keys.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.values().flatten()
    }

    /// The number of objects of ignored kinds, by kind.
    pub(crate) fn ignored(&self) -> BTreeMap<String, usize> {
        let mut ignored = BTreeMap::new();
        let kinds = self.entries.values().filter_map(|e| e.ignored.as_deref());
        kinds.for_each(|kind| count_ignored(&mut ignored, kind.to_owned(), 1));
        ignored
    }

    /// The revisions are those of another history: only hashes are compared.
    pub(crate) fn forget_revisions(&mut self) {
        let entries = self.entries.values_mut();
        entries.for_each(|entry| entry.revision = NO_REVISION);
    }

    /// A complete read begins.
    pub(crate) fn begin_read(&mut self) {
        self.read += 1;
    }

    /// A complete read ended: keys that it did not mention do not exist.
    pub(crate) fn end_read(&mut self, changes: &mut RemoteChanges<DefinitionKey>) {
        let read = self.read;
        let gone = self.entries.iter().filter(|(_, entry)| entry.read != read);
        let mut gone: Vec<AreaKey> = gone.map(|(key, _)| key.clone()).collect();
        gone.sort_unstable();
        for key in gone {
            self.delete(key, changes);
        }
    }

    /// A key does not exist any more.
    pub(crate) fn delete(&mut self, key: AreaKey, changes: &mut RemoteChanges<DefinitionKey>) {
        let Some(entry) = self.entries.remove(&key) else {
            return;
        };
        changes.store(|| StoredChange {
            key: stored_key(&key),
            value: None,
        });
        changes.has_new_diagnostics |= self.diagnostics.remove(&key).is_some();
        changes.has_new_diagnostics |= entry.ignored.is_some();
        if let Some(id) = entry.id {
            self.remove_definition(id, &key, changes);
        }
    }

    /// The object of a key is not defined there any more.
    fn remove_definition(
        &self,
        id: SharedId,
        key: &AreaKey,
        changes: &mut RemoteChanges<DefinitionKey>,
    ) {
        let (area, path) = key;
        let elsewhere = match area {
            KeyArea::Direct => KeyArea::Pushed,
            KeyArea::Pushed => KeyArea::Direct,
        };
        let change = if self.entries.contains_key(&(elsewhere, path.clone())) {
            DefinitionChange::Delete {
                id: id.clone(),
                origin: origin(key),
            }
        } else {
            DefinitionChange::Gone(id.clone())
        };
        changes.definitions.insert((id, *area), change);
    }

    /// A key has this value.
    pub(crate) fn put(
        &mut self,
        key: AreaKey,
        revision: i64,
        value: &[u8],
        changes: &mut RemoteChanges<DefinitionKey>,
    ) {
        let read = self.read;
        if let Some(entry) = self.entries.get_mut(&key)
            && entry.revision == revision
            && revision != NO_REVISION
        {
            entry.read = read;
            return;
        }
        let known = self.entries.get(&key).and_then(|entry| entry.id.clone());
        let id = known.or_else(|| id_of(&key.1).map(Arc::new));
        let mut entry = KeyEntry {
            id,
            hash: None,
            ignored: None,
            revision,
            read,
        };
        let raw = match self.read_object(&key, value) {
            Ok(raw) => raw,
            Err(problems) => return self.reject(key, entry, value, problems, changes),
        };
        let hash = ContentHash::of(&raw.root);
        if let Some(before) = self.entries.get_mut(&key)
            && before.hash == Some(hash)
        {
            (before.revision, before.read) = (revision, read);
            return;
        }
        let mut lowered = lower_object(&raw);
        let Some(id) = entry.id.clone().filter(|id| **id == lowered.id) else {
            let wanted = crate::key_layout::path_of(&lowered.id);
            let reason = format!(
                "the value is the object {}, whose key ends in {wanted}: write it to that key",
                lowered.id
            );
            let problem = problem(&key, lowered.location, reason);
            return self.reject(key, entry, value, vec![problem], changes);
        };
        changes.store(|| stored_value(&key, value));
        entry.hash = Some(hash);
        if let Some(kind) = lowered.ignored.take() {
            entry.ignored = Some(kind.into());
            changes.has_new_diagnostics = true;
            let diagnostics = Diagnostic::take_from(&mut lowered);
            self.set_diagnostics(&key, diagnostics, changes);
            self.entries.insert(key, entry);
            return;
        }
        let definition = Definition::new(id.clone(), &raw, &mut lowered, origin(&key));
        let diagnostics = Diagnostic::take_from(&mut lowered);
        self.set_diagnostics(&key, diagnostics, changes);
        let change = DefinitionChange::Upsert(definition);
        changes.definitions.insert((id, key.0), change);
        self.entries.insert(key, entry);
    }

    /// The only object in a value.
    fn read_object(&self, key: &AreaKey, value: &[u8]) -> Result<RawObject, Vec<Problem>> {
        let file = name_of(key);
        let read = extract_objects(parse(&file, value, &self.limits), &self.limits);
        if !read.problems.is_empty() {
            return Err(read.problems);
        }
        let mut objects = read.objects;
        match (objects.pop(), objects.len()) {
            (Some(object), 0) => Ok(object),
            (None, _) => Err(vec![problem(key, start(file), "the value is empty".into())]),
            (Some(_), others) => {
                let count = others + 1;
                let reason =
                    format!("the value holds {count} objects; a key holds one, under {KEY_FORM}");
                Err(vec![problem(key, start(file), reason)])
            }
        }
    }

    /// A value that cannot be read: what was in force stays.
    fn reject(
        &mut self,
        key: AreaKey,
        entry: KeyEntry,
        value: &[u8],
        mut problems: Vec<Problem>,
        changes: &mut RemoteChanges<DefinitionKey>,
    ) {
        changes.store(|| stored_value(&key, value));
        match &entry.id {
            Some(id) => {
                for problem in &mut problems {
                    problem.object.get_or_insert_with(|| id.to_string());
                }
                let change = DefinitionChange::Missing {
                    id: id.clone(),
                    is_reported: true,
                };
                changes.definitions.insert((id.clone(), key.0), change);
            }
            None => {
                let reason = format!("the key is not of the form {KEY_FORM}; its value is ignored");
                problems = vec![problem(&key, start(name_of(&key)), reason)];
            }
        }
        let diagnostics = problems.into_iter().map(Diagnostic::error).collect();
        self.set_diagnostics(&key, diagnostics, changes);
        self.entries.insert(key, entry);
    }

    fn set_diagnostics(
        &mut self,
        key: &AreaKey,
        diagnostics: Vec<Diagnostic>,
        changes: &mut RemoteChanges<DefinitionKey>,
    ) {
        let before = if diagnostics.is_empty() {
            self.diagnostics.remove(key)
        } else {
            self.diagnostics.insert(key.clone(), diagnostics.clone())
        };
        changes.has_new_diagnostics |= before.unwrap_or_default() != diagnostics;
    }
}

/// The key of an entry of the snapshot.
fn stored_key((area, path): &AreaKey) -> String {
    format!("{}/{path}", area.name())
}

/// The key of which this is [`stored_key`].
pub(crate) fn parse_stored_key(stored: &str) -> Option<AreaKey> {
    let (area, path) = stored.split_once('/')?;
    let areas = [KeyArea::Direct, KeyArea::Pushed];
    let area = areas.into_iter().find(|known| known.name() == area)?;
    Some((area, path.into()))
}

/// A value in the snapshot: without its revision, which an etcd that was restored meanwhile may have used again.
fn stored_value(key: &AreaKey, value: &[u8]) -> StoredChange {
    let text = String::from_utf8_lossy(value).into_owned();
    StoredChange {
        key: stored_key(key),
        value: Some(("".into(), text)),
    }
}

/// A key as messages name it: without the prefix, and without the bundle.
pub(crate) fn name_of((area, path): &AreaKey) -> String {
    let path: String = path.chars().flat_map(char::escape_default).collect();
    format!("{}/{path}", area.name())
}

/// The origin of the object of a key; the same for all of its values.
fn origin(key: &AreaKey) -> ObjectOrigin {
    let name: Arc<str> = name_of(key).into();
    ObjectOrigin::File {
        path: Arc::clone(&name),
        location: Location {
            file: name,
            line: 0,
            column: 0,
        },
    }
}

fn start(file: String) -> Location {
    Location {
        file: file.into(),
        line: 0,
        column: 0,
    }
}

fn problem(key: &AreaKey, location: Location, reason: String) -> Problem {
    Problem {
        location,
        object: id_of(&key.1).map(|id| id.to_string()),
        field: String::new(),
        reason,
    }
}
