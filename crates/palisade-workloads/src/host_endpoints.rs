//! The host endpoints of this host, and the interface that each governs.
//!
//! A host endpoint names its interface, or the addresses that it expects there. The latter governs the interface that
//! has the first of these addresses that any interface has, unless another host endpoint names that interface; while
//! there is none it is not enforced. Source: Calico, "Host endpoint": `interfaceName`, `expectedIPs`. That of the node,
//! which exists while policies select nodes, governs what no other does.
//!
//! Promises: every change of interfaces or of objects that gives a host endpoint another interface becomes one update.
//! Never: asks the kernel; the interfaces' addresses are given to it.

use palisade_model::{
    Direction, Endpoint, EndpointId, FailsafePorts, NetworkSet, Node, Object, ObjectId, ObjectKey,
    Policy, PolicyId, Protocol, Str, Update,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The port of SSH.
const SSH_PORT: u16 = 22;
/// The usual port of a Kubernetes API server.
const API_SERVER_PORT: u16 = 6443;

/// The interface of each address of this host.
pub type InterfaceAddresses = BTreeMap<IpAddr, Str>;

/// What became of a host endpoint of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEndpointState<'a> {
    /// The object.
    pub id: &'a EndpointId,
    /// The interface that it governs, `*` for every one that no other names; `None` if it is not enforced.
    pub interface: Option<&'a Str>,
    /// Why it is not enforced at present.
    pub reason: Option<String>,
}

/// Host endpoints of this host.
#[derive(Debug)]
pub struct HostEndpoints {
    /// The name of the endpoint of this host's node.
    node_endpoint: EndpointId,
    /// The policies that select nodes.
    node_policies: BTreeSet<PolicyId>,
    /// Those of this host, as the source has them.
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// The addresses that host endpoints of any host expect.
    expected: BTreeMap<ObjectId, Vec<IpAddr>>,
    interfaces: InterfaceAddresses,
    /// The interface of each that names none, as the last update had it.
    assigned: BTreeMap<EndpointId, Option<Str>>,
    /// The interfaces that host endpoints name and that do not exist.
    missing: BTreeSet<Str>,
    /// The reasons that were logged.
    logged: BTreeMap<EndpointId, String>,
    is_touched: bool,
}

impl HostEndpoints {
    /// No host endpoints, of the host with this node.
    pub fn of_node(name: Str) -> Self {
        HostEndpoints {
            node_endpoint: Node::endpoint_id(name),
            node_policies: BTreeSet::new(),
            endpoints: BTreeMap::new(),
            expected: BTreeMap::new(),
            interfaces: InterfaceAddresses::new(),
            assigned: BTreeMap::new(),
            missing: BTreeSet::new(),
            logged: BTreeMap::new(),
            is_touched: false,
        }
    }

    /// Takes in whether a policy selects nodes.
    pub(crate) fn upsert_policy(&mut self, policy: &Policy) {
        if policy.selects_nodes() {
            self.node_policies.insert(policy.id.clone());
        } else {
            self.remove_policy(&policy.id);
        }
    }

    /// Forgets a policy.
    pub(crate) fn remove_policy(&mut self, id: &PolicyId) {
        self.node_policies.remove(id);
    }

    /// Adds or replaces a host endpoint of this host. Returns it with its interface.
    pub fn upsert(&mut self, endpoint: Endpoint) -> Update {
        let id = endpoint.id.clone();
        self.is_touched = true;
        let is_named = endpoint.interface.is_some();
        self.endpoints.insert(id.clone(), endpoint);
        if is_named {
            self.assigned.remove(&id);
        } else {
            let interface = self.find(&id);
            self.assigned.insert(id.clone(), interface);
        }
        self.update(&id)
    }

    /// Removes a host endpoint, if it is one of this host.
    pub fn remove(&mut self, id: &EndpointId) {
        self.is_touched |= self.endpoints.remove(id).is_some();
        self.assigned.remove(id);
        self.logged.remove(id);
    }

    /// Takes in the addresses that a host endpoint expects.
    pub(crate) fn upsert_expected(&mut self, set: &NetworkSet) {
        let addresses = set.nets.iter().filter(|net| net.is_host());
        let addresses: Vec<IpAddr> = addresses.map(|net| net.address()).collect();
        self.is_touched |= self.expected.get(&set.id) != Some(&addresses);
        self.expected.insert(set.id.clone(), addresses);
    }

    /// Forgets the addresses that a host endpoint expected.
    pub(crate) fn remove_expected(&mut self, id: &ObjectId) {
        self.is_touched |= self.expected.remove(id).is_some();
    }

    /// Whether one of them is known by its addresses, so that those of the interfaces are needed.
    pub(crate) fn needs_addresses(&self) -> bool {
        !self.assigned.is_empty()
    }

