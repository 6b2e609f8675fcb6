//! The demo as a container runtime: attaches its pods by calling the CNI plugin.

use super::site::Site;
use crate::exit::CommandError;
use palisade_sys::netns::NETNS_DIR;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// File name of the plugin.
const NAME: &str = "palisade-cni";
/// Directories searched after that of this program: where packages install plugins.
const FOLDERS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The plugin and its network configuration.
pub(super) struct Plugin {
    program: PathBuf,
    network: Value,
    prefix: String,
}

/// The result of ADD for a pod.
pub(super) struct AttachedPod {
    /// The host-side interface.
    pub(super) interface: String,
    /// The pod's addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl Plugin {
    /// Finds the plugin; it will use the agent's socket at `socket`.
    pub(super) fn locate(site: &Site, socket: &Path) -> Result<Self, CommandError> {
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let beside = own.parent().map(Path::to_path_buf);
        let folders = beside.into_iter().chain(FOLDERS.map(PathBuf::from));
        let mut candidates = folders.map(|folder| folder.join(NAME));
        let program = candidates.find(|program| program.exists()).ok_or_else(|| {
            CommandError::problem(format!(
                "the plugin {NAME} was not found in the directory of this program or in {}",
                FOLDERS.join(", ")
            ))
            .with_hint("make demo builds both; from a source tree: cargo build -p palisade-cni")
        })?;
        Ok(Plugin {
            program,
            network: json!({
                "cniVersion": "1.1.0",
                "name": "demo",
                "type": NAME,
                "socket": socket,
                "queue": site.directory.join("cni-queue"),
            }),
            prefix: site.prefix().to_owned(),
        })
    }

    /// Calls ADD for the pod's namespace of the demo.
    pub(super) fn add(&self, namespace: &str, name: &str) -> Result<AttachedPod, CommandError> {
        let text = self.call("ADD", namespace, name)?;
        let wrong = || {
            CommandError::problem(format!(
                "{NAME} returned an invalid result: {}",
                String::from_utf8_lossy(&text)
            ))
        };
        let result: Value = serde_json::from_slice(&text).map_err(|_| wrong())?;
        let interface = result["interfaces"][0]["name"].as_str().ok_or_else(wrong)?;
        let ips = result["ips"].as_array().ok_or_else(wrong)?;
        let address = |ip: &Value| {
            let (address, _) = ip["address"].as_str()?.split_once('/')?;
            address.parse().ok()
        };
        let addresses: Option<Vec<IpAddr>> = ips.iter().map(address).collect();
        Ok(AttachedPod {
            interface: interface.to_owned(),
            addresses: addresses.ok_or_else(wrong)?,
        })
    }

    /// Calls DEL for the same.
    pub(super) fn del(&self, namespace: &str, name: &str) -> Result<(), CommandError> {
        self.call("DEL", namespace, name).map(drop)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the demo acts as a runtime, and a plugin is a program"
    )]
    fn call(&self, command: &str, namespace: &str, name: &str) -> Result<Vec<u8>, CommandError> {
        let container = format!("{}-{name}", self.prefix);
        let failed = |error: io::Error| {
            CommandError::problem(format!("calling {}: {error}", self.program.display()))
        };
        let mut child = Command::new(&self.program)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_NETNS", Path::new(NETNS_DIR).join(&container))
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "eth0")
            .env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}"),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input
                .write_all(self.network.to_string().as_bytes())
                .map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let message = String::from_utf8_lossy(&output.stdout);
        Err(CommandError::problem(format!(
            "{NAME} {command} {namespace}/{name}: {}",
            message.trim()
        )))
    }
}
