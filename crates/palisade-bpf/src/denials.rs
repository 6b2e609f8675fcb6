//! Packets that the programs dropped: records of the ring `events`, and the number of those that it had no room for.
//!
//! Promises: each packet that was dropped is returned once, or is in the number.
//!
//! Never: says why a packet was denied; the tables do.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use palisade_sys::bpf::{BpfError, BpfMap, MapView, RingBuffer};

use crate::maps::{MapsError, load};

/// Of the flags of a record: the packet is of the direction in which its flow did not begin.
const DENIAL_ANSWERS: u64 = 1;

/// The words of eight bytes of a record.
const DENIAL_WORDS: usize = 7;

/// A packet that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedPacket {
    /// When, since the machine started (`CLOCK_MONOTONIC`).
    pub time: Duration,
    /// Who sent it.
    pub source: IpAddr,
    /// Who it was sent to.
    pub destination: IpAddr,
    /// The index of the interface by which it came.
    pub input: u32,
    /// That of the interface by which it would have gone; `None` if that is not known.
    pub output: Option<u32>,
    /// The number of its protocol.
    pub protocol: u8,
    /// Its source port; 0 of ICMP.
    pub source_port: u16,
    /// Its destination port; of ICMP, the type and the code.
    pub destination_port: u16,
    /// The length of the IP packet.
    pub length: u16,
    /// Whether it is of the direction in which its flow did not begin.
    pub is_answer: bool,
}

impl DeniedPacket {
    /// A record as the programs write it; `None` if it is none.
    fn read(record: &[u8]) -> Option<Self> {
        let (words, []) = record.as_chunks::<8>() else {
            return None;
        };
        let words: [[u8; 8]; DENIAL_WORDS] = words.try_into().ok()?;
        let [time, interfaces, header] = [0, 5, 6].map(|at| words[at]);
        let address = |at: usize| {
            let octets: [u8; 16] = std::array::from_fn(|octet| words[at + octet / 8][octet % 8]);
            Ipv6Addr::from(octets).to_canonical()
        };
        let [input, output] = [0, 4].map(|at| {
            let bytes: [u8; 4] = std::array::from_fn(|byte| interfaces[at + byte]);
            u32::from_ne_bytes(bytes)
        });
        let short = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Some(DeniedPacket {
            time: Duration::from_nanos(u64::from_ne_bytes(time)),
            source: address(1),
            destination: address(3),
            input,
            output: (output != 0).then_some(output),
            source_port: short(0),
            destination_port: short(2),
            length: short(4),
            protocol: header[6],
            is_answer: u64::from(header[7]) & DENIAL_ANSWERS != 0,
        })
    }
}

/// The ring with these records, of which there is one reader.
#[derive(Debug)]
pub struct DenialRing {
    ring: RingBuffer,
    lost: MapView,
}

impl DenialRing {
    /// That of the maps `events` and `lost_events`.
    ///
    /// # Errors
    /// If one cannot be mapped.
    pub fn new(events: &BpfMap, lost: &BpfMap) -> Result<Self, MapsError> {
        Ok(DenialRing {
            ring: RingBuffer::new(events)?,
            lost: lost.view()?,
        })
    }

    /// Passes over all packets that are there.
    pub fn skip_all(&mut self) {
        self.ring.skip_all();
    }

    /// The next packet, if there is one.
    pub fn take_packet(&mut self) -> Option<DeniedPacket> {
        let record = self.ring.take_record()?;
        DeniedPacket::read(&record)
    }

    /// How many packets the ring had no room for since it was made.
    pub fn lost(&self) -> u64 {
        load(&self.lost, 0)
    }

    /// Waits for a packet, no longer than this; whether there may be one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, timeout: Duration) -> Result<bool, BpfError> {
        self.ring.wait(timeout)
    }
}
