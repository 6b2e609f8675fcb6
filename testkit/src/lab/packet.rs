//! Packets as bytes: what the prober sends, and how it knows one again.
//!
//! Each packet is whole and correct (lengths, checksums), because connection tracking judges those
//! too, and ends with sixteen bytes that are its own: a magic word and a number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::NodeId;

/// One packet to send, and where it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFlow {
    /// The node that sends.
    pub from: NodeId,
    /// The address it sends from: without one, the node's first of the destination's family.
    pub source: Option<IpAddr>,
    /// The destination address.
    pub to: IpAddr,
    /// What is inside.
    pub l4: ProbeL4,
    /// The node where the packet is looked for.
    pub receiver: NodeId,
}

/// The protocol above IP. A source port of `None` is a fresh one each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeL4 {
    /// The first packet of a TCP connection.
    Tcp {
        /// The source port.
        source_port: Option<u16>,
        /// The destination port.
        port: u16,
    },
    /// A datagram.
    Udp {
        /// The source port.
        source_port: Option<u16>,
        /// The destination port.
        port: u16,
    },
    /// The first packet of an SCTP association.
    Sctp {
        /// The source port.
        source_port: Option<u16>,
        /// The destination port.
        port: u16,
    },
    /// ICMP to an IPv4 address, ICMPv6 to an IPv6 address; with a fresh identifier each time.
    Icmp {
        /// The ICMP type.
        icmp_type: u8,
        /// The ICMP code.
        code: u8,
    },
    /// Any other IP protocol, by its number. Over IPv6 it must not be an extension header.
    Other {
        /// The protocol's number.
        protocol: u8,
    },
}

impl ProbeFlow {
    /// A TCP SYN to `to`:`port`.
    #[must_use]
    pub fn tcp(from: NodeId, to: IpAddr, port: u16, receiver: NodeId) -> Self {
        let source_port = None;
        Self::new(from, to, ProbeL4::Tcp { source_port, port }, receiver)
    }

    /// A UDP datagram to `to`:`port`.
    #[must_use]
    pub fn udp(from: NodeId, to: IpAddr, port: u16, receiver: NodeId) -> Self {
        let source_port = None;
        Self::new(from, to, ProbeL4::Udp { source_port, port }, receiver)
    }

    /// An SCTP INIT to `to`:`port`.
    #[must_use]
    pub fn sctp(from: NodeId, to: IpAddr, port: u16, receiver: NodeId) -> Self {
        let source_port = None;
        Self::new(from, to, ProbeL4::Sctp { source_port, port }, receiver)
    }

    /// An echo request of the destination's family.
    #[must_use]
    pub fn echo(from: NodeId, to: IpAddr, receiver: NodeId) -> Self {
        let icmp_type = if to.is_ipv4() { 8 } else { 128 };
        let code = 0;
        Self::new(from, to, ProbeL4::Icmp { icmp_type, code }, receiver)
    }

    /// Any packet.
    #[must_use]
    pub fn new(from: NodeId, to: IpAddr, l4: ProbeL4, receiver: NodeId) -> Self {
        Self {
            from,
            source: None,
            to,
            l4,
            receiver,
        }
    }

