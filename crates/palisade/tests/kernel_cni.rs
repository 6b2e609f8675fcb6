//! The CNI plugin as a runtime drives it: containers come and go, and policy holds from the first
//! packet on.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: other programs are its witnesses, real time its measure, a panic its verdict"
)]

mod agent;
mod plugin;

use agent::shop::{FROM_WEB_8080, address, policy};
use agent::{Agent, ip, nft};
use palisade_testkit::lab::{Flow, Lab, NodeId, probe};
use palisade_testkit::need_root;
use plugin::{Container, Runtime, addresses, pod};
use serde_json::{Value, json};
use std::path::Path;

/// A lab, an agent in it, and a runtime.
struct World {
    agent: Agent,
    lab: Lab,
    runtime: Runtime,
}

impl World {
    fn open(name: &str) -> Self {
        World::under(Agent::new(), name)
    }

    fn under(mut agent: Agent, name: &str) -> Self {
        let lab = Lab::new(name).unwrap();
        agent.start(&lab);
        let runtime = Runtime::new(&agent);
        World {
            agent,
            lab,
            runtime,
        }
    }

    /// A namespace with the sandbox of a pod to be, which is called as the pod.
    fn sandbox(&mut self, name: &str) -> (NodeId, Container) {
        let node = self.lab.namespace(name, Vec::new()).unwrap();
        let container = Container::of_pod(&self.lab, node, &format!("c-{name}"), name);
        (node, container)
    }

    /// The same, attached, with labels from its Pod; and its addresses.
    fn pod(&mut self, name: &str) -> (NodeId, Container, Vec<String>) {
        self.agent.apply(&format!("{name}.yaml"), &pod(name, name));
        let (node, container) = self.sandbox(name);
        let addresses = self.runtime.add(&container);
        (node, container, addresses)
    }

    fn endpoint(&self, name: &str) -> Option<Value> {
        let list = self.agent.json(&["endpoint", "list"]);
        let all = list["endpoints"].as_array().unwrap();
        all.iter().find(|e| e["name"] == name).cloned()
    }

    /// Whether TCP arrives, each of both families; they must agree.
    fn tcp(&self, from: (NodeId, &[String]), to: (NodeId, &[String]), port: u16) -> bool {
        let flows: Vec<Flow> = from
            .1
            .iter()
            .zip(to.1)
            .map(|(source, destination)| {
                Flow::tcp(from.0, address(destination), port, to.0).source(address(source))
            })
            .collect();
        self.lab.forget_flows().unwrap();
        let arrived = probe(&self.lab, &flows).unwrap();
        assert!(arrived.iter().all(|a| *a == arrived[0]), "{arrived:?}");
        arrived[0]
    }

    /// Everything on the host that can be a container's: links, routes, neighbours, dispatch.
    fn held(&self) -> Vec<String> {
        let host = self.lab.host();
        let mut held = Vec::new();
        let links = ip(&self.lab, host, &["-br", "link"]);
        let ours = links.lines().filter(|line| line.starts_with("pal"));
        held.extend(ours.map(str::to_owned));
        for args in [&["-4", "route"][..], &["-6", "route"], &["neigh"]] {
            let text = ip(&self.lab, host, args);
            let ours = text.lines().filter(|line| line.contains("dev pal"));
            held.extend(ours.map(str::to_owned));
        }
        for set in [
            "set inet palisade p_if_ours",
            "map inet palisade p_pt4_e",
            "map inet palisade p_pt6_i",
        ] {
            let text = nft(&self.lab, &format!("list {set}"));
            let ours = text.lines().filter(|line| line.contains("\"pal"));
            held.extend(ours.map(str::to_owned));
        }
        let file = self.agent.state().join("workloads.json");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        held.extend(
            text.lines()
                .filter(|l| l.contains("\"netns\""))
                .map(str::to_owned),
        );
        held
    }
}

