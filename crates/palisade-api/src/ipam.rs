//! Address management: pools, assigned addresses, and consistency findings.

use crate::object::named_enum;
use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// Pools and assigned addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
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
    pub api_version: Str,
    /// Number of workloads checked.
    pub workloads: usize,
    /// Leaked and missing objects; empty if everything is consistent.
    pub findings: Vec<IpamFinding>,
}

named_enum! {
    /// The kind of an object that is inconsistent.
    IpamFindingKind {
        /// An address.
        Address = "address",
        /// A CNI DEL that is queued.
        Deletion = "deletion",
        /// The record of a workload on disk.
        Disk = "disk",
        /// The dispatch of an interface or address in the tables.
        Dispatch = "dispatch",
        /// An interface.
        Interface = "interface",
        /// The masquerading of an address.
        Masquerade = "masquerade",
        /// A permanent neighbour entry.
        Neighbour = "neighbour",
        /// The record of a workload.
        Record = "record",
        /// A route.
        Route = "route",
    }
}

/// One inconsistency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamFinding {
    /// Kind of the object.
    pub kind: IpamFindingKind,
    /// The object.
    pub object: String,
    /// What is wrong.
    pub reason: String,
}
