//! The classes of the fast path: equal contents are one class, with one number, ranges and counters.
//!
//! Promises: a number that is given back is used again only after the next update, when no packet can use it any more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use palisade_layout::CountAccount;
use palisade_tables::{Cell, ClassId, Program, Tables};

use crate::class::{ClassWords, CounterId, Word, class_content};
use crate::map_write::MapWrite;
use crate::room::{Room, Shortage};
use crate::spans::{FreeNumbers, FreeSpans};

/// A class that is in the maps.
#[derive(Clone, Debug)]
struct Class {
    content: Arc<ClassWords>,
    /// How many rows and defaults have it, in either half.
    uses: usize,
    /// Its ranges begin here.
    first_range: u32,
}

/// A counter that is in the maps.
#[derive(Clone, Debug)]
struct Counter {
    accounts: Vec<CountAccount>,
    /// How many classes count here.
    uses: usize,
}

/// Whose rows a class is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassUser {
    /// Those of an identity of this host, or a default: all room is theirs.
    Local,
    /// Those of an identity of other hosts alone: a part of the room is left to this host's.
    Remote,
}

/// Of the room for classes, one part in so many is left to those of this host.
const LOCAL_SHARE: usize = 4;

/// All classes.
#[derive(Clone, Debug)]
pub(crate) struct ClassTable {
    /// What is left free by classes for other hosts: numbers, ranges, ports and counters.
    local_room: [usize; 4],
    by_number: BTreeMap<u32, Class>,
    by_content: BTreeMap<Arc<ClassWords>, u32>,
    /// The numbers of programs of the tables; what is not here has to be read.
    by_program: BTreeMap<ClassId, u32>,
    counters: BTreeMap<CounterId, Counter>,
    counters_by_accounts: BTreeMap<Vec<CountAccount>, CounterId>,
    free_numbers: FreeNumbers,
    free_counters: FreeNumbers,
    free_ranges: FreeSpans,
    /// Elements of the map of ports that are free.
    free_ports: usize,
    /// ClassTable without a use: packets of the former half may be judged by them until the next update.
    unused: BTreeSet<u32>,
    /// Numbers of classes and counters that were freed by this update: the next one may use them.
    freed: (Vec<u32>, Vec<u32>),
}

impl ClassTable {
    pub(crate) fn new(room: &Room) -> Self {
        let sizes = [room.classes, room.ranges, room.ports, room.counters];
        ClassTable {
            local_room: sizes.map(|size| size as usize / LOCAL_SHARE),
            by_number: BTreeMap::new(),
            by_content: BTreeMap::new(),
            by_program: BTreeMap::new(),
            counters: BTreeMap::new(),
            counters_by_accounts: BTreeMap::new(),
            free_numbers: FreeNumbers::new(room.classes),
            free_counters: FreeNumbers::new(room.counters),
            free_ranges: FreeSpans::new(room.ranges),
            free_ports: room.ports as usize,
            unused: BTreeSet::new(),
            freed: (Vec::new(), Vec::new()),
        }
    }

    /// Another update begins: no packet is judged any more by what was unused after the last one.
    pub(crate) fn begin_update(&mut self, writes: &mut Vec<MapWrite>) {
        let (numbers, counters) = core::mem::take(&mut self.freed);
        for number in numbers {
            self.free_numbers.give_back(number);
        }
        for number in counters {
            self.free_counters.give_back(number);
        }
        for number in core::mem::take(&mut self.unused) {
            self.free(number, writes);
        }
    }

    /// A program of the tables is gone, or another one: its number is not known any more.
    pub(crate) fn forget_program(&mut self, class: ClassId) {
        self.by_program.remove(&class);
    }

    pub(crate) fn forget_programs(&mut self) {
        self.by_program.clear();
    }

    /// The number of the class of a program, which is added if it is new. 0, which passes everything, if there is no
    /// such program or no room for it.
    pub(crate) fn number(
        &mut self,
        tables: &Tables,
        (class, user): (ClassId, ClassUser),
        writes: &mut Vec<MapWrite>,
        shortage: &mut Shortage,
    ) -> u32 {
        if let Some(number) = self.by_program.get(&class) {
            return *number;
        }
        let Some(program) = tables.programs.get(&class) else {
            return 0;
        };
        let number = self.number_of_program(tables, program, user, writes);
        let Some(number) = number else {
            shortage.classes += 1;
            return 0;
        };
        self.by_program.insert(class, number);
        number
    }

    fn number_of_program(
        &mut self,
        tables: &Tables,
        program: &Program,
        user: ClassUser,
        writes: &mut Vec<MapWrite>,
    ) -> Option<u32> {
        let mut has_room = true;
        let mut new_counters = Vec::new();
        let content = class_content(program, &mut |cell| {
            let counter = self.counter(tables, cell, &mut new_counters);
            has_room &= counter.is_some();
            counter.unwrap_or_default()
        });
        if let Some(number) = self.by_content.get(&content) {
            return Some(*number);
        }
        has_room &= user == ClassUser::Local || self.leaves_local_room(&content);
        let number = if has_room { self.add(content) } else { None };
        if number.is_none() {
            for counter in new_counters {
                self.return_counter(counter);
            }
            return None;
        }
        for number in new_counters {
            let accounts = self.counters.get(&number)?.accounts.clone();
            writes.push(MapWrite::Counter { number, accounts });
        }
        let class = self.by_number.get(&number?)?;
        writes.push(MapWrite::Class {
            number: number?,
            content: class.content.clone(),
            first_range: class.first_range,
        });
        number
    }

