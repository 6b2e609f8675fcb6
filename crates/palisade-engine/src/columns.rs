//! Everything that can hold an address (endpoints, network sets, nodes), in columns.
//!
//! What holders share is interned: label keys as sorted lists, kind, account, profiles and ports
//! together, names. What is a holder's own is one string of bytes. An endpoint comes back exactly as
//! it was given. A holder that is removed keeps its slot until [`Columns::release`]. Nothing here
//! knows what a label means.

use crate::column::Column;
use crate::described::Described;
use crate::facts::{write_addresses, write_number, write_text};
use crate::holders::{Common, Given, KeySet, Own, View, What, flag, text};
use crate::labels::HolderId;
use crate::pool::{HashMap, Pool, hash};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{Endpoint, EndpointId, Labels, ObjectId, Owner, Str};

/// The number of a holder while it lives.
pub(crate) type Slot = u32;

/// No slot, no name, no signature.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Record {
    facts: Box<[u8]>,
    namespace: u32,
    keys: u32,
    common: u32,
    signature: u32,
    /// The others of its signature.
    members: Links,
    /// The others of its namespace.
    neighbours: Links,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: Slot,
    next: Slot,
}

const ALONE: Links = Links {
    previous: NONE,
    next: NONE,
};

/// What stood in a slot before an update. To be given back with [`Columns::forget`].
#[derive(Debug)]
pub(crate) struct Before {
    facts: Box<[u8]>,
    keys: u32,
    common: u32,
    namespace: u32,
}

/// Everything that can hold an address.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    records: Column<Record>,
    free: Vec<Slot>,
    /// By namespace and name, with the hash of these: a table that grows does not look at its holders.
    index: HashTable<(u32, Slot)>,
    pub(crate) names: Pool<Str>,
    pub(crate) key_sets: Pool<KeySet>,
    commons: Pool<Common>,
    /// What namespaces and service accounts say.
    pub(crate) described: Described,
    /// The first holder of each namespace.
    namespaces: HashMap<u32, Slot>,
    /// Endpoints, network sets and nodes that are not gone.
    counts: [usize; 3],
    /// What the last holder had, likely to be what the next one has.
    last_keys: u32,
    last_common: u32,
    scratch: Vec<u8>,
}

impl Columns {
    /// How many holders there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// How many holders of one kind there are.
    pub(crate) fn count(&self, what: What) -> usize {
        self.counts[what as usize]
    }

    /// How many things are kept for holders: slots, names, lists of keys, what is in
    /// common, and the namespaces and service accounts that are described.
    pub(crate) fn kept(&self) -> [usize; 5] {
        [
            self.index.len(),
            self.names.len(),
            self.key_sets.len(),
            self.commons.len(),
            self.described.len(),
        ]
    }

    /// What holders have in common, by number.
    pub(crate) fn common(&self, number: u32) -> Option<&Common> {
        self.commons.get(number)
    }

    /// The slot of a holder that is not gone.
    pub(crate) fn find(&self, id: &HolderId) -> Option<Slot> {
        let slot = match id {
            HolderId::Endpoint(id) => self.slot(What::Endpoint, Some(id), &id.name),
            HolderId::NetworkSet(id) => self.slot(What::NetworkSet, Some(id), &id.name),
            HolderId::Node(name) => self.slot(What::Node, None, name),
        }?;
        self.view(slot).map(|_| slot)
    }

    /// The same, of an endpoint.
    pub(crate) fn find_endpoint(&self, id: &EndpointId) -> Option<Slot> {
        let slot = self.slot(What::Endpoint, Some(id), &id.name)?;
        self.view(slot).map(|_| slot)
    }

    /// The slot of a name, of a holder that is gone as well.
    fn slot(&self, what: What, id: Option<&ObjectId>, name: &str) -> Option<Slot> {
        let namespace = match id.and_then(|id| id.namespace.as_deref()) {
            Some(namespace) => self.names.find(namespace)?,
            None => NONE,
        };
        let is = |slot: &Slot| {
            self.records.get(*slot).is_some_and(|record| {
                record.namespace == namespace
                    && Own::read(&record.facts).name == name.as_bytes()
                    && self.commons.get(record.common).is_some_and(|common| {
                        common.what == what
                            && id
                                .is_none_or(|id| common.kind == id.kind && common.group == id.group)
                    })
            })
        };
        let key = mark(namespace, name.as_bytes());
        let found = self
            .index
            .find(spread(key), |(of, slot)| *of == key && is(slot));
        found.map(|(_, slot)| *slot)
    }

