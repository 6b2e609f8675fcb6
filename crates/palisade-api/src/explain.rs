//! The request of `GET /v1/explain`.

use serde::{Deserialize, Serialize};

/// The query parameters of `GET /v1/explain`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainQuery {
    /// The source: workload or address.
    pub from: String,
    /// The destination: workload, address or service.
    pub to: String,
    /// Destination port and protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Protocol without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// ICMP type, or type and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<String>,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
}
