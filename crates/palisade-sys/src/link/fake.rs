//! Links in memory: several namespaces, a record of every requested change, and failures on request.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::types::{
    Address, IpNet, Link, LinkAction, LinkChange, MacAddr, Neighbour, Route, VethEnd,
};
use super::{LinkError, LinkOpener, Links};
use crate::Errno;
use crate::netns::{NetNs, NetNsId};

/// The links of all namespaces of one simulated host; clones share it.
///
/// It simulates what callers can observe of links, addresses, routes and neighbours: presence, names,
/// indexes, flags. It has no reachability, and an address adds no routes.
#[derive(Clone, Debug, Default)]
pub struct FakeNet {
    state: Arc<Mutex<FakeNetState>>,
}

#[derive(Debug, Default)]
struct FakeNetState {
    namespaces: BTreeMap<NetNsId, FakeNamespace>,
    calls: Vec<(String, LinkAction)>,
    failures: VecDeque<(usize, Errno)>,
    next_index: u32,
}

#[derive(Debug, Default)]
struct FakeNamespace {
    links: BTreeMap<u32, FakeLink>,
    routes: Vec<Route>,
    neighbours: Vec<Neighbour>,
}

#[derive(Debug)]
struct FakeLink {
    link: Link,
    addresses: Vec<IpNet>,
    peer: Option<(NetNsId, u32)>,
}

impl FakeNet {
    /// A host without links.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Every requested change so far, failed ones included, with the name of its namespace.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, LinkAction)> {
        self.lock().calls.clone()
    }

    /// Accepts `after` changes and makes the next one fail with `errno`.
    pub fn fail_after(&self, after: usize, errno: Errno) {
        self.lock().failures.push_back((after, errno));
    }

    fn lock(&self) -> MutexGuard<'_, FakeNetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkOpener for FakeNet {
    type Links = FakeLinks;

    fn open_links(&self, netns: &NetNs) -> Result<FakeLinks, LinkError> {
        self.lock().namespaces.entry(netns.id()).or_default();
        Ok(FakeLinks {
            net: self.clone(),
            netns: netns.clone(),
        })
    }
}

/// One namespace of a [`FakeNet`].
#[derive(Clone, Debug)]
pub struct FakeLinks {
    net: FakeNet,
    netns: NetNs,
}

impl FakeNetState {
    fn take_due_failure(&mut self) -> Option<Errno> {
        let (after, errno) = self.failures.front_mut()?;
        if *after == 0 {
            let errno = *errno;
            self.failures.pop_front();
            return Some(errno);
        }
        *after -= 1;
        None
    }

    fn namespace(&mut self, id: NetNsId) -> &mut FakeNamespace {
        self.namespaces.entry(id).or_default()
    }

    fn add_link(&mut self, id: NetNsId, end: &VethEnd) -> u32 {
        self.next_index += 1;
        let index = self.next_index;
        let [a, b, c, d] = index.to_be_bytes();
        let link = Link {
            index,
            name: end.name.clone(),
            kind: Some("veth".to_owned()),
            mac: Some(end.mac.unwrap_or(MacAddr([2, 0, a, b, c, d]))),
            mtu: end.mtu.unwrap_or(1500),
            flags: 0,
            peer_index: None,
            peer_netnsid: None,
            master: None,
        };
        let entry = FakeLink {
            link,
            addresses: Vec::new(),
            peer: None,
        };
        self.namespace(id).links.insert(index, entry);
        index
    }

    fn set_peer(&mut self, id: NetNsId, index: u32, peer: (NetNsId, u32)) {
        if let Some(entry) = self.namespace(id).links.get_mut(&index) {
            entry.peer = Some(peer);
            entry.link.peer_index = Some(peer.1);
            entry.link.peer_netnsid = (peer.0 != id).then_some(0);
        }
    }
}

impl FakeNamespace {
    fn link_by_name(&mut self, name: &str) -> Result<&mut FakeLink, Errno> {
        self.links
            .values_mut()
            .find(|entry| entry.link.name == name)
            .ok_or(Errno::ENODEV)
    }