    /// Whether objects changed since the interfaces were last found.
    pub fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Takes in the addresses of the interfaces. Returns the updates of the host endpoints whose interface changed.
    pub(crate) fn find_interfaces(&mut self, interfaces: InterfaceAddresses) -> Vec<Update> {
        self.interfaces = interfaces;
        self.is_touched = false;
        let ids: Vec<EndpointId> = self.assigned.keys().cloned().collect();
        let mut updates = Vec::new();
        for id in ids {
            let interface = self.find(&id);
            let old = self.assigned.insert(id.clone(), interface.clone());
            self.log_unenforced(&id, interface.is_none());
            if old.as_ref() != Some(&interface) {
                updates.push(self.update(&id));
            }
        }
        updates
    }

    /// Logs that a host endpoint is not enforced, once for each reason.
    fn log_unenforced(&mut self, id: &EndpointId, is_unenforced: bool) {
        if !is_unenforced {
            self.logged.remove(id);
            return;
        }
        let reason = self.reason(id);
        if self.logged.get(id) != Some(&reason) {
            tracing::warn!(host_endpoint = %id, reason, "a host endpoint is not enforced");
            self.logged.insert(id.clone(), reason);
        }
    }

    /// The interfaces that host endpoints of this host name.
    pub(crate) fn interface_names(&self) -> impl Iterator<Item = &Str> {
        let names = self.named_interfaces().into_iter();
        names.filter(|name| ***name != *Endpoint::ANY_INTERFACE)
    }

    /// Takes in which of the named interfaces do not exist.
    pub(crate) fn set_missing(&mut self, missing: BTreeSet<Str>) {
        for name in missing.difference(&self.missing) {
            tracing::warn!(interface = %name, "a host endpoint names an interface that does not exist; it is closed when it appears");
        }
        self.missing = missing;
        // Where all are named, nothing else is to be found.
        self.is_touched &= self.needs_addresses();
    }

    /// What a policy could cut although most hosts need it: SSH and the API server, where they are no failsafe ports.
    /// Empty while no host endpoint is in force.
    pub fn missing_failsafe(&self, failsafe: &FailsafePorts) -> Vec<String> {
        if self.states().all(|state| state.interface.is_none()) {
            return Vec::new();
        }
        let needed = [
            (Direction::Ingress, SSH_PORT, "SSH to this host"),
            (Direction::Egress, API_SERVER_PORT, "the API server"),
        ];
        let is_missing = |direction, number| {
            let mut ports = failsafe.of(direction).iter();
            !ports.any(|port| port.protocol == Protocol::TCP && port.port == number)
        };
        let missing = needed
            .into_iter()
            .filter(|(direction, port, _)| is_missing(*direction, *port));
        missing
            .map(|(direction, port, what)| {
                let parameter = match direction {
                    Direction::Ingress => "failsafe-inbound-ports",
                    Direction::Egress => "failsafe-outbound-ports",
                };
                format!("{what} is no failsafe port: a policy can close it; {parameter} with tcp:{port} keeps it open")
            })
            .collect()
    }

