//! rtnetlink messages of links, addresses, routes and neighbours: encoding and decoding.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::name::{escape_name, unescape_name};
use super::types::{
    Address, IpNet, Link, LinkChange, MAIN_TABLE, MacAddr, Neighbour, Route, RouteKind, RouteScope,
    VethEnd,
};
use crate::netlink::{AttrWriter, Attrs, WireError};
use crate::netns::NetNs;

const IFINFO_LEN: usize = 16;
const IFADDR_LEN: usize = 8;
const RTMSG_LEN: usize = 12;
const NDMSG_LEN: usize = 12;
const VETH_INFO_PEER: u16 = 1;
const RTNH_F_ONLINK: u32 = 4;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTGENMSG_LEN: usize = 4;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const NUD_PERMANENT: u16 = 0x80;
const NTF_PROXY: u8 = 8;

pub(super) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn ifinfomsg(index: u32, flags: u32, change: u32) -> [u8; IFINFO_LEN] {
    let mut head = [0; IFINFO_LEN];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..16].copy_from_slice(&change.to_ne_bytes());
    head
}

fn u32_at(data: &[u8], offset: usize, what: &'static str) -> Result<u32, WireError> {
    data.get(offset..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|bytes| u32::from_ne_bytes(*bytes))
        .ok_or(WireError::Truncated {
            what,
            need: offset + 4,
            have: data.len(),
        })
}

fn u8_at(data: &[u8], offset: usize, what: &'static str) -> Result<u8, WireError> {
    data.get(offset).copied().ok_or(WireError::Truncated {
        what,
        need: offset + 1,
        have: data.len(),
    })
}

pub(super) fn write_veth(
    out: &mut Vec<u8>,
    end: &VethEnd,
    peer: &VethEnd,
) -> Result<(), WireError> {
    out.extend_from_slice(&ifinfomsg(0, 0, 0));
    let mut w = AttrWriter::new(out);
    write_veth_end(&mut w, end);
    w.nest(libc::IFLA_LINKINFO, |w| {
        w.text(libc::IFLA_INFO_KIND, "veth")
            .nest(libc::IFLA_INFO_DATA, |w| {
                w.nest_with_header(VETH_INFO_PEER, &ifinfomsg(0, 0, 0), |w| {
                    write_veth_end(w, peer)
                });
            });
    });
    w.finish()
}

/// A link's name with a terminating zero byte.
fn write_name(w: &mut AttrWriter<'_>, name: &str) {
    let mut bytes = unescape_name(name);
    bytes.push(0);
    w.bytes(libc::IFLA_IFNAME, &bytes);
}

fn write_veth_end(w: &mut AttrWriter<'_>, end: &VethEnd) {
    write_name(w, &end.name);
    if let Some(mac) = end.mac {
        w.bytes(libc::IFLA_ADDRESS, &mac.0);
    }
    if let Some(mtu) = end.mtu {
        w.u32(libc::IFLA_MTU, mtu);
    }
    if let Some(netns) = &end.netns {
        let fd = netns.as_fd().as_raw_fd();
        w.bytes(libc::IFLA_NET_NS_FD, &fd.to_ne_bytes());
    }
}

pub(super) fn write_link_by_name(out: &mut Vec<u8>, name: &str) -> Result<(), WireError> {
    out.extend_from_slice(&ifinfomsg(0, 0, 0));
    let mut w = AttrWriter::new(out);
    write_name(&mut w, name);
    w.finish()
}

pub(super) fn write_link_by_index(out: &mut Vec<u8>, index: u32) {
    out.extend_from_slice(&ifinfomsg(index, 0, 0));
}

/// A link, or with index 0 no link, and a group.
pub(super) fn write_link_group(out: &mut Vec<u8>, index: u32, group: u32) -> Result<(), WireError> {
    out.extend_from_slice(&ifinfomsg(index, 0, 0));
    let mut w = AttrWriter::new(out);
    w.u32(libc::IFLA_GROUP, group);
    w.finish()
}

/// The group of a link; 0 is the default.
pub(super) fn read_link_group(payload: &[u8]) -> Result<u32, WireError> {
    let attrs = Attrs::after_header(payload, IFINFO_LEN, "link")?;
    attrs
        .find(libc::IFLA_GROUP)?
        .map_or(Ok(0), |group| group.u32())
}

