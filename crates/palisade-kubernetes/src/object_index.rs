//! What the objects of one resource were when they were last passed on, and what changes.
//!
//! The content is not kept: a hash tells whether it changes. An object of which the fields that policy needs
//! are unchanged, as at most status updates of a pod, is no change.

use crate::list::ObjectIdentity;
use crate::resource::ResourceType;
use crate::resource_event::ResourceEvent;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_dialects::{ContentHash, field_filter_of_kind, lower_object, object_kind};
use palisade_effective::{Definition, DefinitionChange, Diagnostic, ObjectOrigin, SharedId};
use palisade_manifest::{Limits, Location, Problem, read_server_object, to_json};
use palisade_model::ObjectId;
use palisade_remote::{RemoteChanges, StoredChange};
use palisade_sys::fault::is_injected;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is kept of an object: there is one for each of the cluster, so it is small.
#[derive(Debug)]
struct IndexEntry {
    /// The hash of what was passed on, if the object can be read.
    hash: ContentHash,
    /// The hash of the resource version, which is only compared.
    version: u64,
    /// The list that mentioned it last.
    list: u32,
    /// Whether the object can be read.
    is_readable: bool,
}

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct ObjectIndex {
    resource: ResourceType,
    /// The name of the resource, for messages.
    name: Arc<str>,
    api_version: String,
    objects: HashMap<SharedId, IndexEntry, FixedState>,
    /// The number of the present list.
    list: u32,
    /// Whether a complete list was received.
    pub(crate) is_listed: bool,
    /// Why changes may be missed; `None` while the server is followed.
    pub(crate) interruption: Option<String>,
    /// Whether the server does not have the resource.
    pub(crate) is_absent: bool,
    /// The errors and warnings of single objects.
    diagnostics: BTreeMap<SharedId, Vec<Diagnostic>>,
    limits: Limits,
}

impl ObjectIndex {
    /// No objects.
    pub(crate) fn new(resource: ResourceType) -> Self {
        ObjectIndex {
            name: resource.name().into(),
            api_version: resource.api_version(),
            resource,
            objects: HashMap::default(),
            list: 0,
            is_listed: false,
            interruption: None,
            is_absent: false,
            diagnostics: BTreeMap::new(),
            limits: Limits::default(),
        }
    }