    fn has_link(&self, name: &str) -> bool {
        self.links.values().any(|entry| entry.link.name == name)
    }

    fn remove_link(&mut self, index: u32) {
        if let Some(entry) = self.links.remove(&index) {
            let name = entry.link.name;
            self.routes.retain(|r| r.link.as_ref() != Some(&name));
            self.neighbours.retain(|n| n.link != name);
        }
    }

    fn check_link(&self, route: &Route) -> Result<(), Errno> {
        match &route.link {
            Some(link) if !self.has_link(link) => Err(Errno::ENODEV),
            _ => Ok(()),
        }
    }
}

fn same_route(a: &Route, b: &Route) -> bool {
    (a.destination, a.table, a.metric) == (b.destination, b.table, b.metric)
}

fn check_name(name: &str) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::EINVAL),
        1..=15 => Ok(()),
        _ => Err(Errno::ERANGE),
    }
}

impl FakeLinks {
    fn perform<T>(
        &self,
        action: LinkAction,
        work: impl FnOnce(&mut FakeNetState, NetNsId) -> Result<T, Errno>,
    ) -> Result<T, LinkError> {
        let mut state = self.net.lock();
        state
            .calls
            .push((self.netns.label().to_owned(), action.clone()));
        let result = match state.take_due_failure() {
            Some(errno) => Err(errno),
            None => work(&mut state, self.netns.id()),
        };
        result.map_err(|errno| LinkError::Refused {
            action: Box::new(action),
            netns: self.netns.label().to_owned(),
            error: errno.into(),
        })
    }

    fn read<T>(&self, work: impl FnOnce(&mut FakeNamespace) -> T) -> T {
        work(self.net.lock().namespace(self.netns.id()))
    }
}

impl Links for FakeLinks {
    fn create_veth(&mut self, end: &VethEnd, peer: &VethEnd) -> Result<(), LinkError> {
        self.perform(
            LinkAction::CreateVeth(end.clone(), peer.clone()),
            |state, here| {
                let namespace_of = |end: &VethEnd| end.netns.as_ref().map_or(here, NetNs::id);
                let (a, b) = (namespace_of(end), namespace_of(peer));
                check_name(&end.name)?;
                check_name(&peer.name)?;
                let clash = a == b && end.name == peer.name;
                if clash
                    || state.namespace(a).has_link(&end.name)
                    || state.namespace(b).has_link(&peer.name)
                {
                    return Err(Errno::EEXIST);
                }
                let first = state.add_link(a, end);
                let second = state.add_link(b, peer);
                state.set_peer(a, first, (b, second));
                state.set_peer(b, second, (a, first));
                Ok(())
            },
        )
    }

    fn delete_link(&mut self, link: &str) -> Result<(), LinkError> {
        self.perform(LinkAction::DeleteLink(link.to_owned()), |state, here| {
            let entry = state.namespace(here).link_by_name(link)?;
            let (index, peer) = (entry.link.index, entry.peer);
            state.namespace(here).remove_link(index);
            if let Some((there, index)) = peer {
                state.namespace(there).remove_link(index);
            }
            Ok(())
        })
    }

    fn change_link(&mut self, link: &str, change: &LinkChange) -> Result<(), LinkError> {
        self.perform(
            LinkAction::ChangeLink(link.to_owned(), change.clone()),
            |state, here| {
                let space = state.namespace(here);
                if let LinkChange::Rename(name) = change {
                    check_name(name)?;
                    if space.has_link(name) {
                        return Err(Errno::EEXIST);
                    }
                    for route in &mut space.routes {
                        if route.link.as_deref() == Some(link) {
                            route.link = Some(name.clone());
                        }
                    }
                    for neighbour in &mut space.neighbours {
                        if neighbour.link == link {
                            neighbour.link.clone_from(name);
                        }
                    }
                }
                let entry = space.link_by_name(link)?;
                let up = libc::IFF_UP as u32;
                match change {
                    LinkChange::Up => entry.link.flags |= up,
                    LinkChange::Down => {
                        entry.link.flags &= !up;
                        space.routes.retain(|r| r.link.as_deref() != Some(link));
                    }
                    LinkChange::Mtu(mtu) => entry.link.mtu = *mtu,
                    LinkChange::Mac(mac) => entry.link.mac = Some(*mac),
                    LinkChange::Rename(name) => entry.link.name.clone_from(name),
                }
                Ok(())
            },
        )
    }

    fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        Ok(self.read(|space| space.links.values().map(|e| e.link.clone()).collect()))
    }

    fn link(&mut self, link: &str) -> Result<Option<Link>, LinkError> {
        Ok(self.read(|space| space.link_by_name(link).ok().map(|e| e.link.clone())))
    }

    fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, LinkError> {
        Ok(self.read(|space| space.links.get(&index).map(|e| e.link.clone())))
    }

    fn namespace_id(&mut self, other: &NetNs) -> Result<Option<i32>, LinkError> {
        let there = other.id();
        let leads = |entry: &FakeLink| entry.peer.is_some_and(|(netns, _)| netns == there);
        let is_other = there != self.netns.id();
        Ok(self.read(|space| (is_other && space.links.values().any(leads)).then_some(0)))
    }

    fn add_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError> {
        self.perform(
            LinkAction::AddAddress(link.to_owned(), address),
            |state, here| {
                let entry = state.namespace(here).link_by_name(link)?;
                if entry.addresses.contains(&address) {
                    return Err(Errno::EEXIST);
                }
                entry.addresses.push(address);
                Ok(())
            },
        )
    }

    fn delete_address(&mut self, link: &str, address: IpNet) -> Result<(), LinkError> {
        self.perform(
            LinkAction::DeleteAddress(link.to_owned(), address),
            |state, here| {
                let entry = state.namespace(here).link_by_name(link)?;
                let before = entry.addresses.len();
                entry.addresses.retain(|a| *a != address);
                if entry.addresses.len() == before {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                Ok(())
            },
        )
    }

    fn addresses(&mut self) -> Result<Vec<Address>, LinkError> {
        Ok(self.read(|space| {
            let of = |entry: &FakeLink| {
                let link_index = entry.link.index;
                entry
                    .addresses
                    .iter()
                    .map(|&prefix| Address {
                        link_index,
                        prefix,
                        tentative: false,
                    })
                    .collect::<Vec<_>>()
            };
            space.links.values().flat_map(of).collect()
        }))
    }

    fn add_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.perform(LinkAction::AddRoute(route.clone()), |state, here| {
            let space = state.namespace(here);
            space.check_link(route)?;
            if space.routes.iter().any(|r| same_route(r, route)) {
                return Err(Errno::EEXIST);
            }
            space.routes.push(route.clone());
            Ok(())
        })
    }

    fn replace_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.perform(LinkAction::ReplaceRoute(route.clone()), |state, here| {
            let space = state.namespace(here);
            space.check_link(route)?;
            space.routes.retain(|r| !same_route(r, route));
            space.routes.push(route.clone());
            Ok(())
        })
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), LinkError> {
        self.perform(LinkAction::DeleteRoute(route.clone()), |state, here| {
            let space = state.namespace(here);
            space.check_link(route)?;
            let before = space.routes.len();
            space.routes.retain(|r| !same_route(r, route));
            if space.routes.len() == before {
                return Err(Errno::ESRCH);
            }
            Ok(())
        })
    }

    fn routes(&mut self) -> Result<Vec<Route>, LinkError> {
        Ok(self.read(|space| space.routes.clone()))
    }

    fn route_to(&mut self, address: IpAddr) -> Result<Option<Route>, LinkError> {
        let leads = |route: &&Route| covers(route.destination, address);
        let longest = |route: &&Route| route.destination.len;
        Ok(self.read(|space| {
            let routes = space.routes.iter().filter(leads);
            routes.max_by_key(longest).cloned()
        }))
    }

    fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError> {
        self.perform(
            LinkAction::SetNeighbour(neighbour.clone()),
            |state, here| {
                let space = state.namespace(here);
                space.link_by_name(&neighbour.link)?;
                space.neighbours.retain(|n| !same_neighbour(n, neighbour));
                space.neighbours.push(neighbour.clone());
                Ok(())
            },
        )
    }

    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), LinkError> {
        self.perform(
            LinkAction::DeleteNeighbour(neighbour.clone()),
            |state, here| {
                let space = state.namespace(here);
                space.link_by_name(&neighbour.link)?;
                let before = space.neighbours.len();
                space.neighbours.retain(|n| !same_neighbour(n, neighbour));
                if space.neighbours.len() == before {
                    return Err(Errno::ENOENT);
                }
                Ok(())
            },
        )
    }

    fn neighbours(&mut self) -> Result<Vec<Neighbour>, LinkError> {
        Ok(self.read(|space| space.neighbours.clone()))
    }
}

