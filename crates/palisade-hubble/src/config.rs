//! What the service is told about its host and its cluster.
//!
//! Promises: nothing here is read from the environment.
//!
//! Never: finds out by itself.

use palisade_flows::agent_event::AgentEvent;
use palisade_flows::recent::RecentLines;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time since the epoch.
pub type HubbleClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What the service needs.
#[derive(Clone)]
pub struct HubbleConfig {
    /// The name of this node.
    pub node: String,
    /// The labels of this node, as `key=value`.
    pub node_labels: Vec<String>,
    /// The name of the cluster; `default` where it has none.
    pub cluster: String,
    /// The version that clients are told.
    pub version: String,
    /// The flows.
    pub lines: RecentLines,
    /// The events of the agent.
    pub events: RecentLines<AgentEvent>,
    /// The nodes that serve this API, without this one.
    pub peers: watch::Receiver<Vec<HubblePeer>>,
    /// This node, as its peers reach it; absent if only this host is served.
    pub own: Option<HubblePeer>,
    /// When this process started, since the epoch: with the node it tells identifiers of flows from those of others.
    pub started: Duration,
    /// The time.
    pub clock: HubbleClock,
}

/// A node that serves Hubble's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HubblePeer {
    /// Its name.
    pub node: String,
    /// Where it is reached: address and port.
    pub address: String,
    /// Whether it is reached by TLS, and its certificate is for `NODE.CLUSTER.hubble-grpc.cilium.io`.
    pub tls: bool,
}

/// The name of the cluster where no name was given.
pub(crate) const DEFAULT_CLUSTER: &str = "default";

impl HubbleConfig {
    /// The name of this node as flows have it: always with the cluster.
    pub(crate) fn absolute_node(&self) -> String {
        format!("{}/{}", self.cluster, self.node)
    }

    /// The name of a peer: with the cluster, unless that is the default one.
    pub(crate) fn peer_name(&self, node: &str) -> String {
        if self.cluster == DEFAULT_CLUSTER {
            node.to_owned()
        } else {
            format!("{}/{node}", self.cluster)
        }
    }

    /// The name that a peer's certificate is for.
    pub(crate) fn tls_name(&self, node: &str) -> String {
        let one_label = |name: &str| name.replace('.', "-");
        format!(
            "{}.{}.hubble-grpc.cilium.io",
            one_label(node),
            one_label(&self.cluster)
        )
    }
}
