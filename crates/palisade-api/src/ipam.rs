//! The addresses of workloads, and whether every part of the host agrees about them.

use serde::{Deserialize, Serialize};

/// Pools, and who has which address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// In the order in which they are filled.
    pub pools: Vec<PoolReport>,
    /// In order.
    pub addresses: Vec<AddressReport>,
}

/// How much of a pool is what, in addresses. 2^64 and more are told as 2^64 - 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// The pool.
    pub pool: String,
    /// All.
    pub size: u64,
    /// Those that workloads have.
    pub taken: u64,
    /// Those that are never given out.
    pub reserved: u64,
    /// Those that can be given out.
    pub free: u64,
}

/// An address and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressReport {
    /// The address.
    pub address: String,
    /// The pool that it is of; absent: the workload brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The workload's namespace.
    pub namespace: String,
    /// The workload's name.
    pub name: String,
    /// The host-side interface.
    pub interface: String,
    /// The runtime's id of the container, if a runtime attached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The network that it joined, if a runtime attached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// When it was attached.
    pub since: String,
    /// Whether what the workload sends to the outside leaves with this host's address.
    pub masquerade: bool,
}

/// What does not agree about addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamCheckReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// How many workloads were looked at.
    pub workloads: usize,
    /// What leaks or is missing; empty where all is well.
    pub findings: Vec<IpamFinding>,
}

/// One thing that does not agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamFinding {
    /// What kind of thing: `record`, `address`, `interface`, `route`, `neighbour`, `dispatch`,
    /// `masquerade`, `disk` or `deletion`.
    pub kind: String,
    /// Which one.
    pub object: String,
    /// What is wrong with it.
    pub reason: String,
}