fn covers(prefix: IpNet, address: IpAddr) -> bool {
    match (prefix.address, address) {
        (IpAddr::V4(net), IpAddr::V4(one)) => {
            let shift = 32 - u32::from(prefix.len);
            u32::from(net).checked_shr(shift) == u32::from(one).checked_shr(shift)
        }
        (IpAddr::V6(net), IpAddr::V6(one)) => {
            let shift = 128 - u32::from(prefix.len);
            u128::from(net).checked_shr(shift) == u128::from(one).checked_shr(shift)
        }
        _ => false,
    }
}

/// A proxy entry and a normal one for the same address are separate entries.
fn same_neighbour(a: &Neighbour, b: &Neighbour) -> bool {
    (&a.link, a.address, a.mac.is_none()) == (&b.link, b.address, b.mac.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str, netns: Option<&NetNs>) -> VethEnd {
        VethEnd {
            name: name.to_owned(),
            netns: netns.cloned(),
            ..VethEnd::default()
        }
    }

    #[test]
    fn a_pair_spans_namespaces_and_dies_together() {
        let net = FakeNet::new();
        let host = NetNs::fake("host").unwrap();
        let pod = NetNs::fake("pod").unwrap();
        let mut in_host = net.open_links(&host).unwrap();
        let mut in_pod = net.open_links(&pod).unwrap();
        in_host
            .create_veth(&end("pal1", None), &end("eth0", Some(&pod)))
            .unwrap();
        in_pod
            .add_address("eth0", IpNet::host("10.0.0.1".parse().unwrap()))
            .unwrap();
        in_pod.change_link("eth0", &LinkChange::Up).unwrap();
        let eth0 = in_pod.link("eth0").unwrap().unwrap();
        let pal1 = in_host.link("pal1").unwrap().unwrap();
        assert!(eth0.is_up());
        assert_eq!(eth0.peer_index, Some(pal1.index));
        assert_eq!(pal1.peer_index, Some(eth0.index));
        in_host
            .add_route(&Route::device(
                IpNet::host("10.0.0.1".parse().unwrap()),
                "pal1",
            ))
            .unwrap();
        in_host.delete_link("pal1").unwrap();
        assert_eq!(in_pod.links().unwrap(), []);
        assert_eq!(in_pod.addresses().unwrap(), []);
        assert_eq!(in_host.routes().unwrap(), []);
        assert_eq!(net.calls().len(), 5);
    }

    #[test]
    fn failures_come_when_asked_and_name_the_object() {
        let net = FakeNet::new();
        let host = NetNs::fake("host").unwrap();
        let mut links = net.open_links(&host).unwrap();
        net.fail_after(1, Errno::EBUSY);
        links.create_veth(&end("a", None), &end("b", None)).unwrap();
        let error = links.change_link("a", &LinkChange::Up).unwrap_err();
        assert_eq!(
            error.to_string(),
            "setting link a to up in network namespace host: EBUSY: Device or resource busy"
        );
        links.change_link("a", &LinkChange::Up).unwrap();
        let missing = links.delete_link("c").unwrap_err();
        assert!(missing.is_not_found());
        let taken = links.create_veth(&end("a", None), &end("c", None));
        assert!(taken.unwrap_err().is_already_exists());
    }
}
