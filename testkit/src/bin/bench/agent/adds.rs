//! How long a container runtime waits for ADD: the plugin's program from its start to its end.

use super::manifests;
use super::process::AgentProcess;
use crate::case::{BenchCase, Samples};
use crate::report::Figure;
use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMESPACE: &str = "shop";
/// How many pods the host has while another one is added, again and again.
const AMONG: [usize; 3] = [0, 100, 200];
/// ADDs of each figure: enough for a p90, and a minute and a half in all.
const ROUNDS: usize = 200;
const APPS: usize = 10;

/// Beside each ADD the same program is asked for its versions, which asks no agent: what is measured
/// less that is the agent's work.
pub(super) fn case() -> BenchCase {
    let name = "agent/cni-add";
    let mut figures = vec![Figure::of(format!("{name}/version"), "ms")];
    for among in AMONG {
        figures.push(Figure::of(format!("{name}/among-{among}"), "ms"));
        figures.push(Figure::of(format!("{name}/among-{among}/p90"), "ms"));
    }
    BenchCase {
        name: name.to_owned(),
        figures,
        processes: 1,
        asks_the_oracle: false,
        limits: 5,
        measure: Box::new(measure),
    }
}

/// A runtime with one network.
struct CniRuntime {
    plugin: PathBuf,
    config: String,
}

impl CniRuntime {
    fn new(agent: &AgentProcess) -> Result<Self, String> {
        let plugin = agent.program().with_file_name("palisade-cni");
        if !plugin.exists() {
            return Err(format!(
                "{} is not there: cargo build --release -p palisade-cni",
                plugin.display()
            ));
        }
        let config = json!({
            "cniVersion": "1.1.0",
            "name": "pods",
            "type": "palisade-cni",
            "socket": agent.socket(),
            "queue": agent.state().join("cni-queue"),
        });
        Ok(CniRuntime {
            plugin,
            config: config.to_string(),
        })
    }

    /// Calls the plugin, about a container if there is one; says how long it took.
    fn call(&self, command: &str, of: Option<&Container>) -> Result<Duration, String> {
        #[allow(
            clippy::disallowed_methods,
            reason = "the plugin's program is what is measured"
        )]
        let mut call = Command::new(&self.plugin);
        call.env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(of) = of {
            let pod = format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={0};\
                 K8S_POD_INFRA_CONTAINER_ID=c-{0}",
                of.pod
            );
            call.env("CNI_CONTAINERID", format!("c-{}", of.pod))
                .env("CNI_IFNAME", "eth0")
                .env("CNI_NETNS", &of.netns)
                .env("CNI_ARGS", pod);
        }
        let began: Instant = now();
        let mut run = || {
            let mut child = call.spawn()?;
            if let Some(mut input) = child.stdin.take() {
                input.write_all(self.config.as_bytes())?;
            }
            child.wait_with_output()
        };
        let output = run().map_err(|error| format!("{command}: {error}"))?;
        let took = began.elapsed();
        match output.status.success() {
            true => Ok(took),
            false => Err(format!(
                "{command}: {}",
                String::from_utf8_lossy(&output.stdout)
            )),
        }
    }
}

struct Container {
    pod: String,
    netns: PathBuf,
}

impl Container {
    fn new(lab: &mut Lab, pod: usize) -> Result<Self, String> {
        let pod = format!("p{pod}");
        let node: Result<NodeId, _> = lab.add_namespace(&pod, Vec::new());
        let node = node.map_err(|error| error.to_string())?;
        Ok(Container {
            netns: lab.namespace_path(node),
            pod,
        })
    }
}

fn app(number: usize) -> String {
    format!("app-{}", number % APPS)
}

fn measure(_scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let mut lab = Lab::new("adds").map_err(|error| error.to_string())?;
    let mut agent = AgentProcess::new()?;
    let most = AMONG.into_iter().max().unwrap_or(0);
    let mut objects = manifests::namespace(NAMESPACE);
    for pod in 0..=most {
        let labels = [("app", app(pod))];
        objects += &manifests::pod(NAMESPACE, &format!("p{pod}"), &labels, "here", &[]);
    }
    agent.write("objects.yaml", &objects)?;
    for policy in 0..APPS {
        let (own, from) = (app(policy), app(policy + 1));
        let text = manifests::policy(NAMESPACE, &own, &own, &[("app", &from)], &[("TCP", 8080)]);
        agent.write(&format!("{own}.yaml"), &text)?;
    }
    agent.start(&lab, Duration::from_millis(100))?;
    let runtime = CniRuntime::new(&agent)?;
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    let version = (0..ROUNDS).map(|_| runtime.call("VERSION", None).map(millis));
    samples(version.collect::<Result<_, _>>()?);
    let measured = Container::new(&mut lab, most)?;
    let mut there = 0;
    for among in AMONG {
        while there < among {
            runtime.call("ADD", Some(&Container::new(&mut lab, there)?))?;
            there += 1;
        }
        let mut took = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            took.push(millis(runtime.call("ADD", Some(&measured))?));
            runtime.call("DEL", Some(&measured))?;
        }
        samples(took.clone());
        took.sort_by(f64::total_cmp);
        samples(vec![took[ROUNDS * 9 / 10]]);
        eprintln!("    measured among {there} pods");
    }
    Ok(())
}
