//! What may have changed on this host, as the kernel's notifications say.
//!
//! Only what they name is inspected. Never: says that something did change.

use palisade_dataplane::{Interface, InterfaceChange};
use palisade_model::Prefix;
use palisade_sys::link::{Link, LinkEvent, MacAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The MAC address of every host-side interface; it has only one neighbour, so it need not be unique.
pub const HOST_MAC: MacAddr = MacAddr([0xee, 0xee, 0xee, 0xee, 0xee, 0xee]);
/// Kinds of links, besides hardware, that may be uplinks. Other kinds lead to workloads, which must not
/// become routers of this host because it forwards now.
const UPLINKS: [&str; 5] = ["vlan", "bond", "team", "macvlan", "ipvlan"];
/// The maximum number of named links and addresses; beyond it, everything is inspected.
const MAX_NAMED_CHANGES: usize = 1_000;

/// What may have changed on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// Notifications were lost: everything may have changed.
    all: bool,
    /// Links with these names.
    names: BTreeSet<String>,
    /// The indexes of the links, which survive a rename.
    indexes: BTreeSet<u32>,
    /// The links that look like a workload's interface.
    workload_like: BTreeSet<String>,
    /// The links that are uplinks.
    uplinks: BTreeSet<String>,
    /// Addresses whose routes or neighbours changed.
    addresses: BTreeSet<IpAddr>,
    /// Networks of more than one address whose routes changed.
    networks: BTreeSet<Prefix>,
    /// Host-wide sysctls.
    settings: bool,
    /// Routing rules.
    rules: bool,
    /// The interfaces that changed, by index, each as it was told last.
    interfaces: BTreeMap<u32, InterfaceChange>,
}

impl HostChanges {
    /// All of the host.
    pub fn all() -> Self {
        HostChanges {
            all: true,
            settings: true,
            rules: true,
            ..HostChanges::default()
        }
    }

    /// Adds other changes.
    pub fn merge(&mut self, others: HostChanges) {
        if self.all || others.all {
            *self = HostChanges::all();
            return;
        }
        self.names.extend(others.names);
        self.indexes.extend(others.indexes);
        self.networks.extend(others.networks);
        self.interfaces.extend(others.interfaces);
        self.workload_like.extend(others.workload_like);
        self.uplinks.extend(others.uplinks);
        self.addresses.extend(others.addresses);
        self.settings |= others.settings;
        self.rules |= others.rules;
        self.collapse();
    }

    /// Whether everything may have changed.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The names of the links that may have changed.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Networks of more than one address whose routes may have changed.
    pub fn networks(&self) -> &BTreeSet<Prefix> {
        &self.networks
    }

    /// Inspecting that many individually is not cheaper than inspecting everything.
    fn collapse(&mut self) {
        if self.names.len() + self.addresses.len() > MAX_NAMED_CHANGES {
            *self = HostChanges::all();
        }
    }

    /// The number of named links and addresses.
    pub fn len(&self) -> usize {
        self.names.len() + self.addresses.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        *self == HostChanges::default()
    }

    /// Adds a kernel notification.
    pub fn add_event(&mut self, event: LinkEvent) {
        if self.all {
            return;
        }
        match &event {
            LinkEvent::Link(link) => self.add_interface(link, InterfaceChange::Present),
            LinkEvent::LinkRemoved(link) => self.add_interface(link, InterfaceChange::Gone),
            _ => {}
        }
        match event {
            LinkEvent::Link(link) | LinkEvent::LinkRemoved(link) => {
                if link.mac == Some(HOST_MAC) {
                    self.workload_like.insert(link.name.clone());
                }
                if is_uplink(&link) {
                    self.uplinks.insert(link.name.clone());
                }
                self.indexes.insert(link.index);
                self.names.insert(link.name);
            }
            LinkEvent::Route { destination } => {
                self.addresses.insert(destination.address);
                let network = Prefix::new(destination.address, destination.len);
                if !network.is_host() {
                    self.networks.insert(network);
                }
            }
            LinkEvent::Neighbour { address } => {
                self.addresses.insert(address);
            }
            LinkEvent::Netconf => self.settings = true,
            LinkEvent::RoutingRule => self.rules = true,
            LinkEvent::Overrun => *self = HostChanges::all(),
            LinkEvent::Address { .. } | LinkEvent::AddressRemoved { .. } => {}
        }
        self.collapse();
    }

    /// The indexes of the links that may have changed.
    pub fn indexes(&self) -> &BTreeSet<u32> {
        &self.indexes
    }

    /// The links that may have changed and look like a workload's interface.
    pub fn workload_like(&self) -> &BTreeSet<String> {
        &self.workload_like
    }

    /// Whether a link that may be an uplink changed.
    pub fn concern_uplinks(&self) -> bool {
        !self.uplinks.is_empty()
    }

    /// The interfaces that changed, each as it was told last.
    pub fn interfaces(&self) -> impl Iterator<Item = &InterfaceChange> {
        self.interfaces.values()
    }

    fn add_interface(&mut self, link: &Link, change: fn(Interface) -> InterfaceChange) {
        let interface = Interface {
            name: link.name.as_str().into(),
            index: link.index,
        };
        self.interfaces.insert(link.index, change(interface));
    }

    /// Whether host-wide sysctls may have changed.
    pub fn concern_settings(&self) -> bool {
        self.settings
    }

    /// Whether routing rules may have changed.
    pub fn concern_rules(&self) -> bool {
        self.rules
    }

    /// The addresses whose routes or neighbours may have changed.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }
}

/// Whether routers may be reached by this link.
pub fn is_uplink(link: &Link) -> bool {
    !link.is_loopback()
        && link
            .kind
            .as_deref()
            .is_none_or(|kind| UPLINKS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::link::{IpNet, Link, MacAddr};

    fn link(name: &str, mac: Option<MacAddr>) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            kind: None,
            mac,
            mtu: 1500,
            flags: 0,
            peer_index: None,
            peer_netnsid: None,
            master: None,
            qdisc: None,
        }
    }

    #[test]
    fn a_burst_names_what_it_is_about() {
        let address: IpAddr = [10, 0, 0, 1].into();
        let mut changes = HostChanges::default();
        changes.add_event(LinkEvent::Link(link("pal0", Some(HOST_MAC))));
        changes.add_event(LinkEvent::LinkRemoved(link("eth0", None)));
        changes.add_event(LinkEvent::Route {
            destination: IpNet::host(address),
        });
        let wanted = HostChanges {
            names: ["eth0".to_owned(), "pal0".to_owned()].into(),
            indexes: [1].into(),
            workload_like: ["pal0".to_owned()].into(),
            uplinks: ["eth0".to_owned(), "pal0".to_owned()].into(),
            addresses: [address].into(),
            // Both had the index 1: the last notification of it counts.
            interfaces: [(
                1,
                InterfaceChange::Gone(Interface {
                    name: "eth0".into(),
                    index: 1,
                }),
            )]
            .into(),
            ..HostChanges::default()
        };
        assert_eq!(changes, wanted);
        changes.add_event(LinkEvent::Overrun);
        assert_eq!(changes, HostChanges::all());
    }
}
