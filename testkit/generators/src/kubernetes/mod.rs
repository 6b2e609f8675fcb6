//! Random small clusters as Kubernetes objects, and flows through them.
//!
//! A [`ClusterWorld`] holds objects as a cluster would have accepted them and the flows to judge there. It
//! says of every object which features of the API it uses, so that a run can count what it tried.

mod calico;
mod cilium;
mod features;
mod flow;
mod names;
mod pod;
mod policy;
mod policy_api;

pub use super::address::NODE;
pub use calico::CALICO_FEATURES;
pub use cilium::CILIUM_FEATURES;
pub use features::FEATURES;
pub use policy_api::POLICY_API_FEATURES;

use super::{Dice, address};
use crate::audit;
use crate::encapsulation::TunnelGenerator;
use crate::naive;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Names of what a world tries, as they are printed.
pub type Features = BTreeSet<&'static str>;

/// An object, with the features it uses.
#[derive(Clone, Debug)]
pub struct GeneratedObject {
    /// The object, as its author would write it.
    pub object: Value,
    /// What it tries.
    pub features: Features,
}

/// A flow to judge, with the features it has.
#[derive(Clone, Debug)]
pub struct ClusterTrial {
    /// The flow.
    pub flow: naive::NaiveFlow,
    /// What it tries.
    pub features: Features,
}

/// A cluster, and flows through it.
#[derive(Clone, Debug)]
pub struct ClusterWorld {
    /// The objects, in the order of the manifests.
    pub made: Vec<GeneratedObject>,
    /// The flows.
    pub trials: Vec<ClusterTrial>,
}

impl ClusterWorld {
    /// The world of a case, with this many flows.
    #[must_use]
    pub fn generate(seed: u64, case: u64, flows: usize) -> ClusterWorld {
        let mut dice = Dice::new(seed, case);
        let mut made = namespaces(&mut dice);
        let pods = pod::pods(&mut dice);
        made.extend(pods.iter().cloned());
        made.extend(pod::bystanders(&mut dice));
        let count = dice.between(2, 7);
        made.extend((0..count).map(|n| policy::policy(&mut dice, &pods, n)));
        Self::with_flows(made, &mut dice, (seed, case), flows)
    }

    /// The world of a case with cluster-wide policies, beside fewer NetworkPolicies.
    #[must_use]
    pub fn generate_with_cluster_policies(seed: u64, case: u64, flows: usize) -> ClusterWorld {
        let mut dice = Dice::new(seed ^ 0x706f_6c69_6379_6170, case);
        let mut made = namespaces(&mut dice);
        let pods = pod::pods(&mut dice);
        made.extend(pods.iter().cloned());
        made.extend(policy_api::nodes(&mut dice));
        made.extend(policy_api::policies(&mut dice));
        let count = dice.between(0, 3);
        made.extend((0..count).map(|n| policy::policy(&mut dice, &pods, n)));
        names::add(seed, case, &mut made);
        let mut world = Self::with_flows(made, &mut dice, (seed, case), flows);
        let nodes: Vec<IpAddr> = (world.made.iter())
            .filter(|made| made.object["kind"] == "Node")
            .filter_map(|made| made.object["status"]["addresses"].as_array())
            .flatten()
            .filter_map(|entry| entry["address"].as_str()?.parse().ok())
            .collect();
        for trial in &mut world.trials {
            if nodes.contains(&trial.flow.destination) {
                trial.features.insert("flow: to a node");
            }
        }
        world
    }

    /// The world of a case with Cilium's policies, beside policies of the other dialects.
    #[must_use]
    pub fn generate_with_cilium_policies(seed: u64, case: u64, flows: usize) -> ClusterWorld {
        let mut dice = Dice::new(seed ^ 0x0063_696c_6975_6d31, case);
        let mut made = namespaces(&mut dice);
        let mut pods = pod::pods(&mut dice);
        cilium::join_nodes(&mut dice, &mut pods);
        made.extend(pods.iter().cloned());
        made.extend(cilium::inventory(&mut dice, &pods));
        made.extend(cilium::policies(&mut dice, &pods));
        if dice.chance(25) {
            made.extend(policy_api::policies(&mut dice));
        }
        let count = dice.between(0, 2);
        made.extend((0..count).map(|n| policy::policy(&mut dice, &pods, n)));
        let mut of_nodes = Dice::new(seed ^ 0x6e6f_6465_5f31, case);
        made.extend(cilium::node_policies(&mut of_nodes, 75));
        names::add(seed, case, &mut made);
        let mut world = Self::with_flows(made, &mut dice, (seed, case), flows);
        cilium::lead_flows(&mut of_nodes, &mut world);
        cilium::add_traffic_features(&mut world);
        world
    }