    /// The name of the resource.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The errors and warnings of all objects.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.values().flatten()
    }

    /// Takes in an event.
    pub(crate) fn apply(&mut self, event: ResourceEvent, changes: &mut RemoteChanges<SharedId>) {
        match event {
            ResourceEvent::ListBegins => {
                self.list += 1;
                if is_injected("list-begins-empty") {
                    self.remove_unlisted(changes);
                }
            }
            ResourceEvent::Object(identity, text) => self.upsert(&identity, &text, changes),
            ResourceEvent::Deleted(identity) => {
                let id = self.id(&identity);
                if let Some((id, _)) = self.objects.remove_entry(&id) {
                    self.remove(id, changes);
                }
            }
            ResourceEvent::ListEnds => {
                if !is_injected("list-keeps-deleted") {
                    self.remove_unlisted(changes);
                }
                (self.is_listed, self.is_absent) = (true, false);
            }
            ResourceEvent::Followed => self.interruption = None,
            ResourceEvent::Interrupted(reason) => self.interruption = Some(reason),
            ResourceEvent::Absent => {
                if is_injected("absent-deletes") {
                    self.list += 1;
                    self.remove_unlisted(changes);
                }
                self.set_absent();
            }
        }
    }

    /// The server does not have the resource. An API that goes takes no policy with it: what was in force stays,
    /// and changes of it are missed.
    fn set_absent(&mut self) {
        (self.is_listed, self.is_absent) = (true, true);
        let is_gone = "the API server does not have this API any more";
        self.interruption = match self.objects.len() {
            0 => None,
            1 => Some(format!("{is_gone}; its object stays in force")),
            count => Some(format!("{is_gone}; its {count} objects stay in force")),
        };
    }

    /// Removes what the present list has not mentioned.
    fn remove_unlisted(&mut self, changes: &mut RemoteChanges<SharedId>) {
        let list = self.list;
        let gone = self.objects.extract_if(|_, entry| entry.list != list);
        let gone: Vec<SharedId> = gone.map(|(id, _)| id).collect();
        for id in gone {
            self.remove(id, changes);
        }
    }

    fn id(&self, identity: &ObjectIdentity) -> ObjectId {
        ObjectId {
            namespace: identity.namespace.as_deref().map(Into::into),
            name: identity.name.as_str().into(),
            kind: object_kind(self.resource.group, self.resource.kind),
        }
    }

    /// The key of an object in the snapshot; it begins with the name of the resource.
    fn key(&self, id: &ObjectId) -> String {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        format!("{}/{namespace}/{}", self.name, id.name)
    }

    fn remove(&mut self, id: SharedId, changes: &mut RemoteChanges<SharedId>) {
        changes.store(|| StoredChange {
            key: self.key(&id),
            value: None,
        });
        changes.has_new_diagnostics |= self.diagnostics.remove(&id).is_some();
        changes
            .definitions
            .insert(id.clone(), DefinitionChange::Gone(id));
    }

    fn upsert(
        &mut self,
        identity: &ObjectIdentity,
        text: &str,
        changes: &mut RemoteChanges<SharedId>,
    ) {
        let id = self.id(identity);
        let version = &identity.resource_version;
        let known = self.objects.get_mut(&id);
        if let Some(entry) = known
            && entry.version == hash_of_version(version)
            && !version.is_empty()
        {
            entry.list = self.list;
            return;
        }
        let type_of_list = (&*self.api_version, self.resource.kind);
        let filter = field_filter_of_kind;
        let read = read_server_object(&self.name, text, &self.limits, filter, type_of_list);
        let raw = match read {
            Ok(raw) => raw,
            Err(problems) => return self.reject(id, (version, text), problems, changes),
        };
        let hash = ContentHash::of(&raw.root);
        if let Some(entry) = self.objects.get_mut(&id)
            && entry.is_readable
            && entry.hash == hash
        {
            (entry.version, entry.list) = (hash_of_version(version), self.list);
            return;
        }
        let mut lowered = lower_object(&raw);
        if lowered.id != id {
            let reason = format!(
                "the object is {}, not {id}, as its request says",
                lowered.id
            );
            let problem = self.problem(&id, reason);
            return self.reject(id, (version, text), vec![problem], changes);
        }
        changes.store(|| StoredChange {
            key: self.key(&id),
            value: Some((version.as_str().into(), to_json(&raw.root).to_string())),
        });
        let id = self.insert(id, Some(hash), version);
        let origin = ObjectOrigin::Resource {
            version: version.into(),
            location: lowered.location.clone(),
        };
        let definition = Definition::new(id.clone(), &raw, &mut lowered, origin);
        let diagnostics = Diagnostic::take_from(&mut lowered);
        self.set_diagnostics(&id, diagnostics, changes);
        let change = DefinitionChange::Upsert(definition);
        changes.definitions.insert(id, change);
    }

    /// An object that cannot be read: what was in force stays.
    fn reject(
        &mut self,
        id: ObjectId,
        (version, text): (&str, &str),
        problems: Vec<Problem>,
        changes: &mut RemoteChanges<SharedId>,
    ) {
        changes.store(|| StoredChange {
            key: self.key(&id),
            value: Some((version.into(), text.to_owned())),
        });
        let id = self.insert(id, None, version);
        let named = problems.into_iter().map(|mut problem| {
            problem.object.get_or_insert_with(|| id.to_string());
            Diagnostic::error(problem)
        });
        self.set_diagnostics(&id, named.collect(), changes);
        let change = DefinitionChange::Missing {
            id: id.clone(),
            is_reported: true,
        };
        changes.definitions.insert(id, change);
    }

    fn problem(&self, id: &ObjectId, reason: String) -> Problem {
        Problem {
            location: Location::of_server(Arc::clone(&self.name)),
            object: Some(id.to_string()),
            field: String::new(),
            reason,
        }
    }

    fn insert(&mut self, id: ObjectId, hash: Option<ContentHash>, version: &str) -> SharedId {
        let entry = IndexEntry {
            hash: hash.unwrap_or(ContentHash(0)),
            version: hash_of_version(version),
            list: self.list,
            is_readable: hash.is_some(),
        };
        let shared = self.objects.get_key_value(&id).map(|(id, _)| id.clone());
        let shared = shared.unwrap_or_else(|| Arc::new(id));
        self.objects.insert(shared.clone(), entry);
        shared
    }

    fn set_diagnostics(
        &mut self,
        id: &SharedId,
        diagnostics: Vec<Diagnostic>,
        changes: &mut RemoteChanges<SharedId>,
    ) {
        let before = if diagnostics.is_empty() {
            self.diagnostics.remove(id)
        } else {
            self.diagnostics.insert(id.clone(), diagnostics.clone())
        };
        changes.has_new_diagnostics |= before.unwrap_or_default() != diagnostics;
    }
}

fn hash_of_version(version: &str) -> u64 {
    FixedState::default().hash_one(version)
}
