//! Facts about a requested namespace or address: the owner of the namespace, whether it is in use, and
//! the host's use of the address. It does not decide about access.

use super::NetworkDriverError;
use palisade_model::Prefix as Network;
use palisade_sys::link::{IpNet, KernelLinks, Link, RouteKind};
use palisade_sys::netns::{NETNS_DIR, NetNs};
use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Kinds of links that the kernel creates in every new namespace.
const FALLBACK_LINK_KINDS: [&str; 10] = [
    "ipip",
    "gre",
    "gretap",
    "erspan",
    "sit",
    "ip6tnl",
    "ip6gre",
    "ip6gretap",
    "vti",
    "vti6",
];

/// The facts about a namespace that access depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetnsFacts {
    /// The owner of its user namespace; `None` if it cannot be determined.
    pub owner: Option<u32>,
    /// Whether it has a name in the directory of named namespaces, which only root can write.
    pub named: bool,
    /// Whether it has an interface other than loopback and those of every new namespace.
    pub used: bool,
}

/// The present use of an address on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// It is an address of the host.
    Host,
    /// It is a broadcast, anycast or multicast address.
    Broadcast,
    /// It is a gateway of the host or of a workload.
    Gateway,
    /// There is a route to it that is more specific than the pool's.
    Routed {
        /// Its destination.
        destination: IpNet,
        /// Its link.
        link: String,
    },
}

impl fmt::Display for AddressUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressUse::Host => f.write_str("it is this host's own"),
            AddressUse::Broadcast => f.write_str("it is a broadcast address"),
            AddressUse::Gateway => f.write_str("it is a gateway"),
            AddressUse::Routed { destination, link } => {
                write!(f, "this host routes {destination} to {link}")
            }
        }
    }
}

/// The facts about a namespace, which was given by this name or path.
pub(super) fn read_netns_facts(
    netns: &NetNs,
    path: &str,
) -> Result<NetnsFacts, NetworkDriverError> {
    let mut links = KernelLinks::open(netns)?;
    let is_in_use = |link: &Link| {
        let made_by_kernel = link
            .kind
            .as_deref()
            .is_some_and(|k| FALLBACK_LINK_KINDS.contains(&k));
        !link.is_loopback() && (link.is_up() || !made_by_kernel)
    };
    Ok(NetnsFacts {
        owner: netns.owner_uid().ok(),
        named: is_named_netns(path),
        used: links.links()?.iter().any(is_in_use),
    })
}

/// What the host uses an address for that is to be given to a workload.
pub(super) fn read_address_use(
    host: &mut KernelLinks,
    address: IpAddr,
    pool: Option<Network>,
    include_gateways: bool,
) -> Result<Option<AddressUse>, NetworkDriverError> {
    let pool_length = pool.map_or(0, |pool| pool.length());
    if let Some(route) = host.route_to(address)? {
        let is_more_specific = route.destination.len > pool_length;
        match route.kind {
            RouteKind::Local => return Ok(Some(AddressUse::Host)),
            RouteKind::Other(_) => return Ok(Some(AddressUse::Broadcast)),
            RouteKind::Unicast if is_more_specific => {
                return Ok(Some(AddressUse::Routed {
                    destination: route.destination,
                    link: route.link.unwrap_or_else(|| "several links".to_owned()),
                }));
            }
            RouteKind::Unicast | RouteKind::Blackhole | RouteKind::Unreachable => {}
        }
    }
    let gateway = [IpAddr::from(super::GATEWAY_V4), super::GATEWAY_V6.into()];
    let is_gateway = gateway.contains(&address)
        || include_gateways
            && host
                .routes()?
                .iter()
                .any(|route| route.gateway == Some(address));
    Ok(is_gateway.then_some(AddressUse::Gateway))
}

/// Whether a path lies in the directory of named namespaces, which only root can write.
fn is_named_netns(path: &str) -> bool {
    let folder = Path::new(NETNS_DIR);
    let name = match Path::new(path).parent() {
        Some(parent) if path.contains('/') => {
            parent == folder || parent == Path::new("/var/run/netns")
        }
        _ => true,
    };
    let root_alone = std::fs::metadata(folder)
        .is_ok_and(|folder| folder.uid() == 0 && folder.mode() & 0o022 == 0);
    name && root_alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_a_path_that_looks_like_one() {
        for path in [
            "/proc/1/ns/net",
            "/tmp/web",
            "/run/netns/../../tmp/web",
            "/run/netns/folder/web",
            "./web",
        ] {
            assert!(!is_named_netns(path), "{path}");
        }
    }
}
