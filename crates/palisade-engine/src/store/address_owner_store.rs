//! The store of all owners of addresses: endpoints, network sets and nodes.
//!
//! Common attributes are interned: lists of label keys; kind, account, profiles and ports together;
//! names. An owner's own attributes are one string of bytes. An endpoint is given back exactly as
//! it came. A removed owner keeps its slot until [`AddressOwnerStore::free_removed`]. Nothing here
//! interprets labels.

use super::address_owner_records::{AddressOwnerRecord, AddressOwnerRecords, UNLINKED};
use super::address_owners::{
    AddressOwnerAttributes, AddressOwnerId, AddressOwnerKind, AddressOwnerObject, SharedAttributes,
    flag, text,
};
use super::encoding::{write_addresses, write_number, write_text};
use super::inherited_labels::InheritedLabels;
use super::name_pools::NamePools;
use super::numbers::{AddressOwnerSlot, NONE, SignatureNumber};
use super::pool::{InternPool, hash};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Endpoint, EndpointId, Labels, Namespace, ObjectId, ServiceAccount, Str};

/// Marks a removed owner.
pub(super) const REMOVED: u32 = 1 << 31;

/// An owner as before an update, to be released with [`AddressOwnerStore::release_replaced`].
#[derive(Debug)]
pub(crate) struct ReplacedAddressOwner {
    pub(super) encoded: Box<[u8]>,
    pub(super) keys: u32,
    pub(super) shared: u32,
    pub(super) namespace: u32,
}