    /// The same, sent from another address, the node's own or not.
    #[must_use]
    pub fn with_source(mut self, address: IpAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// The same, sent to another address and port.
    #[must_use]
    pub fn to_destination(mut self, to: SocketAddr) -> Self {
        self.to = to.ip();
        if let ProbeL4::Tcp { port, .. } | ProbeL4::Udp { port, .. } | ProbeL4::Sctp { port, .. } =
            &mut self.l4
        {
            *port = to.port();
        }
        self
    }

    /// The same with a given source port; nothing changes where there are no ports.
    #[must_use]
    pub fn with_source_port(mut self, given: u16) -> Self {
        if let ProbeL4::Tcp { source_port, .. }
        | ProbeL4::Udp { source_port, .. }
        | ProbeL4::Sctp { source_port, .. } = &mut self.l4
        {
            *source_port = Some(given);
        }
        self
    }
}

impl ProbeL4 {
    /// The IP protocol number, as the family of `to` has it.
    pub(super) fn protocol(self, to: IpAddr) -> u8 {
        match self {
            Self::Tcp { .. } => 6,
            Self::Udp { .. } => 17,
            Self::Sctp { .. } => 132,
            Self::Icmp { .. } if to.is_ipv4() => 1,
            Self::Icmp { .. } => 58,
            Self::Other { protocol } => protocol,
        }
    }
}

/// The bytes at the end of every packet of the prober.
const MAGIC: [u8; 8] = *b"palprobe";

/// The number of the probe that a packet, or a quote or echo of it, ends with.
pub(super) fn find_token(bytes: &[u8]) -> Option<u64> {
    let (_, tail) = bytes.split_last_chunk::<16>()?;
    let (magic, number) = tail.split_first_chunk::<8>()?;
    if *magic != MAGIC {
        return None;
    }
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// What tells a probe from an answer to it: the protocol, and the ICMP type and code.
pub(super) type PacketKind = (u8, Option<(u8, u8)>);

/// The kind of a packet that begins with its IP header.
pub(super) fn packet_kind(packet: &[u8]) -> Option<PacketKind> {
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet.first()? & 15) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    payload_kind(protocol, packet.get(header..)?)
}

/// The kind of a packet whose IP header is not there.
pub(super) fn payload_kind(protocol: u8, payload: &[u8]) -> Option<PacketKind> {
    let icmp = match protocol {
        1 | 58 => Some((*payload.first()?, *payload.get(1)?)),
        _ => None,
    };
    Some((protocol, icmp))
}

/// The packet of a flow, from its IP header on.
pub(super) fn build_packet(source: IpAddr, to: IpAddr, l4: ProbeL4, number: u64) -> Vec<u8> {
    let protocol = l4.protocol(to);
    let fresh = 1_024 + u16::try_from(number % 64_000).unwrap_or(0);
    let low = number as u32; // the low half is enough for sequence numbers and tags
    let mut payload = Vec::with_capacity(64);
    match l4 {
        ProbeL4::Tcp { source_port, port } => {
            ports(&mut payload, source_port.unwrap_or(fresh), port);
            payload.extend_from_slice(&low.to_be_bytes());
            payload.extend_from_slice(&[0; 4]); // acknowledgement
            payload.extend_from_slice(&[0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]); // SYN, window
        }
        ProbeL4::Udp { source_port, port } => {
            ports(&mut payload, source_port.unwrap_or(fresh), port);
            payload.extend_from_slice(&[0, 24, 0, 0]); // length, checksum
        }
        ProbeL4::Sctp { source_port, port } => {
            ports(&mut payload, source_port.unwrap_or(fresh), port);
            payload.extend_from_slice(&[0; 8]); // verification tag 0 for INIT; checksum
            payload.extend_from_slice(&[1, 0, 0, 40]); // chunk INIT and its length
            payload.extend_from_slice(&low.max(1).to_be_bytes());
            payload.extend_from_slice(&[0, 1, 0, 0, 0, 1, 0, 1]); // window, streams
            payload.extend_from_slice(&low.to_be_bytes());
            payload.extend_from_slice(&[0xc0, 0x01, 0, 20]); // a parameter to be skipped
        }
        ProbeL4::Icmp { icmp_type, code } => {
            payload.extend_from_slice(&[icmp_type, code, 0, 0]);
            payload.extend_from_slice(&low.to_be_bytes()); // identifier and sequence
        }
        ProbeL4::Other { .. } => payload.extend_from_slice(&[0; 8]),
    }
    payload.extend_from_slice(&MAGIC);
    payload.extend_from_slice(&number.to_be_bytes());
    fill_checksum(&mut payload, source, to, protocol);
    let mut packet = ip_header(source, to, protocol, payload.len(), low);
    packet.extend_from_slice(&payload);
    packet
}

pub(super) fn ports(payload: &mut Vec<u8>, source: u16, destination: u16) {
    payload.extend_from_slice(&source.to_be_bytes());
    payload.extend_from_slice(&destination.to_be_bytes());
}

pub(super) fn ip_header(
    source: IpAddr,
    to: IpAddr,
    protocol: u8,
    length: usize,
    id: u32,
) -> Vec<u8> {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let mut header = Vec::with_capacity(40 + usize::from(length));
    match (source, to) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            header.extend_from_slice(&[0x45, 0]);
            header.extend_from_slice(&(length + 20).to_be_bytes());
            header.extend_from_slice(&(id as u16).max(1).to_be_bytes());
            header.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0]); // checksum: the kernel's
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&to.octets());
        }
        (source, to) => {
            header.extend_from_slice(&[0x60, 0, 0, 0]);
            header.extend_from_slice(&length.to_be_bytes());
            header.extend_from_slice(&[protocol, 64]);
            header.extend_from_slice(&v6(source).octets());
            header.extend_from_slice(&v6(to).octets());
        }
    }
    header
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

