//! A container runtime: it calls the CNI plugin's program.

use super::process::AgentProcess;
use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The namespace of all Pods.
pub(super) const NAMESPACE: &str = "shop";

/// A runtime with one network.
pub(super) struct CniRuntime {
    plugin: PathBuf,
    config: String,
}

impl CniRuntime {
    pub(super) fn new(agent: &AgentProcess) -> Result<Self, String> {
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
    pub(super) fn call(&self, command: &str, of: Option<&Container>) -> Result<Duration, String> {
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
        if output.status.success() {
            Ok(took)
        } else {
            Err(format!(
                "{command}: {}",
                String::from_utf8_lossy(&output.stdout)
            ))
        }
    }
}

pub(super) struct Container {
    pod: String,
    netns: PathBuf,
}

impl Container {
    pub(super) fn new(lab: &mut Lab, pod: usize) -> Result<Self, String> {
        let pod = format!("p{pod}");
        let node: Result<NodeId, _> = lab.add_namespace(&pod, Vec::new());
        let node = node.map_err(|error| error.to_string())?;
        Ok(Container {
            netns: lab.namespace_path(node),
            pod,
        })
    }
}
