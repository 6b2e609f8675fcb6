//! The flows of the fast path, read from its table while programs write it: what another part of the kernel has to know
//! before the programs go.
//!
//! Promises: an entry is as one program wrote it, never of two; what is over or is not delivered by the programs is not
//! listed.
//!
//! Never: changes an entry of a live flow.

use std::hint::spin_loop;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use palisade_sys::bpf::{BpfMap, MapView};

use crate::maps::{
    BUCKET_WORDS, CONFIG_STATE, FIRST_WAY, FLOW_VIA_STACK, FastPathState, MapsError, WAY_WORDS,
    WAYS, clear_flows, load, read_state, store_state,
};

/// Of the flags of a flow: its first packet came from the lower end, it closes, its other end has answered.
const FLOW_FROM_LOWER: u64 = 1 << 0;
const FLOW_CLOSING: u64 = 1 << 2;
const FLOW_ANSWERED: u64 = 1 << 3;

/// The bits of a time in nanoseconds that an entry does not have, and those of a lifetime.
const TIME_SHIFT: u32 = 26;
const LIFETIME_SHIFT: u32 = 30 - TIME_SHIFT;

/// How often a bucket is read that a program writes at the same time: its writers hold it for less than a microsecond.
const ATTEMPTS: u32 = 100_000;

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its port; of ICMP, what stands for it in the table.
    pub port: u16,
    /// The number of the slot that the address had at the last packet.
    pub slot: u16,
    /// The incarnation of the slot.
    pub incarnation: u16,
}

/// A flow that the fast path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedFlow {
    /// Who sent its first packet.
    pub source: FlowEnd,
    /// Who received it.
    pub destination: FlowEnd,
    /// IP protocol number.
    pub protocol: u8,
    /// Whether the receiver has answered.
    pub is_answered: bool,
    /// Whether an end of a TCP connection has closed or reset it.
    pub is_closing: bool,
    /// How long it lives without a further packet.
    pub remaining: Duration,
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

    /// The live flows that the fast path delivers, at a time since the machine started (`CLOCK_MONOTONIC`). Complete where
    /// no flow begins meanwhile.
    pub fn owned_flows(&self, now: Duration) -> impl Iterator<Item = OwnedFlow> + '_ {
        let now = (now.as_nanos() >> TIME_SHIFT) as u32;
        let buckets = self.flows.words().len() / BUCKET_WORDS;
        (0..buckets).flat_map(move |number| {
            let bucket = self.read_bucket(number);
            (0..WAYS).filter_map(move |way| read_way(&bucket, way, now))
        })
    }

    /// A bucket as it was when nobody wrote it. A program is in it for less than a microsecond; if that never ends, the
    /// bucket counts as empty.
    fn read_bucket(&self, number: usize) -> [u64; BUCKET_WORDS] {
        let mut copy = [0; BUCKET_WORDS];
        let first = number * BUCKET_WORDS;
        for _ in 0..ATTEMPTS {
            let before = load(&self.flows, first);
            if before & 1 == 0 {
                for (at, word) in copy.iter_mut().enumerate() {
                    *word = load(&self.flows, first + at);
                }
                fence(Ordering::Acquire);
                if load(&self.flows, first) == before {
                    return copy;
                }
            }
            spin_loop();
        }
        [0; BUCKET_WORDS]
    }

    /// Forgets all flows, of programs that deliver none any more.
    pub fn clear(&self) {
        clear_flows(&self.flows);
    }
}

/// The flow of a way; `None` if it is free or over, or the stack delivers it.
fn read_way(bucket: &[u64; BUCKET_WORDS], way: usize, now: u32) -> Option<OwnedFlow> {
    let tag = bucket.get(1 + way / 4)? >> (way % 4 * 16) & 0xffff;
    let first = FIRST_WAY + way * WAY_WORDS;
    let words = bucket.get(first..first + WAY_WORDS)?;
    let [l0, l1, u0, u1, ports, times, slots, flags]: [u64; WAY_WORDS] = words.try_into().ok()?;
    if tag == 0 || flags & FLOW_VIA_STACK != 0 {
        return None;
    }
    // A program on another processor may have a later time.
    let seen = (times >> 32) as u32;
    let age = i64::from(now.wrapping_sub(seen).cast_signed()).max(0);
    // As the programs test it: the last unit is a part of it.
    let lifetime = ((flags >> 16 & 0xffff) + 1) << LIFETIME_SHIFT;
    let left = lifetime.checked_sub(age.unsigned_abs())?;
    if left == 0 {
        return None;
    }
    let end = |address: [u64; 2], port: u64, slot: u64| FlowEnd {
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
    Some(OwnedFlow {
        source,
        destination,
        protocol: (ports >> 32) as u8,
        is_answered: flags & FLOW_ANSWERED != 0,
        is_closing: flags & FLOW_CLOSING != 0,
        remaining: Duration::from_nanos(left << TIME_SHIFT),
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
        let lower = FlowEnd {
            address: IpAddr::from([10, 0, 0, 1]),
            port: 40_000,
            slot: 3,
            incarnation: 30,
        };
        let upper = FlowEnd {
            address: IpAddr::from([10, 0, 0, 2]),
            port: 53,
            slot: 4,
            incarnation: 40,
        };
        for (flags, source, destination) in [(1, lower, upper), (8, upper, lower)] {
            let flow = read_way(&bucket(flags, 28, NOW - 16), WAY, NOW);
            let expected = OwnedFlow {
                source,
                destination,
                protocol: 17,
                is_answered: flags == 8,
                is_closing: false,
                remaining: Duration::from_nanos(28 << 30),
            };
            assert_eq!(flow, Some(expected));
        }
        assert_eq!(read_way(&bucket(1, 28, NOW), WAY - 1, NOW), None, "free");
        assert_eq!(read_way(&bucket(2, 28, NOW), WAY, NOW), None, "the stack's");
    }

    #[test]
    fn a_flow_lives_as_long_as_for_the_programs() {
        // (now - seen) >> 4 <= lifetime.
        for (age, lives) in [(0, true), (29 * 16 - 1, true), (29 * 16, false)] {
            let flow = read_way(&bucket(1, 28, NOW - age), WAY, NOW);
            assert_eq!(flow.is_some(), lives, "{age}");
        }
        let later = read_way(&bucket(1, 28, NOW + 1), WAY, NOW).unwrap();
        assert_eq!(later.remaining, Duration::from_nanos(29 << 30));
        assert!(
            read_way(&bucket(1, 28, u32::MAX), WAY, 3).is_some(),
            "wrapped"
        );
    }
}
