//! The maps of the fast path, as `src/c/layout.h` defines them, written from a projection.
//!
//! Promises: a value of a hash has the echo of its key; what belongs to the half in force is not changed.
//!
//! Never: interprets a policy.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use palisade_fast_path::{
    ClassWords, CounterId, FastProtocol, MapWrite, Room, SlotRow, Word, mapped_length,
};
use palisade_model::Prefix;
use palisade_sys::bpf::{BpfError, BpfMap, MapView, UpdateMode};
use palisade_sys::fault;
use palisade_tables::{CounterValue, IdentityId};
use thiserror::Error;

use crate::object::{LoadedObject, LoadedPrograms};

/// Says that a packet is allowed, or denied; the rest of the word is the number of a counter.
const WORD_ALLOWED: u32 = 1 << 31;
const WORD_DENIED: u32 = 1 << 30;
/// Of a slot: both hooks of its interface are attached.
pub(crate) const SLOT_ARMED: u64 = 1 << 16;
/// The bits of a class in a value of `classes`.
const CLASS_BITS: u32 = 20;
/// The bits of an identity in a value of `prefixes`.
const IDENTITY_BITS: u32 = 20;

/// Words of `config`.
pub(crate) const CONFIG_STATE: usize = 0;
pub(crate) const CONFIG_EPOCH: usize = 1;
pub(crate) const CONFIG_PROOF_BIT: usize = 2;
pub(crate) const CONFIG_BUCKET_MASK: usize = 3;
const CONFIG_SEED: usize = 4;

/// The words of eight bytes of a slot, a descriptor and a bucket.
pub(crate) const SLOT_WORDS: usize = 5;
pub(crate) const DESCRIPTOR_WORDS: usize = 8;
pub(crate) const BUCKET_WORDS: usize = 72;

/// The ways of a bucket: how many, where they begin, their words, and which word has the flags.
pub(crate) const WAYS: usize = 8;
pub(crate) const FIRST_WAY: usize = 8;
pub(crate) const WAY_WORDS: usize = 8;
pub(crate) const FLAGS_WORD: usize = 7;
/// Of the flags of a flow: the stack delivers it.
pub(crate) const FLOW_VIA_STACK: u64 = 1 << 1;

/// The maps cannot be written.
#[derive(Debug, Error)]
pub enum MapsError {
    /// The kernel refuses.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The object has no such map.
    #[error("the fast path has no map {0}")]
    Missing(&'static str),
}

/// Whether flows may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastPathState {
    /// Every packet passes.
    Off,
    /// Packets of owned flows are delivered; no flow begins.
    OwnedOnly,
    /// Flows begin and are delivered.
    On,
}

/// An interface of a workload, as the programs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotInterface {
    /// Its index.
    pub index: u32,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u32,
}

/// A slot as the maps have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSlot {
    /// Its number.
    pub number: u16,
    /// Its address.
    pub address: IpAddr,
    /// The index of its interface; 0 if it was never armed.
    pub interface: u32,
    /// Which of the workloads that had this slot has it.
    pub incarnation: u16,
}

/// What the table of flows has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows that the fast path delivers.
    pub owned: u64,
    /// Flows of UDP and ICMP that the stack delivers, and whose answers go by it.
    pub via_stack: u64,
    /// Live flows that had to make room since the table was made.
    pub evictions: u64,
}

/// The generation of flows, and the half of the policy that is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Flows of another generation are judged again at their next packet.
    pub generation: u32,
    /// The half, 0 or 1.
    pub half: usize,
}

/// The fast path in the kernel: its programs, and its maps.
#[derive(Debug)]
pub struct FastPathMaps {
    pub(crate) loaded: LoadedObject,
    pub(crate) config: MapView,
    pub(crate) slots: MapView,
    pub(crate) lengths: MapView,
    pub(crate) sets: MapView,
    pub(crate) descriptors: MapView,
    pub(crate) ranges: MapView,
    pub(crate) flows: MapView,
}

