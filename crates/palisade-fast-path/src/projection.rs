//! The projection: what the maps hold of the decision tables, and what a change of the tables writes.

mod listing;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_layout::CountAccount;
use palisade_model::{Direction, Prefix, Str};
use palisade_tables::{Delta, IdentityId, Point, PolicySetId, TableChange, Tables};

use crate::class::CounterId;
use crate::classes::{ClassTable, ClassUser};
use crate::map_write::{MapWrite, SlotRow};
use crate::networks::Networks;
use crate::room::{Room, Shortage};
use crate::spans::FreeNumbers;
pub use listing::EndJudgement;

/// From so many rows of a set on, an update goes through the set instead of looking each up.
const DENSE_ROWS: usize = 16;

/// The policy sets of the directions of an address, egress and ingress.
type PointSets = [Option<PolicySetId>; 2];

/// What the tables have of an address of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Workload {
    interface: Str,
    identity: IdentityId,
    sets: PointSets,
}

/// An address of a workload in the maps.
#[derive(Clone, Debug)]
struct Slot {
    row: SlotRow,
    /// What the half in force has.
    workload: Option<Workload>,
    /// The row as it was written last; `None` before.
    written: Option<SlotRow>,
}

/// A policy set in the maps.
#[derive(Clone, Debug)]
struct Set {
    /// 0 if there was no room.
    number: u32,
    /// How many points of slots have it, in the half in force.
    uses: usize,
    /// The default class of each half.
    defaults: [u32; 2],
    /// Whether its rows have no room: it passes everything.
    is_too_large: bool,
}

/// Who has an identity: slots of this host, and all that the maps have.
#[derive(Clone, Copy, Debug, Default)]
struct IdentityReferences {
    slots: usize,
    all: usize,
}

/// A row of the tables: the class of an identity in a set.
type RowKey = (PolicySetId, IdentityId);

/// What may differ from the half that an update writes.
#[derive(Clone, Debug, Default)]
struct Changes {
    addresses: BTreeSet<IpAddr>,
    /// All their rows may.
    sets: BTreeSet<PolicySetId>,
    /// In any order, and more than once: there may be very many.
    rows: Vec<RowKey>,
    /// Identities that came into use: their rows of all sets may.
    identities: BTreeSet<IdentityId>,
    /// Of networks outside of this host.
    prefixes: BTreeSet<Prefix>,
    /// Whether the fast path has these networks.
    is_complete: bool,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.addresses.is_empty()
            && self.sets.is_empty()
            && self.rows.is_empty()
            && self.prefixes.is_empty()
            && !self.is_complete
    }
}

/// The numbers of slots and sets.
#[derive(Clone, Debug)]
struct SlotAndSetNumbers {
    slots: FreeNumbers,
    sets: FreeNumbers,
    /// Those of slots and of sets that the last update freed: the next one may use them.
    freed: (Vec<u32>, Vec<u32>),
    /// Those that addresses of interfaces had in the maps of an earlier process, until the first update.
    reserved: BTreeMap<IpAddr, (Str, u16)>,
}

/// What the maps of the fast path hold of the decision tables, in two halves: one is in force, the other one is written.
#[derive(Clone, Debug)]
pub struct Projection {
    room: Room,
    /// The half in force.
    half: usize,
    /// The points of workloads in the tables, by address and interface.
    points: BTreeMap<IpAddr, BTreeMap<Str, PointSets>>,
    slots: BTreeMap<IpAddr, Slot>,
    numbers: SlotAndSetNumbers,
    sets: BTreeMap<PolicySetId, Set>,
    /// Of identities in the half in force, who has each.
    identities: BTreeMap<IdentityId, IdentityReferences>,
    /// The class of an identity in a set in each half; `None` for the default.
    rows: BTreeMap<RowKey, [Option<u32>; 2]>,
    classes: ClassTable,
    /// The networks outside of this host.
    networks: Networks,
    /// What the other half has as it was before the last update.
    pending: Changes,
    shortage: Shortage,
}

