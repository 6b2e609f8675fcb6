//! ctnetlink messages: encodes and decodes conntrack entries, without interpreting them.

use std::net::IpAddr;
use std::time::Duration;

use super::{
    ConntrackEntry, ConntrackRecord, ConntrackTuple, NewConnection, TrafficCount, TupleProto,
};
use crate::netlink::{AttrWriter, Attrs, WireError};
use crate::nfnetlink::NfMessage;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_COUNTERS_ORIG: u16 = 9;
const CTA_COUNTERS_REPLY: u16 = 10;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TIMESTAMP: u16 = 20;
const CTA_MARK_MASK: u16 = 21;

const CTA_COUNTERS_PACKETS: u16 = 1;
const CTA_COUNTERS_BYTES: u16 = 2;

const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;

/// `enum tcp_conntrack`, in `linux/netfilter/nf_conntrack_tcp.h`.
const TCP_CONNTRACK_SYN_SENT: u8 = 1;
const TCP_CONNTRACK_ESTABLISHED: u8 = 3;
/// Packets out of the window are no invalid ones.
const IP_CT_TCP_FLAG_BE_LIBERAL: u8 = 1 << 3;

/// `enum ip_conntrack_status`, in `linux/netfilter/nf_conntrack_common.h`.
const IPS_SEEN_REPLY: u32 = 1 << 1;
const IPS_ASSURED: u32 = 1 << 2;
const IPS_CONFIRMED: u32 = 1 << 3;

const IPPROTO_TCP: u8 = 6;

const CTA_TIMESTAMP_START: u16 = 1;
const CTA_TIMESTAMP_STOP: u16 = 2;

const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;

const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;

const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTO_ICMP_ID: u16 = 4;
const CTA_PROTO_ICMP_TYPE: u16 = 5;
const CTA_PROTO_ICMP_CODE: u16 = 6;
const CTA_PROTO_ICMPV6_ID: u16 = 7;
const CTA_PROTO_ICMPV6_TYPE: u16 = 8;
const CTA_PROTO_ICMPV6_CODE: u16 = 9;

/// Identifies one entry by tuple, zone and id, so that a later entry with the same tuple does not match.
pub(super) fn write_entry_key(w: &mut AttrWriter<'_>, flow: &ConntrackEntry) {
    w.nest(CTA_TUPLE_ORIG, |w| write_tuple(w, &flow.original));
    if flow.zone != 0 {
        w.be16(CTA_ZONE, flow.zone);
    }
    w.be32(CTA_ID, flow.id);
}

pub(super) fn write_mark(w: &mut AttrWriter<'_>, value: u32, mask: u32) {
    w.be32(CTA_MARK, value).be32(CTA_MARK_MASK, mask);
}

/// An entry to be created. The kernel confirms it by itself, and refuses a status without that bit.
pub(super) fn write_new(w: &mut AttrWriter<'_>, connection: &NewConnection) {
    let status = if connection.is_answered {
        IPS_CONFIRMED | IPS_SEEN_REPLY | IPS_ASSURED
    } else {
        IPS_CONFIRMED
    };
    w.nest(CTA_TUPLE_ORIG, |w| write_tuple(w, &connection.original))
        .nest(CTA_TUPLE_REPLY, |w| {
            write_tuple(w, &connection.original.mirrored());
        })
        .be32(CTA_STATUS, status)
        .be32(CTA_TIMEOUT, connection.timeout)
        .be32(CTA_MARK, connection.mark);
    if connection.original.protocol != IPPROTO_TCP {
        return;
    }
    let state = if connection.is_answered {
        TCP_CONNTRACK_ESTABLISHED
    } else {
        TCP_CONNTRACK_SYN_SENT
    };
    // The flags, and which of them are set.
    let liberal = [IP_CT_TCP_FLAG_BE_LIBERAL; 2];
    w.nest(CTA_PROTOINFO, |w| {
        w.nest(CTA_PROTOINFO_TCP, |w| {
            w.u8(CTA_PROTOINFO_TCP_STATE, state)
                .bytes(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &liberal)
                .bytes(CTA_PROTOINFO_TCP_FLAGS_REPLY, &liberal);
        });
    });
}

