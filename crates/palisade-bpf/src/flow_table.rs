//! The table of flows, read while programs write it: who sends to whom, who delivers, how long each flow lives.
//!
//! Promises: an entry is as one program wrote it, never of two; what is over is not listed; a bucket that is written
//! without an end counts as empty.
//!
//! Never: changes an entry of a live flow.

use std::hint::spin_loop;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use palisade_sys::bpf::{BpfMap, MapView};

use crate::maps::{
    BUCKET_WORDS, CONFIG_STATE, FIRST_WAY, FLOW_VIA_STACK, FastPathMaps, FastPathState, MapsError,
    WAY_WORDS, WAYS, clear_flows, load, read_state, store_state,
};

/// Of the flags of a flow: its first packet came from the lower end, it closes, its other end has answered.
const FLOW_FROM_LOWER: u64 = 1 << 0;
const FLOW_CLOSING: u64 = 1 << 2;
const FLOW_ANSWERED: u64 = 1 << 3;

/// The bits of a time in nanoseconds that an entry does not have, and those of a lifetime.
const TIME_SHIFT: u32 = 26;
const LIFETIME_SHIFT: u32 = 30 - TIME_SHIFT;

/// How often a bucket is read that a program writes at the same time: its writers have it for less than a microsecond.
const ATTEMPTS: u32 = 100_000;

/// The words of a bucket: the first is its sequence, which is odd while it is written.
type Bucket = [u64; BUCKET_WORDS];

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowTableEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its port; of ICMP, the identifier at the end that asks, and the type of the request at the other one.
    pub port: u16,
    /// The number of the slot that the address had at the last packet; of a flow that the stack delivers, nothing.
    pub slot: u16,
    /// The incarnation of the slot.
    pub incarnation: u16,
}

/// A flow of the fast path's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowTableEntry {
    /// How long ago a packet of it was seen last, in steps of 67 ms.
    pub age: Duration,
    /// How long it lives without a packet.
    pub lifetime: Duration,
    /// The number of the protocol.
    pub protocol: u8,
    /// Who sent the first packet.
    pub source: FlowTableEnd,
    /// Who was sent it.
    pub destination: FlowTableEnd,
    /// Whether the stack delivers it.
    pub is_via_stack: bool,
    /// Whether an end of a TCP connection has closed or reset it.
    pub is_closing: bool,
    /// Whether the receiver has answered.
    pub is_answered: bool,
    /// The generation that judged it; of a flow that the stack delivers, nothing.
    pub generation: u32,
}

impl FlowTableEntry {
    /// How long it lives without a further packet.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lifetime.saturating_sub(self.age)
    }
}

/// What is counted while the table is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTableCounts {
    /// Live flows that the fast path delivers.
    pub owned: u64,
    /// Live flows that the stack delivers, and whose answers go by it.
    pub via_stack: u64,
    /// Live flows that had to make room since the table was made.
    pub evictions: u64,
}

/// The flows, and the word that says whether others may begin.
#[derive(Debug)]
pub struct FlowTable {
    config: MapView,
    flows: MapView,
}

impl FlowTable {
    /// Those of the maps `config` and `flows`.
    ///
    /// # Errors
    /// If one cannot be mapped.
    pub fn new(config: &BpfMap, flows: &BpfMap) -> Result<Self, MapsError> {
        Ok(FlowTable {
            config: config.view()?,
            flows: flows.view()?,
        })
    }

    /// Whether flows may begin.
    pub fn state(&self) -> FastPathState {
        read_state(load(&self.config, CONFIG_STATE))
    }

    /// Sets whether flows may begin.
    pub fn set_state(&self, state: FastPathState) {
        store_state(&self.config, state);
    }

    /// How many buckets there are.
    pub fn bucket_count(&self) -> usize {
        self.flows.words().len() / BUCKET_WORDS
    }

    /// The sequence of a bucket: another one whenever the bucket was written.
    pub fn sequence(&self, bucket: usize) -> u64 {
        load(&self.flows, bucket * BUCKET_WORDS)
    }

