//! Which link of this host is a workload's: told by both ends of the pair, or by the number that the
//! kernel gave it, never by its name alone.
//!
//! A number alone says nothing either: links of other namespaces have the same ones. So an end is the
//! other's only if it is a veth, names the other's number, and names its namespace, both ways round.
//! Nothing here changes anything.

use super::{AttachError, KernelAttach};
use crate::record::Record;
use palisade_sys::link::{KernelLinkOpener, Link, LinkOpener, Links};
use palisade_sys::netns::NetNs;

/// The interface inside a workload's namespace, and how the two namespaces know each other.
pub(super) struct InnerEnd {
    /// The interface.
    pub(super) link: Link,
    /// The number that the host has for the namespace.
    from_host: Option<i32>,
    /// The number that the namespace has for the host.
    to_host: Option<i32>,
}

impl InnerEnd {
    /// The interface of this name in a namespace; `None` if there is none.
    pub(super) fn of(
        host: (&NetNs, &mut impl Links),
        pod: &NetNs,
        name: &str,
    ) -> Result<Option<Self>, AttachError> {
        let (host_netns, host) = host;
        let mut inside = KernelLinkOpener.open_links(pod)?;
        // Asking for the link gives the other namespace its number.
        let Some(link) = inside.link(name)? else {
            return Ok(None);
        };
        Ok(Some(InnerEnd {
            to_host: inside.namespace_id(host_netns)?,
            from_host: host.namespace_id(pod)?,
            link,
        }))
    }

    /// Whether this link of the host is the other end.
    pub(super) fn is_end(&self, outer: &Link) -> bool {
        let is_veth = |link: &Link| link.kind.as_deref() == Some("veth");
        is_veth(outer)
            && is_veth(&self.link)
            && outer.peer_index == Some(self.link.index)
            && self.link.peer_index == Some(outer.index)
            && self.from_host.is_some()
            && outer.peer_netnsid == self.from_host
            && self.to_host.is_some()
            && self.link.peer_netnsid == self.to_host
    }
}

impl KernelAttach {
    /// The interface inside the namespace, as far as it can be seen.
    pub(super) fn inner_end(&self, host: &mut impl Links, record: &Record) -> Option<InnerEnd> {
        let pod = self.netns(record).ok()?;
        InnerEnd::of((&self.host, host), &pod, &record.inside).ok()?
    }

    /// The host side of a workload among these links, under whatever name. The number that the kernel
    /// gave it is never another link's; where that is not remembered, or the pair was made anew, both
    /// ends say it. Only where neither is known, its name does.
    pub(super) fn host_side<'a>(
        &self,
        links: &'a [Link],
        record: &Record,
        inner: Option<&InnerEnd>,
    ) -> Option<&'a Link> {
        let is_veth = |link: &&Link| link.kind.as_deref() == Some("veth");
        let numbered = |index| links.iter().find(|link| link.index == index);
        let known = record.index.and_then(numbered).filter(is_veth);
        let paired = || inner.and_then(|inner| links.iter().find(|link| inner.is_end(link)));
        let nothing_is_known = record.index.is_none() && inner.is_none();
        let named = || links.iter().find(|link| link.name == *record.interface);
        known
            .or_else(paired)
            .or_else(|| named().filter(|_| nothing_is_known))
    }

    /// Whether what another plugin made is the namespace's other end, and this host forwards what
    /// comes in by it.
    pub(super) fn check_chained(&self, record: &Record) -> Result<(), AttachError> {
        let name = record.interface.to_string();
        let mut host = self.links()?;
        let pod = self.netns(record)?;
        let inner = InnerEnd::of((&self.host, &mut host), &pod, &record.inside)?
            .ok_or_else(|| AttachError::Gone(record.inside.clone()))?;
        let outer = host.link(&name)?.ok_or(AttachError::Gone(name.clone()))?;
        if let Some(index) = outer.master {
            let master = host.link_at(index)?;
            return Err(AttachError::Port {
                interface: name,
                master: master.map_or_else(|| index.to_string(), |link| link.name),
            });
        }
        match inner.is_end(&outer) {
            true => Ok(()),
            false => Err(AttachError::Foreign(name)),
        }
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
        }
    }

    #[test]
    fn each_end_names_the_others_number_and_namespace() {
        let inner = InnerEnd {
            link: link(2, 7, 0),
            from_host: Some(3),
            to_host: Some(0),
        };
        assert!(inner.is_end(&link(7, 2, 3)));
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
            assert!(!inner.is_end(&other), "{what}");
        }
        let elsewhere = InnerEnd {
            link: link(2, 7, 1),
            ..inner
        };
        assert!(
            !elsewhere.is_end(&link(7, 2, 3)),
            "its other end is in a third namespace"
        );
        let unknown = InnerEnd {
            from_host: None,
            to_host: None,
            link: Link {
                peer_netnsid: None,
                ..link(2, 7, 0)
            },
        };
        assert!(!unknown.is_end(&Link {
            peer_netnsid: None,
            ..link(7, 2, 3)
        }));
    }
}