fn write_tuple(w: &mut AttrWriter<'_>, tuple: &ConntrackTuple) {
    let v4 = tuple.source.is_ipv4();
    w.nest(CTA_TUPLE_IP, |w| {
        let (source, destination) = if v4 {
            (CTA_IP_V4_SRC, CTA_IP_V4_DST)
        } else {
            (CTA_IP_V6_SRC, CTA_IP_V6_DST)
        };
        w.ip(source, tuple.source)
            .ip(destination, tuple.destination);
    });
    w.nest(CTA_TUPLE_PROTO, |w| {
        w.u8(CTA_PROTO_NUM, tuple.protocol);
        match tuple.proto {
            TupleProto::Ports(from, to) => {
                w.be16(CTA_PROTO_SRC_PORT, from)
                    .be16(CTA_PROTO_DST_PORT, to);
            }
            TupleProto::Icmp { kind, code, id } if v4 => {
                w.be16(CTA_PROTO_ICMP_ID, id)
                    .u8(CTA_PROTO_ICMP_TYPE, kind)
                    .u8(CTA_PROTO_ICMP_CODE, code);
            }
            TupleProto::Icmp { kind, code, id } => {
                w.be16(CTA_PROTO_ICMPV6_ID, id)
                    .u8(CTA_PROTO_ICMPV6_TYPE, kind)
                    .u8(CTA_PROTO_ICMPV6_CODE, code);
            }
            TupleProto::None => {}
        }
    });
}

pub(super) fn read_entry(object: &NfMessage) -> Result<ConntrackEntry, WireError> {
    let attrs = object.attrs();
    let original = attrs.require(CTA_TUPLE_ORIG, "flow")?.nested();
    let reply = attrs.require(CTA_TUPLE_REPLY, "flow")?.nested();
    let number = |attr| -> Result<Option<u32>, WireError> {
        attrs.find(attr)?.map(|attr| attr.be32()).transpose()
    };
    // A zone that applies to one direction only is an attribute of that direction's tuple.
    let zone = match attrs.find(CTA_ZONE)? {
        Some(zone) => Some(zone),
        None => original.find(CTA_TUPLE_ZONE)?,
    };
    Ok(ConntrackEntry {
        original: read_tuple(&original)?,
        reply: read_tuple(&reply)?,
        zone: zone.map(|zone| zone.be16()).transpose()?.unwrap_or(0),
        mark: number(CTA_MARK)?.unwrap_or(0),
        status: number(CTA_STATUS)?.unwrap_or(0),
        id: attrs.require(CTA_ID, "flow")?.be32()?,
        timeout: number(CTA_TIMEOUT)?,
    })
}

/// An entry with what the kernel counted and timed.
pub(super) fn read_record(object: &NfMessage) -> Result<ConntrackRecord, WireError> {
    let attrs = object.attrs();
    let traffic = match (
        attrs.find(CTA_COUNTERS_ORIG)?,
        attrs.find(CTA_COUNTERS_REPLY)?,
    ) {
        (Some(original), Some(reply)) => Some([
            read_traffic(&original.nested())?,
            read_traffic(&reply.nested())?,
        ]),
        _ => None,
    };
    let timestamp = attrs.find(CTA_TIMESTAMP)?.map(|attr| attr.nested());
    let time = |attr| -> Result<Option<Duration>, WireError> {
        let Some(timestamp) = &timestamp else {
            return Ok(None);
        };
        let nanoseconds = timestamp.find(attr)?.map(|time| time.be64()).transpose()?;
        Ok(nanoseconds.map(Duration::from_nanos))
    };
    Ok(ConntrackRecord {
        entry: read_entry(object)?,
        traffic,
        began: time(CTA_TIMESTAMP_START)?,
        ended: time(CTA_TIMESTAMP_STOP)?,
    })
}

