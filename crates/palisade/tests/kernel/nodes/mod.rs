//! Nodes of a cluster: a host takes its address pools from its Node object, and has routes to the pods of the
//! other nodes.

mod routes;

use crate::agent::Agent;
use crate::agent::shop::address;
use crate::plugin::{Container, Runtime, pod};
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use serde_json::Value;

/// The manifest of a Node with these networks and internal addresses.
fn node(name: &str, networks: &[&str], addresses: &[&str]) -> String {
    let addresses: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{type: InternalIP, address: \"{address}\"}}"))
        .collect();
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{podCIDRs: {networks:?}}}\n\
         status: {{addresses: [{}]}}\n",
        addresses.join(", ")
    )
}

/// An agent with the pools of the Node n1, and a runtime.
struct World {
    agent: Agent,
    lab: Lab,
    runtime: Runtime,
    conf: std::path::PathBuf,
}

impl World {
    fn open(name: &str) -> Self {
        let agent = Agent::new();
        let conf = agent.state().with_file_name("net.d");
        let mut agent = agent.with(&["--ipam-pool", "node", "--node-name", "n1"]);
        agent.more(&["--cni-conf-dir", conf.to_str().unwrap()]);
        agent.with_plugins();
        let lab = Lab::new(name).unwrap();
        agent.start(&lab);
        let runtime = Runtime::new(&agent);
        World {
            agent,
            lab,
            runtime,
            conf: conf.join("10-palisade.conflist"),
        }
    }

    fn sandbox(&mut self, name: &str) -> (NodeId, Container) {
        self.agent.apply(&format!("{name}.yaml"), &pod(name, name));
        let node = self.lab.add_namespace(name, Vec::new()).unwrap();
        let container = Container::of_pod(&self.lab, node, &format!("c-{name}"), name);
        (node, container)
    }

    fn add(&mut self, name: &str) -> Vec<String> {
        let (_, container) = self.sandbox(name);
        self.runtime.add(&container)
    }

    /// Writes the Node, and waits until the pools are these.
    fn put(&self, networks: &[&str], pools: &[&str]) -> Value {
        self.agent.write("n1.yaml", &node("n1", networks, &[]));
        self.agent.wait("the pools are in use", |status| {
            status["node"]["pools"] == serde_json::json!(pools)
        })
    }
}

fn reasons(status: &Value) -> String {
    status["reasons"].to_string()
}

#[test]
fn pools_come_from_the_node_and_follow_it() {
    if !need_root() {
        return;
    }
    let mut world = World::open("nodepool");
    let status = world.agent.wait("the missing Node is reported", |status| {
        reasons(status).contains("the Node n1, which is not known; pods get no addresses")
    });
    assert_eq!(status["node"]["name"], "n1", "{status:#}");
    assert!(!world.conf.exists(), "no CNI configuration without pools");
    let (_, early) = world.sandbox("early");
    let (code, message) = world.runtime.refused("ADD", Some(&early));
    assert_eq!(code, 11, "try again later: {message}");
    assert!(
        message.contains("the Node n1, which is not known"),
        "{message}"
    );

    let networks = ["10.91.1.0/24", "fd91:0:0:1::/64"];
    let status = world.put(&networks, &networks);
    assert_eq!(status["health"], "Ready", "{status:#}");
    assert!(
        world.conf.exists(),
        "the CNI configuration is written with the pools"
    );
    let first = world.runtime.add(&early);
    assert!(
        first[0].starts_with("10.91.1.") && first[1].starts_with("fd91:0:0:1:"),
        "{first:?}"
    );

    // New networks: for new pods only.
    let other = ["10.91.2.0/24", "fd91:0:0:2::/64"];
    world.put(&other, &other);
    let second = world.add("second");
    assert!(
        second[0].starts_with("10.91.2.") && second[1].starts_with("fd91:0:0:2:"),
        "{second:?}"
    );
    let ipam = world.agent.json(&["ipam", "list"]);
    let held: Vec<&str> = ipam["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|held| held["address"].as_str().unwrap())
        .collect();
    assert!(
        first.iter().all(|address| held.contains(&&**address)),
        "{ipam:#}"
    );
    let check = world.agent.json(&["ipam", "check"]);
    assert_eq!(check["findings"], serde_json::json!([]), "{check:#}");

    // What is no network, or overlaps, changes nothing.
    for wrong in [&["10.91.3.0/33"][..], &["10.91.3.0/24", "10.91.3.128/25"]] {
        world.agent.write("n1.yaml", &node("n1", wrong, &[]));
        let status = world.agent.wait("the invalid Node is reported", |status| {
            reasons(status).contains("spec.podCIDRs")
        });
        assert_eq!(
            status["node"]["pools"],
            serde_json::json!(other),
            "{status:#}"
        );
        world.put(&other, &other);
    }
    world
        .agent
        .write("n2.yaml", &node("n2", &["10.91.4.0/22"], &[]));
    world
        .agent
        .write("n1.yaml", &node("n1", &["10.91.5.0/24"], &[]));
    let status = world.agent.wait("the overlap is reported", |status| {
        reasons(status).contains("10.91.5.0/24 of the Node n1 overlaps 10.91.4.0/22 of n2")
    });
    assert_eq!(
        status["node"]["pools"],
        serde_json::json!(other),
        "{status:#}"
    );

    // Without the Node, and after a restart without it.
    std::fs::remove_file(world.agent.policy().join("n1.yaml")).unwrap();
    std::fs::remove_file(world.agent.policy().join("n2.yaml")).unwrap();
    world.agent.wait("the lost Node is reported", |status| {
        reasons(status).contains("the Node n1, which is not known; its former networks stay in use")
    });
    world.agent.kill();
    world.agent.start(&world.lab);
    assert_eq!(
        world.agent.status()["node"]["pools"],
        serde_json::json!(other)
    );
    let third = world.add("third");
    assert!(
        third[0].starts_with("10.91.2.") && third[0] != second[0],
        "{third:?}"
    );
    assert!(address(&third[1]).is_ipv6());
}