    /// The live flows of a bucket, each with the number of its way, at a time since the machine started
    /// (`CLOCK_MONOTONIC`).
    pub fn flows_of(
        &self,
        bucket: usize,
        now: Duration,
    ) -> impl Iterator<Item = (usize, FlowTableEntry)> + use<> {
        let words = self.flows.words().chunks_exact(BUCKET_WORDS).nth(bucket);
        let copy = words.and_then(read_bucket).unwrap_or([0; BUCKET_WORDS]);
        entries(copy, now)
    }

    /// The live flows that the fast path delivers, at a time since the machine started (`CLOCK_MONOTONIC`). Complete where
    /// no flow begins meanwhile.
    pub fn owned_flows(&self, now: Duration) -> impl Iterator<Item = FlowTableEntry> + '_ {
        let buckets = 0..self.bucket_count();
        let all = buckets.flat_map(move |bucket| self.flows_of(bucket, now));
        all.filter_map(|(_, entry)| (!entry.is_via_stack).then_some(entry))
    }

    /// Forgets all flows, of programs that deliver none any more.
    pub fn clear(&self) {
        clear_flows(&self.flows);
    }
}

impl FastPathMaps {
    /// Passes each live flow to `visit`, at a time since the machine started (`CLOCK_MONOTONIC`).
    pub fn read_flows(
        &self,
        now: Duration,
        mut visit: impl FnMut(&FlowTableEntry),
    ) -> FlowTableCounts {
        let mut counts = FlowTableCounts::default();
        let buckets = self.flows.words().chunks_exact(BUCKET_WORDS);
        for bucket in buckets.filter_map(read_bucket) {
            counts.evictions += bucket[3];
            for (_, entry) in entries(bucket, now) {
                if entry.is_via_stack {
                    counts.via_stack += 1;
                } else {
                    counts.owned += 1;
                }
                visit(&entry);
            }
        }
        counts
    }
}

/// A bucket as it was when nobody wrote it; `None` if somebody always does.
fn read_bucket(bucket: &[AtomicU64]) -> Option<Bucket> {
    let sequence = bucket.first()?;
    for _ in 0..ATTEMPTS {
        let before = sequence.load(Ordering::Acquire);
        if before & 1 == 0 {
            let mut copy = [0; BUCKET_WORDS];
            for (word, place) in copy.iter_mut().zip(bucket) {
                *word = place.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) == before {
                return Some(copy);
            }
        }
        spin_loop();
    }
    None
}

/// The live flows of a bucket.
fn entries(bucket: Bucket, now: Duration) -> impl Iterator<Item = (usize, FlowTableEntry)> {
    let now = (now.as_nanos() >> TIME_SHIFT) as u32;
    (0..WAYS).filter_map(move |way| Some((way, read_way(&bucket, way, now)?)))
}

/// The flow of a way; `None` if it is free or over.
fn read_way(bucket: &Bucket, way: usize, now: u32) -> Option<FlowTableEntry> {
    let tag = bucket.get(1 + way / 4)? >> (way % 4 * 16) & 0xffff;
    let first = FIRST_WAY + way * WAY_WORDS;
    let words = bucket.get(first..first + WAY_WORDS)?;
    let [l0, l1, u0, u1, ports, times, slots, flags]: [u64; WAY_WORDS] = words.try_into().ok()?;
    if tag == 0 {
        return None;
    }
    // A program on another processor may have a later time.
    let seen = (times >> 32) as u32;
    let age = i64::from(now.wrapping_sub(seen).cast_signed()).max(0);
    let age = age.unsigned_abs();
    // As the programs test it: the last unit is a part of it.
    let lifetime = ((flags >> 16 & 0xffff) + 1) << LIFETIME_SHIFT;
    if age >= lifetime {
        return None;
    }
    let end = |address: [u64; 2], port: u64, slot: u64| FlowTableEnd {
        address: address_from_words(address),
        port: port as u16,
        slot: slot as u16,
        incarnation: (slot >> 16) as u16,
    };
    let lower = end([l0, l1], ports, slots);
    let upper = end([u0, u1], ports >> 16, slots >> 32);
    let (source, destination) = if flags & FLOW_FROM_LOWER != 0 {
        (lower, upper)
    } else {
        (upper, lower)
    };
    Some(FlowTableEntry {
        age: Duration::from_nanos(age << TIME_SHIFT),
        lifetime: Duration::from_nanos(lifetime << TIME_SHIFT),
        protocol: (ports >> 32) as u8,
        source,
        destination,
        is_via_stack: flags & FLOW_VIA_STACK != 0,
        is_closing: flags & FLOW_CLOSING != 0,
        is_answered: flags & FLOW_ANSWERED != 0,
        generation: times as u32,
    })
}