/// All owners.
#[derive(Debug, Default)]
pub(crate) struct AddressOwnerStore {
    records: AddressOwnerRecords,
    free: Vec<AddressOwnerSlot>,
    /// Slots of owners removed since the last call of [`AddressOwnerStore::free_removed`].
    removed: Vec<AddressOwnerSlot>,
    /// By namespace and name, stored with their hash: growing the table does not read the owners.
    index: HashTable<(u32, AddressOwnerSlot)>,
    pools: NamePools,
    shared_attributes: InternPool<SharedAttributes>,
    /// The labels of namespaces and service accounts.
    inherited_labels: InheritedLabels,
    /// The name of the node of this host, as its endpoints name it.
    pub(crate) host_node: Option<Str>,
    /// The number of owners, without removed ones.
    live_count: usize,
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
            self.pools.names.len(),
            self.pools.key_list_count(),
            self.shared_attributes.len(),
            self.inherited_labels.len(),
        ]
    }

    /// The shared attributes of the owner in a slot, removed or not.
    pub(crate) fn shared_in(&self, slot: AddressOwnerSlot) -> Option<&SharedAttributes> {
        self.shared(self.records.get(slot)?.shared & !REMOVED)
    }

    /// Shared attributes by number.
    pub(crate) fn shared(&self, number: u32) -> Option<&SharedAttributes> {
        self.shared_attributes.get(number)
    }

    /// The names, which policies and selectors use too: a name has one number everywhere.
    pub(crate) fn names(&self) -> &InternPool<Str> {
        &self.pools.names
    }

    /// The names, to count uses.
    pub(crate) fn names_mut(&mut self) -> &mut InternPool<Str> {
        &mut self.pools.names
    }

    /// A list of label keys: the sorted numbers of their names.
    pub(crate) fn key_list(&self, number: u32) -> &[u32] {
        self.pools.key_list(number)
    }

    /// All lists of label keys with their numbers.
    pub(crate) fn key_lists(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.pools.key_lists()
    }

    pub(super) fn record(&self, slot: AddressOwnerSlot) -> Option<&AddressOwnerRecord> {
        self.records.get(slot)
    }

    /// The slots, also of removed owners and free ones.
    pub(super) fn slots(&self) -> impl Iterator<Item = AddressOwnerSlot> {
        self.records.iter().map(|(slot, _)| slot)
    }

    /// Whether the owner in a slot is not removed.
    fn is_live(&self, slot: AddressOwnerSlot) -> bool {
        let record = self.records.get(slot);
        record.is_some_and(|record| record.shared & REMOVED == 0)
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
        self.is_live(slot).then_some(slot)
    }

    /// The slot of an endpoint that is not removed.
    pub(crate) fn find_endpoint(&self, id: &EndpointId) -> Option<AddressOwnerSlot> {
        let slot = self.find_slot(AddressOwnerKind::Endpoint, Some(id), &id.name)?;
        self.is_live(slot).then_some(slot)
    }

    /// The slot of a name, also of a removed owner.
    fn find_slot(
        &self,
        kind: AddressOwnerKind,
        id: Option<&ObjectId>,
        name: &str,
    ) -> Option<AddressOwnerSlot> {
        let namespace = match id.and_then(|id| id.namespace.as_deref()) {
            Some(namespace) => self.pools.names.find(namespace)?,
            None => NONE,
        };
        let has_name = |slot: &AddressOwnerSlot| {
            self.records.get(*slot).is_some_and(|record| {
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
        let entry = self
            .index
            .find(widen_hash(key), |(name_hash_of_slot, slot)| {
                *name_hash_of_slot == key && has_name(slot)
            });
        entry.map(|(_, slot)| *slot)
    }

    /// The name of an owner, removed or not.
    pub(crate) fn id(&self, slot: AddressOwnerSlot) -> Option<AddressOwnerId> {
        let record = self.records.get(slot)?;
        let common = self.shared_attributes.get(record.shared & !REMOVED)?;
        let name: Str = text(AddressOwnerAttributes::read(&record.encoded).name).into();
        let id = |name| ObjectId {
            namespace: self.pools.names.get(record.namespace).cloned(),
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

    /// Every slot with its list of label keys and its signature.
    pub(crate) fn slot_signatures(
        &self,
    ) -> impl Iterator<Item = (AddressOwnerSlot, u32, SignatureNumber)> {
        let all = self.records.iter();
        all.map(|(slot, record)| (slot, record.keys, record.signature))
    }

    /// Inserts an owner, or replaces the one with its name. Returns the slot and the owner
    /// replaced, if that was not removed; `None` if nothing changed.
    pub(crate) fn upsert(
        &mut self,
        object: AddressOwnerObject<'_>,
    ) -> Option<(AddressOwnerSlot, Option<ReplacedAddressOwner>)> {
        let id = object.id();
        let known_slot = self.find_slot(object.kind(), id, object.name());
        let alive = known_slot.filter(|slot| self.is_live(*slot));
        let keys = self.pools.acquire_keys(object.labels());
        let common = self.acquire_shared(object);
        let mut encoded = core::mem::take(&mut self.scratch);
        encoded.clear();
        self.encode(object, &mut encoded);
        let same = alive
            .and_then(|slot| self.records.get(slot))
            .is_some_and(|r| r.keys == keys && r.shared == common && *r.encoded == *encoded);
        let new: Box<[u8]> = if same {
            Box::default()
        } else {
            encoded.as_slice().into()
        };
        if same {
            self.release_encoded(&encoded);
            self.pools.release_keys(keys);
            self.shared_attributes.release(common);
        }
        self.scratch = encoded;
        if same {
            return None;
        }
        if alive.is_none() {
            self.live_count += 1;
        }
        let Some(slot) = known_slot else {
            return Some((self.insert(object, new, keys, common), None));
        };
        let record = self.records.get_mut(slot)?;
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
        let namespace = namespace.map_or(NONE, |name| self.pools.acquire_name(name));
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
                if let Some(stored) = self.records.get_mut(slot) {
                    *stored = record;
                }
                slot
            }
            None => self.records.push(record),
        };
        let key = name_hash(namespace, object.name().as_bytes());
        self.index
            .insert_unique(widen_hash(key), (key, slot), |(key, _)| widen_hash(*key));
        self.records.join_namespace(slot, namespace);
        slot
    }

    /// Marks an owner as removed.
    pub(crate) fn remove(&mut self, slot: AddressOwnerSlot) {
        let record = self.records.get_mut(slot);
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
            if !self.is_live(slot) {
                self.free_slot(slot);
            }
        }
        if self.index.is_empty() {
            self.records = AddressOwnerRecords::default();
            self.free = Vec::new();
            self.index = HashTable::new();
        }
    }

    fn free_slot(&mut self, slot: AddressOwnerSlot) {
        let Some(record) = self.records.get(slot) else {
            return;
        };
        if record.encoded.is_empty() {
            return;
        }
        let key = name_hash(
            record.namespace,
            AddressOwnerAttributes::read(&record.encoded).name,
        );
        let entry = self
            .index
            .find_entry(widen_hash(key), |(_, other)| *other == slot);
        if let Ok(entry) = entry {
            entry.remove();
        }
        let Some(record) = self.records.get_mut(slot) else {
            return;
        };
        let before = ReplacedAddressOwner {
            // The slot stays marked as removed while it is free.
            encoded: core::mem::take(&mut record.encoded),
            keys: record.keys,
            shared: record.shared & !REMOVED,
            namespace: record.namespace,
        };
        self.records.leave_namespace(slot, before.namespace);
        let namespace = before.namespace;
        self.release_replaced(before);
        self.pools.names.release(namespace);
        self.free.push(slot);
    }

    /// Releases the interned values of a replaced owner.
    pub(crate) fn release_replaced(&mut self, before: ReplacedAddressOwner) {
        self.release_encoded(&before.encoded);
        self.pools.release_keys(before.keys);
        self.shared_attributes.release(before.shared);
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
            write_number(out, u64::from(self.pools.acquire_name(node)));
        }
        if let Some(interface) = &endpoint.interface {
            flags |= flag::INTERFACE;
            write_text(out, interface);
        }
        if endpoint.created != 0 {
            flags |= flag::CREATED;
            write_number(out, endpoint.created);
        }
        if let Some(owner) = &endpoint.metadata.owner {
            flags |= flag::OWNER;
            write_number(out, u64::from(self.pools.acquire_name(&owner.kind)));
            write_number(out, u64::from(self.pools.acquire_name(&owner.name)));
        }
        flags
    }

    /// Releases the names in an owner's encoded attributes.
    fn release_encoded(&mut self, encoded: &[u8]) {
        let own = AddressOwnerAttributes::read(encoded);
        self.pools.names.release(own.node);
        if let Some((kind, name)) = own.owner {
            self.pools.names.release(kind);
            self.pools.names.release(name);
        }
    }

    /// The namespaces that owners are in, in no particular order.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> {
        self.records.namespaces()
    }

    /// The endpoints and network sets of a namespace, removed or not.
    pub(crate) fn in_namespace(&self, namespace: u32) -> impl Iterator<Item = AddressOwnerSlot> {
        self.records.in_namespace(namespace)
    }

    /// The signature of the owner in a slot.
    pub(crate) fn signature(&self, slot: AddressOwnerSlot) -> SignatureNumber {
        self.records.signature(slot)
    }

    /// Makes an owner the first member of a signature.
    pub(crate) fn join_signature(
        &mut self,
        slot: AddressOwnerSlot,
        signature: SignatureNumber,
        first: AddressOwnerSlot,
    ) {
        self.records.join_signature(slot, signature, first);
    }

    /// Removes an owner from the members of its signature. Returns the new first member if it was
    /// the first.
    pub(crate) fn leave_signature(&mut self, slot: AddressOwnerSlot) -> Option<AddressOwnerSlot> {
        self.records.leave_signature(slot)
    }

    /// The members of a signature, starting at the first.
    pub(crate) fn signature_members(
        &self,
        first: AddressOwnerSlot,
    ) -> impl Iterator<Item = AddressOwnerSlot> {
        self.records.signature_members(first)
    }

    /// Whether an endpoint is in audit, by itself or with its namespace.
    pub(crate) fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        self.inherited_labels.is_in_audit(endpoint)
    }

    /// The number of namespaces in audit.
    pub(crate) fn audited_namespaces(&self) -> usize {
        self.inherited_labels.audit_count()
    }

    /// Sets whether a namespace is in audit. Returns whether that changed anything.
    pub(crate) fn set_namespace_audit(&mut self, namespace: &Str, audit: bool) -> bool {
        self.inherited_labels.set_audit(namespace, audit)
    }

    /// Sets or, without `labels`, removes the labels of a namespace or of a service account in it.
    /// Returns whether that changed anything.
    pub(crate) fn set_inherited_labels(
        &mut self,
        namespace: &Str,
        account: Option<&Str>,
        labels: Option<&Labels>,
    ) -> bool {
        self.inherited_labels
            .set(&mut self.pools, namespace, account, labels)
    }

    /// A label of a namespace: see [`InheritedLabels::namespace_label`].
    pub(crate) fn namespace_label(
        &self,
        namespace: u32,
        key: &str,
        number: Option<u32>,
    ) -> Option<&str> {
        self.inherited_labels
            .namespace_label(&self.pools, namespace, key, number)
    }

    /// A label of a service account, if it has an object.
    pub(crate) fn account_label(&self, namespace: u32, account: &str, key: &str) -> Option<&str> {
        self.inherited_labels
            .account_label(&self.pools, namespace, account, key)
    }

    /// All namespaces and service accounts with an object, exactly as they were given.
    #[allow(clippy::type_complexity, reason = "the two maps are those of `State`")]
    pub(crate) fn namespaces_and_accounts(
        &self,
    ) -> (
        BTreeMap<Str, Namespace>,
        BTreeMap<(Str, Str), ServiceAccount>,
    ) {
        self.inherited_labels.namespaces_and_accounts(&self.pools)
    }

    /// The number of a name; counts one use more.
    pub(crate) fn acquire_name(&mut self, name: &Str) -> u32 {
        self.pools.acquire_name(name)
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
