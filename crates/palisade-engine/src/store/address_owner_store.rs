//! The store of all owners of addresses: endpoints, network sets and nodes.
//!
//! Common attributes are interned: lists of label keys; kind, account, profiles and ports together;
//! names. An owner's own attributes are one string of bytes. An endpoint is given back exactly as
//! it came. A removed owner keeps its slot until [`AddressOwnerStore::free_removed`]. Nothing here
//! interprets labels.

use super::address_owner_lists::{ListLinks, UNLINKED};
use super::address_owners::{
    AddressOwnerAttributes, AddressOwnerId, AddressOwnerKind, AddressOwnerObject, AddressOwnerView,
    SharedAttributes, flag, text,
};
use super::chunked_vec::ChunkedVec;
use super::encoding::{write_addresses, write_number, write_text};
use super::inherited_labels::InheritedLabels;
use super::numbers::{AddressOwnerSlot, NONE, SignatureNumber};
use super::pool::{HashMap, InternPool, hash};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Endpoint, EndpointId, Labels, ObjectId, Owner, Str};

#[derive(Debug)]
pub(super) struct AddressOwnerRecord {
    encoded: Box<[u8]>,
    namespace: u32,
    keys: u32,
    /// With [`REMOVED`] while it waits to be freed.
    shared: u32,
    pub(super) signature: SignatureNumber,
    /// The neighbours in the list of its signature.
    pub(super) members: ListLinks,
    /// The neighbours in the list of its namespace.
    pub(super) neighbours: ListLinks,
}

/// The number of [`AddressOwnerStore::likely_keys`].
const LIKELY: usize = 256;

/// Marks a removed owner.
const REMOVED: u32 = 1 << 31;

/// An owner as before an update, to be released with [`AddressOwnerStore::release_replaced`].
#[derive(Debug)]
pub(crate) struct ReplacedAddressOwner {
    encoded: Box<[u8]>,
    keys: u32,
    shared: u32,
    namespace: u32,
}

/// All owners.
#[derive(Debug, Default)]
pub(crate) struct AddressOwnerStore {
    pub(super) records: ChunkedVec<AddressOwnerRecord>,
    free: Vec<AddressOwnerSlot>,
    /// Slots of owners removed since the last call of [`AddressOwnerStore::free_removed`].
    removed: Vec<AddressOwnerSlot>,
    /// By namespace and name, stored with their hash: growing the table does not read the owners.
    index: HashTable<(u32, AddressOwnerSlot)>,
    pub(crate) names: InternPool<Str>,
    pub(super) key_lists: InternPool<Box<[u32]>>,
    shared_attributes: InternPool<SharedAttributes>,
    /// The labels of namespaces and service accounts.
    pub(crate) inherited_labels: InheritedLabels,
    /// The first owner of each namespace.
    pub(super) namespaces: HashMap<u32, AddressOwnerSlot>,
    /// The name of the node of this host, as its endpoints name it.
    pub(crate) host_node: Option<Str>,
    /// The number of owners, without removed ones.
    live_count: usize,
    /// Lists of keys that the next labels are likely to have, by a part of a hash of their ends.
    likely_keys: Vec<u32>,
    /// Those of the last owner inserted, likely to be those of the next one.
    last_shared: u32,
    scratch: Vec<u8>,
}

impl AddressOwnerStore {
    /// The number of owners, without removed ones.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// Numbers of stored values: slots, names, lists of keys, shared attributes, and namespaces and
    /// service accounts with labels.
    pub(crate) fn pool_sizes(&self) -> [usize; 5] {
        [
            self.index.len(),
            self.names.len(),
            self.key_lists.len(),
            self.shared_attributes.len(),
            self.inherited_labels.len(),
        ]
    }

    /// The shared attributes of the owner in a slot, removed or not.
    pub(crate) fn shared_in(&self, slot: AddressOwnerSlot) -> Option<&SharedAttributes> {
        self.shared(self.records.get(slot.0)?.shared & !REMOVED)
    }

