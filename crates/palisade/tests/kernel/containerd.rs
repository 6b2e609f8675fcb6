//! Real containers of real pods: Debian's containerd calls the plugin, and policy is enforced between them.

use crate::agent::shop::{FROM_WEB_8080, address, policy};
use crate::agent::{Agent, ip};
use crate::plugin::{pod, program};
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use palisade_testkit::need_root;
use palisade_testkit::ring::report_skip;
use palisade_testkit::runtimes::{Containerd, Pod, RuntimeError, RuntimePrograms};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

/// The host of a lab, with containerd and an agent.
struct World {
    agent: Agent,
    containerd: Containerd,
    lab: Lab,
}

/// A pod with one container.
struct Running {
    pod: Pod,
    container: String,
    node: NodeId,
    addresses: Vec<IpAddr>,
}

/// Command of a container of the shop: listens on two ports, in both families.
const SERVE: [&str; 3] = [
    "/bin/sh",
    "-c",
    "httpd -p 8080 -h /tmp && httpd -p 9090 -h /tmp && exec sleep 100000",
];

impl World {
    /// `None`, with a printed reason, if containers cannot run at all.
    fn open(name: &str) -> Option<Self> {
        let runtimes = RuntimePrograms::containerd()?;
        let lab = Lab::new(name).unwrap();
        let containerd = match Containerd::start(&lab, &runtimes, &[program()]) {
            Ok(containerd) => containerd,
            Err(error) => {
                report_skip(&format!("Debian's containerd does not start: {error}"));
                return None;
            }
        };
        // Without this plugin: a failure here is a problem of the machine.
        let subnets = json!([[{"subnet": "10.88.0.0/24"}]]);
        let kept = containerd.folder().join("control");
        let control = json!({
            "cniVersion": "1.0.0",
            "name": "control",
            "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "dataDir": kept, "ranges": subnets}}],
        });
        containerd.configure(&control).unwrap();
        await_network(&containerd, true);
        match containerd.run_pod("control", "control", "control") {
            Ok(control) => {
                containerd.stop_pod(&control).unwrap();
                containerd.remove_pod(&control).unwrap();
            }
            Err(error) => {
                report_skip(&format!("containers cannot run on this machine: {error}"));
                return None;
            }
        }
        containerd.remove_configuration().unwrap();
        await_network(&containerd, false);
        // The agent writes the configuration that containerd finds.
        let folder = containerd.conf_dir();
        let mut agent = Agent::new();
        agent.more(&["--cni-conf-dir", folder.to_str().unwrap()]);
        agent.more(&["--cni-conf-keep=false"]);
        agent.with_plugins();
        agent.start_through(&containerd.mount_namespace_command().unwrap());
        agent.start(&lab);
        await_network(&containerd, true);
        Some(World {
            agent,
            containerd,
            lab,
        })
    }

    /// Runs a pod with its container.
    fn run(&mut self, name: &str) -> Result<Running, RuntimeError> {
        let pod = self
            .containerd
            .run_pod("shop", name, &format!("uid-{name}"))?;
        let addresses: Vec<IpAddr> = pod.addresses.iter().map(|a| address(a)).collect();
        assert_eq!(addresses.len(), 2, "{pod:?}");
        let seen = self.containerd.host_path(&pod.netns).unwrap();
        let node = self.lab.adopt(name, &seen, addresses.clone()).unwrap();
        let container = self.containerd.run(&pod, "main", &SERVE)?;
        Ok(Running {
            pod,
            container,
            node,
            addresses,
        })
    }

