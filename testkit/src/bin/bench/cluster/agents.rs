//! What agents ask of the API server: fifty real ones, each in a namespace of its own, with the rights and the
//! writes of an installation. From what one agent costs for one object and for one change, the cost of 5,000
//! agents is reckoned.

use super::churn::{Churn, pause};
use super::server::{ClusterServer, ClusterSize, text};
use crate::agent::AgentProcess;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use crate::stopwatch::now;
use palisade_testkit::lab::{NodeId, PodSpec};
use std::time::Duration;

/// The agents that are measured; the first few are measured alone too.
const AGENTS: usize = 50;
const FIRST: usize = 10;
/// Pod changes a second.
const RATE: usize = 100;
/// For how long each load is measured.
const LOAD: Duration = Duration::from_secs(30);
const USER: &str = "palisade-agent";
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/palisade.yaml");

/// The cluster that is reckoned.
const WHOLE: ClusterSize = ClusterSize {
    nodes: 5_000,
    pods: 150_000,
    policies: 10_000,
};
/// Its pod changes a second.
const WHOLE_RATE: f64 = 200.0;

pub(super) fn case() -> BenchCase {
    let name = "cluster/agents";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            figure("start/server-cpu-per-object", "µs"),
            figure("start/bytes-per-object", "B"),
            figure("idle/requests-per-agent", "1/min"),
            figure("idle/server-cpu-per-agent", "ms/min"),
            figure("churn/server-cpu-per-change-and-agent", "µs"),
            figure("churn/bytes-per-change-and-agent", "B"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 10,
        measure: Box::new(measure),
    }
}

/// Agents of one server.
struct AgentGroup {
    agents: Vec<AgentProcess>,
    nodes: Vec<NodeId>,
    server: ClusterServer,
}

/// What the server has spent so far.
#[derive(Clone, Copy)]
struct ServerCost {
    seconds: f64,
    bytes: f64,
}

impl AgentGroup {
    fn new(size: ClusterSize) -> Result<Self, String> {
        let server = ClusterServer::start("agents", size)?;
        let manifest = std::fs::read_to_string(MANIFEST);
        let manifest = manifest.map_err(|error| format!("{MANIFEST}: {error}"))?;
        let kubectl = server.plane.kubectl();
        kubectl.apply(&manifest).map_err(text)?;
        for (kind, role) in [
            ("clusterrolebinding", "--clusterrole"),
            ("rolebinding", "--role"),
        ] {
            let role = format!("{role}=palisade");
            let user = format!("--user={USER}");
            let binding = [
                "-n",
                "palisade-system",
                "create",
                kind,
                "bench",
                &role,
                &user,
            ];
            kubectl.run(&binding).map_err(text)?;
        }
        Ok(AgentGroup {
            agents: Vec::new(),
            nodes: Vec::new(),
            server,
        })
    }

    /// Starts agents until there are so many, all at once.
    fn grow(&mut self, count: usize) -> Result<(), String> {
        let kubeconfig = self.server.kubeconfig(USER, None)?;
        let first = self.agents.len();
        for number in first..count {
            let address = format!("10.80.0.{}", number + 1);
            let interface = format!("agent{number}");
            let spec = PodSpec::new(&interface, &interface, &[&*address]);
            self.nodes
                .push(self.server.lab.add_pod(spec).map_err(text)?);
            let mut agent = AgentProcess::numbered(number)?;
            agent.add_arguments(&[
                &format!("--kubernetes={}", kubeconfig.display()),
                &format!("--node-name=node-{number}"),
                "--ipam-pool=none",
                "--node-routes=off",
            ]);
            self.agents.push(agent);
        }
        for (agent, node) in self.agents.iter_mut().zip(&self.nodes).skip(first) {
            agent.spawn(&self.server.lab, *node)?;
        }
        self.agents[first..]
            .iter()
            .try_for_each(AgentProcess::wait_until_ready)
    }

