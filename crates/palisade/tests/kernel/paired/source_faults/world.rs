//! A host with four workloads whose agent follows a server, and the steps: changes, a fault, and the end of both.

use std::time::{Duration, Instant};

use palisade_generators::Dice;
use palisade_testkit::FakeApiServer;
use palisade_testkit::cluster::{ControlPlane, Controllers};
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::runtimes::{RuntimeError, RuntimePrograms};
use serde_json::Value;
use tempfile::TempDir;

use super::faults::{self, Fault};
use super::objects::{Change, Key, Kind, LOCAL, Objects, address};
use super::traffic::Traffic;
use crate::agent::Agent;

/// How long the state at the end of a step may take.
const PATIENCE: Duration = Duration::from_secs(45);

/// What makes a program's clock wrong (Debian: libfaketime).
fn clock_library() -> String {
    let folder = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
    let library = format!("{folder}/libfaketimeMT.so.1");
    assert!(
        std::path::Path::new(&library).exists(),
        "{library} does not exist; scripts/setup --test installs it"
    );
    library
}

/// What the agent follows.
pub(crate) enum Server {
    Fake(FakeApiServer),
    Real {
        plane: Box<ControlPlane>,
        _folder: TempDir,
    },
}

/// The host.
pub(crate) struct World {
    // The agent ends first, then the server, then the host that they are in.
    pub(crate) agent: Agent,
    pub(crate) server: Server,
    pub(crate) lab: Lab,
    pub(crate) pods: [NodeId; 4],
    pub(crate) objects: Objects,
    pub(crate) token: u64,
    /// Faults of single answers that nobody asked for.
    pub(crate) unasked: usize,
}

/// The rights of the agent, as the chart grants them in the cluster.
const ROLE: &str = concat!(
    "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: palisade}
rules:
",
    include_str!("../../../../../../deploy/helm/palisade/files/cluster-role-rules.yaml"),
    "
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: palisade}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: palisade}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: palisade}]
"
);

fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace => "/api/v1/namespaces",
        Kind::Node => "/api/v1/nodes",
        Kind::Pod => "/api/v1/pods",
        Kind::Policy => "/apis/networking.k8s.io/v1/networkpolicies",
    }
}

/// Where etcd has an object.
fn raw_key((kind, namespace, name): &Key) -> String {
    let resource = match kind {
        Kind::Namespace => "namespaces",
        Kind::Node => "minions",
        Kind::Pod => "pods",
        Kind::Policy => "networkpolicies",
    };
    if namespace.is_empty() {
        format!("/registry/{resource}/{name}")
    } else {
        format!("/registry/{resource}/{namespace}/{name}")
    }
}

/// Repeats what etcd is too busy for: both writes may happen twice.
fn patiently(write: impl Fn() -> Result<(), RuntimeError>) {
    for _ in 0..4 {
        if write().is_ok() {
            return;
        }
    }
    write().unwrap();
}

impl Server {
    fn change(&self, (key, value): &Change) {
        let (kind, namespace, name) = key;
        match (self, value) {
            (Server::Fake(server), Some(value)) => server.put(path(*kind), value.clone()),
            (Server::Fake(server), None) => {
                let whole = if namespace.is_empty() {
                    name.clone()
                } else {
                    format!("{namespace}/{name}")
                };
                server.delete(path(*kind), &whole);
            }
            (Server::Real { plane, .. }, Some(value)) => {
                patiently(|| plane.put_raw(&raw_key(key), &value.to_string()));
            }
            (Server::Real { plane, .. }, None) => patiently(|| plane.delete_raw(&raw_key(key))),
        }
    }
}

impl World {
    /// A host that follows a fake server with these objects.
    pub(crate) fn fake(name: &str, objects: Objects) -> Self {
        World::fake_under(Agent::new(), name, objects)
    }

    /// The same under this agent, which is not running yet.
    pub(crate) fn fake_under(agent: Agent, name: &str, objects: Objects) -> Self {
        let lab = Lab::new(name).unwrap();
        let server = lab.run_in(lab.host(), || FakeApiServer::start().unwrap());
        World::open(agent, lab, Server::Fake(server.unwrap()), objects)
    }

    /// A host that follows a real server; none where that cannot run, which is reported and counted.
    pub(crate) fn real(name: &str, objects: Objects) -> Option<Self> {
        let programs = RuntimePrograms::control_plane()?;
        let mut lab = Lab::new(name).unwrap();
        lab.add_address(lab.host(), "10.90.0.1".parse().unwrap())
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let host = lab.namespace_name(lab.host());
        let plane = ControlPlane::start(host, &programs, folder.path(), Controllers::None).unwrap();
        plane.kubectl().apply(ROLE).unwrap();
        let server = Server::Real {
            plane: Box::new(plane),
            _folder: folder,
        };
        Some(World::open(Agent::new(), lab, server, objects))
    }