    /// The world of a case with Calico's policies, beside policies of all the other dialects.
    #[must_use]
    pub fn generate_with_calico_policies(seed: u64, case: u64, flows: usize) -> ClusterWorld {
        let mut dice = Dice::new(seed ^ 0x0063_616c_6963_6f31, case);
        let mut made = namespaces(&mut dice);
        let mut pods = pod::pods(&mut dice);
        cilium::join_nodes(&mut dice, &mut pods);
        calico::vary_workloads(&mut dice, &mut pods);
        made.extend(pods.iter().cloned());
        made.extend(cilium::inventory(&mut dice, &pods));
        calico::vary_slice_ports(&mut dice, &mut made);
        made.extend(calico::inventory(&mut dice));
        made.extend(calico::policies(&mut dice, &pods));
        if dice.chance(30) {
            let count = dice.between(1, 2);
            made.extend((0..count).map(|n| cilium::policy(&mut dice, &pods, n)));
        }
        if dice.chance(25) {
            made.extend(policy_api::policies(&mut dice));
        }
        let count = *dice.pick(&[0, 0, 1, 2]);
        made.extend((0..count).map(|n| policy::policy(&mut dice, &pods, n)));
        let mut of_nodes = Dice::new(seed ^ 0x6e6f_6465_5f32, case);
        made.extend(cilium::node_policies(&mut of_nodes, 45));
        names::add(seed, case, &mut made);
        let mut world = Self::with_flows(made, &mut dice, (seed, case), flows);
        calico::refine_flows(&mut dice, &mut world);
        world
    }

    fn with_flows(
        mut made: Vec<GeneratedObject>,
        dice: &mut Dice,
        (seed, case): (u64, u64),
        flows: usize,
    ) -> ClusterWorld {
        dice.shuffle(&mut made);
        audit::annotate(&mut made, seed, case);
        let mut tunnels = TunnelGenerator::new(seed, case);
        let trials = (0..flows).map(|_| flow::trial(dice, &made));
        let trials = trials.map(|mut trial| {
            if let Some((protocol, port)) = tunnels.draw(&mut trial.features) {
                trial.flow.protocol = protocol;
                trial.flow.ports = port.map(|port| (41_000, port));
                trial.flow.icmp = None;
            }
            trial
        });
        let trials = trials.collect();
        ClusterWorld { made, trials }
    }

    /// What a flow tries here: what it is itself, and what is said by the pods at its ends and by
    /// the policies that isolate them for it.
    #[must_use]
    pub fn tried_features(&self, trial: &ClusterTrial, reading: &naive::NaiveReading) -> Features {
        let ends = [trial.flow.source, trial.flow.destination];
        let mut features = trial.features.clone();
        let mut has_node_policy = false;
        for (index, made) in self.made.iter().enumerate() {
            // A pod that only looks as if it held the address has a say by not having one.
            let at_an_end = || {
                let held = naive::addresses(&made.object);
                naive::is_workload(&made.object) && ends.iter().any(|end| held.contains(end))
            };
            if reading.used.contains(&index) || at_an_end() {
                features.extend(&made.features);
            }
            if reading.used.contains(&index) && made.object["kind"] == "HostEndpoint" {
                features.insert("host endpoint decides");
            }
            if reading.used.contains(&index) && made.object["kind"] == "Node" {
                features.insert("node endpoint decides");
            }
            if reading.used.contains(&index) && cilium::is_node_policy(&made.object) {
                has_node_policy = true;
            }
            let is_it = made.object["apiVersion"] == "networking.k8s.io/v1";
            if reading.used.contains(&index) && is_it {
                features.insert(ISOLATED);
            }
        }
        if has_node_policy && features.contains("host endpoint decides") {
            features.insert("host endpoint with a policy of nodes");
        }
        features
    }

    /// The objects alone.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        self.made.iter().map(|made| made.object.clone()).collect()
    }
}

/// What a flow tries that a NetworkPolicy decides.
const ISOLATED: &str = "isolated by NetworkPolicy";

pub(super) const NAMESPACES: [&str; 3] = ["shop", "stock", "default"];

/// Label keys with the values they take.
pub(super) const LABELS: [(&str, &[&str]); 3] = [
    ("app", &["web", "db", "api"]),
    ("tier", &["front", "true", "1"]),
    ("example.com/role", &["", "web"]),
];

pub(super) const NAMESPACE_LABELS: [(&str, &[&str]); 2] =
    [("team", &["a", "b"]), ("env", &["prod", "no"])];

fn namespaces(dice: &mut Dice) -> Vec<GeneratedObject> {
    let mut all = Vec::new();
    for name in NAMESPACES {
        if dice.chance(12) {
            continue;
        }
        let mut labels = some_labels(dice, &NAMESPACE_LABELS, 65);
        if dice.chance(40) {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
        let mut metadata = json!({ "name": name });
        if !labels.is_empty() || dice.chance(50) {
            metadata["labels"] = Value::Object(labels);
        }
        all.push(GeneratedObject {
            object: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
            features: Features::new(),
        });
    }
    all
}

/// Each key with this chance, at a value of its own.
pub(super) fn some_labels(
    dice: &mut Dice,
    of: &[(&str, &[&str])],
    percent: u32,
) -> Map<String, Value> {
    let mut labels = Map::new();
    for (key, values) in of {
        if dice.chance(percent) {
            labels.insert((*key).to_owned(), (*dice.pick(values)).into());
        }
    }
    labels
}

/// The metadata of a namespaced object; what lives in `default` sometimes leaves that out.
pub(super) fn metadata(
    dice: &mut Dice,
    namespace: &str,
    name: &str,
    features: &mut Features,
) -> Value {
    let mut metadata = json!({ "name": name });
    if namespace == "default" && dice.chance(50) {
        features.insert("namespace left out");
    } else {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

#[cfg(test)]
mod tests;
