//! One CNI network, driven by `cnitool` in a lab's host.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{RuntimeError, RuntimePrograms, parse_json, run_to_end, write};
use crate::lab::Lab;

/// A configured network: where its configuration lies, and where its plugins are.
#[derive(Debug)]
pub struct CniNetwork {
    runtimes: RuntimePrograms,
    dir: TempDir,
    name: String,
    path: Vec<PathBuf>,
}

/// What joins a network.
#[derive(Clone, Debug)]
pub struct CniToolAttachment {
    /// The network namespace.
    pub netns: PathBuf,
    /// The pod's namespace and name, if it is one.
    pub pod: Option<(String, String)>,
    /// What the runtime passes for capabilities, such as `portMappings`.
    pub capabilities: Option<Value>,
}

impl CniToolAttachment {
    /// The pod `name` in `namespace`, in the network namespace at `netns`.
    #[must_use]
    pub fn pod(netns: &Path, namespace: &str, name: &str) -> Self {
        Self {
            netns: netns.to_owned(),
            pod: Some((namespace.to_owned(), name.to_owned())),
            capabilities: None,
        }
    }
}

impl CniNetwork {
    /// Writes a configuration list; plugins are looked for in `folders` and then among upstream's.
    ///
    /// # Errors
    /// If the configuration has no name, or its folder cannot be made.
    pub fn new(
        runtimes: &RuntimePrograms,
        configuration: &Value,
        folders: &[PathBuf],
    ) -> Result<Self, RuntimeError> {
        let made = RuntimeError::io_error("making a network's folder");
        let dir = tempfile::tempdir().map_err(&made)?;
        std::fs::create_dir(dir.path().join("net.d")).map_err(&made)?;
        std::fs::create_dir(dir.path().join("lib")).map_err(&made)?;
        let file = dir.path().join("net.d/10-network.conflist");
        write(&file, &configuration.to_string())?;
        let mut path = folders.to_vec();
        path.push(runtimes.programs());
        Ok(Self {
            runtimes: runtimes.clone(),
            dir,
            name: configuration["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            path,
        })
    }

    /// Replaces the configuration, as an administrator does.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, configuration: &Value) -> Result<(), RuntimeError> {
        let file = self.dir.path().join("net.d/10-network.conflist");
        write(&file, &configuration.to_string())
    }

    /// Attaches, and hands out the result of the last plugin.
    ///
    /// # Errors
    /// If a plugin refuses, with its words.
    pub fn add(&self, lab: &Lab, attachment: &CniToolAttachment) -> Result<Value, RuntimeError> {
        let said = self.call(lab, "add", attachment)?;
        parse_json(&said, "cnitool add")
    }

    /// Calls cnitool with another of its verbs: `check`, `del`, `gc`, `status`.
    ///
    /// # Errors
    /// If a plugin refuses, with its words.
    pub fn call(
        &self,
        lab: &Lab,
        verb: &str,
        attachment: &CniToolAttachment,
    ) -> Result<String, RuntimeError> {
        #[allow(
            clippy::disallowed_methods,
            reason = "cnitool is what a test drives the plugin with"
        )]
        let mut command = Command::new("unshare");
        // libcni remembers results in /var/lib/cni: this one's are not the machine's.
        command
            .args(["--mount", "--propagation", "slave", "sh", "-c"])
            .arg("mount --bind \"$1\" /var/lib && shift && exec \"$@\"")
            .arg("sh")
            .arg(self.dir.path().join("lib"))
            .arg(self.runtimes.programs().join("cnitool"))
            .args([verb, &self.name])
            .arg(&attachment.netns)
            .env("NETCONFPATH", self.dir.path().join("net.d"))
            .env(
                "CNI_PATH",
                std::env::join_paths(&self.path).unwrap_or_default(),
            );
        if let Some((namespace, name)) = &attachment.pod {
            command.env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}"),
            );
        }
        if let Some(capabilities) = &attachment.capabilities {
            command.env("CAP_ARGS", capabilities.to_string());
        }
        let program = format!("cnitool {verb} {}", self.name);
        // A child is born in the namespace of the thread that makes it.
        lab.run_in(lab.host(), move || run_to_end(command, &program))?
    }

    /// A folder of this network's own, for what its plugins keep.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }
}
