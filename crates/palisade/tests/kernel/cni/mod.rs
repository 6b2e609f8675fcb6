//! The CNI plugin called as by a runtime: containers are attached and detached, and policy is enforced from
//! the first packet on.

mod chain;
mod full_node;
mod kills;
mod latency;
mod own_pod;
mod silence;

use crate::agent::shop::{FROM_WEB_8080, address, policy};
use crate::agent::{Agent, ip, nft};
use crate::plugin::{Container, Runtime, addresses, pod};
use palisade_testkit::lab::{HOST_ADDRESSES, Lab, NodeId, OUTSIDE_ADDRESSES, ProbeFlow, probe};
use palisade_testkit::need_root;
use serde_json::{Value, json};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

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

    /// A namespace with the sandbox of a future pod, with the same name.
    fn sandbox(&mut self, name: &str) -> (NodeId, Container) {
        let node = self.lab.add_namespace(name, Vec::new()).unwrap();
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

    /// Whether TCP arrives, in both families; they must agree.
    fn tcp(&self, from: (NodeId, &[String]), to: (NodeId, &[String]), port: u16) -> bool {
        let flows: Vec<ProbeFlow> = from
            .1
            .iter()
            .zip(to.1)
            .map(|(source, destination)| {
                ProbeFlow::tcp(from.0, address(destination), port, to.0)
                    .with_source(address(source))
            })
            .collect();
        self.lab.flush_conntrack().unwrap();
        let arrived = probe(&self.lab, &flows).unwrap();
        assert!(arrived.iter().all(|a| *a == arrived[0]), "{arrived:?}");
        arrived[0]
    }

    /// Findings of `palisade ipam check`, as `kind object`.
    fn findings(&self) -> Vec<String> {
        let check = self.agent.json(&["ipam", "check"]);
        let findings = check["findings"].as_array().unwrap().iter();
        findings
            .map(|f| {
                let text = |key: &str| f[key].as_str().unwrap().to_owned();
                format!("{} {}", text("kind"), text("object"))
            })
            .collect()
    }

    /// All objects on the host that can belong to a container: links, routes, neighbours, dispatch.
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
    assert_eq!(addresses(&result), api_addresses, "second ADD");
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

    assert_eq!(world.findings(), [""; 0]);
    for _ in 0..2 {
        world.runtime.ok("DEL", Some(&api_container));
        assert!(world.endpoint("api").is_none());
    }
    assert_eq!(world.findings(), [""; 0]);
    let (code, said) = checking.refused("CHECK", Some(&api_container));
    assert_eq!(code, 3, "{said}");
    world.runtime.ok("DEL", Some(&web_container));
    assert_eq!(world.held(), [""; 0]);
    assert_eq!(world.agent.status()["health"], "Ready");
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
    assert_eq!(endpoint["state"], "Closed", "{endpoint:#}");
    assert_eq!(endpoint["labels"], json!({"reserved:init": ""}));
    let (from, to) = ((web, &*web_addresses), (late, &*late_addresses));
    assert!(!world.tcp(from, to, 80) && !world.tcp(to, from, 80));
    world.agent.apply("late.yaml", &pod("late", "late"));
    let endpoint = world.endpoint("late").unwrap();
    assert_eq!(endpoint["state"], "Ready", "{endpoint:#}");
    assert_eq!(endpoint["labels"], json!({"app": "late"}));
    assert!(world.tcp(from, to, 80) && world.tcp(to, from, 80));
    world.agent.delete("late.yaml");
    assert_eq!(world.endpoint("late").unwrap()["state"], "Closed");
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
    let node = world.lab.add_namespace("second", Vec::new()).unwrap();
    let new = Container::of_pod(&world.lab, node, "c-second", "api");
    let new_addresses = world.runtime.add(&new);
    let (from, to) = ((web, &*web_addresses), (node, &*new_addresses));
    assert!(world.tcp(from, to, 80));
    world.runtime.ok("DEL", Some(&old));
    assert!(
        world.tcp(from, to, 80),
        "DEL of the old sandbox keeps the new one"
    );
    assert_eq!(world.endpoint("api").unwrap()["state"], "Ready");
}

