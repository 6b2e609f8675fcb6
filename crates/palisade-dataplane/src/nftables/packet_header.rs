//! Parses the headers of a packet from its first bytes.
//!
//! Promises: every bound is checked; truncated and non-IP packets are rejected. Never: reads beyond the
//! transport header's ports, or ICMP type and code.

use std::net::IpAddr;

use palisade_model::{L4, Protocol};

/// An IPv6 packet with more extension headers than this is not parsed further.
const MAX_EXTENSION_HEADERS: usize = 8;

/// Addresses, protocol, ports and length of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketHeader {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    /// [`L4::None`] also if the transport header is missing.
    pub(crate) l4: L4,
    /// Length in bytes, from the packet's own header.
    pub(crate) length: u32,
}

/// Parses a packet from its network header on; `None` if that is truncated.
pub(crate) fn parse(bytes: &[u8]) -> Option<PacketHeader> {
    match bytes.first()? >> 4 {
        4 => parse_v4(bytes),
        6 => parse_v6(bytes),
        _ => None,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn parse_v4(bytes: &[u8]) -> Option<PacketHeader> {
    let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<4>()?));
    let protocol = Protocol(*bytes.get(9)?);
    let header_len = usize::from(bytes.first()? & 0x0f) * 4;
    let first = be16(bytes, 6)? & 0x1fff == 0;
    let transport = bytes.get(header_len..).filter(|_| first);
    Some(PacketHeader {
        source: address(12)?,
        destination: address(16)?,
        protocol,
        l4: parse_l4(protocol, transport),
        length: be16(bytes, 2)?.into(),
    })
}

fn parse_v6(bytes: &[u8]) -> Option<PacketHeader> {
    let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<16>()?));
    let (source, destination) = (address(8)?, address(24)?);
    let mut next = *bytes.get(6)?;
    let mut rest = bytes.get(40..);
    for _ in 0..MAX_EXTENSION_HEADERS {
        let here = rest.unwrap_or_default();
        let (Some(after), Some(len)) = (here.first(), here.get(1)) else {
            break;
        };
        let len = match next {
            // Hop-by-hop, routing, destination options.
            0 | 43 | 60 => (usize::from(*len) + 1) * 8,
            44 if be16(here, 2).is_some_and(|field| field & 0xfff8 == 0) => 8,
            // Authentication header: its length is in 4-byte units.
            51 => (usize::from(*len) + 2) * 4,
            _ => break,
        };
        next = *after;
        rest = here.get(len..);
    }
    let protocol = Protocol(next);
    Some(PacketHeader {
        source,
        destination,
        protocol,
        l4: parse_l4(protocol, rest),
        length: u32::from(be16(bytes, 4)?) + 40,
    })
}

fn parse_l4(protocol: Protocol, transport: Option<&[u8]>) -> L4 {
    let Some(transport) = transport else {
        return L4::None;
    };
    if protocol.has_ports() {
        let ports = be16(transport, 0).zip(be16(transport, 2));
        return ports.map_or(L4::None, |(source, destination)| L4::Ports {
            source,
            destination,
        });
    }
    match (protocol.is_icmp(), transport) {
        (true, [kind, code, ..]) => L4::Icmp {
            kind: *kind,
            code: *code,
        },
        _ => L4::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x46, 0, 0, 99, 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
        bytes.extend(transport);
        bytes
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 60, next, 64];
        bytes.extend([0xfd; 16]);
        bytes.extend([0xfe; 16]);
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn headers_are_read_past_options() {
        let tcp = [0x10, 0x00, 0x00, 0x50, 9, 9];
        let ports = L4::Ports {
            source: 4096,
            destination: 80,
        };
        let header = PacketHeader {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: Protocol::TCP,
            l4: ports,
            length: 99,
        };
        assert_eq!(parse(&v4(6, &tcp)), Some(header));
        let ping = L4::Icmp { kind: 8, code: 1 };
        assert_eq!(parse(&v4(1, &[8, 1, 0])).unwrap().l4, ping);
        assert_eq!(parse(&v4(47, &tcp)).unwrap().l4, L4::None);

        // A hop-by-hop header of 16 bytes, a first fragment, an authentication header, then TCP.
        let mut rest = vec![44, 1];
        rest.resize(16, 0);
        rest.extend([51, 0, 0, 1, 0, 0, 0, 0]);
        rest.extend([6, 1]);
        rest.resize(16 + 8 + 12, 0);
        rest.extend(tcp);
        let header = PacketHeader {
            source: [0xfd; 16].into(),
            destination: [0xfe; 16].into(),
            protocol: Protocol::TCP,
            l4: ports,
            length: 100,
        };
        assert_eq!(parse(&v6(0, &rest)), Some(header));
    }

    #[test]
    fn whatever_is_cut_off_is_no_error() {
        for whole in [
            v4(6, &[1; 20]),
            v6(0, &[6, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]),
        ] {
            let need = if whole[0] >> 4 == 4 { 20 } else { 40 };
            for len in 0..whole.len() {
                assert_eq!(parse(&whole[..len]).is_some(), len >= need, "{len}");
            }
        }
        let mut later = v4(17, &[1; 8]);
        later[7] = 9;
        assert_eq!(parse(&later).unwrap().l4, L4::None);
        assert_eq!(parse(&[0x50; 60]), None);
        let endless = [60, 0, 0, 0, 0, 0, 0, 0].repeat(12);
        assert_eq!(parse(&v6(60, &endless)).unwrap().protocol, Protocol(60));
    }
}