pub(super) fn write_namespace_id(out: &mut Vec<u8>, netns: &NetNs) -> Result<(), WireError> {
    out.extend_from_slice(&[0; RTGENMSG_LEN]);
    let fd = netns.as_fd().as_raw_fd();
    let mut w = AttrWriter::new(out);
    w.bytes(NETNSA_FD, &fd.to_ne_bytes());
    w.finish()
}

/// The netnsid that one namespace has for another; `None` if it has none.
pub(super) fn read_namespace_id(payload: &[u8]) -> Result<Option<i32>, WireError> {
    let attrs = Attrs::after_header(payload, RTGENMSG_LEN, "namespace id")?;
    let id = attrs.require(NETNSA_NSID, "namespace id")?;
    Ok(Some(id.u32()?.cast_signed()).filter(|id| *id >= 0))
}

pub(super) fn write_link_dump(out: &mut Vec<u8>) {
    out.extend_from_slice(&ifinfomsg(0, 0, 0));
}

pub(super) fn write_link_change(
    out: &mut Vec<u8>,
    index: u32,
    change: &LinkChange,
) -> Result<(), WireError> {
    let up = libc::IFF_UP as u32;
    let head = match change {
        LinkChange::Up => ifinfomsg(index, up, up),
        LinkChange::Down => ifinfomsg(index, 0, up),
        _ => ifinfomsg(index, 0, 0),
    };
    out.extend_from_slice(&head);
    let mut w = AttrWriter::new(out);
    match change {
        LinkChange::Up | LinkChange::Down => {}
        LinkChange::Mtu(mtu) => {
            w.u32(libc::IFLA_MTU, *mtu);
        }
        LinkChange::Mac(mac) => {
            w.bytes(libc::IFLA_ADDRESS, &mac.0);
        }
        LinkChange::Rename(name) => write_name(&mut w, name),
    }
    w.finish()
}

