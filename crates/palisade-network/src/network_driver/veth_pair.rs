//! Finds the link of a workload on this host, by both ends of the veth pair or by its index, never by
//! its name alone.
//!
//! An index alone is not sufficient either: links of other namespaces have the same indexes. So two
//! links are the ends of one pair only if both are veths, and each refers to the other's index and
//! namespace. This module changes nothing.

use super::NetworkDriverError;
use palisade_node::workload_store::WorkloadRecord;
use palisade_sys::link::{KernelLinks, Link};
use palisade_sys::netns::NetNs;

/// The interface inside a workload's namespace, with the nsids of the two namespaces.
pub(super) struct InnerVeth {
    /// The interface.
    pub link: Link,
    /// The nsid of the namespace, as seen from the host.
    nsid_from_host: Option<i32>,
    /// The nsid of the host, as seen from the namespace.
    nsid_of_host: Option<i32>,
}

impl InnerVeth {
    /// The interface with this name in a namespace; `None` if there is none.
    pub(crate) fn find(
        host: (&NetNs, &mut KernelLinks),
        pod: &NetNs,
        name: &str,
    ) -> Result<Option<Self>, NetworkDriverError> {
        let (host_netns, host) = host;
        let mut inside = KernelLinks::open(pod)?;
        // Querying the link makes the kernel allocate an nsid for the other namespace.
        let Some(link) = inside.link(name)? else {
            return Ok(None);
        };
        Ok(Some(InnerVeth {
            nsid_of_host: inside.namespace_id(host_netns)?,
            nsid_from_host: host.namespace_id(pod)?,
            link,
        }))
    }

    /// Whether this host link is the other end of the pair.
    pub(super) fn is_peer(&self, outer: &Link) -> bool {
        let is_veth = |link: &Link| link.kind.as_deref() == Some("veth");
        is_veth(outer)
            && is_veth(&self.link)
            && outer.peer_index == Some(self.link.index)
            && self.link.peer_index == Some(outer.index)
            && self.nsid_from_host.is_some()
            && outer.peer_netnsid == self.nsid_from_host
            && self.nsid_of_host.is_some()
            && self.link.peer_netnsid == self.nsid_of_host
    }
}

/// The host side of a workload among these links, under any name. It is found by its index, which
/// is unique; if the index is not recorded or the pair was created anew, by both ends of the pair;
/// and if neither is known, by its name.
pub(super) fn find_host_link<'a>(
    links: &'a [Link],
    record: &WorkloadRecord,
    inner: Option<&InnerVeth>,
) -> Option<&'a Link> {
    let is_veth = |link: &&Link| link.kind.as_deref() == Some("veth");
    let link_with_index = |index| links.iter().find(|link| link.index == index);
    let by_index = record.index.and_then(link_with_index).filter(is_veth);
    let by_peer = || inner.and_then(|inner| links.iter().find(|link| inner.is_peer(link)));
    let only_name_known = record.index.is_none() && inner.is_none();
    let by_name = || links.iter().find(|link| link.name == *record.interface);
    by_index
        .or_else(by_peer)
        .or_else(|| by_name().filter(|_| only_name_known))
}

/// Checks that the interface of another plugin is the peer of the namespace's interface, and that
/// this host forwards its packets.
pub(super) fn check_chained(
    (host_netns, host): (&NetNs, &mut KernelLinks),
    pod: &NetNs,
    record: &WorkloadRecord,
) -> Result<(), NetworkDriverError> {
    let name = record.interface.to_string();
    let inner = InnerVeth::find((host_netns, host), pod, &record.inside)?
        .ok_or_else(|| NetworkDriverError::InterfaceMissing(record.inside.clone()))?;
    let outer = host
        .link(&name)?
        .ok_or(NetworkDriverError::InterfaceMissing(name.clone()))?;
    if let Some(index) = outer.master {
        let master = host.link_by_index(index)?;
        return Err(NetworkDriverError::BridgePort {
            interface: name,
            master: master.map_or_else(|| index.to_string(), |link| link.name),
        });
    }
    if inner.is_peer(&outer) {
        Ok(())
    } else {
        Err(NetworkDriverError::NotVethPeer(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, peer: u32, netns: i32) -> Link {
        Link {
            index,
            name: "veth0".to_owned(),
            kind: Some("veth".to_owned()),
            mac: None,
            mtu: 1500,
            flags: 0,
            peer_index: Some(peer),
            peer_netnsid: Some(netns),
            master: None,
            qdisc: None,
        }
    }

    #[test]
    fn each_end_names_the_others_number_and_namespace() {
        let inner = InnerVeth {
            link: link(2, 7, 0),
            nsid_from_host: Some(3),
            nsid_of_host: Some(0),
        };
        assert!(inner.is_peer(&link(7, 2, 3)));
        let lower = Link {
            kind: Some("macvlan".to_owned()),
            ..link(7, 2, 3)
        };
        let here = Link {
            peer_netnsid: None,
            ..link(7, 2, 3)
        };
        for (what, other) in [
            ("another number", link(8, 2, 3)),
            ("a peer of another number", link(7, 5, 3)),
            ("a peer of this number in another namespace", link(7, 2, 4)),
            ("a peer of this number on the host", here),
            ("what is no veth", lower),
        ] {
            assert!(!inner.is_peer(&other), "{what}");
        }
        let elsewhere = InnerVeth {
            link: link(2, 7, 1),
            ..inner
        };
        assert!(
            !elsewhere.is_peer(&link(7, 2, 3)),
            "its other end is in a third namespace"
        );
        let unknown = InnerVeth {
            nsid_from_host: None,
            nsid_of_host: None,
            link: Link {
                peer_netnsid: None,
                ..link(2, 7, 0)
            },
        };
        assert!(!unknown.is_peer(&Link {
            peer_netnsid: None,
            ..link(7, 2, 3)
        }));
    }
}
