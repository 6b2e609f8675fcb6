//! One object: its definitions, and what is known of the version in force.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::lint::PodFacts;
use crate::source::SourceNumber;
use crate::version_choice::ValidVersion;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_manifest::Location;
use palisade_model::{Object, ObjectId, ObjectKey};

/// The type of an object of which only the key is known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InventoryType {
    Endpoint,
    Namespace,
    Node,
    Service,
    ServiceAccount,
}

impl InventoryType {
    fn of(object: &Object) -> Option<Self> {
        match object {
            Object::Endpoint(_) => Some(InventoryType::Endpoint),
            Object::Namespace(_) => Some(InventoryType::Namespace),
            Object::Node(_) => Some(InventoryType::Node),
            Object::Service(_) => Some(InventoryType::Service),
            Object::ServiceAccount(_) => Some(InventoryType::ServiceAccount),
            Object::Tier(_) | Object::Policy(_) | Object::Profile(_) | Object::NetworkSet(_) => {
                None
            }
        }
    }

    fn key(self, id: &ObjectId) -> ObjectKey {
        let name = id.name.clone();
        let namespace = || id.namespace.clone().unwrap_or_default();
        match self {
            InventoryType::Endpoint => ObjectKey::Endpoint(id.clone()),
            InventoryType::Namespace => ObjectKey::Namespace(name),
            InventoryType::Node => ObjectKey::Node(name),
            InventoryType::Service => ObjectKey::Service {
                namespace: namespace(),
                name,
            },
            InventoryType::ServiceAccount => ObjectKey::ServiceAccount {
                namespace: namespace(),
                name,
            },
        }
    }
}

/// What is known of the content of an object in force.
#[derive(Clone, Debug)]
pub(crate) enum EffectiveContent {
    /// Its model objects.
    Kept(Arc<Vec<Object>>),
    /// It was handed out: the type of its only object, if it has one.
    HandedOut(Option<InventoryType>),
}

impl EffectiveContent {
    /// The keys of what was handed out.
    pub(crate) fn keys(&self, id: &ObjectId) -> Vec<ObjectKey> {
        match self {
            EffectiveContent::Kept(objects) => effective_keys(objects).collect(),
            EffectiveContent::HandedOut(of) => of.iter().map(|of| of.key(id)).collect(),
        }
    }
}

/// An object in force.
#[derive(Clone, Debug)]
pub(crate) struct EffectiveObject {
    pub(crate) version: Option<ValidVersion>,
    pub(crate) source: SourceNumber,
    pub(crate) origin: ObjectOrigin,
    pub(crate) content: EffectiveContent,
    /// Whether its updates were handed out. Not yet for one that was restored.
    pub(crate) is_announced: bool,
    /// Whether its version was restored: it holds the name against any source.
    pub(crate) is_restored: bool,
}

/// The definitions of one object in the order of precedence, and what is in force.
#[derive(Debug, Default)]
pub(crate) struct ObjectEntry {
    pub(crate) definitions: Vec<(SourceNumber, Box<Definition>)>,
    pub(crate) effective: Option<EffectiveObject>,
    /// What the warnings need, if it is a pod in force.
    pub(crate) pod: Option<PodFacts>,
    /// Whether the first definition was a valid policy when it was last looked at.
    pub(crate) is_policy: bool,
}

impl ObjectEntry {
    pub(crate) fn first(&self) -> Option<&Definition> {
        self.definitions
            .first()
            .map(|(_, definition)| &**definition)
    }

    /// Forgets the content of the only definition, if it is in force and was handed out.
    fn forget_content(&mut self) {
        let ([(_, definition)], Some(effective)) = (&mut *self.definitions, &self.effective) else {
            return;
        };
        let is_handed_out = matches!(effective.content, EffectiveContent::HandedOut(_));
        let hash = effective.version.map(|version| version.hash);
        if is_handed_out && hash == Some(definition.hash) && !definition.is_rejected {
            definition.objects = None;
        }
    }

    /// The inventory object that this is, if its only definition is in force and was handed out. The entry is
    /// not used any more.
    fn take_inventory(&mut self) -> Option<InventoryEntry> {
        let ([(source, definition)], Some(effective)) = (&*self.definitions, &self.effective)
        else {
            return None;
        };
        let EffectiveContent::HandedOut(content) = effective.content else {
            return None;
        };
        let version = effective.version?;
        let is_in_force = definition.objects.is_none()
            && definition.hash == version.hash
            && *source == effective.source;
        is_in_force.then(|| InventoryEntry {
            version,
            origin: effective.origin.clone(),
            pod: self.pod.take(),
            source: *source,
            content,
        })
    }
}