impl FastPathMaps {
    /// The maps of the loaded fast path.
    ///
    /// # Errors
    /// If they cannot be mapped.
    pub fn new(loaded: LoadedObject) -> Result<Self, MapsError> {
        let view = |name| Ok::<_, MapsError>(find(&loaded, name)?.view()?);
        Ok(FastPathMaps {
            config: view("config")?,
            slots: view("slots")?,
            lengths: view("lengths")?,
            sets: view("sets")?,
            descriptors: view("descriptors")?,
            ranges: view("ranges")?,
            flows: view("flows")?,
            loaded,
        })
    }

    /// Adds the programs, of maps that were made without.
    pub fn add_programs(&mut self, programs: LoadedPrograms) {
        self.loaded.add_programs(programs);
    }

    /// The programs and maps.
    pub fn loaded(&self) -> &LoadedObject {
        &self.loaded
    }

    /// How much the maps hold.
    ///
    /// # Errors
    /// If one is missing.
    pub fn room(&self) -> Result<Room, MapsError> {
        let size = |name| Ok::<_, MapsError>(find(&self.loaded, name)?.shape().max_entries);
        Ok(Room {
            slots: size("slots")?.min(size("endpoints")?),
            sets: size("sets")?,
            rows: size("classes")?,
            classes: size("descriptors")?.min(1 << CLASS_BITS),
            ports: size("ports")?,
            ranges: size("ranges")?,
            counters: size("counters")?,
            prefixes: size("prefixes")?,
        })
    }

    /// Sets what does not change while programs run: the bit of the packet mark that says that a packet was proven, and the
    /// secret of the hashes of flows.
    pub fn configure(&self, proof_bit: u32, seed: u64) {
        store(&self.config, CONFIG_SEED, seed);
        self.configure_again(proof_bit);
    }

    /// The same for maps with flows, whose secret stays.
    pub fn configure_again(&self, proof_bit: u32) {
        let buckets = self.flows.words().len() / BUCKET_WORDS;
        store(&self.config, CONFIG_PROOF_BIT, proof_bit.into());
        store(
            &self.config,
            CONFIG_BUCKET_MASK,
            (buckets as u64).saturating_sub(1),
        );
    }

    /// Whether flows may begin.
    pub fn state(&self) -> FastPathState {
        read_state(load(&self.config, CONFIG_STATE))
    }

    /// Sets whether flows may begin.
    pub fn set_state(&self, state: FastPathState) {
        store_state(&self.config, state);
    }

    /// The generation and the half in force.
    pub fn epoch(&self) -> Epoch {
        let word = load(&self.config, CONFIG_EPOCH);
        Epoch {
            generation: (word >> 1) as u32,
            half: (word & 1) as usize,
        }
    }

    /// Puts a half in force, and a generation: each packet is judged by the former or by the latter.
    pub fn set_epoch(&self, epoch: Epoch) {
        let word = u64::from(epoch.generation) << 1 | epoch.half as u64;
        store(&self.config, CONFIG_EPOCH, word);
    }

    /// Writes changes of a projection; those of counters are left to the caller, who also has to have a grace period
    /// between this and whatever was in force before the last call. A new slot is not armed.
    ///
    /// # Errors
    /// If the kernel refuses: some of the changes are written.
    pub fn write(&self, writes: &[MapWrite]) -> Result<(), MapsError> {
        let mut classes = HashRows::default();
        let mut ports = HashRows::default();
        let mut prefixes = HashRows::default();
        for write in writes {
            match write {
                MapWrite::Counter { .. } | MapWrite::FreeCounter { .. } => {}
                MapWrite::Class {
                    number,
                    content,
                    first_range,
                } => self.add_class(*number, content, *first_range, &mut ports),
                MapWrite::FreeClass { number, content } => {
                    for (protocol, words) in FastProtocol::ALL.into_iter().zip(content.iter()) {
                        for row in words.singles() {
                            ports.delete(&port_key(*number, protocol, row.ports.first).0);
                        }
                    }
                }
                MapWrite::Default {
                    set,
                    classes: [first, second],
                } => store(&self.sets, *set as usize, pair(*first, *second)),
                MapWrite::Row {
                    set,
                    identity,
                    classes: values,
                } => {
                    let (key, value) = class_row(*set, identity.0, values.unwrap_or_default());
                    match values {
                        Some(_) => classes.add(&key, value),
                        None => classes.delete(&key),
                    }
                }
                MapWrite::Slot(row) => self.write_slot(row)?,
                MapWrite::FreeSlot { number, address } => self.free_slot(*number, *address)?,
                MapWrite::Prefix { prefix, identities } => {
                    let (key, value) = prefix_row(*prefix, identities.unwrap_or_default());
                    match identities {
                        Some(_) => prefixes.add(&key, value),
                        None => prefixes.delete(&key),
                    }
                }
                MapWrite::PrefixLength { place, length } => {
                    store(&self.lengths, 1 + place, length_word(*length));
                }
                MapWrite::Networks { complete } => {
                    store(&self.lengths, 0, complete_word(*complete));
                }
            }
        }
        prefixes.write(find(&self.loaded, "prefixes")?)?;
        ports.write(find(&self.loaded, "ports")?)?;
        fault::reach("flush-ports-written");
        classes.write(find(&self.loaded, "classes")?)
    }