impl Projection {
    /// The projection of nothing, in empty maps of these sizes. The first update writes `half`, and puts it in force. The
    /// networks are those outside of this host to which no packet is translated.
    pub fn new(room: Room, half: usize, networks: &[Prefix]) -> Self {
        Projection {
            room,
            half: 1 - half.min(1),
            points: BTreeMap::new(),
            slots: BTreeMap::new(),
            numbers: SlotAndSetNumbers {
                slots: FreeNumbers::new(room.slots),
                sets: FreeNumbers::new(room.sets),
                freed: (Vec::new(), Vec::new()),
                reserved: BTreeMap::new(),
            },
            sets: BTreeMap::new(),
            identities: BTreeMap::new(),
            rows: BTreeMap::new(),
            classes: ClassTable::new(&room),
            networks: Networks::new(networks, room.prefixes),
            pending: Changes::default(),
            shortage: Shortage::default(),
        }
    }

    /// Has the address of an interface keep the number of its slot in the maps of an earlier process, before the first
    /// update: flows in the kernel name it.
    pub fn reserve_slot(&mut self, address: IpAddr, interface: Str, number: u16) {
        if number != 0
            && u32::from(number) < self.room.slots
            && self.numbers.slots.reserve(number.into())
        {
            self.numbers.reserved.insert(address, (interface, number));
        }
    }

    /// Numbers that nobody has taken up are free.
    fn release_reserved(&mut self) {
        for (_, number) in core::mem::take(&mut self.numbers.reserved).into_values() {
            self.numbers.slots.give_back(number.into());
        }
    }

    /// The half in force after the last update.
    pub fn half(&self) -> usize {
        self.half
    }

    /// What had no room since all was written last.
    pub fn shortage(&self) -> Shortage {
        Shortage {
            prefixes: self.networks.missing(),
            ..self.shortage
        }
    }

    /// Whether flows with the networks are left to the stack, since the host judges packets at its own interfaces.
    pub fn judges_host(&self) -> bool {
        self.networks.judges_host()
    }

    /// Whether flows to and from an address may begin in the fast path: it is a workload's, or in one of the networks.
    pub fn is_known(&self, address: IpAddr) -> bool {
        self.slots.contains_key(&address) || self.networks.contain(address)
    }

    /// The slots in the maps.
    pub fn slots(&self) -> impl Iterator<Item = &SlotRow> {
        self.slots.values().map(|slot| &slot.row)
    }

    /// The slot of an address.
    pub fn slot(&self, address: IpAddr) -> Option<&SlotRow> {
        self.slots.get(&address).map(|slot| &slot.row)
    }

    /// What each counter in the maps counts for.
    pub fn counters(&self) -> impl Iterator<Item = (CounterId, &[CountAccount])> {
        self.classes.counters()
    }

    /// How many rows of sets and identities the maps have.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// What a delta writes; `tables` is the state after it. Without a delta all tables are compared. `None` if the delta
    /// changes nothing, and then the half in force is as before.
    ///
    /// All writes go to the half that is not in force, in any order; then [`Projection::half`] is to be put in force, and
    /// all changes take effect at once. Between two updates a grace period has to pass, since packets may still be judged
    /// by what was in force.
    pub fn update(&mut self, tables: &Tables, delta: Option<&Delta>) -> Option<Vec<MapWrite>> {
        let mut changes = match delta {
            Some(delta) => self.changes_of(delta),
            None => self.all_changes(tables),
        };
        if delta.is_some() && changes.is_empty() {
            return None;
        }
        let mut writes = Vec::new();
        self.begin_update(&mut writes);
        let target = 1 - self.half;
        let pending = core::mem::take(&mut self.pending);
        changes.addresses.extend(pending.addresses);
        changes.sets.extend(pending.sets);
        changes.rows.extend(pending.rows);
        changes.prefixes.extend(pending.prefixes);
        let addresses = core::mem::take(&mut changes.addresses);
        let mut slots = Vec::new();
        for address in addresses {
            let workload = self.workload(tables, address);
            self.update_slot(address, workload, &mut changes, &mut slots);
        }
        for prefix in core::mem::take(&mut changes.prefixes) {
            self.update_prefix(tables, prefix, target, &mut changes, &mut writes);
        }
        let differs = self.networks.write_complete(tables, target, &mut writes);
        self.pending.is_complete |= differs;
        self.add_rows_of_new_uses(tables, &mut changes);
        self.check_room(tables, &mut changes);
        for set in &changes.sets {
            self.update_default(tables, *set, target, &mut writes);
        }
        self.update_rows(tables, &changes.rows, target, &mut writes);
        for address in slots {
            self.write_slot(address, target, &mut writes);
        }
        self.free_unused_sets(&changes);
        self.release_reserved();
        self.half = target;
        Some(writes)
    }

