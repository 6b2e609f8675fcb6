//! The address pools that a host takes from its Node object: which of the Node's networks are used, and since
//! when they are not known.
//!
//! A network that another node also has is not taken; one that is in use already stays in use. Networks stay in
//! use while the Node has none, is invalid or is gone. The last pools are saved in the state directory, so that a
//! restarted agent has them before any source is read. Never: allocates an address.

use crate::cluster_nodes::ClusterNodes;
use palisade_model::{Prefix, Str};
use palisade_sys::atomic_file::write_atomically;
use palisade_text::error_chain;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The name of the file in the state directory.
pub const POOLS_FILE: &str = "pools.json";

/// The schema this build writes.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolsDocument {
    schema: u32,
    node: Str,
    pools: Vec<Prefix>,
}

/// The pools of this host's Node.
#[derive(Debug)]
pub struct NodePools {
    path: PathBuf,
    is_read_only: bool,
    node: Str,
    pools: Vec<Prefix>,
    /// What is wrong with them, one sentence each.
    problems: Vec<String>,
    save_problem: Option<String>,
}

impl NodePools {
    /// Starts from what is saved in a state directory for the node of this name.
    pub fn restore(state_dir: &Path, node: Str, is_read_only: bool) -> Self {
        let path = state_dir.join(POOLS_FILE);
        let document: Option<PoolsDocument> = match palisade_sys::plain_file::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .inspect_err(|error| {
                    tracing::warn!(file = %path.display(), %error, "the saved address pools cannot be read; waiting for the Node");
                })
                .ok(),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(file = %path.display(), %error, "the saved address pools cannot be read; waiting for the Node");
                }
                None
            }
        };
        let saved = document.filter(|saved| saved.schema == SCHEMA && saved.node == node);
        let mut pools = NodePools {
            path,
            is_read_only,
            node,
            pools: saved.map_or(Vec::new(), |saved| saved.pools),
            problems: Vec::new(),
            save_problem: None,
        };
        if pools.pools.is_empty() {
            pools.problems = vec![pools.no_node()];
        }
        pools
    }

    /// The pools.
    pub fn pools(&self) -> &[Prefix] {
        &self.pools
    }

    /// What an administrator has to know, one sentence each.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        let all = self.problems.iter().chain(&self.save_problem);
        all.map(String::as_str)
    }

    fn no_node(&self) -> String {
        format!(
            "the address pools are those of the Node {}, which is not known",
            self.node
        )
    }

    /// Decides by the present nodes; returns whether the pools changed.
    pub fn update(&mut self, nodes: &ClusterNodes) -> bool {
        let consequence = if self.pools.is_empty() {
            "pods get no addresses until then"
        } else {
            "its former networks stay in use"
        };
        let Some(own) = nodes.own() else {
            self.problems = vec![format!("{}; {consequence}", self.no_node())];
            return false;
        };
        if own.pod_networks.is_empty() {
            let node = &self.node;
            self.problems = vec![format!("the Node {node} has no podCIDRs; {consequence}")];
            return false;
        }
        let (mut pools, mut problems) = (Vec::new(), Vec::new());
        for network in &own.pod_networks {
            let others = nodes.overlapping(*network).into_iter();
            let mut others = others.filter(|(_, name)| **name != self.node);
            let is_used = self.pools.contains(network);
            if let Some((other, name)) = others.next() {
                let node = &self.node;
                let outcome = if is_used {
                    "it stays in use here, so addresses may be given twice"
                } else {
                    "it is not used for pods"
                };
                problems.push(format!(
                    "the podCIDR {network} of the Node {node} overlaps {other} of {name}; {outcome}; \
                     correct one of the Nodes"
                ));
                if !is_used {
                    continue;
                }
            }
            pools.push(*network);
        }
        self.problems = problems;
        if pools.is_empty() || pools == self.pools {
            return false;
        }
        let shown: Vec<String> = pools.iter().map(Prefix::to_string).collect();
        tracing::info!(node = %self.node, pools = %shown.join(","), "address pools taken from the Node");
        self.pools = pools;
        self.save();
        true
    }

    fn save(&mut self) {
        if self.is_read_only {
            return;
        }
        let document = PoolsDocument {
            schema: SCHEMA,
            node: self.node.clone(),
            pools: self.pools.clone(),
        };
        let text = serde_json::to_vec_pretty(&document).unwrap_or_default();
        let saved = write_atomically(&self.path, &text);
        self.save_problem = saved.err().map(|error| {
            format!(
                "saving the address pools failed ({}): after a restart pods get no addresses until the Node is \
                 known",
                error_chain(&error)
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_generators::line;
    use palisade_model::{Object, ObjectKey, Update};

    fn node(name: &str, networks: &[&str]) -> Update {
        Update::Upsert(Object::Node(line::node(name, networks)))
    }

    fn shown(pools: &NodePools) -> String {
        let shown: Vec<String> = pools.pools().iter().map(Prefix::to_string).collect();
        shown.join(" ")
    }

    fn problems(pools: &NodePools) -> String {
        pools.problems().collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn pools_follow_the_node_and_outlive_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut nodes = ClusterNodes::new("a".into());
        let restore = || NodePools::restore(dir.path(), "a".into(), false);
        let mut pools = restore();
        assert!(problems(&pools).contains("the Node a, which is not known"));
        nodes.apply(&node("a", &[]));
        assert!(!pools.update(&nodes));
        assert_eq!(
            problems(&pools),
            "the Node a has no podCIDRs; pods get no addresses until then"
        );
        nodes.apply(&node("a", &["10.0.0.0/24", "fd00::/64"]));
        assert!(pools.update(&nodes) && !pools.update(&nodes));
        assert_eq!(
            (shown(&pools), problems(&pools)),
            ("10.0.0.0/24 fd00::/64".into(), String::new())
        );
        // A new network of another node's is not taken; the others are.
        nodes.apply(&node("b", &["10.0.1.0/24"]));
        nodes.apply(&node("a", &["10.0.1.0/25", "10.0.2.0/24"]));
        assert!(pools.update(&nodes));
        assert_eq!(shown(&pools), "10.0.2.0/24");
        assert!(problems(&pools).contains("10.0.1.0/25 of the Node a overlaps 10.0.1.0/24 of b"));
        // One that is in use stays.
        nodes.apply(&node("b", &["10.0.0.0/8"]));
        assert!(!pools.update(&nodes));
        assert!(problems(&pools).contains("it stays in use here"));
        nodes.apply(&Update::Delete(ObjectKey::Node("a".into())));
        assert!(!pools.update(&nodes));
        assert_eq!(shown(&pools), "10.0.2.0/24");
        assert_eq!(shown(&restore()), "10.0.2.0/24", "saved");
        let other = NodePools::restore(dir.path(), "z".into(), false);
        assert_eq!(shown(&other), "", "those of another node");
    }
}