    /// Shared attributes by number.
    pub(crate) fn shared(&self, number: u32) -> Option<&SharedAttributes> {
        self.shared_attributes.get(number)
    }

    /// A list of label keys: the sorted numbers of their names.
    pub(crate) fn key_list(&self, number: u32) -> &[u32] {
        self.key_lists.get(number).map_or(&[], |keys| keys)
    }

    /// All lists of label keys with their numbers.
    pub(crate) fn key_lists(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.key_lists
            .iter()
            .map(|(number, keys)| (number, &**keys))
    }

    /// The slot of an owner that is not removed.
    pub(crate) fn find(&self, id: &AddressOwnerId) -> Option<AddressOwnerSlot> {
        let slot = match id {
            AddressOwnerId::Endpoint(id) => {
                self.find_slot(AddressOwnerKind::Endpoint, Some(id), &id.name)
            }
            AddressOwnerId::NetworkSet(id) => {
                self.find_slot(AddressOwnerKind::NetworkSet, Some(id), &id.name)
            }
            AddressOwnerId::Node(name) => self.find_slot(AddressOwnerKind::Node, None, name),
        }?;
        self.view(slot).map(|_| slot)
    }

    /// The slot of an endpoint that is not removed.
    pub(crate) fn find_endpoint(&self, id: &EndpointId) -> Option<AddressOwnerSlot> {
        let slot = self.find_slot(AddressOwnerKind::Endpoint, Some(id), &id.name)?;
        self.view(slot).map(|_| slot)
    }

    /// The slot of a name, also of a removed owner.
    fn find_slot(
        &self,
        kind: AddressOwnerKind,
        id: Option<&ObjectId>,
        name: &str,
    ) -> Option<AddressOwnerSlot> {
        let namespace = match id.and_then(|id| id.namespace.as_deref()) {
            Some(namespace) => self.names.find(namespace)?,
            None => NONE,
        };
        let is = |slot: &AddressOwnerSlot| {
            self.records.get(slot.0).is_some_and(|record| {
                record.namespace == namespace
                    && AddressOwnerAttributes::read(&record.encoded).name == name.as_bytes()
                    && self
                        .shared_attributes
                        .get(record.shared & !REMOVED)
                        .is_some_and(|common| {
                            common.owner_kind == kind && id.is_none_or(|id| common.kind == id.kind)
                        })
            })
        };
        let key = name_hash(namespace, name.as_bytes());
        let found = self
            .index
            .find(widen_hash(key), |(of, slot)| *of == key && is(slot));
        found.map(|(_, slot)| *slot)
    }