fn read_traffic(counters: &Attrs<'_>) -> Result<TrafficCount, WireError> {
    let packets = counters.require(CTA_COUNTERS_PACKETS, "counters")?;
    let bytes = counters.require(CTA_COUNTERS_BYTES, "counters")?;
    Ok(TrafficCount {
        packets: packets.be64()?,
        bytes: bytes.be64()?,
    })
}

/// The tuple of the first packet's direction, from the attributes of a connection.
pub(crate) fn read_original_tuple(connection: &Attrs<'_>) -> Result<ConntrackTuple, WireError> {
    read_tuple(&connection.require(CTA_TUPLE_ORIG, "connection")?.nested())
}

fn read_tuple(tuple: &Attrs<'_>) -> Result<ConntrackTuple, WireError> {
    let ip = tuple.require(CTA_TUPLE_IP, "tuple")?.nested();
    let proto = tuple.require(CTA_TUPLE_PROTO, "tuple")?.nested();
    let address = |v4: u16, v6: u16| -> Result<IpAddr, WireError> {
        match ip.find(v4)? {
            Some(attr) => attr.ip(),
            None => ip.require(v6, "tuple")?.ip(),
        }
    };
    let key = match proto.find(CTA_PROTO_SRC_PORT)? {
        Some(port) => TupleProto::Ports(
            port.be16()?,
            proto.require(CTA_PROTO_DST_PORT, "tuple")?.be16()?,
        ),
        None => {
            let v4 = (CTA_PROTO_ICMP_TYPE, CTA_PROTO_ICMP_CODE, CTA_PROTO_ICMP_ID);
            let v6 = (
                CTA_PROTO_ICMPV6_TYPE,
                CTA_PROTO_ICMPV6_CODE,
                CTA_PROTO_ICMPV6_ID,
            );
            let (kind, code, id) = if proto.find(v4.0)?.is_some() { v4 } else { v6 };
            match proto.find(kind)? {
                Some(kind) => TupleProto::Icmp {
                    kind: kind.u8()?,
                    code: proto.require(code, "tuple")?.u8()?,
                    id: proto.require(id, "tuple")?.be16()?,
                },
                None => TupleProto::None,
            }
        }
    };
    Ok(ConntrackTuple {
        source: address(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?,
        destination: address(CTA_IP_V4_DST, CTA_IP_V6_DST)?,
        protocol: proto.require(CTA_PROTO_NUM, "tuple")?.u8()?,
        proto: key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(key: TupleProto, protocol: u8, source: &str, destination: &str) {
        let original = ConntrackTuple {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            proto: key,
        };
        let flow = ConntrackEntry {
            original,
            reply: ConntrackTuple {
                source: original.destination,
                destination: original.source,
                ..original
            },
            zone: 3,
            mark: 0xabcd_0001,
            status: 0xe,
            id: 77,
            timeout: Some(120),
        };
        let mut attributes = Vec::new();
        let mut w = AttrWriter::new(&mut attributes);
        write_entry_key(&mut w, &flow);
        w.nest(CTA_TUPLE_REPLY, |w| write_tuple(w, &flow.reply))
            .be32(CTA_MARK, flow.mark)
            .be32(CTA_STATUS, flow.status)
            .be32(CTA_TIMEOUT, 120);
        let traffic =
            [(1, 60), (2, 70_000_000_000)].map(|(packets, bytes)| TrafficCount { packets, bytes });
        for (attr, count) in [CTA_COUNTERS_ORIG, CTA_COUNTERS_REPLY]
            .into_iter()
            .zip(traffic)
        {
            w.nest(attr, |w| {
                w.be64(CTA_COUNTERS_PACKETS, count.packets)
                    .be64(CTA_COUNTERS_BYTES, count.bytes);
            });
        }
        let (began, ended) = (1_780_000_000_123_456_789, 1_780_000_001_000_000_000);
        w.nest(CTA_TIMESTAMP, |w| {
            w.be64(CTA_TIMESTAMP_START, began)
                .be64(CTA_TIMESTAMP_STOP, ended);
        });
        w.finish().unwrap();
        let object = NfMessage {
            kind: 0,
            family: 2,
            generation: 0,
            attributes,
        };
        assert_eq!(read_entry(&object).as_ref(), Ok(&flow));
        let record = ConntrackRecord {
            entry: flow,
            traffic: Some(traffic),
            began: Some(Duration::from_nanos(began)),
            ended: Some(Duration::from_nanos(ended)),
        };
        assert_eq!(read_record(&object), Ok(record));
    }

    #[test]
    fn flows_round_trip() {
        round_trip(TupleProto::Ports(40_000, 443), 6, "10.0.0.1", "10.0.0.2");
        round_trip(TupleProto::Ports(1, 65_535), 132, "fd00::1", "fd00::2");
        let icmp = TupleProto::Icmp {
            kind: 8,
            code: 0,
            id: 513,
        };
        round_trip(icmp, 1, "10.0.0.1", "10.0.0.2");
        round_trip(icmp, 58, "fd00::1", "fd00::2");
        round_trip(TupleProto::None, 47, "10.0.0.1", "10.0.0.2");
    }

    fn written(protocol: u8, is_answered: bool) -> Vec<u8> {
        let connection = NewConnection {
            original: ConntrackTuple {
                source: "10.0.0.1".parse().unwrap(),
                destination: "10.0.0.2".parse().unwrap(),
                protocol,
                proto: TupleProto::Ports(40_000, 443),
            },
            mark: 0x7fff_ff00,
            timeout: 7200,
            is_answered,
        };
        let mut attributes = Vec::new();
        let mut w = AttrWriter::new(&mut attributes);
        write_new(&mut w, &connection);
        w.finish().unwrap();
        attributes
    }

    #[test]
    fn a_new_connection_has_both_tuples_its_status_and_of_tcp_its_state() {
        for (protocol, is_answered, status, state) in [
            (6, true, 0xe, Some(3)),
            (6, false, 0x8, Some(1)),
            (17, true, 0xe, None),
            (17, false, 0x8, None),
        ] {
            let attributes = written(protocol, is_answered);
            let attrs = Attrs::new(&attributes);
            let original = read_original_tuple(&attrs).unwrap();
            let reply = attrs.require(CTA_TUPLE_REPLY, "flow").unwrap().nested();
            let reply = read_tuple(&reply).unwrap();
            assert_eq!(reply, original.mirrored());
            assert_eq!(reply.proto, TupleProto::Ports(443, 40_000));
            for (attr, value) in [
                (CTA_STATUS, status),
                (CTA_TIMEOUT, 7200),
                (CTA_MARK, 0x7fff_ff00),
            ] {
                assert_eq!(attrs.require(attr, "flow").unwrap().be32(), Ok(value));
            }
            let Some(state) = state else {
                assert!(attrs.find(CTA_PROTOINFO).unwrap().is_none());
                continue;
            };
            let tcp = attrs.require(CTA_PROTOINFO, "flow").unwrap().nested();
            let tcp = tcp.require(CTA_PROTOINFO_TCP, "flow").unwrap().nested();
            let found = tcp.require(CTA_PROTOINFO_TCP_STATE, "flow").unwrap().u8();
            assert_eq!(found, Ok(state));
            for attr in [
                CTA_PROTOINFO_TCP_FLAGS_ORIGINAL,
                CTA_PROTOINFO_TCP_FLAGS_REPLY,
            ] {
                let flags = tcp.require(attr, "flow").unwrap();
                assert_eq!(flags.payload, [8, 8]);
            }
        }
    }
}
