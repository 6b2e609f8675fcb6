//! The plugin called by the CNI project's `cnitool`: alone, and in a chain with that project's plugins.

use crate::agent::shop::{FROM_WEB_8080, address, policy};
use crate::agent::{Agent, ip, nft};
use crate::plugin::{addresses, pod, program};
use palisade_testkit::lab::{HOST_ADDRESSES, Lab, NodeId, OUTSIDE_ADDRESSES, ProbeFlow, probe};
use palisade_testkit::need_root;
use palisade_testkit::runtimes::{CniNetwork, CniToolAttachment, RuntimeError, RuntimePrograms};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// A lab with an agent and a network of a runtime.
struct World {
    agent: Agent,
    lab: Lab,
    network: CniNetwork,
}

/// An attached pod of namespace shop.
struct Joined {
    attachment: CniToolAttachment,
    node: NodeId,
    addresses: Vec<IpAddr>,
    result: Value,
}

impl World {
    /// With the plugins that `plugins` returns for this plugin's part of a configuration and a directory.
    fn open(name: &str, plugins: impl Fn(Value, &Path) -> Value) -> Option<Self> {
        let runtimes = RuntimePrograms::cni()?;
        let mut agent = Agent::new();
        let lab = Lab::new(name).unwrap();
        agent.start(&lab);
        let ours = json!({
            "type": "palisade-cni",
            "socket": agent.socket(),
            "queue": agent.state().join("cni-queue"),
        });
        let kept = agent.state().join("upstream");
        let configuration = json!({
            "cniVersion": "1.1.0",
            "name": "pods",
            "plugins": plugins(ours, &kept),
        });
        let folder = program().parent().unwrap().to_owned();
        let network = CniNetwork::new(&runtimes, &configuration, &[folder]).unwrap();
        Some(World {
            agent,
            lab,
            network,
        })
    }

    /// A namespace with the sandbox of a future pod.
    fn sandbox(&mut self, name: &str) -> CniToolAttachment {
        let sandbox = self
            .lab
            .add_namespace(&format!("{name}-sandbox"), vec![])
            .unwrap();
        CniToolAttachment::pod(&self.lab.namespace_path(sandbox), "shop", name)
    }

    /// A pod of the directory, attached.
    fn pod(&mut self, name: &str) -> Joined {
        let attachment = self.sandbox(name);
        self.join(name, attachment)
    }

    fn join(&mut self, name: &str, attachment: CniToolAttachment) -> Joined {
        self.agent.apply(&format!("{name}.yaml"), &pod(name, name));
        let result = self.network.add(&self.lab, &attachment).unwrap();
        let given: Vec<IpAddr> = addresses(&result).iter().map(|a| address(a)).collect();
        let node = self
            .lab
            .adopt(name, &attachment.netns, given.clone())
            .unwrap();
        Joined {
            attachment,
            node,
            addresses: given,
            result,
        }
    }

    fn call(&self, verb: &str, pod: &Joined) -> Result<String, RuntimeError> {
        self.network.call(&self.lab, verb, &pod.attachment)
    }

    /// Which of these flows arrive; all of them are new. With upstream's plugins neighbours must be resolved
    /// first, which may take longer than a probe: a first round does that.
    fn arrives(&self, flows: &[ProbeFlow]) -> Vec<bool> {
        probe(&self.lab, flows).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        self.lab.flush_conntrack().unwrap();
        probe(&self.lab, flows).unwrap()
    }

    /// Whether TCP arrives at every address; all must agree.
    fn tcp(&self, from: &Joined, to: &Joined, port: u16) -> bool {
        let flows = to
            .addresses
            .iter()
            .map(|&a| ProbeFlow::tcp(from.node, a, port, to.node));
        let arrived = self.arrives(&flows.collect::<Vec<_>>());
        assert_eq!(arrived.len(), 2, "both families");
        assert_eq!(arrived[0], arrived[1], "families differ: port {port}");
        arrived[0]
    }

    fn endpoints(&self) -> Vec<String> {
        let list = self.agent.json(&["endpoint", "list"]);
        let all = list["endpoints"].as_array().unwrap().iter();
        all.map(|e| {
            format!(
                "{} {}",
                e["name"].as_str().unwrap(),
                e["state"].as_str().unwrap()
            )
        })
        .collect()
    }

