//! One object: its definitions, and what is known of the version in force.

use crate::definition::{Definition, ObjectOrigin};
use crate::source::SourceNumber;
use crate::version_choice::ValidVersion;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
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
    /// Whether the first definition was a valid policy when it was last looked at.
    pub(crate) is_policy: bool,
}

impl ObjectEntry {
    pub(crate) fn first(&self) -> Option<&Definition> {
        self.definitions
            .first()
            .map(|(_, definition)| &**definition)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.definitions.is_empty() && self.effective.is_none()
    }
}

/// Whether a version of this object is kept on disk: policies, and what policies are made of.
pub fn is_saved(objects: &[Object]) -> bool {
    objects
        .iter()
        .any(|object| InventoryType::of(object).is_none())
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
