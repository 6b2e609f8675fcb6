//! Which Pod a container is of, and on which node: both decide what it may send.

use super::{HOST_ADDRESSES, NodeId, ProbeFlow, World, address, need_root, probe};
use crate::agent::Agent;
use palisade_testkit::lab::OUTSIDE_ADDRESSES;
use serde_json::json;
use std::net::IpAddr;

const PORT: u16 = 8080;
/// The addresses of the other node, of both families.
const OTHER_NODE: [IpAddr; 2] = [OUTSIDE_ADDRESSES[0], OUTSIDE_ADDRESSES[4]];

/// A Pod of namespace shop.
struct Pod<'a> {
    name: &'a str,
    app: &'a str,
    uid: &'a str,
    node: Option<&'a str>,
    addresses: &'a [&'a str],
}

impl Pod<'_> {
    fn manifest(&self) -> String {
        let ips: Vec<_> = self
            .addresses
            .iter()
            .map(|ip| json!({ "ip": ip }))
            .collect();
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": self.name, "namespace": "shop", "uid": self.uid,
                "labels": { "app": self.app } },
            "spec": {}, "status": { "podIPs": ips } });
        if let Some(node) = self.node {
            pod["spec"]["nodeName"] = node.into();
        }
        pod.to_string()
    }
}

/// The Nodes: that of this host, and one whose name sorts before it.
fn nodes() -> String {
    let node = |name: &str, addresses: [&str; 2]| {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({ "type": "InternalIP", "address": address }))
            .collect();
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": { "addresses": addresses } })
    };
    let own = node(
        "n1",
        HOST_ADDRESSES
            .map(|a| a.to_string())
            .each_ref()
            .map(|a| &**a),
    );
    let other = node(
        "a0",
        OTHER_NODE.map(|a| a.to_string()).each_ref().map(|a| &**a),
    );
    format!("{own}\n---\n{other}\n")
}

/// A policy of Cilium for every pod of the namespace.
fn cilium(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{endpointSelector: {{}}, {spec}}}}}\n"
    )
}

impl World {
    fn on_node() -> World {
        let agent = Agent::new().with(&["--node-name", "n1"]);
        let world = World::under(agent, "own-pod");
        world.agent.apply("nodes.yaml", &nodes());
        world
    }

    /// Attaches the container of a Pod of this UID.
    fn attach(&mut self, name: &str, uid: &str) -> (NodeId, super::Container, Vec<String>) {
        let (node, mut container) = self.sandbox(name);
        container.uid = Some(uid.to_owned());
        let addresses = self.runtime.add(&container);
        (node, container, addresses)
    }

    /// Whether a pod's TCP arrives at this host, and at the other node; families must agree.
    fn reaches(&self, (pod, addresses): (NodeId, &[String])) -> [bool; 2] {
        let to = [
            (HOST_ADDRESSES, self.lab.host()),
            (OTHER_NODE, self.lab.outside()),
        ];
        to.map(|(destinations, receiver)| {
            let pairs = addresses.iter().zip(destinations);
            let flows: Vec<ProbeFlow> = pairs
                .map(|(source, to)| {
                    ProbeFlow::tcp(pod, to, PORT, receiver).with_source(address(source))
                })
                .collect();
            self.lab.flush_conntrack().unwrap();
            let arrived = probe(&self.lab, &flows).unwrap();
            assert_eq!(arrived[0], arrived[1], "families differ: {flows:?}");
            arrived[0]
        })
    }
}

/// The own node is the agent's, whatever the Pods say, or none of them.
#[test]
fn the_own_node_is_that_of_the_agent() {
    if !need_root() {
        return;
    }
    let mut world = World::on_node();
    for (name, node) in [("unscheduled", None), ("scheduled", Some("n1"))] {
        let pod = Pod {
            name,
            app: "web",
            uid: name,
            node,
            addresses: &[],
        };
        world.agent.apply(&format!("{name}.json"), &pod.manifest());
        let (pod, _, addresses) = world.attach(name, name);
        let pod = (pod, &*addresses);
        for (what, spec, expected) in [
            ("nothing", "ingress: [{}]", [true, true]),
            (
                "denies host",
                "egressDeny: [{toEntities: [host]}], enableDefaultDeny: {egress: false}",
                [false, true],
            ),
            (
                "denies remote-node",
                "egressDeny: [{toEntities: [remote-node]}], enableDefaultDeny: {egress: false}",
                [true, false],
            ),
            (
                "allows host",
                "egress: [{toEntities: [host]}]",
                [true, false],
            ),
            (
                "allows remote-node",
                "egress: [{toEntities: [remote-node]}]",
                [false, true],
            ),
            ("allows nodes", "egress: [{toNodes: [{}]}]", [false, true]),
            (
                "denies nodes",
                "egressDeny: [{toNodes: [{}]}], enableDefaultDeny: {egress: false}",
                [true, false],
            ),
        ] {
            world.agent.apply("policy.yaml", &cilium("p", spec));
            assert_eq!(world.reaches(pod), expected, "{name}: {what}");
        }
    }
}

