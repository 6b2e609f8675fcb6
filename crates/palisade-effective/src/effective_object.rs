//! One object: its definitions, and what is known of the version in force.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::definition_problems::ClosedParts;
use crate::lint::PodFacts;
use crate::source::SourceNumber;
use crate::version_choice::ValidVersion;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use palisade_dialects::{ContentHash, is_policy_kind};
use palisade_manifest::Location;
use palisade_model::{NetworkSetKind, Node, Object, ObjectId, ObjectKey, Str};

/// The type of an object of which only the keys are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InventoryType {
    Endpoint,
    Namespace,
    Node,
    /// A node, and the networks of its pods as a network set.
    NodeWithNetworks,
    Service,
    ServiceAccount,
    EndpointSlice,
}

impl InventoryType {
    fn of(object: &Object) -> Option<Self> {
        match object {
            Object::Endpoint(_) => Some(InventoryType::Endpoint),
            Object::Namespace(_) => Some(InventoryType::Namespace),
            Object::Node(_) => Some(InventoryType::Node),
            Object::Service(_) => Some(InventoryType::Service),
            Object::ServiceAccount(_) => Some(InventoryType::ServiceAccount),
            Object::NetworkSet(set) => match set.kind {
                NetworkSetKind::EndpointSlice | NetworkSetKind::UnreadyEndpoints => {
                    Some(InventoryType::EndpointSlice)
                }
                NetworkSetKind::PodNetwork => Some(InventoryType::NodeWithNetworks),
                NetworkSetKind::NetworkSet
                | NetworkSetKind::CidrGroup
                | NetworkSetKind::HostEndpoint
                | NetworkSetKind::DomainName => None,
            },
            Object::Tier(_) | Object::Policy(_) | Object::Profile(_) => None,
        }
    }

    /// The keys of the objects of this type that an object of this name is made of.
    fn keys(self, id: &ObjectId) -> impl Iterator<Item = ObjectKey> {
        let networks = (self == InventoryType::NodeWithNetworks)
            .then(|| ObjectKey::NetworkSet(Node::pod_network_id(id.name.clone())));
        [self.key(id)].into_iter().chain(networks)
    }

