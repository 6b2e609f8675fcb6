//! The bytes of rows on disk: blocks of rows, each row the difference to the one before it where that is short.
//!
//! Promises: a block decodes to what was encoded; bytes that are no block end its rows early, and nothing else.
//!
//! Never: knows a text.

use crate::row::{RowCounts, RowKey, RowPort};
use palisade_api::FlowTraffic;

/// A block is full if it has this many bytes: with the database's own bytes it fits into a page of 16 KiB.
const FULL: usize = 15_900;

/// The greatest number of bytes of a row.
const MAX_ROW: usize = 120;

const DENIED: u8 = 1;
const PORT: u8 = 2;
const ICMP: u8 = 4;
const EGRESS: u8 = 8;
const INGRESS: u8 = 16;
const TRAFFIC: u8 = 32;
/// The source is that of the row before.
const SAME_SOURCE: u8 = 64;
/// The protocol is TCP.
const TCP: u8 = 128;
const TCP_NUMBER: u8 = 6;

/// The blocks of rows in the order of their keys. Times are relative to `start`.
pub(crate) fn encode_rows(rows: &[(RowKey, RowCounts)], start: u64) -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut block = Vec::new();
    let mut source = None;
    for (key, counts) in rows {
        if block.len() + MAX_ROW > FULL {
            blocks.push(std::mem::take(&mut block));
            source = None;
        }
        encode_row(&mut block, (key, counts), source, start);
        source = Some(key.source);
    }
    if !block.is_empty() {
        blocks.push(block);
    }
    blocks
}

fn encode_row(
    block: &mut Vec<u8>,
    (key, counts): (&RowKey, &RowCounts),
    last_source: Option<u32>,
    start: u64,
) {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let is_same = last_source == Some(key.source);
    block.push(
        flag(key.is_denied, DENIED)
            | flag(matches!(key.port, RowPort::Port(_)), PORT)
            | flag(matches!(key.port, RowPort::Icmp(..)), ICMP)
            | flag(key.egress != 0, EGRESS)
            | flag(key.ingress != 0, INGRESS)
            | flag(counts.traffic.is_some(), TRAFFIC)
            | flag(is_same, SAME_SOURCE)
            | flag(key.protocol == TCP_NUMBER, TCP),
    );
    if !is_same {
        put(block, u64::from(key.source));
    }
    put(block, u64::from(key.destination));
    if key.protocol != TCP_NUMBER {
        block.push(key.protocol);
    }
    match key.port {
        RowPort::Absent => {}
        RowPort::Port(port) => block.extend(port.to_le_bytes()),
        RowPort::Icmp(kind, code) => block.extend([kind, code]),
    }
    for decision in [key.egress, key.ingress] {
        if decision != 0 {
            put(block, u64::from(decision));
        }
    }
    put(block, counts.first.saturating_sub(start));
    put(block, counts.last.saturating_sub(counts.first));
    put(block, counts.count);
    if let Some(traffic) = counts.traffic {
        put(block, traffic.packets_sent);
        put(block, traffic.bytes_sent);
        put(block, traffic.packets_received);
        put(block, traffic.bytes_received);
    }
}

/// A number, seven bits a byte, the low ones first.
fn put(block: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        block.push(number as u8 | 0x80);
        number >>= 7;
    }
    block.push(number as u8);
}

/// The rows of a block.
pub(crate) struct BlockRows<'a> {
    bytes: &'a [u8],
    start: u64,
    source: u32,
}

impl<'a> BlockRows<'a> {
    /// The rows of a block that was encoded with this start.
    pub(crate) fn new(bytes: &'a [u8], start: u64) -> Self {
        BlockRows {
            bytes,
            start,
            source: 0,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn entry(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }
}

impl Iterator for BlockRows<'_> {
    type Item = (RowKey, RowCounts);

    fn next(&mut self) -> Option<Self::Item> {
        let flags = self.byte()?;
        if flags & SAME_SOURCE == 0 {
            self.source = self.entry()?;
        }
        let mut key = RowKey {
            source: self.source,
            destination: self.entry()?,
            protocol: TCP_NUMBER,
            port: RowPort::Absent,
            is_denied: flags & DENIED != 0,
            egress: 0,
            ingress: 0,
        };
        if flags & TCP == 0 {
            key.protocol = self.byte()?;
        }
        if flags & PORT != 0 {
            key.port = RowPort::Port(u16::from_le_bytes([self.byte()?, self.byte()?]));
        } else if flags & ICMP != 0 {
            key.port = RowPort::Icmp(self.byte()?, self.byte()?);
        }
        if flags & EGRESS != 0 {
            key.egress = self.entry()?;
        }
        if flags & INGRESS != 0 {
            key.ingress = self.entry()?;
        }
        let first = self.start.saturating_add(self.number()?);
        let mut counts = RowCounts {
            first,
            last: first.saturating_add(self.number()?),
            count: self.number()?,
            traffic: None,
        };
        if flags & TRAFFIC != 0 {
            counts.traffic = Some(FlowTraffic {
                packets_sent: self.number()?,
                bytes_sent: self.number()?,
                packets_received: self.number()?,
                bytes_received: self.number()?,
            });
        }
        Some((key, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn number(dice: &mut StdRng) -> u64 {
        let bits = dice.random_range(0..64);
        dice.random::<u64>() >> bits
    }

    fn row(dice: &mut StdRng) -> (RowKey, RowCounts) {
        let first = 1_000 + number(dice) / 4;
        let key = RowKey {
            source: dice.random_range(0..9),
            destination: number(dice) as u32,
            protocol: [1, 6, 17, 200][dice.random_range(0..4)],
            port: match dice.random_range(0..3) {
                0 => RowPort::Absent,
                1 => RowPort::Port(dice.random()),
                _ => RowPort::Icmp(dice.random(), dice.random()),
            },
            is_denied: dice.random(),
            egress: number(dice) as u32 * dice.random_range(0..2),
            ingress: number(dice) as u32 * dice.random_range(0..2),
        };
        let counts = RowCounts {
            first,
            last: first + number(dice) / 4,
            count: number(dice),
            traffic: dice.random::<bool>().then(|| FlowTraffic {
                packets_sent: number(dice),
                bytes_sent: number(dice),
                packets_received: u64::MAX,
                bytes_received: number(dice),
            }),
        };
        (key, counts)
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let dice = &mut StdRng::seed_from_u64(seed);
        let mut rows: Vec<_> = (0..5_000).map(|_| row(dice)).collect();
        rows.sort_by_key(|(key, _)| *key);
        let blocks = encode_rows(&rows, 1_000);
        assert!(blocks.len() > 5 && blocks.iter().all(|block| block.len() <= FULL));
        let read: Vec<_> = (blocks.iter())
            .flat_map(|block| BlockRows::new(block, 1_000))
            .collect();
        assert!(read == rows);
        assert_eq!(encode_rows(&[], 0), Vec::<Vec<u8>>::new());
        // Nothing is promised of other bytes, but that it ends.
        for _ in 0..1_000 {
            let noise: Vec<u8> = (0..dice.random_range(0..200))
                .map(|_| dice.random())
                .collect();
            assert!(BlockRows::new(&noise, u64::MAX).count() <= noise.len());
        }
    }
}