#[test]
fn a_container_is_attached_checked_and_detached() {
    if !need_root() {
        return;
    }
    let mut world = World::open("cni");
    let (web, web_container, web_addresses) = world.pod("web");
    let (api, api_container, api_addresses) = world.pod("api");
    let from = (web, &*web_addresses);
    let to = (api, &*api_addresses);
    assert!(world.tcp(from, to, 22), "open without policy");
    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(world.tcp(from, to, 8080) && !world.tcp(from, to, 22));
    assert!(world.tcp(to, from, 22), "web is not isolated");

    let result = world.runtime.ok("ADD", Some(&api_container));
    assert_eq!(addresses(&result), api_addresses, "asked again");
    assert_eq!(result["interfaces"][1]["name"], "eth0");
    assert_eq!(
        result["interfaces"][1]["sandbox"],
        json!(api_container.netns)
    );
    let inside = ip(&world.lab, api, &["-o", "link", "show", "eth0"]);
    assert!(inside.contains(result["interfaces"][1]["mac"].as_str().unwrap()));

    let checking = world.runtime.with("prevResult", result.clone());
    checking.ok("CHECK", Some(&api_container));
    let interface = result["interfaces"][0]["name"].as_str().unwrap();
    assert_eq!(world.endpoint("api").unwrap()["interface"], interface);

    for _ in 0..2 {
        world.runtime.ok("DEL", Some(&api_container));
        assert!(world.endpoint("api").is_none());
    }
    let (code, said) = checking.refused("CHECK", Some(&api_container));
    assert_eq!(code, 3, "{said}");
    world.runtime.ok("DEL", Some(&web_container));
    assert_eq!(world.held(), [""; 0]);
    assert_eq!(world.agent.status()["health"], "ready");
}

#[test]
fn a_deletion_while_no_agent_runs_is_carried_out_when_one_does() {
    if !need_root() {
        return;
    }
    let mut world = World::open("queue");
    let (_, container, _) = world.pod("web");
    world.agent.kill();
    let (code, said) = world.runtime.refused("ADD", Some(&container));
    assert_eq!(code, 11, "{said}");
    let (code, said) = world.runtime.refused("STATUS", None);
    assert_eq!(code, 50, "{said}");
    for _ in 0..2 {
        world.runtime.ok("DEL", Some(&container));
    }
    let waiting = |world: &World| {
        let names = std::fs::read_dir(world.agent.state().join("cni-queue")).unwrap();
        let names = names.map(|entry| entry.unwrap().path());
        names
            .filter(|p: &std::path::PathBuf| p.extension() == Some(Path::new("json").as_os_str()))
            .count()
    };
    assert_eq!(waiting(&world), 1);
    world.agent.start(&world.lab);
    world.runtime.ok("STATUS", None);
    assert_eq!(waiting(&world), 0);
    assert_eq!(world.held(), [""; 0]);
}

#[test]
fn a_container_whose_pod_is_not_known_is_closed_until_it_is() {
    if !need_root() {
        return;
    }
    let mut world = World::open("init");
    let (web, _, web_addresses) = world.pod("web");
    let (late, container) = world.sandbox("late");
    let late_addresses = world.runtime.add(&container);
    let endpoint = world.endpoint("late").unwrap();
    assert_eq!(endpoint["state"], "closed", "{endpoint:#}");
    assert_eq!(endpoint["labels"], json!({"reserved:init": ""}));
    let (from, to) = ((web, &*web_addresses), (late, &*late_addresses));
    assert!(!world.tcp(from, to, 80) && !world.tcp(to, from, 80));
    world.agent.apply("late.yaml", &pod("late", "late"));
    let endpoint = world.endpoint("late").unwrap();
    assert_eq!(endpoint["state"], "ready", "{endpoint:#}");
    assert_eq!(endpoint["labels"], json!({"app": "late"}));
    assert!(world.tcp(from, to, 80) && world.tcp(to, from, 80));
    world.agent.delete("late.yaml");
    assert_eq!(world.endpoint("late").unwrap()["state"], "closed");
    assert!(!world.tcp(from, to, 80) && !world.tcp(to, from, 80));
}

#[test]
fn a_new_container_of_a_pod_takes_the_place_of_the_old() {
    if !need_root() {
        return;
    }
    let mut world = World::open("again");
    let (web, _, web_addresses) = world.pod("web");
    let (_, old, _) = world.pod("api");
    let node = world.lab.namespace("second", Vec::new()).unwrap();
    let new = Container::of_pod(&world.lab, node, "c-second", "api");
    let new_addresses = world.runtime.add(&new);
    let (from, to) = ((web, &*web_addresses), (node, &*new_addresses));
    assert!(world.tcp(from, to, 80));
    world.runtime.ok("DEL", Some(&old));
    assert!(
        world.tcp(from, to, 80),
        "the old one's end is not the new one's"
    );
    assert_eq!(world.endpoint("api").unwrap()["state"], "ready");
}
