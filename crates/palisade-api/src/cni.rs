//! Attaching containers by CNI.

use serde::{Deserialize, Serialize};

/// Attach a container's network namespace, or confirm that it is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniAddRequest {
    /// The runtime's id of the container.
    pub container: String,
    /// The name of the network it joins.
    pub network: String,
    /// The interface inside the namespace.
    pub interface: String,
    /// The namespace's path.
    pub netns: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid, where the runtime says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether `namespace` and `name` are a pod's: then its labels come from the Pod of that name,
    /// and it stays closed until that is known.
    #[serde(default)]
    pub pod: bool,
    /// Addresses to give it; empty: one of each family that the host has a pool of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// With pools: only these families (`4`, `6`); empty: every family that has a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<u8>,
    /// The size of the largest packet, in bytes; absent: the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether its packets leave the host under the host's address; absent: as the agent is
    /// configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,
    /// Another plugin made the interface: only policy is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chained: Option<CniPrevResult>,
}

/// What another plugin made before this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniPrevResult {
    /// The host-side interface.
    pub host_interface: String,
    /// The addresses inside the namespace.
    pub addresses: Vec<String>,
}

/// The container is attached and its policy is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniAddResponse {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// The host-side interface.
    pub host_interface: String,
    /// Its Ethernet address.
    pub host_mac: String,
    /// The Ethernet address inside the namespace.
    pub mac: String,
    /// The size of the largest packet, in bytes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<CniAddress>,
    /// The routes inside the namespace.
    pub routes: Vec<CniRoute>,
    /// The policy revision that is real in the kernel for it.
    pub revision: u64,
    /// Why nothing passes yet, if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// An address inside a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniAddress {
    /// With its prefix length.
    pub address: String,
    /// Its gateway.
    pub gateway: String,
}

/// A route inside a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniRoute {
    /// The prefix it leads to.
    pub destination: String,
    /// Its gateway.
    pub gateway: String,
}

/// One container's attachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniAttachment {
    /// The runtime's id of the container.
    pub container: String,
    /// The name of the network.
    pub network: String,
    /// The interface inside the namespace.
    pub interface: String,
}

/// Whether a container is attached as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniCheckRequest {
    /// The attachment.
    pub attachment: CniAttachment,
    /// The namespace's path.
    pub netns: String,
    /// The addresses that ADD answered.
    pub addresses: Vec<String>,
}

/// Detach every container of a network that is not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniGcRequest {
    /// The name of the network.
    pub network: String,
    /// What stays.
    pub valid: Vec<CniAttachment>,
}

/// What an operation on attachments did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniResponse {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// What was detached; empty where nothing was there.
    pub removed: Vec<CniAttachment>,
}

/// The folder in which deletions wait while the agent is down.
pub mod deletion_queue {
    use super::CniAttachment;

    /// The file that is locked by whoever writes or carries out deletions.
    pub const LOCK: &str = "lock";

    /// The file of a deletion. Names of networks and containers hold no comma, and nothing of an
    /// attachment holds a slash.
    pub fn file_name(attachment: &CniAttachment) -> String {
        let CniAttachment {
            container,
            network,
            interface,
        } = attachment;
        format!("{network},{container},{interface}.json")
    }
}