pub(super) fn read_link(payload: &[u8]) -> Result<Link, WireError> {
    let mut link = Link {
        index: u32_at(payload, 4, "link")?,
        name: String::new(),
        kind: None,
        mac: None,
        mtu: 0,
        flags: u32_at(payload, 8, "link")?,
        peer_index: None,
        peer_netnsid: None,
        master: None,
        qdisc: None,
    };
    for attr in Attrs::after_header(payload, IFINFO_LEN, "link")? {
        let attr = attr?;
        match attr.kind {
            libc::IFLA_IFNAME => link.name = escape_name(attr.until_nul()),
            libc::IFLA_ADDRESS => link.mac = read_mac(attr.payload),
            libc::IFLA_MTU => link.mtu = attr.u32()?,
            libc::IFLA_LINK => link.peer_index = Some(attr.u32()?),
            libc::IFLA_MASTER => link.master = Some(attr.u32()?),
            libc::IFLA_QDISC => link.qdisc = Some(attr.text()?.to_owned()),
            libc::IFLA_LINK_NETNSID => link.peer_netnsid = Some(attr.u32()?.cast_signed()),
            libc::IFLA_LINKINFO => {
                if let Some(kind) = attr.nested().find(libc::IFLA_INFO_KIND)? {
                    link.kind = Some(kind.text()?.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(link)
}

fn read_mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}

pub(super) fn write_address(out: &mut Vec<u8>, index: u32, prefix: IpNet) -> Result<(), WireError> {
    let link_local = match prefix.address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let scope = if prefix.address.is_loopback() {
        libc::RT_SCOPE_HOST
    } else if link_local {
        libc::RT_SCOPE_LINK
    } else {
        libc::RT_SCOPE_UNIVERSE
    };
    out.extend_from_slice(&[family(prefix.address), prefix.len, 0, scope]);
    out.extend_from_slice(&index.to_ne_bytes());
    let mut w = AttrWriter::new(out);
    w.ip(libc::IFA_LOCAL, prefix.address)
        .ip(libc::IFA_ADDRESS, prefix.address);
    if prefix.address.is_ipv6() {
        w.u32(libc::IFA_FLAGS, libc::IFA_F_NODAD);
    }
    w.finish()
}

pub(super) fn write_address_dump(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; IFADDR_LEN]);
}

pub(super) fn read_address(payload: &[u8]) -> Result<Option<Address>, WireError> {
    let len = u8_at(payload, 1, "address")?;
    let mut flags = u32::from(u8_at(payload, 2, "address")?);
    let link_index = u32_at(payload, 4, "address")?;
    let (mut local, mut peer) = (None, None);
    for attr in Attrs::after_header(payload, IFADDR_LEN, "address")? {
        let attr = attr?;
        match attr.kind {
            libc::IFA_LOCAL => local = Some(attr.ip()?),
            libc::IFA_ADDRESS => peer = Some(attr.ip()?),
            libc::IFA_FLAGS => flags = attr.u32()?,
            _ => {}
        }
    }
    // IFA_ADDRESS is the peer's address on a point-to-point link; without IFA_LOCAL it is the local address.
    Ok(local.or(peer).map(|address| Address {
        link_index,
        prefix: IpNet::new(address, len),
        tentative: flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) != 0,
    }))
}

pub(super) fn write_route(
    out: &mut Vec<u8>,
    route: &Route,
    index: Option<u32>,
) -> Result<(), WireError> {
    let scope = match route.scope {
        RouteScope::Universe => libc::RT_SCOPE_UNIVERSE,
        RouteScope::Link => libc::RT_SCOPE_LINK,
        RouteScope::Host => libc::RT_SCOPE_HOST,
        RouteScope::Other(number) => number,
    };
    let kind = match route.kind {
        RouteKind::Unicast => libc::RTN_UNICAST,
        RouteKind::Local => libc::RTN_LOCAL,
        RouteKind::Blackhole => libc::RTN_BLACKHOLE,
        RouteKind::Unreachable => libc::RTN_UNREACHABLE,
        RouteKind::Other(number) => number,
    };
    let destination = route.destination;
    out.extend_from_slice(&[
        family(destination.address),
        destination.len,
        0,
        0,
        libc::RT_TABLE_UNSPEC,
        route.protocol,
        scope,
        kind,
    ]);
    let flags = if route.on_link { RTNH_F_ONLINK } else { 0 };
    out.extend_from_slice(&flags.to_ne_bytes());
    let mut w = AttrWriter::new(out);
    w.u32(libc::RTA_TABLE, route.table);
    if destination.len > 0 {
        w.ip(libc::RTA_DST, destination.address);
    }
    if let Some(index) = index {
        w.u32(libc::RTA_OIF, index);
    }
    if let Some(gateway) = route.gateway {
        w.ip(libc::RTA_GATEWAY, gateway);
    }
    if let Some(metric) = route.metric {
        w.u32(libc::RTA_PRIORITY, metric);
    }
    if let Some(source) = route.source {
        w.ip(libc::RTA_PREFSRC, source);
    }
    w.finish()
}

/// Requests the matching route itself (`RTM_F_FIB_MATCH`), not the result of the lookup.
pub(super) fn write_route_lookup(out: &mut Vec<u8>, address: IpAddr) -> Result<(), WireError> {
    let mut head = [0; RTMSG_LEN];
    head[0] = family(address);
    head[1] = IpNet::host(address).len;
    head[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    out.extend_from_slice(&head);
    let mut w = AttrWriter::new(out);
    w.ip(libc::RTA_DST, address);
    w.finish()
}

pub(super) fn write_route_dump(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; RTMSG_LEN]);
}

/// A decoded route; its link is still an index.
pub(super) struct DecodedRoute {
    pub(super) route: Route,
    pub(super) link_index: Option<u32>,
}

