//! nflog messages: the attributes that bind a group, and those of a packet.
//!
//! Promises: the kernel's numbers under the kernel's names; a missing attribute is `None`, empty or an error.

use std::time::Duration;

use super::NflogPacket;
use crate::conntrack::read_original_tuple;
use crate::netlink::{AttrWriter, Attrs, WireError};

/// A logged packet.
pub(super) const NFULNL_MSG_PACKET: u8 = 0;
/// A change of a group's configuration.
pub(super) const NFULNL_MSG_CONFIG: u8 = 1;

const NFULA_CFG_CMD: u16 = 1;
const NFULA_CFG_MODE: u16 = 2;
const NFULA_CFG_TIMEOUT: u16 = 4;
const NFULA_CFG_QTHRESH: u16 = 5;
const NFULA_CFG_FLAGS: u16 = 6;

const NFULNL_CFG_CMD_BIND: u8 = 1;
const NFULNL_COPY_PACKET: u8 = 2;
const NFULNL_CFG_F_SEQ: u16 = 1;
const NFULNL_CFG_F_CONNTRACK: u16 = 4;

const NFULA_PACKET_HDR: u16 = 1;
const NFULA_TIMESTAMP: u16 = 3;
const NFULA_IFINDEX_INDEV: u16 = 4;
const NFULA_IFINDEX_OUTDEV: u16 = 5;
const NFULA_PAYLOAD: u16 = 9;
const NFULA_PREFIX: u16 = 10;
const NFULA_SEQ: u16 = 12;
const NFULA_CT: u16 = 18;

/// The kernel sends a message after this many packets,
const QUEUE_THRESHOLD: u32 = 32;
/// or after this many hundredths of a second.
const FLUSH_TIMEOUT_CENTISECONDS: u32 = 1;

/// Binds a group, with sequence numbers and the first `copy_range` bytes of each packet, and with its connection if
/// that is wanted.
pub(super) fn write_bind(w: &mut AttrWriter<'_>, copy_range: u32, with_connections: bool) {
    let connections = if with_connections {
        NFULNL_CFG_F_CONNTRACK
    } else {
        0
    };
    let [a, b, c, d] = copy_range.to_be_bytes();
    w.bytes(NFULA_CFG_CMD, &[NFULNL_CFG_CMD_BIND])
        .bytes(NFULA_CFG_MODE, &[a, b, c, d, NFULNL_COPY_PACKET, 0])
        .be32(NFULA_CFG_TIMEOUT, FLUSH_TIMEOUT_CENTISECONDS)
        .be32(NFULA_CFG_QTHRESH, QUEUE_THRESHOLD)
        .be16(NFULA_CFG_FLAGS, NFULNL_CFG_F_SEQ | connections);
}

/// A packet and its sequence number in the group.
pub(super) fn read_packet(attrs: &Attrs<'_>) -> Result<(NflogPacket, Option<u32>), WireError> {
    let number = |kind| attrs.find(kind)?.map(|attr| attr.be32()).transpose();
    let header = attrs.require(NFULA_PACKET_HDR, "reported packet")?;
    let time = match attrs.find(NFULA_TIMESTAMP)? {
        Some(attr) => match attr.payload.split_first_chunk::<8>() {
            Some((seconds, rest)) => rest.first_chunk::<8>().map(|micros| {
                Duration::from_secs(u64::from_be_bytes(*seconds))
                    + Duration::from_micros(u64::from_be_bytes(*micros))
            }),
            None => None,
        },
        None => None,
    };
    let packet = NflogPacket {
        prefix: match attrs.find(NFULA_PREFIX)? {
            // Rules of other programs may log to the same group, with a prefix of any bytes.
            Some(prefix) => String::from_utf8_lossy(prefix.until_nul()).into_owned(),
            None => String::new(),
        },
        hook: header.payload.get(2).copied().unwrap_or(u8::MAX),
        iif: number(NFULA_IFINDEX_INDEV)?,
        oif: number(NFULA_IFINDEX_OUTDEV)?,
        time,
        connection: attrs
            .find(NFULA_CT)?
            .map(|connection| read_original_tuple(&connection.nested()))
            .transpose()?,
        head: match attrs.find(NFULA_PAYLOAD)? {
            Some(head) => head.payload.to_vec(),
            None => Vec::new(),
        },
    };
    Ok((packet, number(NFULA_SEQ)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_whole() {
        let mut bytes = Vec::new();
        AttrWriter::new(&mut bytes)
            .bytes(NFULA_PACKET_HDR, &[8, 0, 2, 0])
            .text(NFULA_PREFIX, "denied")
            .be32(NFULA_IFINDEX_INDEV, 7)
            .bytes(NFULA_PAYLOAD, &[0x45, 0])
            .bytes(
                NFULA_TIMESTAMP,
                &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9],
            )
            .be32(NFULA_SEQ, 3);
        let packet = NflogPacket {
            prefix: "denied".to_owned(),
            hook: 2,
            iif: Some(7),
            oif: None,
            time: Some(Duration::from_micros(5_000_009)),
            connection: None,
            head: vec![0x45, 0],
        };
        assert_eq!(read_packet(&Attrs::new(&bytes)), Ok((packet, Some(3))));
        assert!(read_packet(&Attrs::new(&[])).is_err());
    }

    #[test]
    fn a_group_is_bound_in_one_message() {
        let mut bytes = Vec::new();
        write_bind(&mut AttrWriter::new(&mut bytes), 128, true);
        let attrs = Attrs::new(&bytes);
        let payload = |kind| attrs.find(kind).unwrap().unwrap().payload.to_vec();
        assert_eq!(payload(NFULA_CFG_CMD), [1]);
        assert_eq!(payload(NFULA_CFG_MODE), [0, 0, 0, 128, 2, 0]);
        assert_eq!(payload(NFULA_CFG_FLAGS), [0, 5]);
    }
}
