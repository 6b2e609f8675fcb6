//! The rows of two workloads, written as a process would: the layout of `src/c/layout.h`, read from it anew.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use palisade_bpf::{BpfObject, LoadedObject};
use palisade_sys::bpf::UpdateMode;

/// Says that a packet is allowed; the rest is the number of a counter.
pub(crate) const ALLOWED: u32 = 1 << 31;
/// Says that it is denied.
pub(crate) const DENIED: u32 = 1 << 30;
/// The proof bit of these tests.
pub(crate) const PROOF: u32 = 0x80;

/// Words of `config`.
const STATE: usize = 0;
const EPOCH: usize = 1;
const PROOF_BIT: usize = 2;
const BUCKET_MASK: usize = 3;
const SEED: usize = 4;
const FAULT: usize = 5;

/// Counters that the tests use.
const COUNTERS: u32 = 8;
/// The number of buckets: few, so that flows meet.
const BUCKETS: u32 = 8;

/// The state of the fast path.
#[derive(Clone, Copy)]
pub(crate) enum State {
    Off,
    OwnedOnly,
    On,
}

/// A workload's slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) ifindex: u32,
    pub(crate) identity: u32,
    pub(crate) egress_set: u32,
    pub(crate) ingress_set: u32,
    pub(crate) incarnation: u16,
    pub(crate) is_armed: bool,
}

/// The fast path: verifying it takes longer than a test of it, so it is loaded once.
static LOADED: LazyLock<Mutex<LoadedObject>> = LazyLock::new(|| {
    let loaded = BpfObject::FAST_PATH.load_sized(&[("flows", BUCKETS)], |_, _| None);
    Mutex::new(loaded.unwrap())
});

/// The fast path with its maps, for one test at a time.
pub(crate) struct Rows {
    pub(crate) loaded: MutexGuard<'static, LoadedObject>,
}