    /// Writes what policy says of a slot, and the row of its address.
    fn write_slot(&self, row: &SlotRow) -> Result<(), MapsError> {
        let at = usize::from(row.number) * SLOT_WORDS;
        let [first, second] = row.identities;
        store(&self.slots, at + 2, pair(first, second));
        for side in [0, 1] {
            let [first, second] = row.sets.map(|sets| sets[side]);
            store(&self.slots, at + 3 + side, pair(first, second));
        }
        let incarnation = load(&self.slots, at + 1) & 0xffff;
        let (key, value) = endpoint_row(row.address, row.number, incarnation);
        let endpoints = find(&self.loaded, "endpoints")?;
        Ok(endpoints.update(&key, &value.to_ne_bytes(), UpdateMode::Any)?)
    }

    /// Removes the row of an address; flows of its slot are of nobody from here on.
    fn free_slot(&self, number: u16, address: IpAddr) -> Result<(), MapsError> {
        let at = usize::from(number) * SLOT_WORDS;
        let incarnation = load(&self.slots, at + 1).wrapping_add(1) & 0xffff;
        store(&self.slots, at + 1, incarnation);
        let [first, second] = address_words(address);
        let key = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        find(&self.loaded, "endpoints")?.delete(&key)?;
        Ok(())
    }

    /// Has packets to and from a slot be delivered: both programs are attached to its interface.
    pub fn arm(&self, number: u16, interface: SlotInterface) {
        let at = usize::from(number) * SLOT_WORDS;
        let incarnation = load(&self.slots, at + 1) & 0xffff;
        store(&self.slots, at, pair(interface.index, interface.mtu));
        store(&self.slots, at + 1, incarnation | SLOT_ARMED);
    }