/// Source address of a datagram from a node as seen by the outside; and whether the reply arrives.
fn seen_outside(lab: &Lab, from: NodeId, to: IpAddr) -> (IpAddr, bool) {
    let patience = Some(Duration::from_secs(5));
    let bind = |node, address: IpAddr| {
        let bound = lab.run_in(node, || UdpSocket::bind((address, 0))).unwrap();
        let socket = bound.unwrap();
        socket.set_read_timeout(patience).unwrap();
        socket
    };
    let any: IpAddr = match to {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let (outside, inside) = (bind(lab.outside(), to), bind(from, any));
    let mut data = [0; 4];
    inside
        .send_to(b"ping", outside.local_addr().unwrap())
        .unwrap();
    let (_, seen) = outside.recv_from(&mut data).unwrap();
    outside.send_to(b"pong", seen).unwrap();
    (seen.ip(), inside.recv_from(&mut data).is_ok())
}

#[test]
fn pods_leave_under_the_hosts_address_where_that_is_asked_for() {
    if !need_root() {
        return;
    }
    let agent = Agent::changeable().with(&["--masquerade", "outside"]);
    let mut world = World::under(agent, "masquerade");
    let (web, container, addresses) = world.pod("web");
    let plain = world.runtime.with("ipMasq", json!(false));
    world.agent.apply("api.yaml", &pod("api", "api"));
    let (api, api_container) = world.sandbox("api");
    let api_addresses = plain.add(&api_container);
    for (index, host) in HOST_ADDRESSES.into_iter().enumerate() {
        let like = |address: &IpAddr| address.is_ipv4() == host.is_ipv4();
        let outside = OUTSIDE_ADDRESSES.into_iter().find(like).unwrap();
        assert_eq!(seen_outside(&world.lab, web, outside), (host, true));
        let own = address(&api_addresses[index]);
        assert_eq!(seen_outside(&world.lab, api, outside).0, own);
    }
    let (from, to) = ((web, &*addresses), (api, &*api_addresses));
    assert!(world.tcp(from, to, 80), "with its own address among pods");
    assert_eq!(world.findings(), [""; 0]);

    nft(&world.lab, "delete table inet palisade_nat");
    world.agent.wait("repaired", |s| {
        s["dataplane"]["repaired"].as_u64() > Some(0)
    });
    assert_eq!(
        seen_outside(&world.lab, web, OUTSIDE_ADDRESSES[0]).0,
        HOST_ADDRESSES[0]
    );
    let before = nft(&world.lab, "list table inet palisade_nat");
    world.agent.kill();
    world.agent.start(&world.lab);
    let plain = |text: &str| -> Vec<String> {
        let counters = text.split(' ').filter(|word| word.parse::<u64>().is_err());
        counters.map(str::to_owned).collect()
    };
    let after = nft(&world.lab, "list table inet palisade_nat");
    assert_eq!(plain(&after), plain(&before), "a restart changes nothing");
    world.runtime.ok("DEL", Some(&container));
    let tables = nft(&world.lab, "list tables");
    assert!(
        !tables.contains("palisade_nat"),
        "table not needed: {tables}"
    );
}

#[test]
fn what_leaks_is_found() {
    if !need_root() {
        return;
    }
    let mut world = World::open("leaks");
    let (_, _, addresses) = world.pod("web");
    let host = world.lab.host();
    ip(
        &world.lab,
        host,
        &["link", "add", "palstray", "type", "veth", "peer", "stray"],
    );
    ip(&world.lab, host, &["link", "set", "palstray", "up"]);
    ip(
        &world.lab,
        host,
        &["route", "add", "10.245.0.99/32", "dev", "palstray"],
    );
    let owned = format!("{}/32", addresses[0]);
    ip(&world.lab, host, &["address", "add", &owned, "dev", "lo"]);
    let file = world.agent.state().join("workloads.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("c-web", "c-other")).unwrap();
    let wanted = [
        format!("Address {}", addresses[0]),
        "Disk Pod shop/web".to_owned(),
        "Disk Pod shop/web".to_owned(),
        "Interface palstray".to_owned(),
        "Route 10.245.0.99 by palstray".to_owned(),
    ];
    assert_eq!(world.findings(), wanted);
    let output = world.agent.run(&["ipam", "check"]);
    assert_eq!(output.status.code(), Some(1));
    let list = world.agent.json(&["ipam", "list"]);
    assert_eq!(list["addresses"][0]["address"], addresses[0]);
    assert_eq!(list["addresses"][0]["container"], "c-web");
    assert_eq!(list["pools"][0]["taken"], 1);
    assert_eq!(list["pools"][0]["free"], 252);
}

#[test]
fn runtimes_are_told_while_the_agent_is_ready() {
    if !need_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().to_str().unwrap();
    let plugins = tempfile::tempdir().unwrap();
    let bin = plugins.path().to_str().unwrap();
    let mut agent = Agent::new().with(&["--cni-conf-dir", text, "--cni-conf-keep=false"]);
    agent.more(&["--cni-bin-dir", bin]);
    let mut world = World::under(agent, "conf");
    let file = folder.path().join("10-palisade.conflist");
    // Runtimes would call plugins that are not there, and fail.
    for (missing, added) in [
        ("palisade-cni and loopback", "palisade-cni"),
        ("loopback", "loopback"),
    ] {
        let text = format!("no CNI configuration is written: {missing} not in {bin}");
        world.agent.wait("what is missing is named", |status| {
            status["reasons"].to_string().contains(&text)
        });
        assert!(!file.exists());
        std::fs::write(plugins.path().join(added), "").unwrap();
    }
    let began = std::time::Instant::now();
    while !file.exists() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{}",
            world.agent.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let read: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    world.agent.apply("web.yaml", &pod("web", "web"));
    let (_, container) = world.sandbox("web");
    // As a runtime does: the plugin's part of the list, with the list's name and version.
    let mut config = read["plugins"][0].clone();
    config["name"] = read["name"].clone();
    config["cniVersion"] = read["cniVersion"].clone();
    let given = Runtime { config }.add(&container);
    assert_eq!(given, ["10.245.0.2", "fd50:616c:6973::2"]);
    world.agent.terminate();
    assert!(!file.exists());
}
