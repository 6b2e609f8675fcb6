//! `kubectl`, as its users run it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::process::command;
use crate::lab::netns;
use crate::runtimes::{RuntimeError, RuntimePrograms};

/// `kubectl` with one user's credentials.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    namespace: String,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(super) fn new(programs: &RuntimePrograms, namespace: &str, kubeconfig: &Path) -> Self {
        Self {
            program: programs.programs().join("kubectl"),
            namespace: namespace.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// Runs it; answers with what it printed.
    ///
    /// # Errors
    /// If it fails, with its message.
    pub fn run(&self, arguments: &[&str]) -> Result<String, RuntimeError> {
        self.run_with_input(arguments, "")
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// If the server refuses one.
    pub fn apply(&self, manifests: &str) -> Result<String, RuntimeError> {
        self.run_with_input(&["apply", "-f", "-"], manifests)
    }

    /// Runs `kubectl get … -o json`.
    ///
    /// # Errors
    /// If it fails.
    pub fn get(&self, arguments: &[&str]) -> Result<Value, RuntimeError> {
        let all = [&["get", "-o", "json"], arguments].concat();
        let text = self.run(&all)?;
        serde_json::from_str(&text).map_err(|source| RuntimeError::Answer {
            program: format!("kubectl {}", all.join(" ")),
            answer: text,
            source,
        })
    }

    /// Runs it with something on its standard input.
    ///
    /// # Errors
    /// If it fails, with its message.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<String, RuntimeError> {
        let mut command = command(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.kubeconfig.with_file_name("kubectl-home"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = netns::run_in(&self.namespace, move || command.spawn())?;
        let mut child = spawned.map_err(RuntimeError::io_error("starting kubectl"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A refusal closes the pipe early; its message matters more.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output();
        let output = output.map_err(RuntimeError::io_error("waiting for kubectl"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        Err(RuntimeError::Refused {
            program: format!("kubectl {}", arguments.join(" ")),
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
