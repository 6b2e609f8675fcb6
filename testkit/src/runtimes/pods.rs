//! Pods and containers, asked for as a kubelet asks.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Containerd, RuntimeError, parse_json, run_to_end};

/// The only image there is.
pub(super) const IMAGE: &str = "localhost/palisade/busybox:1";

/// A pod that containerd runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// containerd's id of it.
    pub id: String,
    /// Its addresses, as its plugin answered them.
    pub addresses: Vec<String>,
    /// Its network namespace, as containerd sees it.
    pub netns: PathBuf,
}

/// What a program inside a container said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code.
    pub code: i64,
    /// What it printed.
    pub printed: String,
}

impl Containerd {
    /// Whether it would run containers, network apart.
    pub(super) fn is_ready(&self) -> bool {
        let status = self.cri_json(&["status"]);
        status.is_ok_and(|status| status["RuntimeReady"]["status"] == true)
    }

    /// Whether its network is ready, and if not, what it says.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn network_status(&self) -> Result<Result<(), String>, RuntimeError> {
        let status = self.cri_json(&["status"])?;
        let network = &status["NetworkReady"];
        Ok(match network["status"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(json_text(&network["message"])),
        })
    }

    /// Runs a pod without containers; its network is attached when this returns.
    ///
    /// # Errors
    /// If containerd, or its CNI plugin, refuses.
    pub fn run_pod(&self, namespace: &str, name: &str, uid: &str) -> Result<Pod, RuntimeError> {
        Ok(parse_pod(
            &self.cri_json(&["run-pod", namespace, name, uid])?,
        ))
    }

    /// Runs a container in a pod.
    ///
    /// # Errors
    /// If containerd refuses.
    pub fn run(&self, pod: &Pod, name: &str, command: &[&str]) -> Result<String, RuntimeError> {
        let asked = [&["run", &pod.id, name, IMAGE], command].concat();
        Ok(json_text(&self.cri_json(&asked)?["id"]))
    }

    /// Runs a program inside a container to its end.
    ///
    /// # Errors
    /// If containerd refuses; not if the program does.
    pub fn exec(&self, container: &str, command: &[&str]) -> Result<ExecOutput, RuntimeError> {
        let said = self.cri_json(&[&["exec", container], command].concat())?;
        Ok(ExecOutput {
            code: said["code"].as_i64().unwrap_or(-1),
            printed: json_text(&said["stdout"]) + &json_text(&said["stderr"]),
        })
    }

    /// Every pod that it knows, stopped ones included.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn pods(&self) -> Result<Vec<Pod>, RuntimeError> {
        let pods = self.cri_json(&["pods"])?;
        Ok(pods["pods"]
            .as_array()
            .into_iter()
            .flatten()
            .map(parse_pod)
            .collect())
    }

    /// Ends a pod's containers and detaches its network.
    ///
    /// # Errors
    /// If containerd, or its CNI plugin, refuses.
    pub fn stop_pod(&self, pod: &Pod) -> Result<(), RuntimeError> {
        self.cri_json(&["stop-pod", &pod.id]).map(drop)
    }

    /// Forgets a stopped pod.
    ///
    /// # Errors
    /// If containerd refuses.
    pub fn remove_pod(&self, pod: &Pod) -> Result<(), RuntimeError> {
        self.cri_json(&["remove-pod", &pod.id]).map(drop)
    }

    fn cri_json(&self, arguments: &[&str]) -> Result<Value, RuntimeError> {
        #[allow(
            clippy::disallowed_methods,
            reason = "the tests' own kubelet, a program of its own"
        )]
        let mut command = Command::new(self.runtimes.programs().join("cri"));
        command
            .arg(self.socket())
            .args(arguments)
            .env("CGROUP_PARENT", format!("/{}", self.group));
        let program = format!("cri {}", arguments.join(" "));
        let said = run_to_end(command, &program)?;
        parse_json(&said, &program)
    }
}

fn parse_pod(value: &Value) -> Pod {
    let addresses = value["addresses"].as_array().into_iter().flatten();
    Pod {
        id: json_text(&value["id"]),
        addresses: addresses.map(json_text).collect(),
        netns: json_text(&value["netns"]).into(),
    }
}

fn json_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
