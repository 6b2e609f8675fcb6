//! One agent of 5,000 nodes, 150,000 pods and 10,000 policies, behind a real API server whose objects are written
//! straight into etcd: memory, processor time at 200 pod changes a second, and from a change to packets.

use super::objects::{self, NAMESPACES, PodState};
use crate::agent::{AgentProcess, NEW, Prober, wait};
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::states::scaled;
use crate::stopwatch::now;
use palisade_testkit::cluster::{ControlPlane, Controllers, EtcdChange, EtcdWriter};
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::runtimes::RuntimePrograms;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pod changes a second.
const RATE: usize = 200;
/// Changes are written so often a second.
const BATCHES: usize = 20;
/// For how long processor time is measured.
const CHURN: Duration = Duration::from_secs(30);
/// Changes whose packets are measured; half open, half close.
const EDITS: usize = 100;
const PORT: u16 = 9_000;
const SETTLE: Duration = Duration::from_millis(100);
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
    lab: Lab,
    writer: EtcdWriter,
    size: ClusterSize,
    // The last to go.
    _plane: ControlPlane,
    _folder: tempfile::TempDir,
}

#[derive(Clone, Copy)]
struct ClusterSize {
    nodes: usize,
    pods: usize,
    policies: usize,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl ScaleScenario {
    /// Everything but the agent.
    fn new(size: ClusterSize) -> Result<Self, String> {
        let programs = RuntimePrograms::control_plane()
            .ok_or("scripts/runtimes --control-plane has not run")?;
        let mut lab = Lab::new("scale").map_err(text)?;
        let server = "10.90.0.1".parse().map_err(text)?;
        lab.add_address(lab.host(), server).map_err(text)?;
        let folder = tempfile::tempdir().map_err(text)?;
        let host = lab.namespace_name(lab.host()).to_owned();
        let plane = ControlPlane::start(&host, &programs, folder.path(), Controllers::None);
        let plane = plane.map_err(text)?;
        let mut writer = EtcdWriter::connect(&host).map_err(text)?;
        let began = now();
        let namespaces = (0..NAMESPACES).map(objects::namespace);
        let nodes = (0..size.nodes).map(objects::node);
        let policies = (0..size.policies).map(objects::policy);
        let pods = (0..size.pods).map(|pod| objects::pod(pod, size.nodes, PodState::default()));
        let mut all = namespaces.chain(nodes).chain(policies).chain(pods);
        loop {
            let part: Vec<EtcdChange> = all.by_ref().take(128).collect();
            if part.is_empty() {
                break;
            }
            writer.write(&part).map_err(text)?;
        }
        eprintln!(
            "    {} pods written into etcd in {:.1?}",
            size.pods,
            began.elapsed()
        );
        let mut agent = AgentProcess::new()?;
        let kubeconfig = folder.path().join("bench.kubeconfig");
        plane
            .write_kubeconfig(&kubeconfig, "bench", Some("system:masters"))
            .map_err(text)?;
        agent.add_arguments(&[
            "--kubernetes=kubeconfig",
            &format!("--kubeconfig={}", kubeconfig.display()),
            "--node-name=node-0",
            "--ipam-pool=none",
            "--node-routes=off",
            "--status-write=false",
        ]);
        Ok(ScaleScenario {
            agent,
            pods: Vec::new(),
            lab,
            writer,
            size,
            _plane: plane,
            _folder: folder,
        })
    }

    /// Starts the agent and attaches the pods of its node; how long the start took.
    fn start(&mut self) -> Result<Duration, String> {
        let took = self.agent.start(&self.lab, SETTLE)?;
        for pod in (0..self.size.pods).step_by(self.size.nodes) {
            let addresses = objects::addresses(pod, 0);
            let node = self.lab.add_namespace(&format!("p{pod}"), addresses);
            let node = node.map_err(text)?;
            let (namespace, name) = (objects::namespace_name(pod), format!("pod-{pod}"));
            self.agent.attach(&self.lab, node, &namespace, &name)?;
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
        self.writer.write(&[change]).map_err(text)?;
        Ok(now())
    }
}

/// Changes pods at the rate until dropped; none of the first node's.
struct Churn {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<usize, String>>>,
}

impl Churn {
    fn start(namespace: &str, size: ClusterSize) -> Result<Self, String> {
        let mut writer = EtcdWriter::connect(namespace).map_err(text)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut random = SmallRng::seed_from_u64(1);
            let mut states = vec![PodState::default(); size.pods];
            let (began, mut batches) = (now(), 0_u32);
            while !stopped.load(Ordering::Acquire) {
                // A transaction has each key once.
                let mut pods = BTreeSet::new();
                while pods.len() < RATE / BATCHES {
                    let pod = random.random_range(0..size.pods);
                    if pod % size.nodes != 0 {
                        pods.insert(pod);
                    }
                }
                let changes: Vec<EtcdChange> = pods
                    .into_iter()
                    .map(|pod| change(&mut random, pod, &mut states[pod], size))
                    .collect();
                writer.write(&changes).map_err(text)?;
                batches += 1;
                let due =
                    began + Duration::from_secs(1) * batches / u32::try_from(BATCHES).unwrap_or(1);
                pause(due.saturating_duration_since(now()));
            }
            let seconds = began.elapsed().as_secs_f64();
            eprintln!(
                "    {:.0} pod changes a second",
                f64::from(batches) * (RATE / BATCHES) as f64 / seconds
            );
            Ok(batches as usize)
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    fn finish(mut self) -> Result<(), String> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().ok_or("the churn has ended")?;
        let ended = thread.join().map_err(|_| "the churn panicked")?;
        ended.map(drop)
    }
}

/// As pods change: half of it is status alone, three tenths a label, two tenths a new pod in place of an old.
fn change(
    random: &mut SmallRng,
    pod: usize,
    state: &mut PodState,
    size: ClusterSize,
) -> EtcdChange {
    match random.random_range(0..10) {
        0..5 => state.status += 1,
        5..8 => state.version += 1,
        _ => state.generation += 1,
    }
    objects::pod(pod, size.nodes, *state)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a steady rate is what the churn is for"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
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

    let host = scene.lab.namespace_name(scene.lab.host()).to_owned();
    let churn = Churn::start(&host, size)?;
    pause(Duration::from_secs(5));
    let (before, began) = (scene.agent.processor_seconds()?, now());
    pause(CHURN);
    let used = scene.agent.processor_seconds()? - before;
    samples(vec![used / began.elapsed().as_secs_f64() * 100.0]);
    samples(vec![scene.mebibytes("VmRSS")?]);

    let server = SocketAddr::new(objects::addresses(size.nodes, 0)[0], PORT);
    let prober = Prober::start(&scene.lab, scene.pods[0], scene.pods[1], server)?;
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