    /// What became of each, by name, and of the node if policies select nodes and there is none.
    pub fn states(&self) -> impl Iterator<Item = HostEndpointState<'_>> {
        let is_unknown =
            !self.node_policies.is_empty() && !self.endpoints.contains_key(&self.node_endpoint);
        let unknown = is_unknown.then(|| HostEndpointState {
            id: &self.node_endpoint,
            interface: None,
            reason: Some(
                "there is no such Node, so no policy of nodes selects this host".to_owned(),
            ),
        });
        let known = self.endpoints.iter().map(|(id, endpoint)| {
            let assigned = self.assigned.get(id).and_then(Option::as_ref);
            let interface = endpoint.interface.as_ref().or(assigned);
            if let Some(governing) = self.governing_instead(endpoint) {
                return HostEndpointState {
                    id,
                    interface: None,
                    reason: Some(format!(
                        "{governing} governs every interface, and policies of nodes select it"
                    )),
                };
            }
            let reason = match interface {
                Some(name) if self.missing.contains(name) => {
                    Some("there is no such interface; it is closed when it appears".to_owned())
                }
                Some(_) => None,
                None => Some(self.reason(id)),
            };
            HostEndpointState {
                id,
                interface,
                reason,
            }
        });
        known.chain(unknown)
    }

    /// The host endpoint for every interface that stands before that of the node.
    fn governing_instead(&self, endpoint: &Endpoint) -> Option<&EndpointId> {
        let is_for_all = |other: &&Endpoint| {
            other.interface.as_deref() == Some(Endpoint::ANY_INTERFACE) && !other.is_node_endpoint()
        };
        let mut others = self
            .endpoints
            .values()
            .filter(|_| endpoint.is_node_endpoint());
        others.find(is_for_all).map(|other| &other.id)
    }

    fn expected(&self, id: &EndpointId) -> &[IpAddr] {
        self.expected.get(id).map_or(&[], Vec::as_slice)
    }

    fn named_interfaces(&self) -> BTreeSet<&Str> {
        let all = self.endpoints.values();
        all.filter_map(|endpoint| endpoint.interface.as_ref())
            .collect()
    }

    /// The interface of a host endpoint that names none.
    fn find(&self, id: &EndpointId) -> Option<Str> {
        let mut addresses = self.expected(id).iter();
        let interface = addresses.find_map(|address| self.interfaces.get(address))?;
        let is_named = self.named_interfaces().contains(interface);
        (!is_named && **interface != *Endpoint::LOOPBACK).then(|| interface.clone())
    }

    fn reason(&self, id: &EndpointId) -> String {
        let addresses = self.expected(id).iter().map(ToString::to_string);
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let mut found = self.expected(id).iter();
        match found.find_map(|address| self.interfaces.get(address)) {
            Some(interface) if **interface == *Endpoint::LOOPBACK => {
                format!("{addresses} is an address of loopback, which is never judged")
            }
            Some(interface) => format!("another host endpoint names the interface {interface}"),
            None => format!("no interface of this host has {addresses}"),
        }
    }

    fn update(&self, id: &EndpointId) -> Update {
        let delete = || Update::Delete(ObjectKey::Endpoint(id.clone()));
        let Some(endpoint) = self.endpoints.get(id) else {
            return delete();
        };
        let assigned = || self.assigned.get(id)?.clone();
        match endpoint.interface.clone().or_else(assigned) {
            Some(interface) => {
                let mut endpoint = endpoint.clone();
                endpoint.interface = Some(interface);
                Update::Upsert(Object::Endpoint(endpoint))
            }
            None => delete(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{ObjectKind, Order, PolicyMode, Precedence, Prefix, Selector, tier_name};

    fn id(name: &str) -> EndpointId {
        ObjectId {
            namespace: None,
            name: name.into(),
            kind: ObjectKind::new("projectcalico.org", "HostEndpoint"),
        }
    }

    fn endpoint(name: &str, interface: Option<&str>) -> Endpoint {
        Endpoint {
            interface: interface.map(Into::into),
            ..Endpoint::host_interface(id(name))
        }
    }

    fn expects(name: &str, addresses: &[&str]) -> NetworkSet {
        let nets = addresses
            .iter()
            .map(|text| Prefix::host(text.parse().unwrap()));
        NetworkSet {
            id: id(name),
            kind: palisade_model::NetworkSetKind::HostEndpoint,
            labels: palisade_model::Labels::default(),
            nets: nets.collect(),
        }
    }

    fn addresses(list: &[(&str, &str)]) -> InterfaceAddresses {
        list.iter()
            .map(|(address, name)| (address.parse().unwrap(), Str::from(*name)))
            .collect()
    }

    /// The interface that an update gives; `None` if it deletes.
    fn interface(update: &Update) -> Option<&str> {
        match update {
            Update::Upsert(Object::Endpoint(endpoint)) => endpoint.interface.as_deref(),
            _ => None,
        }
    }

    #[test]
    fn the_interface_with_an_expected_address_is_followed() {
        let mut hosts = HostEndpoints::of_node("node-1".into());
        assert_eq!(interface(&hosts.upsert(endpoint("a", None))), None);
        hosts.upsert_expected(&expects("a", &["192.0.2.7", "2001:db8::7"]));
        assert!(hosts.is_touched() && hosts.needs_addresses());
        assert!(
            hosts
                .find_interfaces(addresses(&[("192.0.2.8", "eth0")]))
                .is_empty()
        );
        let state = hosts.states().next().unwrap();
        assert_eq!(state.interface, None);
        let reason = state.reason.unwrap();
        assert_eq!(
            reason,
            "no interface of this host has 192.0.2.7, 2001:db8::7"
        );
        let v6 = addresses(&[("192.0.2.8", "eth0"), ("2001:db8::7", "eth1")]);
        let updates = hosts.find_interfaces(v6.clone());
        assert_eq!(
            updates.iter().map(interface).collect::<Vec<_>>(),
            [Some("eth1")]
        );
        assert!(hosts.find_interfaces(v6).is_empty(), "nothing changed");
        // The first expected address decides, whatever has the others.
        let both = addresses(&[("192.0.2.7", "eth0"), ("2001:db8::7", "eth1")]);
        let updates = hosts.find_interfaces(both);
        assert_eq!(interface(&updates[0]), Some("eth0"));
        // An edit keeps it; a lost address ends it.
        assert_eq!(interface(&hosts.upsert(endpoint("a", None))), Some("eth0"));
        let updates = hosts.find_interfaces(addresses(&[]));
        assert_eq!(updates.iter().map(interface).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn one_that_names_the_interface_takes_precedence() {
        let mut hosts = HostEndpoints::of_node("node-1".into());
        hosts.upsert(endpoint("by-address", None));
        hosts.upsert(endpoint("every", Some(Endpoint::ANY_INTERFACE)));
        hosts.upsert_expected(&expects("by-address", &["192.0.2.7"]));
        let eth0 = addresses(&[("192.0.2.7", "eth0")]);
        assert_eq!(
            interface(&hosts.find_interfaces(eth0.clone())[0]),
            Some("eth0")
        );
        assert_eq!(
            interface(&hosts.upsert(endpoint("named", Some("eth0")))),
            Some("eth0")
        );
        assert_eq!(interface(&hosts.find_interfaces(eth0.clone())[0]), None);
        hosts.set_missing(hosts.interface_names().cloned().collect());
        let mut states = hosts.states();
        let reason = states.next().unwrap().reason.unwrap();
        assert_eq!(reason, "another host endpoint names the interface eth0");
        assert!(states.next().unwrap().reason.is_none(), "every interface");
        let missing = "there is no such interface; it is closed when it appears";
        assert_eq!(states.next().unwrap().reason.as_deref(), Some(missing));
        drop(states);
        hosts.remove(&id("named"));
        hosts.set_missing(BTreeSet::new());
        assert!(
            hosts.is_touched(),
            "the addresses are still to be asked for"
        );
        assert_eq!(interface(&hosts.find_interfaces(eth0)[0]), Some("eth0"));
        // Where all are named, addresses are not asked for.
        let mut named = HostEndpoints::of_node("node-1".into());
        named.upsert(endpoint("named", Some("eth0")));
        named.set_missing(BTreeSet::new());
        assert!(!named.is_touched() && !named.needs_addresses());
        // Loopback is never judged.
        let loopback = hosts.find_interfaces(addresses(&[("192.0.2.7", "lo")]));
        assert_eq!(interface(&loopback[0]), None);
    }

    fn policy_of_nodes(subject: Selector) -> Policy {
        Policy {
            id: PolicyId {
                object: id("nodes"),
                part: 1,
            },
            tier: tier_name::DEFAULT.into(),
            precedence: Precedence {
                order: Order::At(1000.0),
                rank: 1,
            },
            mode: PolicyMode::Enforce,
            subject,
            scope: palisade_model::TrafficScope::Endpoints,
            observes_dns: false,
            ingress: None,
            egress: None,
            line: None,
        }
    }

    #[test]
    fn the_node_is_told_while_policies_select_nodes() {
        let mut hosts = HostEndpoints::of_node("node-1".into());
        assert_eq!(hosts.states().count(), 0);
        hosts.upsert_policy(&policy_of_nodes(Policy::node_subject()));
        let reported = |hosts: &HostEndpoints| {
            let states = hosts.states();
            let reported = states.map(|state| {
                (
                    state.id.name.to_string(),
                    state.interface.cloned(),
                    state.reason,
                )
            });
            reported.collect::<Vec<_>>()
        };
        let unknown = "there is no such Node, so no policy of nodes selects this host";
        let name = || "node-1".to_owned();
        assert_eq!(reported(&hosts), [(name(), None, Some(unknown.to_owned()))]);
        let update = hosts.upsert(Endpoint::of_node("node-1".into(), false));
        assert_eq!(interface(&update), Some("*"));
        assert_eq!(reported(&hosts), [(name(), Some("*".into()), None)]);
        hosts.upsert(endpoint("every", Some(Endpoint::ANY_INTERFACE)));
        let other = "HostEndpoint every governs every interface, and policies of nodes select it";
        let all = reported(&hosts);
        assert!(
            all.contains(&(name(), None, Some(other.to_owned()))),
            "{all:?}"
        );
        hosts.remove(&id("every"));
        hosts.remove(&Node::endpoint_id("node-1".into()));
        hosts.upsert_policy(&policy_of_nodes(Selector::none()));
        assert_eq!(hosts.states().count(), 0);
    }

    #[test]
    fn what_no_failsafe_port_keeps_open_is_named_while_a_host_endpoint_is_in_force() {
        let none = FailsafePorts::NONE;
        let mut hosts = HostEndpoints::of_node("n1".into());
        assert!(hosts.missing_failsafe(&none).is_empty());
        hosts.upsert(endpoint("a", Some("eth0")));
        assert!(hosts.missing_failsafe(&FailsafePorts::default()).is_empty());
        let missing = hosts.missing_failsafe(&none);
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].starts_with("SSH to this host is no failsafe port"));
        assert!(missing[1].starts_with("the API server is no failsafe port"));
        let outbound = FailsafePorts {
            inbound: Vec::new(),
            ..FailsafePorts::default()
        };
        assert_eq!(hosts.missing_failsafe(&outbound), missing[..1]);
    }
}