    /// The owner in a slot, unless it is removed.
    pub(crate) fn view(&self, slot: AddressOwnerSlot) -> Option<AddressOwnerView<'_>> {
        let record = self.records.get(slot.0)?;
        (record.shared & REMOVED == 0).then_some(AddressOwnerView {
            store: self,
            encoded: &record.encoded,
            namespace: record.namespace,
            keys: record.keys,
            shared: record.shared,
        })
    }

    /// An owner as before an update.
    pub(crate) fn view_replaced<'a>(
        &'a self,
        before: &'a ReplacedAddressOwner,
    ) -> AddressOwnerView<'a> {
        AddressOwnerView {
            store: self,
            encoded: &before.encoded,
            namespace: before.namespace,
            keys: before.keys,
            shared: before.shared,
        }
    }

    /// The name of an owner, removed or not.
    pub(crate) fn id(&self, slot: AddressOwnerSlot) -> Option<AddressOwnerId> {
        let record = self.records.get(slot.0)?;
        let common = self.shared_attributes.get(record.shared & !REMOVED)?;
        let name: Str = text(AddressOwnerAttributes::read(&record.encoded).name).into();
        let id = |name| ObjectId {
            namespace: self.names.get(record.namespace).cloned(),
            name,
            kind: common.kind.clone(),
        };
        Some(match common.owner_kind {
            AddressOwnerKind::Endpoint => AddressOwnerId::Endpoint(id(name)),
            AddressOwnerKind::NetworkSet => AddressOwnerId::NetworkSet(id(name)),
            AddressOwnerKind::Node => AddressOwnerId::Node(name),
        })
    }

    /// The name of an endpoint.
    pub(crate) fn endpoint_id(&self, slot: AddressOwnerSlot) -> Option<EndpointId> {
        match self.id(slot)? {
            AddressOwnerId::Endpoint(id) => Some(id),
            _ => None,
        }
    }

    /// The endpoint in a slot, exactly as it was given, but for its UID.
    pub(crate) fn endpoint(&self, slot: AddressOwnerSlot) -> Option<Endpoint> {
        let view = self.view(slot)?;
        let common = view.shared()?;
        let AddressOwnerId::Endpoint(id) = self.id(slot)? else {
            return None;
        };
        let own = view.attributes();
        let mut values = own.values;
        let labels = view.keys().iter().filter_map(|key| {
            let value = values.text();
            Some((self.names.get(*key)?.clone(), value.into()))
        });
        Some(Endpoint {
            id,
            kind: common.endpoint?,
            labels: labels.collect(),
            service_account: common.account.clone(),
            node: self.names.get(own.node).cloned(),
            interface: own.interface.map(|bytes| text(bytes).into()),
            addresses: own.addresses.collect(),
            ports: common.ports.clone(),
            profiles: common.profiles.clone(),
            created: own.created,
            owner: own.owner.and_then(|(kind, name)| {
                Some(Owner {
                    kind: self.names.get(kind)?.clone(),
                    name: self.names.get(name)?.clone(),
                })
            }),
            audit: common.audit,
            uid: None,
        })
    }

    /// The slots of all endpoints that are not removed.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = AddressOwnerSlot> {
        let slots = self.views();
        slots.filter_map(|(slot, view)| (view.kind() == AddressOwnerKind::Endpoint).then_some(slot))
    }

    /// All owners that are not removed.
    pub(crate) fn views(&self) -> impl Iterator<Item = (AddressOwnerSlot, AddressOwnerView<'_>)> {
        let all = self.records.iter();
        all.filter_map(|(slot, _)| {
            let slot = AddressOwnerSlot(slot);
            Some((slot, self.view(slot)?))
        })
    }

    /// Every slot with its list of label keys and its signature.
    pub(crate) fn slot_signatures(
        &self,
    ) -> impl Iterator<Item = (AddressOwnerSlot, u32, SignatureNumber)> {
        let all = self.records.iter();
        all.map(|(slot, record)| (AddressOwnerSlot(slot), record.keys, record.signature))
    }

    /// Inserts an owner, or replaces the one with its name. Returns the slot and the owner
    /// replaced, if that was not removed; `None` if nothing changed.
    pub(crate) fn upsert(
        &mut self,
        object: AddressOwnerObject<'_>,
    ) -> Option<(AddressOwnerSlot, Option<ReplacedAddressOwner>)> {
        let id = object.id();
        let found = self.find_slot(object.kind(), id, object.name());
        let alive = found.filter(|slot| self.view(*slot).is_some());
        let keys = self.acquire_keys(object.labels());
        let common = self.acquire_shared(object);
        let mut encoded = core::mem::take(&mut self.scratch);
        encoded.clear();
        self.encode(object, &mut encoded);
        let same = alive
            .and_then(|slot| self.records.get(slot.0))
            .is_some_and(|r| r.keys == keys && r.shared == common && *r.encoded == *encoded);
        let new: Box<[u8]> = match same {
            true => Box::default(),
            false => encoded.as_slice().into(),
        };
        if same {
            self.release_encoded(&encoded);
            self.release_keys(keys);
            self.shared_attributes.release(common);
        }
        self.scratch = encoded;
        if same {
            return None;
        }
        if alive.is_none() {
            self.live_count += 1;
        }
        let Some(slot) = found else {
            return Some((self.insert(object, new, keys, common), None));
        };
        let record = self.records.get_mut(slot.0)?;
        let before = ReplacedAddressOwner {
            encoded: core::mem::replace(&mut record.encoded, new),
            keys: core::mem::replace(&mut record.keys, keys),
            shared: core::mem::replace(&mut record.shared, common) & !REMOVED,
            namespace: record.namespace,
        };
        if alive.is_some() {
            return Some((slot, Some(before)));
        }
        self.release_replaced(before);
        Some((slot, None))
    }

    fn insert(
        &mut self,
        object: AddressOwnerObject<'_>,
        encoded: Box<[u8]>,
        keys: u32,
        common: u32,
    ) -> AddressOwnerSlot {
        let namespace = object.id().and_then(|id| id.namespace.as_ref());
        let namespace = namespace.map_or(NONE, |name| self.acquire_name(name));
        let record = AddressOwnerRecord {
            encoded,
            namespace,
            keys,
            shared: common,
            signature: SignatureNumber::NONE,
            members: UNLINKED,
            neighbours: UNLINKED,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.records.get_mut(slot.0) {
                    *place = record;
                }
                slot
            }
            None => AddressOwnerSlot(self.records.push(record)),
        };
        let key = name_hash(namespace, object.name().as_bytes());
        self.index
            .insert_unique(widen_hash(key), (key, slot), |(key, _)| widen_hash(*key));
        self.join_namespace(slot, namespace);
        slot
    }

    /// Marks an owner as removed.
    pub(crate) fn remove(&mut self, slot: AddressOwnerSlot) {
        let record = self.records.get_mut(slot.0);
        if let Some(record) = record.filter(|record| record.shared & REMOVED == 0) {
            record.shared |= REMOVED;
            self.live_count -= 1;
            self.removed.push(slot);
        }
    }

    /// The slots of owners removed since the last call of [`AddressOwnerStore::free_removed`]; some may
    /// have come back.
    pub(crate) fn removed(&self) -> &[AddressOwnerSlot] {
        &self.removed
    }

    /// Frees the slots of removed owners.
    pub(crate) fn free_removed(&mut self) {
        for slot in core::mem::take(&mut self.removed) {
            if self.view(slot).is_none() {
                self.free_slot(slot);
            }
        }
        if self.index.is_empty() {
            self.records = ChunkedVec::default();
            self.free = Vec::new();
            self.index = HashTable::new();
            self.namespaces = HashMap::default();
        }
    }

    fn free_slot(&mut self, slot: AddressOwnerSlot) {
        let Some(record) = self.records.get(slot.0) else {
            return;
        };
        if record.encoded.is_empty() {
            return;
        }
        let key = name_hash(
            record.namespace,
            AddressOwnerAttributes::read(&record.encoded).name,
        );
        let found = self
            .index
            .find_entry(widen_hash(key), |(_, other)| *other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
        let Some(record) = self.records.get_mut(slot.0) else {
            return;
        };
        let before = ReplacedAddressOwner {
            // The slot stays marked as removed while it is free.
            encoded: core::mem::take(&mut record.encoded),
            keys: record.keys,
            shared: record.shared & !REMOVED,
            namespace: record.namespace,
        };
        self.leave_namespace(slot, before.namespace);
        let namespace = before.namespace;
        self.release_replaced(before);
        self.names.release(namespace);
        self.free.push(slot);
    }

    /// Releases the interned values of a replaced owner.
    pub(crate) fn release_replaced(&mut self, before: ReplacedAddressOwner) {
        self.release_encoded(&before.encoded);
        self.release_keys(before.keys);
        self.shared_attributes.release(before.shared);
    }

    /// The number of a name; counts one use more.
    pub(crate) fn acquire_name(&mut self, name: &Str) -> u32 {
        self.names.acquire_with::<str>(name, || name.clone())
    }

    /// The number of the key list of these labels; counts one use more. Many owners have the same
    /// keys: the last list of this length with these ends is compared first, which takes less than to
    /// look up every key.
    pub(crate) fn acquire_keys(&mut self, labels: &Labels) -> u32 {
        let ends = (labels.keys().next(), labels.keys().last());
        let [hint, ..] = hash(&(labels.len(), ends)).to_le_bytes();
        self.likely_keys.resize(LIKELY, NONE);
        let likely = self.likely_keys[usize::from(hint)];
        let is_likely = self.key_lists.get(likely).is_some_and(|keys| {
            let name = |key: &u32| self.names.get(*key).map(|name| &**name);
            keys.len() == labels.len()
                && (keys.iter().map(name)).eq(labels.keys().map(|key| Some(&**key)))
        });
        if is_likely {
            self.key_lists.retain(likely);
            return likely;
        }
        let keys: Vec<u32> = labels.keys().map(|key| self.acquire_name(key)).collect();
        let before = self.key_lists.len();
        let number = (self.key_lists).acquire_with(keys.as_slice(), || keys.as_slice().into());
        if self.key_lists.len() == before {
            for key in keys {
                self.names.release(key);
            }
        }
        self.likely_keys[usize::from(hint)] = number;
        number
    }

    /// Counts one use of a key list less.
    pub(crate) fn release_keys(&mut self, number: u32) {
        if let Some(gone) = self.key_lists.release(number) {
            for key in gone {
                self.names.release(key);
            }
        }
    }

    fn acquire_shared(&mut self, object: AddressOwnerObject<'_>) -> u32 {
        let last = self.shared_attributes.get(self.last_shared);
        if last.is_some_and(|common| object.has_shared(common)) {
            self.shared_attributes.retain(self.last_shared);
            return self.last_shared;
        }
        self.last_shared = self.shared_attributes.acquire(object.shared_attributes());
        self.last_shared
    }

    fn encode(&mut self, object: AddressOwnerObject<'_>, out: &mut Vec<u8>) {
        out.push(0);
        write_text(out, object.name());
        match object {
            AddressOwnerObject::Endpoint(endpoint) => {
                let flags = self.encode_endpoint(endpoint, out);
                if let Some(first) = out.first_mut() {
                    *first = flags;
                }
            }
            _ => write_addresses(out, &[]),
        }
        for value in object.labels().values() {
            write_text(out, value);
        }
    }

    fn encode_endpoint(&mut self, endpoint: &Endpoint, out: &mut Vec<u8>) -> u8 {
        let mut flags = 0;
        write_addresses(out, &endpoint.addresses);
        if let Some(node) = &endpoint.node {
            flags |= flag::NODE;
            write_number(out, u64::from(self.acquire_name(node)));
        }
        if let Some(interface) = &endpoint.interface {
            flags |= flag::INTERFACE;
            write_text(out, interface);
        }
        if endpoint.created != 0 {
            flags |= flag::CREATED;
            write_number(out, endpoint.created);
        }
        if let Some(owner) = &endpoint.owner {
            flags |= flag::OWNER;
            write_number(out, u64::from(self.acquire_name(&owner.kind)));
            write_number(out, u64::from(self.acquire_name(&owner.name)));
        }
        flags
    }

    /// Releases the names in an owner's encoded attributes.
    fn release_encoded(&mut self, encoded: &[u8]) {
        let own = AddressOwnerAttributes::read(encoded);
        self.names.release(own.node);
        if let Some((kind, name)) = own.owner {
            self.names.release(kind);
            self.names.release(name);
        }
    }
}

/// A hash of an owner's name.
fn name_hash(namespace: u32, name: &[u8]) -> u32 {
    let [a, b, c, d, ..] = hash(&(namespace, name)).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The hash widened for the hash table, which uses the bits of both ends.
fn widen_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
