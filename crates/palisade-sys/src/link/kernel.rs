//! Links over rtnetlink.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::types::{Address, IpNet, Link, LinkAction, LinkChange, Neighbour, Route, VethEnd};
use super::{LinkError, LinkOpener, Links, codec};
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

/// Opens [`KernelLinks`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelLinkOpener;

impl LinkOpener for KernelLinkOpener {
    type Links = KernelLinks;

    fn open_links(&self, netns: &NetNs) -> Result<KernelLinks, LinkError> {
        KernelLinks::open(netns)
    }
}

/// The kernel's links of one namespace.
#[derive(Debug)]
pub struct KernelLinks {
    socket: NetlinkSocket,
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
    fn with_action<T>(
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

    fn change(
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

    fn find(&mut self, name: &str) -> Result<Option<Link>, KernelError> {
        let mut payload = Vec::with_capacity(64);
        codec::write_link_by_name(&mut payload, name)?;
        let answer = self
            .socket
            .get(libc::RTM_GETLINK, |out| out.extend_from_slice(&payload));
        match answer {
            Ok(Some(message)) => Ok(Some(codec::read_link(&message.payload)?)),
            Ok(None) => Ok(None),
            Err(error) if error.errno == Errno::ENODEV => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn find_by_index(&mut self, index: u32) -> Result<Option<Link>, KernelError> {
        let answer = self.socket.get(libc::RTM_GETLINK, |out| {
            codec::write_link_by_index(out, index);
        });
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

    fn names_by_index(&mut self) -> Result<BTreeMap<u32, String>, KernelError> {
        let links = self.all_links()?;
        Ok(links.into_iter().map(|l| (l.index, l.name)).collect())
    }

    fn change_route(&mut self, kind: u16, flags: u16, route: &Route) -> Result<(), KernelError> {
        let index = match &route.link {
            Some(link) => Some(self.index(link)?),
            None => None,
        };
        self.change(kind, flags, |out| codec::write_route(out, route, index))
    }
}

impl Links for KernelLinks {
    fn create_veth(&mut self, end: &VethEnd, peer: &VethEnd) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::CreateVeth(end.clone(), peer.clone()),
            |this| {
                this.change(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |out| {
                    codec::write_veth(out, end, peer)
                })
            },
        )
    }

    fn delete_link(&mut self, link: &str) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteLink(link.to_owned()),
            |this| {
                this.change(libc::RTM_DELLINK, 0, |out| {
                    codec::write_link_by_name(out, link)
                })
            },
        )
    }

    fn change_link(&mut self, link: &str, change: &LinkChange) -> Result<(), LinkError> {
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

    fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        self.with_action(|| LinkAction::List("links"), Self::all_links)
    }

    fn link(&mut self, link: &str) -> Result<Option<Link>, LinkError> {
        self.with_action(
            || LinkAction::GetLink(link.to_owned()),
            |this| this.find(link),
        )
    }

    fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, LinkError> {
        self.with_action(
            || LinkAction::GetLinkByIndex(index),
            |this| this.find_by_index(index),
        )
    }

    fn namespace_id(&mut self, other: &NetNs) -> Result<Option<i32>, LinkError> {
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

    fn add_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError> {
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

    fn delete_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteAddress(link.to_owned(), address),
            |this| {
                let index = this.index(link)?;
                this.change(libc::RTM_DELADDR, 0, |out| {
                    codec::write_address(out, index, address)
                })
            },
        )
    }

    fn addresses(&mut self) -> Result<Vec<Address>, LinkError> {
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

    fn add_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::AddRoute(route.clone()),
            |this| this.change_route(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route),
        )
    }

    fn replace_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::ReplaceRoute(route.clone()),
            |this| this.change_route(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route),
        )
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteRoute(route.clone()),
            |this| this.change_route(libc::RTM_DELROUTE, 0, route),
        )
    }

    fn routes(&mut self) -> Result<Vec<Route>, LinkError> {
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

    fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, LinkError> {
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

    fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError> {
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

    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError> {
        self.with_action(
            || LinkAction::DeleteNeighbour(neighbour.clone()),
            |this| {
                let index = this.index(&neighbour.link)?;
                this.change(libc::RTM_DELNEIGH, 0, |out| {
                    codec::write_neighbour(out, neighbour, index)
                })
            },
        )
    }

    fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError> {
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
