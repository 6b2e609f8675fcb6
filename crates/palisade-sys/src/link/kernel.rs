//! Links over rtnetlink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::types::{
    Address, IpNet, Link, LinkAction, LinkChange, Neighbour, Route, RoutingRule, VethEnd,
};
use super::{LinkError, codec, routing_rule};
use crate::Errno;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket, WireError};
use crate::netns::NetNs;

const NLM_F_CREATE: u16 = libc::NLM_F_CREATE as u16;
const NLM_F_EXCL: u16 = libc::NLM_F_EXCL as u16;
const RTM_GETNSID: u16 = 90;
/// No route, or one of type unreachable, blackhole or prohibit.
const NO_ROUTE: [Errno; 4] = [
    Errno::ENETUNREACH,
    Errno::EHOSTUNREACH,
    Errno::EINVAL,
    Errno::EACCES,
];
const NLM_F_REPLACE: u16 = libc::NLM_F_REPLACE as u16;

/// The first group that is tried for links that are deleted together. Links are in group 0 by default, and
/// administrators choose small numbers.
const FIRST_GROUP: u32 = 0x7061_6c00;

/// The kernel's links of one namespace.
#[derive(Debug)]
pub struct KernelLinks {
    pub(super) socket: NetlinkSocket,
}

impl KernelLinks {
    /// Opens a socket in `netns`.
    ///
    /// # Errors
    /// [`LinkError::Open`].
    pub fn open(netns: &NetNs) -> Result<Self, LinkError> {
        Ok(Self {
            socket: NetlinkSocket::open(netns, NetlinkFamily::Route, &[])?,
        })
    }

    /// Runs `work` and turns an error into one that names `action`.
    pub(super) fn with_action<T>(
        &mut self,
        action: impl FnOnce() -> LinkAction,
        work: impl FnOnce(&mut Self) -> Result<T, KernelError>,
    ) -> Result<T, LinkError> {
        work(self).map_err(|error| LinkError::Refused {
            action: Box::new(action()),
            netns: self.socket.netns().to_owned(),
            error,
        })
    }

    pub(super) fn change(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
    ) -> Result<(), KernelError> {
        let mut payload = Vec::with_capacity(128);
        body(&mut payload)?;
        self.socket
            .change(kind, flags, |out| out.extend_from_slice(&payload))
    }

    fn change_route(&mut self, kind: u16, flags: u16, route: &Route) -> Result<(), KernelError> {
        let index = match &route.link {
            Some(link) => Some(self.index(link)?),
            None => None,
        };
        self.change(kind, flags, |out| codec::write_route(out, route, index))
    }

    fn find(&mut self, name: &str) -> Result<Option<Link>, KernelError> {
        let mut request = Vec::with_capacity(64);
        codec::write_link_by_name(&mut request, name)?;
        self.get_link(&request)
    }

    fn find_by_index(&mut self, index: u32) -> Result<Option<Link>, KernelError> {
        let mut request = Vec::new();
        codec::write_link_by_index(&mut request, index);
        self.get_link(&request)
    }

