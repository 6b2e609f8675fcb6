//! The CNI plugin under test: the built program, driven as a runtime does.

#![allow(
    dead_code,
    reason = "several test programs share this, each needs a part of it"
)]

use crate::agent::Agent;
use palisade_testkit::lab::{Lab, NodeId};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// The plugin's program. In the kernel ring it has been built; otherwise cargo is asked to.
pub(crate) fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_palisade")).with_file_name("palisade-cni");
        let ring = std::env::var("PALISADE_RING").unwrap_or_default();
        if ring != "kernel" || !program.exists() {
            let release = program.parent().is_some_and(|dir| dir.ends_with("release"));
            let built = Command::new(env!("CARGO"))
                .args(["build", "--locked", "-p", "palisade-cni"])
                .args(release.then_some("--release"))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .unwrap();
            assert!(built.success() && program.exists(), "{program:?}");
        }
        program
    };
    BUILT.get_or_init(build).clone()
}

/// One container, as a runtime knows it.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    /// Namespace and name of its pod, if it is a pod's.
    pub(crate) pod: Option<(String, String)>,
    pub(crate) netns: PathBuf,
}

impl Container {
    /// The sandbox of a pod of namespace shop, in a namespace of the lab.
    pub(crate) fn of_pod(lab: &Lab, node: NodeId, id: &str, name: &str) -> Self {
        Container {
            id: id.to_owned(),
            pod: Some(("shop".to_owned(), name.to_owned())),
            netns: lab.namespace_path(node),
        }
    }
}

/// A runtime with one network of this plugin.
pub(crate) struct Runtime {
    pub(crate) config: Value,
}

impl Runtime {
    /// For the agent's socket and queue.
    pub(crate) fn new(agent: &Agent) -> Self {
        Runtime {
            config: json!({
                "cniVersion": "1.1.0",
                "name": "pods",
                "type": "palisade-cni",
                "socket": agent.socket(),
                "queue": agent.state().join("cni-queue"),
            }),
        }
    }

    /// The same with more in its configuration.
    pub(crate) fn with(&self, key: &str, value: Value) -> Self {
        let mut config = self.config.clone();
        config[key] = value;
        Runtime { config }
    }

    /// Starts a call, and hands over the configuration.
    pub(crate) fn spawn(&self, command: &str, container: Option<&Container>) -> Child {
        let mut call = Command::new(program());
        call.env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(container) = container {
            call.env("CNI_CONTAINERID", &container.id)
                .env("CNI_IFNAME", "eth0")
                .env("CNI_NETNS", &container.netns);
            if let Some((namespace, name)) = &container.pod {
                let args = format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
                     K8S_POD_INFRA_CONTAINER_ID={}",
                    container.id
                );
                call.env("CNI_ARGS", args);
            }
        }
        let mut child = call.spawn().unwrap();
        let text = self.config.to_string();
        // One that is killed at once reads nothing.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        child
    }

    /// A call to its end.
    pub(crate) fn call(&self, command: &str, container: Option<&Container>) -> Output {
        self.spawn(command, container).wait_with_output().unwrap()
    }

    /// A call that must succeed, and what it says.
    pub(crate) fn ok(&self, command: &str, container: Option<&Container>) -> Value {
        let output = self.call(command, container);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command} {container:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// A call that must fail: its code and message.
    pub(crate) fn refused(&self, command: &str, container: Option<&Container>) -> (u64, String) {
        let output = self.call(command, container);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!output.status.success(), "{command} {container:?}: {said}");
        (
            said["code"].as_u64().unwrap(),
            said["msg"].as_str().unwrap().to_owned(),
        )
    }

    /// ADD, and the addresses it gave.
    pub(crate) fn add(&self, container: &Container) -> Vec<String> {
        addresses(&self.ok("ADD", Some(container)))
    }
}

/// The addresses of a result, without their lengths.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    let text = ips.map(|ip| ip["address"].as_str().unwrap());
    text.map(|text| text.split_once('/').unwrap().0.to_owned())
        .collect()
}

/// A Pod's manifest.
pub(crate) fn pod(name: &str, app: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {app}}}}}\n"
    )
}
