//! Packets made by hand: from the middle of a connection, in pieces, quoting others.
//!
//! Each is whole and correct (lengths, checksums), because connection tracking judges those too. The
//! last sixteen bytes of each should be its own: by them it is known again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::NodeId;
use super::packet::{fill_checksum, ip_header, ports};

/// A packet to send, and where it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CraftedPacket {
    /// The node that sends.
    pub from: NodeId,
    /// The packet, from its IP header on.
    pub bytes: Vec<u8>,
    /// The node where it is looked for.
    pub receiver: NodeId,
}

impl CraftedPacket {
    /// The destination in the packet's header.
    ///
    /// # Panics
    /// If there is no whole header.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        match self.bytes[0] >> 4 {
            4 => {
                let at: [u8; 4] = std::array::from_fn(|i| self.bytes[16 + i]);
                Ipv4Addr::from(at).into()
            }
            _ => {
                let at: [u8; 16] = std::array::from_fn(|i| self.bytes[24 + i]);
                Ipv6Addr::from(at).into()
            }
        }
    }
}

fn ip_packet(source: IpAddr, to: IpAddr, protocol: u8, mut payload: Vec<u8>, id: u32) -> Vec<u8> {
    fill_checksum(&mut payload, source, to, protocol);
    let mut packet = ip_header(source, to, protocol, payload.len(), id);
    packet.extend_from_slice(&payload);
    packet
}

/// A TCP packet with these flags, numbers and data.
#[must_use]
pub fn tcp(
    source: SocketAddr,
    to: SocketAddr,
    flags: u8,
    (sequence, acknowledged): (u32, u32),
    data: &[u8],
) -> Vec<u8> {
    let mut payload = Vec::new();
    ports(&mut payload, source.port(), to.port());
    payload.extend_from_slice(&sequence.to_be_bytes());
    payload.extend_from_slice(&acknowledged.to_be_bytes());
    payload.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    payload.extend_from_slice(data);
    ip_packet(source.ip(), to.ip(), 6, payload, sequence)
}

/// A datagram.
#[must_use]
pub fn udp(source: SocketAddr, to: SocketAddr, id: u16, data: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    ports(&mut payload, source.port(), to.port());
    let length = u16::try_from(8 + data.len()).unwrap_or(u16::MAX);
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(&[0, 0]);
    payload.extend_from_slice(data);
    ip_packet(source.ip(), to.ip(), 17, payload, u32::from(id))
}

/// An SCTP packet with one chunk.
#[must_use]
pub fn sctp(source: SocketAddr, to: SocketAddr, tag: u32, chunk: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    ports(&mut payload, source.port(), to.port());
    payload.extend_from_slice(&tag.to_be_bytes());
    payload.extend_from_slice(&[0; 4]);
    payload.extend_from_slice(chunk);
    ip_packet(source.ip(), to.ip(), 132, payload, 1)
}

/// An ICMP message, or ICMPv6 between IPv6 addresses; `rest` is what follows the checksum.
#[must_use]
pub fn icmp(
    source: IpAddr,
    to: IpAddr,
    (kind, code): (u8, u8),
    rest: [u8; 4],
    body: &[u8],
) -> Vec<u8> {
    let mut payload = vec![kind, code, 0, 0];
    payload.extend_from_slice(&rest);
    payload.extend_from_slice(body);
    let protocol = if to.is_ipv4() { 1 } else { 58 };
    ip_packet(source, to, protocol, payload, 1)
}

/// A packet of a protocol without a header that is known here: IP in IP, say, or GRE.
#[must_use]
pub fn raw(source: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip_packet(source, to, protocol, payload.to_vec(), 1)
}

/// The same packet in two pieces, cut after so many bytes of its payload: a multiple of 8.
#[must_use]
pub fn fragments(packet: &[u8], cut: u16, id: u16) -> [Vec<u8>; 2] {
    let v4 = packet[0] >> 4 == 4;
    let header = if v4 { 20 } else { 40 };
    let (first, second) = packet[header..].split_at(usize::from(cut));
    [(first, 0, true), (second, cut, false)].map(|(part, offset, more)| {
        let mut out = packet[..header].to_vec();
        let length = part.len() + if v4 { 20 } else { 8 };
        let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        if v4 {
            out[2..4].copy_from_slice(&length);
            out[4..6].copy_from_slice(&id.max(1).to_be_bytes());
            let field = (offset / 8) | (u16::from(more) << 13);
            out[6..8].copy_from_slice(&field.to_be_bytes());
        } else {
            out[4..6].copy_from_slice(&length);
            let protocol = std::mem::replace(&mut out[6], 44);
            out.extend_from_slice(&[protocol, 0]);
            out.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
            out.extend_from_slice(&u32::from(id).to_be_bytes());
        }
        out.extend_from_slice(part);
        out
    })
}

/// The same IPv6 packet behind so many headers of destination options, each of 8 bytes of padding.
#[must_use]
pub fn with_destination_options(packet: &[u8], headers: u16) -> Vec<u8> {
    let mut out = packet[..40].to_vec();
    let length = u16::from_be_bytes([packet[4], packet[5]]) + 8 * headers;
    out[4..6].copy_from_slice(&length.to_be_bytes());
    let protocol = packet[6];
    for header in 0..headers {
        if header == 0 {
            out[6] = 60;
        }
        let next = if header + 1 == headers { protocol } else { 60 };
        out.extend_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
    }
    out.extend_from_slice(&packet[40..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_the_whole_in_order() {
        let ends: [[SocketAddr; 2]; 2] = [
            [
                "10.0.0.1:1000".parse().unwrap(),
                "10.0.0.2:53".parse().unwrap(),
            ],
            [
                "[fd00::1]:1000".parse().unwrap(),
                "[fd00::2]:53".parse().unwrap(),
            ],
        ];
        for [source, to] in ends {
            let whole = udp(source, to, 7, &[9; 64]);
            let header = if to.is_ipv4() { 20 } else { 40 };
            let piece = if to.is_ipv4() { 20 } else { 48 };
            let [first, second] = fragments(&whole, 16, 7);
            assert_eq!(
                [&first[piece..], &second[piece..]].concat(),
                whole[header..]
            );
            assert_eq!(first[piece..].len(), 16);
        }
    }

    #[test]
    fn options_lead_to_the_payload() {
        let (source, to) = (
            "[fd00::1]:1000".parse().unwrap(),
            "[fd00::2]:53".parse().unwrap(),
        );
        let whole = udp(source, to, 7, b"sixteen bytes ..");
        let long = with_destination_options(&whole, 3);
        assert_eq!(long.len(), whole.len() + 24);
        assert_eq!((long[6], long[40], long[48], long[56]), (60, 60, 60, 17));
        assert_eq!(long[64..], whole[40..]);
    }
}