    fn get_link(&mut self, request: &[u8]) -> Result<Option<Link>, KernelError> {
        let answer = self
            .socket
            .get(libc::RTM_GETLINK, |out| out.extend_from_slice(request));
        match answer {
            Ok(Some(message)) => Ok(Some(codec::read_link(&message.payload)?)),
            Ok(None) => Ok(None),
            Err(error) if error.errno == Errno::ENODEV => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn index(&mut self, name: &str) -> Result<u32, KernelError> {
        match self.find(name)? {
            Some(link) => Ok(link.index),
            None => Err(Errno::ENODEV.into()),
        }
    }

    fn all_links(&mut self) -> Result<Vec<Link>, KernelError> {
        let mut links = self
            .socket
            .dump(libc::RTM_GETLINK, codec::write_link_dump, |message| {
                codec::read_link(&message.payload).map(Some)
            })?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// All links, each with its group.
    fn link_groups(&mut self) -> Result<Vec<(Link, u32)>, KernelError> {
        self.socket
            .dump(libc::RTM_GETLINK, codec::write_link_dump, |message| {
                let link = codec::read_link(&message.payload)?;
                Ok(Some((link, codec::read_link_group(&message.payload)?)))
            })
    }

    fn names_by_index(&mut self) -> Result<BTreeMap<u32, String>, KernelError> {
        let links = self.all_links()?;
        Ok(links.into_iter().map(|l| (l.index, l.name)).collect())
    }
}

/// The operations; each fails with [`LinkError::Refused`].
impl KernelLinks {
    /// Creates a veth pair; an end whose `netns` is `None` is created in this namespace.
    ///
    /// # Errors
    /// `EEXIST` if a name is in use; then neither end is created.
    pub fn create_veth(&mut self, end: &VethEnd, peer: &VethEnd) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::CreateVeth(end.clone(), peer.clone()),
            |this| {
                this.change(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |out| {
                    codec::write_veth(out, end, peer)
                })
            },
        )
    }

    /// Deletes a link; for a veth, both ends.
    ///
    /// # Errors
    /// `ENODEV` if it does not exist.
    pub fn delete_link(&mut self, link: &str) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteLink(link.to_owned()),
            |this| {
                this.change(libc::RTM_DELLINK, 0, |out| {
                    codec::write_link_by_name(out, link)
                })
            },
        )
    }

    /// Deletes several links at once; for a veth, both ends. The kernel waits for the end of all packet
    /// processing once for all of them, not once for each: the links become the only members of an unused
    /// group, which is then deleted.
    ///
    /// # Errors
    /// The kernel's error; `EEXIST` if another program adds a link to the group meanwhile. Then no link is
    /// deleted, and each can be deleted alone.
    pub fn delete_links(&mut self, links: &[&str]) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteLinks(links.len()),
            |this| {
                let found = this.link_groups()?;
                let used: BTreeSet<u32> = found.iter().map(|(_, group)| *group).collect();
                let unused = (FIRST_GROUP..).find(|group| !used.contains(group));
                let group = unused.unwrap_or(FIRST_GROUP);
                let is_named = |link: &Link| links.contains(&link.name.as_str());
                let named = found
                    .iter()
                    .map(|(link, _)| link)
                    .filter(|link| is_named(link));
                let members: BTreeSet<u32> = named.map(|link| link.index).collect();
                for index in &members {
                    this.change(libc::RTM_SETLINK, 0, |out| {
                        codec::write_link_group(out, *index, group)
                    })?;
                }
                let now = this.link_groups()?.into_iter();
                let now = now
                    .filter(|(_, link_group)| *link_group == group)
                    .map(|(link, _)| link.index);
                if now.collect::<BTreeSet<u32>>() != members {
                    return Err(KernelError::from(Errno::EEXIST));
                }
                if members.is_empty() {
                    Ok(())
                } else {
                    this.change(libc::RTM_DELLINK, 0, |out| {
                        codec::write_link_group(out, 0, group)
                    })
                }
            },
        )
    }

    /// Changes one property of a link.
    ///
    /// # Errors
    /// `ENODEV` if it does not exist; `EBUSY` when a link that is up is renamed on an old kernel.
    pub fn change_link(&mut self, link: &str, change: &LinkChange) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::ChangeLink(link.to_owned(), change.clone()),
            |this| {
                let index = this.index(link)?;
                this.change(libc::RTM_SETLINK, 0, |out| {
                    codec::write_link_change(out, index, change)
                })
            },
        )
    }

    /// All links, ordered by index.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        self.with_action(|| LinkAction::List("links"), Self::all_links)
    }

    /// One link; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn link(&mut self, link: &str) -> Result<Option<Link>, LinkError> {
        self.with_action(
            || LinkAction::GetLink(link.to_owned()),
            |this| this.find(link),
        )
    }

    /// One link by index; `None` if it does not exist.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, LinkError> {
        self.with_action(
            || LinkAction::GetLinkByIndex(index),
            |this| this.find_by_index(index),
        )
    }

    /// The netnsid that this namespace has for another, as in [`Link::peer_netnsid`]; `None` if it has none,
    /// and then no link leads there.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn namespace_id(&mut self, other: &NetNs) -> Result<Option<i32>, LinkError> {
        self.with_action(
            || LinkAction::GetNamespaceId(other.label().to_owned()),
            |this| {
                let mut payload = Vec::with_capacity(16);
                codec::write_namespace_id(&mut payload, other)?;
                let answer = this
                    .socket
                    .get(RTM_GETNSID, |out| out.extend_from_slice(&payload))?;
                match answer {
                    Some(message) => Ok(codec::read_namespace_id(&message.payload)?),
                    None => Ok(None),
                }
            },
        )
    }

    /// Adds an address. Duplicate address detection is skipped: the caller owns the address.
    ///
    /// # Errors
    /// `EEXIST` if it exists, `ENODEV` if the link does not.
    pub fn add_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddAddress(link.to_owned(), address),
            |this| {
                let index = this.index(link)?;
                this.change(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, |out| {
                    codec::write_address(out, index, address)
                })
            },
        )
    }

    /// All addresses of all links.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn addresses(&mut self) -> Result<Vec<Address>, LinkError> {
        self.with_action(
            || LinkAction::List("addresses"),
            |this| {
                this.socket
                    .dump(libc::RTM_GETADDR, codec::write_address_dump, |message| {
                        codec::read_address(&message.payload)
                    })
            },
        )
    }

    /// Adds a route or replaces the one to the same destination with the same metric.
    ///
    /// # Errors
    /// `ENODEV` without its link, `ENETUNREACH` or `EHOSTUNREACH` for a gateway off-link.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::ReplaceRoute(route.clone()),
            |this| this.change_route(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route),
        )
    }

    /// Adds a route, unless there is one to the same destination with the same metric.
    ///
    /// # Errors
    /// `EEXIST` if there is one; otherwise as [`KernelLinks::replace_route`].
    pub fn add_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddRoute(route.clone()),
            |this| this.change_route(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route),
        )
    }

    /// Deletes the route with this destination, gateway, link, metric and protocol.
    ///
    /// # Errors
    /// `ESRCH` if there is none.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteRoute(route.clone()),
            |this| this.change_route(libc::RTM_DELROUTE, 0, route),
        )
    }

    /// All routes of both families and all tables, including those the kernel added.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn routes(&mut self) -> Result<Vec<Route>, LinkError> {
        self.with_action(
            || LinkAction::List("routes"),
            |this| {
                let names = this.names_by_index()?;
                let found =
                    this.socket
                        .dump(libc::RTM_GETROUTE, codec::write_route_dump, |message| {
                            codec::read_route(&message.payload)
                        })?;
                Ok(found
                    .into_iter()
                    .map(|read| Route {
                        link: read.link_index.and_then(|index| names.get(&index).cloned()),
                        ..read.route
                    })
                    .collect())
            },
        )
    }

    /// Adds a routing rule.
    ///
    /// # Errors
    /// `EEXIST` if there is the same.
    pub fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddRule(rule.clone()),
            |this| {
                let flags = NLM_F_CREATE | NLM_F_EXCL;
                this.change(libc::RTM_NEWRULE, flags, |out| {
                    routing_rule::write_rule(out, rule)
                })
            },
        )
    }

    /// Deletes a routing rule.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteRule(rule.clone()),
            |this| {
                this.change(libc::RTM_DELRULE, 0, |out| {
                    routing_rule::write_rule(out, rule)
                })
            },
        )
    }

    /// The routing rules of both families that [`RoutingRule`] can express.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn rules(&mut self) -> Result<Vec<RoutingRule>, LinkError> {
        self.with_action(
            || LinkAction::List("routing rules"),
            |this| {
                this.socket.dump(
                    libc::RTM_GETRULE,
                    routing_rule::write_rule_dump,
                    |message| routing_rule::read_rule(&message.payload),
                )
            },
        )
    }

    /// The route that packets to an address take, from any table; `None` if there is none, or if it is an
    /// unreachable, blackhole or prohibit route.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, LinkError> {
        self.with_action(
            || LinkAction::GetRoute(address),
            |this| {
                let mut payload = Vec::with_capacity(64);
                codec::write_route_lookup(&mut payload, address)?;
                let answer = this
                    .socket
                    .get(libc::RTM_GETROUTE, |out| out.extend_from_slice(&payload));
                let message = match answer {
                    Ok(Some(message)) => message,
                    Ok(None) => return Ok(None),
                    Err(error) if NO_ROUTE.contains(&error.errno) => return Ok(None),
                    Err(error) => return Err(error),
                };
                let Some(read) = codec::read_route(&message.payload)? else {
                    return Ok(None);
                };
                let link = match read.link_index {
                    Some(index) => this.find_by_index(index)?.map(|link| link.name),
                    None => None,
                };
                Ok(Some(Route { link, ..read.route }))
            },
        )
    }

    /// Sets a permanent neighbour entry, replacing one for the same address.
    ///
    /// # Errors
    /// `ENODEV` if the link does not exist.
    pub fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::SetNeighbour(neighbour.clone()),
            |this| {
                let index = this.index(&neighbour.link)?;
                this.change(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, |out| {
                    codec::write_neighbour(out, neighbour, index)
                })
            },
        )
    }

    /// All neighbour entries with a link-layer address, and all proxy entries.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError> {
        self.with_action(
            || LinkAction::List("neighbours"),
            |this| {
                let names = this.names_by_index()?;
                let mut found = Vec::new();
                for proxies in [false, true] {
                    found.extend(this.socket.dump(
                        libc::RTM_GETNEIGH,
                        |out| codec::write_neighbour_dump(out, proxies),
                        |message| codec::read_neighbour(&message.payload),
                    )?);
                }
                Ok(found
                    .into_iter()
                    // A link removed between the two lists took its neighbours with it.
                    .filter_map(|read| {
                        Some(Neighbour {
                            link: names.get(&read.link_index)?.clone(),
                            address: read.address,
                            mac: read.mac,
                            permanent: read.permanent,
                        })
                    })
                    .collect())
            },
        )
    }
}