    /// The numbers that the last update freed may be used: no packet knows them any more.
    fn begin_update(&mut self, writes: &mut Vec<MapWrite>) {
        let (slots, sets) = core::mem::take(&mut self.numbers.freed);
        for number in slots {
            self.numbers.slots.give_back(number);
        }
        for number in sets {
            self.numbers.sets.give_back(number);
        }
        self.classes.begin_update(writes);
    }

    /// What a delta may change of what is in the maps.
    fn changes_of(&mut self, delta: &Delta) -> Changes {
        let mut changes = Changes::default();
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            match change {
                TableChange::Point(point, set) => match self.update_point(point, *set) {
                    Some(address) => {
                        changes.addresses.insert(address);
                    }
                    // A point of the host decides whether there are networks.
                    None => changes.is_complete |= !self.networks.is_empty(),
                },
                TableChange::Address(prefix, _) => {
                    changes.prefixes.extend(self.networks.depending_on(*prefix));
                    let inside = prefix.address()..=prefix.last();
                    let slots = self.points.range(inside).map(|(address, _)| *address);
                    changes.addresses.extend(slots);
                }
                TableChange::Set(set, _) if self.sets.contains_key(set) => {
                    changes.sets.insert(*set);
                }
                TableChange::Class(set, identity, _)
                    if self.sets.contains_key(set) && self.identities.contains_key(identity) =>
                {
                    changes.rows.push((*set, *identity));
                }
                TableChange::Program(class, _) => self.classes.forget_program(*class),
                _ => {}
            }
        }
        changes
    }

    /// Everything that is in the maps or will be.
    fn all_changes(&mut self, tables: &Tables) -> Changes {
        self.shortage = Shortage::default();
        self.classes.forget_programs();
        let mut addresses: BTreeSet<IpAddr> =
            core::mem::take(&mut self.points).into_keys().collect();
        for (point, set) in &tables.points {
            addresses.extend(self.update_point(point, Some(*set)));
        }
        for set in self.sets.values_mut() {
            set.is_too_large = false;
        }
        Changes {
            addresses,
            sets: self.sets.keys().copied().collect(),
            rows: Vec::new(),
            identities: BTreeSet::new(),
            prefixes: self.networks.all(tables),
            is_complete: true,
        }
    }

    /// Sets the policy set of a point; its address, if it is one of a workload.
    fn update_point(&mut self, point: &Point, set: Option<PolicySetId>) -> Option<IpAddr> {
        let (interface, address) = point.workload()?;
        let interfaces = self.points.entry(address).or_default();
        let sets = interfaces.entry(interface.clone()).or_default();
        sets[side(point.direction)] = set;
        if *sets == PointSets::default() {
            interfaces.remove(interface);
        }
        if interfaces.is_empty() {
            self.points.remove(&address);
        }
        Some(address)
    }

    /// What the tables have of an address: nothing if two workloads have it.
    fn workload(&self, tables: &Tables, address: IpAddr) -> Option<Workload> {
        let mut interfaces = self.points.get(&address)?.iter();
        let (Some((interface, sets)), None) = (interfaces.next(), interfaces.next()) else {
            return None;
        };
        Some(Workload {
            interface: interface.clone(),
            identity: tables.identity(address),
            sets: *sets,
        })
    }

    /// Brings what the half in force will have of an address up to date, and the uses of its sets and its identity.
    fn update_slot(
        &mut self,
        address: IpAddr,
        workload: Option<Workload>,
        changes: &mut Changes,
        slots: &mut Vec<IpAddr>,
    ) {
        let entry = self
            .slots
            .get(&address)
            .and_then(|slot| slot.workload.clone());
        slots.push(address);
        if entry == workload {
            return;
        }
        if let Some(workload) = &workload {
            self.acquire(workload, changes);
        }
        if let Some(entry) = &entry {
            self.release(entry, changes);
        }
        let is_new = !self.slots.contains_key(&address);
        let slot = match self.slots.get_mut(&address) {
            Some(slot) => slot,
            None => {
                let interface = workload.as_ref().map(|workload| workload.interface.clone());
                self.slots.entry(address).or_insert(Slot {
                    row: SlotRow {
                        number: 0,
                        interface: interface.unwrap_or_default(),
                        address,
                        identities: [0; 2],
                        sets: [[0; 2]; 2],
                    },
                    workload: None,
                    written: None,
                })
            }
        };
        if workload.is_none() {
            // Who comes next is another one, also at the same interface: it must not get the flows of this one.
            slot.row.interface = Str::default();
        }
        slot.workload = workload;
        if is_new {
            self.assign_slot(address);
        }
    }

    /// Gives a slot a number; without room its number is 0, and its address passes.
    fn assign_slot(&mut self, address: IpAddr) {
        let Some(slot) = self.slots.get(&address) else {
            return;
        };
        let reserved = self.numbers.reserved.get(&address);
        let number = match reserved.filter(|(interface, _)| *interface == slot.row.interface) {
            Some((_, number)) => {
                let number = u32::from(*number);
                self.numbers.reserved.remove(&address);
                Some(number)
            }
            None => self.numbers.slots.take(),
        };
        if number.is_none() {
            self.shortage.slots += 1;
        }
        if let Some(slot) = self.slots.get_mut(&address) {
            slot.row.number = number
                .and_then(|number| number.try_into().ok())
                .unwrap_or(0);
        }
    }

    /// Brings a prefix of the networks up to date, and the uses of its identity.
    fn update_prefix(
        &mut self,
        tables: &Tables,
        prefix: Prefix,
        target: usize,
        changes: &mut Changes,
        writes: &mut Vec<MapWrite>,
    ) {
        let [former, wanted] = self.networks.update(tables, prefix);
        if former != wanted {
            if let Some(identity) = wanted {
                self.acquire_identity(identity, changes);
            }
            if let Some(identity) = former {
                self.release_identity(identity, changes);
            }
        }
        if self.networks.write(prefix, target, writes) {
            self.pending.prefixes.insert(prefix);
        }
    }

    fn acquire_identity(&mut self, identity: IdentityId, changes: &mut Changes) {
        let uses = self.identities.entry(identity).or_default();
        uses.all += 1;
        if uses.all == 1 {
            changes.identities.insert(identity);
        }
    }

    fn release_identity(&mut self, identity: IdentityId, changes: &mut Changes) {
        if let Some(uses) = self.identities.get_mut(&identity) {
            uses.all -= 1;
            if uses.all == 0 {
                self.identities.remove(&identity);
                let sets = self.sets.keys();
                changes.rows.extend(sets.map(|set| (*set, identity)));
            }
        }
    }

    fn acquire(&mut self, workload: &Workload, changes: &mut Changes) {
        self.acquire_identity(workload.identity, changes);
        let uses = self.identities.entry(workload.identity).or_default();
        uses.slots += 1;
        if uses.slots == 1 {
            // Its rows may have room now.
            changes.identities.insert(workload.identity);
        }
        for set in workload.sets.into_iter().flatten() {
            if !self.sets.contains_key(&set) {
                let number = self.numbers.sets.take();
                if number.is_none() {
                    self.shortage.sets += 1;
                }
                let added = Set {
                    number: number.unwrap_or(0),
                    uses: 0,
                    defaults: [0; 2],
                    is_too_large: false,
                };
                self.sets.insert(set, added);
            }
            if let Some(entry) = self.sets.get_mut(&set) {
                entry.uses += 1;
                if entry.uses == 1 {
                    changes.sets.insert(set);
                }
            }
        }
    }

    fn release(&mut self, workload: &Workload, changes: &mut Changes) {
        if let Some(uses) = self.identities.get_mut(&workload.identity) {
            uses.slots -= 1;
        }
        self.release_identity(workload.identity, changes);
        for set in workload.sets.into_iter().flatten() {
            if let Some(entry) = self.sets.get_mut(&set) {
                entry.uses -= 1;
                if entry.uses == 0 {
                    changes.sets.insert(set);
                }
            }
        }
    }

    /// Adds the rows of sets and identities that came into use or went out of it. All rows are sorted then.
    fn add_rows_of_new_uses(&self, tables: &Tables, changes: &mut Changes) {
        if !changes.identities.is_empty() {
            let others = self.sets.keys().filter(|set| !changes.sets.contains(*set));
            for set in others {
                let rows = changes.identities.iter().map(|identity| (*set, *identity));
                changes.rows.extend(rows);
            }
        }
        for set in &changes.sets {
            let all = (*set, IdentityId(0))..=(*set, IdentityId(u32::MAX));
            let entry = self.rows.range(all.clone()).map(|(key, _)| *key);
            changes.rows.extend(entry);
            if self.sets.get(set).is_some_and(|set| set.uses > 0) {
                let rows = tables.classes.range(all).map(|(key, _)| *key);
                let known = rows.filter(|(_, identity)| self.identities.contains_key(identity));
                changes.rows.extend(known);
            }
        }
        sort_rows(&mut changes.rows);
    }

    /// Sets whose rows have no room pass everything.
    fn check_room(&mut self, tables: &Tables, changes: &mut Changes) {
        let mut count = self.rows.len();
        let room = self.room.rows as usize;
        if count + changes.rows.len() <= room {
            return;
        }
        let mut too_large = Vec::new();
        for key in &changes.rows {
            let is_new = !self.rows.contains_key(key) && self.tables_row(tables, *key);
            count += usize::from(is_new);
            if is_new && count > room {
                too_large.push(key.0);
            }
        }
        for id in too_large {
            let Some(set) = self.sets.get_mut(&id).filter(|set| !set.is_too_large) else {
                continue;
            };
            set.is_too_large = true;
            self.shortage.sets += 1;
            changes.sets.insert(id);
            let all = (id, IdentityId(0))..=(id, IdentityId(u32::MAX));
            let entry = self.rows.range(all).map(|(key, _)| *key);
            changes.rows.extend(entry);
        }
        sort_rows(&mut changes.rows);
    }

    /// Whether the tables have a row that the maps are to have.
    fn tables_row(&self, tables: &Tables, key: RowKey) -> bool {
        let (set, identity) = key;
        self.sets.get(&set).is_some_and(Set::has_rows)
            && self.identities.contains_key(&identity)
            && tables.classes.contains_key(&key)
    }

    fn update_default(
        &mut self,
        tables: &Tables,
        id: PolicySetId,
        target: usize,
        writes: &mut Vec<MapWrite>,
    ) {
        let Some(set) = self.sets.get(&id) else {
            return;
        };
        let default = tables.sets.get(&id).map(|set| set.default);
        let class = match default.filter(|_| set.has_rows()) {
            Some(class) => {
                let class = (class, ClassUser::Local);
                self.classes
                    .number(tables, class, writes, &mut self.shortage)
            }
            None => 0,
        };
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        let former = core::mem::replace(&mut set.defaults[target], class);
        if set.defaults[0] != set.defaults[1] {
            self.pending.sets.insert(id);
        }
        if former == class {
            return;
        }
        self.classes.acquire(class);
        self.classes.release(former);
        writes.push(MapWrite::Default {
            set: set.number,
            classes: set.defaults,
        });
    }

    /// Brings these rows up to date, which are sorted.
    fn update_rows(
        &mut self,
        tables: &Tables,
        rows: &[RowKey],
        target: usize,
        writes: &mut Vec<MapWrite>,
    ) {
        writes.reserve(rows.len());
        for of_set in rows.chunk_by(|one, other| one.0 == other.0) {
            let (Some(first), Some(last)) = (of_set.first(), of_set.last()) else {
                continue;
            };
            let Some(set) = self.sets.get(&first.0).cloned() else {
                continue;
            };
            // Where there are many, all rows of the set between the first and the last are gone through once.
            let mut between = tables.classes.range(*first..=*last).peekable();
            let is_dense = of_set.len() >= DENSE_ROWS;
            for key in of_set {
                let class = if !set.has_rows() || !self.identities.contains_key(&key.1) {
                    None
                } else if is_dense {
                    while between.next_if(|(known, _)| *known < key).is_some() {}
                    between.next_if(|(known, _)| *known == key)
                } else {
                    tables.classes.get_key_value(key)
                };
                let uses = self.identities.get(&key.1);
                let user = if uses.is_some_and(|uses| uses.slots > 0) {
                    ClassUser::Local
                } else {
                    ClassUser::Remote
                };
                let class = class.map(|(_, class)| {
                    self.classes
                        .number(tables, (*class, user), writes, &mut self.shortage)
                });
                self.update_row(&set, *key, (class, target), writes);
            }
        }
    }

    /// Has a row of a set have a class in a half.
    fn update_row(
        &mut self,
        set: &Set,
        key: RowKey,
        (class, target): (Option<u32>, usize),
        writes: &mut Vec<MapWrite>,
    ) {
        let entry = self.rows.entry(key);
        let mut row = match &entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(_) => [None; 2],
        };
        let former = core::mem::replace(&mut row[target], class);
        if former == class && row[0] == row[1] {
            return;
        }
        let is_gone = row == [None; 2];
        match entry {
            Entry::Occupied(entry) if is_gone => {
                entry.remove();
            }
            Entry::Occupied(mut entry) => *entry.get_mut() = row,
            Entry::Vacant(entry) => {
                entry.insert(row);
            }
        }
        if let Some(class) = class {
            self.classes.acquire(class);
        }
        if let Some(former) = former {
            self.classes.release(former);
        }
        if row[0] != row[1] {
            self.pending.rows.push(key);
        }
        let classes = [0, 1].map(|half| row[half].unwrap_or(set.defaults[half]));
        writes.push(MapWrite::Row {
            set: set.number,
            identity: key.1,
            classes: (!is_gone).then_some(classes),
        });
    }

    /// Writes the slot of an address: what the half in force will have.
    fn write_slot(&mut self, address: IpAddr, target: usize, writes: &mut Vec<MapWrite>) {
        let Some(slot) = self.slots.get(&address) else {
            return;
        };
        let workload = slot.workload.clone();
        // An interface has a slot of its own: packets that go to the former one must not be delivered to the next.
        let moved = workload
            .as_ref()
            .filter(|workload| workload.interface != slot.row.interface);
        if let Some(workload) = moved {
            let number = slot.row.number;
            self.free_slot(number, address, writes);
            self.assign_slot(address);
            if let Some(slot) = self.slots.get_mut(&address) {
                slot.row.interface = workload.interface.clone();
                slot.row.identities = [0; 2];
                slot.row.sets = [[0; 2]; 2];
            }
        }
        let identity = workload.as_ref().map_or(0, |workload| workload.identity.0);
        let numbers = workload.as_ref().map_or([0; 2], |workload| {
            workload.sets.map(|set| {
                let set = set.and_then(|set| self.sets.get(&set));
                set.map_or(0, |set| set.number)
            })
        });
        let Some(slot) = self.slots.get_mut(&address) else {
            return;
        };
        slot.row.identities[target] = identity;
        slot.row.sets[target] = numbers;
        let row = slot.row.clone();
        let is_gone = row.identities == [0; 2] && row.sets == [[0; 2]; 2] && workload.is_none();
        if is_gone {
            self.slots.remove(&address);
            self.free_slot(row.number, address, writes);
            return;
        }
        if row.identities[0] != row.identities[1] || row.sets[0] != row.sets[1] {
            self.pending.addresses.insert(address);
        }
        if row.number != 0 && slot.written.as_ref() != Some(&row) {
            slot.written = Some(row.clone());
            writes.push(MapWrite::Slot(row));
        }
    }

    fn free_slot(&mut self, number: u16, address: IpAddr, writes: &mut Vec<MapWrite>) {
        if number != 0 {
            writes.push(MapWrite::FreeSlot { number, address });
            self.numbers.freed.0.push(number.into());
        }
    }

    /// Frees sets that neither half has.
    fn free_unused_sets(&mut self, changes: &Changes) {
        for id in &changes.sets {
            let all = (*id, IdentityId(0))..=(*id, IdentityId(u32::MAX));
            let has_rows = self.rows.range(all).next().is_some();
            let unused = self
                .sets
                .get(id)
                .filter(|set| set.uses == 0 && set.defaults == [0; 2] && !has_rows);
            let Some(number) = unused.map(|set| set.number) else {
                continue;
            };
            self.sets.remove(id);
            if number != 0 {
                self.numbers.freed.1.push(number);
            }
        }
    }
}

/// Sorts rows, each once.
fn sort_rows(rows: &mut Vec<RowKey>) {
    // They come in sorted runs, which this sort makes use of.
    rows.sort();
    rows.dedup();
}

impl Set {
    /// Whether the maps are to have its classes.
    fn has_rows(&self) -> bool {
        self.uses > 0 && self.number != 0 && !self.is_too_large
    }
}

/// The place of a direction.
fn side(direction: Direction) -> usize {
    match direction {
        Direction::Egress => 0,
        Direction::Ingress => 1,
    }
}
