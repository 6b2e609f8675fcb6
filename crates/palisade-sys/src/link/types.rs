//! The values of the link interface and their text in error messages.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::bpf::AttachPoint;
use crate::netns::NetNs;

/// Number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    /// Both.
    pub const ALL: [AddressFamily; 2] = [AddressFamily::V4, AddressFamily::V6];

    pub(super) fn number(self) -> u8 {
        match self {
            AddressFamily::V4 => libc::AF_INET as u8,
            AddressFamily::V6 => libc::AF_INET6 as u8,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<AddressFamily> {
        AddressFamily::ALL
            .into_iter()
            .find(|family| family.number() == number)
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressFamily::V4 => "IPv4",
            AddressFamily::V6 => "IPv6",
        })
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an Ethernet address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not an Ethernet address such as ee:ee:ee:ee:ee:ee")]
pub struct ParseMacError(String);

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(bad()),
        }
    }
}

/// An address with a prefix length: of a link, or a route's destination. Host bits are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpNet {
    /// The address, including its host bits.
    pub address: IpAddr,
    /// Prefix length: at most 32 or 128.
    pub len: u8,
}

impl IpNet {
    /// An address and a prefix length.
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Self {
        Self { address, len }
    }

    /// A single address: /32 or /128.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::new(address, if address.is_ipv4() { 32 } else { 128 })
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// One end of a veth pair to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VethEnd {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Ethernet address; the kernel chooses one if `None`.
    pub mac: Option<MacAddr>,
    /// MTU in bytes; 1500 if `None`.
    pub mtu: Option<u32>,
    /// Namespace of this end; `None` is the namespace of the request.
    pub netns: Option<NetNs>,
}

/// A link as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index in its namespace.
    pub index: u32,
    /// Name, escaped.
    pub name: String,
    /// Kind, such as `veth`; `None` for loopback and hardware.
    pub kind: Option<String>,
    /// Ethernet address.
    pub mac: Option<MacAddr>,
    /// MTU in bytes.
    pub mtu: u32,
    /// The kernel's `IFF_…` flags.
    pub flags: u32,
    /// Index of the peer or lower link, in the namespace `peer_netnsid`.
    pub peer_index: Option<u32>,
    /// This namespace's netnsid of the peer's namespace, if that is another one.
    pub peer_netnsid: Option<i32>,
    /// Index of the link that this one is a port of, such as a bridge.
    pub master: Option<u32>,
    /// Name of the root queueing discipline, such as `noqueue`.
    pub qdisc: Option<String>,
}

impl Link {
    /// True if the link is administratively up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// True if the link is a loopback.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }
}

/// One change of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// Set up.
    Up,
    /// Set down.
    Down,
    /// Set the MTU in bytes.
    Mtu(u32),
    /// Set the Ethernet address.
    Mac(MacAddr),
    /// Give another name.
    Rename(String),
}

impl fmt::Display for LinkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("up"),
            Self::Down => f.write_str("down"),
            Self::Mtu(mtu) => write!(f, "MTU {mtu}"),
            Self::Mac(mac) => write!(f, "address {mac}"),
            Self::Rename(name) => write!(f, "name {name}"),
        }
    }
}

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the link.
    pub link_index: u32,
    /// The address.
    pub prefix: IpNet,
    /// True while duplicate address detection is running, or after it has failed.
    pub tentative: bool,
}

/// Scope of a route's destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteScope {
    /// Reached through a gateway.
    #[default]
    Universe,
    /// Directly on the link.
    Link,
    /// This host.
    Host,
    /// Another scope.
    Other(u8),
}

/// Type of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteKind {
    /// Forwards the packet.
    #[default]
    Unicast,
    /// Delivers the packet locally.
    Local,
    /// Drops the packet silently.
    Blackhole,
    /// Drops the packet and sends an ICMP error.
    Unreachable,
    /// Another type.
    Other(u8),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its destination.
    pub destination: IpNet,
    /// Name of its link; `None` for a route without one.
    pub link: Option<String>,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Treat the gateway as directly reachable on the link, whatever the addresses say.
    pub on_link: bool,
    /// Scope of the destination; IPv6 has only `Universe`.
    pub scope: RouteScope,
    /// Type of the route.
    pub kind: RouteKind,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Priority; lower wins; `None` leaves it to the kernel (0, or 1024 in IPv6).
    pub metric: Option<u32>,
    /// Routing table number.
    pub table: u32,
    /// Origin (`RTPROT_…`): 2 kernel, 3 boot, 4 static.
    pub protocol: u8,
}

