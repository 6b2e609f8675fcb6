//! Names: the addresses that DNS answers gave for them.

use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// The names that have addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// In order.
    pub names: Vec<NameReport>,
    /// The number of names beyond those that are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
}

/// A name and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameReport {
    /// The name.
    pub name: String,
    /// Its addresses, in order.
    pub addresses: Vec<NameAddressReport>,
}

/// An address of a name, as one workload has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameAddressReport {
    /// The address.
    pub address: String,
    /// The workload that asked, as `namespace/name`.
    pub workload: String,
    /// Until when it stays, RFC 3339; longer while a connection uses it.
    pub expires: String,
    /// The workload, pod or node of the cluster that has this address: rules by name do not select it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A name, its addresses, and what selects it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameDetail {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The name and its addresses; of a name without any, none.
    #[serde(flatten)]
    pub name: NameReport,
    /// The rules that select its addresses, in the order of evaluation of their policies.
    pub selected_by: Vec<NameRuleReport>,
    /// The rules by which workloads may ask for it.
    pub asked_by: Vec<NameRuleReport>,
}

/// A rule that names or selects a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NameRuleReport {
    /// Its policy.
    pub policy: String,
    /// Where it is written; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What is known of names, in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NamesStatus {
    /// The policies that judge DNS queries by name, or observe them.
    pub policies: usize,
    /// The DNS proxies that are connected to the agent; more than one only while one takes over from another.
    pub proxies: usize,
    /// Names with addresses.
    pub names: usize,
    /// Their addresses, each once for each workload that asked.
    pub addresses: usize,
    /// Addresses that a bound removed before their time, since the start.
    pub evicted: u64,
    /// Servers whose answers give names no addresses, with the number of their answers since the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted_servers: Vec<UntrustedServerReport>,
}

/// A DNS server that may not teach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UntrustedServerReport {
    /// Its address.
    pub address: String,
    /// Its answers.
    pub answers: u64,
}
