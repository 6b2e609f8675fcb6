//! Responses of the health probes.

use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// The response of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether the probe succeeded; the HTTP status agrees.
    pub ok: bool,
    /// Reasons for a failure, one sentence each.
    pub reasons: Vec<String>,
}