impl Route {
    /// A route to `destination` directly on `link`, in the main table.
    #[must_use]
    pub fn device(destination: IpNet, link: &str) -> Self {
        Self {
            destination,
            link: Some(link.to_owned()),
            gateway: None,
            on_link: false,
            scope: if destination.address.is_ipv4() {
                RouteScope::Link
            } else {
                RouteScope::Universe
            },
            kind: RouteKind::Unicast,
            source: None,
            metric: None,
            table: MAIN_TABLE,
            protocol: libc::RTPROT_STATIC,
        }
    }

    /// A route to `destination` through `gateway`, assumed to be directly reachable on `link`.
    #[must_use]
    pub fn via_on_link(destination: IpNet, gateway: IpAddr, link: &str) -> Self {
        Self {
            gateway: Some(gateway),
            on_link: true,
            scope: RouteScope::Universe,
            ..Self::device(destination, link)
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(link) = &self.link {
            write!(f, " dev {link}")?;
        }
        if self.table != MAIN_TABLE {
            write!(f, " table {}", self.table)?;
        }
        Ok(())
    }
}

/// A rule of routing: packets with a mark, maybe of one interface, are routed by a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutingRule {
    /// The packets' family.
    pub family: AddressFamily,
    /// Its position: the rule with the least number is first.
    pub priority: u32,
    /// The interface on which packets arrive; `lo`: those that this host sends.
    pub interface: Option<String>,
    /// The mark, as value and mask.
    pub mark: (u32, u32),
    /// The table.
    pub table: u32,
    /// Origin (`RTPROT_…`): 2 kernel, 3 boot, 4 static.
    pub protocol: u8,
}

impl fmt::Display for RoutingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, mask) = self.mark;
        write!(f, "{} pref {}", self.family, self.priority)?;
        if let Some(interface) = &self.interface {
            write!(f, " iif {interface}")?;
        }
        write!(f, " fwmark {value:#x}/{mask:#x} lookup {}", self.table)
    }
}

/// A neighbour entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name of its link.
    pub link: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// Its Ethernet address; `None` makes a proxy entry: this host answers for the address.
    pub mac: Option<MacAddr>,
    /// True if the entry never expires; proxy entries never do.
    pub permanent: bool,
}