pub(super) fn fill_checksum(payload: &mut [u8], source: IpAddr, to: IpAddr, protocol: u8) {
    let (at, pseudo) = match protocol {
        1 => (2, false),
        58 => (2, true),
        6 => (16, true),
        17 => (6, true),
        132 => {
            let sum = crc32c(payload).to_le_bytes();
            payload[8..12].copy_from_slice(&sum);
            return;
        }
        _ => return,
    };
    let mut sum = ones_complement_sum(payload);
    if pseudo {
        sum += u64::from(protocol) + payload.len() as u64;
        for address in [source, to] {
            sum += match v4(address) {
                Some(address) => ones_complement_sum(&address.octets()),
                None => ones_complement_sum(&v6(address).octets()),
            };
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut sum = !(sum as u16);
    if sum == 0 && protocol == 17 {
        sum = 0xffff; // zero would say "no checksum"
    }
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn ones_complement_sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<ProbeL4> {
        let source_port = Some(4_000);
        vec![
            ProbeL4::Tcp {
                source_port,
                port: 80,
            },
            ProbeL4::Udp {
                source_port,
                port: 53,
            },
            ProbeL4::Sctp {
                source_port,
                port: 9,
            },
            ProbeL4::Icmp {
                icmp_type: 8,
                code: 0,
            },
            ProbeL4::Other { protocol: 99 },
        ]
    }

    #[test]
    fn a_packet_is_known_again_by_number_and_kind() {
        let ends: [[IpAddr; 2]; 2] = [
            ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
            ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
        ];
        for [source, to] in ends {
            for (number, l4) in all().into_iter().enumerate() {
                let packet = build_packet(source, to, l4, number as u64);
                assert_eq!(find_token(&packet), Some(number as u64), "{l4:?}");
                let icmp = match l4 {
                    ProbeL4::Icmp { icmp_type, code } => Some((icmp_type, code)),
                    _ => None,
                };
                assert_eq!(
                    packet_kind(&packet),
                    Some((l4.protocol(to), icmp)),
                    "{l4:?}"
                );
            }
        }
    }

    #[test]
    fn foreign_packets_carry_no_token() {
        assert_eq!(find_token(&[]), None);
        assert_eq!(find_token(&[0; 64]), None);
    }

    #[test]
    fn crc32c_matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_filled_checksum_sums_to_all_ones() {
        let source: IpAddr = "10.0.0.1".parse().unwrap();
        let to: IpAddr = "10.0.0.2".parse().unwrap();
        let l4 = ProbeL4::Udp {
            source_port: Some(4_000),
            port: 53,
        };
        let packet = build_packet(source, to, l4, 7);
        let payload = &packet[20..];
        let mut sum = ones_complement_sum(payload)
            + ones_complement_sum(&packet[12..20])
            + 17
            + payload.len() as u64;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff);
    }
}
