//! Attaching network namespaces.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attach a network namespace as a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadAddRequest {
    /// The namespace's name under `/run/netns`, or a path.
    pub netns: String,
    /// The Kubernetes namespace it belongs to.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels; absent: those of the Pod of that name in the source. Where there is no such Pod,
    /// root's has none, and any other user's stays closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Addresses to give it; empty: one of each family that the host has a pool of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// With pools: only these families (`4`, `6`); empty: every family that has a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<u8>,
    /// Named ports, `name=number/protocol`; empty: those of the Pod of that name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The interface inside the namespace; absent: `eth0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The workload is attached and its policy is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAddResponse {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The host-side interface.
    pub host_interface: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The policy revision that is real in the kernel for it.
    pub revision: u64,
    /// Why nothing passes yet, if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// Detach a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRemoveRequest {
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The workload is detached; nothing of it is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRemoveResponse {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// Whether there was one; removing what is not there is no error.
    pub removed: bool,
}