fn echo(first: u64, second: u64) -> u32 {
    let mixed = (first ^ second.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let (first, second) = octets.split_at(8);
    [first, second].map(|half| u64::from_ne_bytes(half.try_into().unwrap()))
}

fn protocol_number(protocol: u8) -> usize {
    [6, 17, 1, 58]
        .iter()
        .position(|known| *known == protocol)
        .unwrap()
}

/// The key and the value of a row of a hash.
pub(crate) type Row = (Vec<u8>, u64);

/// The slot of an address.
pub(crate) fn address_row(address: IpAddr, slot: u16, incarnation: u16) -> Row {
    let [first, second] = address_words(address);
    let value = u64::from(slot) | u64::from(incarnation) << 16;
    (
        [first.to_ne_bytes(), second.to_ne_bytes()].concat(),
        value | u64::from(echo(first, second)) << 32,
    )
}

/// The class of an identity in a set.
pub(crate) fn class_row(set: u32, identity: u32, class: u32) -> Row {
    let echo = u64::from(echo(set.into(), identity.into()) >> 8);
    (
        [set.to_ne_bytes(), identity.to_ne_bytes()].concat(),
        u64::from(class) | echo << 40,
    )
}

/// What a class says of a single port.
pub(crate) fn port_row(class: u32, protocol: u8, port: u16, word: u32) -> Row {
    let mut key = class.to_ne_bytes().to_vec();
    key.extend(port.to_ne_bytes());
    key.extend(u16::from(protocol).to_ne_bytes());
    let echo = echo(class.into(), u64::from(protocol) << 16 | u64::from(port));
    (key, u64::from(word) | u64::from(echo) << 32)
}

impl Rows {
    /// Empties the maps, and switches a mistake of the programs on; 0 is none.
    pub(crate) fn reset(fault: u64) -> Self {
        let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = Rows { loaded };
        for name in ["endpoints", "classes", "ports", "prefixes", "uplinks"] {
            let map = rows.loaded.map(name).unwrap();
            let elements = map.elements().unwrap().into_iter();
            let keys: Vec<u8> = elements.flat_map(|element| element.key).collect();
            map.delete_all(&keys).unwrap();
        }
        for name in [
            "config",
            "slots",
            "lengths",
            "sets",
            "descriptors",
            "ranges",
            "flows",
            "lost_events",
        ] {
            let view = rows.loaded.map(name).unwrap().view().unwrap();
            for word in view.words() {
                word.store(0, Ordering::Release);
            }
        }
        crate::denials::ring(&rows).skip_all();
        let counters = rows.loaded.map("counters").unwrap();
        for counter in 0..COUNTERS {
            let key = counter.to_ne_bytes();
            let values = counters.value(&key).unwrap().unwrap();
            let zeros = vec![0; values.len()];
            counters.update(&key, &zeros, UpdateMode::Any).unwrap();
        }
        rows.store("config", FAULT, fault);
        rows.store("config", SEED, 0x1234_5678_9abc_def0);
        rows.store("config", BUCKET_MASK, u64::from(BUCKETS - 1));
        rows.store("config", PROOF_BIT, PROOF.into());
        rows.set_generation(1);
        rows.set_state(State::On);
        rows
    }

    fn store(&self, map: &str, word: usize, value: u64) {
        let view = self.loaded.map(map).unwrap().view().unwrap();
        view.words()[word].store(value, Ordering::Release);
    }

    /// Writes a row of a hash.
    pub(crate) fn put(&self, map: &str, (key, value): &Row) {
        let map = self.loaded.map(map).unwrap();
        map.update(key, &value.to_ne_bytes(), UpdateMode::Any)
            .unwrap();
    }

    pub(crate) fn set_state(&self, state: State) {
        let state = match state {
            State::Off => 0,
            State::OwnedOnly => 1,
            State::On => 2,
        };
        self.store("config", STATE, state);
    }

    /// Sets the generation, and puts the first half in force.
    pub(crate) fn set_generation(&self, generation: u32) {
        self.store("config", EPOCH, u64::from(generation) << 1);
    }

    /// Puts the second half in force.
    pub(crate) fn set_second_half(&self, generation: u32) {
        self.store("config", EPOCH, u64::from(generation) << 1 | 1);
    }

    pub(crate) fn set_slot(&self, number: u16, addresses: &[IpAddr], slot: Slot) {
        // The second half has nothing: it passes everything.
        let words = [
            [slot.ifindex, 1_500],
            [
                u32::from(slot.incarnation) | u32::from(slot.is_armed) << 16,
                0,
            ],
            [slot.identity, 0],
            [slot.egress_set, 0],
            [slot.ingress_set, 0],
        ];
        for (at, [low, high]) in words.into_iter().enumerate() {
            let word = u64::from(low) | u64::from(high) << 32;
            self.store("slots", usize::from(number) * 5 + at, word);
        }
        for address in addresses {
            self.put(
                "endpoints",
                &address_row(*address, number, slot.incarnation),
            );
        }
    }

    /// Says which halves have all prefixes of other networks.
    pub(crate) fn set_complete(&self, halves: u64) {
        self.store("lengths", 0, halves);
    }

    /// Sets the identity of a prefix, whose length is of 128 bits, in the first half; a place from 1 on has the length
    /// unless it is 128.
    pub(crate) fn set_prefix(&self, address: IpAddr, length: u32, identity: u32, place: usize) {
        let [first, second] = address_words(address);
        let mut key = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        key.extend(length.to_ne_bytes());
        key.extend([0; 4]);
        let echo = u64::from(echo(first ^ u64::from(length), second) >> 8);
        self.put("prefixes", &(key, u64::from(identity + 1) | echo << 40));
        if length < 128 {
            self.store("lengths", place, u64::from(length) + 1);
        }
    }

    /// Has flows begin to other hosts by an interface, or not.
    pub(crate) fn set_uplink(&self, ifindex: u32, is_uplink: bool) {
        let key = ifindex.to_ne_bytes();
        if is_uplink {
            self.put("uplinks", &(key.to_vec(), 1));
        } else {
            self.loaded.map("uplinks").unwrap().delete(&key).unwrap();
        }
    }

    pub(crate) fn set_default_class(&self, set: u32, class: u32) {
        self.store("sets", set as usize, class.into());
    }

    pub(crate) fn set_class(&self, set: u32, identity: u32, class: u32) {
        self.put("classes", &class_row(set, identity, class));
    }

    /// Sets a class: the defaults of TCP, UDP, ICMP and ICMPv6, single ports, and ranges, sorted.
    pub(crate) fn set_descriptor(
        &self,
        class: u32,
        defaults: [u32; 4],
        ports: &[(u8, u16, u32)],
        ranges: &[(u8, [u16; 2], u32)],
    ) {
        let mut words = [0_u32; 16];
        words[..4].copy_from_slice(&defaults);
        for (protocol, port, word) in ports {
            words[4] |= 1 << protocol_number(*protocol);
            self.put("ports", &port_row(class, *protocol, *port, *word));
        }
        for (at, (protocol, [first, last], word)) in ranges.iter().enumerate() {
            let number = protocol_number(*protocol);
            let place = class as usize * 64 + at;
            if words[9 + number] == 0 {
                words[5 + number] = place as u32;
            }
            words[9 + number] += 1;
            let range = u64::from(*first) | u64::from(*last) << 16 | u64::from(*word) << 32;
            self.store("ranges", place, range);
        }
        for (at, pair) in words.chunks(2).enumerate() {
            let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            self.store("descriptors", class as usize * 8 + at, word);
        }
    }

    /// The packets of a counter.
    pub(crate) fn packets(&self, counter: u32) -> u64 {
        let counters = self.loaded.map("counters").unwrap();
        let values = counters.value(&counter.to_ne_bytes()).unwrap().unwrap();
        let of_cpu = values.chunks(16);
        of_cpu
            .map(|value| u64::from_ne_bytes(value[..8].try_into().unwrap()))
            .sum()
    }

    /// Has a bucket for all flows.
    pub(crate) fn use_one_bucket(&self) {
        self.store("config", BUCKET_MASK, 0);
    }

    /// Lets all flows be over.
    pub(crate) fn age_flows(&self) {
        let view = self.loaded.map("flows").unwrap().view().unwrap();
        for bucket in view.words().chunks(72) {
            for way in bucket[8..].chunks(8) {
                let word = way[5].load(Ordering::Acquire);
                let seen = (word >> 32).wrapping_sub(1 << 20) & 0xffff_ffff;
                way[5].store(word & 0xffff_ffff | seen << 32, Ordering::Release);
            }
        }
    }

    /// How many live flows had to make room.
    pub(crate) fn evictions(&self) -> u64 {
        let view = self.loaded.map("flows").unwrap().view().unwrap();
        let buckets = view.words().chunks(72);
        buckets
            .map(|bucket| bucket[3].load(Ordering::Acquire))
            .sum()
    }
}
