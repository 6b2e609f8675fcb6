//! Identities: addresses that no active policy can tell apart.

use serde::{Deserialize, Serialize};

/// Every identity of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IdentityList {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// By number.
    pub identities: Vec<IdentityReport>,
}

/// One identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IdentityReport {
    /// Its number, local to this node and this run.
    pub id: u32,
    /// The addresses and prefixes that have it.
    pub prefixes: Vec<String>,
    /// What active policies test that its addresses match: selectors, networks, named ports.
    pub matches: Vec<String>,
}
