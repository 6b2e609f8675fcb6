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

/// The words of the key of a flow, with which a way begins.
const KEY_WORDS: usize = 5;

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

/// A flow that the fast path delivers, by what no packet of it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowIdentity {
    way: u8,
    is_from_lower: bool,
    /// As the table has it: the lower end, the upper end, their ports and the protocol.
    key: [u64; KEY_WORDS],
}

impl FlowIdentity {
    /// The number of its way in its bucket.
    #[must_use]
    pub fn way(&self) -> u8 {
        self.way
    }

    /// The number of its protocol.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        let [.., ports] = self.key;
        (ports >> 32) as u8
    }

    /// Who sent the first packet, and who was sent it, each with its port, as [`FlowTableEnd`] has it.
    #[must_use]
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let [l0, l1, u0, u1, ports] = self.key;
        let lower = (address_from_words([l0, l1]), ports as u16);
        let upper = (address_from_words([u0, u1]), (ports >> 16) as u16);
        if self.is_from_lower {
            [lower, upper]
        } else {
            [upper, lower]
        }
    }
}

/// The flows of a bucket that the fast path delivers.
#[derive(Clone, Copy, Debug)]
pub struct BucketFlows {
    flows: [FlowIdentity; WAYS],
    count: usize,
    remaining: Option<Duration>,
}

impl BucketFlows {
    /// The flows, by their ways.
    #[must_use]
    pub fn flows(&self) -> &[FlowIdentity] {
        self.flows.get(..self.count).unwrap_or_default()
    }

    /// After this time the first one is over, unless the bucket is written before.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
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

    /// The sequence of each bucket: another one whenever the bucket was written, and odd while it is.
    pub fn sequences(&self) -> impl Iterator<Item = u64> + '_ {
        let buckets = self.flows.words().chunks_exact(BUCKET_WORDS);
        buckets.map(|bucket| {
            bucket
                .first()
                .map_or(0, |word| word.load(Ordering::Acquire))
        })
    }

    /// The live flows of a bucket that the fast path delivers, at a time since the machine started (`CLOCK_MONOTONIC`).
    pub fn owned_flows_of(&self, bucket: usize, now: Duration) -> BucketFlows {
        let words = self.flows.words().chunks_exact(BUCKET_WORDS).nth(bucket);
        let copy = words.and_then(read_bucket);
        owned_flows(&copy.unwrap_or([0; BUCKET_WORDS]), time_of(now))
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
    let now = time_of(now);
    (0..WAYS).filter_map(move |way| Some((way, read_way(&bucket, way, now)?)))
}

/// A time as entries have it.
fn time_of(now: Duration) -> u32 {
    (now.as_nanos() >> TIME_SHIFT) as u32
}

/// The flows of a bucket that the fast path delivers.
fn owned_flows(bucket: &Bucket, now: u32) -> BucketFlows {
    let none = FlowIdentity {
        way: 0,
        is_from_lower: false,
        key: [0; KEY_WORDS],
    };
    let mut owned = BucketFlows {
        flows: [none; WAYS],
        count: 0,
        remaining: None,
    };
    for way in 0..WAYS {
        let Some([l0, l1, u0, u1, ports, times, _, flags]) = way_words(bucket, way) else {
            continue;
        };
        let Some((age, lifetime)) = age_of(times, flags, now) else {
            continue;
        };
        if flags & FLOW_VIA_STACK != 0 {
            continue;
        }
        let remaining = Duration::from_nanos((lifetime - age) << TIME_SHIFT);
        let least = owned
            .remaining
            .map_or(remaining, |known| known.min(remaining));
        owned.remaining = Some(least);
        if let Some(place) = owned.flows.get_mut(owned.count) {
            *place = FlowIdentity {
                way: way as u8,
                is_from_lower: flags & FLOW_FROM_LOWER != 0,
                key: [l0, l1, u0, u1, ports],
            };
            owned.count += 1;
        }
    }
    owned
}

/// The words of a way; `None` if it is free.
fn way_words(bucket: &Bucket, way: usize) -> Option<[u64; WAY_WORDS]> {
    let tag = bucket.get(1 + way / 4)? >> (way % 4 * 16) & 0xffff;
    let first = FIRST_WAY + way * WAY_WORDS;
    let words = bucket.get(first..first + WAY_WORDS)?;
    (tag != 0).then_some(words.try_into().ok()?)
}

/// How old an entry is and how long it lives, in units of its times; `None` if it is over.
fn age_of(times: u64, flags: u64, now: u32) -> Option<(u64, u64)> {
    // A program on another processor may have a later time.
    let seen = (times >> 32) as u32;
    let age = i64::from(now.wrapping_sub(seen).cast_signed()).max(0);
    let age = age.unsigned_abs();
    // As the programs test it: the last unit is a part of it.
    let lifetime = ((flags >> 16 & 0xffff) + 1) << LIFETIME_SHIFT;
    (age < lifetime).then_some((age, lifetime))
}

/// The flow of a way; `None` if it is free or over.
fn read_way(bucket: &Bucket, way: usize, now: u32) -> Option<FlowTableEntry> {
    let [l0, l1, u0, u1, ports, times, slots, flags] = way_words(bucket, way)?;
    let (age, lifetime) = age_of(times, flags, now)?;
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
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&first.to_ne_bytes());
    octets[8..].copy_from_slice(&second.to_ne_bytes());
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
    fn the_owned_flows_of_a_bucket_are_told_with_the_first_end() {
        let owned = owned_flows(&bucket(8, 28, NOW - 16), NOW);
        let [flow] = owned.flows() else {
            panic!("{owned:?}")
        };
        let ends = [([10, 0, 0, 2], 53), ([10, 0, 0, 1], 40_000)];
        let ends = ends.map(|(address, port)| (IpAddr::from(address), port));
        assert_eq!((flow.way(), flow.protocol(), flow.ends()), (5, 17, ends));
        assert_eq!(owned.remaining(), Some(Duration::from_nanos(28 << 30)));
        // What packets change is no part of it.
        let later = owned_flows(&bucket(8 | 4, 168, NOW), NOW);
        assert_eq!(later.flows(), owned.flows());
        for (flags, seen) in [(2, NOW), (8, NOW - 29 * 16)] {
            let none = owned_flows(&bucket(flags, 28, seen), NOW);
            assert!(none.flows().is_empty() && none.remaining().is_none());
        }
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