    /// Has flows begin to and from other hosts by an interface, which has both programs for that.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_uplink(&self, interface: u32) -> Result<(), MapsError> {
        let uplinks = find(&self.loaded, "uplinks")?;
        Ok(uplinks.update(
            &interface.to_ne_bytes(),
            &UPLINK.to_ne_bytes(),
            UpdateMode::Any,
        )?)
    }

    /// Has none begin there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_uplink(&self, interface: u32) -> Result<(), MapsError> {
        find(&self.loaded, "uplinks")?.delete(&interface.to_ne_bytes())?;
        Ok(())
    }

    /// Has packets to and from a slot pass.
    pub fn disarm(&self, number: u16) {
        let at = usize::from(number) * SLOT_WORDS + 1;
        store(&self.slots, at, load(&self.slots, at) & 0xffff);
    }

    /// Takes over who had which slot in the maps of an earlier process, so that flows stay whose they were. Slots that
    /// had nobody begin anywhere.
    pub fn adopt_incarnations(&self, former: &FormerSlots, known: &[HeldSlot], random: u16) {
        let known: BTreeSet<usize> = known.iter().map(|slot| slot.number.into()).collect();
        for at in 0..self.slots.words().len() / SLOT_WORDS {
            let word = if known.contains(&at) {
                load(&former.slots, at * SLOT_WORDS + 1) & 0xffff
            } else {
                random.into()
            };
            store(&self.slots, at * SLOT_WORDS + 1, word);
        }
    }

    fn add_class(&self, number: u32, content: &ClassWords, first_range: u32, ports: &mut HashRows) {
        let rows = ClassRows::new(number, content, first_range);
        for (key, value) in &rows.ports {
            ports.add(key, *value);
        }
        for (at, range) in &rows.ranges {
            store(&self.ranges, *at as usize, *range);
        }
        for (at, word) in rows.descriptor.into_iter().enumerate() {
            store(
                &self.descriptors,
                number as usize * DESCRIPTOR_WORDS + at,
                word,
            );
        }
    }

    /// The value of a counter, of all processors.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn counter(&self, number: CounterId) -> Result<CounterValue, MapsError> {
        read_counter(find(&self.loaded, "counters")?, number)
    }

    /// Sets a counter to 0, which nothing counts on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_counter(&self, number: CounterId) -> Result<(), MapsError> {
        let counters = find(&self.loaded, "counters")?;
        let key = number.0.to_ne_bytes();
        if let Some(value) = counters.value(&key)? {
            counters.update(&key, &vec![0; value.len()], UpdateMode::Any)?;
        }
        Ok(())
    }

    /// Forgets all flows. A packet that is seen meanwhile may leave its flow, or an entry that nothing finds.
    pub fn clear_flows(&self) {
        clear_flows(&self.flows);
    }

    /// What is in the table of flows. Those that are over may be counted.
    pub fn flow_counts(&self) -> FlowCounts {
        let mut counts = FlowCounts::default();
        for bucket in self.flows.words().chunks_exact(BUCKET_WORDS) {
            let word = |at: usize| {
                bucket
                    .get(at)
                    .map_or(0, |word| word.load(Ordering::Acquire))
            };
            for way in 0..WAYS {
                let tag = word(1 + way / 4) >> (way % 4 * 16) & 0xffff;
                let flags = word(FIRST_WAY + way * WAY_WORDS + FLAGS_WORD);
                if tag == 0 {
                    continue;
                }
                if flags & FLOW_VIA_STACK == 0 {
                    counts.owned += 1;
                } else {
                    counts.via_stack += 1;
                }
            }
            counts.evictions += word(3);
        }
        counts
    }

    /// Whether packets to and from a slot may be delivered.
    pub fn is_armed(&self, number: u16) -> bool {
        load(&self.slots, usize::from(number) * SLOT_WORDS + 1) & SLOT_ARMED != 0
    }
}

/// The slots in the maps of an earlier process.
#[derive(Debug)]
pub struct FormerSlots {
    endpoints: BpfMap,
    slots: MapView,
}

impl FormerSlots {
    /// Those of the maps `endpoints` and `slots`.
    ///
    /// # Errors
    /// If one cannot be mapped.
    pub fn new(endpoints: BpfMap, slots: &BpfMap) -> Result<Self, MapsError> {
        Ok(FormerSlots {
            slots: slots.view()?,
            endpoints,
        })
    }

    /// The slots that have an address.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn held(&self) -> Result<Vec<HeldSlot>, MapsError> {
        let elements = self.endpoints.elements()?;
        let slots = elements.iter().filter_map(|element| {
            let value = u64::from_ne_bytes(element.value.as_slice().try_into().ok()?);
            let octets: [u8; 16] = element.key.as_slice().try_into().ok()?;
            let at = usize::from(value as u16) * SLOT_WORDS;
            Some(HeldSlot {
                number: value as u16,
                address: std::net::Ipv6Addr::from(octets).to_canonical(),
                interface: load(&self.slots, at) as u32,
                incarnation: (value >> 16) as u16,
            })
        });
        Ok(slots.collect())
    }
}

/// The value of a counter in a map of counters, of all processors.
///
/// # Errors
/// If it cannot be read.
pub fn read_counter(counters: &BpfMap, number: CounterId) -> Result<CounterValue, MapsError> {
    let value = counters.value(&number.0.to_ne_bytes())?;
    let mut count = CounterValue::default();
    for words in value.unwrap_or_default().chunks_exact(16) {
        let (packets, bytes) = words.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
        count.packets = count.packets.saturating_add(word(packets));
        count.bytes = count.bytes.saturating_add(word(bytes));
    }
    Ok(count)
}

