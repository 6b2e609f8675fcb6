//! All flows of the table, listed for people while programs write it: who sends to whom, who delivers, how long each lives.
//!
//! Promises: an entry is as one program wrote it, never of two; only a bucket that is written without an end counts as
//! empty.
//!
//! Never: writes the table.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::maps::{
    BUCKET_WORDS, FIRST_WAY, FLAGS_WORD, FLOW_VIA_STACK, FastPathMaps, WAY_WORDS, WAYS,
};

/// Of the flags of a flow: its first packet came from the lower end; it is closing; it is answered.
const FLOW_FROM_LOWER: u64 = 1;
const FLOW_CLOSING: u64 = 1 << 2;
const FLOW_ANSWERED: u64 = 1 << 3;

/// Time is counted in units of this many bits of nanoseconds, and lifetimes in units of these.
const TIME_SHIFT: u32 = 26;
const LIFETIME_SHIFT: u32 = 30;

/// How often a bucket that is being written is read again: its writers have it for less than a microsecond.
const ATTEMPTS: usize = 10_000;

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowTableEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its port; of ICMP, the identifier at the end that asks, and the type of the request at the other one.
    pub port: u16,
    /// The number of its slot; of a flow that the stack delivers, nothing.
    pub slot: u16,
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
    /// Whether a packet was seen that ends it.
    pub is_closing: bool,
    /// Whether the receiver has answered.
    pub is_answered: bool,
    /// The generation that judged it; of a flow that the stack delivers, nothing.
    pub generation: u32,
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

impl FastPathMaps {
    /// Passes each live flow to `visit`. `now` is the time of `CLOCK_MONOTONIC`, since the host booted.
    pub fn read_flows(
        &self,
        now: Duration,
        mut visit: impl FnMut(&FlowTableEntry),
    ) -> FlowTableCounts {
        let now = (now.as_nanos() >> TIME_SHIFT) as u32;
        let mut counts = FlowTableCounts::default();
        for bucket in self.flows.words().chunks_exact(BUCKET_WORDS) {
            let Some(words) = read_bucket(bucket) else {
                continue;
            };
            counts.evictions += words[3];
            for way in 0..WAYS {
                let tag = words[1 + way / 4] >> (way % 4 * 16) & 0xffff;
                let first = FIRST_WAY + way * WAY_WORDS;
                let way = &words[first..first + WAY_WORDS];
                if tag == 0 {
                    continue;
                }
                let Some(entry) = live_entry(way, now) else {
                    continue;
                };
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

/// Copies a bucket that no program writes meanwhile; `None` if one always does.
fn read_bucket(bucket: &[AtomicU64]) -> Option<[u64; BUCKET_WORDS]> {
    let sequence = bucket.first()?;
    for _ in 0..ATTEMPTS {
        let before = sequence.load(Ordering::Acquire);
        let mut words = [0; BUCKET_WORDS];
        for (copy, word) in words.iter_mut().zip(bucket) {
            *copy = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        if before % 2 == 0 && sequence.load(Ordering::Relaxed) == before {
            return Some(words);
        }
    }
    None
}

/// The flow of these words: five of its key, three of its value. `None` if it is over.
fn live_entry(words: &[u64], now: u32) -> Option<FlowTableEntry> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let address_at = |at: usize| {
        let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).to_canonical())
    };
    // A packet may have been seen since the time was read.
    let age = (now.wrapping_sub(u32_at(44)?).cast_signed()).max(0) as u64;
    let lifetime = u64::from(u16_at(58)?);
    if age >> (LIFETIME_SHIFT - TIME_SHIFT) > lifetime {
        return None;
    }
    let flags = u64::from(*bytes.get(FLAGS_WORD * 8)?);
    let ends = words.get(6)?;
    let end = |address: usize, port: usize, shift: u32| {
        Some(FlowTableEnd {
            address: address_at(address)?,
            port: u16_at(port)?,
            slot: (ends >> shift) as u16,
        })
    };
    let (lower, upper) = (end(0, 32, 0)?, end(16, 34, 32)?);
    let (source, destination) = if flags & FLOW_FROM_LOWER == 0 {
        (upper, lower)
    } else {
        (lower, upper)
    };
    Some(FlowTableEntry {
        age: Duration::from_nanos(age << TIME_SHIFT),
        // The last unit is a part of it.
        lifetime: Duration::from_nanos((lifetime + 1) << LIFETIME_SHIFT),
        protocol: *bytes.get(36)?,
        source,
        destination,
        is_via_stack: flags & FLOW_VIA_STACK != 0,
        is_closing: flags & FLOW_CLOSING != 0,
        is_answered: flags & FLOW_ANSWERED != 0,
        generation: u32_at(40)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1 << 20;

    /// The words of a flow of UDP between 10.0.0.1 and 10.0.0.2.
    fn words(flags: u64, seen: u32) -> Vec<u64> {
        let octets = ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]
            .map(|text| text.parse::<Ipv6Addr>().unwrap().octets())
            .concat();
        let words = octets.chunks(8);
        let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        words
            .chain([
                40_000 | 53 << 16 | 17 << 32,
                9 | u64::from(seen) << 32,
                3 | 30 << 16 | 4 << 32 | 40 << 48,
                flags | 28 << 16,
            ])
            .collect()
    }

    #[test]
    fn a_flow_is_listed_in_the_direction_of_its_first_packet() {
        let end = |last: u8, port, slot| FlowTableEnd {
            address: IpAddr::from([10, 0, 0, last]),
            port,
            slot,
        };
        let (lower, upper) = (end(1, 40_000, 3), end(2, 53, 4));
        for (flags, source, destination) in [(1, lower, upper), (2 | 8, upper, lower)] {
            let entry = live_entry(&words(flags, NOW - 16), NOW).unwrap();
            let expected = FlowTableEntry {
                age: Duration::from_nanos(1 << 30),
                lifetime: Duration::from_nanos(29 << 30),
                protocol: 17,
                source,
                destination,
                is_via_stack: flags != 1,
                is_closing: false,
                is_answered: flags != 1,
                generation: 9,
            };
            assert_eq!(entry, expected);
        }
        assert!(live_entry(&words(4, NOW), NOW).unwrap().is_closing);
    }

    #[test]
    fn a_flow_lives_as_long_as_for_the_programs() {
        // (now - seen) >> 4 <= lifetime.
        for (age, lives) in [(0, true), (29 * 16 - 1, true), (29 * 16, false)] {
            let entry = live_entry(&words(1, NOW - age), NOW);
            assert_eq!(entry.is_some(), lives, "{age}");
        }
        let later = live_entry(&words(1, NOW + 1), NOW).unwrap();
        assert_eq!(later.age, Duration::ZERO);
        assert!(live_entry(&words(1, u32::MAX), 3).is_some(), "wrapped");
    }

    #[test]
    fn a_bucket_that_is_written_is_not_read() {
        let bucket: Vec<AtomicU64> = (0..BUCKET_WORDS as u64).map(AtomicU64::new).collect();
        let copy = read_bucket(&bucket).unwrap();
        assert!(copy.iter().copied().eq(0..BUCKET_WORDS as u64));
        bucket[0].store(3, Ordering::Release);
        assert_eq!(read_bucket(&bucket), None);
    }
}
