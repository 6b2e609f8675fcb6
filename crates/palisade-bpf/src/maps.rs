//! The maps of the fast path, as `src/c/layout.h` defines them, written from a projection.
//!
//! Promises: a value of a hash has the echo of its key; what does not fit is refused before anything is written.
//!
//! Never: interprets a policy.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use palisade_fast_path::{FastProtocol, Projection, SlotRow, Word};
use palisade_sys::bpf::{BpfError, BpfMap, MapView, UpdateMode};
use thiserror::Error;

use crate::object::LoadedObject;

/// Says that a packet is allowed; the rest of the word is the number of a counter.
const WORD_ALLOWED: u32 = 1 << 31;
/// Of a slot: both hooks of its interface are attached.
const SLOT_ARMED: u64 = 1 << 16;

/// Words of `config`.
const CONFIG_STATE: usize = 0;
const CONFIG_GENERATION: usize = 1;
const CONFIG_PROOF_BIT: usize = 2;
const CONFIG_BUCKET_MASK: usize = 3;
const CONFIG_SEED: usize = 4;

/// The words of eight bytes of a slot, a descriptor and a bucket.
const SLOT_WORDS: usize = 4;
const DESCRIPTOR_WORDS: usize = 8;
const BUCKET_WORDS: usize = 72;

/// The maps cannot be written.
#[derive(Debug, Error)]
pub enum MapsError {
    /// The kernel refuses.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A map is too small.
    #[error("the BPF map {map} has room for {room} elements, {needed} are needed")]
    TooSmall {
        /// Its name.
        map: &'static str,
        /// How many there would be.
        needed: usize,
        /// How many there can be.
        room: usize,
    },
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
    /// Tells who has the slot from who had it before: a flow is of both of its ends' incarnations.
    pub incarnation: u16,
}

/// The maps of the fast path.
#[derive(Debug)]
pub struct FastPathMaps<'a> {
    loaded: &'a LoadedObject,
    config: MapView,
    slots: MapView,
    sets: MapView,
    descriptors: MapView,
    ranges: MapView,
    flows: MapView,
}

impl<'a> FastPathMaps<'a> {
    /// The maps of the loaded fast path.
    ///
    /// # Errors
    /// If they cannot be mapped.
    pub fn new(loaded: &'a LoadedObject) -> Result<Self, MapsError> {
        let view = |name| Ok::<_, MapsError>(find(loaded, name)?.view()?);
        Ok(FastPathMaps {
            loaded,
            config: view("config")?,
            slots: view("slots")?,
            sets: view("sets")?,
            descriptors: view("descriptors")?,
            ranges: view("ranges")?,
            flows: view("flows")?,
        })
    }

    /// Sets what does not change while programs run: the bit of the packet mark that says that a packet was proven, and the
    /// secret of the hashes of flows.
    pub fn configure(&self, proof_bit: u32, seed: u64) {
        let buckets = self.flows.words().len() / BUCKET_WORDS;
        store(&self.config, CONFIG_PROOF_BIT, proof_bit.into());
        store(&self.config, CONFIG_SEED, seed);
        store(
            &self.config,
            CONFIG_BUCKET_MASK,
            (buckets as u64).saturating_sub(1),
        );
    }

    /// Sets whether flows may begin.
    pub fn set_state(&self, state: FastPathState) {
        let word = match state {
            FastPathState::Off => 0,
            FastPathState::OwnedOnly => 1,
            FastPathState::On => 2,
        };
        store(&self.config, CONFIG_STATE, word);
    }

    /// Sets the generation: flows of another one are judged again at their next packet.
    pub fn set_generation(&self, generation: u32) {
        store(&self.config, CONFIG_GENERATION, generation.into());
    }

    /// Writes a projection in place of another one; no program may be attached. Addresses of interfaces that are not known
    /// pass.
    ///
    /// # Errors
    /// If a map is too small, and then nothing is written; or if the kernel refuses.
    pub fn write_all(
        &self,
        projection: &Projection,
        interface: impl Fn(&SlotRow) -> Option<SlotInterface>,
    ) -> Result<(), MapsError> {
        self.check_sizes(projection)?;
        for name in ["endpoints", "classes", "ports"] {
            let map = find(self.loaded, name)?;
            let keys: Vec<u8> = map
                .elements()?
                .into_iter()
                .flat_map(|element| element.key)
                .collect();
            map.delete_all(&keys)?;
        }
        self.write_rows(projection)?;
        let mut endpoints = HashRows::default();
        for (slot, number) in projection.slots.iter().zip(1_u16..) {
            let known = interface(slot);
            self.store_slot(number, slot, known);
            let Some(known) = known else { continue };
            let [first, second] = address_words(slot.address);
            let key = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
            let value = u64::from(number) | u64::from(known.incarnation) << 16;
            endpoints.add(&key, value, echo(first, second));
        }
        endpoints.write(find(self.loaded, "endpoints")?)
    }

