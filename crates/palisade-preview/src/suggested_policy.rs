//! A suggested policy without a dialect: who it selects, and which peers at which ports it allows.

use crate::workload_labels::LabelMap;
use palisade_model::{Direction, Prefix, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An end that a rule allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SuggestedPeer {
    /// Pods with these labels; with none, all of the namespace.
    Pods { namespace: String, labels: LabelMap },
    /// The addresses of a name.
    Name(String),
    /// A network.
    Network(Prefix),
    /// Every node.
    Nodes,
}

/// The traffic that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SuggestedTraffic {
    Port(Protocol, u16),
    Icmp(Protocol, u8, u8),
    Protocol(Protocol),
}

impl SuggestedTraffic {
    pub(crate) fn protocol(self) -> Protocol {
        match self {
            SuggestedTraffic::Port(protocol, _)
            | SuggestedTraffic::Icmp(protocol, ..)
            | SuggestedTraffic::Protocol(protocol) => protocol,
        }
    }

    /// Whether it is a DNS query, as far as a port can say.
    pub(crate) fn is_dns(self) -> bool {
        matches!(
            self,
            SuggestedTraffic::Port(Protocol::UDP | Protocol::TCP, 53)
        )
    }
}

/// Peers, and the traffic that each of them may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SuggestedRule {
    pub(crate) peers: BTreeSet<SuggestedPeer>,
    pub(crate) traffic: BTreeSet<SuggestedTraffic>,
}

/// The policy of one workload. It isolates the workload in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SuggestedPolicy {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: LabelMap,
    pub(crate) ingress: Vec<SuggestedRule>,
    pub(crate) egress: Vec<SuggestedRule>,
}

impl SuggestedPolicy {
    pub(crate) fn rules(&self, direction: Direction) -> &[SuggestedRule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    /// Whether a rule names addresses by a domain name.
    pub(crate) fn has_names(&self) -> bool {
        let mut peers = self.egress.iter().flat_map(|rule| &rule.peers);
        peers.any(|peer| matches!(peer, SuggestedPeer::Name(_)))
    }
}

/// The traffic of each peer, collected flow by flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerTraffic(BTreeMap<SuggestedPeer, BTreeSet<SuggestedTraffic>>);

impl PeerTraffic {
    pub(crate) fn add(&mut self, peer: SuggestedPeer, traffic: SuggestedTraffic) {
        self.0.entry(peer).or_default().insert(traffic);
    }

    /// The same with the addresses of names in the place of the names; `None` if a name has no known address.
    pub(crate) fn without_names(
        self,
        addresses: &BTreeMap<String, BTreeSet<IpAddr>>,
    ) -> Option<Self> {
        let mut traffic = PeerTraffic::default();
        for (peer, items) in self.0 {
            let SuggestedPeer::Name(name) = &peer else {
                traffic.0.entry(peer).or_default().extend(items);
                continue;
            };
            for address in addresses.get(name)? {
                let network = SuggestedPeer::Network(Prefix::host(*address));
                traffic
                    .0
                    .entry(network)
                    .or_default()
                    .extend(items.iter().copied());
            }
        }
        Some(traffic)
    }

    /// Whether it has DNS to pods, whose answers can be read.
    pub(crate) fn has_dns(&self) -> bool {
        self.0.iter().any(|(peer, traffic)| {
            matches!(peer, SuggestedPeer::Pods { .. }) && traffic.iter().any(|item| item.is_dns())
        })
    }

    /// One rule for all peers with the same traffic, with networks merged where that is exact.
    pub(crate) fn into_rules(self) -> Vec<SuggestedRule> {
        let mut by_traffic: BTreeMap<BTreeSet<SuggestedTraffic>, BTreeSet<SuggestedPeer>> =
            BTreeMap::new();
        for (peer, traffic) in self.0 {
            by_traffic.entry(traffic).or_default().insert(peer);
        }
        let rules = by_traffic
            .into_iter()
            .map(|(traffic, peers)| SuggestedRule {
                peers: merge_networks(peers),
                traffic,
            });
        let mut rules: Vec<SuggestedRule> = rules.collect();
        rules.sort();
        rules
    }
}

/// Replaces two halves of a network by it, as long as there are some.
fn merge_networks(peers: BTreeSet<SuggestedPeer>) -> BTreeSet<SuggestedPeer> {
    let (networks, mut merged): (BTreeSet<SuggestedPeer>, BTreeSet<SuggestedPeer>) = peers
        .into_iter()
        .partition(|peer| matches!(peer, SuggestedPeer::Network(_)));
    let mut networks: BTreeSet<Prefix> = networks
        .into_iter()
        .filter_map(|peer| match peer {
            SuggestedPeer::Network(network) => Some(network),
            _ => None,
        })
        .collect();
    loop {
        let pair = networks.iter().find_map(|network| {
            let parent = network.parent()?;
            let sibling = networks.iter().find(|other| {
                *other != network && other.length() == network.length() && parent.covers(**other)
            })?;
            Some((parent, *network, *sibling))
        });
        let Some((parent, one, other)) = pair else {
            break;
        };
        networks.remove(&one);
        networks.remove(&other);
        networks.insert(parent);
    }
    merged.extend(networks.into_iter().map(SuggestedPeer::Network));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_merged_only_where_it_is_exact() {
        let mut traffic = PeerTraffic::default();
        let https = SuggestedTraffic::Port(Protocol::TCP, 443);
        for address in [
            "192.0.2.0/32",
            "192.0.2.1/32",
            "192.0.2.2/32",
            "192.0.2.4/32",
        ] {
            traffic.add(SuggestedPeer::Network(address.parse().unwrap()), https);
        }
        let other = SuggestedTraffic::Port(Protocol::TCP, 80);
        traffic.add(
            SuggestedPeer::Network("192.0.2.5/32".parse().unwrap()),
            other,
        );
        let rules = traffic.into_rules();
        let shown: Vec<String> = rules
            .iter()
            .map(|rule| format!("{:?}", rule.peers))
            .collect();
        assert_eq!(rules.len(), 2);
        let merged = ["192.0.2.0/31", "192.0.2.2/32", "192.0.2.4/32"];
        assert!(merged.iter().all(|net| shown[0].contains(net)), "{shown:?}");
        assert!(shown[1].contains("192.0.2.5/32"), "{shown:?}");
    }
}
