//! Chained after another plugin: policy on an interface that another plugin owns.

use super::World;
use crate::agent::shop::{FROM_WEB_8080, policy};
use crate::agent::{ip, nft};
use crate::plugin::{Container, pod};
use palisade_testkit::lab::{NodeId, PodSpec};
use palisade_testkit::need_root;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ADDRESSES: [&str; 2] = ["10.88.0.9", "fd88::9"];

/// The result of a routing plugin for a pod of the lab.
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

/// A pod whose interfaces another plugin created.
fn made_by_another(world: &mut World, name: &str, host: &str) -> (NodeId, Container) {
    let node = world
        .lab
        .add_pod(PodSpec::new(name, host, &ADDRESSES))
        .unwrap();
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
        // The kernel itself ends the detection of duplicates some time after the link is up.
        let host_side = ip(&world.lab, host, &["-d", "addr", "show", "theirs0"]);
        let host_side = host_side.replace(" tentative", "");
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
    assert!(world.tcp(from, to, 22), "no policy applies yet");

    let previous = previous(&container, "theirs0");
    let chained = world.runtime.with("prevResult", previous.clone());
    assert_eq!(
        chained.ok("ADD", Some(&container)),
        previous,
        "prevResult unchanged"
    );
    assert_eq!(chained.ok("ADD", Some(&container)), previous, "second ADD");
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
    assert!(world.endpoint("api").is_none());
    let closed = |world: &World| !world.tcp(from, to, 22) && !world.tcp(from, to, 8080);
    assert!(closed(&world), "a detached interface that still exists");
    assert_eq!(world.findings(), [""; 0]);
    world.agent.kill();
    world.agent.start(&world.lab);
    assert!(closed(&world), "after a restart");
    world.agent.kill();
    std::fs::remove_file(world.agent.state().join("workloads.json")).unwrap();
    world.agent.start(&world.lab);
    // The conntrack entries of the sender are flushed as well; those of the lab's outside are not.
    let outside = world.lab.outside();
    let all = world.lab.addresses(outside);
    let one = |v4: bool| all.iter().find(|a| a.is_ipv4() == v4).unwrap().to_string();
    let addresses = [one(true), one(false)];
    let from = (outside, &addresses[..]);
    let closed = |world: &World| !world.tcp(from, to, 22) && !world.tcp(from, to, 8080);
    assert!(closed(&world), "after the loss of the agent's state");
    ip(
        &world.lab,
        host,
        &["link", "set", "theirs0", "name", "theirs1"],
    );
    until(&world, "followed", |names| {
        names.contains("theirs1") && !names.contains("theirs0")
    });
    assert!(closed(&world), "under another name");
    ip(&world.lab, host, &["link", "del", "theirs1"]);
    until(&world, "released", |names| !names.contains("theirs"));
    let other = Strangers::on(&mut world, "theirs1");
    assert!(other.reached(&world, from), "not managed by Palisade");
}

/// Waits until the set of interfaces with policy is as expected.
fn until(world: &World, what: &str, done: impl Fn(&str) -> bool) {
    let began = Instant::now();
    loop {
        let names = nft(&world.lab, "list set inet palisade p_if_ours");
        if done(&names) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: {names}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A namespace that Palisade does not manage, on an interface with this name.
struct Strangers {
    node: NodeId,
    addresses: [String; 2],
}

impl Strangers {
    fn on(world: &mut World, interface: &str) -> Self {
        let addresses = ["10.88.0.77", "fd88::77"];
        let spec = PodSpec::new("stranger", interface, &addresses);
        Strangers {
            node: world.lab.add_pod(spec).unwrap(),
            addresses: addresses.map(str::to_owned),
        }
    }

    fn reached(&self, world: &World, from: (NodeId, &[String])) -> bool {
        world.tcp(from, (self.node, &self.addresses[..]), 22)
    }
}

#[test]
fn an_interface_that_goes_without_a_deletion_leaves_its_name_to_others() {
    if !need_root() {
        return;
    }
    let mut world = World::open("vanish");
    let (web, _, web_addresses) = world.pod("web");
    world.agent.apply("api.yaml", &pod("api", "api"));
    let (api, container) = made_by_another(&mut world, "api", "theirs0");
    let chained = previous(&container, "theirs0");
    let chained = world.runtime.with("prevResult", chained);
    chained.ok("ADD", Some(&container));
    let own = ADDRESSES.map(str::to_owned);
    let (from, to) = ((web, &*web_addresses), (api, &own[..]));
    assert!(world.tcp(from, to, 22));
    let host = world.lab.host();
    // Under another name no policy would apply to it: its name is restored.
    ip(
        &world.lab,
        host,
        &["link", "set", "theirs0", "name", "renamed0"],
    );
    let names = || ip(&world.lab, host, &["-br", "link"]);
    let began = Instant::now();
    while !names().contains("theirs0") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", names());
        std::thread::sleep(Duration::from_millis(20));
    }
    until(&world, "policy applies again", |names| {
        names.contains("theirs0")
    });
    ip(&world.lab, host, &["link", "del", "theirs0"]);
    until(&world, "released", |names| !names.contains("theirs0"));
    assert_eq!(world.endpoint("api").unwrap()["state"], "Lost");
    let other = Strangers::on(&mut world, "theirs0");
    assert!(
        other.reached(&world, from),
        "not managed by Palisade: {} {:?}",
        nft(&world.lab, "list set inet palisade p_if_ours"),
        world.endpoint("api"),
    );
    // The runtime calls DEL eventually, and the stranger's interface stays open.
    chained.ok("DEL", Some(&container));
    assert!(world.endpoint("api").is_none());
    assert!(other.reached(&world, from));
    assert_eq!(world.findings(), [""; 0]);
}

#[test]
fn an_interface_with_the_right_number_in_the_wrong_place_is_refused() {
    if !need_root() {
        return;
    }
    let mut world = World::open("number");
    world.agent.apply("api.yaml", &pod("api", "api"));
    let (_, real) = made_by_another(&mut world, "api", "theirs0");
    let host = world.lab.host();
    let shown = ip(&world.lab, host, &["-o", "link", "show", "theirs0"]);
    let number = shown.split(':').next().unwrap().to_owned();
    // A pair between two other namespaces, one end of which has the index of theirs0.
    let liar = world.lab.add_namespace("liar", vec![]).unwrap();
    let third = world.lab.add_namespace("third", vec![]).unwrap();
    let third = world.lab.namespace_name(third).to_owned();
    ip(
        &world.lab,
        liar,
        &[
            "link", "add", "name", "far0", "index", &number, "netns", &third, "type", "veth",
            "peer", "name", "eth0",
        ],
    );
    let inside = ip(&world.lab, liar, &["-o", "link", "show", "eth0"]);
    assert!(inside.contains(&format!("@if{number}:")), "{inside}");
    let container = Container {
        netns: world.lab.namespace_path(liar),
        ..real.clone()
    };
    let previous = previous(&container, "theirs0");
    let chained = world.runtime.with("prevResult", previous);
    let refused = chained.refused("ADD", Some(&container)).1;
    assert!(
        refused.contains("theirs0 is not the workload's"),
        "{refused}"
    );
    // A rejected interface was never managed, and is not closed.
    let judged = nft(&world.lab, "list set inet palisade p_if_ours");
    assert!(!judged.contains("theirs0"), "{judged}");
    assert!(world.endpoint("api").is_none());
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
    assert!(gone.contains("nowhere0 does not exist"), "{gone}");
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
