//! Identities: groups of addresses that all active policies treat alike.

use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// Every identity of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IdentityList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Ordered by id.
    pub identities: Vec<IdentityReport>,
}

/// One identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IdentityReport {
    /// Numeric id, valid on this node until the agent restarts.
    pub id: u32,
    /// Its addresses and prefixes.
    pub prefixes: Vec<String>,
    /// The conditions of active policies that its addresses meet: selectors, networks, named ports.
    pub matches: Vec<String>,
}
