//! The demo as a container runtime: attaches its pods by calling the CNI plugin.

use crate::error::DemoError;
use crate::shop::ShopParty;
use crate::site::Site;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// File name of the plugin.
const NAME: &str = "palisade-cni";

/// The plugin and its network configuration.
pub(crate) struct Plugin {
    program: PathBuf,
    network: Value,
}

/// The result of ADD for a pod.
pub(crate) struct AttachedPod {
    /// The host-side interface.
    pub(crate) interface: String,
    /// The pod's addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Plugin {
    /// The plugin, configured for the demo's agent.
    pub(crate) fn of(site: &Site) -> Self {
        Plugin {
            program: site.program(NAME),
            network: json!({
                "cniVersion": "1.1.0",
                "name": "demo",
                "type": NAME,
                "socket": site.socket(),
                "queue": site.directory().join("cni-queue"),
            }),
        }
    }

    /// Calls ADD for a pod of the shop.
    pub(crate) fn add(&self, site: &Site, party: &ShopParty) -> Result<AttachedPod, DemoError> {
        let text = self.call("ADD", site, party)?;
        let wrong = || {
            DemoError::problem(format!(
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
    pub(crate) fn del(&self, site: &Site, party: &ShopParty) -> Result<(), DemoError> {
        self.call("DEL", site, party).map(drop)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the demo acts as a runtime, and a plugin is a program"
    )]
    fn call(&self, command: &str, site: &Site, party: &ShopParty) -> Result<Vec<u8>, DemoError> {
        let node = site.node(party)?;
        let (namespace, name) = (party.namespace.unwrap_or_default(), party.name);
        let failed = |error: io::Error| {
            DemoError::problem(format!("calling {}: {error}", self.program.display()))
        };
        let mut child = Command::new(&self.program)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_NETNS", site.lab.namespace_path(node))
            .env("CNI_CONTAINERID", site.lab.namespace_name(node))
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
        Err(DemoError::problem(format!(
            "{NAME} {command} {namespace}/{name}: {}",
            message.trim()
        )))
    }
}