    /// Whether a connection between containers succeeds, and the same for the prober's packets; both families
    /// must agree.
    fn connects(&self, from: &Running, to: &Running, port: u16) -> bool {
        let mut verdicts = Vec::new();
        for &address in &to.addresses {
            let script = format!("nc -w 2 {address} {port} </dev/null");
            let said = self
                .containerd
                .exec(&from.container, &["/bin/sh", "-c", &script]);
            verdicts.push(said.unwrap().code == 0);
        }
        self.lab.flush_conntrack().unwrap();
        let flow = |&to_address: &IpAddr| ProbeFlow::tcp(from.node, to_address, port, to.node);
        let flows: Vec<ProbeFlow> = to.addresses.iter().map(flow).collect();
        verdicts.extend(probe(&self.lab, &flows).unwrap());
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{verdicts:?}");
        verdicts[0]
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

    fn end(&self, pod: &Pod) {
        self.containerd.stop_pod(pod).unwrap();
        self.containerd.remove_pod(pod).unwrap();
    }
}

fn await_network(containerd: &Containerd, ready: bool) {
    for _ in 0..200 {
        if containerd.network_status().unwrap().is_ok() == ready {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{:?}\n{}", containerd.network_status(), containerd.log());
}

#[test]
fn containers_of_pods_under_policy() {
    if !need_root() {
        return;
    }
    let Some(mut world) = World::open("pods") else {
        return;
    };
    for name in ["web", "api", "db"] {
        world.agent.apply(&format!("{name}.yaml"), &pod(name, name));
    }
    let [web, api, db] = ["web", "api", "db"].map(|name| world.run(name).unwrap());
    assert_eq!(world.endpoints(), ["api Ready", "db Ready", "web Ready"]);
    assert!(
        world.connects(&web, &api, 9090) && world.connects(&db, &api, 8080),
        "open"
    );

    world
        .agent
        .apply("p.yaml", &policy("api", "api", FROM_WEB_8080));
    assert!(world.connects(&web, &api, 8080), "allowed");
    assert!(
        !world.connects(&web, &api, 9090) && !world.connects(&db, &api, 8080),
        "denied"
    );

    // Labels come from the Pod with that name in the directory, also after a change.
    world.agent.apply("db.yaml", &pod("db", "web"));
    assert!(world.connects(&db, &api, 8080));
    world.agent.apply("db.yaml", &pod("db", "db"));

    // A pod that is not in the directory yet.
    let late = world.run("late").unwrap();
    assert_eq!(
        world.endpoints(),
        ["api Ready", "db Ready", "late Closed", "web Ready"]
    );
    assert!(!world.connects(&web, &late, 8080) && !world.connects(&late, &web, 8080));
    world.agent.apply("late.yaml", &pod("late", "web"));
    assert!(world.connects(&late, &api, 8080) && world.connects(&web, &late, 9090));

    // Without an agent: enforcement continues, removals are queued, additions fail.
    world.agent.kill();
    assert!(world.connects(&web, &api, 8080) && !world.connects(&db, &api, 8080));
    world.end(&db.pod);
    let refused = world.run("early").err().map(|error| error.to_string());
    assert!(
        refused.as_ref().is_some_and(|said| said.contains("agent")),
        "{refused:?}"
    );
    world.agent.start(&world.lab);
    assert_eq!(world.endpoints(), ["api Ready", "late Ready", "web Ready"]);
    assert!(world.connects(&web, &api, 8080) && !world.connects(&web, &api, 9090));
    world.agent.apply("early.yaml", &pod("early", "early"));
    let early = world.run("early").unwrap();
    assert!(!world.connects(&early, &api, 8080) && world.connects(&early, &web, 8080));

    // A pod that is started again: another sandbox with the same name.
    world.end(&early.pod);
    world.agent.apply("early.yaml", &pod("early", "web"));
    let pods = world.containerd.pods().unwrap();
    let again = world
        .containerd
        .run_pod("shop", "early", "uid-early-2")
        .unwrap();
    assert_eq!(world.containerd.pods().unwrap().len(), pods.len() + 1);
    for pod in [&web.pod, &api.pod, &late.pod, &again] {
        world.end(pod);
    }
    assert_eq!(world.endpoints(), [""; 0]);
    let links = ip(&world.lab, world.lab.host(), &["-br", "link"]);
    assert!(!links.contains("pal"), "{links}");
    assert_eq!(world.agent.status()["health"], "Ready");
    // An agent removes its configuration at its end, if configured.
    world.agent.terminate();
    await_network(&world.containerd, false);
}
