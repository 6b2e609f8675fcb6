//! Palisade installed in a cluster as its users install it: the image, and a rendered manifest.

use std::path::Path;

use super::Cluster;
use crate::runtimes::RuntimeError;

/// The namespace of Palisade's pods.
pub const PALISADE_NAMESPACE: &str = "palisade-system";

impl Cluster {
    /// Gives every node the image, as a registry would.
    ///
    /// # Errors
    /// If a container runtime refuses it.
    pub fn import_image(&self, archive: &Path) -> Result<(), RuntimeError> {
        self.nodes()
            .iter()
            .try_for_each(|node| node.import_images(archive))
    }

    /// Applies a manifest with a DaemonSet and waits until it has an available pod on each node.
    ///
    /// # Errors
    /// If that takes more than three minutes, with the state of its pods and what they logged.
    pub fn roll_out(&self, manifest: &Path, daemon_set: &str) -> Result<(), RuntimeError> {
        let kubectl = self.kubectl();
        kubectl.run(&["apply", "-f", &manifest.display().to_string()])?;
        let name = format!("daemonset/{daemon_set}");
        let space = ["-n", PALISADE_NAMESPACE];
        let status = ["rollout", "status", &name, "--timeout=180s"];
        let rolled_out = kubectl.run(&[&space[..], &status].concat());
        rolled_out.map(drop).map_err(|error| {
            let pods = kubectl.run(&[&space[..], &["describe", "pod"]].concat());
            let logs = ["logs", &name, "--all-containers", "--prefix", "--tail=30"];
            let logs = kubectl.run(&[&space[..], &logs].concat());
            RuntimeError::Refused {
                program: error.to_string(),
                said: format!("{}\n{}", pods.unwrap_or_default(), logs.unwrap_or_default()),
            }
        })
    }

    /// Waits until every node is ready.
    ///
    /// # Errors
    /// If that takes more than three minutes, with their state.
    pub fn wait_for_nodes(&self) -> Result<(), RuntimeError> {
        let kubectl = self.kubectl();
        let wait = ["wait", "node", "--all", "--timeout=180s"];
        let ready = kubectl.run(&[&wait[..], &["--for=condition=Ready"]].concat());
        ready.map(drop).map_err(|error| RuntimeError::Refused {
            program: error.to_string(),
            said: kubectl.run(&["describe", "node"]).unwrap_or_default(),
        })
    }

    /// Deletes what a manifest has, and waits for that.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn delete(&self, manifest: &Path) -> Result<(), RuntimeError> {
        let file = manifest.display().to_string();
        let delete = [
            "delete",
            "-f",
            &file,
            "--ignore-not-found",
            "--timeout=120s",
        ];
        self.kubectl().run(&delete).map(drop)
    }
}