/// A class as the maps have it.
pub(crate) struct ClassRows {
    /// Its element of `descriptors`.
    pub(crate) descriptor: [u64; DESCRIPTOR_WORDS],
    /// Its elements of `ports`.
    pub(crate) ports: Vec<(Vec<u8>, u64)>,
    /// Its elements of `ranges`, by their numbers.
    pub(crate) ranges: Vec<(u32, u64)>,
}

impl ClassRows {
    pub(crate) fn new(number: u32, content: &ClassWords, first_range: u32) -> Self {
        let mut words = [0_u32; 2 * DESCRIPTOR_WORDS];
        let mut next_range = first_range;
        let (mut ports, mut ranges) = (Vec::new(), Vec::new());
        for (at, (protocol, rows)) in FastProtocol::ALL.into_iter().zip(content).enumerate() {
            words[at] = encode(rows.default);
            words[5 + at] = next_range;
            for row in rows.singles() {
                words[4] |= 1 << at;
                let (key, echo) = port_key(number, protocol, row.ports.first);
                ports.push((key, u64::from(encode(row.word)) | echo << 32));
            }
            for row in rows.ranges() {
                let (first, last) = (u32::from(row.ports.first), u32::from(row.ports.last));
                ranges.push((next_range, pair(first | last << 16, encode(row.word))));
                next_range += 1;
                words[9 + at] += 1;
            }
        }
        ClassRows {
            descriptor: std::array::from_fn(|at| pair(words[2 * at], words[2 * at + 1])),
            ports,
            ranges,
        }
    }
}

/// The key and the value of a row of a set and an identity, with a class for each half.
pub(crate) fn class_row(set: u32, identity: u32, [first, second]: [u32; 2]) -> ([u8; 8], u64) {
    let echo = echo(set.into(), identity.into());
    let echo = u64::from(echo >> (2 * CLASS_BITS - 32)) << (2 * CLASS_BITS);
    let value = u64::from(first) | u64::from(second) << CLASS_BITS;
    let mut key = [0; 8];
    key[..4].copy_from_slice(&set.to_ne_bytes());
    key[4..].copy_from_slice(&identity.to_ne_bytes());
    (key, value | echo)
}

/// The key and the value of the row of an address.
pub(crate) fn endpoint_row(address: IpAddr, number: u16, incarnation: u64) -> ([u8; 16], u64) {
    let [first, second] = address_words(address);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_ne_bytes());
    key[8..].copy_from_slice(&second.to_ne_bytes());
    let value = u64::from(number) | incarnation << 16 | u64::from(echo(first, second)) << 32;
    (key, value)
}

/// The key and the value of the row of a prefix, with an identity for each half.
pub(crate) fn prefix_row(prefix: Prefix, identities: [Option<IdentityId>; 2]) -> ([u8; 24], u64) {
    let [first, second] = address_words(prefix.address());
    let length = mapped_length(prefix);
    let echo = u64::from(echo(first ^ u64::from(length), second) >> (2 * IDENTITY_BITS - 32));
    let mut key = [0; 24];
    key[..8].copy_from_slice(&first.to_ne_bytes());
    key[8..16].copy_from_slice(&second.to_ne_bytes());
    key[16..20].copy_from_slice(&u32::from(length).to_ne_bytes());
    // The projection has no larger ones.
    let [first, second] =
        identities.map(|identity| identity.map_or(0, |identity| u64::from(identity.0) + 1));
    let value = first | second << IDENTITY_BITS | echo << (2 * IDENTITY_BITS);
    (key, value)
}

/// The element of `lengths` of a place.
pub(crate) fn length_word(length: Option<u8>) -> u64 {
    length.map_or(0, |length| u64::from(length) + 1)
}

/// The element of `lengths` that says which halves have all prefixes, and that there are networks.
pub(crate) fn complete_word([first, second]: [bool; 2]) -> u64 {
    u64::from(first) | u64::from(second) << 1 | 1 << 2
}

/// The value of an interface in `uplinks`.
pub(crate) const UPLINK: u64 = 1;

/// From so many rows on, two threads write a hash.
const PARALLEL_ROWS: usize = 8_192;

