//! Attachment of network namespaces as workloads.

use palisade_model::Str;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attach a network namespace as a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadAddRequest {
    /// Name of the network namespace under `/run/netns`, or a path.
    pub netns: String,
    /// Kubernetes namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// Labels; absent: those of the Pod with that name in the source. If there is no such Pod, a workload
    /// attached by root has no labels, and all traffic of a workload attached by another user is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Addresses to assign; empty: one of each address family for which the host has a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// With pools: only these families (`4`, `6`); empty: every family that has a pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<u8>,
    /// Named ports, `name=number/protocol`; empty: those of the Pod with that name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Name of the interface inside the namespace; absent: `eth0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The workload is attached and its policy is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAddResponse {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The host-side interface.
    pub host_interface: String,
    /// Assigned addresses.
    pub addresses: Vec<String>,
    /// The policy revision that is in the kernel for this workload.
    pub revision: u64,
    /// Why all traffic is denied, if it is.
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

/// The workload is detached and all its objects are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRemoveResponse {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether it was attached; removing an unknown workload is not an error.
    pub removed: bool,
}
