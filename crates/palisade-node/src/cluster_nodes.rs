//! The Node objects, as far as addresses of pods need them: which node has which networks, and by which
//! addresses it is reached.
//!
//! A change costs what it concerns: the networks of one node are found without a look at the others.
//! Never: reads a source, or the kernel.

use palisade_config::NodesConfig;
use palisade_model::{Family, Node, Object, ObjectKey, Prefix, Str, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The name of this host, which the kubelet uses for its node unless it is told another.
const HOST_NAME_PATH: &str = "/proc/sys/kernel/hostname";

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The networks of its pods.
    pub pod_networks: Vec<Prefix>,
    /// The addresses by which other nodes reach it.
    pub internal_addresses: Vec<IpAddr>,
}

/// The nodes of the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterNodes {
    own_name: Str,
    nodes: BTreeMap<Str, NodeFacts>,
    /// The nodes that claim each network.
    claims: BTreeMap<Prefix, BTreeSet<Str>>,
    /// The nodes that are reached by each address.
    reached: BTreeMap<IpAddr, BTreeSet<Str>>,
}

/// The name of this host's Node object.
pub fn own_node_name(config: &NodesConfig) -> Str {
    match &config.name {
        Some(name) => name.as_str().into(),
        None => {
            let name = std::fs::read_to_string(HOST_NAME_PATH).unwrap_or_default();
            name.trim().to_lowercase().as_str().into()
        }
    }
}

/// What updates changed of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChanges {
    /// Whether a node changed.
    pub is_changed: bool,
    /// The networks of changed nodes, before and after.
    pub networks: BTreeSet<Prefix>,
}

impl NodeChanges {
    /// Takes updates in.
    pub fn of(nodes: &mut ClusterNodes, updates: &[Update]) -> Self {
        let mut changes = NodeChanges::default();
        for update in updates {
            if let Some((_, networks)) = nodes.apply(update) {
                changes.is_changed = true;
                changes.networks.extend(networks);
            }
        }
        changes
    }
}

impl ClusterNodes {
    /// No nodes; that of this host has this name.
    pub fn new(own_name: Str) -> Self {
        ClusterNodes {
            own_name,
            ..ClusterNodes::default()
        }
    }

    /// The name of this host's node.
    pub fn own_name(&self) -> &Str {
        &self.own_name
    }

    /// This host's node.
    pub fn own(&self) -> Option<&NodeFacts> {
        self.nodes.get(&self.own_name)
    }