fn address_from_words([first, second]: [u64; 2]) -> IpAddr {
    let octets = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
    let octets: [u8; 16] = octets.try_into().unwrap_or_default();
    Ipv6Addr::from(octets).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1 << 20;
    const WAY: usize = 5;

    /// A bucket with a flow of UDP in a way, by its flags, its lifetime and when it was seen.
    fn bucket(flags: u64, lifetime: u64, seen: u32) -> [u64; BUCKET_WORDS] {
        let mut bucket = [0; BUCKET_WORDS];
        bucket[1 + WAY / 4] = 77 << (WAY % 4 * 16);
        let lower = "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
        let upper = "::ffff:10.0.0.2".parse::<Ipv6Addr>().unwrap().octets();
        let words = [lower, upper].concat();
        let words = words
            .chunks(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let first = FIRST_WAY + WAY * WAY_WORDS;
        for (at, word) in words.enumerate() {
            bucket[first + at] = word;
        }
        bucket[first + 4] = 40_000 | 53 << 16 | 17 << 32;
        bucket[first + 5] = 9 | u64::from(seen) << 32;
        bucket[first + 6] = 3 | 30 << 16 | 4 << 32 | 40 << 48;
        bucket[first + 7] = flags | lifetime << 16;
        bucket
    }

    #[test]
    fn a_flow_is_read_in_the_direction_of_its_first_packet() {
        let lower = FlowTableEnd {
            address: IpAddr::from([10, 0, 0, 1]),
            port: 40_000,
            slot: 3,
            incarnation: 30,
        };
        let upper = FlowTableEnd {
            address: IpAddr::from([10, 0, 0, 2]),
            port: 53,
            slot: 4,
            incarnation: 40,
        };
        for (flags, source, destination) in [(1, lower, upper), (8, upper, lower)] {
            let flow = read_way(&bucket(flags, 28, NOW - 16), WAY, NOW);
            let expected = FlowTableEntry {
                age: Duration::from_nanos(1 << 30),
                lifetime: Duration::from_nanos(29 << 30),
                protocol: 17,
                source,
                destination,
                is_via_stack: false,
                is_closing: false,
                is_answered: flags == 8,
                generation: 9,
            };
            assert_eq!(flow, Some(expected));
            assert_eq!(expected.remaining(), Duration::from_nanos(28 << 30));
        }
        assert_eq!(read_way(&bucket(1, 28, NOW), WAY - 1, NOW), None, "free");
        let by_stack = read_way(&bucket(2, 28, NOW), WAY, NOW);
        assert!(by_stack.unwrap().is_via_stack);
    }

    #[test]
    fn a_bucket_that_is_written_is_not_read() {
        let bucket: Vec<AtomicU64> = (0..BUCKET_WORDS as u64).map(AtomicU64::new).collect();
        let expected: Vec<u64> = (0..BUCKET_WORDS as u64).collect();
        assert_eq!(read_bucket(&bucket).unwrap().to_vec(), expected);
        bucket[0].store(3, Ordering::Release);
        assert_eq!(read_bucket(&bucket), None);
    }

    #[test]
    fn a_flow_lives_as_long_as_for_the_programs() {
        // (now - seen) >> 4 <= lifetime.
        for (age, lives) in [(0, true), (29 * 16 - 1, true), (29 * 16, false)] {
            let flow = read_way(&bucket(1, 28, NOW - age), WAY, NOW);
            assert_eq!(flow.is_some(), lives, "{age}");
        }
        let later = read_way(&bucket(1, 28, NOW + 1), WAY, NOW).unwrap();
        assert_eq!(later.remaining(), Duration::from_nanos(29 << 30));
        assert!(
            read_way(&bucket(1, 28, u32::MAX), WAY, 3).is_some(),
            "wrapped"
        );
    }
}