/// A Pod of a container's name on another node, whose name sorts first, changes nothing for the container, for other
/// pods or for the host; and it is a peer by its own address.
#[test]
fn a_replacement_on_another_node_gives_the_container_nothing() {
    if !need_root() {
        return;
    }
    let mut world = World::on_node();
    let here = |name, app, uid| Pod {
        name,
        app,
        uid,
        node: Some("n1"),
        addresses: &[],
    };
    world
        .agent
        .apply("db-0.json", &here("db-0", "db", "old").manifest());
    world
        .agent
        .apply("web.json", &here("web", "web", "web").manifest());
    let (db, container, db_addresses) = world.attach("db-0", "old");
    let (web, _, web_addresses) = world.attach("web", "web");
    let deny = "egressDeny: [{toEntities: [host]}], enableDefaultDeny: {egress: false}";
    world.agent.apply("host.yaml", &cilium("host", deny));
    let from_db = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, \
                   spec: {podSelector: {matchLabels: {app: web}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}}";
    world.agent.apply("web-policy.yaml", from_db);
    let (db, web) = ((db, &*db_addresses), (web, &*web_addresses));
    let assert_judged = |world: &World, what: &str| {
        assert_eq!(world.reaches(db), [false, true], "{what}: db");
        assert_eq!(world.reaches(web), [false, true], "{what}: web");
        assert!(
            world.tcp(db, web, PORT),
            "{what}: db is a peer by its labels"
        );
    };
    assert_judged(&world, "before");
    let elsewhere = OTHER_NODE.map(|address| address.to_string());
    let elsewhere = elsewhere.each_ref().map(|address| &**address);
    let moved = Pod {
        name: "db-0",
        app: "other",
        uid: "new",
        node: Some("a0"),
        addresses: &elsewhere,
    };
    world.agent.apply("db-0.json", &moved.manifest());
    assert_judged(&world, "replaced");
    let endpoint = world.endpoint("db-0").unwrap();
    assert_eq!(endpoint["labels"], json!({"app": "db"}), "{endpoint:#}");
    assert_eq!(endpoint["state"], "Ready", "{endpoint:#}");
    // The replacement has the rights of its labels, at its address.
    let from_outside = |world: &World| {
        let outside = world.lab.outside();
        let flows: Vec<ProbeFlow> = web
            .1
            .iter()
            .map(|to| ProbeFlow::tcp(outside, address(to), PORT, web.0))
            .collect();
        world.lab.flush_conntrack().unwrap();
        probe(&world.lab, &flows).unwrap()
    };
    assert_eq!(from_outside(&world), [false, false]);
    let moved = Pod { app: "db", ..moved };
    world.agent.apply("db-0.json", &moved.manifest());
    assert_eq!(from_outside(&world), [true, true]);
    assert_judged(&world, "relabelled");
    // A container whose Pod is another one from the start is closed.
    world.runtime.ok("DEL", Some(&container));
    let again = world.lab.add_namespace("again", Vec::new()).unwrap();
    let mut container = super::Container::of_pod(&world.lab, again, "c-again", "db-0");
    container.uid = Some("old".to_owned());
    let addresses = world.runtime.add(&container);
    let endpoint = world.endpoint("db-0").unwrap();
    assert_eq!(endpoint["state"], "Closed", "{endpoint:#}");
    let reason = endpoint["reason"].as_str().unwrap();
    assert!(reason.contains("another UID"), "{endpoint:#}");
    assert_eq!(world.reaches((again, &*addresses)), [false, false]);
    assert_eq!(world.findings(), [""; 0]);
}