    /// Links and routes of the host, without neighbours, which change by themselves.
    fn host(&self) -> Vec<String> {
        let host = self.lab.host();
        let links = ip(&self.lab, host, &["-br", "link"]);
        let mut held: Vec<String> = links
            .lines()
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect();
        for family in ["-4", "-6"] {
            held.extend(
                ip(&self.lab, host, &[family, "route"])
                    .lines()
                    .map(str::to_owned),
            );
        }
        held.sort();
        held
    }
}

#[test]
fn the_main_plugin_by_cnitool() {
    if !need_root() {
        return;
    }
    let Some(mut world) = World::open("tool", |ours, _| json!([ours])) else {
        return;
    };
    let before = world.host();
    let [web, api] = ["web", "api"].map(|name| world.pod(name));
    assert_eq!(api.result["cniVersion"], "1.1.0");
    assert!(world.tcp(&web, &api, 22), "open without policy");
    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(world.tcp(&web, &api, 8080) && !world.tcp(&web, &api, 22));
    assert!(world.tcp(&api, &web, 22), "web is not isolated");
    for verb in ["check", "status"] {
        world.call(verb, &api).unwrap();
    }
    ip(
        &world.lab,
        api.node,
        &[
            "address",
            "del",
            &format!("{}/32", api.addresses[0]),
            "dev",
            "eth0",
        ],
    );
    let changed = world.call("check", &api).unwrap_err().to_string();
    assert!(changed.contains(&api.addresses[0].to_string()), "{changed}");

    world.agent.kill();
    let unready = world.call("status", &web).unwrap_err().to_string();
    assert!(unready.contains("agent"), "{unready}");
    assert!(
        world.tcp(&web, &web_sees(&api), 8080),
        "enforced without an agent"
    );
    world.call("del", &api).unwrap();
    let late = world.sandbox("late");
    world.network.add(&world.lab, &late).unwrap_err();
    world.agent.start(&world.lab);
    assert_eq!(
        world.endpoints(),
        ["web Ready"],
        "the deletion was carried out"
    );
    for _ in 0..2 {
        world.call("del", &web).unwrap();
    }
    assert_eq!((world.endpoints(), world.host()), (vec![], before));
}

/// The view of a pod that lost its IPv4 address inside: both of its addresses are IPv6.
fn web_sees(pod: &Joined) -> Joined {
    let six = pod.addresses.iter().copied().filter(IpAddr::is_ipv6);
    let six: Vec<IpAddr> = six.collect();
    Joined {
        attachment: pod.attachment.clone(),
        node: pod.node,
        addresses: [&six[..], &six[..]].concat(),
        result: Value::Null,
    }
}

#[test]
fn what_the_runtime_does_not_know_is_collected() {
    if !need_root() {
        return;
    }
    let Some(mut world) = World::open("collect", |ours, _| json!([ours])) else {
        return;
    };
    let before = world.host();
    let [web, _api] = ["web", "api"].map(|name| world.pod(name));
    // A runtime that lost its state knows no attachment.
    std::fs::remove_dir_all(world.network.folder().join("lib/cni")).unwrap();
    world.call("gc", &web).unwrap();
    assert_eq!((world.endpoints(), world.host()), (vec![], before));
}