impl Neighbour {
    /// A permanent entry.
    #[must_use]
    pub fn permanent(link: &str, address: IpAddr, mac: MacAddr) -> Self {
        Self {
            link: link.to_owned(),
            address,
            mac: Some(mac),
            permanent: true,
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mac {
            Some(mac) => write!(f, "neighbour {} at {mac} on {}", self.address, self.link),
            None => write!(f, "proxy for {} on {}", self.address, self.link),
        }
    }
}

/// An action and its object: named in errors and recorded by the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Creating a veth pair.
    CreateVeth(VethEnd, VethEnd),
    /// Deleting a link.
    DeleteLink(String),
    /// Deleting this number of links at once.
    DeleteLinks(usize),
    /// Changing a link.
    ChangeLink(String, LinkChange),
    /// Reading a link by name.
    GetLink(String),
    /// Reading a link by index.
    GetLinkByIndex(u32),
    /// Reading the netnsid of another namespace.
    GetNamespaceId(String),
    /// Looking up the route to an address.
    GetRoute(IpAddr),
    /// Listing objects of a kind.
    List(&'static str),
    /// Adding an address to a link.
    AddAddress(String, IpNet),
    /// Adding or replacing a route.
    ReplaceRoute(Route),
    /// Adding a route where there is none.
    AddRoute(Route),
    /// Deleting a route.
    DeleteRoute(Route),
    /// Adding a routing rule.
    AddRule(RoutingRule),
    /// Deleting a routing rule.
    DeleteRule(RoutingRule),
    /// Setting a neighbour entry.
    SetNeighbour(Neighbour),
    /// Adding the qdisc `clsact` to the link with this index.
    AddClsact(u32),
    /// Adding a filter to the link with this index.
    AddFilter(u32, AttachPoint),
    /// Replacing the program of a filter.
    ReplaceFilter(u32, AttachPoint),
    /// Deleting a filter.
    DeleteFilter(u32, AttachPoint),
    /// Listing the filters of the link with this index.
    ListFilters(u32, AttachPoint),
    /// Subscribing to notifications.
    Listen,
}

impl fmt::Display for LinkAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateVeth(end, peer) => {
                write!(f, "creating veth {} with peer {}", end.name, peer.name)?;
                match &peer.netns {
                    Some(netns) => write!(f, " (in {netns})"),
                    None => Ok(()),
                }
            }
            Self::DeleteLink(link) => write!(f, "deleting link {link}"),
            Self::DeleteLinks(count) => write!(f, "deleting {count} links at once"),
            Self::ChangeLink(link, change) => write!(f, "setting link {link} to {change}"),
            Self::GetLink(link) => write!(f, "reading link {link}"),
            Self::GetLinkByIndex(index) => write!(f, "reading the link with index {index}"),
            Self::GetNamespaceId(netns) => {
                write!(f, "reading the netnsid of network namespace {netns}")
            }
            Self::GetRoute(address) => write!(f, "looking up the route to {address}"),
            Self::List(what) => write!(f, "listing {what}"),
            Self::AddAddress(link, prefix) => write!(f, "adding address {prefix} to {link}"),
            Self::ReplaceRoute(route) => write!(f, "replacing route {route}"),
            Self::AddRoute(route) => write!(f, "adding route {route}"),
            Self::DeleteRoute(route) => write!(f, "deleting route {route}"),
            Self::AddRule(rule) => write!(f, "adding routing rule {rule}"),
            Self::DeleteRule(rule) => write!(f, "deleting routing rule {rule}"),
            Self::SetNeighbour(neighbour) => write!(f, "setting {neighbour}"),
            Self::AddClsact(index) => write!(f, "adding the qdisc clsact to interface {index}"),
            Self::AddFilter(index, point) => {
                write!(f, "adding a tc filter to interface {index}, {point}")
            }
            Self::ReplaceFilter(index, point) => {
                write!(f, "replacing the tc filter of interface {index}, {point}")
            }
            Self::DeleteFilter(index, point) => {
                write!(f, "deleting the tc filter of interface {index}, {point}")
            }
            Self::ListFilters(index, point) => {
                write!(f, "listing the tc filters of interface {index}, {point}")
            }
            Self::Listen => f.write_str("listening for link changes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_text_round_trips_and_is_checked() {
        let mac: MacAddr = "ee:00:0a:ff:10:01".parse().unwrap();
        assert_eq!(mac, MacAddr([0xee, 0, 0x0a, 0xff, 0x10, 1]));
        assert_eq!(mac.to_string(), "ee:00:0a:ff:10:01");
        for bad in [
            "",
            "ee:00:0a:ff:10",
            "ee:00:0a:ff:10:01:02",
            "ee:00:0a:ff:10:g1",
            "e:00:0a:ff:10:1",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError(bad.to_owned())));
        }
    }

    #[test]
    fn actions_name_their_object() {
        let address: IpNet = IpNet::host("10.0.0.1".parse().unwrap());
        let table = [
            (
                LinkAction::AddAddress("pal1".into(), address),
                "adding address 10.0.0.1/32 to pal1",
            ),
            (
                LinkAction::ReplaceRoute(Route::via_on_link(
                    IpNet::new("::".parse().unwrap(), 0),
                    "fe80::1".parse().unwrap(),
                    "eth0",
                )),
                "replacing route ::/0 via fe80::1 dev eth0",
            ),
            (
                LinkAction::SetNeighbour(Neighbour::permanent(
                    "pal1",
                    "10.0.0.2".parse().unwrap(),
                    MacAddr([1; 6]),
                )),
                "setting neighbour 10.0.0.2 at 01:01:01:01:01:01 on pal1",
            ),
            (
                LinkAction::ChangeLink("pal1".into(), LinkChange::Mtu(9000)),
                "setting link pal1 to MTU 9000",
            ),
        ];
        for (action, text) in table {
            assert_eq!(action.to_string(), text);
        }
    }
}
