//! What probes are answered.

use serde::{Deserialize, Serialize};

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// Whether all is well; the HTTP status says the same.
    pub ok: bool,
    /// Why it is not, one sentence each.
    pub reasons: Vec<String>,
}
