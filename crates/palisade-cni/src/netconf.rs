//! The network configuration on standard input, parsed and validated.
//!
//! Fields of other plugins or of the runtime are ignored; the fields of this plugin are documented here.

use crate::error::CniError;
use crate::invocation::is_valid_identifier;
use crate::result::CniVersion;
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;

/// The network configuration, as far as this plugin uses it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetConf {
    /// The version that determines the form of every result.
    #[serde(default = "oldest")]
    pub cni_version: String,
    /// Name of the network.
    #[serde(default)]
    pub name: String,
    /// The result of the previous plugin; if present, this plugin only adds policy.
    #[serde(default)]
    pub prev_result: Option<Value>,
    /// Path of the agent's socket.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// Directory of the deletions that the agent has not executed.
    #[serde(default = "queue")]
    pub queue: PathBuf,
    /// Namespace of containers without a pod name.
    #[serde(default = "namespace")]
    pub namespace: String,
    /// MTU in bytes; absent: the agent's configuration.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Whether packets to the outside are masqueraded with the host's address; absent: the agent's
    /// configuration.
    #[serde(default)]
    pub ip_masq: Option<bool>,
    /// Only addresses of these families (`4`, `6`); empty: every family with a pool.
    #[serde(default)]
    pub families: Vec<u8>,
    /// Timeout of a call to the agent, in seconds.
    #[serde(default = "wait")]
    pub wait_seconds: u64,
    /// Capability arguments of the runtime: `ips`.
    #[serde(default)]
    runtime_config: RuntimeConfig,
    /// Conventional arguments of the runtime: `cni.ips`.
    #[serde(default)]
    args: CniArgs,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<ValidAttachment>>,
    /// The misspelt name in the first version of the specification; runtimes give both or either.
    #[serde(default, rename = "cni.dev/attachments")]
    legacy_attachments: Option<Vec<ValidAttachment>>,
}

