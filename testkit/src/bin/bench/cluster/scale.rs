//! One agent of 5,000 nodes, 150,000 pods and 10,000 policies, behind a real API server whose objects are written
//! straight into etcd: memory, processor time at 200 pod changes a second, and from a change to packets.

use super::churn::{Churn, pause};
use super::objects;
use super::server::{ClusterServer, ClusterSize, text};
use crate::agent::{AgentProcess, NEW, Prober, wait};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use crate::stopwatch::now;
use palisade_testkit::lab::NodeId;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Pod changes a second.
const RATE: usize = 200;
/// For how long processor time is measured.
const CHURN: Duration = Duration::from_secs(30);
/// Changes whose packets are measured; half open, half close.
const EDITS: usize = 100;
const PORT: u16 = 9_000;
const SILENCE: Duration = Duration::from_millis(60);

pub(super) fn case() -> BenchCase {
    let name = "cluster/scale";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            figure("start", "s"),
            figure("peak", "MiB").with_reference("aim", 256.0),
            figure("rss", "MiB").with_reference("aim", 160.0),
            figure("cpu", "%").with_reference("aim", 5.0),
            figure("rss-after-churn", "MiB").with_reference("aim", 160.0),
            figure("change-to-packets/p50", "ms"),
            figure("change-to-packets/p99", "ms").with_reference("aim", 250.0),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 10,
        measure: Box::new(measure),
    }
}

/// A cluster with one agent.
struct ScaleScenario {
    agent: AgentProcess,
    pods: Vec<NodeId>,
    server: ClusterServer,
    size: ClusterSize,
}

impl ScaleScenario {
    /// Everything but the agent.
    fn new(size: ClusterSize) -> Result<Self, String> {
        let server = ClusterServer::start("scale", size)?;
        let mut agent = AgentProcess::new()?;
        let kubeconfig = server.kubeconfig("bench", Some("system:masters"))?;
        agent.add_arguments(&[
            &format!("--kubernetes={}", kubeconfig.display()),
            "--node-name=node-0",
            "--ipam-pool=none",
            "--node-routes=off",
            "--status-write=false",
        ]);
        Ok(ScaleScenario {
            agent,
            pods: Vec::new(),
            server,
            size,
        })
    }

    /// Starts the agent and attaches the pods of its node; how long the start took.
    fn start(&mut self) -> Result<Duration, String> {
        let took = self.agent.start(&self.server.lab)?;
        for pod in (0..self.size.pods).step_by(self.size.nodes) {
            let addresses = objects::addresses(pod, 0);
            let node = self.server.lab.add_namespace(&format!("p{pod}"), addresses);
            let node = node.map_err(text)?;
            let (namespace, name) = (objects::namespace_name(pod), format!("pod-{pod}"));
            self.agent
                .attach(&self.server.lab, node, &namespace, &name)?;
            self.pods.push(node);
        }
        let status = self.agent.status()?;
        eprintln!(
            "    {} objects, {} local endpoints, {} policies in force, {} identities",
            status["source"]["objects"],
            status["endpoints"],
            status["policies"],
            status["identities"]
        );
        Ok(took)
    }

    fn mebibytes(&self, field: &str) -> Result<f64, String> {
        Ok(self.agent.proc_kilobytes("status", field)? / 1024.0)
    }

    /// Whether the second local pod admits the first on [`PORT`].
    fn edit(&mut self, open: bool) -> Result<Instant, String> {
        let (from, to) = (0, self.size.nodes);
        let port = if open { PORT } else { PORT + 1 };
        let peers = json!([{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": objects::namespace_name(from)}},
            "podSelector": {"matchLabels": {"app": objects::app(from)}},
        }]);
        let change = objects::policy_named(
            &objects::namespace_name(to),
            "edited",
            &json!({"app": objects::app(to)}),
            &peers,
            &json!([{"protocol": "UDP", "port": port}]),
        );
        self.server.writer.write(&[change]).map_err(text)?;
        Ok(now())
    }
}

fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let size = ClusterSize {
        nodes: scaled(5_000, scale),
        pods: scaled(150_000, scale),
        policies: scaled(10_000, scale),
    };
    let mut scene = ScaleScenario::new(size)?;
    let took = scene.start()?;
    samples(vec![took.as_secs_f64()]);
    samples(vec![scene.mebibytes("VmHWM")?]);
    samples(vec![scene.mebibytes("VmRSS")?]);

    let host = scene
        .server
        .lab
        .namespace_name(scene.server.lab.host())
        .to_owned();
    let churn = Churn::start(&host, size, RATE)?;
    pause(Duration::from_secs(5));
    let (before, began) = (scene.agent.processor_seconds()?, now());
    pause(CHURN);
    let used = scene.agent.processor_seconds()? - before;
    samples(vec![used / began.elapsed().as_secs_f64() * 100.0]);
    samples(vec![scene.mebibytes("VmRSS")?]);

    let server = SocketAddr::new(objects::addresses(size.nodes, 0)[0], PORT);
    let prober = Prober::start(&scene.server.lab, scene.pods[0], scene.pods[1], server)?;
    let mut all = Vec::new();
    for edit in 0..=EDITS / 2 {
        let began = scene.edit(true)?;
        let arrived =
            wait(|| prober.first_arrival(NEW, began)).ok_or("what is allowed does not pass")?;
        pause(Duration::from_millis(70 + edit as u64 % 7));
        let ended = scene.edit(false)?;
        let silent = || {
            let last = prober.first_send_after_last_arrival(NEW);
            last.filter(|last| *last > ended && now().duration_since(*last) > SILENCE)
        };
        let cut = wait(silent).ok_or("what is denied goes on passing")?;
        if edit > 0 {
            all.push((arrived - began).as_secs_f64() * 1e3);
            all.push((cut - ended).as_secs_f64() * 1e3);
        }
    }
    drop(prober);
    churn.finish()?;
    all.sort_by(f64::total_cmp);
    samples(vec![all[all.len() / 2]]);
    samples(vec![all[all.len() * 99 / 100]]);
    Ok(())
}