    fn cost(&self) -> Result<ServerCost, String> {
        let received = |node: &NodeId| self.server.lab.run_in(*node, received_bytes);
        let received = self.nodes.iter().map(|node| received(node).map_err(text)?);
        Ok(ServerCost {
            seconds: self.server.processor_seconds()?,
            bytes: received.sum::<Result<f64, String>>()?,
        })
    }

    /// What the server spends while pods change, and how many did.
    fn churn(&self, size: ClusterSize) -> Result<(ServerCost, f64), String> {
        let host = self.server.lab.namespace_name(self.server.lab.host());
        let churn = Churn::start(host, size, RATE)?;
        pause(Duration::from_secs(3));
        let (before, changes) = (self.cost()?, churn.changes());
        pause(LOAD);
        let (cost, changes) = (self.cost()? - before, churn.changes() - changes);
        churn.finish()?;
        pause(Duration::from_secs(2));
        Ok((cost, changes as f64))
    }
}

impl std::ops::Sub for ServerCost {
    type Output = ServerCost;

    fn sub(self, other: ServerCost) -> ServerCost {
        ServerCost {
            seconds: self.seconds - other.seconds,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// The bytes that the interfaces of the calling thread's namespace have received, without loopback.
fn received_bytes() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev");
    let text = text.map_err(|error| format!("/proc/thread-self/net/dev: {error}"))?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let others = fields.filter(|(interface, _)| interface.trim() != "lo");
    Ok(others
        .filter_map(|(_, counts)| counts.split_whitespace().next()?.parse::<f64>().ok())
        .sum())
}

fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let size = ClusterSize {
        nodes: AGENTS,
        pods: scaled(10_000, scale),
        policies: scaled(500, scale),
    };
    let mut group = AgentGroup::new(size)?;
    group.grow(FIRST)?;
    let (few, few_changes) = group.churn(size)?;
    let before = group.cost()?;
    let began = now();
    group.grow(AGENTS)?;
    let start = group.cost()? - before;
    let listed = ((AGENTS - FIRST) * size.objects()) as f64;
    eprintln!(
        "    {} agents started together in {:.1?}",
        AGENTS - FIRST,
        began.elapsed()
    );
    let cpu_per_object = start.seconds / listed * 1e6;
    let bytes_per_object = start.bytes / listed;
    samples(vec![cpu_per_object]);
    samples(vec![bytes_per_object]);

    pause(Duration::from_secs(5));
    let agents = AGENTS as f64;
    let (before, requests) = (group.cost()?, group.server.requests()?);
    pause(LOAD * 2);
    let minutes = LOAD.as_secs_f64() * 2.0 / 60.0;
    let idle = group.cost()? - before;
    // The question is a request too.
    let requests = (group.server.requests()? - requests - 1.0) / agents / minutes;
    let idle_cpu = idle.seconds * 1e3 / agents / minutes;
    samples(vec![requests]);
    samples(vec![idle_cpu]);

    let (many, many_changes) = group.churn(size)?;
    // What each further agent adds: writing into etcd and decoding happen once.
    let slope = many.seconds / many_changes - few.seconds / few_changes;
    let cpu_per_change = slope / (AGENTS - FIRST) as f64 * 1e6;
    let bytes_per_change = many.bytes / many_changes / agents;
    samples(vec![cpu_per_change]);
    samples(vec![bytes_per_change]);

    let nodes = WHOLE.nodes as f64;
    let lists = nodes * WHOLE.objects() as f64;
    let events = nodes * WHOLE_RATE;
    eprintln!(
        "    reckoned for {} agents, {} objects, {WHOLE_RATE} pod changes a second, without the agents' first lists: \
         {:.0} requests a second, {:.1} cores and {:.1} Gbit/s for the changes; all lists once: {:.0} core seconds \
         and {:.0} GB",
        WHOLE.nodes,
        WHOLE.objects(),
        requests * nodes / 60.0,
        events * cpu_per_change / 1e6 + idle_cpu * nodes / 60e3,
        events * bytes_per_change * 8.0 / 1e9,
        lists * cpu_per_object / 1e6,
        lists * bytes_per_object / 1e9,
    );
    Ok(())
}
