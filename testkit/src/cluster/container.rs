//! The containers of a node, by the names that their pods give them, asked of its container runtime: that
//! needs no API server.

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

    /// Runs a program in the running container of a name; answers with what it printed.
    ///
    /// # Errors
    /// If none runs, or the program fails.
    pub fn exec(&self, name: &str, program: &[&str]) -> Result<String, RuntimeError> {
        let mut done = Err(missing(name));
        for id in self.containers(name)? {
            let exec = ["tasks", "exec", "--exec-id", "test", &id];
            done = done.or(self.run("ctr", &[&SPACE[..], &exec, program].concat()));
        }
        done
    }

    /// The status of the node's agent.
    ///
    /// # Errors
    /// If no agent answers.
    pub fn agent_status(&self) -> Result<Value, RuntimeError> {
        let question = ["/usr/bin/palisade", "status", "-o", "json"];
        let answer = self.exec("agent", &question)?;
        parse_json(&answer, "palisade status")
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
