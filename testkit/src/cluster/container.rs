//! The containers of a node, by the names that their pods give them, asked of its container runtime: that
//! needs no API server.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::ClusterNode;
use crate::runtimes::{RuntimeError, parse_json};

/// Where Kubernetes' containers are.
const SPACE: [&str; 2] = ["--namespace", "k8s.io"];

impl ClusterNode {
    /// Kills the first process of each container of a name, as a crash would.
    ///
    /// # Errors
    /// If none runs.
    pub fn kill_container(&self, name: &str) -> Result<(), RuntimeError> {
        let mut ended = Err(missing(name));
        for id in self.containers(name)? {
            let kill = [&SPACE[..], &["tasks", "kill", "--signal", "SIGKILL", &id]].concat();
            // One that ended before is still listed.
            ended = ended.or(self.run("ctr", &kill));
        }
        ended.map(drop)
    }

    /// The status of the node's agent, also of one that is degraded.
    ///
    /// # Errors
    /// If no agent answers.
    pub fn agent_status(&self) -> Result<Value, RuntimeError> {
        // A name is used once: an attempt that failed may keep it.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let question = ["/usr/bin/palisade", "status", "-o", "json"];
        let mut failed = missing("agent");
        for id in self.containers("agent")? {
            let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
            let mut exec = self.command("ctr")?;
            exec.args(SPACE)
                .args(["tasks", "exec", "--exec-id", &number, &id])
                .args(question);
            let output = exec.output();
            let output = output.map_err(RuntimeError::io_error("asking for an agent's status"))?;
            let answer = String::from_utf8_lossy(&output.stdout);
            // The exit code says whether it is healthy; a container that has ended answers nothing.
            match parse_json(&answer, "palisade status") {
                Ok(status) => return Ok(status),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The end of what the containers of a name logged, as the node keeps it.
    #[must_use]
    pub fn pod_log(&self, name: &str) -> String {
        let tail = format!("tail -n 20 /var/log/pods/*/{name}/*.log");
        self.run("sh", &["-c", &tail])
            .unwrap_or_else(|error| error.to_string())
    }

    /// The containers of a name, running or ended.
    fn containers(&self, name: &str) -> Result<Vec<String>, RuntimeError> {
        let filter = format!("labels.\"io.kubernetes.container.name\"=={name}");
        let list = [&SPACE[..], &["containers", "list", "--quiet", &filter]].concat();
        let printed = self.run("ctr", &list)?;
        Ok(printed.lines().map(str::to_owned).collect())
    }
}

fn missing(name: &str) -> RuntimeError {
    RuntimeError::Refused {
        program: format!("looking for the container {name}"),
        said: "none runs".into(),
    }
}