    fn open(agent: Agent, lab: Lab, server: Server, objects: Objects) -> Self {
        let host = lab.host();
        for key in ["udp_timeout", "udp_timeout_stream", "tcp_timeout_syn_sent"] {
            lab.set_sysctl(host, &format!("net/netfilter/nf_conntrack_{key}"), "5")
                .unwrap();
        }
        for (key, value) in &objects.0 {
            server.change(&(key.clone(), Some(value.clone())));
        }
        let mut agent = agent.with(&["--node-name", "n1"]);
        let kubeconfig = agent.policy().with_file_name("kubeconfig");
        let kubeconfig = kubeconfig.display().to_string();
        agent.more(&["--kubernetes", &kubeconfig]);
        let clock = agent.policy().with_file_name("clock");
        for (name, value) in [
            ("LD_PRELOAD", &*clock_library()),
            ("FAKETIME_TIMESTAMP_FILE", &*clock.display().to_string()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ] {
            agent.set(name, value);
        }
        let mut world = World {
            pods: [lab.host(); 4],
            agent,
            server,
            lab,
            objects,
            token: 0,
            unasked: 0,
        };
        world.write_credentials();
        world.set_clock("+0");
        world.agent.start(&world.lab);
        for (pod, name) in LOCAL.into_iter().enumerate() {
            let own = [0, 1].map(|family| address(pod, family));
            let node = world.lab.add_namespace(name, own.to_vec()).unwrap();
            let own = own.map(|address| address.to_string());
            let own = [&*own[0], &*own[1]];
            let name = format!("shop/{name}");
            world.agent.attach(&world.lab, node, &name, &own, &[]);
            world.pods[pod] = node;
        }
        world
    }

    /// Writes the present credentials to the agent's file.
    pub(crate) fn write_credentials(&self) {
        let file = self.agent.policy().with_file_name("kubeconfig");
        match &self.server {
            Server::Fake(server) => std::fs::write(file, server.kubeconfig()).unwrap(),
            Server::Real { plane, .. } => plane.write_kubeconfig(&file, "palisade", None).unwrap(),
        }
    }

    /// Makes the agent's clock wrong by so much.
    pub(crate) fn set_clock(&self, offset: &str) {
        let clock = self.agent.policy().with_file_name("clock");
        std::fs::write(clock, offset).unwrap();
    }

    fn change(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.server.change(change));
        self.objects.apply(changes);
    }

    /// A step: changes, and a fault around some of them, in which the agent perhaps is killed.
    pub(crate) fn step(
        &mut self,
        traffic: &mut Traffic,
        (step, fault): (u64, Fault),
        is_killed: bool,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let changes = self.objects.random_changes(dice, step);
        let states = self.objects.states(&changes);
        traffic.ends_steady(step, &self.objects.values());
        let before = dice.below(changes.len() + 1);
        let (before, within) = changes.split_at(before);
        self.change(before);
        faults::begin(self, fault, dice);
        self.change(within);
        faults::go_on(self, fault);
        if is_killed {
            pause(dice.below(150));
            self.agent.kill();
            pause(dice.below(60));
            self.agent.spawn(&self.lab);
        }
        pause(dice.between(20, 400));
        faults::end(self, fault);
        self.change(&Objects::marks(step));
        self.settle(traffic, step)
            .map_err(|what| format!("{what}; changes {changes:#?}\n{}", self.agent.log()))?;
        if let Server::Fake(server) = &self.server {
            self.unasked += server.clear_faults();
        }
        traffic.ends_change(step, &states);
        traffic.wait_for_packets();
        traffic.judge(step.saturating_sub(1))
    }

    /// Waits until everything is received and in the kernel.
    pub(crate) fn settle(&self, traffic: &Traffic, step: u64) -> Result<(), String> {
        let began = Instant::now();
        let mut times = 0;
        loop {
            let status = self.agent.status();
            let is_received = self.has_marks(&status, step);
            times = if is_received && traffic.is_mark(step % 2 == 1) {
                times + 1
            } else {
                0
            };
            if times == 3 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!(
                    "the state of the server is not reached: {status:#}"
                ));
            }
            pause(10);
        }
    }

    /// Whether the agent follows its server, has the marks of a step, and what it has is in the kernel.
    pub(crate) fn has_marks(&self, status: &Value, step: u64) -> bool {
        let source = &status["source"];
        let counted = match &self.server {
            Server::Fake(_) => source["objects"].as_u64() == Some(self.objects.count() as u64),
            // It has objects of its own.
            Server::Real { .. } => true,
        };
        if !counted
            || source["inSync"] != true
            || !source["sources"][0]["stale"].is_null()
            || status["revision"] != status["realised"]
        {
            return false;
        }
        let version = format!("shop/version-{step}");
        let has_version = self
            .agent
            .run(&["policy", "get", &version])
            .status
            .success();
        has_version && {
            let list = self.agent.json(&["endpoint", "list"]);
            let endpoints = list["endpoints"].as_array().unwrap();
            let label = Value::from(format!("s{step}"));
            endpoints
                .iter()
                .any(|e| e["name"] == "server" && e["labels"]["step"] == label)
        }
    }
}

pub(crate) fn pause(milliseconds: usize) {
    std::thread::sleep(Duration::from_millis(milliseconds as u64));
}
