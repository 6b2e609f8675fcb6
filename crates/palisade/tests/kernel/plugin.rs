//! The CNI plugin under test: the built program, called as by a runtime.

use crate::agent::Agent;
use palisade_testkit::lab::{Lab, NodeId};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Path of the plugin. In the kernel ring it is already built; otherwise cargo builds it.
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

/// One container, as a runtime identifies it.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    /// Namespace and name of its pod, if it belongs to one.
    pub(crate) pod: Option<(String, String)>,
    /// The UID of its pod, if the runtime passes it.
    pub(crate) uid: Option<String>,
    pub(crate) netns: PathBuf,
}

impl Container {
    /// The sandbox of a pod of namespace shop, in a namespace of the lab.
    pub(crate) fn of_pod(lab: &Lab, node: NodeId, id: &str, name: &str) -> Self {
        Container {
            id: id.to_owned(),
            pod: Some(("shop".to_owned(), name.to_owned())),
            uid: None,
            netns: lab.namespace_path(node),
        }
    }
}

/// A runtime with one network of this plugin.
pub(crate) struct Runtime {
    pub(crate) config: Value,
}

impl Runtime {
    /// With the agent's socket and queue.
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

    /// Adds a field to the configuration.
    pub(crate) fn with(&self, key: &str, value: Value) -> Self {
        let mut config = self.config.clone();
        config[key] = value;
        Runtime { config }
    }

    /// Starts a call and writes the configuration to it.
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
                let mut args = format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
                     K8S_POD_INFRA_CONTAINER_ID={}",
                    container.id
                );
                if let Some(uid) = &container.uid {
                    args.push_str(&format!(";K8S_POD_UID={uid}"));
                }
                call.env("CNI_ARGS", args);
            }
        }
        let mut child = call.spawn().unwrap();
        let text = self.config.to_string();
        // A plugin that is killed at once reads nothing.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        child
    }

    /// Runs a call to its end.
    pub(crate) fn call(&self, command: &str, container: Option<&Container>) -> Output {
        self.spawn(command, container).wait_with_output().unwrap()
    }

    /// Runs a call that must succeed; returns its result.
    pub(crate) fn ok(&self, command: &str, container: Option<&Container>) -> Value {
        let output = self.call(command, container);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command} {container:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Runs a call that must fail; returns its code and message.
    pub(crate) fn refused(&self, command: &str, container: Option<&Container>) -> (u64, String) {
        let output = self.call(command, container);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!output.status.success(), "{command} {container:?}: {said}");
        (
            said["code"].as_u64().unwrap(),
            said["msg"].as_str().unwrap().to_owned(),
        )
    }

    /// Runs ADD; returns the addresses.
    pub(crate) fn add(&self, container: &Container) -> Vec<String> {
        addresses(&self.ok("ADD", Some(container)))
    }
}

/// The addresses of a result, without prefix lengths.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    let text = ips.map(|ip| ip["address"].as_str().unwrap());
    text.map(|text| text.split_once('/').unwrap().0.to_owned())
        .collect()
}

/// Manifest of a Pod.
pub(crate) fn pod(name: &str, app: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {app}}}}}\n"
    )
}