/// One container's attachment to the network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ValidAttachment {
    /// Container id.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Interface name.
    #[serde(rename = "ifname")]
    pub interface: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RuntimeConfig {
    #[serde(default)]
    ips: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct CniArgs {
    #[serde(default)]
    cni: RuntimeConfig,
}

fn oldest() -> String {
    // According to the specification, a configuration without a version has the first version.
    "0.1.0".to_owned()
}

fn socket() -> PathBuf {
    "/run/palisade/palisade.sock".into()
}

fn queue() -> PathBuf {
    "/var/lib/palisade/cni-queue".into()
}

fn namespace() -> String {
    "default".to_owned()
}

const fn wait() -> u64 {
    60
}

impl NetConf {
    /// Parses a configuration.
    ///
    /// # Errors
    /// If it is not JSON of the expected structure, or a field is invalid.
    pub fn parse(text: &[u8]) -> Result<Self, CniError> {
        let network: NetConf = serde_json::from_slice(text).map_err(CniError::Decode)?;
        let wrong = |field, reason: String| Err(CniError::Configuration { field, reason });
        if !is_valid_identifier(&network.name) {
            return wrong(
                "name",
                format!(
                    "{:?} must begin with a letter or digit and contain only letters, digits, _, . and -",
                    network.name
                ),
            );
        }
        if let Some(family) = network.families.iter().find(|f| !matches!(f, 4 | 6)) {
            return wrong("families", format!("{family} is neither 4 nor 6"));
        }
        if let Some(mtu) = network.mtu.filter(|mtu| !(68..=65_535).contains(mtu)) {
            return wrong("mtu", format!("{mtu} is not between 68 and 65535"));
        }
        Ok(network)
    }

    /// For GC: the attachments to keep. A runtime that lists none, as libcni does without arguments, declares
    /// none valid; it has already detached those it knew.
    #[must_use]
    pub fn valid_attachments(&self) -> &[ValidAttachment] {
        let listed = self
            .valid_attachments
            .as_ref()
            .or(self.legacy_attachments.as_ref());
        listed.map(Vec::as_slice).unwrap_or_default()
    }

    /// The version of the results.
    ///
    /// # Errors
    /// If the version is not supported.
    pub fn version(&self) -> Result<CniVersion, CniError> {
        CniVersion::parse(&self.cni_version).ok_or_else(|| CniError::Version {
            asked: self.cni_version.clone(),
            known: CniVersion::ALL.map(CniVersion::name).join(", "),
        })
    }

    /// The requested addresses, in the order of the specification's conventions: the capability `ips` first,
    /// then `args.cni.ips`. A prefix length is optional and ignored.
    ///
    /// # Errors
    /// If one is not an address.
    pub fn requested_addresses(&self) -> Result<Vec<IpAddr>, CniError> {
        let asked = if self.runtime_config.ips.is_empty() {
            &self.args.cni.ips
        } else {
            &self.runtime_config.ips
        };
        asked.iter().map(|text| parse_address(text)).collect()
    }
}

/// Parses an address with or without a prefix length.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, CniError> {
    let plain = text.split_once('/').map_or(text, |(address, _)| address);
    plain.parse().map_err(|_| CniError::Configuration {
        field: "ips",
        reason: format!("{text:?} is not an IP address"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let network = NetConf::parse(br#"{"cniVersion":"1.1.0","name":"n","type":"palisade-cni"}"#);
        let network = network.unwrap();
        assert_eq!(network.version().unwrap(), CniVersion::V1_1_0);
        assert_eq!(network.namespace, "default");
        assert!(
            network.ip_masq.is_none()
                && network.prev_result.is_none()
                && network.valid_attachments().is_empty()
        );
        assert_eq!(network.requested_addresses().unwrap(), Vec::<IpAddr>::new());
    }

    #[test]
    fn what_stays_is_listed_under_either_name_or_not_at_all() {
        let listed = |fields: &str| {
            let text = format!(r#"{{"name":"n"{fields}}}"#);
            NetConf::parse(text.as_bytes())
                .unwrap()
                .valid_attachments()
                .len()
        };
        let one = r#"[{"containerID":"a","ifname":"eth0"}]"#;
        assert_eq!(listed(&format!(r#","cni.dev/valid-attachments":{one}"#)), 1);
        assert_eq!(listed(&format!(r#","cni.dev/attachments":{one}"#)), 1);
        let both = format!(r#","cni.dev/attachments":{one},"cni.dev/valid-attachments":{one}"#);
        assert_eq!(listed(&both), 1);
        assert_eq!(listed(r#","cni.dev/valid-attachments":null"#), 0);
        assert_eq!(listed(""), 0);
    }

    #[test]
    fn addresses_come_from_capability_or_convention() {
        for text in [
            r#"{"name":"n","runtimeConfig":{"ips":["10.0.0.5/24","fd00::5"]}}"#,
            r#"{"name":"n","args":{"cni":{"ips":["10.0.0.5","fd00::5/64"]}}}"#,
        ] {
            let network = NetConf::parse(text.as_bytes()).unwrap();
            let found: Vec<String> = network
                .requested_addresses()
                .unwrap()
                .iter()
                .map(IpAddr::to_string)
                .collect();
            assert_eq!(found, ["10.0.0.5", "fd00::5"]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, code, message) in [
            ("", 6, "decoding the network configuration"),
            ("7", 6, "decoding the network configuration"),
            (
                r#"{"name":"a b"}"#,
                7,
                "network configuration, name: \"a b\"",
            ),
            (r#"{"type":"x"}"#, 7, "network configuration, name: \"\""),
            (
                r#"{"name":"n","mtu":20}"#,
                7,
                "network configuration, mtu: 20",
            ),
            (
                r#"{"name":"n","families":[5]}"#,
                7,
                "network configuration, families: 5",
            ),
        ] {
            let error = NetConf::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.code(), code, "{text}");
            assert!(error.to_string().starts_with(message), "{text}: {error}");
        }
        let network = NetConf::parse(br#"{"name":"n","cniVersion":"9.0"}"#).unwrap();
        assert_eq!(network.version().unwrap_err().code(), 1);
        let network = NetConf::parse(br#"{"name":"n","runtimeConfig":{"ips":["x"]}}"#).unwrap();
        assert_eq!(network.requested_addresses().unwrap_err().code(), 7);
    }
}