    fn key(self, id: &ObjectId) -> ObjectKey {
        let name = id.name.clone();
        let namespace = || id.namespace.clone().unwrap_or_default();
        match self {
            InventoryType::Endpoint => ObjectKey::Endpoint(id.clone()),
            InventoryType::Namespace => ObjectKey::Namespace(name),
            InventoryType::Node | InventoryType::NodeWithNetworks => ObjectKey::Node(name),
            InventoryType::EndpointSlice => ObjectKey::NetworkSet(id.clone()),
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
    /// It was handed out: the type of its objects, if it has any.
    HandedOut(Option<InventoryType>),
}

impl EffectiveContent {
    /// The keys of what was handed out.
    pub(crate) fn keys(&self, id: &ObjectId) -> Vec<ObjectKey> {
        match self {
            EffectiveContent::Kept(objects) => effective_keys(objects).collect(),
            EffectiveContent::HandedOut(types) => {
                types.iter().flat_map(|types| types.keys(id)).collect()
            }
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
    /// The parts of this version that are held closed.
    pub(crate) closed: Option<Arc<ClosedParts>>,
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
    /// Whether the policy with this name is to be reported as one that is not enforced exactly as written. To be
    /// called after what is in force was decided.
    pub(crate) fn deviates(&self, id: &ObjectId, is_retained: bool) -> bool {
        if !is_policy_kind(&id.kind) {
            return false;
        }
        match &self.effective {
            None => !self.definitions.is_empty(),
            Some(effective) => {
                is_retained || effective.version.is_none() || effective.closed.is_some()
            }
        }
    }

    pub(crate) fn first(&self) -> Option<&Definition> {
        self.definitions
            .first()
            .map(|(_, definition)| &**definition)
    }

    /// Puts a definition of a source in its place.
    pub(crate) fn put(&mut self, source: SourceNumber, definition: Definition) {
        let definitions = &mut self.definitions;
        match find_definition(definitions, source, &definition.origin) {
            Ok(at) => definitions[at] = (source, Box::new(definition)),
            Err(at) => {
                if definitions.is_empty() {
                    definitions.reserve_exact(1);
                }
                definitions.insert(at, (source, Box::new(definition)));
            }
        }
    }

    /// Removes a definition of a source; returns whether the source has no other.
    pub(crate) fn remove(&mut self, source: SourceNumber, origin: &ObjectOrigin) -> bool {
        let definitions = &mut self.definitions;
        if let Ok(at) = find_definition(definitions, source, origin) {
            definitions.remove(at);
        }
        let first = definitions.partition_point(|(other, _)| *other < source);
        definitions
            .get(first)
            .is_none_or(|(other, _)| *other != source)
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
            hash: version.hash,
            origin: InventoryOrigin::from(&effective.origin),
            pod: self.pod.take(),
            since: u32::try_from(version.since).unwrap_or(u32::MAX),
            source: *source,
            content,
        })
    }
}

/// The position of a definition among those of its object, or where it belongs. A server has one version of
/// an object, so all resource versions in a source are one origin.
fn find_definition(
    definitions: &[(SourceNumber, Box<Definition>)],
    source: SourceNumber,
    origin: &ObjectOrigin,
) -> Result<usize, usize> {
    definitions.binary_search_by(|(other_source, other)| {
        other_source
            .cmp(&source)
            .then_with(|| match (&other.origin, origin) {
                (ObjectOrigin::Resource { .. }, ObjectOrigin::Resource { .. }) => Ordering::Equal,
                (other, origin) => other.cmp(origin),
            })
    })
}

/// Where an inventory object was read. There is one for each object of a cluster, so what objects of a server
/// have in common is shared, and their resource version, which no message about them needs, is not kept.
#[derive(Debug)]
enum InventoryOrigin {
    /// An object of a server: the name of the resource.
    Server(Arc<str>),
    Other(Box<ObjectOrigin>),
}

impl From<&ObjectOrigin> for InventoryOrigin {
    fn from(origin: &ObjectOrigin) -> Self {
        match origin {
            // A line is only counted in texts that people write.
            ObjectOrigin::Resource { location, .. } if location.line == 0 => {
                InventoryOrigin::Server(location.file.clone())
            }
            other => InventoryOrigin::Other(Box::new(other.clone())),
        }
    }
}

impl From<InventoryOrigin> for ObjectOrigin {
    fn from(origin: InventoryOrigin) -> Self {
        match origin {
            InventoryOrigin::Server(file) => ObjectOrigin::Resource {
                version: Str::default(),
                location: Location::of_server(file),
            },
            InventoryOrigin::Other(origin) => *origin,
        }
    }
}

impl InventoryOrigin {
    fn location(&self) -> Location {
        match self {
            InventoryOrigin::Server(file) => Location::of_server(file.clone()),
            InventoryOrigin::Other(origin) => origin.location().clone(),
        }
    }
}

/// All that is kept of an inventory object whose only definition is in force.
#[derive(Debug)]
struct InventoryEntry {
    hash: ContentHash,
    origin: InventoryOrigin,
    pod: Option<PodFacts>,
    /// When the version was first read, in seconds since 1970; until 2106.
    since: u32,
    source: SourceNumber,
    content: Option<InventoryType>,
}

// One for each object of a cluster: 80 bytes are a size of the allocator's.
const _: () = assert!(size_of::<EntryContent>() <= 80);

impl InventoryEntry {
    fn version(&self) -> ValidVersion {
        ValidVersion {
            hash: self.hash,
            since: self.since.into(),
        }
    }

    fn into_entry(self, id: &SharedId) -> ObjectEntry {
        let version = self.version();
        let origin = ObjectOrigin::from(self.origin);
        let definition = Definition::handed_out(id, origin.clone(), version.hash);
        ObjectEntry {
            definitions: alloc::vec![(self.source, Box::new(definition))],
            effective: Some(EffectiveObject {
                version: Some(version),
                source: self.source,
                origin,
                content: EffectiveContent::HandedOut(self.content),
                closed: None,
                is_announced: true,
                is_restored: false,
            }),
            pod: self.pod,
            is_policy: false,
        }
    }
}

/// An entry as it is stored; `None` before it is first opened.
#[derive(Debug, Default)]
pub(crate) struct StoredEntry(Option<Box<EntryContent>>);

/// The two forms of an entry. Nearly all are the first, and they are kept in place.
#[derive(Debug)]
enum EntryContent {
    Inventory(InventoryEntry),
    Full(Box<ObjectEntry>),
}

impl StoredEntry {
    /// Forgets the content of an inventory object whose only definition is in force. To be called once no
    /// other definition can displace it while it lasts.
    pub(crate) fn forget_content(&mut self) {
        if let Some(entry) = self.full_mut() {
            entry.forget_content();
            if let Some(inventory) = entry.take_inventory() {
                self.0 = Some(Box::new(EntryContent::Inventory(inventory)));
            }
        }
    }

    /// Takes the entry of the object of this name out.
    pub(crate) fn take(&mut self, id: &SharedId) -> Box<ObjectEntry> {
        match self.0.take().map(|content| *content) {
            None => Box::default(),
            Some(EntryContent::Inventory(inventory)) => Box::new(inventory.into_entry(id)),
            Some(EntryContent::Full(entry)) => entry,
        }
    }

    /// Changes the entry of the object of this name.
    pub(crate) fn change<T>(
        &mut self,
        id: &SharedId,
        change: impl FnOnce(&mut ObjectEntry) -> T,
    ) -> T {
        let mut entry = self.take(id);
        let result = change(&mut entry);
        self.0 = Some(Box::new(EntryContent::Full(entry)));
        result
    }

    /// An entry in its shortest form; `None` if there is nothing to store.
    pub(crate) fn of(mut entry: Box<ObjectEntry>) -> Option<Self> {
        if entry.definitions.is_empty() && entry.effective.is_none() {
            return None;
        }
        let content = match entry.take_inventory() {
            Some(inventory) => EntryContent::Inventory(inventory),
            None => EntryContent::Full(entry),
        };
        Some(StoredEntry(Some(Box::new(content))))
    }

    fn inventory(&self) -> Option<&InventoryEntry> {
        match self.0.as_deref()? {
            EntryContent::Inventory(inventory) => Some(inventory),
            EntryContent::Full(_) => None,
        }
    }

    /// The entry, unless it is that of an inventory object whose only definition is in force.
    pub(crate) fn full(&self) -> Option<&ObjectEntry> {
        match self.0.as_deref()? {
            EntryContent::Full(entry) => Some(entry),
            EntryContent::Inventory(_) => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn full_mut(&mut self) -> Option<&mut ObjectEntry> {
        match self.0.as_deref_mut()? {
            EntryContent::Full(entry) => Some(entry),
            EntryContent::Inventory(_) => None,
        }
    }

    /// The valid version in force.
    pub(crate) fn version(&self) -> Option<ValidVersion> {
        match self.inventory() {
            Some(inventory) => Some(inventory.version()),
            None => self.full()?.effective.as_ref()?.version,
        }
    }

    /// What the warnings need, and where it was read, if it is a pod in force.
    pub(crate) fn pod(&self) -> Option<(&PodFacts, Location)> {
        match self.inventory() {
            Some(inventory) => Some((inventory.pod.as_ref()?, inventory.origin.location())),
            None => {
                let entry = self.full()?;
                let origin = &entry.effective.as_ref()?.origin;
                Some((entry.pod.as_ref()?, origin.location().clone()))
            }
        }
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

/// The type of the objects of an inventory object, if their keys follow from the name; `Some(None)` if it
/// has no object in force. `None` for everything whose content is stored.
pub(crate) fn inventory_type(id: &ObjectId, objects: &[Object]) -> Option<Option<InventoryType>> {
    match objects {
        [] => Some(None),
        [Object::Endpoint(pod)] if pod.uses_host_network() => Some(None),
        [object] => {
            let object_type = InventoryType::of(object)?;
            (object_type.key(id) == object.key()).then_some(Some(object_type))
        }
        [node @ Object::Node(_), networks @ Object::NetworkSet(_)] => {
            let object_type = InventoryType::of(networks)?;
            let keys = [node.key(), networks.key()];
            object_type.keys(id).eq(keys).then_some(Some(object_type))
        }
        _ => None,
    }
}

/// The keys of the objects that count for policy.
pub(crate) fn effective_keys(objects: &[Object]) -> impl Iterator<Item = ObjectKey> {
    let on_host_network =
        |object: &&Object| matches!(object, Object::Endpoint(e) if e.uses_host_network());
    let effective = objects
        .iter()
        .filter(move |object| !on_host_network(object));
    effective.map(Object::key)
}