/// All that is kept of an inventory object of which the only definition is in force.
#[derive(Debug)]
struct InventoryEntry {
    version: ValidVersion,
    origin: ObjectOrigin,
    pod: Option<PodFacts>,
    source: SourceNumber,
    content: Option<InventoryType>,
}

impl InventoryEntry {
    fn into_entry(self, id: &SharedId) -> ObjectEntry {
        let definition = Definition::handed_out(id, self.origin.clone(), self.version.hash);
        ObjectEntry {
            definitions: alloc::vec![(self.source, Box::new(definition))],
            effective: Some(EffectiveObject {
                version: Some(self.version),
                source: self.source,
                origin: self.origin,
                content: EffectiveContent::HandedOut(self.content),
                is_announced: true,
                is_restored: false,
            }),
            pod: self.pod,
            is_policy: false,
        }
    }
}

/// An entry as it is stored: one of the two, or none.
#[derive(Debug, Default)]
pub(crate) struct StoredEntry {
    inventory: Option<Box<InventoryEntry>>,
    full: Option<Box<ObjectEntry>>,
}

impl StoredEntry {
    /// Forgets the content of an inventory object of which the only definition is in force. To be called once no
    /// other definition can displace it while it lasts.
    pub(crate) fn forget_content(&mut self) {
        if let Some(entry) = &mut self.full {
            entry.forget_content();
            self.close();
        }
    }

    /// The entry of the object of this name, to be changed.
    pub(crate) fn open(&mut self, id: &SharedId) -> &mut ObjectEntry {
        let inventory = self.inventory.take();
        self.full.get_or_insert_with(|| {
            let entry = inventory.map(|inventory| inventory.into_entry(id));
            Box::new(entry.unwrap_or_default())
        })
    }

    /// Stores a changed entry in its shortest form; returns whether there is anything to store.
    pub(crate) fn close(&mut self) -> bool {
        if let Some(entry) = &mut self.full {
            if entry.definitions.is_empty() && entry.effective.is_none() {
                return false;
            }
            self.inventory = entry.take_inventory().map(Box::new);
            if self.inventory.is_some() {
                self.full = None;
            }
        }
        true
    }

    /// The entry, unless it is that of an inventory object of which the only definition is in force.
    pub(crate) fn full(&self) -> Option<&ObjectEntry> {
        self.full.as_deref()
    }

    /// The same, to be changed.
    pub(crate) fn full_mut(&mut self) -> Option<&mut ObjectEntry> {
        self.full.as_deref_mut()
    }

    /// The valid version in force.
    pub(crate) fn version(&self) -> Option<ValidVersion> {
        match &self.inventory {
            Some(inventory) => Some(inventory.version),
            None => self.full()?.effective.as_ref()?.version,
        }
    }

    /// What the warnings need, and where it was read, if it is a pod in force.
    pub(crate) fn pod(&self) -> Option<(&PodFacts, &Location)> {
        let (pod, origin) = match &self.inventory {
            Some(inventory) => (&inventory.pod, &inventory.origin),
            None => {
                let entry = self.full()?;
                (&entry.pod, &entry.effective.as_ref()?.origin)
            }
        };
        Some((pod.as_ref()?, origin.location()))
    }
}

/// Whether a version of this object is kept on disk: policies, and what policies are made of.
pub fn is_saved(objects: &[Object]) -> bool {
    objects
        .iter()
        .any(|object| InventoryType::of(object).is_none())
}

impl Definition {
    /// Whether it is a valid definition of an object that is never saved and has no cost: its choice depends
    /// on no other object.
    pub fn is_inventory(&self) -> bool {
        !self.is_rejected && !is_saved(self.objects())
    }
}

/// The type of the only object of an inventory object, if its key follows from the name; `Some(None)` if it
/// has no object in force. `None` for everything of which the content is kept.
pub(crate) fn inventory_type(id: &ObjectId, objects: &[Object]) -> Option<Option<InventoryType>> {
    match objects {
        [] => Some(None),
        [Object::Endpoint(pod)] if pod.host_network => Some(None),
        [object] => {
            let of = InventoryType::of(object)?;
            (of.key(id) == object.key()).then_some(Some(of))
        }
        _ => None,
    }
}

/// The keys of the objects that count for policy.
pub(crate) fn effective_keys(objects: &[Object]) -> impl Iterator<Item = ObjectKey> {
    let on_host_network =
        |object: &&Object| matches!(object, Object::Endpoint(e) if e.host_network);
    let effective = objects
        .iter()
        .filter(move |object| !on_host_network(object));
    effective.map(Object::key)
}