    /// A node.
    pub fn get(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    /// All other nodes.
    pub fn others(&self) -> impl Iterator<Item = (&Str, &NodeFacts)> {
        self.nodes
            .iter()
            .filter(|(name, _)| **name != self.own_name)
    }

    /// The networks of all other nodes.
    pub fn other_networks(&self) -> impl Iterator<Item = Prefix> {
        let is_of_other = |claimants: &BTreeSet<Str>| claimants.iter().any(|n| *n != self.own_name);
        let claims = self.claims.iter();
        claims
            .filter(move |(_, claimants)| is_of_other(claimants))
            .map(|(network, _)| *network)
    }

    /// The nodes that have exactly this network.
    pub fn claimants(&self, network: Prefix) -> impl Iterator<Item = &Str> {
        self.claims.get(&network).into_iter().flatten()
    }

    /// The networks of nodes that overlap this one, itself included, with the nodes that have them.
    pub fn overlapping(&self, network: Prefix) -> Vec<(Prefix, &Str)> {
        let above = std::iter::successors(network.parent(), |prefix| prefix.parent());
        let above = above.filter_map(|prefix| self.claims.get_key_value(&prefix));
        let last = Prefix::new(network.last(), Family::of(network.address()).bits());
        let inside = self.claims.range(network..=last);
        let all = above.chain(inside);
        all.flat_map(|(prefix, claimants)| claimants.iter().map(|name| (*prefix, name)))
            .collect()
    }

    /// The networks of the nodes that are reached by an address in this network.
    pub fn networks_reached_in(&self, network: Prefix) -> impl Iterator<Item = Prefix> {
        let addresses = self.reached.range(network.address()..=network.last());
        let nodes = addresses.flat_map(|(_, names)| names.iter());
        let facts = nodes.filter_map(|name| self.nodes.get(name));
        facts.flat_map(|facts| facts.pod_networks.iter().copied())
    }

    /// Takes in an update; returns the node's name, and the networks that it has or had, if it changed.
    pub fn apply(&mut self, update: &Update) -> Option<(Str, Vec<Prefix>)> {
        let (name, new) = match update {
            Update::Upsert(Object::Node(node)) => (&node.name, Some(facts(node))),
            Update::Delete(ObjectKey::Node(name)) => (name, None),
            _ => return None,
        };
        let old = match new.clone() {
            Some(new) => self.nodes.insert(name.clone(), new),
            None => self.nodes.remove(name),
        };
        if old == new {
            return None;
        }
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        for network in &old.pod_networks {
            remove_name(&mut self.claims, network, name);
        }
        for address in &old.internal_addresses {
            remove_name(&mut self.reached, address, name);
        }
        for network in &new.pod_networks {
            let claimants = self.claims.entry(*network).or_default();
            claimants.insert(name.clone());
        }
        for address in new.internal_addresses {
            let reached = self.reached.entry(address).or_default();
            reached.insert(name.clone());
        }
        Some((name.clone(), [old.pod_networks, new.pod_networks].concat()))
    }
}

fn remove_name<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Str>>, key: &K, name: &Str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

fn facts(node: &Node) -> NodeFacts {
    NodeFacts {
        pod_networks: node.pod_networks.clone(),
        internal_addresses: node.internal_addresses.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_generators::line;

    fn node(name: &str, networks: &[&str]) -> Update {
        Update::Upsert(Object::Node(line::node(name, networks)))
    }

    fn shown(nodes: &ClusterNodes, network: &str) -> String {
        let found = nodes.overlapping(network.parse().unwrap()).into_iter();
        let found = found.map(|(network, name)| format!("{name}={network}"));
        found.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn networks_are_found_by_overlap_and_forgotten() {
        let mut nodes = ClusterNodes::new("a".into());
        assert!(
            nodes
                .apply(&node("a", &["10.0.0.0/24", "fd00:0:0:1::/64"]))
                .is_some()
        );
        assert!(nodes.apply(&node("b", &["10.0.1.0/24"])).is_some());
        assert!(nodes.apply(&node("c", &["10.0.0.0/16"])).is_some());
        assert!(nodes.apply(&node("d", &["10.0.1.128/25"])).is_some());
        assert_eq!(
            nodes.apply(&node("d", &["10.0.1.128/25"])),
            None,
            "as before"
        );
        assert_eq!(
            shown(&nodes, "10.0.1.0/24"),
            "c=10.0.0.0/16 b=10.0.1.0/24 d=10.0.1.128/25"
        );
        assert_eq!(shown(&nodes, "10.1.0.0/24"), "");
        assert_eq!(shown(&nodes, "fd00::/48"), "a=fd00:0:0:1::/64");
        let others: Vec<String> = nodes.other_networks().map(|n| n.to_string()).collect();
        assert_eq!(others, ["10.0.0.0/16", "10.0.1.0/24", "10.0.1.128/25"]);
        let (name, networks) = nodes.apply(&node("b", &["10.0.2.0/24"])).unwrap();
        assert_eq!((&*name, networks.len()), ("b", 2));
        let gone = Update::Delete(ObjectKey::Node("c".into()));
        assert!(nodes.apply(&gone).is_some());
        assert_eq!(nodes.apply(&gone), None);
        assert_eq!(shown(&nodes, "10.0.1.0/24"), "d=10.0.1.128/25");
    }
}