/// Changes of a hash, to be written in one call, or where there are many in two at once.
#[derive(Default)]
struct HashRows {
    keys: Vec<u8>,
    values: Vec<u8>,
    deleted: Vec<u8>,
}

impl HashRows {
    fn add(&mut self, key: &[u8], value: u64) {
        self.keys.extend(key);
        self.values.extend(value.to_ne_bytes());
    }

    fn delete(&mut self, key: &[u8]) {
        self.deleted.extend(key);
    }

    fn write(&self, map: &BpfMap) -> Result<(), MapsError> {
        map.delete_all(&self.deleted)?;
        let (keys, values) = (&self.keys[..], &self.values[..]);
        let count = values.len() / size_of::<u64>();
        if count < PARALLEL_ROWS {
            return Ok(map.update_all(keys, values, UpdateMode::Any)?);
        }
        let [middle_key, middle] =
            [keys.len() / count, size_of::<u64>()].map(|size| count / 2 * size);
        let (keys, other_keys) = keys.split_at(middle_key);
        let (values, other_values) = values.split_at(middle);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| map.update_all(other_keys, other_values, UpdateMode::Any));
            let first = map.update_all(keys, values, UpdateMode::Any);
            let other = match other.join() {
                Ok(other) => other,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            Ok(first.and(other)?)
        })
    }
}

pub(crate) fn read_state(word: u64) -> FastPathState {
    match word {
        2 => FastPathState::On,
        1 => FastPathState::OwnedOnly,
        _ => FastPathState::Off,
    }
}

pub(crate) fn store_state(config: &MapView, state: FastPathState) {
    let word = match state {
        FastPathState::Off => 0,
        FastPathState::OwnedOnly => 1,
        FastPathState::On => 2,
    };
    store(config, CONFIG_STATE, word);
}

pub(crate) fn clear_flows(flows: &MapView) {
    for bucket in flows.words().chunks(BUCKET_WORDS) {
        // The ways have no tag: they are free.
        for word in bucket.iter().skip(1).take(2) {
            word.store(0, Ordering::Release);
        }
        // Who knows the bucket by its sequence reads it again; who writes it goes on.
        if let Some(sequence) = bucket.first() {
            sequence.fetch_add(2, Ordering::Release);
        }
    }
}

pub(crate) fn find<'a>(
    loaded: &'a LoadedObject,
    name: &'static str,
) -> Result<&'a BpfMap, MapsError> {
    loaded.map(name).ok_or(MapsError::Missing(name))
}

fn store(view: &MapView, word: usize, value: u64) {
    if let Some(place) = view.words().get(word) {
        place.store(value, Ordering::Release);
    }
}

pub(crate) fn load(view: &MapView, word: usize) -> u64 {
    let word = view.words().get(word);
    word.map_or(0, |word| word.load(Ordering::Acquire))
}

pub(crate) fn pair(low: u32, high: u32) -> u64 {
    let [first, second] = [low, high].map(u64::from);
    first | second << 32
}

fn encode(word: Word) -> u32 {
    match word {
        Word::Pass => 0,
        Word::Allow(counter) => WORD_ALLOWED | counter.0,
        Word::Deny(counter) => WORD_DENIED | counter.0,
    }
}

/// The key of a port of a class, and its echo.
pub(crate) fn port_key(class: u32, protocol: FastProtocol, port: u16) -> (Vec<u8>, u64) {
    let number = u16::from(protocol.protocol().0);
    let mut key = class.to_ne_bytes().to_vec();
    key.extend([port.to_ne_bytes(), number.to_ne_bytes()].concat());
    let echo = echo(class.into(), u64::from(number) << 16 | u64::from(port));
    (key, echo.into())
}

/// 32 bits that tell a key from another whose place it got (`echo_of` of the programs).
fn echo(first: u64, second: u64) -> u32 {
    let mixed = (first ^ second.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// An address as programs have it: IPv4 as `::ffff:a.b.c.d`, in network order.
fn address_words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let bits = u128::from_ne_bytes(octets);
    let (low, high) = (bits as u64, (bits >> 64) as u64);
    if cfg!(target_endian = "little") {
        [low, high]
    } else {
        [high, low]
    }
}
