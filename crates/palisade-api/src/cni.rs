//! Attachment of containers through CNI.

use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// Attach a container's network namespace, or confirm that it is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniAddRequest {
    /// Container id of the runtime.
    pub container: String,
    /// Name of the network.
    pub network: String,
    /// Name of the interface inside the namespace.
    pub interface: String,
    /// Path of the network namespace.
    pub netns: String,
    /// Kubernetes namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod, if the runtime gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether `namespace` and `name` identify a pod. If so, the labels come from that Pod object, and all
    /// traffic is denied until it is known.
    #[serde(default)]
    pub pod: bool,
    /// Addresses to assign; empty: one of each address family for which the host has a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// With pools: only these address families (`4`, `6`); empty: every family with a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<u8>,
    /// MTU in bytes; absent: the agent's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether packets to the outside are masqueraded with the host's address; absent: the agent's
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,
    /// Chained mode: another plugin created the interface, and the agent only adds policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chained: Option<CniPrevResult>,
}

/// The result of the previous plugin in the chain.
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
    pub api_version: Str,
    /// The host-side interface.
    pub host_interface: String,
    /// Ethernet address of the host-side interface.
    pub host_mac: String,
    /// The Ethernet address inside the namespace.
    pub mac: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Assigned addresses.
    pub addresses: Vec<CniAddress>,
    /// The routes inside the namespace.
    pub routes: Vec<CniRoute>,
    /// The policy revision that is in the kernel for this endpoint.
    pub revision: u64,
    /// Why all traffic is denied, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// An address inside a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniAddress {
    /// Address with prefix length.
    pub address: String,
    /// Gateway address.
    pub gateway: String,
}

/// A route inside a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniRoute {
    /// Destination prefix.
    pub destination: String,
    /// Gateway address.
    pub gateway: String,
}

/// The attachment of one container to a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniAttachment {
    /// Container id of the runtime.
    pub container: String,
    /// Name of the network.
    pub network: String,
    /// Name of the interface inside the namespace.
    pub interface: String,
}

/// Check that a container is attached as its ADD result says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniCheckRequest {
    /// The attachment.
    pub attachment: CniAttachment,
    /// Path of the network namespace.
    pub netns: String,
    /// The addresses in the result of ADD.
    pub addresses: Vec<String>,
}

/// Detach every container of a network that is not listed as valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CniGcRequest {
    /// Name of the network.
    pub network: String,
    /// Attachments to keep.
    pub valid: Vec<CniAttachment>,
}

/// The result of an operation on attachments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CniResponse {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The detached attachments; empty if there were none.
    pub removed: Vec<CniAttachment>,
}

/// The directory of deletions that were requested while the agent was down.
pub mod deletion_queue {
    use super::CniAttachment;

    /// Lock file, held by a process that writes or executes deletions.
    pub const LOCK: &str = "lock";

    /// File name of a deletion. It is unambiguous: names of networks and containers contain no comma, and no
    /// part of an attachment contains a slash.
    pub fn file_name(attachment: &CniAttachment) -> String {
        let CniAttachment {
            container,
            network,
            interface,
        } = attachment;
        format!("{network},{container},{interface}.json")
    }
}