/// Upstream's point-to-point plugin with addresses of both families, this plugin, and two of upstream's.
fn chain(ours: Value, kept: &Path) -> Value {
    json!([
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": kept,
                "ranges": [[{"subnet": "10.89.0.0/24"}], [{"subnet": "fd89::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        },
        ours,
        {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}},
        {"type": "portmap", "backend": "nftables", "snat": false, "capabilities": {"portMappings": true}},
    ])
}

#[test]
fn a_chain_of_upstream_plugins_with_ours() {
    if !need_root() {
        return;
    }
    let Some(mut world) = World::open("chain", chain) else {
        return;
    };
    let before = world.host();
    let web = world.pod("web");
    let mut attachment = world.sandbox("api");
    attachment.capabilities = Some(json!({
        "portMappings": [{"hostPort": 8081, "containerPort": 8080, "protocol": "tcp"}],
    }));
    let api = world.join("api", attachment);
    let interface = api.result["interfaces"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(interface.starts_with("veth"), "{:#}", api.result);
    assert_eq!(world.endpoints(), ["api Ready", "web Ready"]);
    let filter = ip(&world.lab, api.node, &["-br", "link", "show", "eth0"]);
    assert!(filter.contains("eth0"));

    let through = |from: NodeId| ProbeFlow::tcp(from, HOST_ADDRESSES[0], 8081, api.node);
    let outside = world.lab.outside();
    assert!(world.tcp(&web, &api, 22), "open without policy");
    assert_eq!(world.arrives(&[through(outside)]), [true], "a mapped port");

    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(world.tcp(&web, &api, 8080) && !world.tcp(&web, &api, 22));
    assert!(world.tcp(&api, &web, 22), "web is not isolated");
    let denied = [
        through(outside),
        ProbeFlow::udp(web.node, api.addresses[0], 8080, api.node),
        ProbeFlow::tcp(outside, api.addresses[1], 8080, api.node),
        // Spoofed source address.
        ProbeFlow::tcp(web.node, api.addresses[0], 8080, api.node)
            .with_source(address("10.89.0.200")),
    ];
    assert_eq!(world.arrives(&denied), [false; 4]);
    let from_outside = format!(
        "  ingress:\n  - from: [{{ipBlock: {{cidr: {}/32}}}}]\n    ports: [{{port: 8080}}]\n",
        OUTSIDE_ADDRESSES[0]
    );
    world
        .agent
        .apply("outside.yaml", &policy("outside", "api", &from_outside));
    let mapped =
        [OUTSIDE_ADDRESSES[0], OUTSIDE_ADDRESSES[1]].map(|from| through(outside).with_source(from));
    assert_eq!(
        world.arrives(&mapped),
        [true, false],
        "the address behind the mapping counts"
    );

    for verb in ["check", "status"] {
        world.call(verb, &api).unwrap();
    }
    world.agent.kill();
    world.agent.start(&world.lab);
    assert_eq!(world.endpoints(), ["api Ready", "web Ready"]);
    assert!(
        world.tcp(&web, &api, 8080) && !world.tcp(&web, &api, 22),
        "after a restart"
    );

    for joined in [&api, &web] {
        for _ in 0..2 {
            world.call("del", joined).unwrap();
        }
    }
    assert_eq!((world.endpoints(), world.host()), (vec![], before));
    // The interface disappears after this plugin's DEL, and is closed until the agent has noticed that.
    let began = Instant::now();
    let ruleset = loop {
        let ruleset = nft(&world.lab, "list ruleset");
        if !ruleset.contains(&interface) || began.elapsed() > Duration::from_secs(20) {
            break ruleset;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        !ruleset.contains(&interface) && !ruleset.contains("8081"),
        "{ruleset}"
    );
    let kept = std::fs::read_dir(world.agent.state().join("upstream/pods")).unwrap();
    let reserved = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let reserved: Vec<String> = reserved.filter(|name| name.contains(['.', ':'])).collect();
    let given = |name: &&String| !name.starts_with("last_reserved");
    assert_eq!(reserved.iter().filter(given).count(), 0, "{reserved:?}");
    let leaks = world.agent.json(&["status"]);
    assert_eq!(leaks["health"], "Ready", "{leaks:#}");
}

#[test]
fn a_chain_undoes_what_came_before_a_plugin_that_fails() {
    if !need_root() {
        return;
    }
    let failing = |ours: Value, kept: &Path| {
        let mut plugins = chain(ours, kept);
        plugins[2]["sysctl"] = json!({"net.no.such.parameter": "1"});
        plugins
    };
    let Some(mut world) = World::open("undo", failing) else {
        return;
    };
    let before = world.host();
    world.agent.apply("web.yaml", &pod("web", "web"));
    let attachment = world.sandbox("web");
    world.network.add(&world.lab, &attachment).unwrap_err();
    // What a runtime does next; cnitool leaves it to its caller.
    world.network.call(&world.lab, "del", &attachment).unwrap();
    assert_eq!((world.endpoints(), world.host()), (vec![], before));
}

#[test]
fn the_port_of_a_bridge_is_refused_in_words() {
    if !need_root() {
        return;
    }
    let bridged = |ours: Value, kept: &Path| {
        let mut plugins = chain(ours, kept);
        plugins[0]["type"] = json!("bridge");
        plugins[0]["bridge"] = json!("cni0");
        plugins[0]["isGateway"] = json!(true);
        plugins
    };
    let Some(mut world) = World::open("bridged", bridged) else {
        return;
    };
    world.agent.apply("web.yaml", &pod("web", "web"));
    let attachment = world.sandbox("web");
    let refused = world
        .network
        .add(&world.lab, &attachment)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("bridge"), "{refused}");
    world.network.call(&world.lab, "del", &attachment).unwrap();
    assert_eq!(world.endpoints(), [""; 0]);
}
