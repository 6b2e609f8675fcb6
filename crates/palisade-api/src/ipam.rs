//! Address management: pools, assigned addresses, and consistency findings.

use serde::{Deserialize, Serialize};

/// Pools and assigned addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// In the order in which they are used.
    pub pools: Vec<PoolReport>,
    /// Ordered by address.
    pub addresses: Vec<AddressReport>,
}

/// Usage of a pool, in addresses. Values above 2^64 - 1 are given as 2^64 - 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// The pool's prefix.
    pub pool: String,
    /// All addresses of the pool.
    pub size: u64,
    /// Addresses assigned to workloads.
    pub taken: u64,
    /// Addresses that are never assigned.
    pub reserved: u64,
    /// Addresses available for assignment.
    pub free: u64,
}

/// An assigned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressReport {
    /// The address.
    pub address: String,
    /// The pool of the address; absent if the request gave the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// The host-side interface.
    pub interface: String,
    /// Container id of the runtime, if a runtime attached the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Name of the network, if a runtime attached the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Time of the attachment.
    pub since: String,
    /// Whether traffic to the outside is masqueraded with this host's address.
    pub masquerade: bool,
}

/// Inconsistencies of address management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamCheckReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// Number of workloads checked.
    pub workloads: usize,
    /// Leaked and missing objects; empty if everything is consistent.
    pub findings: Vec<IpamFinding>,
}

/// One inconsistency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamFinding {
    /// Kind of the object: `record`, `address`, `interface`, `route`, `neighbour`, `dispatch`, `masquerade`,
    /// `disk` or `deletion`.
    pub kind: String,
    /// The object.
    pub object: String,
    /// What is wrong.
    pub reason: String,
}