    /// Whether, with a class of this content, there is still the room that classes of this host are to have.
    fn leaves_local_room(&self, content: &ClassWords) -> bool {
        let free = [
            self.free_numbers.count(),
            self.free_ranges.count() as usize,
            self.free_ports,
            self.free_counters.count(),
        ];
        // The counters are taken already.
        let taken = [1, range_count(content) as usize, port_count(content), 0];
        let wanted = self.local_room.iter().zip(taken);
        let mut wanted = wanted.map(|(local, taken)| local + taken);
        free.iter().all(|free| wanted.next() <= Some(*free))
    }

    fn add(&mut self, content: ClassWords) -> Option<u32> {
        let ports = port_count(&content);
        if ports > self.free_ports {
            return None;
        }
        let ranges = range_count(&content);
        let first_range = self.free_ranges.take(ranges)?;
        let Some(number) = self.free_numbers.take() else {
            self.free_ranges.give_back(first_range, ranges);
            return None;
        };
        self.free_ports -= ports;
        for counter in counters_of(&content) {
            if let Some(counter) = self.counters.get_mut(&counter) {
                counter.uses += 1;
            }
        }
        let content = Arc::new(content);
        self.by_content.insert(content.clone(), number);
        let class = Class {
            content,
            uses: 0,
            first_range,
        };
        self.by_number.insert(number, class);
        // Until something has it.
        self.unused.insert(number);
        Some(number)
    }

    /// The counter of a cell; `None` if there is no room for it.
    fn counter(
        &mut self,
        tables: &Tables,
        cell: &Cell,
        new_counters: &mut Vec<CounterId>,
    ) -> Option<CounterId> {
        let causes = cell
            .counted_rules()
            .filter_map(|rule| tables.rules.get(&rule));
        let accounts = causes
            .cloned()
            .map(CountAccount::Rule)
            .chain(cell.audit_comparison().map(CountAccount::Audit));
        let accounts: Vec<CountAccount> = accounts.collect();
        if accounts.is_empty() {
            return Some(CounterId::default());
        }
        if let Some(number) = self.counters_by_accounts.get(&accounts) {
            return Some(*number);
        }
        let number = CounterId(self.free_counters.take()?);
        self.counters_by_accounts.insert(accounts.clone(), number);
        let counter = Counter { accounts, uses: 0 };
        self.counters.insert(number, counter);
        new_counters.push(number);
        Some(number)
    }

    /// Gives back a counter that no class has: the next class may take it.
    fn return_counter(&mut self, number: CounterId) {
        if let Some(counter) = self.counters.remove(&number) {
            self.counters_by_accounts.remove(&counter.accounts);
            self.free_counters.give_back(number.0);
        }
    }

    fn remove_counter(&mut self, number: CounterId) -> Option<Counter> {
        let counter = self.counters.remove(&number)?;
        self.counters_by_accounts.remove(&counter.accounts);
        self.freed.1.push(number.0);
        Some(counter)
    }

    /// Adds a use.
    pub(crate) fn acquire(&mut self, number: u32) {
        if let Some(class) = self.by_number.get_mut(&number) {
            class.uses += 1;
            if class.uses == 1 {
                self.unused.remove(&number);
            }
        }
    }

    /// Removes a use.
    pub(crate) fn release(&mut self, number: u32) {
        if let Some(class) = self.by_number.get_mut(&number) {
            class.uses -= 1;
            if class.uses == 0 {
                self.unused.insert(number);
            }
        }
    }

    /// Frees a class that nothing uses.
    fn free(&mut self, number: u32, writes: &mut Vec<MapWrite>) {
        let Some(class) = self.by_number.remove(&number) else {
            return;
        };
        self.by_content.remove(&class.content);
        self.by_program.retain(|_, known| *known != number);
        self.free_ranges
            .give_back(class.first_range, range_count(&class.content));
        self.free_ports += port_count(&class.content);
        self.freed.0.push(number);
        for counter in counters_of(&class.content) {
            let Some(known) = self.counters.get_mut(&counter) else {
                continue;
            };
            known.uses -= 1;
            if known.uses == 0
                && let Some(known) = self.remove_counter(counter)
            {
                writes.push(MapWrite::FreeCounter {
                    number: counter,
                    accounts: known.accounts,
                });
            }
        }
        writes.push(MapWrite::FreeClass {
            number,
            content: class.content,
        });
    }

    /// What each counter in the maps counts for.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (CounterId, &[CountAccount])> {
        let counters = self.counters.iter();
        counters.map(|(number, counter)| (*number, &counter.accounts[..]))
    }

    /// Adds what writes all counters and classes that the maps have.
    pub(crate) fn list(&self, writes: &mut Vec<MapWrite>) {
        for (number, counter) in &self.counters {
            writes.push(MapWrite::Counter {
                number: *number,
                accounts: counter.accounts.clone(),
            });
        }
        for (number, class) in &self.by_number {
            writes.push(MapWrite::Class {
                number: *number,
                content: class.content.clone(),
                first_range: class.first_range,
            });
        }
    }

    pub(crate) fn content(&self, number: u32) -> Option<&ClassWords> {
        self.by_number.get(&number).map(|class| &*class.content)
    }
}

fn range_count(content: &ClassWords) -> u32 {
    let ranges = content.iter().map(|words| words.ranges().count());
    ranges.sum::<usize>() as u32
}

fn port_count(content: &ClassWords) -> usize {
    content.iter().map(|words| words.singles().count()).sum()
}

/// Each counter of a class once.
fn counters_of(content: &ClassWords) -> BTreeSet<CounterId> {
    let words = content.iter().flat_map(|words| {
        let rows = words.rows.iter().map(|row| row.word);
        rows.chain([words.default])
    });
    let counters = words.filter_map(|word| match word {
        Word::Pass => None,
        Word::Allow(counter) | Word::Deny(counter) => Some(counter),
    });
    counters.filter(|counter| counter.0 != 0).collect()
}
