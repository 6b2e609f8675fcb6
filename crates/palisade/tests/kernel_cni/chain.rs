//! Chained after another plugin: policy on an interface that is somebody else's.

use crate::World;
use crate::agent::ip;
use crate::agent::shop::{FROM_WEB_8080, policy};
use crate::plugin::{Container, pod};
use palisade_testkit::lab::{NodeId, PodSpec};
use palisade_testkit::need_root;
use serde_json::{Value, json};

const ADDRESSES: [&str; 2] = ["10.88.0.9", "fd88::9"];

/// What a plugin that routes would have answered for a pod of the lab.
fn previous(container: &Container, host: &str) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": host, "mac": "02:00:00:00:00:09"},
            {"name": "eth0", "sandbox": container.netns},
        ],
        "ips": [
            {"interface": 1, "address": format!("{}/32", ADDRESSES[0])},
            {"interface": 1, "address": format!("{}/128", ADDRESSES[1])},
        ],
        "dns": {"nameservers": ["10.0.0.53"]},
    })
}

/// A pod whose interfaces another plugin made.
fn made_by_another(world: &mut World, name: &str, host: &str) -> (NodeId, Container) {
    let node = world.lab.pod(PodSpec::new(name, host, &ADDRESSES)).unwrap();
    let container = Container::of_pod(&world.lab, node, &format!("c-{name}"), name);
    (node, container)
}

#[test]
fn policy_is_added_to_what_another_plugin_made_and_nothing_else_changes() {
    if !need_root() {
        return;
    }
    let mut world = World::open("chain");
    let (web, _, web_addresses) = world.pod("web");
    world.agent.apply("api.yaml", &pod("api", "api"));
    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    let (api, container) = made_by_another(&mut world, "api", "theirs0");
    let own = ADDRESSES.map(str::to_owned);
    let (from, to) = ((web, &*web_addresses), (api, &own[..]));
    let host = world.lab.host();
    let state = |world: &World| {
        let host_side = ip(&world.lab, host, &["-d", "addr", "show", "theirs0"]);
        let routes = [["-4", "route"], ["-6", "route"]].map(|args| ip(&world.lab, host, &args));
        let theirs = |text: &String| {
            let lines = text.lines().filter(|line| line.contains("theirs0"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let inside = ip(&world.lab, api, &["addr", "show", "eth0"]);
        (
            host_side,
            routes.iter().map(theirs).collect::<Vec<_>>(),
            inside,
        )
    };
    let untouched = state(&world);
    assert!(world.tcp(from, to, 22), "nobody judges it yet");

    let previous = previous(&container, "theirs0");
    let chained = world.runtime.with("prevResult", previous.clone());
    assert_eq!(chained.ok("ADD", Some(&container)), previous, "passed on");
    assert_eq!(chained.ok("ADD", Some(&container)), previous, "asked again");
    assert!(world.tcp(from, to, 8080) && !world.tcp(from, to, 22));
    assert_eq!(state(&world), untouched);
    chained.ok("CHECK", Some(&container));
    assert_eq!(world.findings(), [""; 0]);

    world.agent.kill();
    assert!(!world.tcp(from, to, 22), "without an agent as well");
    world.agent.start(&world.lab);
    assert!(world.tcp(from, to, 8080) && !world.tcp(from, to, 22));

    for _ in 0..2 {
        chained.ok("DEL", Some(&container));
    }
    assert_eq!(state(&world), untouched);
    assert!(world.tcp(from, to, 22), "nobody judges it any more");
    assert!(world.endpoint("api").is_none());
    assert_eq!(world.findings(), [""; 0]);
}

#[test]
fn what_cannot_be_judged_is_refused() {
    if !need_root() {
        return;
    }
    let mut world = World::open("port");
    world.agent.apply("api.yaml", &pod("api", "api"));
    let (_, container) = made_by_another(&mut world, "api", "theirs0");
    let host = world.lab.host();
    let refused = |world: &World, previous: Value| {
        let chained = world.runtime.with("prevResult", previous);
        chained.refused("ADD", Some(&container)).1
    };
    let gone = refused(&world, previous(&container, "nowhere0"));
    assert!(gone.contains("nowhere0 is gone"), "{gone}");
    let foreign = refused(&world, previous(&container, "out0"));
    assert!(foreign.contains("out0 is not the workload's"), "{foreign}");
    ip(
        &world.lab,
        host,
        &["link", "add", "bridge0", "type", "bridge"],
    );
    ip(
        &world.lab,
        host,
        &["link", "set", "theirs0", "master", "bridge0"],
    );
    let port = refused(&world, previous(&container, "theirs0"));
    assert!(port.contains("is a port of bridge0"), "{port}");
    assert!(world.endpoint("api").is_none());
    assert_eq!(world.findings(), [""; 0]);
}