pub(super) fn read_route(payload: &[u8]) -> Result<Option<DecodedRoute>, WireError> {
    let any: IpAddr = match i32::from(u8_at(payload, 0, "route")?) {
        libc::AF_INET => std::net::Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    let flags = u32_at(payload, 8, "route")?;
    if flags & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let table = u8_at(payload, 4, "route")?;
    let mut route = Route {
        destination: IpNet::new(any, u8_at(payload, 1, "route")?),
        link: None,
        gateway: None,
        on_link: flags & RTNH_F_ONLINK != 0,
        scope: match u8_at(payload, 6, "route")? {
            libc::RT_SCOPE_UNIVERSE => RouteScope::Universe,
            libc::RT_SCOPE_LINK => RouteScope::Link,
            libc::RT_SCOPE_HOST => RouteScope::Host,
            number => RouteScope::Other(number),
        },
        kind: match u8_at(payload, 7, "route")? {
            libc::RTN_UNICAST => RouteKind::Unicast,
            libc::RTN_LOCAL => RouteKind::Local,
            libc::RTN_BLACKHOLE => RouteKind::Blackhole,
            libc::RTN_UNREACHABLE => RouteKind::Unreachable,
            number => RouteKind::Other(number),
        },
        source: None,
        metric: None,
        table: if table == 0 { MAIN_TABLE } else { table.into() },
        protocol: u8_at(payload, 5, "route")?,
    };
    let mut link_index = None;
    for attr in Attrs::after_header(payload, RTMSG_LEN, "route")? {
        let attr = attr?;
        match attr.kind {
            libc::RTA_TABLE => route.table = attr.u32()?,
            libc::RTA_DST => route.destination.address = attr.ip()?,
            libc::RTA_OIF => link_index = Some(attr.u32()?),
            libc::RTA_GATEWAY => route.gateway = Some(attr.ip()?),
            libc::RTA_PRIORITY => route.metric = Some(attr.u32()?),
            libc::RTA_PREFSRC => route.source = Some(attr.ip()?),
            _ => {}
        }
    }
    Ok(Some(DecodedRoute { route, link_index }))
}

pub(super) fn write_neighbour(
    out: &mut Vec<u8>,
    neighbour: &Neighbour,
    index: u32,
) -> Result<(), WireError> {
    let flags = if neighbour.mac.is_none() {
        NTF_PROXY
    } else {
        0
    };
    out.extend_from_slice(&[family(neighbour.address), 0, 0, 0]);
    out.extend_from_slice(&index.to_ne_bytes());
    out.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
    out.extend_from_slice(&[flags, 0]);
    let mut w = AttrWriter::new(out);
    w.ip(libc::NDA_DST, neighbour.address);
    if let Some(mac) = neighbour.mac {
        w.bytes(libc::NDA_LLADDR, &mac.0);
    }
    w.finish()
}

pub(super) fn write_neighbour_dump(out: &mut Vec<u8>, proxies: bool) {
    let mut head = [0; NDMSG_LEN];
    if proxies {
        head[10] = NTF_PROXY;
    }
    out.extend_from_slice(&head);
}

/// A decoded neighbour; its link is still an index.
pub(super) struct DecodedNeighbour {
    pub(super) link_index: u32,
    pub(super) address: IpAddr,
    pub(super) mac: Option<MacAddr>,
    pub(super) permanent: bool,
}

/// The address of a neighbour, also of one without a link-layer address.
pub(super) fn read_neighbour_address(payload: &[u8]) -> Result<Option<IpAddr>, WireError> {
    if !matches!(
        i32::from(u8_at(payload, 0, "neighbour")?),
        libc::AF_INET | libc::AF_INET6
    ) {
        return Ok(None);
    }
    let attrs = Attrs::after_header(payload, NDMSG_LEN, "neighbour")?;
    let address = attrs.require(libc::NDA_DST, "neighbour")?.ip()?;
    Ok(Some(address))
}

pub(super) fn read_neighbour(payload: &[u8]) -> Result<Option<DecodedNeighbour>, WireError> {
    let head = payload.get(..NDMSG_LEN).ok_or(WireError::Truncated {
        what: "neighbour",
        need: NDMSG_LEN,
        have: payload.len(),
    })?;
    if !matches!(i32::from(head[0]), libc::AF_INET | libc::AF_INET6) {
        return Ok(None);
    }
    let state = u16::from_ne_bytes([head[8], head[9]]);
    let proxy = head[10] & NTF_PROXY != 0;
    let attrs = Attrs::after_header(payload, NDMSG_LEN, "neighbour")?;
    let address = attrs.require(libc::NDA_DST, "neighbour")?.ip()?;
    let mac = attrs
        .find(libc::NDA_LLADDR)?
        .and_then(|attr| read_mac(attr.payload))
        .filter(|_| !proxy);
    // An entry under resolution does not identify a neighbour yet.
    Ok((proxy || mac.is_some()).then_some(DecodedNeighbour {
        link_index: u32_at(head, 4, "neighbour")?,
        address,
        mac,
        permanent: proxy || state & NUD_PERMANENT != 0,
    }))
}