    fn store_slot(&self, number: u16, slot: &SlotRow, interface: Option<SlotInterface>) {
        let at = usize::from(number) * SLOT_WORDS;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let flags = if interface.is_some() { SLOT_ARMED } else { 0 };
        let known = interface.unwrap_or(SlotInterface {
            index: 0,
            mtu: 0,
            incarnation: 0,
        });
        let last = (u64::from(known.incarnation) | flags) << 32 | u64::from(known.mtu);
        store(&self.slots, at, pair(known.index, slot.identity.0));
        store(&self.slots, at + 1, pair(slot.sets[0], slot.sets[1]));
        store(&self.slots, at + 2, last);
    }

    /// Writes sets and classes.
    fn write_rows(&self, projection: &Projection) -> Result<(), MapsError> {
        for (class, number) in projection.default_classes.iter().zip(1..) {
            store(&self.sets, number, (*class).into());
        }
        let mut classes = HashRows::default();
        for ((number, identity), class) in &projection.classes {
            let key = [number.to_ne_bytes(), identity.0.to_ne_bytes()].concat();
            let echo = echo((*number).into(), identity.0.into());
            classes.add(&key, (*class).into(), echo);
        }
        classes.write(find(self.loaded, "classes")?)?;
        let mut ports = HashRows::default();
        let mut next_range = 0;
        for (row, class) in projection.class_rows.iter().zip(1_u32..) {
            let mut words = [0_u32; 2 * DESCRIPTOR_WORDS];
            for (at, protocol) in FastProtocol::ALL.into_iter().enumerate() {
                words[at] = encode(row.defaults[at]);
                let rows = projection.ports.get(&(class, protocol));
                words[5 + at] = next_range;
                for row in rows.into_iter().flatten() {
                    let (first, last, word) = (row.ports.first, row.ports.last, encode(row.word));
                    if first == last {
                        words[4] |= 1 << at;
                        let number = u16::from(protocol.protocol().0);
                        let mut key = class.to_ne_bytes().to_vec();
                        key.extend([first.to_ne_bytes(), number.to_ne_bytes()].concat());
                        let echo = echo(class.into(), u64::from(number) << 16 | u64::from(first));
                        ports.add(&key, word.into(), echo);
                        continue;
                    }
                    let range = u64::from(first) | u64::from(last) << 16 | u64::from(word) << 32;
                    store(&self.ranges, next_range as usize, range);
                    next_range += 1;
                    words[9 + at] += 1;
                }
            }
            for (at, pair) in words.chunks(2).enumerate() {
                let place = class as usize * DESCRIPTOR_WORDS + at;
                let [low, high] =
                    [pair.first(), pair.last()].map(|word| word.copied().unwrap_or(0));
                store(
                    &self.descriptors,
                    place,
                    u64::from(low) | u64::from(high) << 32,
                );
            }
        }
        ports.write(find(self.loaded, "ports")?)
    }

    fn check_sizes(&self, projection: &Projection) -> Result<(), MapsError> {
        let rows = projection.ports.values().flatten();
        let singles = rows
            .clone()
            .filter(|row| row.ports.first == row.ports.last)
            .count();
        let needed = BTreeMap::from([
            ("endpoints", projection.slots.len()),
            // Numbers begin at 1, and those of slots have 16 bits.
            ("slots", projection.slots.len() + 1),
            ("sets", projection.default_classes.len() + 1),
            ("classes", projection.classes.len()),
            ("descriptors", projection.class_rows.len() + 1),
            ("ports", singles),
            ("ranges", rows.count() - singles),
            ("counters", projection.counters.len() + 1),
        ]);
        for (map, needed) in needed {
            let room = find(self.loaded, map)?.shape().max_entries as usize;
            if needed > room {
                return Err(MapsError::TooSmall { map, needed, room });
            }
        }
        Ok(())
    }

    /// Forgets all flows; no program may be attached.
    pub fn clear_flows(&self) {
        for word in self.flows.words() {
            word.store(0, Ordering::Release);
        }
    }
}

/// Rows of a hash, to be written in one call.
#[derive(Default)]
struct HashRows {
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl HashRows {
    fn add(&mut self, key: &[u8], value: u64, echo: u32) {
        self.keys.extend(key);
        let value = value | u64::from(echo) << 32;
        self.values.extend(value.to_ne_bytes());
    }

    fn write(&self, map: &BpfMap) -> Result<(), MapsError> {
        Ok(map.update_all(&self.keys, &self.values, UpdateMode::Any)?)
    }
}

fn find<'a>(loaded: &'a LoadedObject, name: &'static str) -> Result<&'a BpfMap, MapsError> {
    loaded.map(name).ok_or(MapsError::Missing(name))
}

fn store(view: &MapView, word: usize, value: u64) {
    if let Some(place) = view.words().get(word) {
        place.store(value, Ordering::Release);
    }
}

fn encode(word: Word) -> u32 {
    match word {
        Word::Pass => 0,
        Word::Allow(counter) => WORD_ALLOWED | counter.0,
    }
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