    /// The holder in a slot, unless it is gone.
    pub(crate) fn view(&self, slot: Slot) -> Option<View<'_>> {
        let record = self.records.get(slot)?;
        let here = record.facts.first().is_some_and(|f| f & flag::GONE == 0);
        here.then_some(View {
            columns: self,
            facts: &record.facts,
            namespace: record.namespace,
            keys: record.keys,
            common: record.common,
        })
    }

    /// What a holder was before an update.
    pub(crate) fn was<'a>(&'a self, before: &'a Before) -> View<'a> {
        View {
            columns: self,
            facts: &before.facts,
            namespace: before.namespace,
            keys: before.keys,
            common: before.common,
        }
    }

    /// The name of a holder, whether it is gone or not.
    pub(crate) fn id(&self, slot: Slot) -> Option<HolderId> {
        let record = self.records.get(slot)?;
        let common = self.commons.get(record.common)?;
        let name: Str = text(Own::read(&record.facts).name).into();
        let id = |name| ObjectId {
            namespace: self.names.get(record.namespace).cloned(),
            name,
            group: common.group.clone(),
            kind: common.kind.clone(),
        };
        Some(match common.what {
            What::Endpoint => HolderId::Endpoint(id(name)),
            What::NetworkSet => HolderId::NetworkSet(id(name)),
            What::Node => HolderId::Node(name),
        })
    }

    /// The name of an endpoint.
    pub(crate) fn endpoint_id(&self, slot: Slot) -> Option<EndpointId> {
        match self.id(slot)? {
            HolderId::Endpoint(id) => Some(id),
            _ => None,
        }
    }

    /// The endpoint in a slot, as it was given.
    pub(crate) fn endpoint(&self, slot: Slot) -> Option<Endpoint> {
        let view = self.view(slot)?;
        let common = view.common()?;
        let HolderId::Endpoint(id) = self.id(slot)? else {
            return None;
        };
        let own = view.own();
        let mut values = own.values;
        let labels = view.keys().iter().filter_map(|key| {
            let value = values.text();
            Some((self.names.get(*key)?.clone(), value.into()))
        });
        Some(Endpoint {
            id,
            host: common.host,
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
            template: own.is_template(),
        })
    }

    /// Every slot of an endpoint that is not gone.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Slot> {
        let slots = self.views();
        slots.filter_map(|(slot, view)| (view.what() == What::Endpoint).then_some(slot))
    }

    /// Every holder that is not gone.
    pub(crate) fn views(&self) -> impl Iterator<Item = (Slot, View<'_>)> {
        let all = self.records.iter();
        all.filter_map(|(slot, _)| Some((slot, self.view(slot)?)))
    }

    /// Every slot with its list of keys and its signature.
    pub(crate) fn signed(&self) -> impl Iterator<Item = (Slot, u32, u32)> {
        let all = self.records.iter();
        all.map(|(slot, record)| (slot, record.keys, record.signature))
    }

    /// The namespaces that holders are in, in no particular order.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> {
        self.namespaces.keys().copied()
    }

    /// The endpoints and network sets of a namespace, gone or not.
    pub(crate) fn in_namespace(&self, namespace: u32) -> impl Iterator<Item = Slot> {
        let first = self.namespaces.get(&namespace).copied();
        core::iter::successors(first, |slot| {
            let next = self.records.get(*slot)?.neighbours.next;
            (next != NONE).then_some(next)
        })
    }

    /// Puts a holder in place of what had its name. `None` where that is what is there; else its slot
    /// and what it was, if it was not gone.
    pub(crate) fn put(&mut self, given: Given<'_>) -> Option<(Slot, Option<Before>)> {
        let id = given.id();
        let found = self.slot(given.what(), id, given.name());
        let alive = found.filter(|slot| self.view(*slot).is_some());
        let keys = self.take_keys(given.labels());
        let common = self.take_common(given);
        let mut facts = core::mem::take(&mut self.scratch);
        facts.clear();
        self.write(given, &mut facts);
        let same = alive
            .and_then(|slot| self.records.get(slot))
            .is_some_and(|r| r.keys == keys && r.common == common && *r.facts == *facts);
        let new: Box<[u8]> = match same {
            true => Box::default(),
            false => facts.as_slice().into(),
        };
        if same {
            self.give_facts(&facts);
            self.give_keys(keys);
            self.commons.give(common);
        }
        self.scratch = facts;
        if same {
            return None;
        }
        if alive.is_none() {
            self.counts[given.what() as usize] += 1;
        }
        let Some(slot) = found else {
            return Some((self.begin(given, new, keys, common), None));
        };
        let record = self.records.get_mut(slot)?;
        let before = Before {
            facts: core::mem::replace(&mut record.facts, new),
            keys: core::mem::replace(&mut record.keys, keys),
            common: core::mem::replace(&mut record.common, common),
            namespace: record.namespace,
        };
        if alive.is_some() {
            return Some((slot, Some(before)));
        }
        self.forget(before);
        Some((slot, None))
    }

    fn begin(&mut self, given: Given<'_>, facts: Box<[u8]>, keys: u32, common: u32) -> Slot {
        let namespace = given.id().and_then(|id| id.namespace.as_ref());
        let namespace = namespace.map_or(NONE, |name| self.take_name(name));
        let record = Record {
            facts,
            namespace,
            keys,
            common,
            signature: NONE,
            members: ALONE,
            neighbours: ALONE,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.records.get_mut(slot) {
                    *place = record;
                }
                slot
            }
            None => self.records.push(record),
        };
        let key = mark(namespace, given.name().as_bytes());
        self.index
            .insert_unique(spread(key), (key, slot), |(key, _)| spread(*key));
        if namespace != NONE {
            let first = self.namespaces.insert(namespace, slot).unwrap_or(NONE);
            if let Some(record) = self.records.get_mut(slot) {
                record.neighbours.next = first;
            }
            if let Some(record) = self.records.get_mut(first) {
                record.neighbours.previous = slot;
            }
        }
        slot
    }

    /// Marks a holder as gone.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(what) = self.view(slot).map(|view| view.what()) else {
            return;
        };
        self.counts[what as usize] -= 1;
        let record = self.records.get_mut(slot);
        if let Some(flags) = record.and_then(|record| record.facts.first_mut()) {
            *flags |= flag::GONE;
        }
    }

    /// Gives back the slots of holders that are gone.
    pub(crate) fn release(&mut self, slots: &[Slot]) {
        for slot in slots {
            if self.view(*slot).is_none() {
                self.free_slot(*slot);
            }
        }
        if self.index.is_empty() {
            self.records = Column::default();
            self.free = Vec::new();
            self.index = HashTable::new();
            self.namespaces = HashMap::default();
        }
    }

    fn free_slot(&mut self, slot: Slot) {
        let Some(record) = self.records.get(slot) else {
            return;
        };
        if record.facts.is_empty() {
            return;
        }
        let key = mark(record.namespace, Own::read(&record.facts).name);
        let found = self
            .index
            .find_entry(spread(key), |(_, other)| *other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
        let Some(record) = self.records.get_mut(slot) else {
            return;
        };
        let before = Before {
            facts: core::mem::take(&mut record.facts),
            keys: record.keys,
            common: record.common,
            namespace: record.namespace,
        };
        let Links { previous, next } = core::mem::replace(&mut record.neighbours, ALONE);
        if let Some(record) = self.records.get_mut(previous) {
            record.neighbours.next = next;
        } else if next != NONE {
            self.namespaces.insert(before.namespace, next);
        } else {
            self.namespaces.remove(&before.namespace);
        }
        if let Some(record) = self.records.get_mut(next) {
            record.neighbours.previous = previous;
        }
        let namespace = before.namespace;
        self.forget(before);
        self.names.give(namespace);
        self.free.push(slot);
    }

    /// Gives back what a holder was.
    pub(crate) fn forget(&mut self, before: Before) {
        self.give_facts(&before.facts);
        self.give_keys(before.keys);
        self.commons.give(before.common);
    }

    /// The signature of the holder in a slot.
    pub(crate) fn signature(&self, slot: Slot) -> u32 {
        self.records.get(slot).map_or(NONE, |r| r.signature)
    }

    /// Makes a holder the first member of a signature.
    pub(crate) fn enter(&mut self, slot: Slot, signature: u32, first: Slot) {
        if let Some(record) = self.records.get_mut(slot) {
            record.signature = signature;
            record.members = Links {
                previous: NONE,
                next: first,
            };
        }
        if let Some(record) = self.records.get_mut(first) {
            record.members.previous = slot;
        }
    }

    /// Takes a holder out of its signature. Returns the member that comes first now, if it was the
    /// first.
    pub(crate) fn leave(&mut self, slot: Slot) -> Option<Slot> {
        let record = self.records.get_mut(slot)?;
        record.signature = NONE;
        let Links { previous, next } = core::mem::replace(&mut record.members, ALONE);
        if let Some(record) = self.records.get_mut(next) {
            record.members.previous = previous;
        }
        match self.records.get_mut(previous) {
            Some(record) => {
                record.members.next = next;
                None
            }
            None => Some(next),
        }
    }

    /// The members of a signature, from the first.
    pub(crate) fn members(&self, first: Slot) -> impl Iterator<Item = Slot> {
        core::iter::successors((first != NONE).then_some(first), |slot| {
            let next = self.records.get(*slot)?.members.next;
            (next != NONE).then_some(next)
        })
    }

    /// The number of a name, with one use more.
    pub(crate) fn take_name(&mut self, name: &Str) -> u32 {
        self.names.take_as::<str>(name, || name.clone())
    }

    /// The number of the list of keys of these labels, with one use more.
    pub(crate) fn take_keys(&mut self, labels: &Labels) -> u32 {
        let is_last = self.key_sets.get(self.last_keys).is_some_and(|last| {
            let name = |key: &u32| self.names.get(*key).map(|name| &**name);
            last.keys.len() == labels.len()
                && (last.keys.iter().map(name)).eq(labels.keys().map(|key| Some(&**key)))
        });
        if is_last {
            self.key_sets.retain(self.last_keys);
            return self.last_keys;
        }
        let keys: Vec<u32> = labels.keys().map(|key| self.take_name(key)).collect();
        let before = self.key_sets.len();
        let number = self.key_sets.take_as(keys.as_slice(), || KeySet {
            keys: keys.as_slice().into(),
            ..KeySet::default()
        });
        if self.key_sets.len() == before {
            for key in keys {
                self.names.give(key);
            }
        }
        self.last_keys = number;
        number
    }

    /// Gives back a list of keys.
    pub(crate) fn give_keys(&mut self, number: u32) {
        if let Some(gone) = self.key_sets.give(number) {
            for key in gone.keys {
                self.names.give(key);
            }
        }
    }

    fn take_common(&mut self, given: Given<'_>) -> u32 {
        let last = self.commons.get(self.last_common);
        if last.is_some_and(|common| given.has(common)) {
            self.commons.retain(self.last_common);
            return self.last_common;
        }
        self.last_common = self.commons.take(given.common());
        self.last_common
    }

    fn write(&mut self, given: Given<'_>, out: &mut Vec<u8>) {
        out.push(0);
        write_text(out, given.name());
        match given {
            Given::Endpoint(endpoint) => {
                let flags = self.write_endpoint(endpoint, out);
                if let Some(first) = out.first_mut() {
                    *first = flags;
                }
            }
            _ => write_addresses(out, &[]),
        }
        for value in given.labels().values() {
            write_text(out, value);
        }
    }

    fn write_endpoint(&mut self, endpoint: &Endpoint, out: &mut Vec<u8>) -> u8 {
        let mut flags = 0;
        write_addresses(out, &endpoint.addresses);
        if let Some(node) = &endpoint.node {
            flags |= flag::NODE;
            write_number(out, u64::from(self.take_name(node)));
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
            write_number(out, u64::from(self.take_name(&owner.kind)));
            write_number(out, u64::from(self.take_name(&owner.name)));
        }
        if endpoint.template {
            flags |= flag::TEMPLATE;
        }
        flags
    }

    /// Gives back the names that a holder's own facts refer to.
    fn give_facts(&mut self, facts: &[u8]) {
        let own = Own::read(facts);
        self.names.give(own.node);
        if let Some((kind, name)) = own.owner {
            self.names.give(kind);
            self.names.give(name);
        }
    }
}

/// A hash of a holder's name.
fn mark(namespace: u32, name: &[u8]) -> u32 {
    let [a, b, c, d, ..] = hash(&(namespace, name)).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The hash again, as long as a table wants it: it looks at both ends.
fn spread(mark: u32) -> u64 {
    u64::from(mark) << 32 | u64::from(mark)
}
